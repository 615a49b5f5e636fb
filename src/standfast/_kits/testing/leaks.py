"""Detection of leaks: tasks, threads, sockets and timers left behind by a block.

    async with no_leaks():
        async with await runner.run() as session:
            ...

Something that is just ending is given a moment; nothing waits when nothing leaks.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from standfast._src.sessions.client.held_leases import RENEWER
from standfast._src.sessions.client.lingering import LINGERING
from standfast._src.sessions.client.requests import idle_timers
from standfast._src.tools import worker_threads

GRACE_S = 5.0
# How long something may take to end after the block: the other end of a socket closes in its own time.
LOOK_EVERY_S = 0.01


class LeakError(AssertionError):
    """A new task, thread, socket or timer survived the block."""

    __module__ = "standfast.testing"  # in a traceback, the path that it is imported from


@dataclass(frozen=True, slots=True)
class Alive:
    """Tasks, threads, sockets and timers alive at a moment, in this loop and process."""

    tasks: frozenset[asyncio.Task[Any]]
    threads: frozenset[threading.Thread]
    sockets: frozenset[tuple[int, int]]
    timers: frozenset[asyncio.TimerHandle]

    @classmethod
    def now(cls) -> Alive:
        """Collect the present state."""
        loop, looking = asyncio.get_running_loop(), asyncio.current_task()  # the looking task is alive, and not a leak
        # A thread of ours that has no tool to run, or no lease to renew, waits a while for the next one; given one in
        # the block, it is as good as started there.
        idle = {*worker_threads._pool.idle, RENEWER.idle_thread, LINGERING.thread}
        # The queue of timers has no public name; a loop that has none (uvloop) has its timers not looked at.
        scheduled = getattr(loop, "_scheduled", ())
        return cls(
            tasks=frozenset(task for task in asyncio.all_tasks() if not task.done() and task is not looking),
            threads=frozenset(thread for thread in threading.enumerate() if thread not in idle),
            sockets=_sockets(),
            timers=frozenset(handle for handle in scheduled if not handle.cancelled()),
        )

    def beyond(self, before: Alive) -> list[str]:
        """Describe everything alive here that was not alive before."""
        found = [f"task {task.get_name()}: {task.get_coro()}" for task in self.tasks - before.tasks]
        # A pool that a loop keeps for blocking work lives as long as the loop does, on purpose.
        left = [one for one in self.threads - before.threads if not one.name.startswith("asyncio_")]
        found += [f"thread {thread.name}" for thread in left]
        found += [f"socket with descriptor {number}" for number, _ in sorted(self.sockets - before.sockets)]
        # The one timer of a loop for the deadlines of stores runs out by itself when nothing waits for a store.
        found += [f"timer {handle}" for handle in self.timers - before.timers - idle_timers()]
        return found


@asynccontextmanager
async def no_leaks(*, grace_s: float = GRACE_S) -> AsyncIterator[None]:
    """Raise LeakError if the block leaves tasks, threads, sockets or timers behind. Its own error goes first."""
    before = Alive.now()
    yield
    LINGERING.end_all()  # what only waits for a next session object is not a leak
    waited_s = 0.0
    # Our own waiting must not be taken for a timer of the program: look between two sleeps, when none is set.
    while left := Alive.now().beyond(before):
        if waited_s >= grace_s:
            raise LeakError("left behind: " + "; ".join(left))
        await asyncio.sleep(LOOK_EVERY_S)
        waited_s += LOOK_EVERY_S


def _sockets() -> frozenset[tuple[int, int]]:
    """Return the descriptors of this process that are sockets, each with its inode: a number may be used again."""
    found = set()
    for name in os.listdir("/dev/fd"):
        try:
            status = os.fstat(int(name))
        except (OSError, ValueError):
            continue  # the descriptor of the listing itself, closed by now
        if stat.S_ISSOCK(status.st_mode):
            found.add((int(name), status.st_ino))
    return frozenset(found)
