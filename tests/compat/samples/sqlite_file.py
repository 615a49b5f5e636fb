"""A conversation in a SQLite file: both arguments by name, one run, and the session closed by whoever opened it."""

from __future__ import annotations

from typing import Any

from agents.memory.sqlite_session import SQLiteSession
from agents.run import Runner


async def talk(agent: Any, path: str) -> Any:
    session = SQLiteSession(session_id="guest-7", db_path=path)
    result = await Runner.run(agent, "Good morning.", session=session)
    await session.close()
    return result
