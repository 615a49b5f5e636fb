"""World of a simulation: time, chance, the stores, effects of tools, and faults.

A simulated process reaches the world only through `Process.reach`: a request travels, takes effect, and its answer
travels back. Anything may go wrong on the way: the request never arrives, the answer is lost, the peer stalls. A
crashed process reaches nothing any more, whatever its code still tries; a frozen one reaches things late, when another
process may have taken over. The seed decides all of it.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from standfast._kits.testing.simulator.loop import Clock
from standfast._src.base.errors import OutcomeUnknownError, StoreUnavailableError
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.client.completed import Completed

T = TypeVar("T")

TRACE_LINES_MAX = 2_000
# What a failure prints is read by a person; the digest covers everything.


@dataclass(frozen=True, slots=True)
class Faults:
    """Possible faults and their rates: per exchange with the outside; `trouble_max` is per conversation."""

    store: float = 0.08
    """A store refuses, loses its answer, or stalls."""
    model: float = 0.08
    """A model fails before or after it was asked, or breaks off its stream."""
    line: float = 0.2
    """A connection of a voice call cannot be made, or (a twentieth as often) is lost at a frame."""
    crash: float = 0.6
    """A process dies, at any await."""
    freeze: float = 0.15
    """A process is suspended while another takes its work, and then continues unaware."""
    cancel: float = 0.3
    """The task that runs an agent is cancelled, or a streamed run is stopped."""
    trouble_max: int = 6
    """Number of faults after which a conversation has no more, so that it can come to an end."""


class Died(BaseException):
    """The calling process has crashed."""


class World:
    """Shared state of all processes of a simulation."""

    def __init__(self, seed: int, faults: Faults | None) -> None:
        self.seed = seed
        self.faults = faults
        """None: nothing goes wrong and nothing takes time."""
        self.chance = random.Random(f"standfast {seed}")
        self.clock = Clock()
        self.store = InMemoryStore()
        self.plain: dict[str, list[Any]] = {}
        """Foreign sessions: lists, as an application's own store would keep them."""
        self.executed: Counter[str] = Counter()
        """Number of real executions of each call, whatever the reports."""
        self.repeatable: set[str] = set()
        """Calls of tools that declare that running them again is harmless."""
        self.asked: Counter[str] = Counter()
        self.happened: Counter[str] = Counter()
        self.broken: list[str] = []
        """Promises that were seen broken while the simulation went on."""
        self.trouble_left = faults.trouble_max if faults is not None else 0
        self.trace: list[str] = []
        self._digest = hashlib.blake2b(digest_size=16)
        self._processes = 0

    def process(self) -> Process:
        """A new process of the program."""
        self._processes += 1
        return Process(self, self._processes)

    def note(self, process: int, what: str) -> None:
        """Record an event."""
        line = f"{self.clock.now:10.3f} p{process} {what}"
        self._digest.update(line.encode("utf-8", "surrogatepass") + b"\n")
        if len(self.trace) < TRACE_LINES_MAX:
            self.trace.append(line)

    @property
    def digest(self) -> str:
        """Return a digest of all events: equal for equal histories of the world."""
        return self._digest.hexdigest()

    def strikes(self, rate: float, what: str) -> bool:
        """Return whether a fault happens now, and count it."""
        if self.trouble_left <= 0 or self.chance.random() >= rate:
            return False
        self.trouble_left -= 1
        self.happened[what] += 1
        return True

    def require(self, kept: bool, promise: str) -> None:
        """Record a broken promise; the simulation continues and reports it at its end."""
        if not kept and promise not in self.broken:
            self.broken.append(promise)


class Process:
    """A simulated process of a program that uses standfast."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.alive = True
        self.frozen_until = 0.0
        self.way = ""
        self.held: Any = None
        """The last attempt to bring a run to its end, with its state if any."""

    def note(self, what: str) -> None:
        """Record an event of this process."""
        self.world.note(self.number, what)

    def check_alive(self) -> None:
        """Raise Died if this process has crashed."""
        if not self.alive:
            raise Died

    async def pause(self) -> None:
        """Wait for work outside this process."""
        world = self.world
        if world.faults is not None:
            await asyncio.sleep(world.chance.choice((0, 0, 0, 0.001, 0.004, 0.03)))
            if world.clock.now < self.frozen_until:
                await asyncio.sleep(self.frozen_until - world.clock.now)
        self.check_alive()

    async def reach(self, what: str, effect: Callable[[], Awaitable[T]]) -> T:
        """Exchange data with a store, under possible faults."""
        self.check_alive()
        world = self.world
        fault = None
        if world.faults is not None and world.strikes(world.faults.store, "store faults"):
            fault = world.chance.choice(("refused", "lost", "stalled"))
        await self.pause()
        if fault == "refused":
            self.note(f"{what}: refused")
            raise StoreUnavailableError(f"the simulated store refused {what}", "Try again.")
        if fault == "stalled":
            await asyncio.sleep(world.chance.choice((1, 20, 100)))
            self.check_alive()
        result = await effect()
        self.note(what if fault is None else f"{what}: {fault}")
        await self.pause()
        if fault == "lost":
            raise OutcomeUnknownError(f"the simulated store's answer to {what} was lost", "Repeat it.")
        return result

    def submit(self, what: str, effect: Callable[[], Coroutine[Any, Any, T]]) -> Coroutine[Any, Any, T]:
        """Start an exchange independent of its waiters; none for a crashed process."""
        if not self.alive:
            return Completed(
                error=StoreUnavailableError("the simulated process is dead", "It cannot do anything more.")
            )
        world, fault = self.world, None
        if world.faults is not None and world.strikes(world.faults.store, "store faults"):
            fault = world.chance.choice(("refused", "lost"))
        self.note(f"{what}, detached" if fault is None else f"{what}, detached: {fault}")
        if fault == "refused":
            return Completed(error=StoreUnavailableError(f"the simulated store refused {what}", "Try again."))
        done = effect()
        if fault == "lost":
            done.close()
            return Completed(
                error=OutcomeUnknownError(f"the simulated store's answer to {what} was lost", "Repeat it.")
            )
        return done


def invalid(items: list[Any]) -> str | None:
    """Return the reason why a provider would refuse these items, or None. Outputs must follow in call order (C8)."""
    open_ids: list[str] = []
    seen: set[str] = set()
    for item in items:
        if item.get("type") == "function_call":
            if item["call_id"] in seen:
                return f"call {item['call_id']} is there twice"
            seen.add(item["call_id"])
            open_ids.append(item["call_id"])
        elif item.get("type") == "function_call_output":
            if not open_ids or item["call_id"] not in open_ids:
                return f"an output of {item['call_id']} without its call, or a second one"
            if item["call_id"] != open_ids[0]:
                return f"{item['call_id']} was answered before {open_ids[0]}"
            open_ids.pop(0)
        elif open_ids and item.get("role") == "user":
            return f"a user's message between calls and outputs of {open_ids}"
    return f"calls without an output: {open_ids}" if open_ids else None
