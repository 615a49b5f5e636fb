"""The SDK's names for converters of the Responses API, for programs that write their own requests.

standfast itself does not use them: the rules are in `_src.models.responses_format`, and this module delegates to them.
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
    """Tools in the form of the Responses API, and the `include` values they need."""

    tools: list[dict[str, Any]]
    includes: list[str] = field(default_factory=list)


class Converter:
    """Writes the parts of a request of the Responses API."""

    @classmethod
    def convert_tools(cls, tools: Sequence[Any], handoffs: Sequence[Any], **options: object) -> ConvertedTools:
        """Convert tools and handoffs to this API's form."""
        shown, includes = responses_format.tools_param(tools, handoffs)
        return ConvertedTools(shown, includes)

    @classmethod
    def convert_tool_choice(
        cls, tool_choice: ToolChoice, *, tools: Sequence[Any] | None = None, handoffs: Sequence[Any] | None = None,
        model: str | None = None,
    ) -> str | dict[str, Any] | None:  # fmt: skip
        """Convert a tool choice to this API's form."""
        return responses_format.tool_choice_param(tool_choice, tools or (), handoffs or ())

    @classmethod
    def get_response_format(cls, output_schema: OutputSchema | None) -> dict[str, Any] | None:
        """Convert an output type to this API's form; None for text."""
        return responses_format.text_param(output_schema, None)
