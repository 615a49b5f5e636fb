"""Registry of the active runs of an event loop, for the handover at a worker's shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from weakref import WeakKeyDictionary

from standfast._src.base.durations import check_seconds
from standfast._src.runs.loop.loop import Loop

HAND_OVER_S = 8.0
# What a run that has begun something may take to end it when its worker stops: with what closing takes after that (5 s)
# less than the 15 s of a lease, and the first part less than the 10 s that containers leave a process after SIGTERM.


class ActiveRuns:
    """Active runs of an event loop."""

    def __init__(self) -> None:
        self.loops: dict[Loop, asyncio.Future[None] | None] = {}
        """Runs under way, each with the event of its end, made when the first task waits for it."""
        self.is_leaving = False
        """Whether the worker stops: whatever starts here is handed over before it has begun anything."""

    def note_end(self, loop: Loop) -> None:
        """Remove a run after the release of its resources, and wake the tasks waiting for its end."""
        ended = self.loops.pop(loop)
        if ended is not None and not ended.done() and not ended.get_loop().is_closed():
            ended.set_result(None)


_workers: WeakKeyDictionary[asyncio.AbstractEventLoop, ActiveRuns] = WeakKeyDictionary()


def _here() -> ActiveRuns:
    loop = asyncio.get_running_loop()
    found = _workers.get(loop)
    if found is None:
        found = _workers[loop] = ActiveRuns()
    return found


def begin(loop: Loop) -> ActiveRuns:
    """Register a run as active in the running event loop. The caller must report its end."""
    here = _here()
    here.loops[loop] = None
    if here.is_leaving:
        loop.hand_over()
    return here


def leave(*, is_leaving: bool) -> None:
    """Hand over from now on whatever starts in the running loop, or no longer."""
    _here().is_leaving = is_leaving


async def hand_over_all(within_s: float) -> tuple[str, ...]:
    """Hand over every run that is under way in the running loop, see `hand_over`; their ids."""
    check_seconds("within_s", within_s)
    loops = list(_here().loops)
    await hand_over(loops, within_s)
    return tuple(one.run.spec.run_id for one in loops)


async def hand_over(loops: Collection[Loop], within_s: float) -> None:
    """Ask runs to hand over, and wait for them; after `within_s` the rest is cut."""
    here, running = _here().loops, asyncio.get_running_loop()
    ended: dict[Loop, asyncio.Future[None]] = {}
    for one in loops:
        if one in here:
            ended[one] = here[one] = here[one] or running.create_future()
            one.hand_over()
    if ended:
        await asyncio.wait(ended.values(), timeout=within_s)
    late = [one for one, left in ended.items() if not left.done()]
    for one in late:
        one.hand_over_now()
    if late:
        # Each of them waits for what it cuts, and for its store, no longer than a cancelled run does.
        await asyncio.wait([ended[one] for one in late])
