"""Traces and spans as records that processors are fed with, under the SDK's names.

A record is begun and ended by hand or by `with`. It tells the processors, and a bridge to OpenTelemetry where it has
one: the spans of runs make their OpenTelemetry spans themselves (`otel`), those of a program go over the bridge.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextvars import Token
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypedDict, TypeVar

from standfast._src.base.logs import logger
from standfast._src.tracing import tracing_switch
from standfast._src.tracing.span_data import SpanData

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

TSpanData = TypeVar("TSpanData", bound=SpanData)


class SpanError(TypedDict):
    """What went wrong in a span."""

    message: str
    data: dict[str, Any] | None


class TracingProcessor(ABC):
    """Told of every trace and span: give one to `add_trace_processor`. What it raises is logged and stops nothing."""

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
        """A span has ended: its data is whole."""

    @abstractmethod
    def shutdown(self) -> None:
        """The program ends."""

    @abstractmethod
    def force_flush(self) -> None:
        """Send what waits."""


class Bridge(Protocol):
    """The OpenTelemetry side of a record."""

    def start(self) -> None:
        """Begin the span."""

    def enter(self) -> None:
        """Make it the current one of this task."""

    def leave(self) -> None:
        """Let what was current before be current again."""

    def fail(self, error: BaseException) -> None:
        """Mark it as failed by this."""

    def say(self, error: Mapping[str, Any]) -> None:
        """Mark it as failed, in the program's own words."""

    def end(self) -> None:
        """End it."""


class Processors:
    """Whoever is told of traces and spans, in the order in which they were added."""

    def __init__(self) -> None:
        self._all: tuple[TracingProcessor, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, processor: TracingProcessor) -> None:
        """Tell this one, too."""
        self._all = (*self._all, processor)

    def replace(self, processors: Iterable[TracingProcessor]) -> None:
        """Tell these and no others."""
        self._all = tuple(processors)

    def tell(self, what: str, *about: _Record) -> None:
        """Call the method of this name of each; an observer must not break what it observes."""
        for processor in self._all:
            try:
                getattr(processor, what)(*about)
            except Exception as error:
                logger.warning("%s of a trace processor raised %s", what, type(error).__name__, exc_info=error)


processors = Processors()
"""Those of this process."""


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
    """Now, as traces write it."""
    return datetime.now(UTC).isoformat()


class _Record:
    """What traces and spans share: beginning, being current, ending, each once."""

    _start_event = _end_event = ""
    _current: Any

    def __init__(self, bridge: Bridge | None, *, told: bool) -> None:
        self._bridge, self._told = bridge, told
        self.started_at: str | None = None
        self.ended_at: str | None = None
        self._token: Token[Any] | None = None

    def start(self, mark_as_current: bool = False) -> None:
        """Begin; with `mark_as_current` runs and spans that follow in this task belong inside."""
        if self.started_at is not None:
            return
        self.started_at = time_iso()
        if self._bridge is not None:
            self._bridge.start()
        if self._told:
            processors.tell(self._start_event, self)
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
        if self._told:
            processors.tell(self._end_event, self)
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
    """One workflow: everything that runs inside belongs to it. Made by `trace`."""

    _start_event, _end_event, _current = "on_trace_start", "on_trace_end", tracing_switch.current_trace

    def __init__(
        self,
        name: str,
        trace_id: str,
        group_id: str | None,
        metadata: Mapping[str, Any] | None,
        *,
        disabled: bool = False,
        bridge: Bridge | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        super().__init__(bridge, told=not disabled)
        self.name, self.trace_id, self.group_id, self.metadata = name, trace_id, group_id, metadata
        self.disabled, self.tracer = disabled, tracer
        self.tracing_api_key: str | None = None

    def export(self) -> dict[str, Any] | None:
        """The trace as plain data; None if it is disabled."""
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
        """The same as `export`; there is no key to include."""
        return self.export()


class Span(_Record, Generic[TSpanData]):
    """A piece of work. Made by `custom_span` and its relatives, and by runs."""

    _start_event, _end_event, _current = "on_span_start", "on_span_end", tracing_switch.current_span

    def __init__(
        self,
        span_data: TSpanData,
        *,
        span_id: str | None = None,
        parent: Trace | Span[Any] | None = None,
        bridge: Bridge | None = None,
        told: bool = True,
    ) -> None:
        super().__init__(bridge, told=told)
        around: Trace | None = tracing_switch.current_trace.get()
        above = parent if parent is not None else tracing_switch.current_span.get()
        self.span_data, self.span_id = span_data, span_id or gen_span_id()
        self.parent_id = above.span_id if isinstance(above, Span) else None
        self.trace_id: str = above.trace_id if above is not None else "no-op" if around is None else around.trace_id
        self.trace_metadata = None if around is None else around.metadata
        self.tracing_api_key: str | None = None
        self.error: SpanError | None = None

    @property
    def name(self) -> str | None:
        """The name in its data, if it has one."""
        return getattr(self.span_data, "name", None)

    @property
    def data(self) -> Any:
        """What a custom span carries."""
        return getattr(self.span_data, "data", None)

    def set_error(self, error: SpanError) -> None:
        """Mark the work as failed: `{"message": ..., "data": ...}`. The message becomes the span's status."""
        self.error = error
        if self._bridge is not None:
            self._bridge.say(error)

    def export(self) -> dict[str, Any] | None:
        """The span as plain data."""
        return {
            "object": "trace.span",
            "id": self.span_id,
            "trace_id": self.trace_id,
            "parent_id": self.parent_id,
            "started_at": self.started_at,
            "ended_at": self.ended_at,
            "span_data": self.span_data.export(),
            "error": self.error,
        }


class Scope:
    """Which trace and span this task is in."""

    @classmethod
    def get_current_trace(cls) -> Trace | None:
        """The trace that this task is in; None outside of any."""
        found: Trace | None = tracing_switch.current_trace.get()
        return found

    @classmethod
    def set_current_trace(cls, trace: Trace | None) -> Token[Any]:
        """Make this trace the current one; returns what undoes it."""
        return tracing_switch.current_trace.set(trace)

    @classmethod
    def reset_current_trace(cls, token: Token[Any]) -> None:
        """Undo `set_current_trace`."""
        tracing_switch.current_trace.reset(token)

    @classmethod
    def get_current_span(cls) -> Span[Any] | None:
        """The span that this task is in; None outside of any."""
        found: Span[Any] | None = tracing_switch.current_span.get()
        return found

    @classmethod
    def set_current_span(cls, span: Span[Any] | None) -> Token[Any]:
        """Make this span the current one; returns what undoes it."""
        return tracing_switch.current_span.set(span)

    @classmethod
    def reset_current_span(cls, token: Token[Any]) -> None:
        """Undo `set_current_span`."""
        tracing_switch.current_span.reset(token)
