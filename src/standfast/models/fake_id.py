"""What the OpenAI Agents SDK documents as `agents.models.fake_id`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.models.providers.official_url import FAKE_RESPONSES_ID as FAKE_RESPONSES_ID

__getattr__, __dir__ = lazy(__name__)
