"""Common parts of stores, written once so that no two stores can differ.

A store in this process reads rows and compares them with conditions in Python; one with programs of its own on a server
(scripts, functions) sends them a step in numbers. Both are here, as pure functions of the request and the stored data.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from standfast._src.base.digits import whole_number
from standfast._src.base.errors import (
    CorruptRecordError,
    NotFoundError,
    OutcomeUnknownError,
    StandfastError,
    StoreError,
    StoreUnavailableError,
)
from standfast._src.sessions.storage import (
    Addition,
    Answer,
    Arrange,
    Ask,
    Cell,
    CommitRequest,
    Count,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Listing,
    Load,
    Name,
    Range,
    ReadAnswer,
    ReadRequest,
    Refused,
    Row,
    Rows,
    Store,
    Tag,
    ask,
)

ADDED_DIGITS = 17
# What is added is below 2**53: it has fewer digits.

NUMBER_MAX = 2**62
"""What the numbers of a listing stay below."""


def read_cursor(text: object) -> int:
    """Parse the cursor of a listing (see `Listed.cursor`); raise NotFoundError for any other value."""
    number = whole_number(text, below=NUMBER_MAX)
    if number is None:
        raise not_a_cursor(text)
    return number


def not_a_cursor(text: object) -> NotFoundError:
    """The error for a text that no listing gave as a cursor."""
    return NotFoundError(f"{text!r} is no cursor of this listing", "Use the cursor that an earlier page gave.")


def labels_of(stored: str | bytes | None) -> Mapping[str, str]:
    """Parse a name's labels, stored as JSON."""
    found: Mapping[str, str] = json.loads(stored) if stored else {}
    return found


class Answering(ABC):
    """The four methods of a store (see `Store`), for a store that answers every request in one method."""

    @abstractmethod
    def answer(self, question: Ask) -> Any:
        """Answer a request, as `ask` does; or raise."""

    def look(self, look: ReadRequest) -> ReadAnswer:
        """Read all requested parts at one instant."""
        found: ReadAnswer = self.answer(look)
        return found

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Do the whole step if all conditions hold."""
        found: Done | Refused = self.answer(step)
        return found

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """List names of a kind with these labels, newest change first."""
        found: Sequence[Listed] = self.answer(Listing(kind, after, limit, labels))
        return found

    def count(self, kind: Kind) -> int:
        """Return the number of names of a kind."""
        return int(self.answer(Count(kind)))


def asked_alone(store: Store, question: Ask) -> Answer | Exception:
    """Return the store's answer to one of several requests; an error is returned, so that it does not
    affect the rest.
    """
    try:
        return ask(store, question)
    except StandfastError as error:
        return error


def build_no_answer_error(server: str, said: str, *, reading: bool) -> StoreError:
    """Build the error for a connection that broke after something was sent."""
    if reading:
        return StoreUnavailableError(f"{server} did not answer: {said}", "Nothing was changed; try again.")
    return OutcomeUnknownError(
        f"{server} did not answer: {said}",
        "It was done whole or not at all. Repeating an append under the same writer and number is safe.",
    )


# --- conditions and ranges, seen in Python ----------------------------------------------------------------------------


def conditions(change: KeyUpdate, *, mark: bool = True) -> ReadRequest:
    """Build the read request for a change's conditions; without `mark`, the mark only if it is a condition."""
    is_marked = mark or change.mark is not None
    return ReadRequest(change.name, cells=(*change.cells, *change.add), upto=change.prefix, mark=is_marked)


def refusal(place: int, change: KeyUpdate, sight: ReadAnswer) -> Refused | None:
    """Return the refusal of a step if conditions of its change number `place` do not hold, or None.

    `sight` is the answer to the request of `conditions`.
    """
    for cell, value in change.cells.items():
        found = sight.cells.get(cell)
        if (None if found is None else found.value) != value:
            return Refused(place, "cell", sight.mark, sight.cells)
    if any(is_above(value_at(sight.cells.get(cell)), one) for cell, one in change.add.items()):
        return Refused(place, "cell", sight.mark, sight.cells)
    is_elsewhere = change.mark is not None and sight.mark != change.mark
    if is_elsewhere or (change.prefix is not None and sight.upto is None):
        return Refused(place, "mark", sight.mark, sight.cells)
    return None


def value_at(cell: Cell | None) -> bytes | None:
    """Return a cell's value; None for a missing cell."""
    return None if cell is None else cell.value


def add_to(value: bytes | None, add: Addition) -> int:
    """Return the sum of a cell and an addition; a missing cell is 0. Raises CorruptRecordError for a corrupt cell."""
    number = 0 if value is None else signed_number(value)
    if number is None:
        raise CorruptRecordError("a cell to add to holds no whole number", "Check the store with `standfast doctor`.")
    return number + add.n


def is_above(value: bytes | None, add: Addition) -> bool:
    """Return whether an addition would pass its `max`."""
    return add.max is not None and add_to(value, add) > add.max


def sum_value(value: bytes | None, add: Addition) -> bytes:
    """Return a cell's value after an addition."""
    return b"%d" % add_to(value, add)


def signed_number(value: bytes) -> int | None:
    """Parse a whole number in decimal digits; return None for other contents."""
    digits = value.removeprefix(b"-")
    return int(value) if digits.isdigit() and len(digits) < ADDED_DIGITS else None


def of_writer(rows: Sequence[Row], wanted: Rows) -> Sequence[Row]:
    """Select the rows of a writer, the newest `limit`; all rows if no writer is requested."""
    if wanted.writer is None:
        return rows
    found = [row for row in rows if row.tag is not None and row.tag.writer == wanted.writer]
    return found if wanted.limit is None else found[max(0, len(found) - wanted.limit) :]


def in_range(rows: Iterable[Row], part: Range) -> list[Row]:
    """Select the rows of a range, with their new tags."""
    found = [
        row
        for row in rows
        if (part.after is None or row.ref > part.after) and (part.upto is None or row.ref <= part.upto)
    ]
    if part.replaces is None:
        return found
    return [row._replace(tag=row.tagged(part.replaces)) for row in found]


def new_rows(rows: Iterable[tuple[bytes, Tag]]) -> list[Row]:
    """Build rows that are in no box yet, and have no ref yet."""
    return [Row(0, data, tag) for data, tag in rows]


def apply_arrangement(arrange: Arrange, box_of: Callable[[Range], Iterable[Row]]) -> tuple[list[Row], list[Row]]:
    """Return the live rows of an arrangement, and the kept ones.

    `box_of` gives the rows of the box that a range is taken from, as they were before the step.
    """
    live: list[Row] = []
    for part in arrange.live:
        live += in_range(box_of(part), part) if isinstance(part, Range) else new_rows(part)
    return live, [row for part in arrange.keep for row in in_range(box_of(part), part)]


# --- a step in numbers ------------------------------------------------------------------------------------------------


class Description(ABC):
    """Encoder of a change as JSON of numbers only, for a program on a server.

    Names, values and contents are arguments beside it, and represented in it by their numbers: so the program compares
    and moves them, and never decodes them (Lua's JSON turns 12345678901234567890 into 1.2345678901235e+19).
    """

    def __init__(self, change: KeyUpdate) -> None:
        self.change = change

    @abstractmethod
    def argument(self, value: bytes) -> int:
        """Return the number under which the program finds this value."""

    @abstractmethod
    def rows(self, rows: Sequence[tuple[bytes, Tag]]) -> tuple[int, int]:
        """Return the numbers of the first and the last of these rows; without rows the last is below the first."""

    @abstractmethod
    def put_back(self, row: Row) -> int:
        """Return the number of a dropped row."""

    @abstractmethod
    def loaded(self, load: Load) -> dict[str, Any]:
        """Encode data kept elsewhere."""

    @abstractmethod
    def of(self, name: Name) -> int:
        """Return the number under which the program finds another name."""

    def text(self, value: str) -> int:
        """The number of a text."""
        return self.argument(value.encode())

    def replaces(self, generation: int) -> int:
        """Return the new `replaces` value of the rows of a range."""
        return generation

    def pushed(self, rows: Sequence[tuple[bytes, Tag]]) -> dict[str, Any]:
        """New rows at the end."""
        return {"push": self.rows(rows)}

    def made(self) -> dict[str, Any]:
        """Return the description. A missing entry means no such change."""
        change = self.change
        found: dict[str, Any] = {"id": self.text(change.name.id)}
        found |= {"want": self._values(change.cells), "put": self._values(change.put)}
        if change.add:
            found["add"] = [
                (self.text(cell), one.n) if one.max is None else (self.text(cell), one.n, one.max)
                for cell, one in change.add.items()
            ]
        for key, text in (("mark", change.mark), ("prefix", change.prefix)):
            if text is not None:
                found[key] = self.text(text)
        for key, prefixes in (("wipe", change.wipe), ("sweep", change.sweep or None)):
            if prefixes is not None:
                found[key] = [self.text(prefix) for prefix in prefixes]
        for key, flag in (("remove", change.remove), ("touch", change.touch)):
            if flag:
                found[key] = True
        if change.labels is not None:
            found["labels"] = self.argument(json.dumps(dict(change.labels)).encode())
        if change.drop:
            found["drop"] = list(change.drop)
        if change.arrange is not None:
            live, box, keep, forget = change.arrange
            found["arrange"] = {
                "live": [self._part(part) for part in live],
                "keep": [self._part(part) for part in keep],
            }
            found["arrange"] |= {"box": box, "forget": list(forget)}
        if change.back:
            found["back"] = [(row.ref, self.put_back(row)) for row in sorted(change.back)]
        if change.push:
            found |= self.pushed(change.push)
        if change.load is not None:
            found["load"] = self.loaded(change.load)
        return found

    def _values(self, cells: Mapping[str, bytes | None]) -> list[tuple[int, int]]:
        return [(self.text(cell), 0 if value is None else self.argument(value)) for cell, value in cells.items()]

    def _part(self, part: Range | Sequence[tuple[bytes, Tag]]) -> dict[str, Any]:
        if not isinstance(part, Range):
            return {"new": self.rows(part)}
        found: dict[str, Any] = {"box": part.box}
        if part.after is not None:
            found["after"] = part.after
        if part.upto is not None:
            found["upto"] = part.upto
        if part.of is not None:
            found["of"] = self.of(part.of)
        if part.replaces is not None:
            found["replaces"] = self.replaces(part.replaces)
        return found
