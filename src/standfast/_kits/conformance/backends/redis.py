"""`RedisSession` for the kit: a server or a cluster, on which each check has keys under a prefix of its own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import redis
import redis.asyncio
import redis.exceptions as failed
from redis.cluster import RedisCluster

from standfast._kits.conformance.backend import Backend
from standfast._kits.conformance.check_context import message
from standfast._kits.operators.open_store import open_store
from standfast._src.sessions.backends.redis.connection import redis_address
from standfast._src.sessions.backends.redis.keys import Keys, bucket_of
from standfast._src.sessions.backends.redis.redis_errors import refused_error, unreachable
from standfast._src.sessions.backends.redis.redis_session import RedisSession
from standfast._src.sessions.storage import Name

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store
    from standfast._src.sessions.backends.redis.keys import Layout

ANSWER_S_MAX = 20.0
SCAN = 1_000
FEW_KEYS = 100_000
# Finding the keys of a prefix reads all keys of the server. Where there are more than these, the keys of the checks are
# removed once, at the end, and not after each check.


class RedisBackend(Backend):
    """`RedisSession` on a server, or with `is_cluster` on a cluster."""

    name = "RedisSession"
    persistent = True
    opens_before_setup = True
    closes_when_called = True
    remote = True
    names: Mapping[str, Any] = {"key_prefix": "other:prefix"}
    bad_names: tuple[Mapping[str, Any], ...] = ({"key_prefix": ""}, {"key_prefix": None})
    not_applicable: Mapping[str, str] = {
        "A23": "what survives a killed server is the server's setting; the page on Redis says what each promises",
    }

    url = "redis://127.0.0.1:1/0"
    """The way of the sessions to the server. Before `setup` no session asks it."""
    direct = ""
    """The way of the faults to the server."""
    is_cluster = False
    layout: Layout = "sdk"
    scratch = "kit"
    """Beginning of every key."""
    removes_keys = False
    """Whether the keys of a check are removed at its end."""

    @property
    def prefix(self) -> str:
        """Prefix of the keys of the present check."""
        return f"{self.scratch}:{self.unique}"

    def client_options(self) -> dict[str, Any]:
        """Return the options of the connections of sessions."""
        return {}

    def open(self, session_id: str, **options: Any) -> Any:
        """Return a session below the prefix of the check, or below the prefix of the options."""
        prefix = options.pop("key_prefix", self.prefix)
        if prefix and prefix != self.prefix:
            prefix = f"{self.scratch}:{prefix}:{self.unique}"
        where = {"url": self.url, "cluster": self.is_cluster, "layout": self.layout, "key_prefix": prefix}
        return RedisSession.from_url(session_id, redis_kwargs=self.client_options(), **where, **options)

    def whole_store(self, *, read_only: bool = False) -> Store:
        """Open the keys of the check."""
        url = self.direct if self.is_cluster else self.url
        options = f"key_prefix={quote(self.prefix)}&layout={self.layout}{'&cluster=1' if self.is_cluster else ''}"
        return open_store(f"{url}{'&' if '?' in url else '?'}{options}", read_only=read_only)

    def teardown(self) -> None:
        """Remove the keys of the check, if finding them costs little."""
        if self.removes_keys:
            with self._client() as client:
                if _key_count(client) <= FEW_KEYS:
                    remove_keys(client, f"{self.scratch}:*{self.unique}")

    # --- faults

    def _client(self) -> Any:
        return connect(self.direct, self.is_cluster)

    def _keys(self, session_id: str) -> tuple[bytes, ...]:
        bucket = bucket_of(session_id) if self.is_cluster else 0
        return Keys(self.prefix, self.layout).of(Name("session", session_id), bucket).keys

    def inject_record(self, session_id: str, data: bytes) -> None:
        """Put bytes behind the newest record, as a faulty program would."""
        with self._client() as client:
            client.rpush(self._keys(session_id)[1], data)

    def raw_records(self, session_id: str) -> list[bytes]:
        """Every record, without the white space that names its writer."""
        with self._client() as client:
            rows: Any = client.lrange(self._keys(session_id)[1], 0, -1)
            return [row.rstrip() if row.endswith(b"} ") else row for row in rows]

    def shift_times(self, session_id: str, seconds: float) -> None:
        """Move the times in both forms: those of the SDK in seconds, and standfast's own in microseconds."""
        meta = self._keys(session_id)[0]
        own = ("standfast_created", "standfast_updated")
        with self._client() as client:
            for field in ("created_at", "updated_at", *own):
                found: Any = client.hget(meta, field)
                if found is not None:
                    factor = 1_000_000 if field in own else 1
                    client.hset(meta, field, str(int(int(found) + seconds * factor)))

    def stored_times(self, session_id: str) -> tuple[datetime, datetime] | None:
        """Read standfast's own times."""
        with self._client() as client:
            found: Any = client.hmget(self._keys(session_id)[0], ["standfast_created", "standfast_updated"])
        if None in found:
            return None
        created, updated = (datetime.fromtimestamp(int(value) / 1e6, UTC) for value in found)
        return created, updated

    def expiring(self, session_id: str, seconds: int) -> Any:
        """Return a session with an expiry."""
        return self.open(session_id, ttl=seconds)

    def handed_in(self, session_id: str) -> tuple[Any, Callable[[], Awaitable[Any]]]:
        """Return a session that was given an asyncio client."""
        kind: Any = redis.asyncio.RedisCluster if self.is_cluster else redis.asyncio.Redis
        client = kind.from_url(self.direct)

        async def still_works() -> None:
            assert await client.ping()
            again = RedisSession(session_id, redis_client=client, key_prefix=self.prefix)
            await again.add_items([message("again")])
            assert len(await again.get_items()) == 3
            await client.aclose()

        return RedisSession(session_id, redis_client=client, key_prefix=self.prefix), still_works


@contextmanager
def connect(url: str, is_cluster: bool) -> Iterator[Any]:
    """Open a client for faults and verifications; errors have the words of the backend."""
    options: dict[str, Any] = {
        "decode_responses": False, "socket_timeout": ANSWER_S_MAX, "socket_connect_timeout": 5.0,
    }  # fmt: skip
    try:
        client: Any = (RedisCluster if is_cluster else redis.Redis).from_url(url, **options)
        try:
            yield client
        finally:
            client.close()
    except failed.ResponseError as error:
        raise refused_error(error) from error
    except (failed.RedisError, OSError) as error:
        raise unreachable(error, redis_address(url)) from error


def scan_keys(client: redis.Redis | RedisCluster, pattern: str) -> Iterator[bytes]:
    """Yield the keys of a server that match a pattern."""
    yield from client.scan_iter(match=pattern, count=SCAN)


def remove_keys(client: redis.Redis | RedisCluster, begins: str, but: str = "") -> None:
    """Remove the keys with this beginning; a `*` matches any text."""
    for key in scan_keys(client, f"{begins}*"):
        if key != but.encode():
            client.unlink(key)


def _key_count(client: redis.Redis | RedisCluster) -> int:
    found = client.dbsize()
    return sum(found.values()) if isinstance(found, dict) else int(found)
