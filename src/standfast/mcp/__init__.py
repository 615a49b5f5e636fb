"""What the OpenAI Agents SDK documents as `agents.mcp`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tools.mcp.http import (
        MCPServerSse,
        MCPServerSseParams,
        MCPServerStreamableHttp,
        MCPServerStreamableHttpParams,
    )
    from standfast._src.tools.mcp.manager import MCPServerManager
    from standfast._src.tools.mcp.server import (
        LocalMCPApprovalCallable,
        MCPServer,
        MCPToolCustomDataExtractor,
        MCPToolMetaResolver,
    )
    from standfast._src.tools.mcp.stdio import MCPServerStdio, MCPServerStdioParams
    from standfast._src.tools.mcp.tool_filters import (
        ToolFilter,
        ToolFilterCallable,
        ToolFilterContext,
        ToolFilterStatic,
        create_static_tool_filter,
    )
    from standfast._src.tools.mcp_tools import MCPToolCustomDataContext, MCPToolMetaContext, MCPUtil

__all__ = [
    "LocalMCPApprovalCallable",
    "MCPServer",
    "MCPServerManager",
    "MCPServerSse",
    "MCPServerSseParams",
    "MCPServerStdio",
    "MCPServerStdioParams",
    "MCPServerStreamableHttp",
    "MCPServerStreamableHttpParams",
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
