"""What the OpenAI Agents SDK documents as `agents.models.openai_client_utils`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.models.providers.official_url import (
        is_official_openai_base_url as is_official_openai_base_url,
        is_official_openai_client as is_official_openai_client,
    )

__getattr__, __dir__ = lazy(__name__)
