"""What the OpenAI Agents SDK documents as `agents.mcp.util`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tools.mcp.server import HttpClientFactory, MCPToolCustomDataExtractor, MCPToolMetaResolver
    from standfast._src.tools.mcp.tool_filters import (
        ToolFilter,
        ToolFilterCallable,
        ToolFilterContext,
        ToolFilterStatic,
        create_static_tool_filter,
    )
    from standfast._src.tools.mcp_tools import MCPToolCustomDataContext, MCPToolMetaContext, MCPUtil

__all__ = [
    "HttpClientFactory",
    "MCPToolCustomDataContext",
    "MCPToolCustomDataExtractor",
    "MCPToolMetaContext",
    "MCPToolMetaResolver",
    "MCPUtil",
    "ToolFilter",
    "ToolFilterCallable",
    "ToolFilterContext",
    "ToolFilterStatic",
    "create_static_tool_filter",
]
__getattr__, __dir__ = lazy(__name__)
