"""What the OpenAI Agents SDK documents as `agents.agent_tool_input`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.tool_input import (
        STRUCTURED_INPUT_PREAMBLE,
        StructuredInputSchemaInfo,
        StructuredToolInputBuilder,
        StructuredToolInputBuilderOptions,
        StructuredToolInputResult,
        build_structured_input_schema_info,
        default_tool_input_builder,
        is_agent_tool_input,
        resolve_agent_tool_input,
    )
    from ._src.agents.tool_input_model import AgentAsToolInput

__all__ = [
    "AgentAsToolInput",
    "STRUCTURED_INPUT_PREAMBLE",
    "StructuredInputSchemaInfo",
    "StructuredToolInputBuilder",
    "StructuredToolInputBuilderOptions",
    "StructuredToolInputResult",
    "build_structured_input_schema_info",
    "default_tool_input_builder",
    "is_agent_tool_input",
    "resolve_agent_tool_input",
]
__getattr__, __dir__ = lazy(__name__)
