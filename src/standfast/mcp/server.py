"""What the OpenAI Agents SDK documents as `agents.mcp.server`.

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
    from standfast._src.tools.mcp.server import (
        LocalMCPApprovalCallable,
        MCPServer,
        RequireApprovalObject,
        RequireApprovalPolicy,
        RequireApprovalSetting,
        RequireApprovalToolList,
    )
    from standfast._src.tools.mcp.stdio import MCPServerStdio, MCPServerStdioParams

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
