"""A pop whose caller was cancelled, while other programs use the file: the item comes back, at its own place (A13, B2).

Each test stops its own event loop between the commit of the pop and the moment its caller would take the answer, which
is where another program can get in between.
"""

from __future__ import annotations

import asyncio
import gc
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast._src.sessions.protocol import Head

PATIENCE_S = 60


def item(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def texts_of(session: SQLiteSession) -> list[str]:
    return [one["content"] for one in await session.get_items()]


@contextmanager
def another_program(path: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        yield db


async def begin_pop(session: SQLiteSession, db: sqlite3.Connection) -> asyncio.Task[Any]:
    """A pop that is committed, whose caller has not been told: the loop is blocked until it is."""
    before = db.execute("SELECT count(*) FROM agent_messages").fetchone()[0]
    popping = asyncio.create_task(session.pop_item())
    await asyncio.sleep(0)
    deadline = time.monotonic() + PATIENCE_S
    while db.execute("SELECT count(*) FROM agent_messages").fetchone()[0] == before:
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return popping


async def cancel(popping: asyncio.Task[Any]) -> None:
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping


async def test_an_item_comes_back_although_its_session_is_closed_while_another_program_has_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.db"
    session = SQLiteSession("s", path)
    await session.add_items([item("1"), item("2")])
    with another_program(path) as other:
        popping = await begin_pop(session, other)
        other.execute("BEGIN IMMEDIATE")
        await cancel(popping)
        closing_it = threading.Thread(target=session.close)
        closing_it.start()
        await asyncio.sleep(0.2)  # long enough for an engine that tries only once
        other.execute("ROLLBACK")
        await asyncio.to_thread(closing_it.join, PATIENCE_S)
    again = SQLiteSession("s", path)
    assert await texts_of(again) == ["1", "2"]
    again.close()


def writers() -> list[threading.Thread]:
    """The threads that write to SQLite files now."""
    return [one for one in threading.enumerate() if one.name == "standfast-writer"]


async def test_an_item_comes_back_although_everything_had_ended_when_its_caller_left(tmp_path: Path) -> None:
    """The answer was on its way to the loop when the last session was closed."""
    path = tmp_path / "history.db"
    before = writers()
    session = SQLiteSession("s", path, linger_s=0)
    await session.add_items([item("1"), item("2")])
    (writer,) = [one for one in writers() if one not in before]
    with another_program(path) as other:
        popping = await begin_pop(session, other)
        session.close()
        writer.join(PATIENCE_S)  # the loop stands still meanwhile, so nobody has taken the answer
        assert not writer.is_alive()
        await cancel(popping)
        assert [data for (data,) in other.execute("SELECT count(*) FROM agent_messages")] == [2]
    again = SQLiteSession("s", path)
    assert await texts_of(again) == ["1", "2"]
    again.close()


async def test_a_session_that_follows_a_dropped_one_writes_behind_what_that_one_left(tmp_path: Path) -> None:
    """Nobody else knows the session, and what was cancelled is not undone yet: until it is, its threads go on (A13)."""
    path = tmp_path / "history.db"
    before = writers()
    session = SQLiteSession("s", path)
    await session.add_items([item("1"), item("2")])
    mine = [one for one in writers() if one not in before]
    with another_program(path) as other:
        popping = await begin_pop(session, other)
        other.execute("BEGIN IMMEDIATE")
        await cancel(popping)
        del session, popping
        gc.collect()
        again = SQLiteSession("s", path)
        adding = asyncio.create_task(again.add_items([item("3")]))
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
    await adding
    assert [one for one in writers() if one not in before] == mine
    assert await texts_of(again) == ["1", "2", "3"]
    again.close()


async def test_a_session_that_is_dropped_behind_a_cancelled_pop_gives_its_file_up(tmp_path: Path) -> None:
    """What was cancelled is remembered until it is undone; it must not keep the session that it was asked by (A21)."""
    path = tmp_path / "history.db"
    before = writers()
    session = SQLiteSession("s", path)
    await session.add_items([item("1"), item("2")])
    (writer,) = [one for one in writers() if one not in before]
    with another_program(path) as other:
        await cancel(await begin_pop(session, other))
    del session
    deadline = time.monotonic() + PATIENCE_S
    while writer.is_alive() and time.monotonic() < deadline:
        gc.collect()
        await asyncio.sleep(0.01)
    assert not writer.is_alive()
    again = SQLiteSession("s", path)
    assert await texts_of(again) == ["1", "2"]
    again.close()


async def test_a_head_read_without_the_item_is_not_the_head_with_it(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    session = SQLiteSession("s", path)
    await session.add_items([item("1"), item("2")])
    seen: dict[str, Any] = {}

    async def look() -> None:
        reader = SQLiteSession("s", path)
        seen["head"], seen["texts"] = await reader.head(), await texts_of(reader)
        reader.close()

    with another_program(path) as other:
        popping = await begin_pop(session, other)
        statement = "INSERT INTO agent_messages (session_id, message_data) VALUES ('s', ?)"
        other.execute(statement, ('{"role": "user", "content": "3"}',))
        thread = threading.Thread(target=lambda: asyncio.run(look()))
        thread.start()
        thread.join(PATIENCE_S)
        await cancel(popping)
    assert seen["texts"] == ["1", "3"]
    assert await texts_of(session) == ["1", "2", "3"], "it is at its own place"
    assert await session.head() != seen["head"], "equal heads mean equal histories"
    session.close()


REPLACE = """
import asyncio, sys
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

async def main(path):
    session = SQLiteSession("s", path)
    await session.replace([{"role": "user", "content": "summary"}], upto=await session.head())
    session.close()

asyncio.run(main(sys.argv[1]))
"""


async def test_an_item_stands_behind_the_summary_of_what_stood_before_it(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    session = SQLiteSession("s", path)
    await session.add_items([item("1"), item("2")])
    with another_program(path) as other:
        popping = await begin_pop(session, other)
        subprocess.run([sys.executable, "-c", REPLACE, str(path)], check=True, timeout=PATIENCE_S)
        await cancel(popping)
    assert await texts_of(session) == ["summary", "2"]
    session.close()


async def test_an_item_does_not_come_back_into_a_session_that_was_cleared_while_the_clock_stood_still(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.db"
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.5)
    session = SQLiteSession("s", path)
    await session.add_items([item("1"), item("2")])
    await session.replace([item("summary")], upto=await session.head())
    with another_program(path) as other:
        popping = await begin_pop(session, other)
        other.executescript("DELETE FROM agent_messages; DELETE FROM agent_sessions")
        again: list[Head] = []

        async def write() -> None:
            writer = SQLiteSession("s", path)
            await writer.add_items([item("new")])
            again.append(await writer.head())
            writer.close()

        thread = threading.Thread(target=lambda: asyncio.run(write()))
        thread.start()
        thread.join(PATIENCE_S)
        await cancel(popping)
    assert await texts_of(session) == ["new"]
    assert await session.generations() == [], "what was replaced belonged to the history that was cleared"
    session.close()
