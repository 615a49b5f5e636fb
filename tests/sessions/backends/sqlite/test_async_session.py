"""The SDK's name for an asynchronous SQLite session."""

from __future__ import annotations

from pathlib import Path

from agents.extensions.memory import AsyncSQLiteSession as AgentsAsyncSQLite

from standfast import AsyncSQLiteSession, SQLiteSession
from standfast.conformance import message


async def test_it_reads_and_continues_what_the_sdks_wrote(tmp_path: Path) -> None:
    theirs = AgentsAsyncSQLite("c", tmp_path / "c.db")
    await theirs.add_items([message("theirs")])
    await theirs.close()
    ours = AsyncSQLiteSession("c", tmp_path / "c.db")
    await ours.append([message("ours")], writer="run", start=0)
    await ours.close()
    again = SQLiteSession("c", tmp_path / "c.db")
    assert await again.get_items() == [message("theirs"), message("ours")]
    again.close()
