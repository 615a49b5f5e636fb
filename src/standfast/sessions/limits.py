"""The SDK's functions about session settings."""

from __future__ import annotations

from typing import Any

from standfast.sessions.protocol import SessionSettings, coerce_settings


def coerce_session_settings(value: SessionSettings | dict[str, Any]) -> SessionSettings:
    """`value` as SessionSettings: an instance is kept, a dict is read."""
    return coerce_settings(value)


def resolve_session_limit(explicit_limit: int | None, settings: SessionSettings | dict[str, Any] | None) -> int | None:
    """The limit that counts: the one that is given, else the settings'; None for no limit."""
    if explicit_limit is not None:
        return explicit_limit
    return None if settings is None else coerce_settings(settings).limit
