"""Ready-made processors of the SDK's kind: spans to the terminal, and in batches to an exporter."""

from __future__ import annotations

import json
import sys
import threading
from abc import ABC, abstractmethod
from typing import Any, TypedDict

from standfast._src.tracing.trace_records import Span, Trace, TracingProcessor


class TracingConfig(TypedDict, total=False):
    """Type of `RunConfig.tracing`: the SDK's key, which has no effect, or an OpenTelemetry provider."""

    api_key: str
    tracer_provider: Any
    include_task_and_turn_spans: bool


class TracingExporter(ABC):
    """Sends finished traces and spans somewhere."""

    @abstractmethod
    def export(self, items: list[Trace | Span[Any]]) -> None:
        """Send traces and spans."""


class ConsoleSpanExporter(TracingExporter):
    """Writes traces and spans to the terminal."""

    def export(self, items: list[Trace | Span[Any]]) -> None:
        """Print each as JSON."""
        for item in items:
            sys.stdout.write(f"{json.dumps(item.export(), default=str)}\n")


class BatchTraceProcessor(TracingProcessor):
    """Collect ended spans and pass them to an exporter: when a batch is full, at `force_flush`, and at the end.

    The SDK's processor sends from a thread of its own every few seconds. Here the task that ends the last span of a
    batch sends it: nothing is lost with a thread that dies with the program. Give it an exporter that does not wait.
    """

    def __init__(
        self,
        exporter: TracingExporter,
        max_queue_size: int = 8192,
        max_batch_size: int = 128,
        schedule_delay: float = 5.0,
        export_trigger_ratio: float = 0.7,
    ) -> None:
        self._exporter, self._size, self._most = exporter, max_batch_size, max_queue_size
        self._waiting: list[Trace | Span[Any]] = []
        self._lock = threading.Lock()

    def on_trace_start(self, trace: Trace) -> None:
        """Queue a trace at its begin, like the SDK."""
        self._add(trace)

    def on_trace_end(self, trace: Trace) -> None:
        """Do nothing: the trace was queued at its begin."""

    def on_span_start(self, span: Span[Any]) -> None:
        """Do nothing: a span is queued at its end."""

    def on_span_end(self, span: Span[Any]) -> None:
        """Queue a span for its batch."""
        self._add(span)

    def _add(self, item: Trace | Span[Any]) -> None:
        with self._lock:
            if len(self._waiting) >= self._most:
                return  # the newest is dropped, as with every bounded queue of spans
            self._waiting.append(item)
            full = len(self._waiting) >= self._size
        if full:
            self.force_flush()

    def force_flush(self) -> None:
        """Send all queued records."""
        with self._lock:
            batch, self._waiting = self._waiting, []
        if batch:
            self._exporter.export(batch)

    def shutdown(self, timeout: float | None = None) -> None:
        """Send all queued records."""
        self.force_flush()
