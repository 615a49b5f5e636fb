"""What the OpenAI Agents SDK documents as `agents.mcp`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.mcp_servers.filters import (
        ToolFilter,
        ToolFilterCallable,
        ToolFilterContext,
        ToolFilterStatic,
        create_static_tool_filter,
    )
    from standfast.mcp_servers.http import (
        MCPServerSse,
        MCPServerSseParams,
        MCPServerStreamableHttp,
        MCPServerStreamableHttpParams,
    )
    from standfast.mcp_servers.manager import MCPServerManager
    from standfast.mcp_servers.server import (
        LocalMCPApprovalCallable,
        MCPServer,
        MCPToolCustomDataExtractor,
        MCPToolMetaResolver,
    )
    from standfast.mcp_servers.stdio import MCPServerStdio, MCPServerStdioParams
    from standfast.tools.mcp import MCPToolCustomDataContext, MCPToolMetaContext, MCPUtil

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
