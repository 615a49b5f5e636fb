"""What the OpenAI Agents SDK documents as `agents.agent`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.agent import (
        Agent,
        AgentBase,
        MCPConfig,
        StopAtTools,
        ToolsToFinalOutputFunction,
        ToolsToFinalOutputResult,
    )
    from ._src.agents.as_tool import AgentToolStreamEvent

__all__ = [
    "Agent",
    "AgentBase",
    "AgentToolStreamEvent",
    "MCPConfig",
    "StopAtTools",
    "ToolsToFinalOutputFunction",
    "ToolsToFinalOutputResult",
]
__getattr__, __dir__ = lazy(__name__)
