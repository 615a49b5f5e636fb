"""The loop of runs knows two functions and nothing of runs: here it drives a lamp."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from standfast._src.runs.loop.reconciler import Reconciler


@dataclass(frozen=True)
class Lamp:
    """It should be as bright as it was asked to be, until it is unplugged."""

    wanted: int = 0
    level: int = 0
    unplugged: bool = False


@dataclass(frozen=True)
class Turn:
    to: int

    @property
    def key(self) -> str:
        return f"turn/{self.to}"


def advance(lamp: Lamp, event: dict[str, Any]) -> Lamp:
    return replace(lamp, **event)


def due(lamp: Lamp) -> tuple[Turn, ...]:
    return (Turn(lamp.wanted),) if lamp.wanted != lamp.level and not lamp.unplugged else ()


Loop = Reconciler[Lamp, dict[str, Any], Turn]


async def test_an_event_from_outside_is_acted_upon_while_an_effect_is_under_way():
    """A frame that arrives, a decision that comes in: what is no longer due stops, what is due now starts."""
    log: list[str] = []

    async def perform(loop: Loop, effect: Turn) -> None:
        log.append(f"begin {effect.to}")
        try:
            if effect.to == 1:
                await asyncio.Event().wait()  # for ever
        except asyncio.CancelledError:
            log.append(f"stop {effect.to}")
            raise
        await loop.record({"level": effect.to}, completes=effect)

    loop = Loop(Lamp(), advance=advance, due=due, perform=perform, inline=False, rests=lambda lamp: lamp.unplugged)
    driving = asyncio.ensure_future(loop.reconcile())
    for wanted in (1, 2, 3):
        await asyncio.sleep(0)
        await loop.record({"wanted": wanted})
        while f"begin {wanted}" not in log:
            await asyncio.sleep(0.001)
    while loop.state.level != 3:
        await asyncio.sleep(0.001)
    assert not driving.done(), "nothing is due, and the lamp may still be asked for something"
    await loop.record({"unplugged": True})
    await driving
    assert log == ["begin 1", "stop 1", "begin 2", "begin 3"]


async def test_one_effect_alone_is_performed_in_the_callers_task():
    tasks: list[Any] = []

    async def perform(loop: Loop, effect: Turn) -> None:
        tasks.append(asyncio.current_task())
        await loop.record({"level": effect.to}, completes=effect)

    loop = Loop(Lamp(wanted=1), advance=advance, due=due, perform=perform)
    await loop.reconcile()
    assert tasks == [asyncio.current_task()]
