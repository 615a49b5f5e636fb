"""The logger of this package, and the SDK's helpers for logging a failure with or without private data.

Data given to a model or a tool may be private, and exceptions often quote it. The SDK's own environment variables
(`OPENAI_AGENTS_DONT_LOG_MODEL_DATA`, `OPENAI_AGENTS_DONT_LOG_TOOL_DATA`) decide: unless a variable is set to 0 or
false, only the exception's class is logged.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Protocol

logger = logging.getLogger("standfast")
"""Everything this package logs goes here."""

session_logger = logging.getLogger("standfast.sessions")
"""And, below it, what stores of sessions log."""


class ActionLog(Protocol):
    """Function that logs a failure."""

    def __call__(
        self,
        target_logger: logging.Logger,
        message: str,
        exc: BaseException,
        *,
        stacklevel: int = 3,
        diagnostic_extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Log the message and, if allowed, the whole exception."""


def _may_show(*kinds: str) -> bool:
    values = (os.environ.get(f"OPENAI_AGENTS_DONT_LOG_{kind}_DATA", "1").strip().lower() for kind in kinds)
    return all(value in ("0", "false", "no", "off") for value in values)


def _action(level: int, *kinds: str) -> ActionLog:
    def log(
        target_logger: logging.Logger,
        message: str,
        exc: BaseException,
        *,
        stacklevel: int = 3,
        diagnostic_extra: Mapping[str, Any] | None = None,
    ) -> None:
        whole = _may_show(*kinds)
        told = message if whole else f"{message} ({type(exc).__name__})"
        extra = dict(diagnostic_extra) if whole and diagnostic_extra else None
        target_logger.log(level, told, exc_info=exc if whole else None, stacklevel=stacklevel - 1, extra=extra)

    return log


log_model_action_debug = _action(logging.DEBUG, "MODEL")
"""Log that something about a model's data failed."""

log_model_action_warning = _action(logging.WARNING, "MODEL")
"""Log, as a warning, that something about a model's data failed."""

log_model_action_error = _action(logging.ERROR, "MODEL")
"""Log, as an error, that something about a model's data failed."""

log_tool_action_debug = _action(logging.DEBUG, "TOOL")
"""Log that something about a tool's data failed."""

log_tool_action_warning = _action(logging.WARNING, "TOOL")
"""Log, as a warning, that something about a tool's data failed."""

log_tool_action_error = _action(logging.ERROR, "TOOL")
"""Log, as an error, that something about a tool's data failed."""

log_model_and_tool_action_debug = _action(logging.DEBUG, "MODEL", "TOOL")
"""Log that something about both kinds of data failed."""

log_model_and_tool_action_warning = _action(logging.WARNING, "MODEL", "TOOL")
"""Log, as a warning, that something about both kinds of data failed."""

log_model_and_tool_action_error = _action(logging.ERROR, "MODEL", "TOOL")
"""Log, as an error, that something about both kinds of data failed."""


def log_model_and_tool_data_warning(
    target_logger: logging.Logger,
    redacted_message: str,
    *,
    diagnostic_message: str,
    diagnostic_args: tuple[Any, ...] | Mapping[str, Any] | Callable[[], Any] | None = None,
    stacklevel: int = 2,
) -> None:
    """Warn with the diagnostic message if both kinds of data may be logged, else with the redacted message."""
    if not _may_show("MODEL", "TOOL"):
        target_logger.warning(redacted_message, stacklevel=stacklevel)
        return
    found: Any = diagnostic_args() if callable(diagnostic_args) else diagnostic_args
    arguments: Any = () if found is None else found if isinstance(found, tuple) else (found,)
    target_logger.warning(diagnostic_message, *arguments, stacklevel=stacklevel)


def enable_verbose_stdout_logging() -> None:
    """Print everything that standfast logs, debug messages too, to standard output. Again changes nothing."""
    logger.setLevel(logging.DEBUG)
    if not any(getattr(handler, "stream", None) is sys.stdout for handler in logger.handlers):
        logger.addHandler(logging.StreamHandler(sys.stdout))
