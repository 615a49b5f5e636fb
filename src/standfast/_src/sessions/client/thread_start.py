"""Start the threads of a store and open it, with a remedy in the error where a limit of the process prevents it."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import TypeVar

from standfast._src.base.errors import StoreUnavailableError

T = TypeVar("T")

_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""Error numbers of an operating system for a process that has reached a limit."""


def start_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """Start a daemon thread that runs `target`.

    Raises StoreUnavailableError where the system starts no more threads; the next request may try again.
    """
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except (RuntimeError, MemoryError) as error:
        raise _build_limit_error(
            f"no thread could be started ({error})",
            "Raise the limits of this process or its container: processes (ulimit -u) and memory.",
        ) from error
    return thread


def open_or_explain(open_store: Callable[[], T]) -> T:
    """Return the result of `open_store`; raises StoreUnavailableError where the process has reached a limit."""
    try:
        return open_store()
    except OSError as error:
        if error.errno not in _LIMITS:
            raise
        raise _build_limit_error(
            f"the store cannot be opened ({error})",
            "Raise the limits of this process (open files: ulimit -n), or close what it does not need.",
        ) from error


def _build_limit_error(what: str, remedy: str) -> StoreUnavailableError:
    made = StoreUnavailableError(what, remedy)
    made.is_lasting = True  # what fills a process does not help to empty it
    return made
