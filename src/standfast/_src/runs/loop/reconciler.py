"""Reconciler: compares due effects with running effects, starts missing effects, stops effects no longer due.

It uses two functions, `advance(state, event)` and `due(state)`, and does not know runs, so that it can drive any state
with these two functions. Tripwires, cancellation and races need no code of their own: an effect that has stopped being
due is cancelled and awaited before anything else happens. A performer is a coroutine that calls `record(event)`; it is
never an async generator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, TypeVar

from standfast._src.base.logs import logger


class Keyed(Protocol):
    """Effect with a stable name, `key`: due effects are compared with running ones by their keys."""

    @property
    def key(self) -> str:
        """Return its stable name."""
        ...


State = TypeVar("State")
Event = TypeVar("Event")
Effect = TypeVar("Effect", bound=Keyed)


class Reconciler(Generic[State, Event, Effect]):
    """Performs the due effects of a state until none is left.

    With `inline`, a single due effect is performed in the caller's own task, which keeps a turn of a run cheap; without
    it every effect has its own task, so that outside events are processed during an effect. If nothing is due, `rests`
    decides whether the loop ends or waits for an outside event.
    """

    def __init__(
        self,
        state: State,
        *,
        advance: Callable[[State, Event], State],
        due: Callable[[State], tuple[Effect, ...]],
        perform: Callable[[Any, Effect], Awaitable[None]],
        inline: bool = True,
        rests: Callable[[State], bool] = lambda state: True,
    ) -> None:
        self.state = state
        self._advance, self._due, self._perform = advance, due, perform
        self._may_inline, self._rests = inline, rests
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._completed: set[str] = set()
        """Effects under way whose last word is recorded."""
        self._wake: asyncio.Future[None] | None = None
        self.task: asyncio.Task[Any] | None = None
        """The task that drives it."""
        self._cancelled_before = 0

    # --- events ------------------------------------------------------------------------------------------------------

    async def record(self, event: Event, *, completes: Effect | None = None) -> None:
        """Apply an event to the state; `completes` is the effect whose final event this is.

        The final event of an effect that is no longer due (a tripwire came first, in the same moment) is dropped.
        """
        if completes is not None:
            if self._tasks and all(completes.key != other.key for other in self._due_now()):
                return
            self._completed.add(completes.key)
        self.apply(event)
        await self._finish_record(event)

    def apply(self, event: Event) -> None:
        """Change the state at once, and let the loop look again at what is due."""
        self.state = self._advance(self.state, event)
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _finish_record(self, event: Event) -> None:
        """Complete a `record` before it returns: save the state, if it is saved."""

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _due_now(self) -> tuple[Effect, ...]:
        """Return the effects due for the present state."""
        return self._due(self.state)

    async def reconcile(self) -> None:
        """Perform due effects until none is left and the state rests. Raises errors of effects."""
        self.task = asyncio.current_task()
        self._cancelled_before = self.task.cancelling() if self.task is not None else 0
        while True:
            effects = self._due_now()
            if not self._tasks:
                if not effects and self._rests(self.state):
                    return
                if len(effects) == 1 and self._may_inline:
                    await self._perform_inline(effects[0])
                    # A tool may swallow a cancellation that was meant for the task of this loop.
                    if self.task is not None and self.task.cancelling() > self._cancelled_before:
                        raise asyncio.CancelledError("the run was cancelled; what it was doing finished all the same")
                    continue
            await self._perform_concurrently(effects)

    async def _perform_inline(self, effect: Effect) -> None:
        try:
            await self._perform(self, effect)
        except Exception:
            self._note_failure(effect.key)
            raise
        finally:
            self._completed.discard(effect.key)

    async def _perform_concurrently(self, effects: tuple[Effect, ...]) -> None:
        wanted = {effect.key: effect for effect in effects}
        stale = [key for key in self._tasks if key not in wanted and key not in self._completed]
        if stale:
            await self._cancel_and_wait(stale)
            return  # something may have been recorded while they ended
        # An effect whose last word is recorded may still be telling observers of it: what follows waits for them.
        if self._completed.isdisjoint(self._tasks):
            for key, effect in wanted.items():
                if key not in self._tasks:
                    self._tasks[key] = asyncio.ensure_future(self._perform(self, effect))
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait([*self._tasks.values(), self._wake], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._wake = None
        failure: BaseException | None = None
        for key, task in [(key, task) for key, task in self._tasks.items() if task.done()]:
            del self._tasks[key]
            self._completed.discard(key)
            failed = self._failure_of(key, task)  # asked of each: a second failure is retrieved, and not reported
            failure = failure or failed
        if failure is not None:
            raise failure

    def _failure_of(self, key: str, task: asyncio.Task[None]) -> BaseException | None:
        if task.cancelled():
            return asyncio.CancelledError(f"{key} was cancelled from inside")
        error = task.exception()
        if error is not None:
            self._note_failure(key)
        return error

    def _note_failure(self, key: str) -> None:
        """Record that an effect failed, for an ordered end of the state."""

    async def _cancel_and_wait(self, keys: list[str]) -> None:
        """Cancel effects and wait for them; their later events are dropped.

        If this is cancelled meanwhile they stay under way, and the closing code waits for them.
        """
        tasks = [self._tasks[key] for key in keys]
        for task in tasks:
            if not task.cancelling():  # to be told twice may mean to a nested run that it must not store what it did
                task.cancel()
        await asyncio.wait(tasks)
        for key, task in zip(keys, tasks, strict=True):
            del self._tasks[key]
            if not task.cancelled() and task.exception() is not None:
                logger.debug("an effect that was no longer due ended with %r", task.exception())


def ignore_exception(work: asyncio.Future[Any]) -> None:
    """Mark a future's exception as retrieved, so that asyncio does not report it as never retrieved.

    Its waiter may have been cancelled; the next attempt meets the same error and raises it.
    """
    if not work.cancelled():
        work.exception()
