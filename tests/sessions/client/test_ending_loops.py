"""The end of an event loop waits for what is still on its way to a store, and not longer than it may."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from standfast._src.base.errors import OutcomeUnknownError
from standfast._src.sessions.client import borrowed_loop_executor
from standfast._src.sessions.client.borrowed_loop_executor import BorrowedLoopExecutor
from standfast._src.sessions.storage import Done, KeyUpdate, Name, Plan, ReadAnswer, ReadRequest

NAME = Name("session", "c")


class Swallowing:
    """A client that takes a cancellation for a lost connection, and then never has an answer."""

    def __init__(self) -> None:
        self.asked = 0

    async def ask_many(self, questions: Sequence[Any]) -> list[Any]:
        if isinstance(questions[0], ReadRequest):
            return [ReadAnswer()]
        self.asked += 1
        try:
            await asyncio.sleep(3600 if self.asked == 1 else 0.01)
        except asyncio.CancelledError:
            pass
        return [OutcomeUnknownError("the connection broke", "Ask again.")]


def looking() -> Plan[Any]:
    return (yield ReadRequest(NAME))


def writing() -> Plan[Any]:
    done = yield [KeyUpdate(NAME, put={"a": b"1"})]
    assert isinstance(done, Done)


def test_a_loop_ends_in_its_time_though_a_client_swallows_the_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would ask until the request's own deadline: an hour, here."""
    monkeypatch.setattr(borrowed_loop_executor, "LAST_WAIT_S", 0.2)
    store = Swallowing()
    carrier = BorrowedLoopExecutor(store)

    async def main() -> None:
        await carrier.carry(looking, timeout_s=60, kind="read")
        carrier.post(writing, 3600)
        while not store.asked:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert store.asked > 1, "it was asked for again while there was time"
