"""Carrying plans to a store that sees only sealed records.

A rule is a plan: it asks, and is told. What it asks for is sealed on the way to the store, and what it is told is
opened on the way back; the rules know nothing of it, and the store neither. So every ability works on sealed data, in
the same number of steps: appending once, replacing and undo, forks, leases, saved runs.

Each sealing gives other bytes, so a condition on a cell cannot be sealed anew: it is the very bytes that the plan's
look has brought. A fork's rows are opened and sealed for their new place, in the step that makes it.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from standfast.backends.sealed.records import Opened, Records, authors_of, broken, fault_in, scope_of, wrong
from standfast.carrying.carrier import Carrier, MakePlan
from standfast.carrying.through import CarrierThrough, ChangePlan
from standfast.ground.errors import SealBrokenError
from standfast.sessions.port import (
    Answer,
    Arrange,
    Ask,
    Cell,
    Change,
    Count,
    Done,
    Listing,
    Load,
    Look,
    Name,
    Plan,
    Range,
    Refused,
    Row,
    Rows,
    Sight,
    Step,
    Tag,
)
from standfast.sessions.rules import LANE, LEASE, OPEN_RUN

T = TypeVar("T")

Asking = Generator[Ask, Answer, T]
Shown = list[tuple[Row, float | None]]
"""Rows, and when each was written."""


def is_open(cell: str) -> bool:
    """Whether a cell is stored as it is: who holds a session, and which of its runs are open, holds no content.

    People who look after a store see these without a key.
    """
    return cell == LEASE or cell.startswith(OPEN_RUN)


class SealedCarrier(CarrierThrough):
    """Carries plans through a carrier of the store, sealing and opening on the way."""

    def __init__(self, carrier: Carrier, records: Records) -> None:
        super().__init__(carrier)
        self._records = records

    def changing(self) -> ChangePlan:
        """Carry out a plan on sealed records."""
        return partial(_sealed, self._records)


def _sealed(records: Records, plan: MakePlan[T]) -> Plan[T]:
    return SealedPlan(records).through(plan())


class SealedPlan:
    """One plan on its way. It remembers each cell that was seen: its contents, and the bytes that are stored."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._seen: dict[tuple[Name, str], tuple[bytes, bytes]] = {}
        self._scopes: dict[Name, str] = {}

    def through(self, plan: Plan[T]) -> Plan[T]:
        """The result of the plan."""
        try:
            question = next(plan)
            while True:
                if isinstance(question, Look):
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

    def _look(self, look: Look) -> Asking[Sight]:
        self._records.check(look.name)
        sight = yield look
        assert isinstance(sight, Sight)
        cells = self._opened_cells(look.name, sight.cells) if sight.cells else sight.cells
        if look.only_data:
            shown = yield from self._shown(look.name, sight.data)
            limit = look.rows[0].limit
            if len(shown) < len(sight.data) and limit is not None:
                everything = yield _everything(look, 0)
                assert isinstance(everything, Sight)
                shown = (yield from self._shown(look.name, everything.data))[-limit:]
            return replace(sight, cells=cells, data=shown)
        boxes: list[Shown] = []
        for place, wanted in enumerate(look.rows):
            found = yield from self._rows(look.name, sight, place, wanted)
            if len(found) < len(sight.rows[place]) and wanted.limit is not None:
                everything = yield _everything(look, place)
                assert isinstance(everything, Sight)
                found = yield from self._rows(look.name, everything, 0, wanted)
                found = found[-wanted.limit :] if wanted.after is None else found[: wanted.limit]
            boxes.append(found)
        return replace(
            sight,
            cells=cells,
            rows=tuple([row for row, _ in found] for found in boxes),
            times=tuple([at for _, at in found] if look.rows[n].times else () for n, found in enumerate(boxes)),
        )

    def _rows(self, name: Name, sight: Sight, place: int, wanted: Rows) -> Asking[Shown]:
        """Rows with their contents, without those whose time has passed. Tags are as the authors signed them."""
        rows = sight.rows[place]
        opened = yield from self._opened(name, [row.data for row in rows])
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

    def _shown(self, name: Name, stored: Sequence[bytes]) -> Asking[list[bytes]]:
        """The contents of rows whose time has not passed."""
        opened = yield from self._opened(name, stored, authors=False)
        return [data for data in opened.data if data is not None]

    def _opened(self, name: Name, stored: Sequence[bytes], *, authors: bool = True) -> Asking[Opened]:
        records = self._records
        opened = records.opened_rows(name, stored, authors=authors)
        if opened.is_doubtful and records.unreadable == "raise":
            # Altered rows, or the wrong key? If nothing at all opens, it is the key.
            sight = yield Look(name, rows=(Rows(tags=False),), only_data=True, mark=False)
            assert isinstance(sight, Sight)
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
            except SealBrokenError:
                if not cell.startswith(LANE):
                    raise
                value = b""  # it only says that no write of ours was the last: somebody used the session unsealed
            self._seen[name, cell] = value, stored
            found[cell] = Cell(value, held.alive, held.expired)
        return found

    # --- changing ----------------------------------------------------------------------------------------------------

    def _commit(self, step: Step) -> Asking[Done | Refused]:
        sealed: list[Change] = []
        for place, change in enumerate(step):
            conditions = yield from self._conditions(change, place)
            if isinstance(conditions, Refused):
                return conditions
            sealed.append((yield from self._sealed(change, conditions)))
        got = yield sealed
        if isinstance(got, Refused):
            return replace(got, cells=self._opened_cells(step[got.place].name, got.cells))
        assert isinstance(got, Done)
        return got

    def _conditions(self, change: Change, place: int) -> Asking[dict[str, bytes | None] | Refused]:
        """The stored bytes for each cell that a change has a condition on; a refusal if one is not as expected."""
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
        sight = yield Look(name, cells=tuple(change.cells))
        assert isinstance(sight, Sight)
        cells = self._opened_cells(name, sight.cells)
        if any(cell not in cells or cells[cell].value != value for cell, value in unknown.items()):
            return Refused(place, "cell", sight.mark, cells)
        return {**found, **{cell: sight.cells[cell].value for cell in unknown}}

    def _sealed(self, change: Change, conditions: dict[str, bytes | None]) -> Asking[Change]:
        arrange = change.arrange
        if arrange is not None:
            arrange = yield from self._arranged(change.name, arrange)
        name = change.name
        if change.push or change.wipe is not None:
            yield from self._check_key(name)  # first: sealing makes a key where a key file has none
        put: dict[str, bytes | None] = {}
        for cell, value in change.put.items():
            put[cell] = value if value is None or is_open(cell) else self._sealed_cell(change, cell, value)
        back = change.back
        if back:
            datas = self._new(name, [(row.data, row.tag) for row in back])
            back = [row._replace(data=data) for row, data in zip(back, datas, strict=True)]
        push = change.push
        if push:
            datas = self._new(name, push)
            push = [(data, tag) for data, (_, tag) in zip(datas, push, strict=True)]
        load = None if change.load is None else self._loaded(name, change.load)
        return replace(change, cells=conditions, arrange=arrange, back=back, push=push, load=load, put=put)

    def _check_key(self, name: Name) -> Asking[None]:
        """Refuse to write under a wrong key beside what is there, or to clear it: a look at the newest row, once in a
        session object.

        Without it items would be stored that nobody with the right key can read, or theirs be lost.
        """
        if name in self._records.fitting or self._records.unreadable != "raise":
            return
        sight = yield Look(name, rows=(Rows(limit=1, tags=False),), only_data=True, mark=False)
        assert isinstance(sight, Sight)
        yield from self._opened(name, sight.data, authors=False)
        self._records.fitting.add(name)

    def _loaded(self, name: Name, load: Load) -> Load:
        """Rows of another store, sealed for their new place: as their writers' own, of the times they were written."""
        now = time.time_ns() // 1000

        def sealed(rows: Sequence[tuple[bytes, Tag]], stamps: Iterable[int]) -> list[tuple[bytes, Tag]]:
            # A number that was rewound and written again is known by its later time: so no two have the same.
            authors = [
                who._replace(stamp=at) for who, at in zip(authors_of(tag for _, tag in rows), stamps, strict=True)
            ]
            contents = [(data, who) for (data, _), who in zip(rows, authors, strict=True)]
            datas = self._records.sealed_rows(name, contents)
            return [(data, tag) for data, (_, tag) in zip(datas, rows, strict=True)]

        boxes = {box: sealed(rows, range(now, now + len(rows))) for box, rows in load.boxes.items()}
        return load._replace(live=sealed(load.live, load.rising_us(now)), boxes=boxes)

    def _new(self, name: Name, rows: Sequence[tuple[bytes, Tag | None]]) -> list[bytes]:
        """New rows, written now."""
        authors = authors_of(tag for _, tag in rows)
        return self._records.sealed_rows(name, [(data, who) for (data, _), who in zip(rows, authors, strict=True)])

    def _sealed_cell(self, change: Change, cell: str, value: bytes) -> bytes:
        name, scope = change.name, scope_of(change.name)
        if name.kind == "run":  # a session's runs go when its key goes
            session = (change.labels or {}).get("session")
            known = self._scopes.get(name, scope)
            scope = known if change.labels is None else scope if session is None else f"session/{session}"
        return self._records.sealed_cell(name, cell, scope, value)

    def _arranged(self, name: Name, arrange: Arrange) -> Asking[Arrange]:
        live: list[Range | Sequence[tuple[bytes, Tag]]] = []
        for part in arrange.live:
            if not isinstance(part, Range):
                datas = self._new(name, part)
                live.append([(data, tag) for data, (_, tag) in zip(datas, part, strict=True)])
            elif part.of is None:
                live.append(part)
            else:
                live.append((yield from self._taken_over(name, part, part.of)))
        return arrange._replace(live=live)

    def _taken_over(self, name: Name, part: Range, source: Name) -> Asking[list[tuple[bytes, Tag]]]:
        """Rows of another name, sealed for this one: the same authors, numbers and times."""
        sight = yield Look(source, rows=(Rows(box=part.box),), mark=False)
        assert isinstance(sight, Sight)
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
        return list(zip(self._records.sealed_rows(name, contents), tags, strict=True))


def _everything(look: Look, place: int) -> Look:
    """The look again without a limit, where some rows are too old to be shown.

    Older ones may not be: what replaced a history is newer than what followed it.
    """
    wanted = look.rows[place]._replace(limit=None)
    return Look(look.name, rows=(wanted,), only_data=look.only_data, mark=False)
