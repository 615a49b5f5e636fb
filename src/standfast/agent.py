"""What the OpenAI Agents SDK documents as `agents.agent`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.agent import (
        Agent as Agent,
        AgentBase as AgentBase,
        MCPConfig as MCPConfig,
        StopAtTools as StopAtTools,
        ToolsToFinalOutputFunction as ToolsToFinalOutputFunction,
        ToolsToFinalOutputResult as ToolsToFinalOutputResult,
    )
    from ._src.agents.as_tool import AgentToolStreamEvent as AgentToolStreamEvent

__getattr__, __dir__ = lazy(__name__)
