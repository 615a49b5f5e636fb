"""SQLite as a store, beside a plain model of the port: any steps, alone or together, with other programs in between."""

from __future__ import annotations

import itertools
import sqlite3
import tempfile
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from standfast._src.sessions.backends.sqlite import database_file
from standfast._src.sessions.backends.sqlite.schema import Tables, migrate
from standfast._src.sessions.backends.sqlite.sqlite_storage import Transaction
from standfast._src.sessions.backends.sqlite.statements import statements
from standfast._src.sessions.backends.sqlite.values import as_seconds, now_text
from standfast._src.sessions.storage import (
    NOBODY,
    Arrange,
    Cell,
    CommitRequest,
    Done,
    KeyUpdate,
    Name,
    Range,
    ReadRequest,
    Refused,
    Row,
    Rows,
    Tag,
)

SESSIONS = [Name("session", text) for text in ("a", "b'\"", "ü%_")]
NAMES = [*SESSIONS, Name("run", "a")]
CELLS = ("w/x", "w/y", "lease", "l")
TABLES = Tables.of("agent_sessions", "agent_messages")

Line = tuple[bytes, Tag | None]


@dataclass
class Kept:
    """What the model keeps for a name."""

    rows: list[Line] = field(default_factory=list)
    boxes: dict[int, list[Line]] = field(default_factory=dict)
    cells: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    incarnation: int = 0
    is_begun: bool = False
    is_there: bool = False
    labels: dict[str, str] = field(default_factory=dict)

    def end(self) -> None:
        """Everything but cells goes; those are of an earlier incarnation from now on."""
        self.rows, self.boxes, self.labels = [], {}, {}
        self.is_begun = self.is_there = False
        self.incarnation += 1


def part_of(lines: list[Line], refs: list[int], part: Range) -> list[Line]:
    """The lines a range names, tagged as it says."""
    found = []
    for line, ref in zip(lines, refs, strict=True):
        if (part.after or 0) < ref and (part.upto is None or ref <= part.upto):
            data, tag = line
            if part.replaces is not None:
                tag = (tag or Tag())._replace(replaces=part.replaces)
            found.append((data, tag))
    return found


data = st.sampled_from([b'{"a":1}', b'{"b":2}', b"{broken", b"\xff{}", '{"ü": 1}'.encode()])
tags = st.builds(Tag, st.sampled_from(["", "x", "y"]), st.integers(0, 3), st.just(0))
lines = st.lists(st.tuples(data, tags), max_size=3)
values = st.sampled_from([b"", b"1", b"\x00\xff"])


class StoreAgainstModel(RuleBasedStateMachine):
    """Every look at the store says what the model says, and a mark never stands for two different histories."""

    @initialize()
    def open(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        path = str(Path(self.folder.name) / "s.db")
        database_file.make_file(path, None)
        self.path = path
        self.db = database_file.connect(path)
        self.db.execute("BEGIN IMMEDIATE")
        migrate(self.db, TABLES)
        self.db.execute("COMMIT")
        self.kept: Transaction | None = None
        self.kept_at = 0
        self.model = {name: Kept() for name in NAMES}
        self.order: list[Name] = []  # newest change last
        self.pending: list[Name] = []  # whose records other programs added since our last change, one by one
        self.marks: dict[tuple[Name, str], list[Row]] = {}
        self.refs: dict[Name, set[int]] = {name: set() for name in NAMES}
        self.dropped: dict[Name, list[Row]] = {}

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.close()
            self.folder.cleanup()

    def transaction(self) -> Transaction:
        return Transaction(self.db, statements(TABLES))

    def begun(self) -> Transaction:
        """A transaction that may write. As the writer of a file does: with what is known from the last one, if no other
        connection has committed since."""
        self.db.execute("BEGIN IMMEDIATE")
        version = self.db.execute("PRAGMA data_version").fetchone()[0]
        if self.kept is None or version != self.kept_at:
            self.kept, self.kept_at = self.transaction(), version
        else:
            self.kept.again()
        return self.kept

    def rows(self, name: Name, box: int = 0) -> list[Row]:
        return list(self.transaction().look(ReadRequest(name, rows=(Rows(box),))).rows[0])

    # --- our own changes ------------------------------------------------------------------------------

    @rule(data=st.data(), names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    def commit(self, data: st.DataObject, names: list[Name]) -> None:
        """Steps of different names at once."""
        steps: list[list[KeyUpdate]] = [[self.change(data, name)] for name in names]
        if data.draw(st.booleans()):
            steps = [[change for step in steps for change in step]]  # one step of several names
        transaction = self.begun()
        if data.draw(st.booleans()):  # as plans do: what was looked at is known
            looks = [ReadRequest(name, cells=CELLS) for name in names]
            transaction.foresee(data.draw(st.sampled_from([looks, steps])))
            for look in looks:
                transaction.look(look)
        expected = [self.expected(step) for step in steps]
        if data.draw(st.booleans()):
            with transaction.together():
                answers = [transaction.commit(step) for step in steps]
        else:
            answers = [transaction.commit(step) for step in steps]
        self.db.execute("COMMIT")
        for step, answer, refused in zip(steps, answers, expected, strict=True):
            if refused:
                assert isinstance(answer, Refused)
                assert (answer.place, answer.why) == refused
            else:
                assert isinstance(answer, Done)
                for change, mark in zip(step, answer.marks, strict=True):
                    self.do(change)
                    assert mark == self.transaction().look(ReadRequest(change.name)).mark

    def change(self, draw: st.DataObject, name: Name) -> KeyUpdate:
        """Some change of a name, with conditions that may not hold."""
        sight = self.transaction().look(ReadRequest(name, cells=CELLS, rows=(Rows(),)))
        chosen = draw.draw(
            st.sampled_from(["push", "push", "push", "wipe", "remove", "drop", "arrange", "back", "sweep"])
        )
        effects: dict[str, Any] = {"touch": draw.draw(st.sampled_from([True, True, False]))}
        cells = draw.draw(st.dictionaries(st.sampled_from(CELLS), st.none() | values, max_size=2))
        effects["put"] = draw.draw(st.dictionaries(st.sampled_from(CELLS), st.none() | values, max_size=2))
        conditions: dict[str, Any] = {"cells": cells if draw.draw(st.booleans()) else {}}
        if draw.draw(st.booleans()):
            effects["labels"] = {"session": draw.draw(st.sampled_from("pq"))}
        rows = list(sight.rows[0])
        if name.kind == "session":
            known = [mark for of, mark in self.marks if of == name]
            if known:
                conditions[draw.draw(st.sampled_from(["mark", "prefix", "-"]))] = draw.draw(st.sampled_from(known))
            conditions.pop("-", None)
            if chosen == "drop" and rows:
                effects["drop"] = [
                    row.ref for row in draw.draw(st.lists(st.sampled_from(rows), min_size=1, unique=True))
                ]
                effects["touch"] = True
            if chosen == "arrange":
                effects["arrange"] = self.arrangement(draw, name, rows)
            if chosen == "back" and name in self.dropped:
                effects["back"] = self.dropped[name]
            if chosen in ("push", "wipe"):
                effects["push"] = draw.draw(lines)
        if chosen in ("wipe", "remove"):
            effects[chosen] = True if chosen == "remove" else draw.draw(st.sampled_from([(), ("w/",), ("w/x", "l")]))
        if chosen == "sweep":
            effects["sweep"] = draw.draw(st.sampled_from([("w/",), ("l",)]))
        return KeyUpdate(name, **conditions, **effects)

    def arrangement(self, draw: st.DataObject, name: Name, rows: list[Row]) -> Arrange:
        """Some of what is there, in some order, kept or not; of another session too."""
        parts: list[Any] = []
        for _ in range(draw.draw(st.integers(0, 3))):
            if draw.draw(st.booleans()):
                parts.append(draw.draw(lines))
                continue
            source = draw.draw(st.sampled_from([name, name, *SESSIONS]))
            box = draw.draw(st.integers(0, 2))
            there = [0, *(row.ref for row in self.rows(source, box))]
            after, upto = draw.draw(st.sampled_from(there)), draw.draw(st.none() | st.sampled_from(there))
            of = None if source == name else source
            parts.append(Range(box, after or None, upto, draw.draw(st.sampled_from([None, None, 1])), of))
        cut = draw.draw(st.none() | st.sampled_from([row.ref for row in rows])) if rows else None
        keep = [Range(0, None, cut)] if cut else []
        return Arrange(parts, 1 if keep else 0, keep, draw.draw(st.sampled_from([(), (2,)])))

    def expected(self, step: CommitRequest) -> tuple[int, str] | None:
        """Which condition of a step does not hold, if any."""
        for place, change in enumerate(step):
            kept = self.model[change.name]
            now = {name: cell[0] for name, cell in kept.cells.items()}
            if any(now.get(name) != value for name, value in change.cells.items()):
                return place, "cell"
            sight = self.transaction().look(ReadRequest(change.name, upto=change.prefix))
            if change.mark is not None and self.marks.get((change.name, change.mark)) != self.rows(change.name):
                assert change.mark != sight.mark
                return place, "mark"
            if change.prefix is not None:
                before = self.marks[change.name, change.prefix]
                same = self.rows(change.name)[: len(before)] == before
                assert same or sight.upto is None  # it may be refused where it need not, and never the other way
                if sight.upto is None:
                    return place, "mark"
        return None

    def do(self, change: KeyUpdate) -> None:
        """The same to the model."""
        kept = self.model[change.name]
        if change.remove or change.wipe is not None:
            kept.end()
            prefixes = () if change.remove or change.wipe is None else change.wipe
            kept.cells = {name: cell for name, cell in kept.cells.items() if name.startswith(tuple(prefixes))}
            self.order = [name for name in self.order if name != change.name]
            self.pending = [name for name in self.pending if name != change.name]
            self.dropped.pop(change.name, None)
        if change.arrange is not None or change.back or change.drop:
            now = self.rows(change.name)
            kept.rows = [(row.data, row.tag) for row in now]  # compared where it is done: see `check_moves`
            kept.boxes = {box: [(row.data, row.tag) for row in self.rows(change.name, box)] for box in (1, 2)}
        kept.rows += [(bytes(data), tag) for data, tag in change.push]
        if change.push and (change.arrange or change.back or change.drop):
            kept.rows = kept.rows[: len(kept.rows) - len(change.push)]
        for prefix in change.sweep:
            kept.cells = {name: cell for name, cell in kept.cells.items() if not name.startswith(prefix)}
        for name, value in change.put.items():
            kept.cells.pop(name, None)
            if value is not None:
                kept.cells[name] = (value, kept.incarnation)
        if change.push or change.arrange is not None or change.back or change.drop:
            self.adopt()
        if change.touch:
            self.touched(change.name)
            if change.labels is not None:
                kept.labels = dict(change.labels)
        elif change.labels is not None and kept.is_there:
            kept.labels = dict(change.labels)

    def touched(self, name: Name) -> None:
        self.adopt()
        self.order = [one for one in self.order if one != name] + [name]
        self.model[name].is_there = self.model[name].is_begun = True

    def adopt(self) -> None:
        """A change of ours: what others wrote until now comes before it, for good."""
        self.order = self.order_now()
        self.pending = []

    def order_now(self) -> list[Name]:
        """All sessions in the order of their changes; what others wrote is found by their newest records."""
        latest = list(dict.fromkeys(reversed(self.pending)))[::-1]
        return [one for one in self.order if one not in latest] + latest

    # --- what moves rows, each checked against plain lists ---------------------------------------------

    @rule(draw=st.data(), name=st.sampled_from(SESSIONS))
    def arrange(self, draw: st.DataObject, name: Name) -> None:
        """Rows are put together from ranges exactly as lists would be."""
        rows = self.rows(name)
        arrange = self.arrangement(draw, name, rows)
        boxes = {(of, box): self.rows(of, box) for of in SESSIONS for box in (0, 1, 2)}
        if not self.model[name].is_begun:  # what another program's clear has left goes when the incarnation begins
            boxes[name, 1] = boxes[name, 2] = []
        live: list[Line] = []
        for part in arrange.live:
            if isinstance(part, Range):
                source = boxes[part.of or name, part.box]
                live += part_of([(row.data, row.tag) for row in source], [row.ref for row in source], part)
            else:
                live += part
        kept = [(row.data, row.tag) for row in rows if arrange.keep and row.ref <= (arrange.keep[0].upto or 0)]
        self.single(KeyUpdate(name, arrange=arrange, touch=True))
        now = self.rows(name)
        assert [(row.data, row.tag) for row in now] == live
        assert not {row.ref for row in now} & {row.ref for row in rows}, "every row has a new ref"
        if arrange.box:
            assert [(row.data, row.tag) for row in self.rows(name, 1)] == kept
        for box in (1, 2):
            if box != arrange.box:
                gone = box in arrange.forget
                assert self.rows(name, box) == ([] if gone else boxes[name, box])
        self.model[name].rows = live
        self.model[name].boxes = {box: [(row.data, row.tag) for row in self.rows(name, box)] for box in (1, 2)}
        self.dropped.pop(name, None)

    @rule(draw=st.data(), name=st.sampled_from(SESSIONS))
    def drop(self, draw: st.DataObject, name: Name) -> None:
        """A row leaves, wherever it stands; it may be put back later."""
        rows = self.rows(name)
        if rows:
            row = draw.draw(st.sampled_from(rows))
            self.single(KeyUpdate(name, drop=[row.ref], touch=True))
            self.model[name].rows = [(one.data, one.tag) for one in rows if one != row]
            self.dropped[name] = [row]

    @rule(name=st.sampled_from(SESSIONS))
    def put_back(self, name: Name) -> None:
        """A dropped row stands where it stood, between the same rows."""
        for row in self.dropped.pop(name, []):
            rows = self.rows(name)
            expected = [*(one for one in rows if one.ref < row.ref), row, *(one for one in rows if one.ref > row.ref)]
            self.single(KeyUpdate(name, back=[row]))
            self.model[name].rows = [(one.data, one.tag) for one in expected]

    def single(self, change: KeyUpdate) -> None:
        transaction = self.begun()
        assert isinstance(transaction.commit([change]), Done)
        self.db.execute("COMMIT")
        self.adopt()
        if change.touch:
            self.touched(change.name)

    # --- other programs ------------------------------------------------------------------------------

    @rule(name=st.sampled_from(SESSIONS), text=st.sampled_from(['{"p": 1}', "{torn", "[]"]))
    def foreign_append(self, name: Name, text: str) -> None:
        """As the SDK adds a record."""
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("INSERT OR IGNORE INTO agent_sessions (session_id) VALUES (?)", (name.id,))
            db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)", (name.id, text))
            db.execute("UPDATE agent_sessions SET updated_at = CURRENT_TIMESTAMP WHERE session_id = ?", (name.id,))
        kept = self.model[name]
        kept.rows.append((text.encode(), None))
        kept.is_there = True
        self.pending.append(name)

    @rule(name=st.sampled_from(SESSIONS))
    def foreign_pop(self, name: Name) -> None:
        """As the SDK removes the newest."""
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute(
                "DELETE FROM agent_messages WHERE id = (SELECT max(id) FROM agent_messages WHERE session_id = ?)",
                (name.id,),
            )
        if self.model[name].rows:
            self.model[name].rows.pop()
        if name in self.pending:
            del self.pending[len(self.pending) - 1 - self.pending[::-1].index(name)]

    @rule(name=st.sampled_from(SESSIONS))
    def foreign_clear(self, name: Name) -> None:
        """As the SDK clears."""
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("DELETE FROM agent_messages WHERE session_id = ?", (name.id,))
            db.execute("DELETE FROM agent_sessions WHERE session_id = ?", (name.id,))
        kept = self.model[name]
        was_begun = kept.is_begun
        boxes = kept.boxes
        kept.end()
        kept.boxes = boxes  # nobody speaks of them any more; they go when the next incarnation begins
        if not was_begun:
            kept.incarnation -= 1  # what we put before we ever wrote a row there cannot be told apart
        self.order = [one for one in self.order if one != name]
        self.pending = [one for one in self.pending if one != name]
        self.dropped.pop(name, None)

    # --- what must be so ------------------------------------------------------------------------------

    @invariant()
    def looks_agree(self) -> None:
        if not hasattr(self, "db"):
            return
        for name in NAMES:
            kept = self.model[name]
            sight = self.transaction().look(
                ReadRequest(name, cells=CELLS, prefixes=("w/",), rows=(Rows(),), times=True)
            )
            rows = list(sight.rows[0])
            assert [(row.data, row.tag) for row in rows] == kept.rows
            assert [row.ref for row in rows] == sorted({row.ref for row in rows})
            assert dict(sight.cells) == {
                cell: Cell(value, born == kept.incarnation) for cell, (value, born) in kept.cells.items()
            }
            assert (sight.created is not None) == kept.is_there
            assert bool(sight.epoch) == kept.is_begun
            assert dict(sight.labels) == (kept.labels if kept.is_there else {})
            if name.kind == "session":
                assert bool(sight.mark) == bool(rows)
                assert self.marks.setdefault((name, sight.mark), rows) == rows, "equal marks, other rows"

    @invariant()
    def windows_agree(self) -> None:
        if not hasattr(self, "db"):
            return
        for name in SESSIONS:
            rows = self.rows(name)
            for limit in (0, 1, 2):
                for before in (None, *(row.ref for row in rows[1:2])):
                    wanted = Rows(0, before, limit)
                    below = [row for row in rows if before is None or row.ref < before]
                    expected = below[max(0, len(below) - limit) :]
                    sight = self.transaction().look(ReadRequest(name, rows=(wanted,)))
                    assert list(sight.rows[0]) == expected
                    sight = self.transaction().look(ReadRequest(name, rows=(wanted,), only_data=True))
                    assert list(sight.data) == [row.data for row in expected]
            of_x = [row for row in rows if row.tag is not None and row.tag.writer == "x"]
            assert list(self.transaction().look(ReadRequest(name, rows=(Rows(writer="x"),))).rows[0]) == of_x

    @invariant()
    def listings_agree(self) -> None:
        if not hasattr(self, "db"):
            return
        order = self.order_now()
        for kind in ("session", "run"):
            expected = [name.id for name in reversed(order) if name.kind == kind]
            there = [name.id for name in NAMES if name.kind == kind and self.model[name].is_there]
            found, after = [], None
            while True:  # a page at a time
                page = self.transaction().listing(kind, after=after, limit=1, labels={})  # type: ignore[arg-type]
                if not page:
                    break
                found.append(page[0].id)
                after = page[0].cursor
            assert sorted(found) == sorted(there)
            assert found[: len(expected)] == [one for one in expected if one in there]
            assert self.transaction().count(kind) == len(there)  # type: ignore[arg-type]
            labelled = [name for name in there if self.model[Name(kind, name)].labels.get("session") == "p"]  # type: ignore[arg-type]
            some = self.transaction().listing(kind, after=None, limit=9, labels={"session": "p"})  # type: ignore[arg-type]
            assert sorted(one.id for one in some) == sorted(labelled)


StoreAgainstModel.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestStoreAgainstModel = StoreAgainstModel.TestCase


def test_a_row_put_back_behind_one_that_the_sdk_took_makes_another_mark() -> None:
    """Its id is there again and is the newest, as before; what stood before it is not (B2)."""
    machine, name = StoreAgainstModel(), SESSIONS[0]
    machine.open()
    try:
        machine.single(KeyUpdate(name, push=[(b'{"n":%d}' % number, NOBODY) for number in range(3)], touch=True))
        before = machine.transaction().look(ReadRequest(name, rows=(Rows(),)))
        newest = before.rows[0][-1]
        machine.single(KeyUpdate(name, drop=[newest.ref], touch=True))
        machine.foreign_pop(name)
        machine.single(KeyUpdate(name, back=[newest]))
        after = machine.transaction().look(ReadRequest(name, rows=(Rows(),), upto=before.mark))
        assert [row.ref for row in after.rows[0]] == [before.rows[0][0].ref, newest.ref]
        assert after.mark != before.mark
        assert after.upto is None
    finally:
        machine.teardown()


# --- together, and one by one -------------------------------------------------------------------------------------

PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "push": lines.filter(bool),
    "put": st.dictionaries(st.sampled_from(CELLS[:2]), st.none() | values, min_size=1),
    "labels": st.sampled_from([{"session": "p"}, {"session": "q"}]),
}
MOVING: dict[str, st.SearchStrategy[Any]] = {
    "sweep": st.sampled_from([("w/",), ("l",)]),
    "wipe": st.sampled_from([(), ("w/",)]),
    "arrange": st.just(Arrange([Range(0), Range(0)])),
    "drop": st.just("newest"),
}


def effects_of(*more: str) -> st.SearchStrategy[dict[str, Any]]:
    """Effects that can be put off, and one of those that cannot."""
    always = {"name": st.sampled_from([*SESSIONS[:2], NAMES[-1]]), "touch": st.sampled_from([True, True, False])}
    return st.fixed_dictionaries(always | {each: MOVING[each] for each in more}, optional=PLAIN)


EFFECTS = st.one_of([effects_of()] * 6 + [effects_of(each) for each in MOVING])
QUESTIONS = ("nothing", "rows", "contents", "box", "cells", "place", "count", "listing", "how many")
STEPS = st.tuples(EFFECTS, st.sampled_from(QUESTIONS))
Steps = list[tuple[dict[str, Any], str]]


def a_change(transaction: Transaction, effects: dict[str, Any]) -> KeyUpdate:
    """The change that was drawn, of what is there now; asking for a mark writes nothing that was put off."""
    given = dict(effects)
    name = given["name"]
    mark = transaction.look(ReadRequest(name)).mark
    if name.kind == "run":
        for of_rows in ("push", "arrange", "drop"):
            given.pop(of_rows, None)
    elif given.pop("drop", None) and mark and "arrange" not in given and "wipe" not in given:
        given["drop"] = [int(mark.split(".")[1])]
    return KeyUpdate(**given)


def answer_to(question: str, transaction: Transaction, name: Name, mark: str) -> Any:
    """What a plan behind the step is told in the same transaction: what was put off is part of it."""
    if question == "listing":
        return [one.id for one in transaction.listing(name.kind, after=None, limit=9, labels={})]
    if question == "how many":
        return transaction.count(name.kind)
    sight = transaction.look(
        ReadRequest(
            name,
            cells=() if question == "cells" else CELLS,
            prefixes=("w/",) if question == "cells" else (),
            rows=(Rows(1 if question == "box" else 0),) if question in ("rows", "box", "contents") else (),
            only_data=question == "contents",
            upto=mark if question == "place" else None,
            count=question == "count",
        )
    )
    return sight.cells, sight.rows, sight.data, sight.upto, sight.count


def carried(folder: Path, groups: list[Steps], *, together: bool) -> tuple[list[Any], list[Any]]:
    """What the steps of these groups were answered, and what there is afterwards."""
    path = str(folder / f"{together}.db")
    database_file.make_file(path, None)
    answers: list[Any] = []
    with closing(database_file.connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        migrate(db, TABLES)
        db.execute("COMMIT")
        transaction = Transaction(db, statements(TABLES))
        for group in groups:
            db.execute("BEGIN IMMEDIATE")
            transaction.again()
            with transaction.together() if together else nullcontext():
                marks: dict[Name, str] = {}  # of each name, behind its first step in the group
                for effects, question in group:
                    answers.append(transaction.commit([a_change(transaction, effects)]))
                    name = effects["name"]
                    mark = marks.setdefault(name, transaction.look(ReadRequest(name)).mark)
                    answers.append(answer_to(question, transaction, name, mark))
            db.execute("COMMIT")
        found = Transaction(db, statements(TABLES))
        sights = [found.look(ReadRequest(name, cells=CELLS, rows=(Rows(),), times=True, count=True)) for name in NAMES]
        left: list[Any] = [(one.mark, one.cells, one.rows, one.labels, one.count) for one in sights]
        for kind in ("session", "run"):
            left.append([one.id for one in found.listing(kind, after=None, limit=9, labels={})])
    return answers, left


@given(st.lists(st.lists(STEPS, min_size=2, max_size=8), min_size=1, max_size=3))
@settings(deadline=None, max_examples=60)
def test_steps_that_are_written_together_leave_what_they_leave_one_by_one(groups: list[Steps]) -> None:
    """Grouping is invisible (A10), to the steps themselves too: ids of rows that are not written yet are the ones they
    get."""
    with tempfile.TemporaryDirectory() as folder:
        assert carried(Path(folder), groups, together=True) == carried(Path(folder), groups, together=False)


@pytest.mark.parametrize("question", QUESTIONS)
def test_whoever_asks_behind_a_step_is_told_what_was_put_off(question: str, tmp_path: Path) -> None:
    steps: Steps = []
    for number in range(3):
        row = (b'{"n":%d}' % number, NOBODY)
        effects = {"name": SESSIONS[0], "touch": True, "push": [row], "put": {f"w/{number}": b"1"}}
        steps += [(effects, question)]
    together, apart = (carried(tmp_path, [steps], together=each) for each in (True, False))
    assert together == apart


@pytest.mark.parametrize("holds", [True, False])
def test_a_condition_on_what_was_put_off_is_judged_as_if_it_stood_there(holds: bool, tmp_path: Path) -> None:
    """A step that asks for the history up to a mark, of which nothing is written yet."""
    path = str(tmp_path / "s.db")
    database_file.make_file(path, None)
    with closing(database_file.connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        migrate(db, TABLES)
        transaction, name = Transaction(db, statements(TABLES)), SESSIONS[0]
        with transaction.together():
            pushed = [transaction.commit([KeyUpdate(name, push=[(b"{}", NOBODY)], touch=True)]) for _ in range(3)]
            assert all(isinstance(one, Done) for one in pushed)
            # Of the second: the first row of a transaction is written at once, which tells the ids of the others.
            first, edition = pushed[1].marks[0].rsplit(".", 1)  # type: ignore[union-attr]  # seen to be done
            prefix = f"{first}.{edition if holds else int(edition) + 1}"
            judged = transaction.commit([KeyUpdate(name, prefix=prefix, push=[(b"{}", NOBODY)], touch=True)])
        db.execute("COMMIT")
    assert isinstance(judged, Done if holds else Refused)


AT_ONCE: dict[str, dict[str, Any]] = {
    "drop": {"drop": "newest"},
    "arrange": {"arrange": Arrange([Range(0), Range(0)])},
    "sweep": {"sweep": ("w/",)},
    "wipe": {"wipe": ()},
    "labels of what is not touched": {"touch": False, "labels": {"session": "q"}},
    "rows of what is not touched": {"touch": False, "push": [(b"{}", NOBODY)]},
}


@pytest.mark.parametrize("effects", AT_ONCE.values(), ids=AT_ONCE)
def test_what_is_done_at_once_is_done_to_what_was_put_off(effects: dict[str, Any], tmp_path: Path) -> None:
    """A row that is not written yet is dropped, moved, wiped; a name that is not written yet gets its labels."""
    before, name = [], SESSIONS[0]
    for number in range(3):
        made = {"name": name, "touch": True, "push": [(b'{"n":%d}' % number, NOBODY)], "put": {"w/x": b"%d" % number}}
        before.append((made, "nothing"))
    steps: Steps = [*before, ({"name": name, "touch": True, **effects}, "listing"), *before[:1]]
    together, apart = (carried(tmp_path, [steps, before], together=each) for each in (True, False))
    assert together == apart


@pytest.mark.parametrize("looks", ["once", "before each"])
def test_where_a_history_ends_is_known_in_whatever_order_its_rows_are_dropped(looks: str) -> None:
    """What stands before the newest row is known from a look at that row, until something else is dropped."""
    with closing(database_file.connect(database_file.MEMORY)) as db:
        db.execute("BEGIN IMMEDIATE")
        migrate(db, TABLES)
        transaction = Transaction(db, statements(TABLES))
        for number, order in enumerate(itertools.permutations(range(4))):
            name = Name("session", str(number))
            transaction.commit([KeyUpdate(name, push=[(b"{}", NOBODY)] * 4, touch=True)])
            refs = [row.ref for row in transaction.look(ReadRequest(name, rows=(Rows(),))).rows[0]]
            transaction.look(ReadRequest(name, rows=(Rows(limit=1),)))
            for place in order:
                transaction.commit([KeyUpdate(name, drop=[refs[place]], touch=True)])
                known = transaction.look(ReadRequest(name)).mark
                assert known == Transaction(db, statements(TABLES)).look(ReadRequest(name)).mark
                if looks == "before each":
                    transaction.look(ReadRequest(name, rows=(Rows(limit=1),)))


@given(st.floats(0, 4e9))
def test_a_time_that_was_written_here_is_read_as_any_other(at: float) -> None:
    text = now_text(at)
    assert as_seconds(text.encode()) == datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_what_only_looks_like_a_time_is_read_as_none() -> None:
    assert [as_seconds(text) for text in (b"2026-99-16 16:47:26.123456", b"\xff" * 19 + b".123456")] == [0.0, 0.0]
