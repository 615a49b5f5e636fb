"""Verification of a Redis or Valkey server, or of a cluster, in keys under a prefix of their own."""

from __future__ import annotations

from typing import Any

from standfast._kits.conformance.backends.redis import RedisBackend, connect, remove_keys, scan_keys
from standfast._kits.conformance.live.scratch_space import (
    HARMLESS,
    PREFIX,
    SILENT_S,
    Beat,
    Leftover,
    Site,
    base_of,
    new_name,
)
from standfast._kits.operators.store_url import StoreURL, only
from standfast._src.sessions.backends.sqlite.process_liveness import is_gone, this_process

PERMITTED = HARMLESS | {"processes", "import", "expiring", "inject_record"}


class RedisSite(Site):
    """A scratch prefix on a server."""

    def __init__(self, url: StoreURL) -> None:
        options = only(url, "key_prefix", "layout", "cluster")
        is_cluster = options.get("cluster", "").lower() in ("1", "true", "yes")
        layout: Any = options.get("layout") or ("tagged" if is_cluster else "sdk")
        self._url = url
        live = self._live = RedisBackend()
        live.url = live.direct = url.text
        live.is_cluster, live.layout, live.permitted, live.removes_keys = is_cluster, layout, PERMITTED, True
        self._beat: Beat | None = None
        super().__init__(self._live)
        self.where = f"{url.shown}, in keys that begin with {PREFIX}"
        self.writes = (
            "Some ten thousand small values under such keys, a few megabytes at a time; all are removed afterwards.",
            "No other key is read or written. A server that evicts keys when its memory is full may evict some of "
            "another program for these.",
        )

    def leftovers(self) -> list[Leftover]:
        """Return scratch names with keys; a name without a sign of life is dead."""
        with connect(self._url.text, self._live.is_cluster) as client:
            found = {base_of(key.decode(errors="replace")) for key in scan_keys(client, f"{PREFIX}*")} - {None}
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
        assert base_of(name) == name, name
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
