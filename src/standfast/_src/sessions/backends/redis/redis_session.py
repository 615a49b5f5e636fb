"""Sessions in Redis or Valkey: the OpenAI Agents SDK's keys, with every ability of part B on top.

What a session does is in `StoredSession`, what it promises in the rules of `sessions/`; this says which server, which
keys and which expiry. Constructing one does no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, Self
from urllib.parse import urlsplit

import redis
from redis.connection import parse_url

from standfast._src.base.errors import CallerError, InvalidNameError, InvalidSettingError, SettingTypeError
from standfast._src.base.type_names import describe_type
from standfast._src.sessions.backends.redis.async_client_storage import (
    AsyncClient,
    ClientStore,
    ClusterClientStore,
    is_cluster_client,
)
from standfast._src.sessions.backends.redis.cluster_storage import ClusterLink, ClusterStore
from standfast._src.sessions.backends.redis.connection import Link
from standfast._src.sessions.backends.redis.keys import Layout
from standfast._src.sessions.backends.redis.redis_storage import RedisStore
from standfast._src.sessions.client.borrowed_loop_executor import BorrowedLoopExecutor
from standfast._src.sessions.client.lingering import LINGER_S, checked_linger
from standfast._src.sessions.client.server_session import ServerSession, host_key
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor
from standfast._src.sessions.protocol import SessionSettings

__all__ = ["RedisSession"]

READERS = 2  # beside the connection that writes, so that one long read does not keep every other waiting
ANSWER_S_MAX = 5.0
"""How long one answer may take before the connection is given up; what was asked is then asked again."""


class Address(NamedTuple):
    """A server to connect to, in place of a client that was handed in."""

    url: str
    options: tuple[tuple[str, Any], ...]
    is_cluster: bool


class RedisSession(ServerSession):
    """Conversation in Redis or Valkey. Any number of objects and processes may share the conversation.

    `from_url` needs no client, and works in every loop and thread.

    Args:
        session_id: The name of the conversation.
        redis_client: A `redis.asyncio` client of yours: it is used in its own event loop only, and never closed here.
        key_prefix: The beginning of every key.
        ttl: In seconds: history, counts and saved runs expire together so long after the latest change. None, the
            default: never, and a change takes off an expiry that an earlier setting gave the session. "keep": the
            expiry stays as it is, for tools that look after the sessions of other programs.
        session_settings: Settings such as the default limit of reads.
        layout: "sdk" has the SDK's keys, which it can still use; "tagged", the default on a cluster, keeps all keys of
            a session in one slot.
        wait_replicas: A write is acknowledged when so many replicas have it; if they do not within two seconds,
            `OutcomeUnknownError` is raised.
        timeout_s: The deadline of each operation.
        linger_s: The seconds that threads and connections of `from_url` stay open after the last session on the
            server, for the next one; 0: they end with the last.
    """

    def __init__(
        self,
        session_id: str,
        *,
        redis_client: AsyncClient | Address,
        key_prefix: str = "agents:session",
        ttl: int | Literal["keep"] | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        layout: Layout | None = None,
        wait_replicas: int = 0,
        timeout_s: float = 30.0,
        linger_s: float = LINGER_S,
    ) -> None:
        super().__init__(session_id, session_settings=session_settings, timeout_s=timeout_s)
        self.linger_s = checked_linger(linger_s)
        self.wait_replicas = _checked_replicas(wait_replicas)
        self.key_prefix, self.ttl = _checked_prefix(key_prefix), _checked_ttl(ttl)
        self._target = _checked_client(redis_client)
        self.layout: Layout = layout or ("tagged" if _is_cluster(redis_client) else "sdk")
        if self.layout not in ("sdk", "tagged") or (self.layout == "sdk" and _is_cluster(redis_client)):
            raise CallerError(
                f"layout {layout!r} cannot be used here", 'Use "tagged" on a cluster, else "sdk" or "tagged".'
            )

    @classmethod
    def from_url(
        cls,
        session_id: str,
        *,
        url: str,
        redis_kwargs: Mapping[str, Any] | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        cluster: bool = False,
        **kwargs: Any,
    ) -> Self:
        """Construct a session on a server, over connections shared by all sessions of the process.

        `redis_kwargs` are options of a connection, as redis-py takes them. `kwargs` are those of the constructor.
        """
        address = Address(_checked_url(url), tuple(sorted((redis_kwargs or {}).items())), cluster)
        return cls(session_id, redis_client=address, session_settings=session_settings, **kwargs)

    def _no_budgets(self) -> str:
        is_split = _is_cluster(self._target)
        return "on a Redis cluster, conversations and their budget are in different slots" if is_split else ""

    # --- what ServerSession asks --------------------------------------------------------------------------------------

    def _make_executor(self) -> ThreadedExecutor | BorrowedLoopExecutor:
        target, prefix, layout = self._target, self.key_prefix, self.layout
        ttl_ms = None if self.ttl == "keep" else (self.ttl or 0) * 1000
        replicas = self.wait_replicas
        if not isinstance(target, Address):
            if is_cluster_client(target):
                return BorrowedLoopExecutor(
                    ClusterClientStore(target, prefix=prefix, ttl_ms=ttl_ms, wait_replicas=replicas)
                )
            return BorrowedLoopExecutor(
                ClientStore(target, prefix=prefix, layout=layout, ttl_ms=ttl_ms, wait_replicas=replicas)
            )

        def open_store() -> RedisStore:
            options = {"socket_timeout": ANSWER_S_MAX, "socket_connect_timeout": ANSWER_S_MAX, **dict(target.options)}
            if target.is_cluster:
                nodes = ClusterLink(target.url, **options)
                return ClusterStore(nodes, prefix=prefix, ttl_ms=ttl_ms, wait_replicas=replicas)
            link = Link(target.url, **options)
            return RedisStore(link, prefix=prefix, layout=layout, ttl_ms=ttl_ms, wait_replicas=replicas)

        return ThreadedExecutor(open_store, loses_answers=True, readers=READERS, is_many=True)

    def _store_key(self) -> Hashable:
        return ("redis", _place(self._target), self.key_prefix, self.layout)

    def _carrier_key(self) -> Hashable:
        target = self._target
        where = (target.url, repr(target.options), target.is_cluster) if isinstance(target, Address) else id(target)
        return ("redis", where, self.key_prefix, self.layout, self.ttl, self.wait_replicas)

    def _constructor_arguments(self) -> dict[str, Any]:
        return {
            "redis_client": self._target,
            "key_prefix": self.key_prefix,
            "ttl": self.ttl,
            "layout": self.layout,
            "wait_replicas": self.wait_replicas,
        }


def _is_cluster(client: AsyncClient | Address) -> bool:
    return client.is_cluster if isinstance(client, Address) else is_cluster_client(client)


def _place(target: Any) -> Hashable:
    """Return a key for the server and database, equal for all clients; for a client with an unknown address, the
    client's identity.
    """
    if isinstance(target, Address):
        options = tuple((name, str(value)) for name, value in target.options if name in _PLACE and value is not None)
        return _place_of_url(target.url, target.is_cluster, options)
    made_by = getattr(getattr(target, "connection_pool", None), "connection_class", None)
    if getattr(made_by, "__module__", "") != "redis.asyncio.connection":
        return id(target)  # a cluster's, a mock's, or one that looks up its server's address
    return _place_in(target.get_connection_kwargs())


_PLACE = ("host", "port", "path", "db")


@lru_cache(maxsize=256)
def _place_of_url(url: str, is_cluster: bool, options: tuple[tuple[str, str], ...]) -> Hashable:
    given = {**dict(options), **parse_url(url)}  # type: ignore[no-untyped-call]  # to redis-py the URL's word is the last
    return ("cluster", _place_in(given)) if is_cluster else _place_in(given)


def _place_in(given: Mapping[str, Any]) -> Hashable:
    # As texts: connecting says what is wrong with a number that is none.
    where = str(given["path"]) if given.get("path") else (host_key(given.get("host")), str(given.get("port") or 6379))
    return where, str(given.get("db") or 0)


def _checked_client(client: AsyncClient | Address) -> AsyncClient | Address:
    if isinstance(client, Address) or (hasattr(client, "execute_command") and not isinstance(client, _BLOCKING)):
        return client
    raise SettingTypeError(
        f"{describe_type(client)} of {type(client).__module__} is no asynchronous Redis client",
        "Give a client of redis.asyncio, or use RedisSession.from_url(session_id, url=...).",
    )


_BLOCKING = (redis.Redis, redis.RedisCluster)
_URL_REMEDY = "Give a URL like redis://host:6379/0, rediss://… for TLS, or unix://path."


def _checked_url(url: object) -> str:
    if not isinstance(url, str):
        raise InvalidSettingError(f"{describe_type(url)} names no Redis server", _URL_REMEDY)
    return _check_url(url)


@lru_cache(maxsize=256)
def _check_url(url: str) -> str:
    _, *behind = re.split("[/?#]", url.partition("://")[2], maxsplit=1)
    try:
        parse_url(url)  # type: ignore[no-untyped-call]
        number = urlsplit(url).path.strip("/")
        if number and not number.isdecimal() and not url.startswith("unix:"):  # redis-py would take number 0 instead
            raise ValueError(f"{number!r} is no number of a Redis database")
    except ValueError as error:
        if "@" in "".join(behind):  # then what is wrong may be a part of a password
            raise InvalidSettingError(
                "this is no URL of a Redis server: there is a /, ? or # before its @",
                f"{_URL_REMEDY} In a password they are written as %2F, %3F and %23.",
            ) from None
        raise InvalidSettingError(f"this is no URL of a Redis server: {error}", _URL_REMEDY) from None
    return url


def _checked_prefix(prefix: object) -> str:
    if isinstance(prefix, str) and prefix:
        return prefix
    raise InvalidNameError(f"a key_prefix of {prefix!r} names no keys", "Give a non-empty string.")


def _checked_replicas(count: object) -> int:
    if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= 1000:
        return count
    raise CallerError(f"wait_replicas={count!r} is no number of replicas", "Give a whole number, 0 to wait for none.")


def _checked_ttl(ttl: int | Literal["keep"] | None) -> int | Literal["keep"] | None:
    if ttl is None or ttl == "keep" or (isinstance(ttl, int) and not isinstance(ttl, bool) and 0 < ttl <= 2**40):
        found: int | Literal["keep"] | None = ttl
        return found
    raise CallerError(
        f"a ttl of {ttl!r} is no expiry", 'Give a whole number of seconds above zero, None for no expiry, or "keep".'
    )
