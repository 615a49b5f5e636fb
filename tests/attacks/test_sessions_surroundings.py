"""Where a session's surroundings are not as they were: another folder, another isolation level, another time zone.

What a fresh hour of attack found; the table is in this folder's README ("A fresh hour on sessions").
"""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from sqlalchemy import URL, make_url
from sqlalchemy.ext.asyncio import create_async_engine

from standfast import (
    EncryptedSession,
    KeyFile,
    NotFoundError,
    PostgresSession,
    RedisSession,
    SQLAlchemySession,
    SQLiteSession,
    StoreUnavailableError,
    open_store,
)
from standfast.conformance import message
from tests.helpers import servers
from tests.helpers.children import DEADLINE_S, program

SECRET = "0123456789abcdef0123456789abcdef"
DRIVERS = ["psycopg", "asyncpg"]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders; the process is in the first."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    monkeypatch.chdir(here)
    return here, there


def said(sql: str) -> None:
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        connection.execute(sql)


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"s{uuid.uuid4().hex}"
    said(f'CREATE SCHEMA "{name}"')
    yield name
    servers.drop_schema(servers.postgres_url(), name)


@pytest.fixture
def role(schema: str) -> Iterator[str]:
    """A role of its own, which may use the schema and finds it first."""
    name = f"r{uuid.uuid4().hex}"
    said(f"CREATE ROLE {name} LOGIN; GRANT ALL ON SCHEMA {schema} TO {name}")
    said(f"ALTER ROLE {name} SET search_path = {schema}")
    yield name
    servers.drop_schema(servers.postgres_url(), schema)
    said(f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def as_role(role: str) -> str:
    return make_url(servers.postgres_url()).set(username=role).render_as_string(hide_password=False)


def texts(items: list[Any]) -> list[str]:
    return [item["content"] for item in items]


# --- the folder that the process is in -------------------------------------------------------------------------------


async def test_a_session_reads_what_it_wrote_after_the_process_went_to_another_folder(
    folders: tuple[Path, Path],
) -> None:
    """A daemon goes to "/", a notebook says %cd: the connection that reads was opened after the one that writes."""
    here, there = folders
    session = SQLAlchemySession.from_url("a", url="sqlite+aiosqlite:///talks.db", create_tables=True)
    with closing(session):
        await session.add_items([message("one")])
        os.chdir(there)
        assert texts(await session.get_items()) == ["one"]
        await session.add_items([message("two")])
        assert texts(await session.get_items()) == ["one", "two"]
    assert list(there.iterdir()) == []
    assert (here / "talks.db").exists()


async def test_a_relative_file_uri_of_sqlite_is_kept_to_as_well(folders: tuple[Path, Path]) -> None:
    here, there = folders
    url = "sqlite+aiosqlite:///file:talks.db?uri=true"
    with closing(SQLAlchemySession.from_url("a", url=url, create_tables=True)) as session:
        os.chdir(there)
        await session.add_items([message("one")])
    assert list(there.iterdir()) == []
    assert (here / "talks.db").exists()


@pytest.mark.parametrize("url", ["sqlite+aiosqlite://", "sqlite+aiosqlite:///:memory:"])
async def test_a_database_in_memory_makes_no_file(folders: tuple[Path, Path], url: str) -> None:
    with closing(SQLAlchemySession.from_url("a", url=url, create_tables=True)) as session:
        await session.add_items([message("one")])
        assert texts(await session.get_items()) == ["one"]
    assert list(folders[0].iterdir()) == []


async def test_a_key_file_is_the_same_one_after_the_process_went_to_another_folder(folders: tuple[Path, Path]) -> None:
    """It is opened again by a forked child, and after `close`: another file would have no key, or make a second one."""
    here, there = folders
    keys = KeyFile("keys.db")
    with closing(EncryptedSession("a", SQLiteSession("a", here / "talks.db"), SECRET, session_keys=keys)) as session:
        await session.add_items([message("one")])
        keys.close()
        os.chdir(there)
        assert texts(await session.get_items()) == ["one"]
    keys.close()
    assert list(there.iterdir()) == []


async def test_a_store_opens_a_file_whose_name_needs_quoting(tmp_path: Path) -> None:
    path = tmp_path / "all my%20talks #1.db"
    url = URL.create("sqlite+aiosqlite", database=str(path))
    with closing(SQLAlchemySession.from_url("a", url=url, create_tables=True)) as session:
        await session.add_items([message("one")])
    assert path.exists()
    async with open_store(f"sqlite+aiosqlite:///{str(path).replace('%', '%25').replace(' ', '%20')}") as store:
        assert texts(await store.session("a").get_items()) == ["one"]


def test_a_url_object_keeps_its_password() -> None:
    """What `str` makes of one has asterisks there."""
    url = URL.create("postgresql+psycopg", "me", "s3cret", "db.example", database="talks")
    assert SQLAlchemySession.from_url("a", url=url).engine.url.password == "s3cret"


@pytest.mark.parametrize("is_handed_in", [False, True])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_an_sqlite_file_that_goes_away_under_sqlalchemy_is_noticed_before_an_acknowledgement(
    how: str, is_handed_in: bool, tmp_path: Path
) -> None:
    """What was acknowledged then went to a file without a name; the connection that reads found an empty history."""
    path = tmp_path / "talks.db"
    url = f"sqlite+aiosqlite:///{path}"
    engine = create_async_engine(url)
    made = (
        SQLAlchemySession("a", engine=engine, create_tables=True)
        if is_handed_in
        else SQLAlchemySession.from_url("a", url=url, create_tables=True)
    )
    with closing(made) as session:
        await session.add_items([message("one")])
        kept = path.rename(tmp_path / "kept.db")
        if how == "replaced":
            path.touch()
        for asked in (session.add_items([message("two")]), session.get_items()):
            with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
                await asked
        kept.rename(path)
        await session.add_items([message("three")])
        assert texts(await session.get_items()) == ["one", "three"]
    await engine.dispose()


async def test_a_connection_to_a_file_that_is_gone_is_not_used_by_sessions_that_are_opened_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool of an engine outlives sessions; and a path that it was given may be meant from another folder."""
    monkeypatch.chdir(tmp_path)
    engine = create_async_engine("sqlite+aiosqlite:///talks.db")
    with closing(SQLAlchemySession("a", engine=engine, create_tables=True)) as session:
        await session.add_items([message("one")])
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        assert texts(await session.get_items()) == ["one"]
    del session
    gc.collect()
    (tmp_path / "talks.db").unlink()
    with closing(SQLAlchemySession("a", engine=engine, create_tables=True)) as session:
        with pytest.raises(StoreUnavailableError, match="dispose your engine"):
            await session.add_items([message("lost")])
    del session
    gc.collect()
    await engine.dispose()
    with closing(SQLAlchemySession("a", engine=engine, create_tables=True)) as session:
        await session.add_items([message("new")])
        assert texts(await session.get_items()) == ["new"]
    await engine.dispose()


# --- engines that were told otherwise -------------------------------------------------------------------------------


@pytest.mark.postgres
@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_batch_is_whole_on_an_engine_that_commits_each_statement(driver: str, schema: str) -> None:
    """A5, on `isolation_level="AUTOCOMMIT"`: whichever statement of an append fails, nothing of it is left."""
    url = servers.postgres_url().replace("postgresql:", f"postgresql+{driver}:")
    given: dict[str, Any] = (
        {"server_settings": {"search_path": schema}} if driver == "asyncpg" else {"options": f"-csearch_path={schema}"}
    )
    engine = create_async_engine(url, isolation_level="AUTOCOMMIT", connect_args=given)
    with closing(SQLAlchemySession("a", engine=engine, create_tables=True)) as session:
        await session.append([message("one")], writer="w", start=0)
        before = await session.head()
        said(f"CREATE FUNCTION {schema}.no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$")
        with psycopg.connect(servers.postgres_url()) as connection:
            found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        refusals = 0
        for (table,) in found:
            said(
                f'CREATE TRIGGER no AFTER INSERT OR UPDATE ON {schema}."{table}" '
                f"FOR EACH ROW EXECUTE FUNCTION {schema}.no()"
            )
            try:
                await session.append([message("two"), message("three")], writer="w", start=1)
            except StoreUnavailableError:
                refusals += 1
                assert texts(await session.get_items()) == ["one"], table
                assert await session.head() == before, table
                assert await session.accepted("w") == 1, table
            said(f'DROP TRIGGER no ON {schema}."{table}"')
            if len(await session.get_items()) > 1:
                await session.rewind(writer="w", to=1)
                before = await session.head()
        assert refusals >= 3  # the session, its cells and its messages
    async with engine.connect() as connected:  # for its owner the engine is as it was
        raw: Any = (await connected.get_raw_connection()).dbapi_connection
        assert raw.autocommit is True
    await engine.dispose()


@pytest.mark.postgres
@pytest.mark.parametrize("driver", DRIVERS)
async def test_an_engine_that_streams_its_results_stores_what_it_is_given(driver: str, schema: str) -> None:
    """With asyncpg an INSERT through a cursor is not done until somebody fetches; psycopg refuses a SET there."""
    url = servers.postgres_url().replace("postgresql:", f"postgresql+{driver}:")
    engine = create_async_engine(url).execution_options(stream_results=True, yield_per=2)
    names = {"sessions_table": f"s{schema}", "messages_table": f"m{schema}"}
    with closing(SQLAlchemySession("a", engine=engine, create_tables=True, **names)) as session:  # type: ignore[arg-type]
        await session.add_items([message(str(number)) for number in range(5)])
        assert texts(await session.get_items()) == ["0", "1", "2", "3", "4"]
    await engine.dispose()
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        made = connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE %s", (f"_{schema}%",)
        ).fetchall()
        connection.execute(f"DROP TABLE {', '.join(name for (name,) in made)} CASCADE")


# --- databases and roles that were told otherwise -------------------------------------------------------------------


@pytest.mark.postgres
@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
async def test_a_role_with_another_isolation_level_has_its_sessions(level: str, role: str, schema: str) -> None:
    """Its other connections keep their level; ours ask for READ COMMITTED, beside what the caller asks for."""
    said(f"ALTER ROLE {role} SET default_transaction_isolation = '{level}'")
    given = {"options": "-c work_mem=1MB"}
    with closing(PostgresSession("a", url=as_role(role), connect_options=given)) as session:
        await session.append([message("one")], writer="w", start=0)
        await session.append([message("one"), message("two")], writer="w", start=0)
        assert texts(await session.get_items()) == ["one", "two"]
        assert texts([await session.pop_item()]) == ["two"]
    with psycopg.connect(as_role(role)) as connection:
        assert connection.execute("SHOW transaction_isolation").fetchone() == (level,)


@pytest.mark.postgres
async def test_a_role_without_a_schema_is_told_what_to_give(role: str) -> None:
    said(f"ALTER ROLE {role} SET search_path = ''")
    with closing(PostgresSession("a", url=as_role(role))) as session:
        with pytest.raises(StoreUnavailableError, match="search_path"):
            await session.add_items([message("one")])


@pytest.mark.postgres
async def test_a_role_that_may_not_connect_once_more_is_told_so(role: str) -> None:
    said(f"ALTER ROLE {role} CONNECTION LIMIT 0")
    with closing(PostgresSession("a", url=as_role(role), timeout_s=1)) as session:
        with pytest.raises(StoreUnavailableError, match="raise the limit"):
            await session.add_items([message("one")])


@pytest.mark.redis
async def test_a_redis_user_that_may_not_run_a_command_of_a_script_is_told_so_at_once() -> None:
    user = f"u{uuid.uuid4().hex}"
    with closing(redis.Redis.from_url(servers.redis_url())) as server:
        server.execute_command("ACL", "SETUSER", user, "on", ">pw", "~*", "&*", "+@all", "-time")
        url = make_url(servers.redis_url()).set(username=user, password="pw").render_as_string(hide_password=False)
        with closing(RedisSession.from_url("a", url=url, key_prefix=user)) as session:
            with pytest.raises(StoreUnavailableError, match="Let this user run"):
                await session.add_items([message("one")])
        server.execute_command("ACL", "DELUSER", user)


@pytest.mark.redis
@pytest.mark.parametrize("command", ["EVALSHA", "RPUSH"], ids=["that is sent", "of a script"])
async def test_a_redis_server_without_a_command_is_said_to_be_one(command: str) -> None:
    """The refusal quotes keys: an id that holds the code of another error (OOM) does not change what it means."""
    server = servers.RedisServer(options=["--rename-command", command, ""])
    try:
        with closing(RedisSession.from_url("CLASSROOM", url=server.url)) as session:
            with pytest.raises(StoreUnavailableError, match="renamed this command"):
                await session.add_items([message("one")])
    finally:
        server.stop()


# --- a process that may not have more --------------------------------------------------------------------------------


@pytest.fixture
def no_more_threads() -> Iterator[None]:
    """No thread can be started: none has room for such a stack."""
    before = threading.stack_size(2**60)
    yield
    threading.stack_size(before)


@pytest.mark.usefixtures("no_more_threads")
@pytest.mark.parametrize("kind", ["sqlite", "sqlalchemy"])
async def test_a_process_without_threads_is_told_so_and_its_session_works_later(kind: str, tmp_path: Path) -> None:
    session: SQLiteSession | SQLAlchemySession
    if kind == "sqlite":
        session = SQLiteSession("a", tmp_path / "talks.db")
    else:
        session = SQLAlchemySession.from_url(
            "a", url=f"sqlite+aiosqlite:///{tmp_path / 'talks.db'}", create_tables=True
        )
    with closing(session):
        with pytest.raises(StoreUnavailableError, match="ulimit -u"):
            await session.add_items([message("one")])
        threading.stack_size(0)
        await session.add_items([message("two")])
        assert texts(await session.get_items()) == ["two"]


async def test_reads_go_on_where_no_thread_can_be_started_for_them(tmp_path: Path) -> None:
    """Writes worked, because their thread was there; every read was refused, and left its question in the queue."""
    with closing(SQLiteSession("a", tmp_path / "talks.db")) as session:
        await session.add_items([message("one")])
        before = threading.stack_size(2**60)
        try:
            assert texts(await session.get_items()) == ["one"]
            await session.add_items([message("two")])
            assert texts((await session.page(limit=1)).items) == ["two"]  # in a transaction of its own
            assert texts(await session.get_items()) == ["one", "two"]
            with pytest.raises(NotFoundError):
                await session.page(before="no cursor", limit=1)
            with closing(sqlite3.connect(tmp_path / "talks.db")) as another:
                another.execute("BEGIN IMMEDIATE")  # which keeps nobody from reading
                assert texts(await session.get_items()) == ["one", "two"]
        finally:
            threading.stack_size(before)
        assert texts(await session.get_items()) == ["one", "two"]  # by a reader


async def test_reads_wait_for_a_reader_that_is_busy_where_no_further_one_can_be_started(tmp_path: Path) -> None:
    with closing(SQLiteSession("a", tmp_path / "talks.db")) as session:
        await session.add_items([message("one")])
        assert texts(await session.get_items()) == ["one"]  # there is one reader
        before = threading.stack_size(2**60)
        try:
            found = await asyncio.gather(*(session.get_items() for _ in range(50)))
        finally:
            threading.stack_size(before)
        assert [texts(one) for one in found] == [["one"]] * 50


NO_DESCRIPTORS = """
import asyncio, os, resource, sys
from standfast import SQLAlchemySession, StoreUnavailableError

async def main():
    session = SQLAlchemySession.from_url("a", url="sqlite+aiosqlite:///" + sys.argv[1], create_tables=True)
    usual, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
    try:
        await session.add_items([{"role": "user", "content": "one"}])
    except StoreUnavailableError as error:
        print("told" if "ulimit -n" in str(error) else error)
    resource.setrlimit(resource.RLIMIT_NOFILE, (usual, most))
    await session.add_items([{"role": "user", "content": "two"}])
    print([item["content"] for item in await session.get_items()])
    session.close()

asyncio.run(main())
"""


def test_a_process_without_descriptors_is_told_so_and_its_session_works_later(tmp_path: Path) -> None:
    """The driver of the database is imported by the first operation, which opens files too."""
    told, _ = program(NO_DESCRIPTORS, tmp_path / "talks.db").communicate(timeout=DEADLINE_S)
    assert told.splitlines() == ["told", "['two']"]
