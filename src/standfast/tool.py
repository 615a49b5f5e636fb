"""What the OpenAI Agents SDK documents as `agents.tool`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.context import RunContextWrapper
    from ._src.agents.tool_context import ToolContext
    from ._src.items.items import ToolOrigin, ToolOriginType
    from ._src.items.tool_outputs import (
        ToolOutputFileContent,
        ToolOutputFileContentDict,
        ToolOutputImage,
        ToolOutputImageDict,
        ToolOutputText,
        ToolOutputTextDict,
    )
    from ._src.tools.custom_tool import (
        CustomTool,
        CustomToolApprovalFunction,
        CustomToolCustomDataContext,
        CustomToolCustomDataExtractor,
        CustomToolExecutor,
        CustomToolOnApprovalFunction,
        CustomToolOnApprovalFunctionResult,
    )
    from ._src.tools.function_tool import (
        FunctionTool,
        FunctionToolCustomDataContext,
        FunctionToolResult,
        function_tool,
        tool_namespace,
    )
    from ._src.tools.hosted_tools import (
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
    from ._src.tools.local_tool import ToolErrorFunction, default_tool_error_function
    from ._src.tools.sdk_helpers import (
        DEFAULT_APPROVAL_REJECTION_MESSAGE,
        ToolFunction,
        ToolParams,
        default_tool_timeout_error_message,
        get_function_tool_origin,
        invoke_function_tool,
        maybe_invoke_function_tool_failure_error_function,
        resolve_function_tool_failure_error_function,
        set_function_tool_failure_error_function,
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
    "RunContextWrapper",
    "Tool",
    "ToolContext",
    "ToolErrorFunction",
    "ToolFunction",
    "ToolOrigin",
    "ToolOriginType",
    "ToolOutputFileContent",
    "ToolOutputFileContentDict",
    "ToolOutputImage",
    "ToolOutputImageDict",
    "ToolOutputText",
    "ToolOutputTextDict",
    "ToolParams",
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
