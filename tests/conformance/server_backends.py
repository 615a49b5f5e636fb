"""Backends on servers, for the kit: each session reaches its server through a proxy that can misbehave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlsplit

import psycopg
import redis
import redis.asyncio
from agents.extensions.memory import RedisSession as AgentsRedisSession, SQLAlchemySession
from sqlalchemy.pool import NullPool

from standfast._kits.conformance.network import Networked, Proxy
from standfast._kits.operators.open_store import open_store
from standfast._src.sessions.backends.postgres.postgres_session import PostgresSession
from standfast._src.sessions.backends.postgres.schema import Tables
from standfast._src.sessions.backends.redis.keys import Keys, bucket_of
from standfast._src.sessions.backends.redis.redis_session import RedisSession
from standfast._src.sessions.backends.redis.scripts import APPEND, COMMIT
from standfast._src.sessions.storage import Name
from standfast.conformance import message
from tests.conformance.kit_backends import BAD_TABLES, TABLES
from tests.helpers import servers


def through(url: str, is_write: Any) -> tuple[Proxy, str]:
    """A proxy before the server of a URL, and the URL that leads through it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy((parts.hostname, parts.port), is_write)
    return proxy, url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{proxy.port}")


def _is_commit(sent: bytes) -> bool:
    return any(one.encode() in sent for script in (COMMIT, APPEND) for one in script)


class StandfastRedis(Networked):
    name = "RedisSession"
    persistent = True
    opens_before_setup = True
    closes_when_called = True
    names: Mapping[str, Any] = {"key_prefix": "other:prefix"}
    bad_names: tuple[Mapping[str, Any], ...] = ({"key_prefix": ""}, {"key_prefix": None})
    not_applicable: Mapping[str, str] = {
        "A23": "what survives a killed server is the server's setting; the page on Redis says what each promises",
    }
    url = ""
    direct = ""

    def setup(self) -> None:
        self.direct = servers.redis_url()
        self.proxy, self.url = through(self.direct, _is_commit)

    def teardown(self) -> None:
        self.proxy.close()

    def child_state(self) -> dict[str, Any]:
        return {"url": self.url, "direct": self.direct}

    @property
    def prefix(self) -> str:
        return f"kit:{self.unique}"

    def open(self, session_id: str, **options: Any) -> RedisSession:
        prefix = options.pop("key_prefix", self.prefix)
        if prefix and prefix != self.prefix:
            prefix = f"{prefix}:{self.unique}"
        url = self.url or "redis://127.0.0.1:1/0"  # before setup: nothing is asked of it
        return RedisSession.from_url(session_id, url=url, key_prefix=prefix, **options)

    def whole_store(self, *, read_only: bool = False) -> Any:
        return open_store(f"{self.url}?key_prefix={quote(self.prefix)}", read_only=read_only)

    # --- faults

    def _client(self) -> Any:
        return redis.Redis.from_url(self.direct)

    def _keys(self, session_id: str) -> tuple[bytes, ...]:
        return Keys(self.prefix, "sdk").of(Name("session", session_id)).keys

    def inject_record(self, session_id: str, data: bytes) -> None:
        with self._client() as client:
            client.rpush(self._keys(session_id)[1], data)

    def raw_records(self, session_id: str) -> list[bytes]:
        with self._client() as client:
            rows: Any = client.lrange(self._keys(session_id)[1], 0, -1)
            return [row.rstrip() if row.endswith(b"} ") else row for row in rows]

    def shift_times(self, session_id: str, seconds: float) -> None:
        meta = self._keys(session_id)[0]
        with self._client() as client:
            for field, factor in (("created_at", 1), ("updated_at", 1), ("standfast_created", 1_000_000)):
                found: Any = client.hget(meta, field)
                if found is not None:
                    client.hset(meta, field, str(int(int(found) + seconds * factor)))
            found = client.hget(meta, "standfast_updated")
            if found is not None:
                client.hset(meta, "standfast_updated", str(int(int(found) + seconds * 1_000_000)))

    def stored_times(self, session_id: str) -> tuple[datetime, datetime] | None:
        with self._client() as client:
            found: Any = client.hmget(self._keys(session_id)[0], ["standfast_created", "standfast_updated"])
        if None in found:
            return None
        created, updated = (datetime.fromtimestamp(int(value) / 1e6, UTC) for value in found)
        return created, updated

    def peer(self, session_id: str) -> AgentsRedisSession:
        return AgentsRedisSession.from_url(session_id, url=self.direct, key_prefix=self.prefix)

    def expiring(self, session_id: str, seconds: int) -> RedisSession:
        return self.open(session_id, ttl=seconds)

    def handed_in(self, session_id: str) -> tuple[RedisSession, Callable[[], Awaitable[Any]]]:
        client = redis.asyncio.Redis.from_url(self.direct)

        async def still_works() -> None:
            assert await client.ping()
            again = RedisSession(session_id, redis_client=client, key_prefix=self.prefix)
            await again.add_items([message("again")])
            assert len(await again.get_items()) == 3
            await client.aclose()

        return RedisSession(session_id, redis_client=client, key_prefix=self.prefix), still_works


class Detour(dict[int, int]):
    """Leads a cluster's client to the proxy before each node, by the node's port."""

    def __call__(self, address: tuple[str, int]) -> tuple[str, int]:
        return "127.0.0.1", self.get(address[1], address[1])


class Proxies:
    """One proxy before each node of a cluster; they misbehave together."""

    def __init__(self, ports: Iterable[int], is_write: Callable[[bytes], bool]) -> None:
        self.before = {port: Proxy(("127.0.0.1", port), is_write) for port in ports}

    @contextmanager
    def faulty(self, fault: str) -> Iterator[None]:
        """Behave so while the context is entered."""
        with ExitStack() as stack:
            for proxy in self.before.values():
                stack.enter_context(proxy.faulty(fault))
            yield

    @property
    def port(self) -> int:
        """Where the first of them listens."""
        return next(iter(self.before.values())).port

    @property
    def cut_count(self) -> int:
        """How many connections were cut by a fault."""
        return sum(proxy.cut_count for proxy in self.before.values())

    @property
    def detour(self) -> Detour:
        """The way through them."""
        return Detour({port: proxy.port for port, proxy in self.before.items()})

    def close(self) -> None:
        """Cut every connection and accept no more."""
        for proxy in self.before.values():
            proxy.close()


def cluster_ports(url: str) -> list[int]:
    """The port of each node."""
    client = redis.RedisCluster.from_url(url)
    found = [node.port for node in client.get_nodes()]
    client.close()
    return found


class StandfastRedisCluster(StandfastRedis):
    name = "RedisSession on a cluster"
    not_applicable: Mapping[str, str] = {
        **StandfastRedis.not_applicable,
        "B10": "the OpenAI Agents SDK cannot use a cluster: its keys of one session are in different slots",
    }
    detour: Detour

    def setup(self) -> None:
        self.direct = self.url = servers.cluster_url()
        self.proxies = Proxies(cluster_ports(self.direct), _is_commit)
        self.detour = self.proxies.detour

    def teardown(self) -> None:
        self.proxies.close()

    def child_state(self) -> dict[str, Any]:
        return {"url": self.url, "direct": self.direct, "detour": self.detour}

    def stall(self) -> Any:
        return self.proxies.faulty("stall")

    def lose_acknowledgement(self) -> Any:
        return self.proxies.faulty("lose")

    def open(self, session_id: str, **options: Any) -> RedisSession:
        given = {"cluster": True, "redis_kwargs": {"address_remap": self.detour} if self.url else {}}
        return super().open(session_id, **given, **options)

    def whole_store(self, *, read_only: bool = False) -> Any:
        return open_store(f"{self.direct}?cluster=1&key_prefix={quote(self.prefix)}", read_only=read_only)

    def _client(self) -> Any:
        return redis.RedisCluster.from_url(self.direct)

    def _keys(self, session_id: str) -> tuple[bytes, ...]:
        return Keys(self.prefix, "tagged").of(Name("session", session_id), bucket_of(session_id)).keys

    def handed_in(self, session_id: str) -> tuple[RedisSession, Callable[[], Awaitable[Any]]]:
        client = redis.asyncio.RedisCluster.from_url(self.direct)

        async def still_works() -> None:
            assert await client.ping()
            again = RedisSession(session_id, redis_client=client, key_prefix=self.prefix)
            await again.add_items([message("again")])
            assert len(await again.get_items()) == 3
            await client.aclose()

        return RedisSession(session_id, redis_client=client, key_prefix=self.prefix), still_works


class StandfastPostgres(Networked):
    name = "PostgresSession"
    opens_before_setup = True
    patience_s = 250  # a loaded machine starts fifty processes and connections one after the other
    persistent = True
    closes_when_called = True
    names = TABLES
    any_bytes = False
    bad_names = (*BAD_TABLES, {"schema": "no; DROP TABLE agent_messages"}, {"schema": ""})
    not_applicable: Mapping[str, str] = {"A20": "no expiry can be configured"}
    url = ""
    direct = ""

    def setup(self) -> None:
        self.direct = servers.postgres_url()
        with psycopg.connect(self.direct, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
        self.proxy, self.url = through(self.direct, lambda sent: b"_standfast_commit" in sent or b"_pg3_" in sent)

    def teardown(self) -> None:
        self.proxy.close()
        servers.drop_schema(self.direct, self.schema)

    def child_state(self) -> dict[str, Any]:
        return {"url": self.url, "direct": self.direct}

    @property
    def schema(self) -> str:
        return f"kit_{self.unique}"

    def open(self, session_id: str, **options: Any) -> PostgresSession:
        url = self.url or "postgresql://127.0.0.1:1/none"  # before setup: nothing is asked of it
        return PostgresSession(session_id, url=url, **{"schema": self.schema, **options})

    def whole_store(self, *, read_only: bool = False) -> Any:
        return open_store(f"{self.url}{'&' if '?' in self.url else '?'}schema={self.schema}", read_only=read_only)

    # --- faults

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.direct, autocommit=True, options=f"-c search_path={self.schema}") as connection:
            yield connection

    def inject_record(self, session_id: str, data: bytes) -> None:
        with self._connection() as connection:
            connection.execute(
                "INSERT INTO agent_messages (session_id, message_data) VALUES (%s, %s)", (session_id, data.decode())
            )

    def raw_records(self, session_id: str) -> list[bytes]:
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT message_data FROM agent_messages WHERE session_id = %s "
                "ORDER BY standfast_place NULLS LAST, id", (session_id,)
            )  # fmt: skip
            return [text.encode() for (text,) in rows]

    def shift_times(self, session_id: str, seconds: float) -> None:
        names = Tables.of("agent_sessions", "agent_messages", self.schema).own + 'names"'
        by = {"by": timedelta(seconds=seconds), "id": session_id}
        with self._connection() as connection:
            connection.execute(
                "UPDATE agent_messages SET created_at = created_at + %(by)s WHERE session_id = %(id)s", by
            )
            connection.execute(
                "UPDATE agent_sessions SET created_at = created_at + %(by)s, updated_at = updated_at + %(by)s "
                "WHERE session_id = %(id)s", by
            )  # fmt: skip
            connection.execute(
                f"UPDATE {names} SET created = created + %(by)s, updated = updated + %(by)s "
                "WHERE kind = 'session' AND id = %(id)s", by
            )  # fmt: skip

    def stored_times(self, session_id: str) -> tuple[datetime, datetime] | None:
        with self._connection() as connection:
            found = connection.execute(
                "SELECT created_at::timestamptz, updated_at::timestamptz FROM agent_sessions WHERE session_id = %s",
                (session_id,),
            ).fetchone()
        return None if found is None else (found[0], found[1])

    def peer(self, session_id: str) -> SQLAlchemySession:
        url = self.direct.replace("postgresql://", "postgresql+asyncpg://")
        arguments = {"connect_args": {"server_settings": {"search_path": self.schema}}, "poolclass": NullPool}
        return SQLAlchemySession.from_url(session_id, url=url, create_tables=True, engine_kwargs=arguments)

    @contextmanager
    def watch_durability(self) -> Iterator[list[str]]:
        """Ask the server, after the fact, what each of our connections waits for when it commits."""
        complaints: list[str] = []
        yield complaints
        with self._connection() as connection:
            row = connection.execute("SHOW synchronous_commit").fetchone()
            if row is None or row[0] != "on":
                complaints.append(f"synchronous_commit is {row}")
