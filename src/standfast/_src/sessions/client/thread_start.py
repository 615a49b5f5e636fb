"""Start the threads of a store and open it, with an error that says what to do where the process may not."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from typing import TypeVar

from standfast._src.base.errors import StoreUnavailableError

T = TypeVar("T")

_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN})
"""What an operating system says where a process has used up what it may have."""


def start_thread(target: Callable[[], None], name: str) -> threading.Thread:
    """A thread that runs `target` and does not keep the process alive.

    Raises StoreUnavailableError where there are no more threads to be had; the next request may try again.
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
    """What `open_store` gives; StoreUnavailableError where the process has used up what it may have."""
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
