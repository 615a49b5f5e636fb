"""Mistakes of a store that a session's own methods do not show before two processes meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from standfast import InMemoryStore
from standfast._src.sessions.storage import (
    CommitRequest,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    ReadAnswer,
    ReadRequest,
    Refused,
)
from tests.conformance.kit_backends import Memory
from tests.conformance.mistakes.mistake import BROKEN, Mistake


def breaks(clause: str, check: str) -> Callable[[type[InMemoryStore]], type[InMemoryStore]]:
    """Register memory with a store of this class as the mistake its docstring tells."""

    def register(kind: type[InMemoryStore]) -> type[InMemoryStore]:
        class Wrong(Memory):
            name = str(kind.__doc__).splitlines()[0].rstrip(".")

            @cached_property
            def store(self) -> InMemoryStore:
                return kind()

        BROKEN.append(Mistake(Wrong(), clause, check))
        return kind

    return register


@breaks("C12", "a_step_of_which_a_later_condition_fails_changes_nothing_and_says_what_it_found")
class GoesAsFarAsItCan(InMemoryStore):
    """does the changes of a step one by one, until a condition does not hold."""

    def commit(self, step: CommitRequest) -> Done | Refused:
        marks: list[str] = []
        for place, change in enumerate(step):
            got = super().commit([change])
            if isinstance(got, Refused):
                return replace(got, place=place)
            marks += got.marks
        return Done(tuple(marks))


@breaks("B2", "no_mark_stands_for_two_histories")
class PutsBackUnnoticed(InMemoryStore):
    """puts rows back without another edition."""

    def _change(self, change: KeyUpdate, arranged: Any) -> str:
        before = self._get_or_create(change.name).edition
        super()._change(change, arranged)  # private: what an edition is, only the store itself can get wrong
        stored = self._get_or_create(change.name)
        stored.edition = before if change.back else stored.edition
        return stored.mark()


@breaks("A12", "what_survives_a_clear_belongs_to_no_history_and_no_number_of_a_row_comes_again")
class KeepsCellsAlive(InMemoryStore):
    """lets what survives a clear belong to the history that follows."""

    def look(self, look: ReadRequest) -> ReadAnswer:
        sight = super().look(look)
        return replace(sight, cells={name: replace(cell, alive=True) for name, cell in sight.cells.items()})


@breaks("B3", "the_effects_of_a_change_take_place_in_their_order")
class SweepsLast(InMemoryStore):
    """removes cells by their beginning after it has put others."""

    def commit(self, step: CommitRequest) -> Done | Refused:
        parts = [(replace(change, sweep=()), KeyUpdate(change.name, sweep=change.sweep)) for change in step]
        got = super().commit([change for both in parts for change in both])
        return replace(got, place=got.place // 2) if isinstance(got, Refused) else Done(got.marks[1::2])


@breaks("B9", "a_listing_holds_what_has_all_the_labels_and_nothing_that_was_never_touched")
class LooksAtOneLabel(InMemoryStore):
    """lists by the first label that is asked for."""

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        return super().listing(kind, after=after, limit=limit, labels=dict(list(labels.items())[:1]))
