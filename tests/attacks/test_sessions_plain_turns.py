"""The in-process lock of a plain session, and a waiter whose event loop ends at the wrong moment (C13)."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

from standfast._src.sessions.foreign.adapter import PlainSession

PATIENCE_S = 60


class Minimal:
    """A session as somebody might write it."""

    session_id = "s"
    session_settings = None

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return []

    async def add_items(self, items: list[Any]) -> None:
        """Keep nothing."""

    async def pop_item(self) -> None:
        """Nothing is kept."""

    async def clear_session(self) -> None:
        """Nothing is kept."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_turn_that_was_on_its_way_to_a_loop_that_then_closed_goes_to_the_next_in_line() -> None:
    session = Minimal()
    held = PlainSession(session).hold()
    await held.acquire()
    waits, given_up = threading.Event(), threading.Event()

    def abandon() -> None:
        loop = asyncio.new_event_loop()

        async def wait_a_little() -> asyncio.Task[Any]:
            waiting = asyncio.ensure_future(PlainSession(session).hold().acquire())
            await asyncio.sleep(0.01)
            return waiting

        waiting = loop.run_until_complete(wait_a_little())
        waits.set()
        given_up.wait(PATIENCE_S)
        loop.close()
        del waiting, loop

    thread = threading.Thread(target=abandon)
    thread.start()
    assert await asyncio.to_thread(waits.wait, PATIENCE_S)
    await held.release()  # the turn is handed to a loop that will not run again
    given_up.set()
    await asyncio.to_thread(thread.join, PATIENCE_S)
    gc.collect()
    async with PlainSession(session).hold(wait_s=5):
        pass
