"""What the OpenAI Agents SDK documents as `agents.mcp.server`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.mcp_servers.http import (
        MCPServerSse,
        MCPServerSseParams,
        MCPServerStreamableHttp,
        MCPServerStreamableHttpParams,
    )
    from standfast.mcp_servers.server import (
        LocalMCPApprovalCallable,
        MCPServer,
        RequireApprovalObject,
        RequireApprovalPolicy,
        RequireApprovalSetting,
        RequireApprovalToolList,
    )
    from standfast.mcp_servers.stdio import MCPServerStdio, MCPServerStdioParams

__all__ = [
    "LocalMCPApprovalCallable",
    "MCPServer",
    "MCPServerSse",
    "MCPServerSseParams",
    "MCPServerStdio",
    "MCPServerStdioParams",
    "MCPServerStreamableHttp",
    "MCPServerStreamableHttpParams",
    "RequireApprovalObject",
    "RequireApprovalPolicy",
    "RequireApprovalSetting",
    "RequireApprovalToolList",
]
__getattr__, __dir__ = lazy(__name__)
