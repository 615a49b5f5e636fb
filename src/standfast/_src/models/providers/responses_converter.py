"""The SDK's names for how requests of the Responses API are written: for programs that write one themselves.

Nothing of standfast goes this way: `_src.models.responses_format` has the rules, and this asks it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from standfast._src.models import responses_format
from standfast._src.models.model_settings import ToolChoice
from standfast._src.models.tool_definitions import OutputSchema


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
        shown, includes = responses_format.tools_param(tools, handoffs)
        return ConvertedTools(shown, includes)

    @classmethod
    def convert_tool_choice(
        cls, tool_choice: ToolChoice, *, tools: Sequence[Any] | None = None, handoffs: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> str | dict[str, Any] | None:  # fmt: skip
        """A tool choice as this API takes it; None for none."""
        return responses_format.tool_choice_param(tool_choice, tools or (), handoffs or ())

    @classmethod
    def get_response_format(cls, output_schema: OutputSchema | None) -> dict[str, Any] | None:
        """An output type as this API takes it; None for text."""
        return responses_format.text_param(output_schema, None)
