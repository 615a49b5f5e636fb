"""Contents that were removed are overwritten in the file, whatever the default of this build of SQLite is."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import SQLiteSession
from standfast.conformance import message


async def popped(session: SQLiteSession) -> None:
    while await session.pop_item():
        pass


async def replaced(session: SQLiteSession) -> None:
    for _ in range(5):  # more than the generations that are kept
        await session.replace([message("summary")], upto=await session.head())


@pytest.mark.parametrize("remove", [SQLiteSession.clear_session, popped, replaced])
async def test_removed_contents_are_not_in_the_closed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remove: Callable[[SQLiteSession], Awaitable[None]]
) -> None:
    connect = sqlite3.connect

    def as_most_builds_are(*args: Any, **options: Any) -> sqlite3.Connection:
        db = connect(*args, **options)
        db.execute("PRAGMA secure_delete=OFF")
        return db

    monkeypatch.setattr(sqlite3, "connect", as_most_builds_are)
    session = SQLiteSession("a", tmp_path / "talks.db")
    await session.add_items([message(f"the secret number {n}" * 30) for n in range(40)])
    await remove(session)
    session.close()
    held = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"agent_messages" in held
    assert b"the secret number" not in held
