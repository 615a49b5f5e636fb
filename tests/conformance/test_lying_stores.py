"""A store that answers one question wrongly is caught by the kit, by a clause that depends on the answer."""

# ruff: noqa: E501 — a table is read by its columns

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from helpers.catching import check_caught
from msgspec.structs import replace

from standfast._src.sessions.backends.memory.memory_session import InMemorySession, InMemoryStore
from standfast._src.sessions.storage import (
    Cell,
    CommitRequest,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Name,
    ReadAnswer,
    ReadRequest,
    Refused,
)
from standfast.conformance import Options, check
from tests.conformance.kit_backends import Memory

QUICK = Options(rounds=4, examples=120, objects=200, repeatable=True, shrink=False)


class Lying(InMemoryStore):
    """Memory, with one answer or one change that a test makes wrong."""

    def __init__(
        self,
        sight: Callable[[ReadRequest, ReadAnswer], ReadAnswer] | None,
        change: Callable[[KeyUpdate], KeyUpdate] | None,
    ) -> None:
        super().__init__()
        self._sight, self._changed = sight, change

    def look(self, look: ReadRequest) -> ReadAnswer:
        seen = super().look(look)
        return seen if self._sight is None else self._sight(look, seen)

    def commit(self, step: CommitRequest) -> Done | Refused:
        return super().commit(step if self._changed is None else [self._changed(change) for change in step])


class ListsBackwards(InMemoryStore):
    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        return super().listing(kind, after=after, limit=limit, labels=labels)[::-1]


class IgnoresLimits(InMemoryStore):
    def look(self, look: ReadRequest) -> ReadAnswer:
        return super().look(replace(look, rows=tuple(rows._replace(limit=None) for rows in look.rows)))


class IgnoresLabels(InMemoryStore):
    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        return super().listing(kind, after=after, limit=limit, labels={})


class CountsEverything(InMemoryStore):
    def count(self, kind: Kind) -> int:
        return super().count("session") + super().count("run") + 1


def sees(change: Callable[[ReadRequest, ReadAnswer], ReadAnswer]) -> Callable[[], InMemoryStore]:
    return lambda: Lying(change, None)


def does(change: Callable[[KeyUpdate], KeyUpdate]) -> Callable[[], InMemoryStore]:
    return lambda: Lying(None, change)


def all_alive(_: ReadRequest, seen: ReadAnswer) -> ReadAnswer:
    return replace(seen, cells={name: Cell(cell.value, True) for name, cell in seen.cells.items()})


LIES: list[tuple[str, Callable[[], InMemoryStore], str, str]] = [
    ("rows come newest first", sees(lambda _, s: replace(s, data=list(s.data)[::-1])), "A1", "items_come_back_in_the_order_they_were_appended"),
    ("marks are all equal", sees(lambda _, s: replace(s, mark="1" if s.mark else "")), "B2", "a_change_on_a_session_that_moved_is_refused_with_both_heads"),
    ("every mark can be resolved", sees(lambda k, s: s if k.upto is None else replace(s, upto=10**9)), "B3", "a_replacement_stands_before_what_was_appended_since"),
    ("every cell is alive", sees(all_alive), "A12", "what_survives_a_clear_belongs_to_no_history_and_no_number_of_a_row_comes_again"),
    ("no cell is there", sees(lambda _, s: replace(s, cells={})), "B1", "a_repeated_append_stores_each_item_once"),
    ("the clock stands still", sees(lambda _, s: replace(s, now=1.0)), "B7", "a_lease_that_nobody_renews_is_over_without_anybody_waiting"),
    ("nothing was ever created", sees(lambda _, s: replace(s, created=None)), "A16", "the_creation_time_is_set_once_and_the_update_time_moves_with_changes"),
    ("tags are lost", sees(lambda _, s: replace(s, rows=tuple([r._replace(tag=None) for r in b] for b in s.rows))), "B5", "a_rewind_removes_a_writers_tail_and_lowers_its_count"),
    ("push loses the last row", does(lambda c: replace(c, push=c.push[:-1])), "A1", "items_come_back_in_the_order_they_were_appended"),
    ("drop drops nothing", does(lambda c: replace(c, drop=())), "A11", "pop_gives_the_newest_item_until_there_is_none"),
    ("wipe keeps nothing", does(lambda c: c if c.wipe is None else replace(c, remove=True, wipe=None)), "B1", "a_count_survives_pop_and_clear"),
    ("cells are not written", does(lambda c: replace(c, put={})), "B1", "a_repeated_append_stores_each_item_once"),
    ("nothing is swept", does(lambda c: replace(c, sweep=())), "C12", "a_tail_takes_the_place_of_what_the_log_has_from_its_start_on"),
    ("times do not move", does(lambda c: replace(c, touch=c.touch and bool(c.push))), "A16", "the_creation_time_is_set_once_and_the_update_time_moves_with_changes"),
    ("labels are not kept", does(lambda c: replace(c, labels=None)), "C12", "runs_are_listed_newest_change_first"),
    ("nothing is removed", does(lambda c: replace(c, remove=False)), "C12", "runs_are_listed_newest_change_first"),
    ("nothing is kept of what is replaced", does(lambda c: c if c.arrange is None else replace(c, arrange=c.arrange._replace(keep=()))), "B3", "a_replacement_stands_before_what_was_appended_since"),
    ("limits are ignored", IgnoresLimits, "A2", "a_limit_gives_the_latest_items_oldest_first"),
    ("listed oldest first", ListsBackwards, "B9", "sessions_are_listed_newest_change_first_in_pages"),
    ("labels do not filter", IgnoresLabels, "C12", "runs_are_listed_newest_change_first"),
    ("counts too much", CountsEverything, "B9", "sessions_are_listed_newest_change_first_in_pages"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("lie", "make", "clause", "seen_by"),
    LIES,
    ids=[lie[0] for lie in LIES],
)
def test_a_store_that_answers_one_question_wrongly_is_caught(
    lie: str, make: Callable[[], InMemoryStore], clause: str, seen_by: str
) -> None:
    class Backend(Memory):
        name = lie

        def setup(self) -> None:
            self.__dict__["store"] = make()

        def open(self, session_id: str, **options: Any) -> InMemorySession:
            return InMemorySession(session_id, store=self.store, **options)

    check_caught(check(Backend(), clause, only=seen_by, options=QUICK), f"{lie} ({clause})")


def test_a_condition_is_all_or_nothing() -> None:
    """One change that is refused stops the whole step, and says what stands there instead."""
    store = InMemoryStore()
    one, two = Name("session", "1"), Name("session", "2")
    store.commit([KeyUpdate(one, put={"x": b"1"}, touch=True)])
    got = store.commit(
        [KeyUpdate(two, put={"y": b"1"}, touch=True), KeyUpdate(one, cells={"x": b"2"}, put={"x": b"3"})]
    )
    assert isinstance(got, Refused)
    assert (got.place, got.why, got.cells["x"].value) == (1, "cell", b"1")
    assert store.look(ReadRequest(two, cells=("y",))).cells == {}
    assert store.look(ReadRequest(one, cells=("x",))).cells["x"].value == b"1"
