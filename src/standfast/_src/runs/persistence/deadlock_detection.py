"""What the code that runs now is inside of, and who waits for whom: nobody waits for itself, nor in a circle (C13).

A call of a run is carried out, and a hook, a guardrail or another function of the application is asked, while that run
has its conversation for itself. Whatever that code starts and waits for may want a conversation too. If it is one that
a run around it has, it would wait for itself. If it is one whose holder waits, however indirectly, for one that a run
around it has, all of them would wait for each other. Both are known here, and said at once. What other processes hold
is not known: there, the wait ends with its deadline.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, Protocol

from standfast._src.base.aio import waiting_tasks
from standfast._src.base.errors import SessionBusyError


class Held(Protocol):
    """A conversation that a run has for itself, or had."""

    @property
    def key(self) -> Hashable:
        """Equal for those that are the same conversation, within this process."""
        ...

    @property
    def is_held(self) -> bool:
        """Whether the run still has it."""
        ...


@dataclass(frozen=True, eq=False)
class _Inside:
    """A call that is being carried out, and where: what it starts there, it waits for."""

    held: Held
    task: asyncio.Task[Any] | None
    loop: asyncio.AbstractEventLoop
    over: asyncio.Event
    """Set when it has ended: a run that it left behind, which may go on for long, it does not wait for any more."""

    @property
    def is_waiting(self) -> bool:
        """Whether it goes on, and its run still has what it had."""
        return not self.over.is_set() and self.held.is_held


_inside: ContextVar[tuple[_Inside, ...]] = ContextVar("standfast_inside", default=())


@contextmanager
def running_user_code(held: Held | None, started_in: asyncio.Task[Any] | None) -> Iterator[None]:
    """While a call of the run that has this, and was started in that task, is carried out in the current one."""
    here, around = asyncio.current_task(), _inside.get()
    if held is None and not around:
        yield  # most calls: nobody could come to wait for anybody
        return
    if here is not started_in:
        # Calls that are carried out side by side have tasks of their own: what is started in one of them is waited for
        # by the call that this run was started in all the same.
        waiting = waiting_tasks(started_in)
        around = tuple(replace(one, task=here) if one.task in waiting else one for one in around)
    over = asyncio.Event()
    if held is not None:
        around = (*around, _Inside(held, here, asyncio.get_running_loop(), over))
    token = _inside.set(around)
    try:
        yield
    finally:
        over.set()
        with suppress(ValueError):  # its loop was closed, and it is collected as garbage in somebody else's context
            _inside.reset(token)


def enclosing_runs() -> list[Held]:
    """What the runs had whose calls this code was started in, whether or not they wait for it."""
    return [one.held for one in _inside.get()]


def locks_held_by_callers(started_in: asyncio.Task[Any] | None) -> list[Held]:
    """What those runs have that wait for a run which was started in this task, the outermost first."""
    return [one.held for one in _calls_around(started_in)]


def _calls_around(started_in: asyncio.Task[Any] | None) -> list[_Inside]:
    inside = _inside.get()
    if not inside:
        return []
    loop, waiting = asyncio.get_running_loop(), waiting_tasks(started_in)
    # In another loop: the call runs in a thread, and has started this loop there to wait for the run.
    return [one for one in inside if (one.task in waiting or one.loop is not loop) and one.is_waiting]


# --- waiting ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Wait:
    """A run that waits for a conversation, inside of these calls."""

    wanted: Hashable
    around: Sequence[_Inside]

    def held_keys(self) -> set[Hashable]:
        """What those around it keep until it has it: no longer one whose call was cut, and left it in its thread."""
        return {one.held.key for one in self.around if one.is_waiting}


_waits: set[_Wait] = set()
_guard = threading.Lock()


@contextmanager
def waiting_for(wanted: Hashable, started_in: asyncio.Task[Any] | None, *, what: str) -> Iterator[None]:
    """While a run that was started in this task waits for `wanted`, which people know as `what`.

    Raises SessionBusyError, before anybody waits, if whoever has it waits for what a run around this one has.
    """
    wait = _Wait(wanted, _calls_around(started_in))
    with _guard:
        if wait.held_keys() & _waited_for_behind(wanted):
            raise SessionBusyError(
                f"{what} is held by a run that waits for a conversation which a run around this one has: they would"
                " wait for each other",
                "Let agents that call each other's agent tools do so one after the other (parallel_tool_calls=False),"
                " or give the agent tools conversations of their own.",
            )
        _waits.add(wait)
    try:
        yield
    finally:
        with _guard:
            _waits.discard(wait)


def _waited_for_behind(wanted: Hashable) -> set[Hashable]:
    """What must be given up before `wanted` can be: what runs wait for inside of it, and inside of those, and so on."""
    found: set[Hashable] = {wanted}
    while more := {one.wanted for one in _waits if one.held_keys() & found} - found:
        found |= more
    return found
