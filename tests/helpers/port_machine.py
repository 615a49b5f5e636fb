"""Random steps on a store and on the model of the port, compared after each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from hypothesis import strategies as st
from msgspec.structs import replace

from standfast._src.sessions.storage import (
    Arrange,
    Done,
    KeyUpdate,
    Load,
    Name,
    Range,
    ReadRequest,
    Row,
    Rows,
    Store,
    Tag,
)
from tests.helpers.port_model import Mark, PortModel

Draw = Callable[[st.SearchStrategy[Any]], Any]
SESSION, OTHER, RUN = Name("session", "s"), Name("session", "t:messages"), Name("run", "r")
CELLS = ("w/a", "w/b", "lease", "l/x", "gens")
WRITERS = ("", "a", "b")
KEPT = ("w/", "l/", "lease")


class Foreign(Protocol):
    """What the OpenAI Agents SDK does to a session, without our store."""

    def push(self, session_id: str, data: bytes) -> None: ...
    def pop(self, session_id: str) -> None: ...
    def clear(self, session_id: str) -> None: ...


@dataclass
class Machine:
    store: Store
    foreign: Foreign | None = None

    def __post_init__(self) -> None:
        self.model = PortModel()
        self.marks: list[tuple[Name, str, Mark]] = []
        self.serial = 0
        self.boxes = 0

    # --- choosing

    def run(self, draw: Draw, steps: int) -> None:
        actions: list[Callable[[Draw], None]] = [self.push, self.push, self.drop, self.arrange, self.cells, self.wipe]
        actions += [self.back, self.fork, self.remove, self.load]
        if self.foreign is not None:
            actions += [self.foreign_push, self.foreign_push, self.foreign_pop, self.foreign_clear]
        for _ in range(steps):
            draw(st.sampled_from(actions))(draw)
            self.compare()

    def name(self, draw: Draw) -> Name:
        return draw(st.sampled_from([SESSION, SESSION, OTHER]))

    def new_rows(self, draw: Draw) -> list[tuple[bytes, Tag]]:
        made = []
        for _ in range(draw(st.integers(0, 3))):
            self.serial += 1
            writer = draw(st.sampled_from(WRITERS))
            made.append((b'{"n":%d}' % self.serial, Tag(writer, self.serial if writer else 0, draw(st.integers(0, 2)))))
        return made

    def conditions(self, draw: Draw, change: KeyUpdate) -> tuple[KeyUpdate, Mark | None, Mark | None]:
        """Some conditions, most of which hold."""
        name, mark, prefix = change.name, None, None
        now = self.store.look(ReadRequest(name, cells=CELLS))
        if draw(st.booleans()):
            cell = draw(st.sampled_from(CELLS))
            found = now.cells.get(cell)
            value = None if found is None else found.value
            change = replace(change, cells={cell: draw(st.sampled_from([value, value, value, b"else"]))})
        if name.kind == "session" and draw(st.booleans()):
            known = [(text, own) for other, text, own in self.marks if other == name]
            text, own = draw(st.sampled_from([(now.mark, self.model.mark(name)), *known[-6:]]))
            if draw(st.booleans()):
                change, mark = replace(change, mark=text), own
            else:
                change, prefix = replace(change, prefix=text), own
        return change, mark, prefix

    def do(self, ours: KeyUpdate, theirs: KeyUpdate, draw: Draw) -> None:
        ours, mark, prefix = self.conditions(draw, ours)
        theirs = replace(theirs, cells=ours.cells)
        fresh = self.store.look(ReadRequest(ours.name)).mark if ours.name.kind == "session" else ""
        got = self.store.commit([ours])
        may = self.model.holds(theirs, mark, prefix)
        current = ours.mark in (None, fresh) and ours.prefix in (None, fresh)
        if isinstance(got, Done):
            assert may, f"done though a condition did not hold: {ours}"
            self.model.apply([theirs])
        else:
            # A head may move where the history did not, so only a condition on the present one must be kept.
            assert not (may and current), f"refused though all conditions hold: {ours}: {got}"

    # --- what is done

    def push(self, draw: Draw) -> None:
        change = KeyUpdate(self.name(draw), push=self.new_rows(draw), put=self.some_cells(draw), touch=True)
        self.do(change, change, draw)

    def some_cells(self, draw: Draw) -> dict[str, bytes | None]:
        cells = draw(st.lists(st.sampled_from(CELLS), max_size=2, unique=True))
        self.serial += 1
        return {cell: draw(st.sampled_from([b"%d" % self.serial, b"", None])) for cell in cells}

    def cells(self, draw: Draw) -> None:
        name = draw(st.sampled_from([SESSION, RUN]))
        sweep = draw(st.sampled_from([(), (), ("w/",), ("l", "gens")]))
        labels = {"status": "running", "session": "s"} if name is RUN else None
        change = KeyUpdate(name, sweep=sweep, put=self.some_cells(draw), touch=name is RUN, labels=labels)
        self.do(change, change, draw)

    def remove(self, draw: Draw) -> None:
        change = KeyUpdate(RUN, remove=True)
        self.do(change, change, draw)

    def wipe(self, draw: Draw) -> None:
        if not draw(st.booleans()):
            return
        change = KeyUpdate(self.name(draw), wipe=KEPT, put=self.some_cells(draw))
        self.do(change, change, draw)

    def both(self, name: Name, box: int = 0) -> tuple[list[Row], list[Row]]:
        return list(self.store.look(ReadRequest(name, rows=(Rows(box=box),))).rows[0]), self.model.rows(
            name, Rows(box=box)
        )

    def drop(self, draw: Draw) -> None:
        name = self.name(draw)
        ours, theirs = self.both(name)
        places = draw(st.lists(st.integers(0, max(0, len(ours) - 1)), max_size=2, unique=True)) if ours else []
        touch = draw(st.booleans())
        self.do(
            KeyUpdate(name, drop=[ours[place].ref for place in places], touch=touch),
            KeyUpdate(name, drop=[theirs[place].ref for place in places], touch=touch),
            draw,
        )

    def back(self, draw: Draw) -> None:
        """Rows are dropped, something may be pushed, and they come back to their places one by one."""
        name = self.name(draw)
        ours, theirs = self.both(name)
        if not ours:
            return
        # Only a tail of rows that we wrote or the newest of others': that is what a pop takes.
        start = draw(st.integers(max(0, len(ours) - 2), len(ours) - 1))
        for rows, change in ((ours, self.store.commit), (theirs, self.model.apply)):
            change([KeyUpdate(name, drop=[row.ref for row in rows[start:]])])
        if draw(st.booleans()):
            pushed = KeyUpdate(name, push=[(b'{"between":1}', Tag("a", 1))])
            self.store.commit([pushed])
            self.model.apply([pushed])
        if draw(st.booleans()) and self.foreign is not None:
            self.foreign_push(draw)
        for place in draw(st.permutations(range(start, len(ours)))):
            self.store.commit([KeyUpdate(name, back=[ours[place]])])
            row = theirs[place]._replace(tag=theirs[place].tag or Tag())
            self.model.apply([KeyUpdate(name, back=[row])])

    def arrange(self, draw: Draw) -> None:
        """What replace and restore do: a front goes to a box, new rows or an older box come in its place."""
        name = self.name(draw)
        ours, theirs = self.both(name)
        cut = draw(st.integers(0, len(ours)))
        replaces = draw(st.sampled_from([None, 0, 7]))
        new = self.new_rows(draw)
        boxes = sorted(self.model.kept(name).boxes)
        source = draw(st.sampled_from([0, *boxes]))
        self.boxes += 1
        forget = boxes[:1] if len(boxes) >= 3 else []

        def made(rows: list[Row], old: list[Row]) -> Arrange:
            edge = rows[cut - 1].ref if cut else 0
            front: list[Any] = [new] if not source else [Range(source, None, None, replaces)]
            if source and len(old) > 1:
                front = [Range(source, old[0].ref, old[-1].ref, replaces), new]
            live = [*front, Range(0, edge, None, None)]
            keep = [Range(0, None, edge, None)] if cut else []
            return Arrange(live, self.boxes, keep, forget)

        mine, model = self.both(name, source) if source else ([], [])
        ours_change = KeyUpdate(name, arrange=made(ours, mine), touch=True)
        self.do(ours_change, KeyUpdate(name, arrange=made(theirs, model), touch=True), draw)

    def load(self, draw: Draw) -> None:
        """What an import does: rows with the times they had elsewhere come behind those that are there, and boxes."""
        name = self.name(draw)
        rows = self.new_rows(draw)
        times = [draw(st.sampled_from([None, 1e9, 1.5e9 + 0.25, 1.2e9])) for _ in rows]
        self.boxes += 1
        boxes = {self.boxes: self.new_rows(draw)} if draw(st.booleans()) else {}
        change = KeyUpdate(name, load=Load(rows, times, boxes, 1e9), put=self.some_cells(draw), touch=True)
        self.do(change, change, draw)

    def fork(self, draw: Draw) -> None:
        ours, theirs = self.both(SESSION)
        if self.model.kept(OTHER).rows or not ours:
            return
        cut = draw(st.integers(1, len(ours)))
        for rows, change in ((ours, self.store.commit), (theirs, self.model.apply)):
            parts = Arrange([Range(0, None, rows[cut - 1].ref, 0, SESSION)])
            change([KeyUpdate(OTHER, arrange=parts, touch=True), KeyUpdate(SESSION)])

    def foreign_push(self, draw: Draw) -> None:
        assert self.foreign is not None
        data = draw(st.sampled_from([b'{"f":1}', b'{"f":2}', b"broken"]))
        self.foreign.push(SESSION.id, data)
        self.model.foreign_push(SESSION, data)

    def foreign_pop(self, draw: Draw) -> None:
        assert self.foreign is not None
        self.foreign.pop(SESSION.id)
        self.model.foreign_pop(SESSION)

    def foreign_clear(self, draw: Draw) -> None:
        assert self.foreign is not None
        if draw(st.booleans()) and not self.model.kept(SESSION).is_early:
            self.foreign.clear(SESSION.id)
            self.model.foreign_clear(SESSION)

    # --- comparing

    def compare(self) -> None:
        for name in (SESSION, OTHER, RUN):
            boxes = sorted(self.model.kept(name).boxes)
            wanted = (Rows(), *(Rows(box=box) for box in boxes), Rows(writer="a"), Rows(limit=2))
            sight = self.store.look(ReadRequest(name, cells=CELLS, prefixes=("w/",), rows=wanted, times=True))
            for rows, found in zip(wanted, sight.rows, strict=True):
                expected = self.model.rows(name, rows)
                # A row that another program wrote may become nobody's when it is put back: neither is ever rewound.
                said = [[(row.data, row.tag or Tag()) for row in some] for some in (found, expected)]
                assert said[0] == said[1], rows
                refs = [row.ref for row in found]
                assert refs == sorted(set(refs)), f"refs do not grow: {refs}"
            assert dict(sight.cells) == self.model.cells(name)
            assert (sight.created is not None) == self.model.kept(name).exists, name
            if sight.rows[0]:
                middle = sight.rows[0][len(sight.rows[0]) // 2]
                some = self.store.look(ReadRequest(name, rows=(Rows(before=middle.ref, limit=3),))).rows[0]
                place = len(sight.rows[0]) // 2
                assert list(some) == list(sight.rows[0][max(0, place - 3) : place])
                behind = self.store.look(
                    ReadRequest(name, rows=(Rows(after=middle.ref, limit=2, times=True), Rows(limit=1)), count=True)
                )
                assert list(behind.rows[0]) == list(sight.rows[0][place + 1 : place + 3])
                assert behind.count == len(sight.rows[0])
                assert len(behind.times[0]) == len(behind.rows[0])
                assert not behind.times[1]
                whole = self.store.look(ReadRequest(name, rows=(Rows(after=0),))).rows[0]
                assert list(whole) == list(sight.rows[0])
            data = self.store.look(ReadRequest(name, rows=(Rows(),), only_data=True, mark=False)).data
            assert [bytes(one) for one in data] == [row.data for row in sight.rows[0]]
            if name.kind == "session":
                self.compare_marks(name, sight.mark, list(sight.rows[0]))

    def compare_marks(self, name: Name, mark: str, rows: list[Row]) -> None:
        own = self.model.mark(name)
        assert (mark == "") == (own == ())
        for other, text, known in self.marks[-12:]:
            if other == name:
                if text == mark:
                    assert known == own, "equal marks, and another history"
                upto = self.store.look(ReadRequest(name, upto=text)).upto
                if upto is not None:
                    assert own[: len(known)] == known, "a mark is said to hold, and the rows up to it have changed"
                    assert upto == (rows[len(known) - 1].ref if known else 0)
        assert self.store.look(ReadRequest(name, upto=mark)).upto == (rows[-1].ref if rows else 0)
        self.marks.append((name, mark, own))
