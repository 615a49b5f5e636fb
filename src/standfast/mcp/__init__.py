"""What the OpenAI Agents SDK documents as `agents.mcp`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tools.mcp.http import (
        MCPServerSse as MCPServerSse,
        MCPServerSseParams as MCPServerSseParams,
        MCPServerStreamableHttp as MCPServerStreamableHttp,
        MCPServerStreamableHttpParams as MCPServerStreamableHttpParams,
    )
    from standfast._src.tools.mcp.manager import MCPServerManager as MCPServerManager
    from standfast._src.tools.mcp.server import (
        LocalMCPApprovalCallable as LocalMCPApprovalCallable,
        MCPServer as MCPServer,
        MCPToolCustomDataExtractor as MCPToolCustomDataExtractor,
        MCPToolMetaResolver as MCPToolMetaResolver,
    )
    from standfast._src.tools.mcp.stdio import (
        MCPServerStdio as MCPServerStdio,
        MCPServerStdioParams as MCPServerStdioParams,
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
