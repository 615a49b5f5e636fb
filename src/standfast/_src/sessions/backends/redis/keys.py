"""Keys of a name in each of the two layouts.

Layout "sdk" is the OpenAI Agents SDK's, with further keys beside its own. In layout "tagged" every key of a name, and
its part of the index, has one of 256 hash tags, so that a step of several names stays within a slot of a cluster.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Literal, NamedTuple

from standfast._src.sessions.storage import Kind, Name

Layout = Literal["sdk", "tagged"]

BUCKETS = 256
# An id that ends (or begins) so would meet a key of another session; a suffix that no other id can have keeps it apart.
# The second beginning is that of the other layout's keys, which may stand below the same prefix.
_RESERVED = re.compile(r"^standfast-|^\{sf\d+\}:|:(messages|counter|standfast(:names|:boxes)?|_)\Z")


def to_bytes(text: str) -> bytes:
    """Any string as bytes; lone surrogates included, so that no id is refused (A18)."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    """Decode bytes of `to_bytes`."""
    return data.decode("utf-8", "surrogatepass")


def bucket_of(text: str) -> int:
    """Return the number of an id's hash tag."""
    return hashlib.blake2b(to_bytes(text), digest_size=1).digest()[0]


class NameKeys(NamedTuple):
    """Keys of a name, with a function for the keys of its indexes."""

    keys: tuple[bytes, ...]
    """meta, rows, counter (the SDK's, legacy), cells, names of cells, boxes, index."""
    index_of: Callable[[Kind, tuple[str, str]], bytes]
    is_shared: bool
    """Whether the SDK may write to them as well; then all sessions are in one index."""
    id: bytes
    """What the indexes have of it."""


class Keys:
    """Makes keys."""

    def __init__(self, prefix: str, layout: Layout) -> None:
        self.prefix, self.layout = prefix, layout
        # Those of the latest names are remembered: making them takes longer than packing the command that names them.
        self.of = lru_cache(10_000)(self._build_keys)

    def root(self, bucket: int = 0) -> str:
        """Return the common beginning of our keys that belong to no single session."""
        return f"{self.prefix}:standfast-" if self.layout == "sdk" else f"{self.prefix}:{{sf{bucket}}}:"

    @property
    def shorter_prefixes(self) -> list[str]:
        """Prefixes continued by the present prefix: in layout "sdk" a session id below a shorter prefix can name its
        keys.
        """
        parts = self.prefix.split(":")
        return [short for end in range(1, len(parts)) if (short := ":".join(parts[:end]))]

    @property
    def buckets(self) -> range:
        """Numbers of all hash tags."""
        return range(BUCKETS if self.layout == "tagged" else 1)

    def index(self, bucket: int, kind: Kind, label: tuple[str, str] | None = None) -> bytes:
        """Return the key of the index of a kind, or of its names with a given label."""
        return to_bytes(f"{self.root(bucket)}{kind}s" + ("" if label is None else f":{label[0]}:{label[1]}"))

    def _build_keys(self, name: Name, bucket: int = 0) -> NameKeys:
        """The keys of a name. `bucket` is used by layout "tagged" only."""
        if self.layout == "sdk":
            id_ = f"{name.id}:_" if _RESERVED.search(name.id) else name.id
            base = f"{self.prefix}:{id_}" if name.kind == "session" else f"{self.root()}run:{id_}"
            parts = [base + end for end in _ENDS]
        else:
            parts = [f"{self.root(bucket)}{name.kind}{end or ':meta'}:{name.id}" for end in _ENDS]
        keys = (*map(to_bytes, parts), self.index(bucket, name.kind))
        return NameKeys(keys, partial(self.index, bucket), self.layout == "sdk", to_bytes(name.id))


_ENDS = ("", ":messages", ":counter", ":standfast", ":standfast:names", ":standfast:boxes")


def session_of(key: bytes, prefix: str) -> str | None:
    """Return the session of a meta key in layout "sdk"; None for every other key below the prefix."""
    text = to_text(key)[len(prefix) + 1 :]
    if text.endswith(":_"):
        return text[:-2] if _RESERVED.search(text[:-2]) else None
    return None if _RESERVED.search(text) else text
