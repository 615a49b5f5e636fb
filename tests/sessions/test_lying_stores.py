"""A store that answers one question wrongly is caught by the kit, by a clause that depends on the answer."""

# ruff: noqa: E501 — a table is read by its columns

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from standfast.backends.memory.session import InMemorySession, InMemoryStore
from standfast.conformance import Options, check
from standfast.conformance.results import BROKEN
from standfast.sessions.port import Cell, Change, Done, Kind, Listed, Look, Name, Refused, Sight, Step
from tests.conformance.kit_backends import Memory

QUICK = Options(rounds=4, examples=120, objects=200, repeatable=True, soon_s=2)


class Lying(InMemoryStore):
    """Memory, with one answer or one change that a test makes wrong."""

    def __init__(self, sight: Callable[[Look, Sight], Sight] | None, change: Callable[[Change], Change] | None) -> None:
        super().__init__()
        self._sight, self._changed = sight, change

    def look(self, look: Look) -> Sight:
        seen = super().look(look)
        return seen if self._sight is None else self._sight(look, seen)

    def commit(self, step: Step) -> Done | Refused:
        return super().commit(step if self._changed is None else [self._changed(change) for change in step])


class ListsBackwards(InMemoryStore):
    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        return super().listing(kind, after=after, limit=limit, labels=labels)[::-1]


class IgnoresLimits(InMemoryStore):
    def look(self, look: Look) -> Sight:
        return super().look(replace(look, rows=tuple(rows._replace(limit=None) for rows in look.rows)))


class IgnoresLabels(InMemoryStore):
    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        return super().listing(kind, after=after, limit=limit, labels={})


class CountsEverything(InMemoryStore):
    def count(self, kind: Kind) -> int:
        return super().count("session") + super().count("run") + 1


def sees(change: Callable[[Look, Sight], Sight]) -> Callable[[], InMemoryStore]:
    return lambda: Lying(change, None)


def does(change: Callable[[Change], Change]) -> Callable[[], InMemoryStore]:
    return lambda: Lying(None, change)


def all_alive(_: Look, seen: Sight) -> Sight:
    return replace(seen, cells={name: Cell(cell.value, True) for name, cell in seen.cells.items()})


LIES: list[tuple[str, Callable[[], InMemoryStore], str]] = [
    ("rows come newest first", sees(lambda _, s: replace(s, data=list(s.data)[::-1])), "A1"),
    ("marks are all equal", sees(lambda _, s: replace(s, mark="1" if s.mark else "")), "B2"),
    ("every mark can be resolved", sees(lambda k, s: s if k.upto is None else replace(s, upto=10**9)), "B3"),
    ("every cell is alive", sees(all_alive), "B1"),
    ("no cell is there", sees(lambda _, s: replace(s, cells={})), "B1"),
    ("the clock stands still", sees(lambda _, s: replace(s, now=1.0)), "B7"),
    ("nothing was ever created", sees(lambda _, s: replace(s, created=None)), "A16"),
    ("tags are lost", sees(lambda _, s: replace(s, rows=tuple([r._replace(tag=None) for r in b] for b in s.rows))), "B5"),
    ("push loses the last row", does(lambda c: replace(c, push=c.push[:-1])), "A1"),
    ("drop drops nothing", does(lambda c: replace(c, drop=())), "A11"),
    ("wipe keeps nothing", does(lambda c: c if c.wipe is None else replace(c, remove=True, wipe=None)), "B1"),
    ("cells are not written", does(lambda c: replace(c, put={})), "B1"),
    ("nothing is swept", does(lambda c: replace(c, sweep=())), "C12"),
    ("times do not move", does(lambda c: replace(c, touch=c.touch and bool(c.push))), "A16"),
    ("labels are not kept", does(lambda c: replace(c, labels=None)), "C12"),
    ("nothing is removed", does(lambda c: replace(c, remove=False)), "C12"),
    ("nothing is kept of what is replaced", does(lambda c: c if c.arrange is None else replace(c, arrange=c.arrange._replace(keep=()))), "B3"),
    ("limits are ignored", IgnoresLimits, "A2"),
    ("listed oldest first", ListsBackwards, "B9"),
    ("labels do not filter", IgnoresLabels, "C12"),
    ("counts too much", CountsEverything, "B9"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("lie", "make", "clause"),
    LIES,
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_store_that_answers_one_question_wrongly_is_caught(
    lie: str, make: Callable[[], InMemoryStore], clause: str
) -> None:
    class Backend(Memory):
        name = lie
        patience_s = 8

        def setup(self) -> None:
            self.__dict__["store"] = make()

        def open(self, session_id: str, **options: Any) -> InMemorySession:
            return InMemorySession(session_id, store=self.store, **options)

    results = check(Backend(), clause, options=QUICK)
    assert [result for result in results if result.value == BROKEN], f"{lie}: {clause} did not see it"


def test_a_condition_is_all_or_nothing() -> None:
    """One change that is refused stops the whole step, and says what stands there instead."""
    store = InMemoryStore()
    one, two = Name("session", "1"), Name("session", "2")
    store.commit([Change(one, put={"x": b"1"}, touch=True)])
    got = store.commit([Change(two, put={"y": b"1"}, touch=True), Change(one, cells={"x": b"2"}, put={"x": b"3"})])
    assert isinstance(got, Refused)
    assert (got.place, got.why, got.cells["x"].value) == (1, "cell", b"1")
    assert store.look(Look(two, cells=("y",))).cells == {}
    assert store.look(Look(one, cells=("x",))).cells["x"].value == b"1"
