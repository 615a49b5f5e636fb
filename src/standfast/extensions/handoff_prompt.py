"""What the OpenAI Agents SDK documents as `agents.extensions.handoff_prompt`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.agents.handoff_prompt import (
        RECOMMENDED_PROMPT_PREFIX as RECOMMENDED_PROMPT_PREFIX,
        prompt_with_handoff_instructions as prompt_with_handoff_instructions,
    )

__getattr__, __dir__ = lazy(__name__)
