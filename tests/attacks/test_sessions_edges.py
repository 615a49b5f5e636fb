"""Odd but legal uses: cursors that outlived their history, ids with another life, numbers without bounds."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from standfast._src.base.errors import NotFoundError, SessionConflictError, StoreUnavailableError
from standfast._src.sessions.backends.memory.memory_session import InMemorySession
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession


def item(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def sessions_on(backend: str, path: Path) -> Any:
    first = InMemorySession("a")
    if backend == "memory":
        return first, InMemorySession("b", store=first.store)
    return SQLiteSession("a", path / "history.db"), SQLiteSession("b", path / "history.db")


both = pytest.mark.parametrize("backend", ["memory", "sqlite"])


@both
async def test_a_page_of_a_history_that_was_replaced_is_not_taken_for_its_beginning(
    backend: str, tmp_path: Path
) -> None:
    session, other = sessions_on(backend, tmp_path)
    await session.add_items([item(str(number)) for number in range(10)])
    page = await session.page(limit=3)
    await session.replace([item("summary")], upto=await session.head())
    with pytest.raises(SessionConflictError):
        await session.page(before=page.before, limit=3)
    await session.clear_session()
    await session.add_items([item("new")])
    with pytest.raises(SessionConflictError):
        await session.page(before=page.before, limit=3)
    session.close()
    other.close()


@both
async def test_a_fork_does_not_inherit_generations_of_a_session_that_had_its_id(backend: str, tmp_path: Path) -> None:
    session, other = sessions_on(backend, tmp_path)
    await other.add_items([item("old")])
    await other.replace([item("summary")], upto=await other.head())
    await other.pop_item()
    await session.add_items([item("1")])
    with pytest.raises(SessionConflictError):
        await session.fork("b")
    await other.clear_session()
    fork = await session.fork("b")
    assert await fork.generations() == []
    assert await fork.get_items() == [item("1")]
    for one in (session, other, fork):
        one.close()


@both
async def test_numbers_too_large_for_any_store_are_answered_and_not_choked_on(backend: str, tmp_path: Path) -> None:
    session, other = sessions_on(backend, tmp_path)
    await session.append([item("1")], writer="w", start=0)
    await session.replace([item("summary")], upto=await session.head())
    assert await session.get_items(limit=2**70) == [item("summary")]
    assert (await session.page(limit=2**70)).items == [item("summary")]
    for number in (2**70, -(2**70)):
        with pytest.raises(NotFoundError):
            await session.rewind(writer="w", to=number)
    session.close()
    other.close()


async def test_a_file_whose_name_is_no_utf_8_can_be_read_as_well_as_written(tmp_path: Path) -> None:
    session = SQLiteSession("s", os.fsdecode(os.fsencode(tmp_path) + b"/\xff?#%.db"))
    await session.add_items([item("1")])
    assert await session.get_items() == [item("1")]
    session.close()


async def test_tables_that_use_row_ids_again_are_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TEXT, updated_at TEXT)")
        db.execute(
            "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT)"
        )
        session = SQLiteSession("s", path)
        with pytest.raises(StoreUnavailableError, match="AUTOINCREMENT"):
            await session.add_items([item("1")])
        session.close()
        columns = [row[1] for row in db.execute("PRAGMA table_info(agent_messages)")]
    assert columns == ["id", "session_id", "message_data", "created_at"]
