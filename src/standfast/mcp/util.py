"""What the OpenAI Agents SDK documents as `agents.mcp.util`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tools.mcp.server import (
        HttpClientFactory as HttpClientFactory,
        MCPToolCustomDataExtractor as MCPToolCustomDataExtractor,
        MCPToolMetaResolver as MCPToolMetaResolver,
    )
    from standfast._src.tools.mcp.tool_filters import (
        ToolFilter as ToolFilter,
        ToolFilterCallable as ToolFilterCallable,
        ToolFilterContext as ToolFilterContext,
        ToolFilterStatic as ToolFilterStatic,
        create_static_tool_filter as create_static_tool_filter,
    )
    from standfast._src.tools.mcp_tools import (
        MCPToolCustomDataContext as MCPToolCustomDataContext,
        MCPToolMetaContext as MCPToolMetaContext,
        MCPUtil as MCPUtil,
    )

__getattr__, __dir__ = lazy(__name__)
