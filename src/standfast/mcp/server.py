"""What the OpenAI Agents SDK documents as `agents.mcp.server`.

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
    from standfast._src.tools.mcp.server import (
        LocalMCPApprovalCallable as LocalMCPApprovalCallable,
        MCPServer as MCPServer,
        RequireApprovalObject as RequireApprovalObject,
        RequireApprovalPolicy as RequireApprovalPolicy,
        RequireApprovalSetting as RequireApprovalSetting,
        RequireApprovalToolList as RequireApprovalToolList,
    )
    from standfast._src.tools.mcp.stdio import (
        MCPServerStdio as MCPServerStdio,
        MCPServerStdioParams as MCPServerStdioParams,
    )

__getattr__, __dir__ = lazy(__name__)
