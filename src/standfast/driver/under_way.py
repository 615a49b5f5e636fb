"""The runs that are under way in an event loop, so that a worker that stops can hand them over."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Protocol
from weakref import WeakKeyDictionary, WeakSet

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


_under_way: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[HandedOver, asyncio.Future[None]]] = WeakKeyDictionary()

_leaving: WeakSet[asyncio.AbstractEventLoop] = WeakSet()
# The loops of workers that stop: whatever starts there is handed over before it has begun anything.


@contextmanager
def under_way(attempt: HandedOver) -> Iterator[None]:
    """While this call of the runner goes on in the running loop, until it has given back what it borrowed."""
    loop = asyncio.get_running_loop()
    here = _under_way.setdefault(loop, {})
    ended = here[attempt] = loop.create_future()
    if loop in _leaving:
        attempt.hand_over()
    try:
        yield
    finally:
        del here[attempt]
        if not ended.done() and not loop.is_closed():
            ended.set_result(None)


def leave(*, is_leaving: bool) -> None:
    """Hand over from now on whatever starts in the running loop, or no longer."""
    (_leaving.add if is_leaving else _leaving.discard)(asyncio.get_running_loop())


async def hand_over_all(within_s: float) -> tuple[str, ...]:
    """Hand over every run that is under way in the running loop, see `hand_over`; their ids."""
    check_seconds("within_s", within_s)
    attempts = list(_under_way.get(asyncio.get_running_loop(), {}))
    await hand_over(attempts, within_s)
    return tuple(one.run_id for one in attempts)


async def hand_over(attempts: Collection[HandedOver], within_s: float) -> None:
    """Tell these to hand their runs over, and return when they have; after `within_s` what is left is cut."""
    here = _under_way.get(asyncio.get_running_loop(), {})
    ended = {one: here[one] for one in attempts if one in here}
    for one in ended:
        one.hand_over()
    if ended:
        await asyncio.wait(ended.values(), timeout=within_s)
    late = [one for one, left in ended.items() if not left.done()]
    for one in late:
        one.hand_over_now()
    if late:
        # Each of them waits for what it cuts, and for its store, no longer than a cancelled run does.
        await asyncio.wait([ended[one] for one in late])
