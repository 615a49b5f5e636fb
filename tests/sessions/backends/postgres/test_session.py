"""PostgresSession on servers and databases that are not as they should be."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from standfast import (
    CallerError,
    NotADatabaseError,
    PostgresSession,
    SchemaTooNewError,
    StoreError,
    StoreUnavailableError,
)
from standfast._kits.conformance.network import Proxy
from standfast._src.sessions.backends.postgres.schema import Tables
from standfast.conformance import message
from tests.helpers import servers

pytestmark = pytest.mark.postgres


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"s{uuid.uuid4().hex}"
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{name}"')
    yield name
    servers.drop_schema(servers.postgres_url(), name)


def run(sql: str) -> None:
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        connection.execute(sql)


async def test_a_url_of_sqlalchemy_leads_to_the_same_database(schema: str) -> None:
    url = servers.postgres_url()
    one = PostgresSession("c", url=url, schema=schema)
    other = PostgresSession("c", url=url.replace("postgresql://", "postgresql+asyncpg://"), schema=schema)
    await one.add_items([message("x")])
    assert await other.get_items() == [message("x")]
    assert await one.ping()
    one.close()
    other.close()


def test_another_kind_of_database_is_refused_before_anything_is_asked() -> None:
    for url in ("mysql://host/db", "redis://host", "", None):
        with pytest.raises(CallerError):
            PostgresSession("c", url=url)  # type: ignore[arg-type]


@pytest.mark.parametrize("part", ["/nowhere", "nobody_of_that_name"])
async def test_a_wrong_database_or_user_is_said_at_once(part: str) -> None:
    url = servers.postgres_url()
    url = url.replace("/postgres", part) if part.startswith("/") else url.replace("//standfast@", f"//{part}@")
    session = PostgresSession("c", url=url)
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        await asyncio.wait_for(session.get_items(), 10)
    session.close()


async def test_a_server_that_is_not_there_is_said_within_the_deadline() -> None:
    session = PostgresSession("c", url="postgresql://standfast@127.0.0.1:1/postgres", timeout_s=0.5)
    for operation in (session.get_items(), session.add_items([message("x")])):
        with pytest.raises(StoreError):
            await asyncio.wait_for(operation, 10)
    assert not await session.ping()
    session.close()


async def test_a_table_of_another_kind_is_named_and_left_alone(schema: str) -> None:
    run(f'CREATE TABLE "{schema}".agent_messages (mine INTEGER)')
    session = PostgresSession("c", url=servers.postgres_url(), schema=schema)
    with pytest.raises(NotADatabaseError):
        await asyncio.wait_for(session.add_items([message("x")]), 10)
    session.close()
    with psycopg.connect(servers.postgres_url()) as connection:
        found = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = %s", (schema,)
        )
        assert found.fetchall() == [("agent_messages",)]


async def test_tables_of_a_newer_release_are_left_alone(schema: str) -> None:
    session = PostgresSession("c", url=servers.postgres_url(), schema=schema)
    await session.add_items([message("x")])
    session.close()
    own = Tables.of("agent_sessions", "agent_messages", schema).own
    run(f'INSERT INTO {own}version" VALUES (99)')
    later = PostgresSession("c", url=servers.postgres_url(), schema=schema)
    with pytest.raises(SchemaTooNewError):
        await asyncio.wait_for(later.get_items(), 10)
    later.close()


async def test_tables_can_be_made_by_somebody_else(schema: str) -> None:
    options: dict[str, Any] = {"url": servers.postgres_url(), "schema": schema, "create_tables": False}
    early = PostgresSession("c", timeout_s=8, **options)  # the deadline is when the error comes
    with pytest.raises(StoreUnavailableError, match="schema_sql"):
        await early.add_items([message("x")])
    early.close()
    sql = PostgresSession.schema_sql(schema=schema)
    run(sql)
    run(sql)  # it may be run again
    session = PostgresSession("c", **options)
    await session.add_items([message("x")])
    assert await session.get_items() == [message("x")]
    session.close()


async def test_what_was_acknowledged_survives_a_server_that_is_killed_and_does_not_wait_for_its_disk() -> None:
    """The server's own setting is off and it writes its log every ten seconds: only asking for more helps (A23)."""
    server = servers.PostgresServer(options=["-c", "synchronous_commit=off", "-c", "wal_writer_delay=10s"])
    try:
        session = PostgresSession("c", url=server.url)
        for number in range(5):
            await session.append([message(str(number))], writer="run", start=number)
        server.kill()
        writing = asyncio.create_task(session.append([message("5")], writer="run", start=5))
        await asyncio.sleep(0.2)
        server.start()
        await writing
        assert await session.get_items() == [message(str(number)) for number in range(6)]
        session.close()
    finally:
        server.stop()


async def test_cut_answers_neither_lose_nor_double_anything(schema: str) -> None:
    """Every few writes the connection is cut before or after the server has it (A6, A8, B1)."""
    url = servers.postgres_url()
    port = int(url.rsplit(":", 1)[1].split("/")[0])
    proxy = Proxy(("127.0.0.1", port), lambda sent: True)
    ready = PostgresSession("c", url=url, schema=schema)
    await ready.add_items([message("first")])
    session = PostgresSession("c", url=url.replace(str(port), str(proxy.port)), schema=schema)

    async def cutting() -> None:
        for round_ in range(30):
            with proxy.faulty("lose" if round_ % 2 else "cut"):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)

    cuts = asyncio.create_task(cutting())
    added = popped = 0
    while not cuts.done():
        await asyncio.gather(*(session.add_items([message(f"{added + n}")]) for n in range(4)))
        added += 4
        popped += await session.pop_item() is not None
    await cuts
    found = await ready.get_items()
    assert proxy.cut_count > 5
    assert len(found) == 1 + added - popped
    assert len({item["content"] for item in found}) == len(found)
    session.close()
    ready.close()
    proxy.close()


@pytest.mark.parametrize(
    ("kind", "does"),
    [
        ("TRIGGER", "RAISE EXCEPTION 'not so'"),
        ("CONSTRAINT TRIGGER", "RAISE EXCEPTION 'not so'"),
        ("TRIGGER", "PERFORM pg_terminate_backend(pg_backend_pid())"),
    ],
    ids=["at its statement", "at the commit", "with the connection"],
)
async def test_a_batch_that_fails_touches_none_that_it_shares_a_commit_with(schema: str, kind: str, does: str) -> None:
    """However PostgreSQL fails it (A10). The others waited for their deadlines, and ended with an unknown outcome."""
    url = servers.postgres_url()
    names = [f"good {n}" for n in range(8)]
    for name in ("first", "bad", *names):
        await PostgresSession(name, url=url, schema=schema).add_items([message("first")])
    run(
        f'CREATE FUNCTION "{schema}".refuse() RETURNS trigger LANGUAGE plpgsql AS '
        f"$$ BEGIN IF NEW.message_data LIKE '%bad%' THEN {does}; END IF; RETURN NULL; END $$"
    )
    when = "DEFERRABLE INITIALLY DEFERRED" if kind == "CONSTRAINT TRIGGER" else ""
    run(
        f'CREATE {kind} refuse AFTER INSERT ON "{schema}".agent_messages {when} '
        f'FOR EACH ROW EXECUTE FUNCTION "{schema}".refuse()'
    )

    def add(session_id: str, text: str, timeout_s: float) -> asyncio.Task[None]:
        session = PostgresSession(session_id, url=url, schema=schema, timeout_s=timeout_s)
        return asyncio.create_task(session.add_items([message(text)]))

    with psycopg.connect(url) as connection:  # while one waits for this lock, the others gather behind it
        connection.execute(f'LOCK TABLE "{schema}".agent_messages IN EXCLUSIVE MODE')
        writing = [add("first", "more", 10)]
        async with asyncio.timeout(10):
            while connection.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() == (0,):
                await asyncio.sleep(0.01)
        failing = add("bad", "bad", 30)
        writing += [add(name, "good", 10) for name in names]
        await asyncio.sleep(0.05)
    await asyncio.gather(*writing)
    failing.cancel()  # what ends its connection would be asked for again until the deadline
    (end,) = await asyncio.gather(failing, return_exceptions=True)
    assert isinstance(end, StoreError | asyncio.CancelledError)
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute(
            f'SELECT session_id FROM "{schema}".agent_messages GROUP BY session_id HAVING count(*) = 2'
        ).fetchall()
    assert {name for (name,) in found} == {"first", *names}


async def test_a_pop_and_an_append_read_a_few_rows_however_long_the_history_is(schema: str) -> None:
    """Flat in the length of the history: a statement that is planned over all of it is not seen by any result."""
    url, tables, program = servers.postgres_url(), Tables.of("agent_sessions", "agent_messages", schema), uuid.uuid4()

    async def rows_read(items: int, pops: int) -> int:
        options = {"application_name": str(program)}
        session = PostgresSession("c", url=url, schema=schema, connect_options=options)
        if items:
            await session.add_items([message(str(n)) for n in range(items)])
        for _ in range(pops):
            assert await session.pop_item() is not None
        session.close()
        del session
        with psycopg.connect(url, autocommit=True) as connection:
            # What a connection has read is told when it ends.
            alive = "SELECT count(*) FROM pg_stat_activity WHERE application_name = %s"
            async with asyncio.timeout(60):
                while connection.execute(alive, (str(program),)).fetchone() != (0,):
                    await asyncio.sleep(0.01)
            found = connection.execute(
                "SELECT coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) FROM pg_stat_all_tables "
                "WHERE schemaname = %s AND relname = %s",
                (schema, tables.messages),
            ).fetchone()
        assert found is not None
        return int(found[0])

    before = await rows_read(items=2000, pops=0)
    assert await rows_read(items=0, pops=10) - before < 1000
    before = await rows_read(items=0, pops=0)
    assert await rows_read(items=1, pops=0) - before < 100
