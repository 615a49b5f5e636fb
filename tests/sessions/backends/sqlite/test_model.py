"""Any sequence of operations leaves what plain Python structures would hold, in a file and in memory."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from standfast._src.base.errors import StandfastError
from standfast._src.sessions.backends.memory.memory_session import InMemorySession
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast._src.sessions.protocol import Head, Position

contents = st.one_of(
    st.text(max_size=8), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.none(), st.booleans()
)
items = st.dictionaries(st.sampled_from(["role", "content", "é", "\x00"]), contents, max_size=3)
batches = st.lists(items, min_size=1, max_size=4)
corrupt = st.sampled_from([b"\xff\xfe\xfa", b"[1, 2]", b"null", b"{", b"", b"\xed\xa0\x80", b"7"])


class HistoryAgainstList(RuleBasedStateMachine):
    """The five methods, page and repair, with records that another program broke in between."""

    @initialize(in_memory=st.booleans())
    def begin(self, in_memory: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.path = None if in_memory else Path(self.folder.name) / "s.db"
        self.session = SQLiteSession("s", ":memory:" if self.path is None else self.path)
        self.other = SQLiteSession("other", ":memory:" if self.path is None else self.path)
        self.rows: list[dict[str, Any] | bytes] = []  # bytes: a corrupt record
        self.run(self.other.add_items([{"untouched": True}]))

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @property
    def model(self) -> list[dict[str, Any]]:
        return [row for row in self.rows if isinstance(row, dict)]

    @rule(batch=batches)
    def add(self, batch: list[dict[str, Any]]) -> None:
        self.run(self.session.add_items(batch))
        self.rows += batch

    @rule(batch=batches)
    def append(self, batch: list[dict[str, Any]]) -> None:
        start = self.run(self.session.accepted("w"))
        for _ in range(2):  # again, as after a lost acknowledgement
            self.run(self.session.append(batch, writer="w", start=start))
        self.rows += batch

    @precondition(lambda self: self.path is not None)
    @rule(data=corrupt)
    def corrupt(self, data: bytes) -> None:
        assert self.path is not None
        self.run(self.session.get_items(limit=0))  # the tables are there
        with closing(sqlite3.connect(self.path)) as db, db:
            db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('s', CAST(? AS TEXT))", (data,))
        self.rows.append(data)

    @rule()
    def pop(self) -> None:
        expected = None
        for place in range(len(self.rows) - 1, -1, -1):
            if isinstance(self.rows[place], dict):
                expected = self.rows.pop(place)
                break
        assert self.run(self.session.pop_item()) == expected

    @rule()
    def clear(self) -> None:
        self.run(self.session.clear_session())
        self.rows = []
        assert self.run(self.session.info()) is None

    @rule()
    def repair(self) -> None:
        broken = [row for row in self.rows if isinstance(row, bytes)]
        assert [record.data for record in self.run(self.session.repair())] == broken
        self.rows = list(self.model)

    @rule(size=st.integers(1, 4))
    def read_in_pages(self, size: int) -> None:
        found: list[dict[str, Any]] = []
        page = self.run(self.session.page(limit=size))
        found[:0] = page.items
        while page.before is not None:
            page = self.run(self.session.page(before=page.before, limit=size))
            assert page.items
            found[:0] = page.items
        assert found == self.model

    @rule(limit=st.integers(0, 6))
    def read_latest(self, limit: int) -> None:
        assert self.run(self.session.get_items(limit=limit)) == (self.model[-limit:] if limit else [])

    @rule()
    def fork(self) -> None:
        at = Position(len(self.model) // 2)
        target = f"fork {id(at)} {len(self.rows)}"
        copy = self.run(self.session.fork(target, at=at))
        assert self.run(copy.get_items()) == self.model[: at.index]
        self.run(copy.clear_session())
        copy.close()

    @invariant()
    def same(self) -> None:
        if hasattr(self, "session"):
            assert self.run(self.session.get_items()) == self.model
            found = self.run(self.session.corrupt_records())
            assert [record.data for record in found] == [row for row in self.rows if isinstance(row, bytes)]

    def teardown(self) -> None:
        if hasattr(self, "session"):
            assert self.run(self.other.get_items()) == [{"untouched": True}]
            self.session.close()
            self.other.close()
            self.loop.close()
            self.folder.cleanup()


HistoryAgainstList.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)
TestHistoryAgainstList = HistoryAgainstList.TestCase


class AbilitiesAgainstReference(RuleBasedStateMachine):
    """Every change of part B, beside the in-memory reference: same answers, same refusals, same histories."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.ours = SQLiteSession("s", Path(self.folder.name) / "s.db")
        self.reference = InMemorySession("s")
        self.heads: list[tuple[Head, Head]] = [(Head(), Head())]
        self.forks = 0

    def both(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Do it to both; give (result of ours, result of the reference), or None if both refused alike."""

        def one(session: Any, place: int) -> Any:
            def pick(value: Any) -> Any:
                return value[place] if isinstance(value, Pair) else value

            given = {key: pick(value) for key, value in kwargs.items()}
            try:
                return self.loop.run_until_complete(getattr(session, name)(*map(pick, args), **given))
            except StandfastError as error:
                return type(error)

        results = one(self.ours, 0), one(self.reference, 1)
        refused = [isinstance(result, type) for result in results]
        assert refused[0] == refused[1], (name, args, kwargs, results)
        if refused[0]:
            assert results[0] is results[1], (name, args, kwargs, results)
            return None
        if isinstance(results[0], Head):
            self.heads.append(results)
        return results

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    @rule(batch=batches)
    def add(self, batch: list[dict[str, Any]]) -> None:
        self.both("add_items", batch)

    @rule(batch=batches, writer=st.sampled_from("ab"), back=st.integers(-1, 3), data=st.data())
    def append(self, batch: list[dict[str, Any]], writer: str, back: int, data: st.DataObject) -> None:
        count = self.run(self.reference.accepted(writer))
        expect = data.draw(st.one_of(st.none(), st.sampled_from(self.heads)))
        paired = None if expect is None else Pair(expect)
        self.both("append", batch, writer=writer, start=max(0, count - back), expect=paired)

    @rule(batch=batches, writer=st.sampled_from("ab"))
    def append_all_again(self, batch: list[dict[str, Any]], writer: str) -> None:
        kept = self.run(self.reference.written(writer))
        if len(kept) == self.run(self.reference.accepted(writer)):
            self.both("append", [*kept, *batch], writer=writer, start=0)

    @rule()
    def pop(self) -> None:
        self.both("pop_item")

    @rule()
    def clear(self) -> None:
        self.both("clear_session")

    @rule()
    def head(self) -> None:
        self.both("head")

    @rule(writer=st.sampled_from("ab"), to=st.integers(0, 6))
    def rewind(self, writer: str, to: int) -> None:
        self.both("rewind", writer=writer, to=to)

    @rule(batch=st.lists(items, max_size=2), data=st.data())
    def replace(self, batch: list[dict[str, Any]], data: st.DataObject) -> None:
        self.both("replace", batch, upto=Pair(data.draw(st.sampled_from(self.heads))))

    @rule(batch=st.lists(items, max_size=2))
    def replace_all(self, batch: list[dict[str, Any]]) -> None:
        heads = self.both("head")
        self.both("replace", batch, upto=Pair(heads))

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        kept = list(zip(self.run(self.ours.generations()), self.run(self.reference.generations()), strict=True))
        if kept:
            one, other = data.draw(st.sampled_from(kept))
            self.both("restore", Pair((one.id, other.id)))

    @rule(data=st.data(), index=st.integers(0, 6))
    def fork(self, data: st.DataObject, index: int) -> None:
        kept = list(zip(self.run(self.ours.generations()), self.run(self.reference.generations()), strict=True))
        chosen = data.draw(st.sampled_from([None, *kept]))
        at = Pair(Position(index, None if chosen is None else chosen[place].id) for place in range(2))
        self.forks += 1
        made = self.both("fork", f"fork {self.forks}", at=at)
        if made is not None:
            self.agree(*made)
            made[0].close()

    def agree(self, ours: Any, reference: Any) -> None:
        assert self.run(ours.get_items()) == self.run(reference.get_items())
        for writer in "ab":
            assert self.run(ours.accepted(writer)) == self.run(reference.accepted(writer))
            assert self.run(ours.written(writer)) == self.run(reference.written(writer))

    @invariant()
    def same(self) -> None:
        self.agree(self.ours, self.reference)
        pairs = zip(self.run(self.ours.generations()), self.run(self.reference.generations()), strict=True)
        for one, other in pairs:
            assert one.item_count == other.item_count
            assert self.run(self.ours.read_generation(one.id)) == self.run(self.reference.read_generation(other.id))

    def teardown(self) -> None:
        self.ours.close()
        self.loop.close()
        self.folder.cleanup()


class Pair(tuple[Any, ...]):
    """Two values of one argument: ours, and the reference's."""


AbilitiesAgainstReference.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAbilitiesAgainstReference = AbilitiesAgainstReference.TestCase


@pytest.mark.parametrize("where", ["file", ":memory:"])
async def test_undo_goes_back_through_a_chain_of_replacements_and_forward_again(tmp_path: Path, where: str) -> None:
    """Generations below generations: what was appended between two replacements is found again (B4)."""
    session = SQLiteSession("s", where if where == ":memory:" else tmp_path / "s.db")

    def said(found: list[dict[str, Any]]) -> str:
        return " ".join(item["t"] for item in found)

    async def add(text: str) -> None:
        await session.add_items([{"t": part} for part in text.split()])

    await add("1 2 3")
    upto = await session.head()
    await add("4")
    await session.replace([{"t": "S"}], upto=upto)  # S 4
    await add("5 6")
    upto = await session.head()
    await add("7")
    await session.replace([{"t": "T"}], upto=upto)  # T 7
    await add("8")
    second, first = await session.generations()
    assert (said(await session.read_generation(first.id)), said(await session.read_generation(second.id))) == (
        "1 2 3",
        "S 4 5 6",
    )
    await session.restore(first.id)
    assert said(await session.get_items()) == "1 2 3 4 5 6 7 8"
    undo = (await session.generations())[0]
    assert said(await session.read_generation(undo.id)) == "T"
    await session.restore(undo.id)
    assert said(await session.get_items()) == "T 7 8"
    await session.restore(second.id)
    assert said(await session.get_items()) == "S 4 5 6 7 8"
    assert len(await session.generations()) == 3
    session.close()
