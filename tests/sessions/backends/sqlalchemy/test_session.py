"""SQLAlchemySession: engines, drivers, tables that are not as they should be, and the SDK's own class beside it."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import agents
import psycopg
import pytest
from agents.extensions.memory import SQLAlchemySession as PeerSession
from sqlalchemy.ext.asyncio import create_async_engine

from standfast import (
    CallerError,
    EncryptedSession,
    NotADatabaseError,
    PostgresSession,
    SchemaTooNewError,
    SQLAlchemySession,
    SQLiteSession,
    StoreUnavailableError,
    WrongLoopError,
)
from standfast.conformance import message
from tests.helpers import servers

ITEMS = [message("one"), message("two")]


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite+aiosqlite:///{tmp_path / 'talks.db'}"


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"s{uuid.uuid4().hex}"
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"')
    yield name
    servers.drop_schema(servers.postgres_url(), name)


def _in_schema(driver: str, schema: str) -> dict[str, Any]:
    return (
        {"server_settings": {"search_path": schema}} if driver == "asyncpg" else {"options": f"-csearch_path={schema}"}
    )


def opened(url: str, session_id: str = "a", **options: Any) -> SQLAlchemySession:
    return SQLAlchemySession.from_url(session_id, url=url, **{"create_tables": True, **options})


# --- engines ---------------------------------------------------------------------------------------------------------


async def test_an_engine_of_yours_is_used_and_left_open(url: str) -> None:
    engine = create_async_engine(url)
    session = SQLAlchemySession("a", engine=engine, create_tables=True)
    await session.add_items(ITEMS)
    assert session.engine is engine
    await session.close()
    async with engine.connect() as connection:
        found = await connection.exec_driver_sql("SELECT count(*) FROM agent_messages")
        assert found.scalar() == 2
    await engine.dispose()


def test_an_engine_of_yours_is_refused_in_another_loop(url: str) -> None:
    engine = create_async_engine(url)
    session = SQLAlchemySession("a", engine=engine, create_tables=True)

    async def use() -> None:
        await session.add_items(ITEMS)
        await engine.dispose()

    asyncio.run(use())
    with pytest.raises(WrongLoopError):
        asyncio.run(session.get_items())  # type: ignore[arg-type]
    session.close()


def test_a_url_works_in_every_loop(url: str) -> None:
    session = opened(url)
    asyncio.run(session.add_items(ITEMS))
    assert asyncio.run(session.get_items()) == ITEMS  # type: ignore[arg-type]
    session.close()


async def test_an_engine_for_the_same_url_is_made_when_asked_for(url: str) -> None:
    session = opened(url)
    await session.add_items(ITEMS)
    async with session.engine.connect() as connection:
        assert (await connection.exec_driver_sql("SELECT count(*) FROM agent_messages")).scalar() == 2
    await session.engine.dispose()
    session.close()


async def test_a_database_in_memory_is_each_objects_own_and_its_forks() -> None:
    one, other = opened("sqlite+aiosqlite://"), opened("sqlite+aiosqlite:///:memory:")
    await one.add_items(ITEMS)
    assert await other.get_items() == []
    fork = await one.fork("b")
    assert await fork.get_items() == ITEMS
    assert [found.session_id for found in (await one.list_sessions(limit=5)).sessions] == ["b", "a"]
    for session in (one, other, fork):
        session.close()


@pytest.mark.postgres
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_each_driver_reaches_postgresql(driver: str, schema: str) -> None:
    place = (
        {"server_settings": {"search_path": schema}} if driver == "asyncpg" else {"options": f"-csearch_path={schema}"}
    )
    url = servers.postgres_url().replace("postgresql://", f"postgresql+{driver}://")
    session = opened(url, engine_kwargs={"connect_args": place})
    for number, item in enumerate(ITEMS):
        await session.append([item], writer="w", start=number)
    await session.append(ITEMS, writer="w", start=0)
    assert await session.get_items() == ITEMS
    assert await session.pop_item() == ITEMS[1]
    session.close()


async def test_encryption_goes_around_it(url: str, tmp_path: Path) -> None:
    session = EncryptedSession("a", opened(url), "a key")
    await session.add_items([message("Zaphod")])
    assert await session.get_items() == [message("Zaphod")]
    assert not [file for file in tmp_path.glob("talks.db*") if b"Zaphod" in file.read_bytes()]
    session.close()


# --- tables ----------------------------------------------------------------------------------------------------------


async def test_without_create_tables_they_must_be_there(url: str) -> None:
    without = opened(url, create_tables=False)
    with pytest.raises(StoreUnavailableError, match="create_tables=True"):
        await without.get_items()
    maker = opened(url)
    await maker.add_items(ITEMS)
    maker.close()
    assert await without.get_items() == ITEMS
    without.close()


async def test_conversations_of_the_sdk_open_and_it_reads_ours(url: str) -> None:
    peer: Any = PeerSession.from_url("a", url=url, create_tables=True)
    await peer.add_items(ITEMS)
    session = opened(url)
    assert await session.get_items() == ITEMS
    await session.append([message("three")], writer="w", start=0)
    await peer.add_items([message("four")])
    assert await peer.get_items() == await session.get_items() == [*ITEMS, message("three"), message("four")]
    await session.replace([message("summary")], upto=await session.head())
    await session.add_items([message("five")])
    assert await peer.get_items() == await session.get_items() == [message("summary"), message("five")]
    assert await peer.pop_item() == message("five")
    await session.restore((await session.generations())[0].id)
    assert await peer.get_items() == await session.get_items() == [*ITEMS, message("three"), message("four")]
    session.close()
    await peer.engine.dispose()


@pytest.mark.parametrize(("ensure_ascii", "stored"), [(True, rb"\u00e9"), (False, "é".encode())])
async def test_text_is_stored_as_asked_for(url: str, tmp_path: Path, ensure_ascii: bool, stored: bytes) -> None:
    session = opened(url, ensure_ascii=ensure_ascii)
    items = [{"role": "user", "content": 'café "𝄞" \\'}]
    await session.add_items(items)
    assert await session.get_items() == items
    with closing(sqlite3.connect(tmp_path / "talks.db")) as db:
        ((data,),) = db.execute("SELECT CAST(message_data AS BLOB) FROM agent_messages")
    assert stored in data
    session.close()


async def test_a_file_of_sqlite_session_is_left_to_it_and_the_other_way_round(url: str, tmp_path: Path) -> None:
    theirs = SQLiteSession("a", tmp_path / "talks.db")
    await theirs.add_items(ITEMS)
    session = opened(url)
    with pytest.raises(StoreUnavailableError, match="Open these tables with SQLiteSession"):
        await session.get_items()
    assert await theirs.get_items() == ITEMS
    theirs.close()
    session.close()
    ours = opened(f"sqlite+aiosqlite:///{tmp_path / 'ours.db'}")
    await ours.add_items(ITEMS)
    stranger = SQLiteSession("a", tmp_path / "ours.db")
    with pytest.raises(SchemaTooNewError):
        await stranger.get_items()
    stranger.close()
    ours.close()


@pytest.mark.postgres
async def test_tables_of_postgres_session_are_left_to_it_and_the_other_way_round(schema: str) -> None:
    url = servers.postgres_url()
    options = {"connect_args": {"server_settings": {"search_path": schema}}}
    theirs = PostgresSession("a", url=url, connect_options={"options": f"-csearch_path={schema}"})
    await theirs.add_items(ITEMS)
    session = opened(url.replace("postgresql://", "postgresql+asyncpg://"), engine_kwargs=options)
    with pytest.raises(StoreUnavailableError, match="Open these tables with PostgresSession"):
        await session.get_items()
    session.close()
    theirs.close()
    names = {"sessions_table": "s2", "messages_table": "m2"}
    ours = opened(url.replace("postgresql://", "postgresql+asyncpg://"), engine_kwargs=options, **names)
    await ours.add_items(ITEMS)
    stranger = PostgresSession("a", url=url, connect_options={"options": f"-csearch_path={schema}"}, **names)
    with pytest.raises(SchemaTooNewError):
        await stranger.get_items()
    stranger.close()
    ours.close()


async def test_a_table_of_another_kind_is_refused_and_left_alone(url: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "talks.db")) as db, db:
        db.execute("CREATE TABLE agent_messages (x INTEGER)")
    session = opened(url)
    with pytest.raises(NotADatabaseError, match="other columns"):
        await session.add_items(ITEMS)
    session.close()
    with closing(sqlite3.connect(tmp_path / "talks.db")) as db:
        assert db.execute("SELECT name FROM sqlite_master").fetchall() == [("agent_messages",)]


@pytest.mark.postgres
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_first_writers_make_the_tables_together(driver: str, schema: str) -> None:
    place = _in_schema(driver, schema)
    url = servers.postgres_url().replace("postgresql://", f"postgresql+{driver}://")
    # Another option each makes another engine, with connections of its own, as if it were another process.
    sessions = [opened(url, f"s{n}", engine_kwargs={"connect_args": place, "pool_size": n + 1}) for n in range(4)]
    await asyncio.gather(*(session.add_items(ITEMS) for session in sessions))
    for session in sessions:
        assert await session.get_items() == ITEMS
        session.close()


@pytest.mark.postgres
async def test_the_longest_names_of_tables_can_be_used() -> None:
    stem = uuid.uuid4().hex[:8]
    names = {"sessions_table": f"s{stem}".ljust(63, "s"), "messages_table": f"m{stem}".ljust(63, "m")}
    session = opened(servers.postgres_url().replace("postgresql://", "postgresql+psycopg://"), **names)
    await session.add_items(ITEMS)
    assert await session.get_items() == ITEMS
    session.close()


async def test_a_file_of_the_sdks_sqlite_session_opens(url: str, tmp_path: Path) -> None:
    peer: Any = agents.SQLiteSession("a", tmp_path / "talks.db")
    await peer.add_items(ITEMS)
    session = opened(url)
    await session.add_items([message("three")])
    assert await peer.get_items() == await session.get_items() == [*ITEMS, message("three")]
    peer.close()
    session.close()


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["oracle+oracledb://host/db", "sqlite:///x.db", "nonsense", "redis://host"])
async def test_a_url_that_cannot_be_used_is_said(wrong: str) -> None:
    session = opened(wrong)
    with pytest.raises(CallerError):
        await session.get_items()
    session.close()


def test_what_is_no_engine_is_refused() -> None:
    for wrong in (None, "sqlite+aiosqlite://", object()):
        with pytest.raises(CallerError, match="from_url"):
            SQLAlchemySession("a", engine=wrong)


@pytest.mark.postgres
async def test_a_server_that_is_not_there_is_said_within_the_deadline() -> None:
    session = opened("postgresql+asyncpg://nobody@127.0.0.1:1/none", timeout_s=1)
    with pytest.raises(StoreUnavailableError):
        await asyncio.wait_for(session.get_items(), 10)
    session.close()
