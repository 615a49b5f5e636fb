"""Verifying a Redis or Valkey server, or a cluster: keys under a prefix of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import redis
import redis.exceptions as failed
from redis.cluster import RedisCluster

from standfast._kits.conformance.backend import Backend
from standfast._kits.operators.open_store import open_store
from standfast._kits.operators.store_url import StoreURL, only
from standfast._kits.verifying.scratch_space import HARMLESS, PREFIX, SILENT_S, Beat, Leftover, Site, base_of, new_name
from standfast._src.sessions.backends.redis.connection import redis_address
from standfast._src.sessions.backends.redis.keys import Keys, Layout, bucket_of
from standfast._src.sessions.backends.redis.redis_errors import refused_error, unreachable
from standfast._src.sessions.backends.redis.redis_session import RedisSession
from standfast._src.sessions.backends.sqlite.process_liveness import is_gone, this_process
from standfast._src.sessions.storage import Name

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store

ANSWER_S_MAX = 20.0
SCAN = 1_000
FEW_KEYS = 100_000
# Finding the keys of a prefix reads all keys of the server. Where there are more than these, what the checks wrote is
# removed once, at the end, and not after each of them.


class LiveRedis(Backend):
    """Server with other users: every check has a prefix below the scratch name."""

    persistent = True
    closes_when_called = True
    remote = True
    permitted = HARMLESS | {"processes", "import", "expiring", "inject_record"}
    names: Mapping[str, Any] = {"key_prefix": "other"}
    not_applicable: Mapping[str, str] = {"A23": "what survives a killed server is the server's setting"}

    def __init__(self, url: str, layout: Layout, is_cluster: bool) -> None:
        self.name = "redis cluster" if is_cluster else "redis"
        self.url, self.layout, self.is_cluster = url, layout, is_cluster
        self.scratch = ""
        self.unique = "probe"

    @property
    def prefix(self) -> str:
        """Prefix of the present check's keys."""
        return f"{self.scratch}:{self.unique}"

    def open(self, session_id: str, **options: Any) -> RedisSession:
        """A session below the scratch name."""
        other = options.pop("key_prefix", None)
        return RedisSession.from_url(
            session_id,
            url=self.url,
            cluster=self.is_cluster,
            layout=self.layout,
            key_prefix=self.prefix if other is None else f"{self.scratch}:{other}:{self.unique}",
            **options,
        )

    def whole_store(self, *, read_only: bool = False) -> Store:
        """Open everything below this check's prefix as a store."""
        mark = "&" if "?" in self.url else "?"
        cluster = "&cluster=1" if self.is_cluster else ""
        url = f"{self.url}{mark}key_prefix={quote(self.prefix)}&layout={self.layout}{cluster}"
        return open_store(url, read_only=read_only)

    def teardown(self) -> None:
        """Remove the check's keys, if finding them costs little."""
        if not self.scratch:
            return  # only its abilities were asked for: nothing was opened
        with connect(self.url, self.is_cluster) as client:
            if _key_count(client) <= FEW_KEYS:
                remove_keys(client, f"{self.scratch}:*{self.unique}")

    def expiring(self, session_id: str, seconds: int) -> RedisSession:
        """Return a session with an expiry."""
        return self.open(session_id, ttl=seconds)

    def inject_record(self, session_id: str, data: bytes) -> None:
        """Put bytes behind the newest record, as a faulty program would."""
        bucket = bucket_of(session_id) if self.is_cluster else 0
        found = Keys(self.prefix, self.layout).of(Name("session", session_id), bucket)
        with connect(self.url, self.is_cluster) as client:
            client.rpush(found.keys[1], data)


class RedisSite(Site):
    """A scratch prefix on a server."""

    def __init__(self, url: StoreURL) -> None:
        options = only(url, "key_prefix", "layout", "cluster")
        is_cluster = options.get("cluster", "").lower() in ("1", "true", "yes")
        layout: Any = options.get("layout") or ("tagged" if is_cluster else "sdk")
        self._url = url
        self._live = LiveRedis(url.text, layout, is_cluster)
        self._beat: Beat | None = None
        super().__init__(self._live)
        self.where = f"{url.shown}, in keys that begin with {PREFIX}"
        self.writes = (
            "Some ten thousand small values under such keys, a few megabytes at a time; all are removed afterwards.",
            "Keys of others are neither read nor written. A server that evicts keys when its memory is full may evict "
            "others' for these.",
        )

    def leftovers(self) -> list[Leftover]:
        """Return scratch names with keys; a name without a sign of life is dead."""
        with connect(self._url.text, self._live.is_cluster) as client:
            found = {base_of(key.decode(errors="replace")) for key in _keys(client, f"{PREFIX}*")} - {None}
            return [Leftover(name, _is_dead(client.get(_alive(name)))) for name in sorted(filter(None, found))]

    def begin(self) -> None:
        """Mark a new scratch name as used, and renew the mark."""
        self.name = self._live.scratch = new_name()
        self._say()
        self._beat = Beat(self._say)

    def _say(self) -> None:
        with connect(self._url.text, self._live.is_cluster) as client:
            client.set(_alive(self.name), this_process() or "", ex=SILENT_S)

    def remove(self, name: str) -> None:
        """Remove every key below the name."""
        with connect(self._url.text, self._live.is_cluster) as client:
            remove_keys(client, f"{name}:", but=_alive(name))
            client.unlink(_alive(name))  # last: until then what is left still says whose it is

    def end(self) -> None:
        """Remove our own."""
        if self._beat is not None:
            self._beat.stop()
        if self.name:
            self.remove(self.name)


def _alive(name: str) -> str:
    return f"{name}:alive"


def _is_dead(said: bytes | None) -> bool:
    """Return True if the scratch name has no sign of life, or a crashed process's name."""
    return said is None or is_gone(said.decode(errors="replace"))


@contextmanager
def connect(url: str, is_cluster: bool) -> Iterator[Any]:
    """Open a client for the verification; errors have the backend's words."""
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


def _key_count(client: redis.Redis | RedisCluster) -> int:
    found = client.dbsize()
    return sum(found.values()) if isinstance(found, dict) else int(found)


def _keys(client: redis.Redis | RedisCluster, pattern: str) -> Iterator[bytes]:
    yield from client.scan_iter(match=pattern, count=SCAN)


def remove_keys(client: redis.Redis | RedisCluster, begins: str, but: str = "") -> None:
    """Remove the keys with this beginning, a scratch name and nothing else; a `*` stands for any text."""
    assert base_of(begins) is not None, begins
    for key in _keys(client, f"{begins}*"):
        if key != but.encode():
            client.unlink(key)
