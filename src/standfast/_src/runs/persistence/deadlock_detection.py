"""Detection of re-entrant and deadlocking waits for a session lock within this process (C13).

While a run executes a call, a hook, a guardrail or another function of the application, it holds its conversation. The
code started there may wait for a conversation too. If an enclosing run holds that conversation, the code would wait for
itself. If its holder waits, however indirectly, for a conversation held by an enclosing run, all of them would wait for
each other. Both cases are detected here, and raised at once. Locks of other processes are not known: there, the wait
ends with its deadline.
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
    """A conversation that a run holds, or held."""

    @property
    def key(self) -> Hashable:
        """Return a key that is equal for equal conversations, within this process."""
        ...

    @property
    def is_held(self) -> bool:
        """True while the run still holds it."""
        ...


@dataclass(frozen=True, eq=False)
class _Inside:
    """A running call, and its place: it waits for the runs started there."""

    held: Held
    task: asyncio.Task[Any] | None
    loop: asyncio.AbstractEventLoop
    over: asyncio.Event
    """Set when it has ended: it no longer waits for a run that it left behind, which may continue for long."""

    @property
    def is_waiting(self) -> bool:
        """True while the call continues and its run still holds its lock."""
        return not self.over.is_set() and self.held.is_held


_inside: ContextVar[tuple[_Inside, ...]] = ContextVar("standfast_inside", default=())


@contextmanager
def running_user_code(held: Held | None, started_in: asyncio.Task[Any] | None) -> Iterator[None]:
    """Register that the current task executes a call of the run that holds `held` and was started in `started_in`."""
    here, around = asyncio.current_task(), _inside.get()
    if held is None and not around:
        yield  # most calls: no wait is possible
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
        with suppress(ValueError):  # its loop was closed, and it is collected as garbage in another context
            _inside.reset(token)


def enclosing_runs() -> list[Held]:
    """Return the locks of the runs in whose calls this code was started, waiting or not."""
    return [one.held for one in _inside.get()]


def locks_held_by_callers(started_in: asyncio.Task[Any] | None) -> list[Held]:
    """Return the locks of the runs that wait for a run started in this task, the outermost first."""
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
    """A run that waits for a conversation, inside these calls."""

    wanted: Hashable
    around: Sequence[_Inside]

    def held_keys(self) -> set[Hashable]:
        """Return the locks that the enclosing runs hold during the wait. Cancelled calls, left in their threads, do not
        count.
        """
        return {one.held.key for one in self.around if one.is_waiting}


_waits: set[_Wait] = set()
_guard = threading.Lock()


@contextmanager
def waiting_for(wanted: Hashable, started_in: asyncio.Task[Any] | None, *, what: str) -> Iterator[None]:
    """Register that a run started in this task waits for `wanted`, named `what` in messages.

    Raises SessionBusyError, before any wait, if its holder waits for a lock of an enclosing run.
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
    """Return all locks that must be released before `wanted` can be, transitively."""
    found: set[Hashable] = {wanted}
    while more := {one.wanted for one in _waits if one.held_keys() & found} - found:
        found |= more
    return found
