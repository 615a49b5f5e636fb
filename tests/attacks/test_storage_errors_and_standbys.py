"""What a reader of the changes to stores of one day found before they were out: each failed when it was written."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from standfast import (
    AdvancedSQLiteSession,
    OutcomeUnknownError,
    PostgresSession,
    SQLAlchemySession,
    SQLiteSession,
    StoreTimeoutError,
    StoreUnavailableError,
    copy_sessions,
)
from standfast._kits.operators.copy_sessions import CopyProgress
from standfast._src.sessions.backends.postgres import connection as postgres_connection
from tests.helpers import servers

HELLO = {"role": "user", "content": "hello"}


@pytest.mark.parametrize("session_ids", [["talk"], None])
async def test_a_branch_that_nothing_was_stored_on_is_copied_and_not_refused(
    session_ids: list[str] | None, tmp_path: Path
) -> None:
    """The copy named the branch's session as one that is not there, and `sessions copy` ended with an error."""
    source, target = str(tmp_path / "source.db"), str(tmp_path / "target.db")
    with closing(AdvancedSQLiteSession(session_id="talk", db_path=source, create_tables=True)) as session:
        await session.add_items([HELLO])
        await session.create_branch_from_turn(1, "again")
    seen: list[CopyProgress] = []
    report = await copy_sessions(source, target, session_ids, progress=seen.append)
    assert [one.session_id for one in report.copied] == ["talk"]
    assert report.refused == []
    assert seen[-1].done == seen[-1].total
    with closing(AdvancedSQLiteSession(session_id="talk", db_path=target, create_tables=True)) as copy:
        assert [(one["branch_id"], one["message_count"]) for one in await copy.list_branches()] == [
            ("main", 1),
            ("again", 0),
        ]
    (refused,) = (await copy_sessions(source, target, ["nobody"])).refused
    assert refused[0] == "nobody"


@pytest.mark.parametrize("is_handed_in", [False, True])
async def test_what_an_error_about_a_file_that_is_gone_advises_helps_at_once(
    is_handed_in: bool, tmp_path: Path
) -> None:
    """New sessions were refused too, until garbage was collected: they got the connections of closed ones."""
    path = tmp_path / "talks.db"
    url = f"sqlite+aiosqlite:///{path}"
    engine = create_async_engine(url)

    def opened() -> SQLAlchemySession:
        if is_handed_in:
            return SQLAlchemySession("a", engine=engine, create_tables=True)
        return SQLAlchemySession.from_url("a", url=url, create_tables=True)

    with closing(opened()) as session:
        await session.add_items([HELLO])
        path.unlink()
        with pytest.raises(StoreUnavailableError, match="close these sessions"):
            await session.add_items([HELLO])
    await engine.dispose()
    with closing(opened()) as session:
        await session.add_items([HELLO])
        assert await session.get_items() == [HELLO]
    await engine.dispose()


async def test_a_read_by_the_thread_that_writes_is_answered_before_the_writes_that_wait_for_a_lock(
    tmp_path: Path,
) -> None:
    """It was done, and its caller got the answer, however late, when the write beside it had waited in vain."""
    path = tmp_path / "talks.db"
    with (
        closing(SQLiteSession("a", path, timeout_s=8)) as session,
        closing(SQLiteSession("a", path, timeout_s=0.5)) as hasty,
        closing(sqlite3.connect(path, isolation_level=None)) as another,
    ):
        await session.add_items([HELLO])
        before = threading.stack_size(2**60)  # no thread can be started
        try:
            another.execute("BEGIN IMMEDIATE")
            first = asyncio.create_task(hasty.add_items([HELLO]))
            await asyncio.sleep(0.1)  # the writer waits for the lock; what comes now is its next group
            second = asyncio.create_task(session.add_items([HELLO]))
            third = asyncio.create_task(session.get_items())
            with pytest.raises(StoreTimeoutError):
                await first
            assert await third == [HELLO]
            another.execute("ROLLBACK")
            await second
        finally:
            threading.stack_size(before)
        assert await session.get_items() == [HELLO, HELLO]


@pytest.mark.postgres
async def test_what_a_synchronous_standby_does_not_confirm_is_not_acknowledged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is told to stop waiting for a standby says that the commit is done, and beside it a warning."""
    server = servers.PostgresServer(sync=False)
    try:
        with closing(PostgresSession("a", url=server.url)) as session:
            await session.add_items([HELLO])
            monkeypatch.setattr(postgres_connection, "ANSWER_S_MAX", 1.0)
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'away'")
                connection.execute("SELECT pg_reload_conf()")

            async def write_until_refused() -> None:
                for _ in range(100):  # until the server has read its settings
                    await session.add_items([HELLO])
                    await asyncio.sleep(0.1)

            with pytest.raises(OutcomeUnknownError, match="standby"):
                await write_until_refused()
    finally:
        server.stop()


async def test_an_engine_by_sqlalchemys_recipe_for_sqlite_has_its_sessions(tmp_path: Path) -> None:
    """Its listener begins a transaction before ours, which was refused within it. (The recipe: "Enabling Non-Legacy
    SQLite Transactional Modes" in SQLAlchemy's documentation.)"""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 'talks.db'}")

    @event.listens_for(engine.sync_engine, "connect")
    def leave_transactions_alone(connection: Any, _: Any) -> None:
        connection.isolation_level = None

    @event.listens_for(engine.sync_engine, "begin")
    def begin(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    with closing(SQLAlchemySession("a", engine=engine, create_tables=True)) as session:
        await asyncio.gather(*(session.add_items([HELLO, HELLO]) for _ in range(4)))
        assert await session.pop_item() == HELLO
        assert await session.get_items() == [HELLO] * 7
    async with engine.connect() as connected:  # for its owner the engine is as it was
        raw: Any = (await connected.get_raw_connection()).driver_connection
        assert not raw.in_transaction
        await connected.begin()
        assert raw.in_transaction
    await engine.dispose()
