"""What the OpenAI Agents SDK documents as `agents.extensions`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.agents.tool_output_trimmer import ToolOutputTrimmer as ToolOutputTrimmer

__getattr__, __dir__ = lazy(__name__)
