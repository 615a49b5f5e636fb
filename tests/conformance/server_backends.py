"""Backends on servers, for the kit: each session reaches its server through a proxy that can misbehave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis
from agents.extensions.memory import RedisSession as AgentsRedisSession, SQLAlchemySession
from sqlalchemy.pool import NullPool

from standfast._kits.conformance.backends.postgres import PostgresBackend
from standfast._kits.conformance.backends.redis import RedisBackend
from standfast._kits.conformance.network import Networked, Proxy
from standfast._src.sessions.backends.redis.keys import Layout
from standfast._src.sessions.backends.redis.scripts import APPEND, COMMIT
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


class StandfastRedis(RedisBackend, Networked):
    def setup(self) -> None:
        self.direct = servers.redis_url()
        self.proxy, self.url = through(self.direct, _is_commit)

    def teardown(self) -> None:
        self.proxy.close()

    def peer(self, session_id: str) -> AgentsRedisSession:
        return AgentsRedisSession.from_url(session_id, url=self.direct, key_prefix=self.prefix)


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
        "F10": "a budget and the conversations that share it are in different slots; a run with budgets is refused",
    }
    is_cluster = True
    layout: Layout = "tagged"
    detour: Detour

    def setup(self) -> None:
        self.direct = self.url = servers.cluster_url()
        self.proxies = Proxies(cluster_ports(self.direct), _is_commit)
        self.detour = self.proxies.detour

    def teardown(self) -> None:
        self.proxies.close()

    def child_state(self) -> dict[str, Any]:
        return {"detour": self.detour}

    def client_options(self) -> dict[str, Any]:
        return {"address_remap": self.detour} if self.direct else {}

    def stall(self) -> Any:
        return self.proxies.faulty("stall")

    def lose_acknowledgement(self) -> Any:
        return self.proxies.faulty("lose")


class StandfastPostgres(PostgresBackend, Networked):
    def setup(self) -> None:
        self.direct = servers.postgres_url()
        super().setup()
        self.proxy, self.url = through(self.direct, lambda sent: b"_standfast_commit" in sent or b"_pg3_" in sent)

    def teardown(self) -> None:
        self.proxy.close()
        super().teardown()

    def peer(self, session_id: str) -> SQLAlchemySession:
        url = self.direct.replace("postgresql://", "postgresql+asyncpg://")
        arguments = {"connect_args": {"server_settings": {"search_path": self.schema}}, "poolclass": NullPool}
        return SQLAlchemySession.from_url(session_id, url=url, create_tables=True, engine_kwargs=arguments)
