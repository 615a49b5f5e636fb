"""Identity of the conversation behind a session object, across objects, wrappers and spellings."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path, PurePath

_STORE_NAMES = (
    *("store", "engine", "client", "redis_client", "redis", "connection", "pool", "url", "dsn", "db_path", "path"),
    *("file", "folder", "database", "namespace", "prefix", "key_prefix", "sessions_table", "messages_table"),
)
"""What sessions call what they are kept in; with or without a leading underscore."""


def conversation_key(session: object) -> Hashable:
    """Return a key that is equal for all session objects of the same conversation in this process.

    Sessions of standfast have their own key. A wrapper has the key of its wrapped session. A foreign session is
    identified by its class, its id and the attributes that name its store (a path in any spelling is one path); without
    such attributes, or with a store private to the object, by the object itself.
    """
    wrapped, seen = session, {id(session)}
    while (inner := getattr(wrapped, "underlying_session", None)) is not None and id(inner) not in seen:
        wrapped = inner
        seen.add(id(inner))
    own = getattr(type(wrapped), "conversation_key", None)
    if callable(own):
        key: Hashable = own(wrapped)
        return key
    values = vars(wrapped) if hasattr(wrapped, "__dict__") else {}
    named = {name.lstrip("_"): value for name, value in values.items()}
    parts = [(name, _normalise_path(named[name])) for name in _STORE_NAMES if name in named]
    try:
        session_id = getattr(wrapped, "session_id", None)
    except ValueError:  # one that has no id before its first use
        session_id = None
    is_private = session_id is None or not parts or ":memory:" in (value for _, value in parts)
    try:
        hash(tuple(parts))
    except TypeError:
        is_private = True
    return _ById(wrapped) if is_private else (type(wrapped), session_id, tuple(parts))


def _normalise_path(value: object) -> Hashable:
    """Normalise a path in any spelling; return any other value unchanged."""
    if isinstance(value, PurePath) or (isinstance(value, str) and value != ":memory:" and "://" not in value):
        return str(Path(value).resolve()) if str(value) else ""
    return value if isinstance(value, Hashable) else _ById(value)


@dataclass(frozen=True, eq=False)
class _ById:
    """An object as a key: equal only to itself, whatever its own `==`, and alive as long as the key."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)
