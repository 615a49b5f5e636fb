"""What the OpenAI Agents SDK documents as `agents.decorators`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.guardrails import input_guardrail as input_guardrail, output_guardrail as output_guardrail
    from ._src.tools.function_tool import function_tool as function_tool, tool as tool
    from ._src.tools.tool_guardrails import (
        tool_input_guardrail as tool_input_guardrail,
        tool_output_guardrail as tool_output_guardrail,
    )

__getattr__, __dir__ = lazy(__name__)
