"""What the OpenAI Agents SDK documents as `agents.tool`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._doors.lazy import lazy

if TYPE_CHECKING:
    from .tools.custom import (
        CustomTool,
        CustomToolApprovalFunction,
        CustomToolCustomDataContext,
        CustomToolCustomDataExtractor,
        CustomToolExecutor,
        CustomToolOnApprovalFunction,
        CustomToolOnApprovalFunctionResult,
    )
    from .tools.function import (
        FunctionTool,
        FunctionToolCustomDataContext,
        FunctionToolResult,
        default_tool_error_function,
        function_tool,
        tool_namespace,
    )
    from .tools.helpers import (
        DEFAULT_APPROVAL_REJECTION_MESSAGE,
        ToolFunction,
        default_tool_timeout_error_message,
        get_function_tool_origin,
        invoke_function_tool,
        maybe_invoke_function_tool_failure_error_function,
        resolve_function_tool_failure_error_function,
        set_function_tool_failure_error_function,
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
        ProgrammaticToolCallingTool,
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
    "CustomTool",
    "CustomToolApprovalFunction",
    "CustomToolCustomDataContext",
    "CustomToolCustomDataExtractor",
    "CustomToolExecutor",
    "CustomToolOnApprovalFunction",
    "CustomToolOnApprovalFunctionResult",
    "DEFAULT_APPROVAL_REJECTION_MESSAGE",
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
    "ProgrammaticToolCallingTool",
    "Tool",
    "ToolFunction",
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
    "default_tool_timeout_error_message",
    "function_tool",
    "get_function_tool_origin",
    "invoke_function_tool",
    "maybe_invoke_function_tool_failure_error_function",
    "resolve_function_tool_failure_error_function",
    "set_function_tool_failure_error_function",
    "tool_namespace",
]
__getattr__, __dir__ = lazy(__name__)
