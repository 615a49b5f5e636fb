"""Backends on servers, for the kit: each session reaches its server through a proxy that can misbehave."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import redis
from agents.extensions.memory import RedisSession as AgentsRedisSession

from standfast.backends.redis.keys import Keys
from standfast.backends.redis.scripts import COMMIT
from standfast.backends.redis.session import RedisSession
from standfast.conformance.network import Networked, Proxy
from standfast.sessions.port import Name
from tests.helpers import servers


def through(url: str, is_write: Any) -> tuple[Proxy, str]:
    """A proxy before the server of a URL, and the URL that leads through it."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy((parts.hostname, parts.port), is_write)
    return proxy, url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{proxy.port}")


def _is_commit(sent: bytes) -> bool:
    return COMMIT.sha.encode() in sent or COMMIT.text[:200].encode() in sent


class StandfastRedis(Networked):
    name = "RedisSession"
    persistent = True
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
        url = self.url or "redis://127.0.0.1:1/0"  # for a look at its abilities, before there is a server
        return RedisSession.from_url(session_id, url=url, key_prefix=prefix, **options)

    # --- faults

    def _client(self) -> redis.Redis:
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
