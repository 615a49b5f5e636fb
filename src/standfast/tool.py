"""What the OpenAI Agents SDK documents as `agents.tool`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.context import RunContextWrapper as RunContextWrapper
    from ._src.agents.tool_context import ToolContext as ToolContext
    from ._src.items.items import ToolOrigin as ToolOrigin, ToolOriginType as ToolOriginType
    from ._src.items.tool_outputs import (
        ToolOutputFileContent as ToolOutputFileContent,
        ToolOutputFileContentDict as ToolOutputFileContentDict,
        ToolOutputImage as ToolOutputImage,
        ToolOutputImageDict as ToolOutputImageDict,
        ToolOutputText as ToolOutputText,
        ToolOutputTextDict as ToolOutputTextDict,
    )
    from ._src.tools.custom_tool import (
        CustomTool as CustomTool,
        CustomToolApprovalFunction as CustomToolApprovalFunction,
        CustomToolCustomDataContext as CustomToolCustomDataContext,
        CustomToolCustomDataExtractor as CustomToolCustomDataExtractor,
        CustomToolExecutor as CustomToolExecutor,
        CustomToolOnApprovalFunction as CustomToolOnApprovalFunction,
        CustomToolOnApprovalFunctionResult as CustomToolOnApprovalFunctionResult,
    )
    from ._src.tools.function_tool import (
        FunctionTool as FunctionTool,
        FunctionToolCustomDataContext as FunctionToolCustomDataContext,
        FunctionToolResult as FunctionToolResult,
        function_tool as function_tool,
        tool_namespace as tool_namespace,
    )
    from ._src.tools.hosted_tools import (
        CodeInterpreterTool as CodeInterpreterTool,
        FileSearchTool as FileSearchTool,
        HostedMCPTool as HostedMCPTool,
        ImageGenerationTool as ImageGenerationTool,
        ImageGenerationToolConfig as ImageGenerationToolConfig,
        MCPToolApprovalFunction as MCPToolApprovalFunction,
        MCPToolApprovalFunctionResult as MCPToolApprovalFunctionResult,
        MCPToolApprovalRequest as MCPToolApprovalRequest,
        ProgrammaticToolCallingTool as ProgrammaticToolCallingTool,
        Tool as Tool,
        ToolSearchTool as ToolSearchTool,
        WebSearchTool as WebSearchTool,
        WebSearchToolImageSettings as WebSearchToolImageSettings,
    )
    from ._src.tools.local_tool import (
        ToolErrorFunction as ToolErrorFunction,
        default_tool_error_function as default_tool_error_function,
    )
    from ._src.tools.sdk_helpers import (
        DEFAULT_APPROVAL_REJECTION_MESSAGE as DEFAULT_APPROVAL_REJECTION_MESSAGE,
        ToolFunction as ToolFunction,
        ToolParams as ToolParams,
        default_tool_timeout_error_message as default_tool_timeout_error_message,
        get_function_tool_origin as get_function_tool_origin,
        invoke_function_tool as invoke_function_tool,
        maybe_invoke_function_tool_failure_error_function as maybe_invoke_function_tool_failure_error_function,
        resolve_function_tool_failure_error_function as resolve_function_tool_failure_error_function,
        set_function_tool_failure_error_function as set_function_tool_failure_error_function,
    )

__getattr__, __dir__ = lazy(__name__)
