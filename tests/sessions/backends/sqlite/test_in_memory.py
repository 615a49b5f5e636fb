"""A private database in memory begins as a copy of an empty one, and the path of a file is looked up once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from standfast import Agent, Runner, SQLiteSession
from standfast._src.sessions.backends.sqlite import in_memory
from standfast.testing import ScriptedModel, final


async def test_tables_are_made_once_and_each_database_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    migrate = in_memory.migrate
    monkeypatch.setattr(in_memory, "migrate", lambda db, tables: made.append(tables) or migrate(db, tables))
    for number in range(3):
        session = SQLiteSession("s", ":memory:", "of_this_test", "messages_of_this_test")
        await session.add_items([{"role": "user", "content": str(number)}])
        assert await session.get_items() == [{"role": "user", "content": str(number)}]
    assert len(made) == 1
    other = SQLiteSession("s", ":memory:", "of_this_test", "other_messages_of_this_test")
    await other.add_items([{"role": "user", "content": "other tables"}])
    assert len(made) == 2


async def test_the_path_of_an_open_file_is_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lookups of each folder of it in each run were 6 % of one."""
    session = SQLiteSession("s", tmp_path / "s.db")
    await session.get_items()
    seen: list[object] = []
    realpath = os.path.realpath
    monkeypatch.setattr(os.path, "realpath", lambda path, **given: seen.append(path) or realpath(path, **given))
    agent = Agent(name="a", model=ScriptedModel([final("Hello."), final("Again.")]))
    await Runner.run(agent, "Hello.", session=session)
    await Runner.run(agent, "Hello.", session=session)
    assert str(tmp_path / "s.db") not in seen
    session.close()
