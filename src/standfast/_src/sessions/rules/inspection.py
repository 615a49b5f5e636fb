"""Rules for inspecting a store: records, search, lease holder, origin and cost (B11-B15).

Nothing here writes. A cursor names a row and, in a few characters, the incarnation and the generations it was read
under. After a replace, an undo or a clear every row is another one: an earlier cursor is then refused instead of
answered with records that the caller has seen already.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Annotated, Any, NamedTuple

import msgspec

from standfast._src.base.digits import whole_number
from standfast._src.base.errors import NotFoundError, SessionConflictError
from standfast._src.base.json_values import CorruptJSON, Item, decode, decode_value
from standfast._src.items.item_text import excerpt, first_words, text_of_item
from standfast._src.items.usage import Usage
from standfast._src.sessions.records import Hit, Holder, Origin, Record, RecordPage, RequestCost, RunUsage, SearchPage
from standfast._src.sessions.rules.generations import id_of_generation
from standfast._src.sessions.rules.history import (
    GENERATIONS,
    LATEST_S,
    LEASE,
    OPEN_RUN,
    ORIGIN,
    SEALED,
    USAGE,
    as_time,
    decode_cell,
    fault_of,
    ignore_fault,
    items_of,
    listing,
    look,
    time_in,
    usage_in_cells,
    value_of,
)
from standfast._src.sessions.rules.leases import lease_state_in
from standfast._src.sessions.storage import Name, Plan, ReadAnswer, ReadRequest, Row, Rows

WINDOW = 256
# Rows that a search reads at once: enough that a look's own cost does not count, few enough to stay in memory.

LOOKED_AT_MAX = 20_000
# Rows that one call of a search reads before it returns its hits so far: the caller can stop, show progress or
# continue, and no transaction stays open for long.

FIRST_ROWS = 8
# How many of a history's first records are looked at for its first words: instructions may come before a person's.


class Place(NamedTuple):
    """A parsed cursor: a row, and the incarnation and generations it was read under."""

    ref: int
    epoch: str
    generations: str

    def text(self) -> str:
        """Encode the cursor."""
        return f"{self.ref}.{self.epoch or '-'}.{self.generations or '-'}"


def place_in(sight: ReadAnswer, ref: int) -> Place:
    """Return the place of a row of this read."""
    return Place(ref, _short(sight.epoch.encode()), _short(value_of(sight, GENERATIONS) or b""))


def _short(value: bytes) -> str:
    return blake2b(value, digest_size=4).hexdigest() if value else ""


def read_cursor(text: str) -> Place:
    """Parse a cursor; raises NotFoundError for anything else."""
    parts = text.split(".") if isinstance(text, str) else []
    if text == "":
        return Place(0, "", "")
    number = whole_number(parts[0], below=2**63) if len(parts) == 3 else None
    if number is None:
        raise NotFoundError(f"{text!r} is no cursor of records", "Use the cursor of a record, or of an earlier page.")
    return Place(number, *("" if part == "-" else part for part in parts[1:]))


def check_place(name: Name, place: Place, sight: ReadAnswer) -> None:
    """Refuse a cursor whose history was replaced, undone or cleared since."""
    now = place_in(sight, place.ref)
    # No incarnation: only another program had written then, and the first write of ours gives one.
    same_epoch = place.epoch in ("", now.epoch)
    if place.ref and not (same_epoch and place.generations == now.generations):
        raise SessionConflictError(
            f"the history of session {name.id!r} that this cursor belongs to was replaced or cleared",
            "Read again from the latest page; a record is known by its writer and number.",
        )


# --- records ---------------------------------------------------------------------------------------------------------


def records(name: Name, before: str | None, after: str | None, limit: int) -> Plan[RecordPage]:
    """Return a page of records, in time proportional to the page (B11)."""
    if after is not None:
        place = read_cursor(after)
        wanted = Rows(after=place.ref, limit=limit + 1, times=True)
    else:
        place = Place(0, "", "") if before is None else read_cursor(before)
        wanted = Rows(before=None if before is None else place.ref, limit=limit + 1, times=True)
    sight = yield from look(ReadRequest(name, cells=(GENERATIONS,), rows=(wanted,), mark=False, times=True))
    check_place(name, place, sight)
    rows, times = sight.rows[0], sight.times[0]
    has_more = len(rows) > limit  # one more was asked for
    kept = slice(0, limit) if after is not None else slice(max(0, len(rows) - limit), None)
    shown = [_record(row, at, sight) for row, at in zip(rows[kept], times[kept], strict=True)]
    first = shown[0].cursor if shown else None
    if after is None:
        end = shown[-1].cursor if shown else place_in(sight, 0 if before is None else place.ref - 1).text()
        return RecordPage(shown, first if has_more else None, end, is_newest=before is None)
    end = shown[-1].cursor if shown else place_in(sight, place.ref).text()
    return RecordPage(shown, first if place.ref else None, end, is_newest=not has_more)


def _record(row: Row, at: float | None, sight: ReadAnswer) -> Record:
    item: Item | None
    try:
        item, fault = decode(row.data), None
    except CorruptJSON:
        item, fault = None, fault_of(row)
    tag = row.tag
    writer = tag.writer if tag is not None and tag.writer else None
    return Record(
        place_in(sight, row.ref).text(),
        item,
        None if at is None else as_time(at),
        writer,
        None if writer is None or tag is None else tag.ordinal,
        id_of_generation(tag.replaces, sight) if tag is not None and tag.replaces else None,
        fault,
    )


# --- search ----------------------------------------------------------------------------------------------------------


class Needle(NamedTuple):
    """Words to search for: as compared, and, if every item with them must contain it, as bytes."""

    words: str
    in_bytes: bytes | None

    def may_be_in(self, data: bytes) -> bool:
        """Return False only if no decoding of the record can hold the words."""
        if self.in_bytes is None or self.in_bytes in data.lower():
            return True
        # Case folding makes ASCII of other letters ("ß" is "ss", the Kelvin sign is "k"), which lower() leaves alone.
        # JSON may write such a letter as an escape; then only decoding tells.
        if b"\\u" in data:
            return True
        return not data.isascii() and self.in_bytes in data.decode(errors="replace").casefold().encode()


def needle_of(text: str) -> Needle:
    """Prepare the words of a search. JSON may escape characters outside ASCII, and white space varies: only decoding
    decides.
    """
    words = " ".join(text.split())
    longest = max((part for part in words.split(" ") if part.isascii() and part.isalnum()), key=len, default="")
    return Needle(words, longest.lower().encode() or None)


def search(name: Name, text: str, before: str | None, limit: int) -> Plan[SearchPage]:
    """Return the newest records of one session that contain the words; the cost is that of the records read (B13)."""
    needle = needle_of(text)
    place = None if before is None else read_cursor(before)
    hits, end, _ = yield from _search_history(name, needle, place, limit, LOOKED_AT_MAX)
    return SearchPage(hits, None if end is None else end.text())


def _search_history(
    name: Name, needle: Needle, place: Place | None, limit: int, budget: int
) -> Plan[tuple[list[Hit], Place | None, int]]:
    """Return hits before a place, where to continue (None: at the beginning), and how many records were read."""
    hits: list[Hit] = []
    looked_at = 0
    before = None if place is None else place.ref
    while True:
        wanted = Rows(before=before, limit=WINDOW)
        sight = yield from look(ReadRequest(name, cells=(GENERATIONS,), rows=(wanted,), mark=False, times=True))
        if place is not None:
            check_place(name, place, sight)
        rows = sight.rows[0]
        for row in reversed(rows):
            looked_at += 1
            line = _line(needle, row)
            if line:
                at = yield from _find_write_time(name, row)  # asked for hits only: reading a time costs more than a row
                hits.append(Hit(name.id, _record(row, at, sight), line))
                if len(hits) >= limit:
                    return hits, place_in(sight, row.ref), looked_at
        if len(rows) < WINDOW:
            return hits, None, looked_at
        place = place_in(sight, rows[0].ref)
        before = rows[0].ref
        if looked_at >= budget:
            return hits, place, looked_at


def _line(needle: Needle, row: Row) -> str:
    """Return the line around the words in a record; "" if it does not contain them."""
    if not needle.may_be_in(row.data):
        return ""
    try:
        return excerpt(text_of_item(decode(row.data)), needle.words)
    except CorruptJSON:
        return ""


def _find_write_time(name: Name, row: Row) -> Plan[float | None]:
    """Return the write time of a row; None if unknown, or if the row was removed since."""
    wanted = Rows(before=row.ref + 1, limit=1, times=True)
    sight = yield from look(ReadRequest(name, rows=(wanted,), mark=False))
    return sight.times[0][0] if sight.rows[0] and sight.rows[0][0].ref == row.ref else None


def search_all(text: str, after: str | None, limit: int) -> Plan[SearchPage]:
    """Search every session of the store, the latest changed first (B13)."""
    needle, budget = needle_of(text), LOOKED_AT_MAX
    listed, resume, place = _read_store_cursor(after)
    hits: list[Hit] = []
    while True:
        some = yield from listing("session", listed, WINDOW, {})
        for one in some:
            # The listing may have moved since: a session changed meanwhile is before the cursor now.
            at = read_cursor(place) if resume == one.id and place is not None else None
            found, end, count = yield from _search_history(
                Name("session", one.id), needle, at, limit - len(hits), budget
            )
            hits += found
            budget -= count + 1
            if end is not None and (len(hits) >= limit or budget <= 0):
                return SearchPage(hits, _store_cursor(listed, one.id, end.text()))
            listed = one.cursor
            resume = place = None
            if len(hits) >= limit or budget <= 0:
                return SearchPage(hits, _store_cursor(listed, None, None))
        if len(some) < WINDOW:
            return SearchPage(hits, None)


def _store_cursor(listed: str | None, session_id: str | None, place: str | None) -> str:
    return json.dumps([listed, session_id, place], separators=(",", ":"))


def _read_store_cursor(text: str | None) -> tuple[str | None, str | None, str | None]:
    """Parse the cursor of a store-wide search: the listing before a session, that session, the place in it."""
    if text is None:
        return None, None, None
    try:
        return msgspec.json.decode(text, type=tuple[str | None, str | None, str | None])
    except (msgspec.DecodeError, msgspec.ValidationError, TypeError):
        raise NotFoundError(f"{text!r} is no cursor of a search", "Use `after` of an earlier page.") from None


# --- who, from where, how much ---------------------------------------------------------------------------------------


def holder(name: Name) -> Plan[Holder | None]:
    """Return the holder of the lease, by the store's clock; None without a holder, or after its expiry (B14)."""
    sight = yield from look(ReadRequest(name, cells=(LEASE,), mark=False))
    held = lease_state_in(sight)
    if held.is_over(sight.now):
        return None
    waiting = sum(not one.has_lapsed(sight.now) for one in held.tickets)
    until = as_time(min(held.since + held.ttl_s, LATEST_S))
    return Holder(held.holder, as_time(held.since), until, held.number, waiting)


def origin(name: Name) -> Plan[Origin | None]:
    """Return the session and position from which the session was forked (B14)."""
    sight = yield from look(ReadRequest(name, cells=(ORIGIN,), mark=False))
    cell = sight.cells.get(ORIGIN)
    if cell is None or not cell.alive or cell.value.startswith(SEALED):
        return None  # or this one has no key
    session_id, index, generation, at, *by = decode_cell(ORIGIN, cell.value, origin_in)
    return Origin(session_id, index, generation, as_time(at), *by)


def origin_in(value: bytes) -> Sequence[Any]:
    """Decode a session's origin cell: session, index, generation, time, and the author if known.

    Raises ValueError for any other value.
    """
    found = decode_value(value)
    if not isinstance(found, list):
        raise ValueError("no list")
    msgspec.convert(found[:4], tuple[str, int, str | None, float])
    msgspec.convert(found[4:], Annotated[list[str], msgspec.Meta(max_length=1)])
    time_in(found[3])
    return found


def costs_in(value: bytes) -> tuple[float, list[Item]]:
    """Decode a usage cell: its time, and the cost of each reply. Raises ValueError for any other value."""
    at, requests = msgspec.convert(decode_value(value), tuple[float, list[dict[str, Any]]])
    for one in requests:
        cost_in(one)
    return time_in(at), requests


def usage(name: Name) -> Plan[list[RunUsage]]:
    """Return the cost of each run of the session, oldest first (B15)."""
    sight = yield from look(ReadRequest(name, prefixes=(USAGE,), mark=False))
    return usage_in(sight)


def usage_in(sight: ReadAnswer) -> list[RunUsage]:
    """Collect the costs in a session's cells."""
    runs: dict[str, tuple[float, list[RequestCost]]] = {}
    for _, run_id, kept in usage_in_cells(sight):  # in the order of their numbers
        if kept.startswith(SEALED):
            continue  # and this one has no key: a session with the key reads it
        at, requests = decode_cell(USAGE, kept, costs_in)
        latest, costs = runs.get(run_id, (at, []))
        costs += [cost_in(one) for one in requests]
        runs[run_id] = (max(at, latest), costs)
    found = sorted(runs.items(), key=lambda one: (one[1][0], one[0]))
    return [RunUsage(run_id, as_time(at), tuple(costs)) for run_id, (at, costs) in found]


def cost_in(given: Item) -> RequestCost:
    """Decode the stored cost of one reply."""
    return RequestCost(
        given["turn"],
        Usage.from_json(given["usage"]),
        given.get("model"),
        given.get("agent"),
        bool(given.get("nested")),
    )


# --- a session in a listing ------------------------------------------------------------------------------------------


class ListedSession(NamedTuple):
    """Entry of a session in a listing."""

    session_id: str
    created: float
    updated: float
    item_count: int | None
    first_words: str | None
    open_runs: tuple[str, ...]
    """Ids of its runs that have not ended."""


def list_seen(
    after: str | None, limit: int, prefix: str, since: datetime | None, *, details: bool
) -> Plan[tuple[list[ListedSession], str | None]]:
    """Return sessions by id prefix and change time, newest change first, with the details that people want.

    With the cursor of the next page. In the store's own order: the listing ends at the first session that is older, so
    that a page costs what it shows. A prefix is found by walking through the listing.
    """
    found: list[ListedSession] = []
    size = WINDOW if prefix else min(WINDOW, limit + 1)
    while True:
        some = yield from listing("session", after, size, {})
        for one in some:
            if since is not None and as_time(one.updated) < since:
                return found, None
            if one.id.startswith(prefix):
                if len(found) == limit:
                    return found, after
                found.append((yield from seen(one.id, one.created, one.updated, details=details)))
            after = one.cursor
        if len(some) < size:
            return found, None


def seen(session_id: str, created: float, updated: float, *, details: bool) -> Plan[ListedSession]:
    """Return a session's entry in a listing. The count costs the length of the history, where the store has to
    count.
    """
    if not details:
        return ListedSession(session_id, created, updated, None, None, ())
    name = Name("session", session_id)
    rows = (Rows(after=0, limit=FIRST_ROWS),)
    sight = yield from look(ReadRequest(name, prefixes=(OPEN_RUN,), rows=rows, mark=False, count=True))
    runs = tuple(sorted(cell.removeprefix(OPEN_RUN) for cell in sight.cells if cell.startswith(OPEN_RUN)))
    said_first = first_words([item for _, item in items_of(sight.rows[0], ignore_fault)])
    return ListedSession(session_id, created, updated, sight.count, said_first, runs)
