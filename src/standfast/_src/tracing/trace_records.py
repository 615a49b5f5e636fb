"""Traces and spans as records for processors, under the SDK's names.

A record is begun and ended by hand or by `with`. It tells the processors, and a bridge to OpenTelemetry where it has
one: the spans of runs make their OpenTelemetry spans themselves (`otel`), those of a program go over the bridge.
"""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextvars import Token
from datetime import UTC, datetime
from inspect import signature
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypedDict, TypeVar

from standfast._src.base.logs import logger
from standfast._src.tracing import span_data, tracing_switch
from standfast._src.tracing.sdk_classes import register_with_sdk
from standfast._src.tracing.span_data import SpanData

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

TSpanData = TypeVar("TSpanData", bound=SpanData)


class SpanError(TypedDict):
    """Error of a span."""

    message: str
    data: dict[str, Any] | None


class TracingProcessor(ABC):
    """Receiver of every trace and span, added by `add_trace_processor`. Its errors are logged and stop nothing."""

    @abstractmethod
    def on_trace_start(self, trace: Trace) -> None:
        """A trace begins."""

    @abstractmethod
    def on_trace_end(self, trace: Trace) -> None:
        """A trace has ended."""

    @abstractmethod
    def on_span_start(self, span: Span[Any]) -> None:
        """A span begins."""

    @abstractmethod
    def on_span_end(self, span: Span[Any]) -> None:
        """Called at the end of a span, with complete data."""

    @abstractmethod
    def shutdown(self) -> None:
        """The program ends."""

    @abstractmethod
    def force_flush(self) -> None:
        """Send all queued records."""


class Bridge(Protocol):
    """OpenTelemetry side of a record."""

    def start(self) -> None:
        """Begin the span."""

    def enter(self) -> None:
        """Make it the current span of this task."""

    def leave(self) -> None:
        """Restore the previous current span."""

    def fail(self, error: BaseException) -> None:
        """Mark it as failed by an error."""

    def say(self, error: Mapping[str, Any]) -> None:
        """Mark it as failed, with the program's own text."""

    def end(self) -> None:
        """End the span."""


class SynchronousMultiTracingProcessor(TracingProcessor):
    """Calls several processors in the order of their addition. Their exceptions are logged and stop nothing."""

    def __init__(self) -> None:
        self._processors: tuple[TracingProcessor, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._processors)

    @property
    def registered(self) -> tuple[TracingProcessor, ...]:
        """The processors, in the order of their calls."""
        return self._processors

    def add_tracing_processor(self, tracing_processor: TracingProcessor) -> None:
        """Add a processor at the end."""
        self._processors = (*self._processors, tracing_processor)

    def set_processors(self, processors: Iterable[TracingProcessor]) -> None:
        """Replace all processors."""
        self._processors = tuple(processors)

    def on_trace_start(self, trace: Trace) -> None:
        """Forward the start of a trace."""
        self._tell("on_trace_start", trace)

    def on_trace_end(self, trace: Trace) -> None:
        """Forward the end of a trace."""
        self._tell("on_trace_end", trace)

    def on_span_start(self, span: Span[Any]) -> None:
        """Forward the start of a span."""
        self._tell("on_span_start", span)

    def on_span_end(self, span: Span[Any]) -> None:
        """Forward the end of a span."""
        self._tell("on_span_end", span)

    def shutdown(self, timeout: float | None = None) -> None:
        """Shut all processors down; a processor with a timeout gets the rest of `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for processor in self._processors:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            takes = left is not None and "timeout" in signature(processor.shutdown).parameters
            self._tell_one(processor, "shutdown", **({"timeout": left} if takes else {}))

    def force_flush(self) -> None:
        """Flush every processor."""
        self._tell("force_flush")

    def _tell(self, what: str, *about: _Record) -> None:
        register_with_sdk(OWN_CLASSES)
        for processor in self._processors:
            self._tell_one(processor, what, *about)

    def _tell_one(self, processor: TracingProcessor, what: str, *about: _Record, **options: Any) -> None:
        try:
            getattr(processor, what)(*about, **options)
        except Exception as error:  # an observer must not break what it observes
            logger.warning("%s of a trace processor raised %s", what, type(error).__name__, exc_info=error)


processors = SynchronousMultiTracingProcessor()
"""Processors of this process."""


def gen_trace_id() -> str:
    """A new id for `trace(trace_id=...)` and `RunConfig.trace_id`."""
    return f"trace_{uuid.uuid4().hex}"


def gen_span_id() -> str:
    """A new id for `custom_span(span_id=...)`."""
    return f"span_{uuid.uuid4().hex[:24]}"


def gen_group_id() -> str:
    """A new id for `trace(group_id=...)`."""
    return f"group_{uuid.uuid4().hex[:24]}"


def time_iso() -> str:
    """Return the present time in the format of traces."""
    return datetime.now(UTC).isoformat()


class _Record:
    """Common part of traces and spans: begin, become current, end, each at most once."""

    _start_event = _end_event = ""
    _current: Any

    def __init__(self, bridge: Bridge | None, processor: TracingProcessor | None) -> None:
        self._bridge, self._processor = bridge, processor
        self.started_at: str | None = None
        self.ended_at: str | None = None
        self._token: Token[Any] | None = None

    def start(self, mark_as_current: bool = False) -> None:
        """Begin; with `mark_as_current`, later runs and spans of this task are children."""
        if self.started_at is not None:
            return
        self.started_at = time_iso()
        if self._bridge is not None:
            self._bridge.start()
        if self._processor is not None:
            getattr(self._processor, self._start_event)(self)
        if mark_as_current:
            self._token = self._current.set(self)
            if self._bridge is not None:
                self._bridge.enter()

    def finish(self, reset_current: bool = False) -> None:
        """End; with `reset_current` what was current before is current again. A second time changes nothing."""
        if self.ended_at is not None or self.started_at is None:
            return
        self.ended_at = time_iso()
        if reset_current and self._token is not None:
            if self._bridge is not None:
                self._bridge.leave()
            try:
                self._current.reset(self._token)
            except ValueError:
                logger.debug("a trace was left in another task than it was entered in")
            self._token = None
        if self._processor is not None:
            getattr(self._processor, self._end_event)(self)
        if self._bridge is not None:
            self._bridge.end()

    def __enter__(self) -> Self:
        self.start(mark_as_current=True)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None and self._bridge is not None and self.ended_at is None:
            self._bridge.fail(error)
        self.finish(reset_current=True)


class Trace(_Record):
    """A workflow: the parent of everything that runs inside. Made by `trace`."""

    _start_event, _end_event, _current = "on_trace_start", "on_trace_end", tracing_switch.current_trace

    def __init__(
        self,
        name: str,
        trace_id: str | None,
        group_id: str | None,
        metadata: Mapping[str, Any] | None,
        processor: TracingProcessor | None = processors,
        tracing_api_key: str | None = None,
        *,
        disabled: bool = False,
        bridge: Bridge | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        super().__init__(bridge, None if disabled else processor)
        self.name, self.group_id, self.metadata = name, group_id, metadata
        self.trace_id = trace_id or gen_trace_id()
        self.disabled, self.tracer = disabled, tracer
        self.tracing_api_key = tracing_api_key

    def export(self) -> dict[str, Any] | None:
        """Return the trace as plain data; None if disabled."""
        if self.disabled:
            return None
        return {
            "object": "trace",
            "id": self.trace_id,
            "workflow_name": self.name,
            "group_id": self.group_id,
            "metadata": self.metadata,
        }

    def to_json(self, *, include_tracing_api_key: bool = False) -> dict[str, Any] | None:
        """Return the same as `export`; there is no key to include."""
        exported = self.export()
        if exported is not None and include_tracing_api_key and self.tracing_api_key:
            exported["tracing_api_key"] = self.tracing_api_key
        return exported


class Span(_Record, Generic[TSpanData]):
    """A piece of work. Made by `custom_span` and its relatives, and by runs."""

    _start_event, _end_event, _current = "on_span_start", "on_span_end", tracing_switch.current_span

    def __init__(
        self,
        trace_id: str,
        span_id: str | None,
        parent_id: str | None,
        processor: TracingProcessor | None,
        span_data: TSpanData,
        tracing_api_key: str | None = None,
        trace_metadata: Mapping[str, Any] | None = None,
        *,
        bridge: Bridge | None = None,
    ) -> None:
        super().__init__(bridge, processor)
        self.span_data, self.span_id = span_data, span_id or gen_span_id()
        self.trace_id, self.parent_id = trace_id, parent_id
        self.trace_metadata, self.tracing_api_key = trace_metadata, tracing_api_key
        self.error: SpanError | None = None
        self.inner: Span[Any] | None = None
        """Innermost span under way, for work in tasks other than the opening one."""

    @property
    def name(self) -> str | None:
        """Name in its data, if any."""
        return getattr(self.span_data, "name", None)

    @property
    def data(self) -> Any:
        """Data of a custom span."""
        return getattr(self.span_data, "data", None)

    def set_error(self, error: SpanError) -> None:
        """Mark the work as failed: `{"message": ..., "data": ...}`. The message becomes the span's status."""
        self.error = error
        if self._bridge is not None:
            self._bridge.say(error)

    def export(self) -> dict[str, Any] | None:
        """The span as plain data."""
        metadata = getattr(self.span_data, "metadata", None)
        return {
            "object": "trace.span",
            "id": self.span_id,
            "trace_id": self.trace_id,
            "parent_id": self.parent_id,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "span_data": self.span_data.export(),
            "error": self.error,
            **({"metadata": metadata} if metadata else {}),
        }


def make_span(
    data: TSpanData,
    *,
    span_id: str | None = None,
    parent: Trace | Span[Any] | None = None,
    bridge: Bridge | None = None,
    told: bool = True,
) -> Span[TSpanData]:
    """Make a span below `parent` or the current span. Unless `told` is false, processors are notified."""
    around: Trace | None = tracing_switch.current_trace.get()
    above = parent if parent is not None else Scope.get_current_span()
    inside = above if above is not None else around
    return Span(
        "no-op" if inside is None else inside.trace_id,
        span_id,
        above.span_id if isinstance(above, Span) else None,
        processors if told else None,
        data,
        None if inside is None else inside.tracing_api_key,
        None if around is None else around.metadata,
        bridge=bridge,
    )


class NoOpSpan(Span[TSpanData]):
    """Span without effect: no processor is notified, and `export` gives None."""

    def __init__(self, span_data: TSpanData) -> None:
        super().__init__("no-op", "no-op", None, None, span_data)

    def export(self) -> dict[str, Any] | None:
        """Return None."""
        return None


class NoOpTrace(Trace):
    """Trace without effect: no processor is notified, also of runs inside."""

    def __init__(self) -> None:
        super().__init__("no-op", "no-op", None, None, None, disabled=True)


SpanImpl, TraceImpl = Span, Trace
"""Names of the concrete classes in the OpenAI Agents SDK; here there is one class of each."""


class Scope:
    """Current trace and span of this task."""

    @classmethod
    def get_current_trace(cls) -> Trace | None:
        """Return the trace of this task, or None."""
        found: Trace | None = tracing_switch.current_trace.get()
        return found

    @classmethod
    def set_current_trace(cls, trace: Trace | None) -> Token[Any]:
        """Make a trace current; return the token that undoes it."""
        return tracing_switch.current_trace.set(trace)

    @classmethod
    def reset_current_trace(cls, token: Token[Any]) -> None:
        """Undo `set_current_trace`."""
        tracing_switch.current_trace.reset(token)

    @classmethod
    def get_current_span(cls) -> Span[Any] | None:
        """Return the span of this task, or None."""
        found: Span[Any] | None = tracing_switch.current_span.get()
        while found is not None and found.inner is not None:
            found = found.inner
        return found

    @classmethod
    def set_current_span(cls, span: Span[Any] | None) -> Token[Any]:
        """Make a span current; return the token that undoes it."""
        return tracing_switch.current_span.set(span)

    @classmethod
    def reset_current_span(cls, token: Token[Any]) -> None:
        """Undo `set_current_span`."""
        tracing_switch.current_span.reset(token)


OWN_CLASSES = tuple(
    (name, kind)
    for name, kind in {**vars(span_data), **globals(), "SpanImpl": Span, "TraceImpl": Trace}.items()
    if isinstance(kind, type) and issubclass(kind, SpanData | Span | Trace)
)
"""Classes of the objects given to processors, by their names in the SDK."""
