"""One conversation on a server is one, whatever URL, client, driver or setting it is reached by (C13)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import fakeredis
import psycopg
import pytest
import redis.asyncio
from redis.asyncio.sentinel import Sentinel
from sqlalchemy.ext.asyncio import create_async_engine

from standfast import (
    Agent,
    EncryptedSession,
    InvalidSettingError,
    PostgresSession,
    RedisSession,
    RunConfig,
    Runner,
    SQLAlchemySession,
    StandfastError,
)
from standfast._src.sessions.conversation_identity import conversation_key
from standfast.testing import ScriptedModel, assistant_message, function_call
from tests.helpers import servers


def keys(*sessions: Any) -> set[Any]:
    return {conversation_key(session) for session in sessions}


def on_redis(url: str, session_id: str = "c", **options: Any) -> RedisSession:
    return RedisSession.from_url(session_id, url=url, **options)


def on_postgres(url: str, session_id: str = "c", **options: Any) -> PostgresSession:
    return PostgresSession(session_id, url=url, **options)


def by_sqlalchemy(url: str, session_id: str = "c", **options: Any) -> SQLAlchemySession:
    return SQLAlchemySession.from_url(session_id, url=url, **options)


def test_a_redis_server_is_one_place_however_it_is_reached() -> None:
    clients = [redis.asyncio.Redis(host="LOCALHOST"), redis.asyncio.Redis.from_url("redis://127.0.0.1/0")]
    same = keys(
        on_redis("redis://localhost"),
        on_redis("redis://:secret@127.0.0.1:6379/0", ttl=60),
        on_redis("redis://", redis_kwargs={"host": "localhost", "port": "6379"}, wait_replicas=1),
        on_redis("redis://localhost", redis_kwargs={"host": "elsewhere"}),  # redis-py takes the URL's
        *(RedisSession("c", redis_client=client) for client in clients),
    )
    assert len(same) == 1
    others = keys(
        on_redis("redis://localhost/1"),
        on_redis("redis://localhost:6380"),
        on_redis("redis://other", redis_kwargs={"host": "localhost"}),
        on_redis("unix:///run/redis.sock"),
        on_redis("redis://localhost", key_prefix="mine"),
        on_redis("redis://localhost", layout="tagged"),
        on_redis("redis://localhost", cluster=True),
        on_redis("redis://localhost", "d"),
    )
    assert len(others) == 8
    assert not same & others


@pytest.mark.parametrize("option", [{"port": "none"}, {"db": "none"}, {"host": ["a", "b"]}], ids=str)
async def test_an_option_that_leads_nowhere_is_said_with_a_remedy_by_whatever_asks_first(option: Any) -> None:
    session = on_redis(
        "redis://", redis_kwargs={"host": "127.0.0.1", "port": servers.free_port(), **option}, timeout_s=1
    )
    for work in (session.add_items([{"content": "a"}]), session.lease(ttl_s=5, wait_s=0)):
        with pytest.raises(StandfastError):
            await work
    session.close()


@pytest.mark.parametrize(
    "rest", ["user:123/secret@host:6379/0", ":secret/more@host", ":secret?more@host", ":secret#x@host"]
)
def test_a_url_that_a_password_breaks_is_refused_without_the_password(rest: str) -> None:
    with pytest.raises(InvalidSettingError, match="%2F") as caught:
        on_redis(f"redis://{rest}")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["postgresql://me:secret%zz@host/talks", "host=h password=my secret"])
def test_an_address_of_postgresql_that_a_password_breaks_is_refused_without_the_password(url: str) -> None:
    with pytest.raises(InvalidSettingError, match=r"cannot read this address.*%25") as caught:
        on_postgres(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("option", [{"port": {}}, {"host": ["a", "b"]}], ids=str)
async def test_an_option_that_libpq_cannot_use_is_said_with_a_remedy(option: Any) -> None:
    session = on_postgres("postgresql://me@127.0.0.1:1/talks", connect_options=option, timeout_s=1)
    with pytest.raises(StandfastError):
        await session.add_items([{"content": "a"}])
    session.close()


def test_a_client_that_does_not_say_where_its_server_is_is_its_own_place() -> None:
    pretended = [fakeredis.FakeAsyncRedis() for _ in range(2)]
    found = [Sentinel([("localhost", 26379)]).master_for(name) for name in ("one", "two")]
    assert len(keys(*(RedisSession("c", redis_client=client) for client in [*pretended, *found]))) == 4


def test_a_postgresql_database_is_one_place_however_its_address_is_written() -> None:
    same = keys(
        on_postgres("postgresql://me@localhost/talks"),
        on_postgres("postgres://me:secret@127.0.0.1:5432/talks?connect_timeout=3", create_tables=False),
        on_postgres("postgresql+asyncpg://me@localhost/talks"),
        on_postgres("host=localhost user=me dbname=talks"),
        on_postgres("dbname=talks user=me", connect_options={"host": "localhost", "port": 5432}),
    )
    assert len(same) == 1
    others = keys(
        on_postgres("postgresql://me@localhost/other"),
        on_postgres("postgresql://me@localhost:5433/talks"),
        on_postgres("postgresql://me@other/talks"),
        on_postgres("postgresql://me@localhost/talks", schema="mine"),
        on_postgres("postgresql://me@localhost/talks", messages_table="m"),
        on_postgres("postgresql://me@localhost/talks", "d"),
        on_postgres("postgresql://me@localhost/talks?options=-csearch_path%3Dtheirs"),
        on_postgres("postgresql://me@localhost/talks", connect_options={"options": "-c search_path=mine"}),
    )
    assert len(others) == 8
    assert not same & others


def test_a_database_of_sqlalchemys_is_one_place_whatever_driver_it_is_reached_by() -> None:
    same = keys(
        by_sqlalchemy("postgresql+psycopg://me@localhost/talks"),
        by_sqlalchemy("postgresql+asyncpg://me:secret@127.0.0.1/talks", create_tables=True, ensure_ascii=False),
    )
    assert len(same) == 1
    # Which schema an engine leads to cannot be told: what it was made with, or who listens to it, may set it.
    mine, theirs = (
        create_async_engine(
            "postgresql+psycopg://me@localhost/talks", connect_args={"options": f"-csearch_path={name}"}
        )
        for name in ("mine", "theirs")
    )
    assert len(keys(*(SQLAlchemySession("c", engine=mine) for _ in range(2)))) == 1
    # A function that connects leads anywhere, and a database in memory is its engine's own.
    unsaid = [create_async_engine("postgresql+asyncpg://", async_creator=lambda: None) for _ in range(2)]
    private = [create_async_engine("sqlite+aiosqlite://") for _ in range(2)]
    others = keys(
        by_sqlalchemy("postgresql+psycopg://me@localhost/other"),
        by_sqlalchemy("mysql+aiomysql://me@localhost/talks"),
        by_sqlalchemy("postgresql+psycopg://me@localhost/talks", engine_kwargs={"connect_args": {"host": "other"}}),
        by_sqlalchemy("postgresql+psycopg://me@localhost/talks?options=-csearch_path%3Dmine"),
        by_sqlalchemy("mysql+aiomysql://me@/talks?unix_socket=/run/one.sock"),
        by_sqlalchemy("mysql+aiomysql://me@/talks?unix_socket=/run/two.sock"),
        *(SQLAlchemySession("c", engine=engine) for engine in [mine, theirs, *unsaid, *private]),
    )
    assert len(others) == 12
    assert not same & others


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"s{uuid.uuid4().hex[:12]}"
    yield name
    if "postgres" in servers.STARTED:
        servers.drop_schema(servers.postgres_url(), name)


OTHERWISE = [
    pytest.param(lambda url: on_redis(url, "nested-1"), lambda url: on_redis(url, "nested-1", ttl=60), id="expiry"),
    pytest.param(
        lambda url: on_redis(url, "nested-2"), lambda url: on_redis(url.removesuffix("/0"), "nested-2"), id="spelling"
    ),
    pytest.param(
        lambda url: EncryptedSession("nested-3", on_redis(url, "nested-3"), "secret"),
        lambda url: EncryptedSession("nested-3", on_redis(f"{url}?health_check_interval=9", "nested-3"), "secret"),
        id="sealed",
    ),
]


async def answer_of_a_nested_run(session: Any, again: Any) -> str:
    """What an agent tool on its parent's conversation, reached by another object, says to its parent."""
    child = Agent("child", model=ScriptedModel([[assistant_message("it is warm")]]))
    model = ScriptedModel([[function_call("weather", {"input": "now?"}, call_id="one")], [assistant_message("thanks")]])
    parent = Agent("parent", model=model, tools=[child.as_tool("weather", "knows the weather", session=again)])
    await Runner.run(parent, "hello", session=session, run_config=RunConfig(lease_wait_s=1))
    return str(next(item["output"] for item in model.calls[-1].input if item.get("type") == "function_call_output"))


@pytest.mark.redis
@pytest.mark.parametrize(("made", "made_again"), OTHERWISE)
async def test_a_nested_run_uses_its_parents_lease_on_redis(
    made: Callable[[str], Any], made_again: Callable[[str], Any]
) -> None:
    session, again = made(servers.redis_url()), made_again(servers.redis_url())
    await session.clear_session()
    assert await answer_of_a_nested_run(session, again) == "it is warm"
    session.close()
    again.close()


@pytest.mark.redis
async def test_a_nested_run_uses_its_parents_lease_over_two_clients() -> None:
    url = servers.redis_url()
    async with redis.asyncio.Redis.from_url(url) as one, redis.asyncio.Redis.from_url(url) as two:
        session, again = RedisSession("nested-4", redis_client=one), RedisSession("nested-4", redis_client=two)
        await session.clear_session()
        assert await answer_of_a_nested_run(session, again) == "it is warm"
        session.close()
        again.close()


@pytest.mark.postgres
async def test_conversations_of_one_id_in_two_schemas_do_not_wait_for_each_other(schema: str) -> None:
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
    mine, theirs = (
        on_postgres(servers.postgres_url(), "two", connect_options={"options": f"-c search_path={name}"})
        for name in (schema, "public")
    )
    async with await mine.lease(ttl_s=30, wait_s=0):
        waiting = asyncio.create_task(mine.lease(ttl_s=30, wait_s=60))
        await asyncio.sleep(0.1)  # it has its place in the queue
        await (await theirs.lease(ttl_s=30, wait_s=1)).release()
    await (await waiting).release()
    await theirs.clear_session()
    mine.close()
    theirs.close()


@pytest.mark.postgres
async def test_a_nested_run_uses_its_parents_lease_on_postgresql(schema: str) -> None:
    url = servers.postgres_url()
    session = on_postgres(url, "nested", schema=schema)
    again = on_postgres(url.replace("postgresql:", "postgres:"), "nested", schema=schema, create_tables=False)
    assert await answer_of_a_nested_run(session, again) == "it is warm"
    session.close()
    again.close()
