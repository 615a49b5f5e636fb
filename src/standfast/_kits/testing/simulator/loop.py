"""A deterministic event loop: time is virtual, the order comes from a seed, and a crash can happen at any step.

Waiting costs nothing: when no callback can run, time jumps to the next timer. The seed chooses among the callbacks that
can run; asyncio promises their order, but no program may depend on the order in which its peers answer. The loop can be
told to crash before any callback: `Crashed` leaves it at once, and all work under way stops where it is. If no callback
can run and no timer is set, the program would hang for ever: `Stuck` says so.

While a simulation runs, `time`, `random` and `uuid.uuid4` give virtual and seeded values to its thread, `time.sleep`
moves the virtual clock, and functions for worker threads run in the loop: so a seed replays exactly.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from standfast._src.tools import worker_threads

T = TypeVar("T")

EPOCH_S = 1_700_000_000.0
# What the wall clock shows when a simulation begins: some moment, the same for every replay.

STEPS_MAX = 50_000
# A simulated conversation takes some hundred to some thousand steps; more means that something goes round in circles.


class Crashed(BaseException):
    """The simulated process ends here, between two callbacks."""


class Stuck(Exception):
    """No callback can run and no timer is set: outside a simulation, the program would hang."""


class Clock:
    """Virtual time, shared by every process of a simulation."""

    def __init__(self) -> None:
        self.now = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += max(0.0, seconds)


class VirtualLoop(asyncio.BaseEventLoop):
    """Event loop of a simulated process. `chance` chooses among the ready callbacks; None keeps asyncio's own order."""

    def __init__(self, clock: Clock, chance: random.Random | None = None) -> None:
        super().__init__()
        self.clock = clock
        self.step_count = 0
        self.crash_at: int | None = None
        self.at_step: dict[int, Callable[[], None]] = {}
        """Outside events just before the step of that number."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._selector = _NoNetwork(self)
        self._ready: deque[asyncio.Handle] = _Ready(self, chance)

    def time(self) -> float:
        """The virtual time, in seconds."""
        return self.clock.now

    def create_task(self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **named: Any) -> asyncio.Task[T]:
        """Start a task and record it in order: `asyncio.all_tasks` is a set ordered by addresses."""
        task = super().create_task(coro, **named)
        self._tasks.append(task)
        return task

    def run_in_executor(self, executor: object, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:  # type: ignore[override]
        """Run the function in the loop: a thread would come back whenever it likes."""
        future: asyncio.Future[T] = self.create_future()
        self.call_soon(_do, future, lambda: func(*args))
        return future

    def bury(self) -> None:
        """End the tasks of a crashed process. Their further effects must already be cut off from the world.

        Neither time nor chance advances, so that later events do not depend on it.
        """
        now, steps, self.step_count = self.clock.now, self.step_count, 0
        self._ready._chance = None  # type: ignore[attr-defined]  # it is a _Ready
        self.at_step.clear()
        self.set_exception_handler(lambda loop, context: None)  # the dead have nothing to report
        # A crash may come after the main task's end and before the loop has heard of it; what stops the loop then would
        # stop the next run instead.
        self.call_soon(self.stop)
        self.run_forever()
        for _ in range(100):
            self._tasks = tasks = [task for task in self._tasks if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.run_until_complete(_wait_for_all(tasks))
        self._tasks = []
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()
        self.clock.now, self.step_count = now, steps

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


async def _wait_for_all(tasks: list[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks, timeout=3600)


class _Ready(deque[asyncio.Handle]):
    """Ready callbacks. The loop takes from the left; here that means any of them."""

    def __init__(self, loop: VirtualLoop, chance: random.Random | None) -> None:
        super().__init__()
        self._loop, self._chance = loop, chance

    def popleft(self) -> asyncio.Handle:
        loop = self._loop
        if loop.crash_at is not None and loop.step_count >= loop.crash_at:
            loop.crash_at = None
            raise Crashed
        loop.step_count += 1
        if loop.step_count > STEPS_MAX:
            raise Stuck(f"{STEPS_MAX} steps and no end: the program goes round in circles")
        happening = loop.at_step.pop(loop.step_count, None)
        if happening is not None:
            loop.call_soon(happening)
        if self._chance is not None and len(self) > 1:
            place = self._chance.randrange(len(self))
            self.rotate(-place)
            handle = super().popleft()
            self.rotate(place)
            return handle
        return super().popleft()


class _NoNetwork:
    """A selector without sockets: instead of waiting, it moves the virtual clock to the next timer."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        loop = self._loop
        if timeout is None:
            raise Stuck("nothing can run and nothing is waited for")
        if timeout > 0:
            # To the timer itself, not by the difference: what is left after rounding would be waited for again.
            loop.clock.now = max(loop.clock.now, loop._scheduled[0].when())  # type: ignore[attr-defined]  # asyncio's heap of timers
        return []

    def close(self) -> None:
        pass


# --- time, chance and threads ----------------------------------------------------------------------------------------


@contextmanager
def virtualize(clock: Clock, chance: random.Random) -> Iterator[None]:
    """Let `time`, `random`, `uuid.uuid4` and tool threads be virtual for this thread."""
    own, undo, state = threading.get_ident(), [], random.getstate()

    def change(owner: object, name: str, virtual: Callable[..., Any]) -> None:
        real = getattr(owner, name)
        undo.append((owner, name, real))
        setattr(owner, name, lambda *args: virtual(*args) if threading.get_ident() == own else real(*args))

    change(time, "monotonic", lambda: clock.now)
    change(time, "perf_counter", lambda: clock.now)
    change(time, "time", lambda: EPOCH_S + clock.now)
    change(time, "time_ns", lambda: int((EPOCH_S + clock.now) * 1e9))
    change(time, "sleep", clock.advance)
    change(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4))
    # Other threads of the process draw from the same generator, whenever they like: this one's draws are its own.
    change(random, "random", random.Random(chance.getrandbits(64)).random)
    undo.append((worker_threads, "_pool", worker_threads._pool))
    worker_threads._pool = _InTheLoop()  # type: ignore[assignment]  # it has the one method that is used
    random.seed(chance.getrandbits(64))
    try:
        yield
    finally:
        random.setstate(state)
        for owner, name, real in reversed(undo):
            setattr(owner, name, real)


class _InTheLoop:
    """Replacement of the pool of tool threads."""

    def start(self, job: tuple[asyncio.AbstractEventLoop, asyncio.Future[Any], Callable[[], Any]]) -> None:
        loop, future, function = job
        loop.call_soon(_do, future, function)


def _do(future: asyncio.Future[Any], function: Callable[[], Any]) -> None:
    if future.done():
        return  # its waiter has ended
    try:
        result = function()
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)


def run(loop: VirtualLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in this loop; raise Crashed if the loop was told to crash."""
    task: asyncio.Task[T] = loop.create_task(work, name="main")
    return loop.run_until_complete(task)
