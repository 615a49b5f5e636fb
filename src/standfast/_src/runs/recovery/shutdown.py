"""Shutdown of a worker on a signal, without losing the work of its runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from standfast._src.runs.loop.active_runs import HAND_OVER_S, hand_over_all, leave


@asynccontextmanager
async def handing_over_on(*signals: signal.Signals, within_s: float = HAND_OVER_S) -> AsyncIterator[asyncio.Event]:
    """Hand over every run of this event loop when the process gets one of these signals (default: SIGTERM).

    Yields an event, set by the signal: take no more work; a run started all the same is handed over at once. Leaving
    the block waits for the handovers, see `Runner.hand_over`. The signals must have no other handler in the meantime,
    and the event loop must be able to receive them (the main thread's, not on Windows).
    """
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    handing_over: list[asyncio.Task[tuple[str, ...]]] = []

    def stop() -> None:
        if not stopping.is_set():
            stopping.set()
            leave(is_leaving=True)  # also one that starts before the worker has looked at the event
            handing_over.append(asyncio.ensure_future(hand_over_all(within_s)))

    heard = signals or (signal.SIGTERM,)
    for one in heard:
        loop.add_signal_handler(one, stop)
    try:
        yield stopping
    finally:
        try:
            for task in handing_over:
                await task
        finally:
            leave(is_leaving=False)
            for one in heard:
                loop.remove_signal_handler(one)
