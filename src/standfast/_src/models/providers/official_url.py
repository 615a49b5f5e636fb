"""Recognition of OpenAI's own addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from openai import AsyncOpenAI

OFFICIAL_HOSTS = ("api.openai.com", "eu.api.openai.com", "us.api.openai.com")

FAKE_RESPONSES_ID = "__fake_id__"
"""The id that the SDK gives to items which no provider has named. standfast leaves the id out, and takes this one out
of what it sends."""


def is_official_openai_base_url(base_url: object, *, websocket: bool = False) -> bool:
    """Return whether an address belongs to OpenAI's own API."""
    parts = urlsplit(str(base_url))
    return parts.scheme == ("wss" if websocket else "https") and (parts.hostname or "") in OFFICIAL_HOSTS


def is_official_openai_client(client: AsyncOpenAI) -> bool:
    """Return whether a client uses OpenAI's own API."""
    return is_official_openai_base_url(getattr(client, "base_url", ""))
