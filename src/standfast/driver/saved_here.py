"""Waking those of this process who watch a run, when this process has saved it.

Whoever watches looks at the store from time to time, as it must for what other processes save. What is saved here it
need not wait for. A save costs one look into a dictionary more, which is empty where nobody watches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_woken: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}


@contextmanager
def woken_by(run_id: str, event: asyncio.Event) -> Iterator[None]:
    """Set the event, which belongs to the running loop, whenever this process has saved a run of this id."""
    entry = (asyncio.get_running_loop(), event)
    _woken.setdefault(run_id, set()).add(entry)
    try:
        yield
    finally:
        left = _woken.get(run_id, set())
        left.discard(entry)
        if not left:
            _woken.pop(run_id, None)


def saved_here(run_id: str) -> None:
    """Wake those who watch this run, in whatever loop."""
    for loop, event in tuple(_woken.get(run_id, ())):
        with suppress(RuntimeError):  # that loop was closed
            loop.call_soon_threadsafe(event.set)
