"""Spans of a program's own around its runs, under the names that the OpenAI Agents SDK has for them.

`trace("Support desk")` groups runs under one span, `custom_span("fetch invoice")` marks a piece of work. Both are
OpenTelemetry spans; where they go is what the application told OpenTelemetry, and without a tracer provider they cost
nothing and lead nowhere. What the SDK does with processors and exporters of its own is OpenTelemetry's business here:
those functions say so.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from contextvars import Token
from types import TracebackType
from typing import Any, Self

from opentelemetry import context, trace as otel
from opentelemetry.trace import StatusCode

from standfast.ground.errors import UserError
from standfast.telemetry import otel as telemetry, switch as telemetry_switch

ADVICE = "Give an OpenTelemetry TracerProvider a span processor; docs/how-to/trace-runs.md shows how."


class _Scope:
    """A span that is begun and ended by hand or by `with`; nothing happens where nobody traces."""

    def __init__(
        self, span_name: str, attributes: Mapping[str, Any], tracer: Any, parent: _Scope | None = None
    ) -> None:
        self._span_name, self._attributes, self.tracer = span_name, attributes, tracer
        self._parent = parent
        self._span: Any = None
        self._attached: Any = None
        self._begun = self._over = False

    def start(self, mark_as_current: bool = False) -> None:
        """Begin; with `mark_as_current` runs and spans that follow in this task belong inside."""
        if self._begun:
            return
        self._begun = True
        if self.tracer is not None:
            above = None if self._parent is None or self._parent._span is None else self._parent._span
            place = None if above is None else otel.set_span_in_context(above)  # None: inside what is current
            attributes = telemetry.present(self._attributes)
            self._span = self.tracer.start_span(self._span_name, context=place, attributes=attributes)
        if mark_as_current:
            self._enter()

    def finish(self, reset_current: bool = False) -> None:
        """End; with `reset_current` what was current before is current again. A second time changes nothing."""
        if self._over or not self._begun:
            return
        self._over = True
        if reset_current:
            self._leave()
        if self._span is not None:
            self._span.end()

    def _enter(self) -> None:
        if self._span is not None:
            self._attached = context.attach(otel.set_span_in_context(self._span))

    def _leave(self) -> None:
        if self._attached is not None:
            context.detach(self._attached)
            self._attached = None

    def __enter__(self) -> Self:
        self.start(mark_as_current=True)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None and self._span is not None and not self._over:
            telemetry.mark_failed(self._span, error, content=False)
        self.finish(reset_current=True)


class Trace(_Scope):
    """One workflow: everything that runs inside belongs to one span. Made by `trace`."""

    def __init__(
        self, name: str, trace_id: str, group_id: str | None, metadata: Mapping[str, Any] | None, disabled: bool,
        tracer: Any,
    ) -> None:  # fmt: skip
        self.name, self.trace_id, self.group_id, self.metadata = name, trace_id, group_id, metadata
        self.disabled = disabled
        self._token: Token[Any] | None = None
        attributes = {
            telemetry.OPERATION: telemetry.WORKFLOW_OPERATION,
            telemetry.WORKFLOW: name,
            telemetry.TRACE_ID: trace_id,
            telemetry.GROUP_ID: group_id,
            telemetry.CONVERSATION: group_id,
            **telemetry.under(telemetry.METADATA, metadata),
        }
        super().__init__(f"{telemetry.WORKFLOW_OPERATION} {name}", attributes, tracer)

    def _enter(self) -> None:
        self._token = telemetry_switch.current_trace.set(self)
        super()._enter()

    def _leave(self) -> None:
        super()._leave()
        if self._token is not None:
            telemetry_switch.current_trace.reset(self._token)
            self._token = None


class Span(_Scope):
    """A piece of work. Made by `custom_span`."""

    def __init__(
        self, name: str, data: Mapping[str, Any] | None, span_id: str, tracer: Any, parent: Trace | Span | None
    ) -> None:
        self.name, self.data, self.span_id = name, dict(data or {}), span_id
        self.error: Mapping[str, Any] | None = None
        super().__init__(name, telemetry.under(telemetry.DATA, data), tracer, parent)

    def set_error(self, error: Mapping[str, Any]) -> None:
        """Mark the work as failed: `{"message": ..., "data": ...}`. The message becomes the span's status."""
        self.error = error
        if self._span is not None:
            self._span.set_status(StatusCode.ERROR, str(error.get("message", "")))
            self._span.set_attributes(telemetry.under(telemetry.DATA, error.get("data")))


def trace(
    workflow_name: str,
    trace_id: str | None = None,
    group_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    tracing: Any = None,
    disabled: bool = False,
) -> Trace:
    """One span around everything that runs inside `with trace("Support desk"):`.

    `group_id` says what several of them share, such as a chat thread. `trace_id` is kept as an attribute, for
    OpenTelemetry makes its own. `tracing` is what `RunConfig.tracing` is. `disabled=True` leaves no spans of what runs
    inside.
    """
    return Trace(
        workflow_name, trace_id or gen_trace_id(), group_id, metadata, disabled, _tracer(tracing, disabled=disabled)
    )


def custom_span(
    name: str,
    data: Mapping[str, Any] | None = None,
    span_id: str | None = None,
    parent: Trace | Span | None = None,
    disabled: bool = False,
) -> Span:
    """One span around a piece of your own work; `data` becomes attributes.

    It belongs to what is current (a trace, a run, a tool call), or to `parent`.
    """
    return Span(name, data, span_id or gen_span_id(), _tracer(None, disabled=disabled), parent)


def _tracer(tracing: Any, *, disabled: bool) -> Any:
    if disabled or telemetry_switch.is_off():
        return None
    around = get_current_trace()
    return telemetry.tracer_from(tracing) if around is None or tracing is not None else around.tracer


def get_current_trace() -> Trace | None:
    """The trace that this task is in; None outside of any."""
    found: Trace | None = telemetry_switch.current_trace.get()
    return found


def gen_trace_id() -> str:
    """A new id for `trace(trace_id=...)` and `RunConfig.trace_id`."""
    return f"trace_{uuid.uuid4().hex}"


def gen_span_id() -> str:
    """A new id for `custom_span(span_id=...)`."""
    return f"span_{uuid.uuid4().hex[:24]}"


def flush_traces() -> None:
    """Send the spans that wait in the global tracer provider, if it is of a kind that lets spans wait."""
    flush = getattr(otel.get_tracer_provider(), "force_flush", None)
    if flush is not None:
        flush()


def set_tracing_export_api_key(api_key: str) -> None:
    """Accepted and without effect: traces are OpenTelemetry spans and do not go to OpenAI.

    Whoever receives them has its own key, which is given to the OpenTelemetry exporter.
    """


def add_trace_processor(processor: Any) -> None:
    """Refused: spans are processed by OpenTelemetry. The error says where to put a processor."""
    raise UserError(f"standfast has no trace processors, and was given a {type(processor).__name__}", ADVICE)


def set_trace_processors(processors: Sequence[Any]) -> None:
    """Refused as `add_trace_processor` is, but for an empty list: nothing of standfast's own sends traces anyway."""
    for processor in processors:
        add_trace_processor(processor)


def set_trace_provider(provider: Any) -> None:
    """Refused: the provider of spans is OpenTelemetry's. The error names the function that sets it."""
    raise UserError(
        f"standfast has no trace provider of its own to replace by a {type(provider).__name__}",
        "Call opentelemetry.trace.set_tracer_provider, or give one run its own in RunConfig.tracing.",
    )
