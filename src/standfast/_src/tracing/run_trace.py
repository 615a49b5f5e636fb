"""The spans of a run as records for processors: what the driver says it does, in the SDK's words.

What was said (inputs, outputs, arguments) is in them only where the run's config asks for it, as in OpenTelemetry's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol

from standfast._src.items.items import to_plain
from standfast._src.items.usage import Usage, model_usage_to_span_usage
from standfast._src.tracing import tracing_switch
from standfast._src.tracing.span_data import (
    AgentSpanData,
    FunctionSpanData,
    GenerationSpanData,
    GuardrailSpanData,
    HandoffSpanData,
    SpanData,
)
from standfast._src.tracing.trace_records import Span, Trace, gen_trace_id, processors


class TracedConfig(Protocol):
    """What of a `RunConfig` spans are made from."""

    @property
    def workflow_name(self) -> str:
        """What the application calls what it does."""
        ...

    @property
    def trace_id(self) -> str | None:
        """The id that it chose for the trace."""
        ...

    @property
    def group_id(self) -> str | None:
        """What several traces share."""
        ...

    @property
    def trace_metadata(self) -> Mapping[str, Any] | None:
        """More facts of the application's."""
        ...

    @property
    def tracing(self) -> object:
        """Where spans go, as the application gave it."""
        ...

    @property
    def tracing_disabled(self) -> bool:
        """Whether this run leaves no spans."""
        ...

    @property
    def trace_include_sensitive_data(self) -> bool:
        """Whether spans may hold what was said."""
        ...


class RunSpanRecord:
    """The record of one span of a run; a run outside of any trace gets a trace of its own around it."""

    def __init__(self, kind: str, facts: Mapping[str, Any], config: TracedConfig, *, content: bool) -> None:
        self._kind, self._content = kind, content
        self._trace: Trace | None = None
        if kind == "run" and tracing_switch.current_trace.get() is None:
            self._trace = Trace(
                config.workflow_name, config.trace_id or gen_trace_id(), config.group_id, config.trace_metadata
            )
        self._data = _data(kind, facts, content=content)
        self._span: Span[Any] | None = None

    def __enter__(self) -> RunSpanRecord:
        if self._trace is not None:
            self._trace.start(mark_as_current=True)
        self._span = Span(self._data)
        self._span.start(mark_as_current=True)
        return self

    def note(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """Add what is known by now."""
        _complete(self._data, facts, content=self._content)
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        assert self._span is not None
        said = str(error) if self._content else type(error).__name__
        self._span.error = {"message": said, "data": {"error_type": type(error).__name__}}

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        assert self._span is not None
        if isinstance(error, Exception):
            self._fail(error)
        self._span.finish(reset_current=True)
        if self._trace is not None:
            self._trace.finish(reset_current=True)


def record_of(kind: str, facts: Mapping[str, Any], config: TracedConfig, *, content: bool) -> RunSpanRecord | None:
    """The record of this span; None where no processor would be told of it."""
    return RunSpanRecord(kind, facts, config, content=content) if processors else None


def _data(kind: str, facts: Mapping[str, Any], *, content: bool) -> SpanData:
    agent = facts["agent"]
    match kind:
        case "run":
            tools = [getattr(tool, "name", type(tool).__name__) for tool in agent.tools]
            handoffs = [str(getattr(one, "agent_name", None) or one.name) for one in agent.handoffs]
            output = "str" if agent.output_type is None else getattr(agent.output_type, "__name__", "object")
            return AgentSpanData(agent.name, handoffs, tools, output)
        case "model":
            offer = facts["offer"]
            name = getattr(offer.model, "model", None)
            said = [to_plain(item) for item in facts["items"]] if content else None
            settings = offer.settings.to_traceable_dict()
            return GenerationSpanData(input=said, model=name if isinstance(name, str) else None, model_config=settings)
        case "tool":
            return FunctionSpanData(facts["call"].name, facts["call"].arguments if content else None, None)
        case "handoff":
            return HandoffSpanData(agent.name, None)
        case _:
            return GuardrailSpanData(str(facts["guardrail"]))


def _complete(data: SpanData, facts: Mapping[str, Any], *, content: bool) -> None:
    match data:
        case GenerationSpanData():
            response = facts["response"]
            data.usage = model_usage_to_span_usage(Usage.from_provider(response.usage))
            if content:
                data.output = [to_plain(item) for item in response.output]
        case FunctionSpanData():
            if content:
                data.output = facts["outcome"].item_output
        case HandoffSpanData():
            data.to_agent = facts["target"].name
        case GuardrailSpanData():
            data.triggered = bool(facts["tripped"])
        case _:
            pass
