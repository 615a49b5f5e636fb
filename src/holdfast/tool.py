"""What the OpenAI Agents SDK documents as `agents.tool`.

Written by `./dev names` from `_exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy

if TYPE_CHECKING:
    from .items import ToolOutputFileContent, ToolOutputImage, ToolOutputText
    from .tools.function import FunctionTool, FunctionToolResult, default_tool_error_function, function_tool
    from .tools.hosted import (
        CodeInterpreterTool,
        FileSearchTool,
        HostedMCPTool,
        ImageGenerationTool,
        Tool,
        WebSearchTool,
    )

__all__ = [
    "CodeInterpreterTool",
    "FileSearchTool",
    "FunctionTool",
    "FunctionToolResult",
    "HostedMCPTool",
    "ImageGenerationTool",
    "Tool",
    "ToolOutputFileContent",
    "ToolOutputImage",
    "ToolOutputText",
    "WebSearchTool",
    "default_tool_error_function",
    "function_tool",
]
__getattr__, __dir__ = lazy(__name__)
