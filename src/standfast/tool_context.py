"""What the OpenAI Agents SDK documents as `agents.tool_context`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.tool_context import ToolContext as ToolContext

__getattr__, __dir__ = lazy(__name__)
