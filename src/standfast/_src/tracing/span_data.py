"""Data of spans, under the names of the OpenAI Agents SDK: a class for each kind of work.

Processors read these; the attributes of OpenTelemetry's spans are made elsewhere (`opentelemetry_spans`), from the same
facts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from standfast._src.base.json_values import Item
    from standfast._src.items.items import RawItem


class SpanData(ABC):
    """Data of a span."""

    kind: ClassVar[str]
    hidden: ClassVar[tuple[str, ...]] = ("metadata",)
    """Fields left out of the export."""

    @property
    def type(self) -> str:
        """Kind of work, in one word."""
        return self.kind

    @abstractmethod
    def export(self) -> dict[str, Any]:
        """Return the exportable part as plain data."""


class _Fields(SpanData):
    """Data exported as its kind and fields."""

    def export(self) -> dict[str, Any]:
        """The kind and the fields."""
        told: Any = self
        names = [one.name for one in fields(told) if one.name not in self.hidden]
        return {"type": self.kind, **{name: getattr(self, name) for name in names}}


@dataclass(eq=False)
class AgentSpanData(_Fields):
    """A run of an agent."""

    kind = "agent"
    name: str
    handoffs: list[str] | None = None
    tools: list[str] | None = None
    output_type: str | None = None
    metadata: dict[str, Any] | None = None


@dataclass(eq=False)
class TaskSpanData(SpanData):
    """A call of the runner."""

    kind = "task"
    name: str
    usage: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None

    def export(self) -> dict[str, Any]:
        """Return a custom span, known to the SDK's own service."""
        return _as_custom(self.kind, {"name": self.name}, self.usage)


@dataclass(eq=False)
class TurnSpanData(SpanData):
    """A turn of a run."""

    kind = "turn"
    turn: int
    agent_name: str
    usage: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None

    def export(self) -> dict[str, Any]:
        """Return a custom span, known to the SDK's own service."""
        return _as_custom(self.kind, {"turn": self.turn, "agent_name": self.agent_name}, self.usage)


def _as_custom(kind: str, data: dict[str, Any], usage: dict[str, Any] | None) -> dict[str, Any]:
    counted = {} if usage is None else {"usage": usage}
    return {"type": "custom", "name": kind, "data": {"sdk_span_type": kind, **data, **counted}}


@dataclass(eq=False)
class FunctionSpanData(_Fields):
    """A call of a tool."""

    kind = "function"
    name: str
    input: str | None
    output: Any | None
    mcp_data: dict[str, Any] | None = None

    def export(self) -> dict[str, Any]:
        """The kind and the fields, the output as text."""
        return {**super().export(), "output": None if self.output is None else str(self.output)}


@dataclass(eq=False)
class GenerationSpanData(_Fields):
    """A request to a model."""

    kind = "generation"
    input: Sequence[Mapping[str, Any]] | None = None
    output: Sequence[Mapping[str, Any]] | None = None
    model: str | None = None
    model_config: Mapping[str, Any] | None = None
    usage: dict[str, Any] | None = None


class ResponseSpanData(SpanData):
    """A request to the Responses API."""

    kind = "response"

    def __init__(
        self,
        response: RawItem | None = None,
        input: str | list[Item] | None = None,
        usage: dict[str, Any] | None = None,
    ) -> None:
        self.response, self.input, self.usage = response, input, usage
        self._response_id: str | None = None

    def export(self) -> dict[str, Any]:
        """Return the id and the usage of the reply, without the reply itself."""
        own = self._response_id if self.response is None else self.response.id
        return {"type": self.kind, "response_id": own, "usage": self.usage}


@dataclass(eq=False)
class HandoffSpanData(_Fields):
    """A handoff."""

    kind = "handoff"
    from_agent: str | None
    to_agent: str | None


@dataclass(eq=False)
class CustomSpanData(_Fields):
    """A program's own work."""

    kind = "custom"
    name: str
    data: dict[str, Any]


@dataclass(eq=False)
class GuardrailSpanData(_Fields):
    """Run of a guardrail."""

    kind = "guardrail"
    name: str
    triggered: bool = False


@dataclass(eq=False)
class TranscriptionSpanData(_Fields):
    """Transcription of speech."""

    kind = "transcription"
    hidden = ("input_format",)
    input: str | None = None
    input_format: str | None = "pcm"
    output: str | None = None
    model: str | None = None
    model_config: Mapping[str, Any] | None = None

    def export(self) -> dict[str, Any]:
        """Return the kind and the fields, with the format of the audio."""
        return {**super().export(), "input": {"data": self.input or "", "format": self.input_format}}


@dataclass(eq=False)
class SpeechSpanData(_Fields):
    """Generation of speech."""

    kind = "speech"
    hidden = ("output_format",)
    input: str | None = None
    output: str | None = None
    output_format: str | None = "pcm"
    model: str | None = None
    model_config: Mapping[str, Any] | None = None
    first_content_at: str | None = None

    def export(self) -> dict[str, Any]:
        """Return the kind and the fields, with the format of the audio."""
        return {**super().export(), "output": {"data": self.output or "", "format": self.output_format}}


@dataclass(eq=False)
class SpeechGroupSpanData(_Fields):
    """Group of several pieces of speech."""

    kind = "speech_group"
    input: str | None = None


@dataclass(eq=False)
class MCPListToolsSpanData(_Fields):
    """A look at the tools of an MCP server."""

    kind = "mcp_tools"
    server: str | None = None
    result: list[str] | None = None
