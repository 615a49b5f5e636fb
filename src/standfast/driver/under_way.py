"""The runs that are under way in an event loop, so that a worker that stops can hand them over."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Protocol
from weakref import WeakKeyDictionary

from standfast.ground.durations import check_seconds

HAND_OVER_S = 8.0
# What a run that has begun something may take to end it when its worker stops: with what closing takes after that (5 s)
# less than the 15 s of a lease, and the first part less than the 10 s that containers leave a process after SIGTERM.


class HandedOver(Protocol):
    """One call of the runner that can be told to leave the run to others."""

    def hand_over(self) -> None:
        """Begin nothing more, and leave when what is under way has ended."""
        ...

    def hand_over_now(self) -> None:
        """Leave, whatever is under way."""
        ...

    @property
    def run_id(self) -> str:
        """The run's id."""
        ...


class Worker:
    """The runs of one event loop."""

    def __init__(self) -> None:
        self.attempts: dict[HandedOver, asyncio.Future[None] | None] = {}
        """Those under way, each with what tells of its end, once somebody waits for that."""
        self.is_leaving = False
        """Whether the worker stops: whatever starts here is handed over before it has begun anything."""

    def has_ended(self, attempt: HandedOver) -> None:
        """This call of the runner has given back what it borrowed."""
        ended = self.attempts.pop(attempt)
        if ended is not None and not ended.done() and not ended.get_loop().is_closed():
            ended.set_result(None)


_workers: WeakKeyDictionary[asyncio.AbstractEventLoop, Worker] = WeakKeyDictionary()


def _here() -> Worker:
    loop = asyncio.get_running_loop()
    found = _workers.get(loop)
    if found is None:
        found = _workers[loop] = Worker()
    return found


def begin(attempt: HandedOver) -> Worker:
    """Note that this call of the runner is under way in the running loop; the worker is to be told of its end."""
    here = _here()
    here.attempts[attempt] = None
    if here.is_leaving:
        attempt.hand_over()
    return here


def leave(*, is_leaving: bool) -> None:
    """Hand over from now on whatever starts in the running loop, or no longer."""
    _here().is_leaving = is_leaving


async def hand_over_all(within_s: float) -> tuple[str, ...]:
    """Hand over every run that is under way in the running loop, see `hand_over`; their ids."""
    check_seconds("within_s", within_s)
    attempts = list(_here().attempts)
    await hand_over(attempts, within_s)
    return tuple(one.run_id for one in attempts)


async def hand_over(attempts: Collection[HandedOver], within_s: float) -> None:
    """Tell these to hand their runs over, and return when they have; after `within_s` what is left is cut."""
    here, loop = _here().attempts, asyncio.get_running_loop()
    ended: dict[HandedOver, asyncio.Future[None]] = {}
    for one in attempts:
        if one in here:
            ended[one] = here[one] = here[one] or loop.create_future()
            one.hand_over()
    if ended:
        await asyncio.wait(ended.values(), timeout=within_s)
    late = [one for one, left in ended.items() if not left.done()]
    for one in late:
        one.hand_over_now()
    if late:
        # Each of them waits for what it cuts, and for its store, no longer than a cancelled run does.
        await asyncio.wait([ended[one] for one in late])
