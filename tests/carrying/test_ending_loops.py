"""The end of an event loop waits for what is still on its way to a store, and not longer than it may."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from standfast.carrying import looped
from standfast.carrying.looped import LoopCarrier
from standfast.ground.errors import OutcomeUnknownError
from standfast.sessions.port import Change, Done, Look, Name, Plan, Sight

NAME = Name("session", "c")


class Swallowing:
    """A client that takes a cancellation for a lost connection, and then never has an answer."""

    def __init__(self) -> None:
        self.asked = 0

    async def ask_many(self, questions: Sequence[Any]) -> list[Any]:
        if isinstance(questions[0], Look):
            return [Sight()]
        self.asked += 1
        try:
            await asyncio.sleep(3600 if self.asked == 1 else 0.01)
        except asyncio.CancelledError:
            pass
        return [OutcomeUnknownError("the connection broke", "Ask again.")]


def looking() -> Plan[Any]:
    return (yield Look(NAME))


def writing() -> Plan[Any]:
    done = yield [Change(NAME, put={"a": b"1"})]
    assert isinstance(done, Done)


def test_a_loop_ends_in_its_time_though_a_client_swallows_the_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would ask until the request's own deadline: an hour, here."""
    monkeypatch.setattr(looped, "LAST_WAIT_S", 0.2)
    store = Swallowing()
    carrier = LoopCarrier(store)

    async def main() -> None:
        await carrier.carry(looking, timeout_s=60, kind="read")
        carrier.post(writing, 3600)
        while not store.asked:
            await asyncio.sleep(0)

    asyncio.run(main())
    assert store.asked > 1, "it was asked for again while there was time"
