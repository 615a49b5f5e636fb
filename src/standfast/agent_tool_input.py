"""What the OpenAI Agents SDK documents as `agents.agent_tool_input`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.tool_input import (
        STRUCTURED_INPUT_PREAMBLE as STRUCTURED_INPUT_PREAMBLE,
        StructuredInputSchemaInfo as StructuredInputSchemaInfo,
        StructuredToolInputBuilder as StructuredToolInputBuilder,
        StructuredToolInputBuilderOptions as StructuredToolInputBuilderOptions,
        StructuredToolInputResult as StructuredToolInputResult,
        build_structured_input_schema_info as build_structured_input_schema_info,
        default_tool_input_builder as default_tool_input_builder,
        is_agent_tool_input as is_agent_tool_input,
        resolve_agent_tool_input as resolve_agent_tool_input,
    )
    from ._src.agents.tool_input_model import AgentAsToolInput as AgentAsToolInput

__getattr__, __dir__ = lazy(__name__)
