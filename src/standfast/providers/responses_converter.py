"""The SDK's names for how requests of the Responses API are written: for programs that write one themselves.

Nothing of standfast goes this way: `llm.wire_responses` has the rules, and this asks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from standfast.llm import wire_responses
from standfast.llm.offers import OutputSchema
from standfast.llm.settings import ToolChoice


@dataclass
class ConvertedTools:
    """Tools as the Responses API shows them, and what has to be asked for with them."""

    tools: list[dict[str, Any]]
    includes: list[str] = field(default_factory=list)


class Converter:
    """Writes the parts of a request of the Responses API."""

    @classmethod
    def convert_tools(cls, tools: Sequence[Any], handoffs: Sequence[Any], **options: object) -> ConvertedTools:
        """Tools and handoffs as this API shows them."""
        shown, includes = wire_responses.tools_param(tools, handoffs)
        return ConvertedTools(shown, includes)

    @classmethod
    def convert_tool_choice(
        cls, tool_choice: ToolChoice, *, tools: Sequence[Any] | None = None, handoffs: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> str | dict[str, Any] | None:  # fmt: skip
        """A tool choice as this API takes it; None for none."""
        return wire_responses.tool_choice_param(tool_choice, tools or (), handoffs or ())

    @classmethod
    def get_response_format(cls, output_schema: OutputSchema | None) -> dict[str, Any] | None:
        """An output type as this API takes it; None for text."""
        return wire_responses.text_param(output_schema, None)
