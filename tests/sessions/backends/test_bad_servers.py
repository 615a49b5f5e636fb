"""Servers and addresses that are not as they should be, on every store that is reached over a network.

Each is said by an error of its own with a remedy, within the deadline, and nothing is half done. What only one of them
knows (a full server, a table without AUTOINCREMENT) is in the tests of that one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
import redis.asyncio

from standfast import (
    Agent,
    EncryptedSession,
    NotADatabaseError,
    OutcomeUnknownError,
    PostgresSession,
    RedisSession,
    Runner,
    SchemaTooNewError,
    SQLAlchemySession,
    StandfastError,
    StoreError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from standfast._kits.conformance.network import Proxy
from standfast._src.base.errors import InvalidSettingError, SealKeyError, SettingTypeError
from standfast._src.sessions.backends.postgres.schema import Tables
from standfast._src.sessions.backends.redis.handshake import layout_key
from standfast._src.sessions.backends.redis.keys import Keys
from standfast._src.sessions.client.lingering import LINGERING
from standfast.conformance import message
from standfast.testing import ScriptedModel, assistant_message
from tests.helpers import mariadb, servers

PATIENCE_S = 60
"""How long a test waits for what must come within a second or two: a machine that is busy is not the defect."""

REDIS = ("redis", "cluster", "client")
KINDS = [
    *(pytest.param(kind, marks=pytest.mark.redis) for kind in REDIS),
    *(pytest.param(kind, marks=pytest.mark.postgres) for kind in ("postgres", "psycopg", "asyncpg")),
    pytest.param("mariadb", marks=pytest.mark.mariadb),
]
"""Stores on servers; "client" is Redis over a client that was handed in, and the last are SQLAlchemy's drivers."""


_clients: list[Any] = []


@pytest.fixture(autouse=True)
async def _close_clients() -> AsyncIterator[None]:
    yield
    while _clients:
        await _clients.pop().aclose()


@pytest.fixture
def name() -> Iterator[str]:
    """What everything of one test is called in a store, and is removed by."""
    made = f"b{uuid.uuid4().hex[:12]}"
    yield made
    if "postgres" in servers.STARTED:
        with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE %s", (f"{made}%",))
            for (table,) in tables.fetchall():
                connection.execute(f'DROP TABLE IF EXISTS "{table}" CASCADE')


def address(kind: str) -> str:
    """A server of this kind that works."""
    if kind in ("redis", "client"):
        return servers.redis_url()
    if kind == "cluster":
        return servers.cluster_url()
    return mariadb.shared().url if kind == "mariadb" else servers.postgres_url()


def opened(kind: str, url: str, name: str, **options: Any) -> Any:
    """A session there, in keys or tables of that name."""
    if kind == "client":
        client = redis.asyncio.Redis.from_url(url, socket_connect_timeout=2)
        _clients.append(client)
        return RedisSession("c", redis_client=client, key_prefix=name, **options)
    if kind in REDIS:
        return RedisSession.from_url("c", url=url, cluster=kind == "cluster", key_prefix=name, **options)
    tables = {"sessions_table": f"{name}_s", "messages_table": f"{name}_m"}
    if kind == "postgres":
        return PostgresSession("c", url=url, **tables, **options)
    driver = url if kind == "mariadb" else url.replace("postgresql://", f"postgresql+{kind}://")
    return SQLAlchemySession.from_url("c", url=driver, create_tables=True, **tables, **options)


def port_of(url: str) -> int:
    found = urlsplit(url).port
    assert found is not None
    return found


async def said(operation: Any) -> StandfastError:
    """The error that an operation ends with."""
    with pytest.raises(StandfastError) as caught:
        await asyncio.wait_for(operation, PATIENCE_S)
    assert caught.value.remedy
    return caught.value


async def refuses_everything(session: Any) -> list[StandfastError]:
    """What a session says to a read, a write, a pop and a run; no model is asked."""
    model = ScriptedModel([[assistant_message("never")]])
    found = [
        await said(session.get_items()),
        await said(session.add_items([message("x")])),
        await said(session.pop_item()),
        await said(Runner.run(Agent("A", model=model), "hello", session=session)),
    ]
    assert not model.calls
    return found


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_is_not_there_is_said_within_the_deadline(kind: str, name: str) -> None:
    nowhere = address(kind).replace(str(port_of(address(kind))), str(servers.free_port()))
    session = opened(kind, nowhere, name, timeout_s=0.5)
    for error in await refuses_everything(session):
        assert isinstance(error, StoreError)
    await session.close()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.values != ("cluster",)])
async def test_a_server_that_goes_away_is_said_and_leaves_nothing_half_done(kind: str, name: str) -> None:
    """A cluster that loses a node is in redis/test_replicas.py."""
    url = address(kind)
    before, proxy = opened(kind, url, name), Proxy(("127.0.0.1", port_of(url)))
    await before.append([message("before")], writer="w", start=0)
    session = opened(kind, url.replace(str(port_of(url)), str(proxy.port)), name, timeout_s=0.5)
    assert await session.get_items() == [message("before")]
    proxy.close()
    for error in await refuses_everything(session):
        assert isinstance(error, StoreError)
    error = await said(session.append([message("lost"), message("too")], writer="w", start=1))
    assert isinstance(error, StoreError)
    await session.close()
    assert await before.get_items() == [message("before")]
    await before.close()


OTHER_SERVERS = [
    pytest.param(kind, other, marks=[getattr(pytest.mark, mark) for mark in marks])
    for kind, other, marks in (
        ("redis", "postgres", ("redis", "postgres")),
        ("cluster", "postgres", ("redis", "postgres")),
        ("cluster", "redis", ("redis",)),
        ("client", "postgres", ("redis", "postgres")),
        ("postgres", "redis", ("redis", "postgres")),
        ("psycopg", "redis", ("redis", "postgres")),
        ("asyncpg", "redis", ("redis", "postgres")),
        ("mariadb", "redis", ("redis", "mariadb")),
        ("postgres", "mariadb", ("postgres", "mariadb")),
    )
]


@pytest.mark.parametrize(("kind", "other"), OTHER_SERVERS)
async def test_an_address_of_another_kind_of_server_is_said_within_the_deadline(
    kind: str, other: str, name: str
) -> None:
    url = address(kind).replace(str(port_of(address(kind))), str(port_of(address(other))))
    session = opened(kind, url, name, timeout_s=1)
    assert isinstance(await said(session.get_items()), StoreError)
    error = await said(session.add_items([message("x")]))
    assert isinstance(error, StoreError)
    # A client of the caller's connects by itself: what it was given may have left.
    assert kind == "client" or not isinstance(error, OutcomeUnknownError)
    await session.close()


SILENT = [
    pytest.param("redis", "redis://127.0.0.1:{}/0"),
    pytest.param("cluster", "redis://127.0.0.1:{}/0"),
    pytest.param("postgres", "postgresql://me@127.0.0.1:{}/talks"),
    pytest.param("psycopg", "postgresql://me@127.0.0.1:{}/talks"),
]


@pytest.mark.parametrize(("kind", "url"), SILENT)
async def test_a_write_to_a_server_that_never_says_a_word_was_certainly_not_done(
    kind: str, url: str, name: str
) -> None:
    """No connection was made, so nothing can have left: that is no unknown outcome (A13)."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        session = opened(kind, url.format(silent.getsockname()[1]), name, timeout_s=0.3)
        assert isinstance(await said(session.add_items([message("x")])), StoreTimeoutError | StoreUnavailableError)
        session.close()


NO_ADDRESS: list[Any] = [
    *("postgresql://me@host/talks", "https://example.com", "/srv/redis.sock", "", None, 6379, ["redis://host"]),
    *("redis://host:99999/0", "redis://host:port/0", "redis://host/talks", "redis://host?db=one"),
]


@pytest.mark.parametrize("url", NO_ADDRESS, ids=str)
def test_what_is_no_address_of_redis_is_refused_before_anything_is_asked(url: Any) -> None:
    """redis-py takes database 0 where it cannot read the number."""
    with pytest.raises(InvalidSettingError) as caught:
        RedisSession.from_url("c", url=url)
    assert "redis://" in caught.value.remedy


@pytest.mark.parametrize("client", [None, "redis://host", redis.Redis(), redis.asyncio.ConnectionPool()])
def test_what_is_no_client_of_redis_asyncio_is_refused_before_anything_is_asked(client: Any) -> None:
    with pytest.raises(SettingTypeError, match="no asynchronous Redis client"):
        RedisSession("c", redis_client=client)


@pytest.mark.parametrize("url", ["talks", "postgresql://me@host/talks?colour=red", "host=db me:secret@host"])
def test_what_libpq_cannot_read_is_refused_before_anything_is_asked(url: str) -> None:
    with pytest.raises(InvalidSettingError, match="cannot read this address") as caught:
        PostgresSession("c", url=url)
    assert "secret" not in str(caught.value)


@pytest.mark.redis
async def test_an_option_that_redis_py_does_not_have_is_named_at_once(name: str) -> None:
    session = opened("redis", address("redis"), name, redis_kwargs={"colour": "red"}, timeout_s=600)
    error = await said(session.add_items([message("x")]))
    assert isinstance(error, InvalidSettingError)
    assert "colour" in error.what
    await session.close()


@pytest.mark.redis
async def test_a_database_that_the_server_does_not_have_is_named_at_once(name: str) -> None:
    session = opened("redis", f"redis://127.0.0.1:{port_of(address('redis'))}/9999", name, timeout_s=600)
    error = await said(session.get_items())
    assert isinstance(error, StoreUnavailableError)
    assert "databases" in error.remedy
    await session.close()


@pytest.mark.postgres
async def test_an_option_that_libpq_does_not_have_is_named_at_once(name: str) -> None:
    session = opened("postgres", address("postgres"), name, connect_options={"colour": "red"}, timeout_s=600)
    error = await said(session.get_items())
    assert "colour" in error.what
    assert "connect_options" in error.remedy
    await session.close()


async def test_an_option_that_an_engine_does_not_have_is_named_at_once(name: str, tmp_path: Path) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path / 'talks.db'}"
    session = SQLAlchemySession.from_url("c", url=url, create_tables=True, engine_kwargs={"colour": "red"})
    error = await said(session.get_items())
    assert isinstance(error, SettingTypeError)
    assert "engine_kwargs" in error.remedy
    await session.close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[servers.PostgresServer]:
    """PostgreSQL that asks everybody but its owner for a password."""
    server = servers.PostgresServer(sync=False)
    rules = server.served.folder / "data" / "pg_hba.conf"
    rules.write_text("host all standfast 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE clerk LOGIN PASSWORD 'right'")
        connection.execute("SELECT pg_reload_conf()")
    with contextlib.suppress(psycopg.OperationalError):
        while True:  # until it asks for passwords
            psycopg.connect(server.url.replace("standfast@", "clerk:wrong@")).close()
    yield server
    server.stop()


@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["postgres", "psycopg", "asyncpg"])
async def test_a_wrong_password_is_said_at_once_on_postgresql(
    kind: str, guarded: servers.PostgresServer, name: str
) -> None:
    session = opened(kind, guarded.url.replace("standfast@", "clerk:wrong@"), name, timeout_s=10 * PATIENCE_S)
    for error in await refuses_everything(session):
        assert isinstance(error, StoreUnavailableError)
        assert "password" in str(error)
        assert "wrong" not in error.what.split("password")[-1]
    await session.close()


@pytest.mark.redis
@pytest.mark.parametrize("kind", ["redis", "client"])
async def test_a_wrong_password_is_said_at_once_on_redis(kind: str, name: str) -> None:
    server = servers.RedisServer(options=["--requirepass", "right"])
    try:
        session = opened(kind, server.url.replace("redis://", "redis://:wrong@"), name, timeout_s=10 * PATIENCE_S)
        for error in await refuses_everything(session):
            assert isinstance(error, StoreUnavailableError)
            assert "password" in str(error)
        await session.close()
    finally:
        server.stop()


@pytest.mark.redis
async def test_a_user_that_a_cluster_does_not_know_is_said_at_once(name: str) -> None:
    url = servers.cluster_url().replace("redis://", "redis://nobody:wrong@")
    session = opened("cluster", url, name, timeout_s=10 * PATIENCE_S)
    for error in await refuses_everything(session):
        assert isinstance(error, StoreUnavailableError)
        assert "password" in str(error)
        assert "wrong@" not in str(error)
    await session.close()


@pytest.mark.mariadb
@pytest.mark.parametrize("part", ["wrong password", "no such database"])
async def test_a_wrong_password_or_database_is_said_at_once_on_mariadb(part: str, name: str) -> None:
    url = mariadb.shared().url
    url = url.replace(":standfast@", ":wrong@") if part == "wrong password" else f"{url}_nowhere"
    session = opened("mariadb", url, name, timeout_s=10 * PATIENCE_S)
    for error in await refuses_everything(session):
        assert isinstance(error, StoreUnavailableError)
    await session.close()


@pytest.mark.redis
@pytest.mark.parametrize("kind", REDIS)
async def test_a_newer_layout_is_left_alone_on_redis(kind: str, name: str) -> None:
    session = opened(kind, address(kind), name)
    await session.add_items([message("x")])
    key = layout_key(Keys(name, "tagged" if kind == "cluster" else "sdk"))
    make: Any = redis.RedisCluster if kind == "cluster" else redis.Redis
    direct = make.from_url(address(kind))
    direct.set(key, "2")
    await session.close()
    LINGERING.end_all()  # a layout is looked at when an engine begins
    later = opened(kind, address(kind), name)
    for error in await refuses_everything(later):
        assert isinstance(error, SchemaTooNewError)
    await later.close()
    direct.set(key, "1")
    again = opened(kind, address(kind), name)
    assert await again.get_items() == [message("x")]
    await again.close()
    direct.close()


def _executed(kind: str, sql: str) -> None:
    if kind == "mariadb":
        connection: Any = mariadb.shared().connect()
        connection.cursor().execute(sql.replace('"', "`"))
        connection.close()
        return
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        connection.execute(sql)


TABLES = [kind for kind in KINDS if kind.values[0] not in REDIS]


@pytest.mark.parametrize("kind", TABLES)
async def test_a_newer_layout_is_left_alone_in_tables(kind: str, name: str) -> None:
    session = opened(kind, address(kind), name)
    await session.add_items([message("x")])
    await session.close()
    LINGERING.end_all()
    version = Tables.of(f"{name}_s", f"{name}_m").own + 'version"'
    _executed(kind, f"INSERT INTO {version} VALUES (1999)")
    later = opened(kind, address(kind), name)
    for error in await refuses_everything(later):
        assert isinstance(error, SchemaTooNewError)
    await later.close()


@pytest.mark.parametrize("kind", TABLES)
async def test_a_table_of_another_kind_is_named_and_left_alone(kind: str, name: str) -> None:
    _executed(kind, f'CREATE TABLE "{name}_m" (mine INTEGER)')
    session = opened(kind, address(kind), name)
    for error in await refuses_everything(session):
        assert isinstance(error, NotADatabaseError)
    await session.close()
    _executed(kind, f'INSERT INTO "{name}_m" (mine) VALUES (1)')


@pytest.mark.redis
async def test_a_key_of_another_kind_is_named_and_left_alone_on_a_cluster(name: str) -> None:
    session = opened("cluster", servers.cluster_url(), name)
    await session.add_items([message("x")])
    with redis.RedisCluster.from_url(servers.cluster_url()) as direct:
        (rows,) = [key for key in direct.scan_iter(f"{name}:*") if b":messages:" in key]
        direct.delete(rows)
        direct.set(rows, "mine")
        for error in await refuses_everything(session):
            assert isinstance(error, NotADatabaseError)
        assert direct.get(rows) == b"mine"
    await session.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_wrong_or_missing_key_is_said_and_changes_nothing(kind: str, name: str, tmp_path: Path) -> None:
    def sealed(**keys: str) -> Any:
        return EncryptedSession("c", opened(kind, address(kind), name), keys=keys, current=next(iter(keys)))

    right = sealed(old="a secret", new="another")
    await right.append([message("one"), message("two")], writer="w", start=0)
    for wrong in (sealed(old="not the secret"), sealed(new="another")):
        for error in await refuses_everything(wrong):
            assert isinstance(error, SealKeyError), error
        await wrong.close()
    assert await right.get_items() == [message("one"), message("two")]
    await right.close()
