"""Spans of a program around its runs, under the names of the OpenAI Agents SDK.

`trace("Support desk")` groups runs under one span, `custom_span("fetch invoice")` marks a piece of work. Both are
OpenTelemetry spans, sent to the receiver configured in OpenTelemetry. Processors of the SDK's kind
(`add_trace_processor`) get these and the spans of runs, with or without OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from opentelemetry import context, trace as otel
from opentelemetry.trace import StatusCode

from standfast._src.tracing import opentelemetry_spans as telemetry, tracing_switch as telemetry_switch
from standfast._src.tracing.span_data import (
    AgentSpanData,
    CustomSpanData,
    FunctionSpanData,
    GenerationSpanData,
    GuardrailSpanData,
    HandoffSpanData,
    MCPListToolsSpanData,
    ResponseSpanData,
    SpanData,
    SpeechGroupSpanData,
    SpeechSpanData,
    TaskSpanData,
    TranscriptionSpanData,
    TurnSpanData,
)
from standfast._src.tracing.trace_records import (
    Scope,
    Span,
    SynchronousMultiTracingProcessor,
    Trace,
    TracingProcessor,
    TSpanData,
    gen_group_id,
    gen_span_id,
    gen_trace_id,
    make_span,
    processors,
    time_iso,
)

if TYPE_CHECKING:
    from standfast._src.items.items import RawItem


class OtelBridge:
    """OpenTelemetry span of a record; does nothing without tracing."""

    def __init__(
        self, name: str, attributes: Mapping[str, Any], tracer: otel.Tracer, above: OtelBridge | None = None
    ) -> None:
        self._name, self._attributes, self._tracer, self._above = name, attributes, tracer, above
        self._span: Any = None
        self._attached: Any = None

    def start(self) -> None:
        """Begin the span, inside the current or the given parent."""
        above = None if self._above is None else self._above._span
        place = None if above is None else otel.set_span_in_context(above)
        attributes = telemetry.present(self._attributes)
        self._span = self._tracer.start_span(self._name, context=place, attributes=attributes)

    def enter(self) -> None:
        """Make it the current span of this task."""
        self._attached = context.attach(otel.set_span_in_context(self._span))

    def leave(self) -> None:
        """Restore the previous current span."""
        if self._attached is not None:
            context.detach(self._attached)
            self._attached = None

    def fail(self, error: BaseException) -> None:
        """Mark it as failed, without the error's text."""
        telemetry.mark_failed(self._span, error, content=False)

    def say(self, error: Mapping[str, Any]) -> None:
        """Mark it as failed, with the program's own text."""
        if self._span is not None:
            self._span.set_status(StatusCode.ERROR, str(error.get("message", "")))
            self._span.set_attributes(telemetry.prefix_attributes(telemetry.DATA, error.get("data")))

    def end(self) -> None:
        """End the span."""
        self._span.end()


def trace(
    workflow_name: str,
    trace_id: str | None = None,
    group_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tracing: Mapping[str, Any] | None = None,
    disabled: bool = False,
) -> Trace:
    """Make a span around everything inside `with trace("Support desk"):`.

    `group_id` is common to several traces, such as those of a chat thread. `trace_id` is kept as an attribute, for
    OpenTelemetry makes its own. `tracing` has the form of `RunConfig.tracing`. `disabled=True` turns off tracing
    inside.
    """
    trace_id = trace_id or gen_trace_id()
    is_off = disabled or telemetry_switch.is_off()
    tracer = None if is_off else _tracer(tracing)
    bridge = None
    if tracer is not None:
        attributes = {
            telemetry.OPERATION: telemetry.WORKFLOW_OPERATION,
            telemetry.WORKFLOW: workflow_name,
            telemetry.TRACE_ID: trace_id,
            telemetry.GROUP_ID: group_id,
            telemetry.CONVERSATION: group_id,
            **telemetry.prefix_attributes(telemetry.METADATA, metadata),
        }
        bridge = OtelBridge(f"{telemetry.WORKFLOW_OPERATION} {workflow_name}", attributes, tracer)
    key = (tracing or {}).get("api_key")
    return Trace(
        workflow_name,
        trace_id,
        group_id,
        metadata,
        processors,
        key,
        disabled=disabled,
        bridge=bridge,
        tracer=tracer,
    )


def _span(
    data: TSpanData,
    span_id: str | None,
    parent: Trace | Span[Any] | None,
    disabled: bool,
    attributes: Mapping[str, Any] | None = None,
) -> Span[TSpanData]:
    is_off = disabled or telemetry_switch.is_off()
    tracer = None if is_off else _tracer(None)
    name = getattr(data, "name", None) or data.type
    above = getattr(parent, "_bridge", None)
    bridge = None if tracer is None else OtelBridge(name, attributes or {}, tracer, above)
    return make_span(data, span_id=span_id, parent=parent, bridge=bridge, told=not is_off)


def custom_span(
    name: str,
    data: Mapping[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[CustomSpanData]:
    """Make a span around a piece of the program's own work; `data` becomes attributes.

    It belongs to the current trace, run or tool call, or to `parent`.
    """
    told = CustomSpanData(name, dict(data or {}))
    return _span(told, span_id, parent, disabled, telemetry.prefix_attributes(telemetry.DATA, data))


# The other kinds: for programs that do themselves what a run does. Runs make theirs without being asked. Of these only
# names become attributes; what was said stays with the processors, in the process.


def agent_span(
    name: str,
    handoffs: list[str] | None = None,
    tools: list[str] | None = None,
    output_type: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[AgentSpanData]:
    """Make a span around an agent's work done by the program itself."""
    told = AgentSpanData(name, handoffs, tools, output_type)
    return _span(told, span_id, parent, disabled, {telemetry.AGENT: name})


def task_span(
    name: str, span_id: str | None = None, parent: Trace | Span[Any] | None = None, disabled: bool = False
) -> Span[TaskSpanData]:
    """A span around a whole task."""
    return _span(TaskSpanData(name), span_id, parent, disabled)


def turn_span(
    turn: int,
    agent_name: str,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[TurnSpanData]:
    """Make a span around a turn of an agent."""
    return _span(TurnSpanData(turn, agent_name), span_id, parent, disabled, {telemetry.AGENT: agent_name})


def function_span(
    name: str,
    input: str | None = None,
    output: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[FunctionSpanData]:
    """A span around a tool's work."""
    return _span(FunctionSpanData(name, input, output), span_id, parent, disabled, {telemetry.TOOL: name})


def generation_span(
    input: Sequence[Mapping[str, Any]] | None = None,
    output: Sequence[Mapping[str, Any]] | None = None,
    model: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    usage: dict[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[GenerationSpanData]:
    """A span around a request to a model."""
    told = GenerationSpanData(input, output, model, model_config, usage)
    return _span(told, span_id, parent, disabled, {telemetry.MODEL: model})


def response_span(
    response: RawItem | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[ResponseSpanData]:
    """A span around a request to the Responses API."""
    return _span(ResponseSpanData(response), span_id, parent, disabled)


def handoff_span(
    from_agent: str | None = None,
    to_agent: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[HandoffSpanData]:
    """A span around a handoff."""
    return _span(HandoffSpanData(from_agent, to_agent), span_id, parent, disabled)


def guardrail_span(
    name: str,
    triggered: bool = False,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[GuardrailSpanData]:
    """A span around a guardrail's work."""
    return _span(GuardrailSpanData(name, triggered), span_id, parent, disabled, {telemetry.GUARDRAIL: name})


def transcription_span(
    model: str | None = None,
    input: str | None = None,
    input_format: str | None = "pcm",
    output: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[TranscriptionSpanData]:
    """Make a span around a transcription of speech."""
    told = TranscriptionSpanData(input, input_format, output, model, model_config)
    return _span(told, span_id, parent, disabled, {telemetry.MODEL: model})


def speech_span(
    model: str | None = None,
    input: str | None = None,
    output: str | None = None,
    output_format: str | None = "pcm",
    model_config: Mapping[str, Any] | None = None,
    first_content_at: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[SpeechSpanData]:
    """Make a span around a generation of speech."""
    told = SpeechSpanData(input, output, output_format, model, model_config, first_content_at)
    return _span(told, span_id, parent, disabled, {telemetry.MODEL: model})


def speech_group_span(
    input: str | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[SpeechGroupSpanData]:
    """A span around several pieces of speech."""
    return _span(SpeechGroupSpanData(input), span_id, parent, disabled)


def mcp_tools_span(
    server: str | None = None,
    result: list[str] | None = None,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    disabled: bool = False,
) -> Span[MCPListToolsSpanData]:
    """A span around a look at an MCP server's tools."""
    return _span(MCPListToolsSpanData(server, result), span_id, parent, disabled)


def _tracer(tracing: Mapping[str, Any] | None) -> otel.Tracer | None:
    around = get_current_trace()
    return telemetry.tracer_from(tracing) if around is None or tracing is not None else around.tracer


def get_current_trace() -> Trace | None:
    """Return the trace of this task, or None."""
    return Scope.get_current_trace()


def get_current_span() -> Span[Any] | None:
    """Return the span of this task, or None."""
    return Scope.get_current_span()


def flush_traces() -> None:
    """Send all queued spans: in the processors, and in the global tracer provider if it queues spans."""
    processors.force_flush()
    flush = getattr(otel.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        flush()


def set_tracing_export_api_key(api_key: str) -> None:
    """Accept a key without effect: traces do not go to OpenAI.

    The receiver of traces has its own key, which is given to the OpenTelemetry exporter or the processor.
    """
    from standfast._src.tracing.backend_exporter import default_exporter

    default_exporter().set_api_key(api_key)


def add_trace_processor(span_processor: TracingProcessor) -> None:
    """Add a processor for every trace and span from now on, those of runs included."""
    _own_provider.register_processor(span_processor)


def set_trace_processors(processors: Sequence[TracingProcessor]) -> None:
    """Replace all processors of the SDK's kind. OpenTelemetry's are unaffected."""
    _own_provider.set_processors(list(processors))


class TraceProvider:
    """Factory of traces and spans, with their processors. `get_trace_provider` returns the process's.

    The processors of another one than the process's are called once `set_trace_provider` has set it.
    """

    def __init__(self) -> None:
        self._multi_processor = SynchronousMultiTracingProcessor()

    def register_processor(self, processor: TracingProcessor) -> None:
        """Add a processor for every trace and span from now on."""
        self._multi_processor.add_tracing_processor(processor)

    def set_processors(self, processors: list[TracingProcessor]) -> None:
        """Replace this provider's processors."""
        self._multi_processor.set_processors(processors)

    def gen_trace_id(self) -> str:
        """Make an id for a trace."""
        return gen_trace_id()

    def gen_span_id(self) -> str:
        """Make an id for a span."""
        return gen_span_id()

    def gen_group_id(self) -> str:
        """Make an id for a group of traces."""
        return gen_group_id()

    def get_current_trace(self) -> Trace | None:
        """Return the trace of this task, or None."""
        return get_current_trace()

    def get_current_span(self) -> Span[Any] | None:
        """Return the span of this task, or None."""
        return get_current_span()

    def set_disabled(self, disabled: bool) -> None:
        """The same as `set_tracing_disabled`."""
        telemetry_switch.set_tracing_disabled(disabled)

    def create_trace(
        self,
        name: str,
        trace_id: str | None = None,
        group_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        disabled: bool = False,
        tracing: Mapping[str, Any] | None = None,
    ) -> Trace:
        """The same as `trace`."""
        return trace(name, trace_id, group_id, metadata, tracing, disabled)

    def create_span(
        self,
        span_data: SpanData,
        span_id: str | None = None,
        parent: Trace | Span[Any] | None = None,
        disabled: bool = False,
    ) -> Span[Any]:
        """Make a span with this data."""
        return _span(span_data, span_id, parent, disabled)

    def time_iso(self) -> str:
        """Return the present time in the format of traces."""
        return time_iso()

    def force_flush(self) -> None:
        """The same as `flush_traces`."""
        flush_traces()

    def shutdown(self, timeout: float | None = None) -> None:
        """Notify the processors of the end of the program."""
        self._multi_processor.shutdown(timeout)


DefaultTraceProvider = TraceProvider
"""The SDK's name for the provider that is there without being set."""

_own_provider = _provider = TraceProvider()
_own_provider._multi_processor = processors
_set_aside: tuple[TracingProcessor, ...] = ()
"""Processors of the process's own provider while another one is set."""


def get_trace_provider() -> TraceProvider:
    """Return the provider of this process."""
    return _provider


def set_trace_provider(provider: TraceProvider) -> None:
    """Set another provider: its processors get the traces and spans of runs and programs.

    Traces and spans made by the provider itself are its own; runs and `trace()` make theirs as before. The first
    provider of the process gets its processors back when it is set again.
    """
    global _provider, _set_aside
    if provider is _provider:
        return
    if _provider is _own_provider:
        _set_aside = processors.registered
    _provider = provider
    telling = getattr(provider, "_multi_processor", None)
    if provider is _own_provider:
        processors.set_processors(_set_aside)
    elif telling is not None:
        processors.set_processors([telling])


class TraceCtxManager(AbstractContextManager["TraceCtxManager"]):
    """A trace around a block, unless one is current already."""

    def __init__(
        self,
        workflow_name: str,
        trace_id: str | None = None,
        group_id: str | None = None,
        metadata: dict[str, Any] | None = None,
        tracing: Mapping[str, Any] | None = None,
        disabled: bool = False,
        **options: object,
    ) -> None:
        inside = get_current_trace() is not None
        self.trace = None if inside else trace(workflow_name, trace_id, group_id, metadata, tracing, disabled)

    def __enter__(self) -> TraceCtxManager:
        if self.trace is not None:
            self.trace.start(mark_as_current=True)
        return self

    def __exit__(self, *raised: object) -> None:
        if self.trace is not None:
            self.trace.finish(reset_current=True)
