"""The port as plain lists and dictionaries: what every store must do, and nothing about how.

A row is known by a number that no other row has, or, if another program wrote it, by what it says: that is all a store
can know of it. A mark is the tuple of what the rows are known by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from standfast._src.sessions.storage import Arrange, Cell, CommitRequest, KeyUpdate, Name, Range, Row, Rows, Tag

Mark = tuple[object, ...]


@dataclass
class Kept:
    """What is kept for one name."""

    rows: list[Row] = field(default_factory=list)
    boxes: dict[int, list[Row]] = field(default_factory=dict)
    cells: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    incarnation: int = 0
    exists: bool = False
    is_early: bool = False
    """Cells were written before the name was there: a clear by another program may leave those alive."""


class PortModel:
    """The reference. Refs are numbers that only grow; marks are compared by what rows are known by."""

    def __init__(self) -> None:
        self.names: dict[Name, Kept] = {}
        self._refs = count(1)

    def kept(self, name: Name) -> Kept:
        return self.names.setdefault(name, Kept())

    # --- looking

    def mark(self, name: Name) -> Mark:
        return tuple(("theirs", row.data) if row.tag is None else row.ref for row in self.kept(name).rows)

    def rows(self, name: Name, wanted: Rows) -> list[Row]:
        kept = self.kept(name)
        found = kept.rows if wanted.box == 0 else kept.boxes.get(wanted.box, [])
        found = [row for row in found if wanted.before is None or row.ref < wanted.before]
        if wanted.writer is not None:
            found = [row for row in found if row.tag is not None and row.tag.writer == wanted.writer]
        return found if wanted.limit is None else found[max(0, len(found) - wanted.limit) :]

    def cells(self, name: Name) -> dict[str, Cell]:
        kept = self.kept(name)
        return {cell: Cell(value, born == kept.incarnation) for cell, (born, value) in kept.cells.items()}

    # --- changing

    def holds(self, change: KeyUpdate, mark: Mark | None, prefix: Mark | None) -> bool:
        cells = self.cells(change.name)
        for cell, value in change.cells.items():
            found = cells.get(cell)
            if (None if found is None else found.value) != value:
                return False
        for cell, one in change.add.items():
            if one.max is not None and int(cells[cell].value if cell in cells else 0) + one.n > one.max:
                return False
        now = self.mark(change.name)
        return (mark is None or now == mark) and (prefix is None or now[: len(prefix)] == prefix)

    def apply(self, step: CommitRequest) -> list[int]:
        before = {name: (list(kept.rows), dict(kept.boxes)) for name, kept in self.names.items()}
        return [self._apply(change, before) for change in step]

    def _apply(self, change: KeyUpdate, before: dict[Name, tuple[list[Row], dict[int, list[Row]]]]) -> int:
        kept = self.kept(change.name)
        if change.remove:
            incarnation = kept.incarnation
            kept = self.names[change.name] = Kept(incarnation=incarnation + 1)
        if change.wipe is not None:
            kept.rows, kept.boxes, kept.exists = [], {}, False
            kept.cells = {cell: v for cell, v in kept.cells.items() if cell.startswith(change.wipe)}
            kept.incarnation += 1
        kept.rows = [row for row in kept.rows if row.ref not in change.drop]
        if change.arrange is not None:
            self._arrange(kept, change.name, change.arrange, before)
        for row in sorted(change.back):
            place = sum(1 for other in kept.rows if other.ref < row.ref)
            kept.rows.insert(place, row)
        first = 0
        for data, tag in change.push:
            ref = next(self._refs)
            first = first or ref
            kept.rows.append(Row(ref, data, tag))
        if change.load is not None:
            kept.rows += [Row(next(self._refs), data, tag) for data, tag in change.load.live]
            for box, rows in change.load.boxes.items():
                kept.boxes[box] = [Row(next(self._refs), data, tag) for data, tag in rows]
        for prefix in change.sweep:
            kept.cells = {cell: v for cell, v in kept.cells.items() if not cell.startswith(prefix)}
        for cell, value in change.put.items():
            kept.cells.pop(cell, None)
            if value is not None:
                kept.cells[cell] = (kept.incarnation, value)
        for cell, one in change.add.items():
            before_it = int(kept.cells[cell][1]) if cell in kept.cells else 0
            kept.cells[cell] = (kept.incarnation, b"%d" % (before_it + one.n))
        kept.exists = kept.exists or change.touch
        if change.put or change.touch:
            kept.is_early = not kept.exists
        return first

    def _arrange(
        self, kept: Kept, name: Name, wanted: Arrange, before: dict[Name, tuple[list[Row], dict[int, list[Row]]]]
    ) -> None:
        def taken(part: Range | Sequence[tuple[bytes, Tag]]) -> list[tuple[bytes, Tag | None]]:
            if not isinstance(part, Range):
                return list(part)
            rows, boxes = before.get(part.of or name, ([], {}))
            found = rows if part.box == 0 else boxes.get(part.box, [])
            low, high = part.after or 0, part.upto
            found = [row for row in found if row.ref > low and (high is None or row.ref <= high)]
            return [(row.data, _replacing(row.tag, part.replaces)) for row in found]

        live = [row for part in wanted.live for row in taken(part)]
        box = [row for part in wanted.keep for row in taken(part)]
        kept.rows = [Row(next(self._refs), data, tag) for data, tag in live]
        for number in wanted.forget:
            kept.boxes.pop(number, None)
        if wanted.box:
            kept.boxes[wanted.box] = [Row(next(self._refs), data, tag) for data, tag in box]

    # --- another program

    def foreign_push(self, name: Name, data: bytes) -> None:
        kept = self.kept(name)
        kept.rows.append(Row(next(self._refs), data, None))
        kept.exists = True

    def foreign_pop(self, name: Name) -> None:
        kept = self.kept(name)
        if kept.rows:
            kept.rows.pop()

    def foreign_clear(self, name: Name) -> None:
        kept = self.kept(name)
        kept.rows, kept.exists = [], False
        kept.incarnation += 1


def _replacing(tag: Tag | None, replaces: int | None) -> Tag | None:
    if replaces is None or (tag is None and replaces == 0):
        return tag
    return (tag or Tag())._replace(replaces=replaces)
