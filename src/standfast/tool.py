"""What the OpenAI Agents SDK documents as `agents.tool`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._doors.lazy import lazy

if TYPE_CHECKING:
    from .tools.function import (
        FunctionTool,
        FunctionToolCustomDataContext,
        FunctionToolResult,
        default_tool_error_function,
        function_tool,
        tool_namespace,
    )
    from .tools.hosted import (
        CodeInterpreterTool,
        FileSearchTool,
        HostedMCPTool,
        ImageGenerationTool,
        ImageGenerationToolConfig,
        MCPToolApprovalFunction,
        MCPToolApprovalFunctionResult,
        MCPToolApprovalRequest,
        Tool,
        ToolSearchTool,
        WebSearchTool,
        WebSearchToolImageSettings,
    )
    from .words.items import ToolOrigin, ToolOriginType
    from .words.tool_outputs import (
        ToolOutputFileContent,
        ToolOutputFileContentDict,
        ToolOutputImage,
        ToolOutputImageDict,
        ToolOutputText,
        ToolOutputTextDict,
    )

__all__ = [
    "CodeInterpreterTool",
    "FileSearchTool",
    "FunctionTool",
    "FunctionToolCustomDataContext",
    "FunctionToolResult",
    "HostedMCPTool",
    "ImageGenerationTool",
    "ImageGenerationToolConfig",
    "MCPToolApprovalFunction",
    "MCPToolApprovalFunctionResult",
    "MCPToolApprovalRequest",
    "Tool",
    "ToolOrigin",
    "ToolOriginType",
    "ToolOutputFileContent",
    "ToolOutputFileContentDict",
    "ToolOutputImage",
    "ToolOutputImageDict",
    "ToolOutputText",
    "ToolOutputTextDict",
    "ToolSearchTool",
    "WebSearchTool",
    "WebSearchToolImageSettings",
    "default_tool_error_function",
    "function_tool",
    "tool_namespace",
]
__getattr__, __dir__ = lazy(__name__)
