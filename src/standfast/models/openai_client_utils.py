"""What the OpenAI Agents SDK documents as `agents.models.openai_client_utils`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.providers.addresses import is_official_openai_base_url, is_official_openai_client

__all__ = ["is_official_openai_base_url", "is_official_openai_client"]
__getattr__, __dir__ = lazy(__name__)
