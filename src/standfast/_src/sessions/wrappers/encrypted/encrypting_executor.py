"""Executor for a store with sealed records only.

A rule is a plan: it sends requests and gets answers. Contents of a request are sealed on the way to the store, and
contents of an answer are opened on the way back; neither the rules nor the store know of it. So every ability works on
sealed data, in the same number of steps: exactly-once append, replacing and undo, forks, leases, saved runs.

A session's sealed head (`head`) is requested together with a plan's own look, checked against the rows found, and
updated by the steps that change it.

Each sealing gives other bytes, so a condition on a cell cannot be sealed again: the condition uses the very bytes from
the plan's look. A fork's rows are opened and sealed for their new place, in the step that makes the fork.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from standfast._src.base.errors import CorruptRecordError, SealBrokenError, SealKeyError
from standfast._src.sessions.client.executor import Executor, MakePlan
from standfast._src.sessions.client.executor_wrapper import ChangePlan, ExecutorWrapper
from standfast._src.sessions.rules.append import parse_writer_cell
from standfast._src.sessions.rules.history import BUDGET, INBOX, LANE, LEASE, OPEN_RUN, WRITER
from standfast._src.sessions.storage import (
    Answer,
    Arrange,
    Ask,
    Cell,
    CommitRequest,
    Count,
    Done,
    KeyUpdate,
    Listing,
    Load,
    Name,
    Plan,
    Range,
    ReadAnswer,
    ReadRequest,
    Refused,
    Row,
    Rows,
    Tag,
)
from standfast._src.sessions.wrappers.encrypted.head import (
    HEAD_CELLS,
    HOLES,
    RUNS,
    TOP,
    UNKNOWN,
    check_rows,
    check_runs,
    decode_holes,
    decode_runs,
    encode_holes,
    encode_runs,
    head_broken,
    holes_before,
    holes_in,
    in_order,
    steps_back,
    top_of,
    union,
)
from standfast._src.sessions.wrappers.encrypted.sealed_records import (
    Author,
    Opened,
    Records,
    authors_of,
    broken,
    fault_in,
    scope_of,
    wrong,
)

T = TypeVar("T")

Asking = Generator[Ask, Answer, T]
Shown = list[tuple[Row, float | None]]
"""Rows, and when each was written."""


def is_open(cell: str) -> bool:
    """Return True if a cell is stored in clear: lease, open runs and ids of waiting messages hold no content.

    Operators of a store see these cells without a key.
    """
    return cell in (LEASE, INBOX) or cell.startswith((OPEN_RUN, BUDGET))


class EncryptingExecutor(ExecutorWrapper):
    """Carries plans through an executor of the store, sealing and opening on the way."""

    def __init__(self, carrier: Executor, records: Records) -> None:
        super().__init__(carrier)
        self._records = records

    def changing(self) -> ChangePlan:
        """Carry out a plan on sealed records."""
        return partial(_run_sealed, self._records)


def _run_sealed(records: Records, plan: MakePlan[T]) -> Plan[T]:
    return EncryptingProgram(records).execute(plan())


class EncryptingProgram:
    """Program for one plan. It remembers each cell it has seen: the contents, and the stored bytes."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._seen: dict[tuple[Name, str], tuple[bytes | None, bytes | None]] = {}
        self._scopes: dict[Name, str] = {}
        self._authors: dict[Name, dict[int, Author]] = {}
        """Of the latest look at the end of each history, by the refs of its rows."""

    def execute(self, plan: Plan[T]) -> Plan[T]:
        """The result of the plan."""
        try:
            question = next(plan)
            while True:
                if isinstance(question, ReadRequest):
                    answer: Answer = yield from self._look(question)
                elif isinstance(question, Listing | Count):
                    answer = yield question
                else:
                    answer = yield from self._commit(question)
                question = plan.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    # --- looking -----------------------------------------------------------------------------------------------------

    def _look(self, look: ReadRequest) -> Asking[ReadAnswer]:
        self._records.check(look.name)
        head = self._head_cells_for(look)
        asked = look if not head else _with_head(look, head)
        sight = yield asked
        assert isinstance(sight, ReadAnswer)
        found = self._opened_cells(look.name, sight.cells) if sight.cells else sight.cells
        for cell in head:
            if cell not in found:
                self._seen[look.name, cell] = None, None
        if _asks_for_runs(look):
            check_runs(look.name, found)
        cells = {cell: value for cell, value in found.items() if cell not in HEAD_CELLS or cell in look.cells}
        if look.only_data and asked.only_data:
            shown = yield from self._read_contents(look.name, sight.data)
            limit = look.rows[0].limit
            if len(shown) < len(sight.data) and limit is not None:
                everything = yield _lift_limit(look, 0)
                assert isinstance(everything, ReadAnswer)
                shown = (yield from self._read_contents(look.name, everything.data))[-limit:]
            return replace(sight, cells=cells, data=shown)
        boxes: list[Shown] = []
        for place, wanted in enumerate(look.rows):
            if TOP in head and _is_at_end(wanted):
                boxes.append((yield from self._latest(look, place, sight, found)))
                continue
            rows = yield from self._rows(look.name, sight, place, wanted)
            if len(rows) < len(sight.rows[place]) and wanted.limit is not None:
                everything = yield _lift_limit(look, place)
                assert isinstance(everything, ReadAnswer)
                rows = yield from self._rows(look.name, everything, 0, wanted)
                rows = rows[-wanted.limit :] if wanted.after is None else rows[: wanted.limit]
            boxes.append(rows)
        if look.only_data:
            return replace(sight, cells=cells, rows=(), data=[row.data for row, _ in boxes[0]])
        return replace(
            sight,
            cells=cells,
            rows=tuple([row for row, _ in rows] for rows in boxes),
            times=tuple([at for _, at in rows] if look.rows[n].times else () for n, rows in enumerate(boxes)),
        )

    def _rows(self, name: Name, sight: ReadAnswer, place: int, wanted: Rows) -> Asking[Shown]:
        """Return rows with their contents, without expired ones."""
        opened = yield from self._open_rows(name, [row.data for row in sight.rows[place]])
        return self._readable(name, sight, place, wanted, opened)

    def _readable(self, name: Name, sight: ReadAnswer, place: int, wanted: Rows, opened: Opened) -> Shown:
        """Return opened rows without expired ones. Tags are as their authors signed them."""
        rows = sight.rows[place]
        found: Shown = []
        times = sight.times[place] if wanted.times else [None] * len(rows)
        for row, at, data, author in zip(rows, times, opened.data, opened.authors, strict=True):
            if data is None:
                continue
            tag = row.tag
            if author is not None and wanted.tags:
                tag = author.tag(0 if tag is None else tag.replaces)
            found.append((Row(row.ref, data, tag), at))
        return found

    def _read_contents(self, name: Name, stored: Sequence[bytes]) -> Asking[list[bytes]]:
        """The contents of rows whose time has not passed."""
        opened = yield from self._open_rows(name, stored, authors=False)
        return [data for data in opened.data if data is not None]

    # --- the head, checked --------------------------------------------------------------------------------------------

    def _head_cells_for(self, look: ReadRequest) -> tuple[str, ...]:
        """The cells of the head that a look is checked by."""
        if look.name.kind != "session" or self._records.unreadable != "raise":
            return ()
        rows = (TOP, HOLES) if any(map(_is_at_end, look.rows)) else ()
        runs = (RUNS,) if _asks_for_runs(look) or any(cell.startswith(OPEN_RUN) for cell in look.cells) else ()
        return rows + runs

    def _latest(self, look: ReadRequest, place: int, sight: ReadAnswer, cells: Mapping[str, Cell]) -> Asking[Shown]:
        """Return the rows of a read that starts at the end, checked by the head. `sight` has one row more than
        requested.

        If the latest rows alone leave a doubt, all rows are read: only then can a repeated row be found.
        """
        name, wanted, limit = look.name, look.rows[place], look.rows[place].limit
        opened = yield from self._open_rows(name, [row.data for row in sight.rows[place]])
        if limit is None or len(sight.rows[place]) <= limit:
            check_rows(name, sight.rows[place], opened, cells)
            self._authors[name] = dict(in_order(sight.rows[place], opened))
            return self._readable(name, sight, place, wanted, opened)
        top, latest = cells.get(TOP), in_order(sight.rows[place], opened)
        self._authors[name] = dict(latest)
        is_sure = top is not None and top.alive and [top.value] == [top_of(author) for _, author in latest[-1:]]
        if is_sure and None not in opened.data and not steps_back(opened.authors):
            return self._readable(name, sight, place, wanted, opened)[-limit:]
        everything = yield replace(_lift_limit(look, place), cells=(TOP, HOLES), only_data=False)
        assert isinstance(everything, ReadAnswer)
        opened = yield from self._open_rows(name, [row.data for row in everything.rows[0]])
        check_rows(name, everything.rows[0], opened, self._opened_cells(name, everything.cells))
        self._authors[name] = dict(in_order(everything.rows[0], opened))
        return self._readable(name, everything, 0, wanted, opened)[-limit:]

    def _open_rows(self, name: Name, stored: Sequence[bytes], *, authors: bool = True) -> Asking[Opened]:
        records = self._records
        opened = records.opened_rows(name, stored, authors=authors)
        if opened.is_doubtful and records.unreadable == "raise":
            # Altered rows, or the wrong key? If nothing at all opens, it is the key.
            sight = yield ReadRequest(name, rows=(Rows(tags=False),), only_data=True, mark=False)
            assert isinstance(sight, ReadAnswer)
            if records.opened_rows(name, sight.data).is_doubtful:
                raise wrong(name, records.ring.current)
        elif stored:
            records.fitting.add(name)
        return opened

    def _opened_cells(self, name: Name, cells: Mapping[str, Cell]) -> dict[str, Cell]:
        found: dict[str, Cell] = {}
        for cell, held in cells.items():
            stored = held.value
            if is_open(cell):
                found[cell] = held
                continue
            try:
                value, self._scopes[name] = self._records.opened_cell(name, cell, stored)
            except (SealBrokenError, SealKeyError) as error:
                if cell in HEAD_CELLS:
                    if self._records.unreadable != "raise":
                        continue  # it only checks what is read, and is written anew
                    raise error if isinstance(error, SealKeyError) else head_broken(name) from error
                if not cell.startswith(LANE) or isinstance(error, SealKeyError):
                    raise
                value = b""  # it only says that no write of ours was the last: somebody used the session unsealed
            self._seen[name, cell] = value, stored
            found[cell] = Cell(value, held.alive, held.expired)
        return found

    # --- changing ----------------------------------------------------------------------------------------------------

    def _commit(self, step: CommitRequest) -> Asking[Done | Refused]:
        sealed: list[KeyUpdate] = []
        for place, change in enumerate(step):
            conditions = yield from self._conditions(change, place)
            if isinstance(conditions, Refused):
                return conditions
            sealed.append((yield from self._sealed(change, conditions)))
        got = yield sealed
        if isinstance(got, Refused):
            for change in step:
                for cell in HEAD_CELLS:
                    self._seen.pop((change.name, cell), None)
            return replace(got, cells=self._opened_cells(step[got.place].name, got.cells))
        assert isinstance(got, Done)
        return got

    def _conditions(self, change: KeyUpdate, place: int) -> Asking[dict[str, bytes | None] | Refused]:
        """Return the stored bytes for each cell with a condition in a change; a refusal if one differs."""
        name, unknown = change.name, dict[str, bytes]()
        found: dict[str, bytes | None] = {}
        for cell, value in change.cells.items():
            seen = self._seen.get((name, cell))
            if value is None or is_open(cell):
                found[cell] = value
            elif seen is not None and seen[0] == value:
                found[cell] = seen[1]
            else:
                unknown[cell] = value
        if not unknown:
            return found
        sight = yield ReadRequest(name, cells=tuple(change.cells))
        assert isinstance(sight, ReadAnswer)
        cells = self._opened_cells(name, sight.cells)
        if any(cell not in cells or cells[cell].value != value for cell, value in unknown.items()):
            return Refused(place, "cell", sight.mark, cells)
        return {**found, **{cell: sight.cells[cell].value for cell in unknown}}

    def _sealed(self, change: KeyUpdate, conditions: dict[str, bytes | None]) -> Asking[KeyUpdate]:
        arrange, parts = change.arrange, list[Range | list[Author]]()
        if arrange is not None:
            arrange, parts = yield from self._seal_arrangement(change.name, arrange)
        name = change.name
        if change.push or change.wipe is not None:
            yield from self._check_key(name)  # first: sealing makes a key where a key file has none
        put: dict[str, bytes | None] = {}
        for cell, value in change.put.items():
            put[cell] = value if value is None or is_open(cell) else self._sealed_cell(change, cell, value)
        back = change.back
        if back:
            datas, _ = self._new(name, [(row.data, row.tag) for row in back])
            back = [row._replace(data=data) for row, data in zip(back, datas, strict=True)]
        push, added = change.push, list[Author]()
        if push:
            datas, added = self._new(name, push)
            push = [(data, tag) for data, (_, tag) in zip(datas, push, strict=True)]
        load = change.load
        if load is not None:
            load, loaded = self._seal_load(name, load)
            added += loaded
        if name.kind == "session":
            stay: list[Author] = []
            if change.drop or change.arrange or change.load:
                stay = yield from self._move_holes(change, parts, added, conditions, put)
            if change.drop or change.arrange or change.back or added:
                # Only under the mark is it certain that no row has come behind those that stay.
                newest = added[-1:] or (stay[-1:] if change.mark is not None and not change.back else [])
                put[TOP] = self._head_cell(name, TOP, top_of(newest[0]) if newest else UNKNOWN)
            yield from self._move_runs(change, conditions, put)
        return replace(change, cells=conditions, arrange=arrange, back=back, push=push, load=load, put=put)

    # --- the head, moved ----------------------------------------------------------------------------------------------

    def _move_holes(
        self,
        change: KeyUpdate,
        parts: Sequence[Range | list[Author]],
        added: list[Author],
        conditions: dict[str, bytes | None],
        put: dict[str, bytes | None],
    ) -> Asking[list[Author]]:
        """Record the justified gaps in numbers after a step that removes, moves or loads rows.

        Returns the authors of the remaining rows, if all of them were read.
        """
        name = change.name
        value, conditions[HOLES] = yield from self._head_value(name, HOLES)
        found = [decode_holes(value)]
        totals: dict[bytes, int] = {}
        for cell, count in change.put.items():
            if cell.startswith(WRITER) and count is not None:
                with suppress(CorruptRecordError):  # what is no count says nothing
                    totals[b"1" + cell[len(WRITER) :].encode()] = parse_writer_cell(Cell(count, True)).total
        after: list[Author] = []
        if change.load is not None:
            found += [holes_in(added, (), totals), holes_before(added)]
        else:
            seen = self._authors.get(name, {})
            popped = seen.get(change.drop[0]) if len(change.drop) == 1 and not parts else None
            if popped is not None and popped.who not in totals:
                # The row before it becomes the newest; only a look at all rows could tell whether that is a repeat.
                found.append({popped.who: [(popped.number, popped.number)]})
            else:
                before, after = yield from self._find_rearranged_authors(change, parts)
                found.append(holes_in(after, before, totals))
        for source in {part.of for part in (change.arrange.live if change.arrange else ()) if isinstance(part, Range)}:
            if source is not None and source != name:
                found.append(decode_holes((yield from self._head_value(source, HOLES))[0]))
        put[HOLES] = self._head_cell(name, HOLES, encode_holes(union(*found)))
        return after

    def _find_rearranged_authors(
        self, change: KeyUpdate, parts: Sequence[Range | list[Author]]
    ) -> Asking[tuple[list[Author], list[Author]]]:
        """The authors of the live rows before and after a step that drops or arranges rows."""
        boxes = sorted({part.box for part in parts if isinstance(part, Range)} | {0})
        sight = yield ReadRequest(change.name, rows=tuple(Rows(box=box, tags=False) for box in boxes))
        assert isinstance(sight, ReadAnswer)
        known: dict[int, list[tuple[int, Author]]] = {}
        for box, rows in zip(boxes, sight.rows, strict=True):
            opened = self._records.opened_rows(change.name, [row.data for row in rows], whatever_age=True)
            known[box] = in_order(rows, opened)
        before = [author for _, author in known[0]]
        if not parts:
            return before, [author for ref, author in known[0] if ref not in set(change.drop)]
        after: list[Author] = []
        for part in parts:
            if isinstance(part, Range):
                low, high = part.after or 0, part.upto
                after += [author for ref, author in known[part.box] if ref > low and (high is None or ref <= high)]
            else:
                after += part
        return before, after

    def _move_runs(
        self, change: KeyUpdate, conditions: dict[str, bytes | None], put: dict[str, bytes | None]
    ) -> Asking[None]:
        """Record the open runs after a step that opens or ends runs, or clears the session."""
        notes = {cell[len(OPEN_RUN) :]: value for cell, value in change.put.items() if cell.startswith(OPEN_RUN)}
        if not notes and change.wipe is None:
            return
        value, stored = yield from self._head_value(change.name, RUNS, guessed=True)
        before = decode_runs(value)
        now = before | {run for run, note in notes.items() if note is not None}
        now -= {run for run, note in notes.items() if note is None}
        if now != before or change.wipe is not None:
            conditions[RUNS] = stored
            put[RUNS] = self._head_cell(change.name, RUNS, encode_runs(now)) if now or change.wipe is None else None

    def _head_value(self, name: Name, cell: str, *, guessed: bool = False) -> Asking[tuple[bytes | None, bytes | None]]:
        """Return the contents of a head cell, and its stored bytes. `guessed`: an executor may know the cell without a
        look.
        """
        seen = self._seen.get((name, cell))
        if seen is not None:
            return seen
        sight = yield ReadRequest(name, cells=(cell,), mark=not guessed)
        assert isinstance(sight, ReadAnswer)
        found = sight.cells.get(cell)
        if found is None:
            return None, None
        self._opened_cells(name, {cell: found})
        return self._seen.get((name, cell), (None, found.value))

    def _head_cell(self, name: Name, cell: str, value: bytes) -> bytes:
        return self._records.sealed_cell(name, cell, scope_of(name), value)

    def _check_key(self, name: Name) -> Asking[None]:
        """Read the newest row, once in a session object, and refuse a write or a clear with a wrong key.

        Otherwise items would be stored that are unreadable with the right key, or readable ones would be lost.
        """
        if name in self._records.fitting or self._records.unreadable != "raise":
            return
        sight = yield ReadRequest(name, rows=(Rows(limit=1, tags=False),), only_data=True, mark=False)
        assert isinstance(sight, ReadAnswer)
        yield from self._open_rows(name, sight.data, authors=False)
        self._records.fitting.add(name)

    def _seal_load(self, name: Name, load: Load) -> tuple[Load, list[Author]]:
        """Return rows of another store, sealed for their new place: under their writers, with their original times."""
        now = time.time_ns() // 1000

        def sealed(
            rows: Sequence[tuple[bytes, Tag]], stamps: Iterable[int]
        ) -> tuple[list[tuple[bytes, Tag]], list[Author]]:
            # A number that was rewound and written again is known by its later time: so no two have the same.
            authors = [
                who._replace(stamp=at) for who, at in zip(authors_of(tag for _, tag in rows), stamps, strict=True)
            ]
            contents = [(data, who) for (data, _), who in zip(rows, authors, strict=True)]
            datas = self._records.sealed_rows(name, contents)
            return [(data, tag) for data, (_, tag) in zip(datas, rows, strict=True)], authors

        boxes = {box: sealed(rows, range(now, now + len(rows)))[0] for box, rows in load.boxes.items()}
        live, authors = sealed(load.live, load.rising_us(now))
        return load._replace(live=live, boxes=boxes), authors

    def _new(self, name: Name, rows: Sequence[tuple[bytes, Tag | None]]) -> tuple[list[bytes], list[Author]]:
        """New rows, written now, and their authors."""
        authors = authors_of(tag for _, tag in rows)
        contents = [(data, who) for (data, _), who in zip(rows, authors, strict=True)]
        return self._records.sealed_rows(name, contents), authors

    def _sealed_cell(self, change: KeyUpdate, cell: str, value: bytes) -> bytes:
        name, scope = change.name, scope_of(change.name)
        if name.kind == "run":  # a session's runs go when its key goes
            session = (change.labels or {}).get("session")
            known = self._scopes.get(name, scope)
            scope = known if change.labels is None else scope if session is None else f"session/{session}"
        return self._records.sealed_cell(name, cell, scope, value)

    def _seal_arrangement(self, name: Name, arrange: Arrange) -> Asking[tuple[Arrange, list[Range | list[Author]]]]:
        """Return the arrangement with its new rows sealed, and beside each part the authors of its new rows."""
        live: list[Range | Sequence[tuple[bytes, Tag]]] = []
        parts: list[Range | list[Author]] = []
        for part in arrange.live:
            if isinstance(part, Range) and part.of is None:
                live.append(part)
                parts.append(part)
                continue
            if isinstance(part, Range):
                assert part.of is not None
                rows, authors = yield from self._seal_taken_over(name, part, part.of)
            else:
                datas, authors = self._new(name, part)
                rows = [(data, tag) for data, (_, tag) in zip(datas, part, strict=True)]
            live.append(rows)
            parts.append(authors)
        return arrange._replace(live=live), parts

    def _seal_taken_over(
        self, name: Name, part: Range, source: Name
    ) -> Asking[tuple[list[tuple[bytes, Tag]], list[Author]]]:
        """Seal rows of another name for this name, with the same authors, numbers and times."""
        sight = yield ReadRequest(source, rows=(Rows(box=part.box),), mark=False)
        assert isinstance(sight, ReadAnswer)
        after = part.after or 0
        rows = [row for row in sight.rows[0] if row.ref > after and (part.upto is None or row.ref <= part.upto)]
        opened = self._records.opened_rows(source, [row.data for row in rows], whatever_age=True)
        contents, tags = [], []
        now = authors_of([None] * len(rows))
        for row, data, author, unknown in zip(rows, opened.data, opened.authors, now, strict=True):
            if data is None or (reason := fault_in(data)[0]):
                raise broken(source, f"row {row.ref}", reason if data is not None else "empty")
            replaces = part.replaces if part.replaces is not None else 0 if row.tag is None else row.tag.replaces
            contents.append((data, author or unknown))
            tags.append(Tag(replaces=replaces) if author is None else author.tag(replaces))
        datas = self._records.sealed_rows(name, contents)
        return list(zip(datas, tags, strict=True)), [author for _, author in contents]


def _is_at_end(rows: Rows) -> bool:
    """Return True if rows are the latest of a history, or all of it."""
    return (rows.box, rows.before, rows.after, rows.writer) == (0, None, None, None) and rows.limit != 0


def _asks_for_runs(look: ReadRequest) -> bool:
    """Return True if a look requests every open run."""
    return any(OPEN_RUN.startswith(prefix) for prefix in look.prefixes)


def _with_head(look: ReadRequest, head: tuple[str, ...]) -> ReadRequest:
    """Add the cells of the head to a read request, and one row to each limited range."""
    cells = (*look.cells, *(cell for cell in head if cell not in look.cells))
    if TOP not in head:
        return replace(look, cells=cells)
    rows = [
        one._replace(limit=None if one.limit is None else one.limit + 1, tags=one.tags and not look.only_data)
        if _is_at_end(one)
        else one
        for one in look.rows
    ]
    return replace(look, cells=cells, rows=tuple(rows), only_data=False)


def _lift_limit(look: ReadRequest, place: int) -> ReadRequest:
    """The look again without a limit, where some rows are too old to be shown.

    Older ones may not be: what replaced a history is newer than what followed it.
    """
    wanted = look.rows[place]._replace(limit=None)
    return ReadRequest(look.name, rows=(wanted,), only_data=look.only_data, mark=False)
