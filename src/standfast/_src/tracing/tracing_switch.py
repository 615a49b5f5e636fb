"""Switch of all tracing, and the workflow of the current task.

Apart from `telemetry`, so that a program that only wants tracing off does not load OpenTelemetry for that.
"""

from __future__ import annotations

import os
from contextvars import ContextVar
from typing import Any

current_trace: ContextVar[Any] = ContextVar("standfast_trace", default=None)
"""The `Trace` that the current task is in, None outside of any."""

current_span: ContextVar[Any] = ContextVar("standfast_span", default=None)
"""The `Span` that the current task is in, None outside of any."""

VARIABLES = ("STANDFAST_DISABLE_TRACING", "OPENAI_AGENTS_DISABLE_TRACING")

_disabled: bool | None = None


def set_tracing_disabled(disabled: bool | None) -> None:
    """Switch tracing off, or on again, for every run of this process.

    Before the first call, and after one with None, the environment decides (STANDFAST_DISABLE_TRACING=1, or the SDK's
    variable). There is nothing to switch off in a program that has not set an OpenTelemetry tracer provider.
    """
    global _disabled
    _disabled = disabled


def is_off() -> bool:
    """Return whether new runs are not traced: switched off, or inside `trace(..., disabled=True)`."""
    disabled = _off_by_environment() if _disabled is None else _disabled
    inside = current_trace.get()
    return disabled or (inside is not None and inside.disabled)


def _off_by_environment() -> bool:
    value = next((os.environ[name] for name in VARIABLES if name in os.environ), "")
    return value.strip().lower() in ("1", "true", "yes", "on")
