"""Appends that the caller's own event loop sends over the writing thread's connection, where something goes wrong.

`_src.sessions.client.caller_loop_executor` says who does what. Each test makes sure that the append it is about was
really sent so.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from standfast import (
    InvalidSettingError,
    OutcomeUnknownError,
    PostgresSession,
    RedisSession,
    StoreError,
    StoreTimeoutError,
)
from standfast._kits.conformance.network import Proxy
from standfast._src.sessions.backends.postgres import connection as postgres_connection
from standfast._src.sessions.backends.postgres.postgres_storage import PostgresStore
from standfast._src.sessions.backends.postgres.schema import Tables
from standfast._src.sessions.backends.redis.redis_storage import RedisStore
from standfast._src.sessions.storage import Done, KeyUpdate, Name, ReadRequest
from standfast.conformance import message
from tests.helpers import servers


class Begun:
    """How many rounds a loop has sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, store: type) -> None:
        self.count = 0
        begin: Any = getattr(store, "begin")  # noqa: B009 — which of the two it is, nobody knows here

        def counted(store: Any, questions: Any) -> Any:
            found = begin(store, questions)
            self.count += found is not None
            return found

        monkeypatch.setattr(store, "begin", counted)

    @asynccontextmanager
    async def one_more(self) -> AsyncIterator[None]:
        """What is done here begins with one."""
        before = self.count
        yield
        assert self.count > before

    async def told(self, before: int) -> None:
        """Wait until there is another."""
        async with asyncio.timeout(60):
            while self.count == before:
                await asyncio.sleep(0.001)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Begun:
    return Begun(monkeypatch, PostgresStore)


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
    schema: str, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A13. Its own deadline is far away: the server is told to stop, and is asked again."""
    monkeypatch.setattr(postgres_connection, "ANSWER_S_MAX", 0.3)
    session = await opened(schema, timeout_s=2)
    calm = PostgresSession("c", url=servers.postgres_url(), schema=schema)
    with locked(schema):
        async with begun.one_more():
            with pytest.raises((OutcomeUnknownError, StoreTimeoutError)):
                await session.add_items([message("late")])
        assert [item["content"] for item in await calm.get_items()] == ["first"]
    assert await alone(calm) == ["first"]
    session.close()
    calm.close()


@pytest.mark.postgres
async def test_an_append_that_waited_for_a_lock_is_done_once_when_it_is_free(
    schema: str, begun: Begun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_connection, "ANSWER_S_MAX", 0.2)
    session = await opened(schema)
    lock = locked(schema)
    before = begun.count
    writing = asyncio.create_task(session.add_items([message("second")]))
    await begun.told(before)
    await asyncio.sleep(0.5)  # it was called off by then, perhaps more than once
    lock.close()
    await writing
    assert await alone(session) == ["first", "second"]
    session.close()


@pytest.mark.postgres
async def test_whoever_leaves_while_an_append_is_lent_leaves_it_whole_or_undone_and_others_in_order(
    schema: str, begun: Begun
) -> None:
    session = await opened(schema)
    for round_ in range(5):
        lock = locked(schema)
        before = begun.count
        leaving = asyncio.create_task(session.add_items([message(f"{round_} a"), message(f"{round_} b")]))
        await begun.told(before)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        following = asyncio.create_task(session.add_items([message(f"{round_} c")]))
        await asyncio.sleep(0)
        lock.close()
        await following
    found = await alone(session)
    for round_ in range(5):
        mine = [text[2:] for text in found if text.startswith(f"{round_} ")]
        assert mine in (["a", "b", "c"], ["c"])
    session.close()


@pytest.mark.postgres
def test_a_loop_that_is_closed_while_its_append_is_lent_keeps_nobody_waiting(schema: str, begun: Begun) -> None:
    """The answer comes when nobody looks any more; the thread takes it before it does anything else."""
    loop = asyncio.new_event_loop()
    session = loop.run_until_complete(opened(schema))
    lock = locked(schema)
    before = begun.count
    task = loop.create_task(session.add_items([message("second")]))
    loop.run_until_complete(begun.told(before))
    loop.close()
    lock.close()
    assert asyncio.run(alone(session)) == ["first", "second"]
    del task
    session.close()


@pytest.mark.postgres
async def test_loops_in_several_threads_share_one_connection(schema: str, begun: Begun) -> None:
    session = await opened(schema)

    async def writes(name: str) -> None:
        for number in range(40):
            await session.append([message(f"{name} {number}")], writer=name, start=number)

    threads = [threading.Thread(target=asyncio.run, args=(writes(f"w{n}"),)) for n in range(4)]
    async with begun.one_more():
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


@pytest.mark.postgres
def test_what_is_broken_off_is_not_done_later(schema: str) -> None:
    """A13. A server process that waits for a lock does not notice that its client has hung up."""
    store = store_in(schema)
    assert isinstance(store.commit(append("c", b"first")), Done)
    with locked(schema):
        assert store.begin([append("c", b"second")]) is not None
        store.break_off()
        assert store.line(1) is None
    assert isinstance(
        store.commit(append("c", b"third")), Done
    )  # the lock is free: whoever waited would have been served
    assert store.look(ReadRequest(Name("session", "c"), only_data=True)).data == [b'"first"', b'"third"']
    store.close()


# --- servers and networks ---------------------------------------------------------------------------------------------


@pytest.mark.postgres
async def test_an_append_that_is_lent_when_the_server_is_killed_is_done_once(begun: Begun) -> None:
    server = servers.PostgresServer(sync=False)
    try:
        session = PostgresSession("c", url=server.url)
        await session.add_items([message("first")])
        lock = psycopg.connect(server.url)
        lock.execute("LOCK TABLE agent_messages IN SHARE MODE")
        before = begun.count
        writing = asyncio.create_task(session.add_items([message("second")]))
        await begun.told(before)
        server.kill()
        lock.close()
        server.start()
        await writing
        assert await alone(session) == ["first", "second"]
        session.close()
    finally:
        server.stop()


@pytest.mark.postgres
async def test_a_connection_that_was_ended_while_it_rested_costs_nobody_an_append(schema: str, begun: Begun) -> None:
    session = await opened(schema, connect_options={"application_name": schema})
    for number in range(3):
        run(f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = '{schema}'")
        async with begun.one_more():
            await session.add_items([message(str(number))])
        await session.add_items([message(f"behind {number}")])
    assert await alone(session) == ["first", *(text for n in range(3) for text in (str(n), f"behind {n}"))]
    session.close()


@pytest.mark.postgres
async def test_an_answer_that_comes_byte_by_byte_is_read_whole(schema: str, begun: Begun) -> None:
    parts = urlsplit(servers.postgres_url())
    assert parts.port is not None
    proxy = Proxy(("127.0.0.1", parts.port))
    session = await opened(schema, servers.postgres_url().replace(str(parts.port), str(proxy.port)))
    with proxy.faulty("drip"):
        for number in range(5):
            async with begun.one_more():
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
        if what == "an append":
            begun = store.begin([large])
            assert begun is not None
            (found,) = begun.finish()
            assert isinstance(found, OutcomeUnknownError)
        else:
            with pytest.raises(OutcomeUnknownError):
                store.commit([*large, *append("d", b"second")])
        assert store.line(1) is None
    store.close()


@pytest.mark.parametrize(
    "kind", [pytest.param("redis", marks=pytest.mark.redis), pytest.param("postgres", marks=pytest.mark.postgres)]
)
async def test_an_append_that_does_not_leave_whole_is_sent_on_at_once(
    kind: str, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than a socket takes: its rest is for the thread, and no answer comes before that."""
    begun = Begun(monkeypatch, RedisStore if kind == "redis" else PostgresStore)
    if kind == "redis":
        session: Any = RedisSession.from_url(
            "c", url=servers.redis_url(), key_prefix=schema, redis_kwargs={"socket_timeout": 1000.0}
        )
        await session.add_items([message("first")])
    else:
        monkeypatch.setattr(postgres_connection, "ANSWER_S_MAX", 1000.0)
        session = await opened(schema)
    large = "x" * 30_000_000
    async with begun.one_more():
        await session.add_items([message(large)])
    assert await alone(session) == ["first", large]
    session.close()


# --- what else the server says ----------------------------------------------------------------------------------------


def trigger(schema: str, kind: str, body: str) -> None:
    run(
        f'CREATE FUNCTION "{schema}".noise() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body} END $$; '
        f'CREATE {kind} noisy AFTER INSERT ON "{schema}".agent_messages '
        f"{'DEFERRABLE INITIALLY DEFERRED ' if kind.startswith('CONSTRAINT') else ''}"
        f'FOR EACH ROW EXECUTE FUNCTION "{schema}".noise()'
    )


@pytest.mark.postgres
async def test_notices_and_notifications_between_are_nobodys_answer(schema: str, begun: Begun) -> None:
    session = await opened(schema)
    trigger(
        schema,
        "TRIGGER",
        f"EXECUTE 'LISTEN {schema}'; RAISE NOTICE 'one more'; PERFORM pg_notify('{schema}', 'one more'); RETURN NULL;",
    )
    for number in range(20):
        async with begun.one_more():
            await session.append([message(str(number))], writer="w", start=number)
        run(f"NOTIFY {schema}, 'by somebody else'")  # it comes while nothing is asked for
        await asyncio.sleep(0.005)
    assert await alone(session) == ["first", *map(str, range(20))]
    session.close()


@pytest.mark.postgres
@pytest.mark.parametrize("when", ["at the insert", "at the commit"])
async def test_what_the_server_refuses_is_an_error_also_behind_an_answer(schema: str, begun: Begun, when: str) -> None:
    """A constraint of somebody's own may wait for the commit: the function has answered by then."""
    session = await opened(schema, timeout_s=5)
    kind = "TRIGGER" if when == "at the insert" else "CONSTRAINT TRIGGER"
    trigger(schema, kind, "IF NEW.message_data LIKE '%bad%' THEN RAISE EXCEPTION 'not so'; END IF; RETURN NULL;")
    async with begun.one_more():
        await session.add_items([message("good")])
    async with begun.one_more():
        with pytest.raises(StoreError, match="not so"):
            await session.add_items([message("bad")])
    assert await alone(session) == ["first", "good"]
    session.close()


@pytest.mark.postgres
def test_an_id_that_postgres_cannot_store_is_said_by_whoever_may_wait(schema: str) -> None:
    store = store_in(schema)
    assert isinstance(store.commit(append("c", b"first")), Done)
    assert store.begin([append("half \ud800 of a pair", b"second")]) is None  # it cannot even be sent
    begun = store.begin([append("with \0", b"second")])
    assert begun is not None
    (found,) = begun.finish()
    assert isinstance(found, InvalidSettingError)
    begun = store.begin([append("c", b"third")])  # the connection is as good as before
    assert begun is not None
    assert isinstance(begun.finish()[0], Done)
    assert store.look(ReadRequest(Name("session", "c"), only_data=True)).data == [b'"first"', b'"third"']
    store.close()


@pytest.mark.postgres
async def test_what_a_store_does_not_begin_is_asked_for_by_the_thread(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several at once, looks, and whatever else is not one append; here nothing is begun at all."""
    asked = []

    def not_this_one(store: PostgresStore, questions: Any) -> None:
        asked.append((threading.current_thread(), questions))

    monkeypatch.setattr(PostgresStore, "begin", not_this_one)
    session = await opened(schema)
    for number in range(5):
        await session.append([message(str(number))], writer="w", start=number)
    await asyncio.gather(*(session.add_items([message("eight")]) for _ in range(8)))
    assert await alone(session) == ["first", *map(str, range(5)), *["eight"] * 8]
    assert asked
    assert {thread for thread, _ in asked} == {threading.current_thread()}
    session.close()
