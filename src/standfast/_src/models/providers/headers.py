"""Headers of requests, with a replacement for the current task."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

HEADERS: dict[str, str] = {"User-Agent": "standfast/python"}
"""Headers that name the client to a provider."""

HEADERS_OVERRIDE: ContextVar[dict[str, str] | None] = ContextVar("standfast_chat_headers", default=None)
"""Headers for the Chat Completions requests of the current task; they replace those of `extra_headers`."""

_HEADERS_OVERRIDE: ContextVar[dict[str, str] | None] = ContextVar("standfast_responses_headers", default=None)
"""Headers for the Responses requests of the current task; they replace those of `extra_headers`."""


def override_headers(arguments: dict[str, Any], override: ContextVar[dict[str, str] | None]) -> dict[str, Any]:
    """Return the arguments of a request with the headers of the current task."""
    headers = override.get()
    if not headers:
        return arguments
    return {**arguments, "extra_headers": {**(arguments.get("extra_headers") or {}), **headers}}
