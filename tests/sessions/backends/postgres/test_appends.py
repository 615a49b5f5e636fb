"""Appends on PostgreSQL, which go past psycopg's cursors: locks, cut connections, refusals, notices."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from standfast import (
    InvalidSettingError,
    OutcomeUnknownError,
    PostgresSession,
    StoreError,
    StoreTimeoutError,
)
from standfast._kits.conformance.network import Proxy
from standfast._src.sessions.backends.postgres import connection as postgres_connection
from standfast._src.sessions.backends.postgres.postgres_storage import PostgresStore
from standfast._src.sessions.backends.postgres.schema import Tables
from standfast._src.sessions.storage import Done, KeyUpdate, Name, ReadRequest
from standfast.conformance import message
from tests.helpers import servers


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"s{uuid.uuid4().hex}"
    run(f'CREATE SCHEMA "{name}"')
    yield name
    servers.drop_schema(servers.postgres_url(), name)


def run(sql: str) -> None:
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        connection.execute(sql)


async def opened(schema: str, url: str = "", **options: Any) -> PostgresSession:
    """A session whose connection is open, and on which an append is prepared."""
    session = PostgresSession("c", url=url or servers.postgres_url(), schema=schema, **options)
    await session.add_items([message("first")])
    return session


async def alone(session: Any) -> list[Any]:
    """What is in it, behind whatever may still be under way."""
    await session.add_items([message("last")])
    found = [item["content"] for item in await session.get_items()]
    assert found.pop() == "last"
    return found


def locked(schema: str) -> Any:
    """A connection that keeps writers waiting, until its transaction ends."""
    lock = psycopg.connect(servers.postgres_url())
    lock.execute(f'LOCK TABLE "{schema}".agent_messages IN SHARE MODE')
    return lock


def store_in(schema: str) -> PostgresStore:
    tables = Tables.of("agent_sessions", "agent_messages", schema)
    options = {"application_name": schema}
    return PostgresStore(servers.postgres_url(), tables, options=options, create_tables=True)


def append(id_: str, text: bytes) -> list[KeyUpdate]:
    return [KeyUpdate(Name("session", id_), push=[(b'"%b"' % text, None)], touch=True)]


# --- locks, and callers who leave -------------------------------------------------------------------------------------


@pytest.mark.postgres
async def test_an_append_that_waits_for_a_lock_is_called_off_and_not_done_later(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A13. Its own deadline is far away: the server is told to stop, and is asked again."""
    monkeypatch.setattr(postgres_connection, "ANSWER_S_MAX", 0.3)
    session = await opened(schema, timeout_s=2)
    calm = PostgresSession("c", url=servers.postgres_url(), schema=schema)
    with locked(schema):
        with pytest.raises((OutcomeUnknownError, StoreTimeoutError)):
            await session.add_items([message("late")])
        assert [item["content"] for item in await calm.get_items()] == ["first"]
    assert await alone(calm) == ["first"]
    session.close()
    calm.close()


@pytest.mark.postgres
async def test_an_append_that_waited_for_a_lock_is_done_once_when_it_is_free(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "ANSWER_S_MAX", 0.2)
    session = await opened(schema)
    lock = locked(schema)
    writing = asyncio.create_task(session.add_items([message("second")]))
    await asyncio.sleep(0.5)  # it was called off by then, perhaps more than once
    lock.close()
    await writing
    assert await alone(session) == ["first", "second"]
    session.close()


@pytest.mark.postgres
async def test_loops_in_several_threads_share_one_connection(schema: str) -> None:
    session = await opened(schema)

    async def writes(name: str) -> None:
        for number in range(40):
            await session.append([message(f"{name} {number}")], writer=name, start=number)

    threads = [threading.Thread(target=asyncio.run, args=(writes(f"w{n}"),)) for n in range(4)]
    for thread in threads:
        thread.start()
    await writes("here")
    for thread in threads:
        await asyncio.to_thread(thread.join)
    found = await alone(session)
    assert len(found) == 1 + 5 * 40
    for name in ("here", *(f"w{n}" for n in range(4))):
        assert [text for text in found if text.split()[0] == name] == [f"{name} {number}" for number in range(40)]
    session.close()


# --- servers and networks ---------------------------------------------------------------------------------------------


@pytest.mark.postgres
async def test_a_connection_that_was_ended_while_it_rested_costs_nobody_an_append(schema: str) -> None:
    session = await opened(schema, connect_options={"application_name": schema})
    for number in range(3):
        run(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{schema}'")
        await session.add_items([message(str(number))])
        await session.add_items([message(f"behind {number}")])
    assert await alone(session) == ["first", *(text for n in range(3) for text in (str(n), f"behind {n}"))]
    session.close()


@pytest.mark.postgres
async def test_an_answer_that_comes_byte_by_byte_is_read_whole(schema: str) -> None:
    parts = urlsplit(servers.postgres_url())
    assert parts.port is not None
    proxy = Proxy(("127.0.0.1", parts.port))
    session = await opened(schema, servers.postgres_url().replace(str(parts.port), str(proxy.port)))
    with proxy.faulty("drip"):
        for number in range(5):
            await session.append([message(str(number))], writer="w", start=number)
    assert await alone(session) == ["first", *map(str, range(5))]
    session.close()
    proxy.close()


@contextmanager
def standing_still(schema: str) -> Iterator[None]:
    """The server's process for the connections of that name reads nothing; the server itself goes on."""
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        found = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = %s", (schema,))
        pids = [pid for (pid,) in found.fetchall()]
    assert pids
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.postgres
@pytest.mark.parametrize("what", ["an append", "another step"])
def test_a_large_step_that_nobody_reads_is_given_up(what: str, schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """psycopg cannot be told twice to begin while it still has something to send: that was a TypeError."""
    store = store_in(schema)
    assert isinstance(store.commit(append("c", b"first")), Done)
    monkeypatch.setattr(postgres_connection, "ANSWER_S_MAX", 0.3)
    monkeypatch.setattr(postgres_connection, "CALL_OFF_S_MAX", 0.3)
    large = append("c", b"x" * 30_000_000)
    with standing_still(schema):
        with pytest.raises(OutcomeUnknownError):
            store.commit(large if what == "an append" else [*large, *append("d", b"second")])
    store.close()


# --- what else the server says ----------------------------------------------------------------------------------------


def trigger(schema: str, kind: str, body: str) -> None:
    run(
        f'CREATE FUNCTION "{schema}".noise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$; '
        f'CREATE {kind} noisy AFTER INSERT ON "{schema}".agent_messages '
        f"{'DEFERRABLE INITIALLY DEFERRED ' if kind.startswith('CONSTRAINT') else ''}"
        f'FOR EACH ROW EXECUTE FUNCTION "{schema}".noise()'
    )


@pytest.mark.postgres
async def test_notices_and_notifications_between_are_nobodys_answer(schema: str) -> None:
    session = await opened(schema)
    trigger(
        schema,
        "TRIGGER",
        f"EXECUTE 'LISTEN {schema}'; RAISE NOTICE 'one more'; PERFORM pg_notify('{schema}', 'one more'); RETURN NULL;",
    )
    for number in range(20):
        await session.append([message(str(number))], writer="w", start=number)
        run(f"NOTIFY {schema}, 'by somebody else'")  # it comes while nothing is asked for
        await asyncio.sleep(0.005)
    assert await alone(session) == ["first", *map(str, range(20))]
    session.close()


@pytest.mark.postgres
@pytest.mark.parametrize("when", ["at the insert", "at the commit"])
async def test_what_the_server_refuses_is_an_error_also_behind_an_answer(schema: str, when: str) -> None:
    """A constraint of somebody's own may wait for the commit: the function has answered by then."""
    session = await opened(schema, timeout_s=5)
    kind = "TRIGGER" if when == "at the insert" else "CONSTRAINT TRIGGER"
    trigger(schema, kind, "IF NEW.message_data LIKE '%bad%' THEN RAISE EXCEPTION 'not so'; END IF; RETURN NULL;")
    await session.add_items([message("good")])
    with pytest.raises(StoreError, match="not so"):
        await session.add_items([message("bad")])
    assert await alone(session) == ["first", "good"]
    session.close()


@pytest.mark.postgres
def test_an_id_that_postgres_cannot_store_leaves_the_connection_as_good_as_before(schema: str) -> None:
    store = store_in(schema)
    assert isinstance(store.commit(append("c", b"first")), Done)
    for bad in ("half \ud800 of a pair", "with \0"):
        with pytest.raises(InvalidSettingError):
            store.commit(append(bad, b"second"))
    assert isinstance(store.commit(append("c", b"third")), Done)
    assert store.look(ReadRequest(Name("session", "c"), only_data=True)).data == [b'"first"', b'"third"']
    store.close()
