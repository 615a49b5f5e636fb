"""Runs as OpenTelemetry spans. This file alone has the names of the GenAI semantic conventions.

A run is a tree: the run itself, and below it each request to a model, each tool call, handoff and guardrail. The driver
says what it does with objects of its own (`span("tool", name, {"call": ...})`); here they become attributes. Only
OpenTelemetry's API is used, so where the spans go is the application's choice, and this file is not even imported by a
program that has not loaded OpenTelemetry.

What was said is left out unless the run's config asks for it, and so are the texts of errors, which often quote it.
Those conventions are still in development: a name that changes is changed in the tables below.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from opentelemetry import context, metrics, trace
from opentelemetry.trace import NoOpTracer, SpanKind, StatusCode

from standfast._src.base import operational_events
from standfast._src.base.errors import SettingTypeError
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import ItemHelpers, ModelResponse, to_plain
from standfast._src.items.usage import Usage
from standfast._src.tracing import tracing_switch as telemetry_switch
from standfast._src.tracing.run_trace import EffectRecord, RunRecord, TracedConfig
from standfast._src.tracing.trace_records import processors

if TYPE_CHECKING:
    from standfast._src.base.json_values import Item

SCOPE = "standfast"

# --- names of the conventions ----------------------------------------------------------------------------------------

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
AGENT = "gen_ai.agent.name"
CONVERSATION = "gen_ai.conversation.id"
WORKFLOW = "gen_ai.workflow.name"
MODEL = "gen_ai.request.model"
STREAM = "gen_ai.request.stream"
OUTPUT_TYPE = "gen_ai.output.type"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
SERVER = "server.address"
PORT = "server.port"
TOKEN_TYPE = "gen_ai.token.type"
TOKENS_METRIC = "gen_ai.client.token.usage"
DURATION_METRIC = "gen_ai.client.operation.duration"
EVENTS_METRIC = "standfast.events"
EVENT = "standfast.event"
TOOL = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_DESCRIPTION = "gen_ai.tool.description"
CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
SETTINGS = {name: f"gen_ai.request.{name}" for name in (
    "temperature", "top_p", "max_tokens", "frequency_penalty", "presence_penalty",
)}  # fmt: skip
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"

# What was said: only with trace_include_sensitive_data.
INSTRUCTIONS = "gen_ai.system_instructions"
INPUT = "gen_ai.input.messages"
OUTPUT = "gen_ai.output.messages"
ARGUMENTS = "gen_ai.tool.call.arguments"
RESULT = "gen_ai.tool.call.result"

# What the conventions have no name for.
RUN_ID = "standfast.run.id"
RUN_STATUS = "standfast.run.status"
RUN_TURNS = "standfast.run.turns"
RUN_OWNER = "standfast.run.owner"
LAST_AGENT = "standfast.run.last_agent"
REQUESTS = "standfast.usage.requests"
TRACE_ID = "standfast.trace_id"
GROUP_ID = "standfast.group_id"
METADATA = "standfast.metadata."
DATA = "standfast.data."
ATTEMPT = "standfast.model.attempt"
REJECTED = "standfast.tool.rejected"
HANDOFF_TARGET = "standfast.handoff.target"
GUARDRAIL = "standfast.guardrail.name"
GUARDRAIL_STAGE = "standfast.guardrail.stage"
TRIPPED = "standfast.guardrail.tripped"
CANCELLED = "standfast.cancelled"

# The first word of a span's name; a name follows. Operations are those the conventions know.
SPAN_NAMES = {
    "run": "invoke_agent",
    "model": "chat",
    "tool": "execute_tool",
    "handoff": "handoff",
    "guardrail": "guardrail",
}
WORKFLOW_OPERATION = "invoke_workflow"
OPERATIONS = {kind: SPAN_NAMES[kind] for kind in ("run", "model", "tool")}

Attributes = dict[str, Any]
Facts = Mapping[str, Any]


# --- events ----------------------------------------------------------------------------------------------------------


def _add_event(name: str, facts: Facts) -> None:
    """Count an operational event, and put it on the current span."""
    if not telemetry_switch.is_off() and (meters := _meters()) is not None:
        meters[2].add(1, {EVENT: name})
    span = trace.get_current_span()
    if span.is_recording() and not telemetry_switch.is_off():
        span.add_event(f"{SCOPE}.{name}", {f"{SCOPE}.{fact}": value for fact, value in facts.items()})


def _set_gauge(name: str, value: float, facts: Facts) -> None:
    """Set a gauge to its present value, where the application has set up a meter."""
    if not telemetry_switch.is_off() and (meters := _meters()) is not None:
        meters[3][name].set(value, {f"{SCOPE}.{fact}": found for fact, found in facts.items()})


operational_events.subscribe(_add_event)
operational_events.subscribe_gauge(_set_gauge)


# --- the tracer of a run ---------------------------------------------------------------------------------------------


def tracer_for(config: TracedConfig) -> RunTracer | None:
    """Return the tracer of a run, or None if tracing is off or OpenTelemetry is not configured."""
    # The switch is checked last: it reads the environment, and most programs have no receiver of spans.
    if config.tracing_disabled:
        return None
    tracer = tracer_from(config.tracing)
    if (tracer is None and not processors and _meters() is None) or telemetry_switch.is_off():
        return None
    # Without a receiver of spans, a meter or a processor of the SDK's kind still needs the events.
    return RunTracer(NoOpTracer() if tracer is None else tracer, config)


def tracer_from(settings: object) -> trace.Tracer | None:
    """Return standfast's OpenTelemetry tracer of the configured provider; None if the provider makes no spans."""
    return _tracer_of(_provider(settings))


def _provider(settings: object) -> trace.TracerProvider:
    given: trace.TracerProvider | None = settings.get("tracer_provider") if isinstance(settings, Mapping) else None
    if given is None:
        return trace.get_tracer_provider()
    if not hasattr(given, "get_tracer"):
        raise SettingTypeError(
            f"RunConfig.tracing has {describe_type(given)} as its tracer_provider",
            "Give an OpenTelemetry TracerProvider, or leave it out to use the global one.",
        )
    return given


def _tracer_of(provider: trace.TracerProvider) -> trace.Tracer | None:
    """Return the provider's tracer; None for a provider without spans. Cached, because runs are many."""
    global _known
    known, tracer = _known
    if known is not provider:
        if isinstance(provider, trace.ProxyTracerProvider):
            return None  # the stand-in until the application sets one
        made = None if isinstance(provider, trace.NoOpTracerProvider) else provider.get_tracer(SCOPE)
        tracer = None if isinstance(made, NoOpTracer) else made
        _known = provider, tracer
    return tracer


_known: tuple[trace.TracerProvider | None, trace.Tracer | None] = (None, None)


class RunTracer:
    """Factory of a run's spans, with the content allowed by its config."""

    def __init__(self, tracer: trace.Tracer, config: TracedConfig) -> None:
        self._tracer, self.config = tracer, config
        self.content: bool = config.trace_include_sensitive_data
        self._run_record: RunRecord | None = None

    def under(self, config: TracedConfig) -> RunTracer | None:
        """Return the tracer of a nested run, which may have its own config."""
        return None if config.tracing_disabled else RunTracer(self._tracer, config)

    def span(self, kind: str, name: str, facts: Facts) -> RunSpan:
        """Make a span around work of the run: current inside `with`, ended at every exit."""
        attributes = _STARTS[kind](facts, self.config, self.content)
        if kind in OPERATIONS:
            attributes[OPERATION] = OPERATIONS[kind]
        record: RunRecord | EffectRecord | None = None
        if processors and kind == "run":
            record = self._run_record = RunRecord(facts, self.config, content=self.content)
        elif processors:
            record = EffectRecord(kind, facts, self._run_record, content=self.content)
        title = f"{SPAN_NAMES[kind]} {name}".rstrip()
        return RunSpan(self._tracer, kind, title, attributes, self.content, record)


class RunSpan:
    """A span. Entered and left in one task, so that parallel calls become siblings."""

    def __init__(
        self,
        tracer: trace.Tracer,
        kind: str,
        name: str,
        attributes: Attributes,
        content: bool,
        record: RunRecord | EffectRecord | None,
    ) -> None:
        self._tracer, self._kind, self._name, self._attributes = tracer, kind, name, attributes
        self._content, self._record = content, record
        self._span: Any = None
        self._token: Any = None
        self._began_at = 0.0

    def __enter__(self) -> RunSpan:
        # A request leaves the process; everything else is our own doing.
        kind = SpanKind.CLIENT if self._kind == "model" else SpanKind.INTERNAL
        self._span = self._tracer.start_span(self._name, kind=kind, attributes=present(self._attributes))
        self._token = context.attach(trace.set_span_in_context(self._span))
        if self._record is not None:
            self._record.__enter__()
        self._began_at = time.perf_counter()
        return self

    def note(self, **facts: Any) -> None:
        """Add what is known by now; an `error` marks the span as failed though nothing was raised."""
        error = facts.pop("error", None)
        if self._record is not None:
            self._record.note(facts, error)
        measure_end(self._kind, self._attributes, facts)
        if not self._span.is_recording():
            return
        self._span.set_attributes(present(_ENDS[self._kind](facts, self._content)))
        if error is not None:
            mark_failed(self._span, error, content=self._content)

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            measure_duration(self._kind, self._attributes, time.perf_counter() - self._began_at, error)
            if self._record is not None:
                self._record.__exit__(kind, error, traceback)
            if error is not None and self._span.is_recording():
                mark_failed(self._span, error, content=self._content)
        finally:
            context.detach(self._token)
            self._span.end()


def mark_failed(span: trace.Span, error: BaseException, *, content: bool) -> None:
    """Mark a span as failed; include the error's text only with `content`."""
    if not isinstance(error, Exception):
        span.set_attribute(CANCELLED, True)  # stopped from outside: a tripwire, a deadline, Ctrl-C
        return
    name = _class_name(error)
    span.set_attribute(ERROR_TYPE, name)
    if content:
        span.record_exception(error)
        span.set_status(StatusCode.ERROR, str(error))
    else:
        span.add_event("exception", {"exception.type": name})
        span.set_status(StatusCode.ERROR)


def _class_name(error: BaseException) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def present(attributes: Mapping[str, Any]) -> Attributes:
    """Return the attributes with a value."""
    return {name: value for name, value in attributes.items() if value is not None}


def prefix_attributes(prefix: str, values: Mapping[str, Any] | None) -> Attributes:
    """A program's own values as attributes, each under the prefix and its key."""
    return {
        f"{prefix}{name}": value if isinstance(value, bool | int | float) else _text(value)
        for name, value in (values or {}).items()
    }


# --- what each kind of span begins with ------------------------------------------------------------------------------


def _run_start(facts: Facts, config: TracedConfig, content: bool) -> Attributes:
    owner, agent = facts["owner"], facts["agent"]
    conversation = owner.id if owner.kind in ("session", "conversation") else None
    around = telemetry_switch.current_trace.get()  # a workflow that the program named itself
    group = config.group_id or (None if around is None else around.group_id)
    attributes = {
        AGENT: agent.name,
        WORKFLOW: config.workflow_name if around is None else around.name,
        CONVERSATION: conversation or group,
        RUN_ID: facts["run_id"],
        RUN_OWNER: owner.kind,
        TRACE_ID: config.trace_id,
        GROUP_ID: group,
    }
    attributes |= prefix_attributes(METADATA, config.trace_metadata)
    if content:
        attributes[INPUT] = _messages(ItemHelpers.input_to_new_input_list(facts["given"]))
    return attributes


def _model_start(facts: Facts, config: TracedConfig, content: bool) -> Attributes:
    offer = facts["offer"]
    attributes = {
        AGENT: facts["agent"].name,
        PROVIDER: getattr(offer.model, "provider_name", None),
        MODEL: _name(offer.model),
        **_server(offer.model),
        STREAM: facts["stream"] or None,
        OUTPUT_TYPE: "text" if offer.schema is None or offer.schema.is_plain_text() else "json",
        CONVERSATION: facts["conversation"],
        ATTEMPT: facts["attempt"] if facts["attempt"] > 1 else None,
    }
    for setting, name in SETTINGS.items():
        attributes[name] = getattr(offer.settings, setting)
    if content:
        attributes[INPUT] = _messages(facts["items"])
        if facts["instructions"]:
            attributes[INSTRUCTIONS] = _text([{"type": "text", "content": facts["instructions"]}])
    return attributes


def _server(model: object) -> Attributes:
    """Return the model's server address if known: a program can look it up in its own logs."""
    address = getattr(model, "server_address", None)
    parts = urlsplit(str(address())) if callable(address) else None
    if parts is None or parts.hostname is None:
        return {}
    return {SERVER: parts.hostname, PORT: parts.port or (443 if parts.scheme in ("https", "wss") else 80)}


def _finish_reasons(response: ModelResponse) -> list[str]:
    """Return the reason for the end of a reply, in the conventions' terms: a tool call, or its end."""
    kinds = {to_plain(item).get("type") for item in response.output}
    return ["tool_call" if any(str(kind).endswith("_call") for kind in kinds) else "stop"]


def _name(model: object) -> str | None:
    name = getattr(model, "model", None)
    return name if isinstance(name, str) else None


def _tool_start(facts: Facts, config: TracedConfig, content: bool) -> Attributes:
    call, tool = facts["call"], facts["tool"]
    attributes = {
        AGENT: facts["agent"].name,
        TOOL: call.name,
        TOOL_TYPE: "function",
        TOOL_DESCRIPTION: tool.description or None,
        CALL_ID: call.id,
    }
    if content:
        attributes[ARGUMENTS] = _text(call.arguments)
    return attributes


def _handoff_start(facts: Facts, config: TracedConfig, content: bool) -> Attributes:
    attributes = {AGENT: facts["agent"].name, CALL_ID: facts["call"].id}
    if content:
        attributes[ARGUMENTS] = _text(facts["call"].arguments)
    return attributes


def _guardrail_start(facts: Facts, config: TracedConfig, content: bool) -> Attributes:
    return {AGENT: facts["agent"].name, GUARDRAIL: facts["guardrail"], GUARDRAIL_STAGE: facts["stage"]}


_STARTS: dict[str, Callable[[Facts, TracedConfig, bool], Attributes]] = {
    "run": _run_start,
    "model": _model_start,
    "tool": _tool_start,
    "handoff": _handoff_start,
    "guardrail": _guardrail_start,
}


# --- what is known at its end ----------------------------------------------------------------------------------------


def _run_end(facts: Facts, content: bool) -> Attributes:
    run = facts["run"]
    attributes = {
        RUN_STATUS: run.status,
        RUN_TURNS: run.progress.turns,
        LAST_AGENT: run.progress.agent,
        **_tokens(facts["usage"]),
        REQUESTS: facts["usage"].requests,
    }
    if content and facts["final"] is not None:
        attributes[OUTPUT] = _messages([{"role": "assistant", "content": _text(facts["final"])}])
    return attributes


def _model_end(facts: Facts, content: bool) -> Attributes:
    response = facts["response"]
    attributes = {
        RESPONSE_ID: response.response_id,
        RESPONSE_MODEL: getattr(response, "model", None),
        FINISH_REASONS: _finish_reasons(response),
        **_tokens(Usage.from_provider(response.usage)),
    }
    if content:
        attributes[OUTPUT] = _messages(response.output)
    return attributes


def _tool_end(facts: Facts, content: bool) -> Attributes:
    outcome = facts["outcome"]
    attributes: Attributes = {REJECTED: outcome.rejected or None}
    if content:
        attributes[RESULT] = _text(outcome.item_output)
    return attributes


def _handoff_end(facts: Facts, content: bool) -> Attributes:
    return {HANDOFF_TARGET: facts["target"].name}


def _guardrail_end(facts: Facts, content: bool) -> Attributes:
    return {TRIPPED: facts["tripped"]}


_ENDS: dict[str, Callable[[Facts, bool], Attributes]] = {
    "run": _run_end,
    "model": _model_end,
    "tool": _tool_end,
    "handoff": _handoff_end,
    "guardrail": _guardrail_end,
}


def _tokens(usage: Usage) -> Attributes:
    return {
        INPUT_TOKENS: usage.input_tokens,
        OUTPUT_TOKENS: usage.output_tokens,
        CACHE_READ_TOKENS: usage.input_tokens_details.cached_tokens or None,
        CACHE_WRITE_TOKENS: usage.input_tokens_details.cache_write_tokens or None,
        REASONING_TOKENS: usage.output_tokens_details.reasoning_tokens or None,
    }


# --- metrics ---------------------------------------------------------------------------------------------------------

_LABELS = (OPERATION, PROVIDER, MODEL, RESPONSE_MODEL, SERVER, PORT, AGENT, TOOL)


def measure_end(kind: str, attributes: Attributes, facts: Facts) -> None:
    """Count the tokens of a reply, where the application has set up a meter."""
    if kind != "model" or (meters := _meters()) is None:
        return
    usage = Usage.from_provider(facts["response"].usage)
    labels = _labels(attributes)
    for name, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
        meters[0].record(count, {**labels, TOKEN_TYPE: name})


def measure_duration(kind: str, attributes: Attributes, seconds: float, error: BaseException | None) -> None:
    """Note how long a request, a tool or a run took, where the application has set up a meter."""
    if kind not in OPERATIONS or (meters := _meters()) is None:
        return
    failed = {} if error is None else {ERROR_TYPE: _class_name(error)}
    meters[1].record(seconds, {**_labels(attributes), **failed})


def _labels(attributes: Attributes) -> Attributes:
    return {name: attributes[name] for name in _LABELS if attributes.get(name) is not None}


def _meters() -> tuple[Any, Any, Any, dict[str, Any]] | None:
    """Return two histograms, the counter of events and the gauges; None before a meter provider is set."""
    global _instruments
    provider = metrics.get_meter_provider()
    if type(provider).__module__.startswith("opentelemetry.metrics"):
        return None  # the API's own stand-in
    if _instruments[0] is not provider:
        meter = provider.get_meter(SCOPE)
        tokens = meter.create_histogram(TOKENS_METRIC, unit="{token}", description="Tokens of a request.")
        duration = meter.create_histogram(DURATION_METRIC, unit="s", description="How long an operation took.")
        events = meter.create_counter(EVENTS_METRIC, unit="{event}", description="Operational events, by name.")
        gauges = {
            name: meter.create_gauge(name, unit=unit, description=about)
            for name, (unit, about) in operational_events.MEASURES.items()
        }
        _instruments = provider, (tokens, duration, events, gauges)
    found: tuple[Any, Any, Any, dict[str, Any]] = _instruments[1]
    return found


_instruments: tuple[Any, Any] = (None, None)


# --- what was said ---------------------------------------------------------------------------------------------------


def _text(value: object) -> str:
    """Convert a value to JSON text that any exporter can encode. An unreadable value must not break the run."""
    try:
        text = value if isinstance(value, str) else json.dumps(to_plain(value), ensure_ascii=False, default=repr)
    except (TypeError, ValueError, RecursionError):
        text = f"<{type(value).__name__}>"
    return text.encode("utf-8", "replace").decode("utf-8")


def _messages(items: Iterable[Any]) -> str:
    """Items in the conventions' shape: messages of parts."""
    return _text([_message(to_plain(item)) for item in items])


def _message(item: Item) -> dict[str, Any]:
    match item:
        case {"type": "function_call" | "custom_tool_call", "name": name, "call_id": call_id}:
            arguments = item.get("arguments", item.get("input"))
            part = {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
            return {"role": "assistant", "parts": [part]}
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": call_id}:
            part = {"type": "tool_call_response", "id": call_id, "response": item.get("output")}
            return {"role": "tool", "parts": [part]}
        case {"role": str(role), "content": str(content)}:
            return {"role": role, "parts": [{"type": "text", "content": content}]}
        case {"role": str(role), "content": list(content)}:
            return {"role": role, "parts": [_part(part) for part in content]}
        case _:
            return {"role": "assistant", "parts": [item]}  # a reasoning item, a hosted tool's call: as it is


def _part(part: object) -> object:
    match part:
        case {"type": "output_text" | "input_text", "text": text}:
            return {"type": "text", "content": text}
        case _:
            return part
