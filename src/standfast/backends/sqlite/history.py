"""The history itself: reading, appending, popping, rewinding, clearing, paging.

Each function runs inside the caller's transaction (a read may run without one). Those that may refuse do so before
they write anything: the writer relies on it to let the rest of a group go on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from standfast.backends.sqlite import rows, writer_counts as writers
from standfast.backends.sqlite.rows import (
    BEYOND,
    as_bytes,
    as_text,
    check_head,
    head_of,
    item_or_fault,
    read_head,
    snapshot,
    touch,
    valid_items,
)
from standfast.backends.sqlite.statements import ROWS_PER_INSERT, Statements, numbered
from standfast.ground.errors import (
    AppendGapError,
    CorruptRecordError,
    LeaseLostError,
    NotFoundError,
    SessionConflictError,
)
from standfast.ground.jsonvalue import Item
from standfast.sessions.protocol import CorruptRecord, Head, Page

# --- reading ------------------------------------------------------------------------------


def get_items(db: sqlite3.Connection, sql: Statements, session_id: str, limit: int | None) -> list[Item]:
    """All items, or the latest `limit` valid ones."""
    if limit == 0:
        return []
    if limit is None:
        cursor = db.execute(sql.all_items, (session_id,))
    else:
        cursor = db.execute(sql.newest_items, (session_id, limit))
    items = rows.all_valid(cursor)
    if items is None:
        return _items_despite_corruption(db, sql, session_id, limit)
    return items if limit is None else items[::-1]


def _items_despite_corruption(
    db: sqlite3.Connection, sql: Statements, session_id: str, limit: int | None
) -> list[Item]:
    if limit is None:
        return valid_items(db, sql, db.execute(sql.all_rows, (session_id,)))
    return [item for _, item in _latest(db, sql, session_id, BEYOND, limit)]


def _latest(
    db: sqlite3.Connection, sql: Statements, session_id: str, before: int, limit: int
) -> list[tuple[int, Item]]:
    """The latest `limit` valid rows below an id, oldest first, however many corrupt ones stand among them."""
    found: list[tuple[int, Item]] = []
    with snapshot(db):
        while len(found) < limit:
            window = max(limit - len(found), 16)
            looked = db.execute(sql.rows_before, (session_id, before, window)).fetchall()
            for row_id, data in looked:
                item, fault = item_or_fault(data)
                if item is None:
                    rows.report(db, sql, row_id, fault)
                else:
                    found.append((row_id, item))
            if len(looked) < window:
                break
            before = looked[-1][0]
    return found[:limit][::-1]


def page(db: sqlite3.Connection, sql: Statements, session_id: str, before: str | None, limit: int) -> Page:
    """The `limit` items before a cursor, and the cursor of the page before them."""
    end = BEYOND if before is None else _cursor(before)
    found = _latest(db, sql, session_id, end, limit + 1)  # one more tells whether there is another page
    if before is not None and not found:
        _check_still_there(db, sql, session_id)
    if len(found) <= limit:
        return Page([item for _, item in found], None)
    shown = found[1:]
    cursor = shown[0][0] if shown else end
    return Page([item for _, item in shown], str(cursor))


def _check_still_there(db: sqlite3.Connection, sql: Statements, session_id: str) -> None:
    """A cursor is given out only where there is more before it. If now there is nothing, and yet a history, then every
    row of it is newer: the one that was being read was replaced or cleared, and this page is not its beginning."""
    if rows.newest_valid(db, sql, session_id) is not None:
        raise SessionConflictError(
            "the history this page belongs to was replaced or cleared", "Read again from the latest page."
        )


def _cursor(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > BEYOND:
        raise NotFoundError(f"{text!r} is no page cursor", "Use Page.before of an earlier page of this session.")
    return int(text)


def corrupt_records(db: sqlite3.Connection, sql: Statements, session_id: str) -> list[CorruptRecord]:
    """Every row that is no item, oldest first."""
    found = []
    for row_id, data in db.execute(sql.all_rows, (session_id,)):
        item, fault = item_or_fault(data)
        if item is None:
            found.append(CorruptRecord(str(row_id), fault, as_bytes(data)))
    return found


def repair(db: sqlite3.Connection, sql: Statements, session_id: str) -> list[CorruptRecord]:
    """Remove the corrupt rows and give them back."""
    found = corrupt_records(db, sql, session_id)
    for record in found:
        db.execute(sql.delete_row, (int(record.record_id),))
    return found


# --- appending ------------------------------------------------------------------------------


class Batch(NamedTuple):
    """What one append brings: encoded items, and what each is known by."""

    writer: str
    start: int
    texts: Sequence[str]
    digests: Sequence[bytes]
    expect: Head | None
    fence: int | None


def insert(db: sqlite3.Connection, sql: Statements, session_id: str, texts: Sequence[str]) -> int:
    """Insert rows of nobody in particular at the end; gives the id of the last. A statement takes many rows."""
    last = 0
    for place in range(0, len(texts), ROWS_PER_INSERT):
        chunk = texts[place : place + ROWS_PER_INSERT]
        values = [value for text in chunk for value in (session_id, text)]
        last = db.execute(sql.insert_rows(len(chunk)), values).lastrowid or 0
    return last


def insert_owned(
    db: sqlite3.Connection, sql: Statements, session_id: str, texts: Sequence[str], writer: str, start: int
) -> int:
    """Insert rows of a writer at the end; gives the id of the last. Their ids are consecutive."""
    last = 0
    for place in range(0, len(texts), ROWS_PER_INSERT):
        chunk = texts[place : place + ROWS_PER_INSERT]
        numbers = enumerate(chunk, start + place)
        values = [value for ordinal, text in numbers for value in (session_id, text, writer, ordinal)]
        last = db.execute(sql.insert_owned_rows(len(chunk)), values).lastrowid or 0
    return last


def add(db: sqlite3.Connection, sql: Statements, session_id: str, texts: Sequence[str]) -> None:
    """Append rows of no writer: `add_items`. They move the head and are never rewound, like the SDK's own."""
    insert(db, sql, session_id, texts)
    touch(db, sql, session_id)


def append(db: sqlite3.Connection, sql: Statements, session_id: str, batch: Batch) -> Head:
    """Append what this writer has not appended yet (B1)."""
    check_fence(db, sql, session_id, batch.fence)
    writer = writers.find(db, sql, session_id, batch.writer)
    count = writer.total
    if not 0 <= batch.start <= count:
        raise AppendGapError(
            f"writer {batch.writer!r} has written {count} items and this batch starts at {batch.start}",
            f"Append from {count} on, or from an earlier number with the same items.",
        )
    writers.check_digests(db, sql, batch.writer, writer, batch.start, batch.digests)
    known = min(count - batch.start, len(batch.texts))
    if known == len(batch.texts):
        return read_head(db, sql, session_id)  # a repeat after a lost acknowledgement: what was expected has come true
    check_head(db, sql, session_id, batch.expect)
    fresh = batch.texts[known:]
    last = insert_owned(db, sql, session_id, fresh, batch.writer, count)
    first = last - len(fresh) + 1
    writers.record(db, sql, session_id, batch.writer, writer, batch.digests[known:], first)
    touch(db, sql, session_id)
    return head_of(writer.first_row or first, last, last)


def accepted(db: sqlite3.Connection, sql: Statements, session_id: str, writer: str) -> int:
    """How many items this writer has had accepted."""
    return writers.find(db, sql, session_id, writer).total


def check_fence(db: sqlite3.Connection, sql: Statements, session_id: str, fence: int | None) -> None:
    """Refuse a write under a lease that somebody else has taken since (B7)."""
    if fence is None:
        return
    row = db.execute(sql.lease, (session_id,)).fetchone()
    number = 0 if row is None else row[0]
    if fence < number:
        raise LeaseLostError(
            f"the lease number {fence} on session {session_id!r} was taken over by number {number}",
            "Another run has the session now: reload it and run again.",
        )


def written(db: sqlite3.Connection, sql: Statements, session_id: str, writer: str) -> dict[int, Item]:
    """This writer's valid items in the live history, by ordinal."""
    known = writers.find(db, sql, session_id, writer)
    if not known.total:
        return {}
    found = {}
    for ordinal, data in db.execute(sql.written, numbered(session_id, writer, known.first_id)):
        item, _ = item_or_fault(data)
        if item is not None:
            found[ordinal] = item
    return found


# --- removing ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Popped:
    """A removed item, and all that is needed to put it back at its own place."""

    item: Item
    row: tuple[Any, ...]
    epoch: str
    generation: int
    """The newest generation at that moment: a later one means that the rows around it are others now."""


def pop(db: sqlite3.Connection, sql: Statements, session_id: str) -> Popped | None:
    """Remove the newest valid row; corrupt rows behind it stay where they are."""
    found = rows.newest_valid(db, sql, session_id)
    if found is None:
        return None
    row_id, item = found
    row = db.execute(sql.whole_row, (row_id,)).fetchone()
    db.execute(sql.delete_row, (row_id,))
    touch(db, sql, session_id)
    epoch = as_text(db.execute(sql.epoch, (session_id,)).fetchone()[0])
    return Popped(item, row, epoch, _generation(db, sql, session_id))


def put_back(db: sqlite3.Connection, sql: Statements, session_id: str, popped: Popped | None) -> None:
    """Undo a pop: same place in the order, and not into a session that was cleared meanwhile.

    It gets its own id, unless another program has written behind it. Whoever read that history has seen it without this
    item, so from here on every row gets a new id: equal heads mean equal histories (B2). If the history was replaced
    meanwhile, what stood before the item is in front of it only at the end.
    """
    if popped is None:
        return
    row_id, data, kind, created_at, writer, *numbers = popped.row
    found = db.execute(sql.newest_id, (session_id,)).fetchone()
    newest = 0 if found is None else int(found[0])
    place = row_id if newest < row_id else None
    values = (place, session_id, data, as_text(kind), _text(created_at), _text(writer), *numbers, popped.epoch)
    if db.execute(sql.put_row_back, numbered(*values)).rowcount and place is None:
        replaced = _generation(db, sql, session_id) != popped.generation
        behind = numbered(session_id, newest if replaced else row_id, newest)
        db.execute(sql.append_again, behind)
        db.execute(sql.delete_between, behind)


def _generation(db: sqlite3.Connection, sql: Statements, session_id: str) -> int:
    return int(db.execute(sql.last_generation, (session_id,)).fetchone()[0] or 0)


def _text(value: Any) -> Any:
    return value.decode(errors="surrogateescape") if isinstance(value, bytes) else value


def rewind(
    db: sqlite3.Connection, sql: Statements, session_id: str, writer: str, to: int, expect: Head | None, archived: bool
) -> Head:
    """Remove this writer's items from number `to` on if they are the whole tail (B5) and none was `archived`."""
    known = writers.find(db, sql, session_id, writer)
    count = known.total
    if not 0 <= to <= count:
        raise NotFoundError(
            f"writer {writer!r} has written {count} items and cannot go back to {to}",
            f"Give a number from 0 to {count}.",
        )
    if to == count:
        return read_head(db, sql, session_id)
    check_head(db, sql, session_id, expect)
    cut = _start_of_tail(db, sql, session_id, writer, to)
    earlier = numbered(session_id, writer, known.first_id, to, cut)
    if archived or db.execute(sql.written_from, earlier).fetchone() is not None:
        _refuse_rewind(db, sql, session_id, writer, to, cut)
    removed = db.execute(sql.delete_from, (session_id, cut)).rowcount
    writers.cut(db, sql, known, to)
    if removed:
        touch(db, sql, session_id)
    return read_head(db, sql, session_id)


def _start_of_tail(db: sqlite3.Connection, sql: Statements, session_id: str, writer: str, to: int) -> int:
    """The id from which on every row is this writer's, number `to` or later, and an item."""
    cut, wanted = BEYOND, writer.encode()
    while True:
        found = db.execute(sql.tail_rows, (session_id, cut, 64)).fetchall()
        for row_id, data, owner, ordinal in found:
            if owner != wanted or ordinal < to or item_or_fault(data)[0] is None:
                return cut
            cut = row_id
        if len(found) < 64:
            return cut


def _refuse_rewind(db: sqlite3.Connection, sql: Statements, session_id: str, writer: str, to: int, cut: int) -> None:
    in_the_way = db.execute(sql.tail_rows, (session_id, cut, 1)).fetchone()
    if in_the_way is not None and item_or_fault(in_the_way[1])[0] is None:
        raise CorruptRecordError(
            f"a corrupt record stands behind items of writer {writer!r}",
            "Look at corrupt_records() and repair or clear the session first.",
        )
    raise SessionConflictError(
        f"items of writer {writer!r} from number {to} on are not the whole tail of session {session_id!r}",
        "Something was written behind them or they were compacted; leave them, or restore first.",
    )


def clear(db: sqlite3.Connection, sql: Statements, session_id: str) -> None:
    """Remove everything stored for this id but how much each writer wrote and the lease's number (A12)."""
    writers.forget_digests(db, sql, session_id)
    for statement in (sql.delete_all, sql.delete_session, sql.drop_generations, sql.drop_archive):
        db.execute(statement, (session_id,))
    # Open turns are in saved runs. A run that is going, and holds the lease to show for it, may be the one that clears:
    # it goes on, and what it saves from now on belongs to the new history.
    row = db.execute(sql.lease, (session_id,)).fetchone()
    going = row is not None and row[1] > db.execute(sql.now).fetchone()[0]
    for statement in (sql.drop_logs_of_session, sql.drop_runs_of_session):
        db.execute(statement, (session_id, "running" if going else ""))
