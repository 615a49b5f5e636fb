"""The only loop: compare what is due with what is in flight, start what is missing, stop what is no longer due.

Streaming is watching this loop, not streaming is not watching; resuming is entering it with a saved run. Tripwires,
cancellation and races need no code of their own: an effect that is no longer due is cancelled and awaited before
anything else happens. A performer is a coroutine that calls `tell(event)`; it is never an async generator. One due
effect alone runs in the driver's own task, which keeps a turn cheap.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

from standfast.engine.advance import advance
from standfast.engine.due import due
from standfast.engine.events import (
    Append,
    ApprovalNeeded,
    Begun,
    ChildMoved,
    Effect,
    Event,
    Replied,
    Returned,
    Stopped,
)
from standfast.engine.run import Run
from standfast.ground.errors import RunClaimedError

logger = logging.getLogger("standfast")

# What must be known after a crash, so that nothing with side effects is repeated: saved before anything else happens.
# A reply is among them only if a server has taken the request; else asking again is harmless.
ALWAYS_SAVED = (Begun, Returned, ApprovalNeeded, ChildMoved)

CLOSING_GRACE_S = 60.0
# A stopped run stores what its tools did before it lets go. Stores have deadlines of their own; this bounds others.


class Saver(Protocol):
    """Writes a run down; `needed` becomes true once something has happened that must survive."""

    needed: bool

    def save(self, run: Run) -> Coroutine[Any, Any, None]:
        """Return when this run, or a later one, is saved."""
        ...


class Driver:
    """Drives one run to rest: ended, paused or stopped."""

    def __init__(
        self,
        run: Run,
        perform: Callable[[Driver, Effect], Awaitable[None]],
        *,
        saver: Saver | None = None,
        moved: Callable[[Run], Awaitable[None]] | None = None,
    ) -> None:
        self.run = run
        self.saver = saver
        self._perform = perform
        self._moved = moved
        self._flights: dict[str, asyncio.Task[None]] = {}
        self._settled: set[str] = set()
        self._inline: Effect | None = None
        self.asked = 1
        """The last turn for which a request is under way; a run that was started counts as being in its first."""
        self._task: asyncio.Task[object] | None = None
        self._cut = self._entered = False
        self._closing: asyncio.Task[None] | None = None
        self._cancelled_before = 0
        self._failed_append = False

    # --- what performers use -----------------------------------------------------------------------------------------

    async def tell(self, event: Event, *, effect: Effect | None = None) -> None:
        """Something happened. Returns when it is saved; `effect` says whose last word this is.

        The last word of an effect that is no longer due (a tripwire came first, in the same moment) is dropped.
        """
        if effect is not None:
            if self._flights and all(effect.key != other.key for other in due(self.run)):
                return
            self._settled.add(effect.key)
        self.run = advance(self.run, event)
        if self.saver is not None and self._must_save(event):
            self.saver.needed = True
            await self.save()
        if self._moved is not None:
            await self._moved(self.run)

    async def save(self) -> None:
        """Save the run as it is now, if there is where to and anything that must survive."""
        if self.saver is not None and self.saver.needed:
            saving = asyncio.ensure_future(self.saver.save(self.run))
            saving.add_done_callback(heard)
            await asyncio.shield(saving)

    def _must_save(self, event: Event) -> bool:
        if isinstance(event, ALWAYS_SAVED):
            return True
        return isinstance(event, Replied) and self.run.spec.owner.is_server

    # --- what the face uses ------------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Perform what is due until nothing is. Raises what an effect raised, after the run has been left in order."""
        self._task, self._entered = asyncio.current_task(), True
        self._cancelled_before = self._task.cancelling() if self._task is not None else 0
        try:
            await self._reconcile()
        except asyncio.CancelledError:
            await self._close("immediate")
            if not self._cut:
                raise
            if self._task is not None:
                self._task.uncancel()  # it was ours, and it is dealt with
        except RunClaimedError:
            await self._cancel(keep_appends=False)
            raise  # the run is another's now: nothing more may be written in its name
        except BaseException as error:
            await self._close_after(error)
            raise
        finally:
            self._task = None
        await self._save_at_rest()

    def stop_after_turn(self) -> None:
        """Let the turn under way finish and be stored; ask the model nothing more."""
        if self.run.finished or self.run.progress.stop is not None:
            return
        turn = self.run.turn
        if turn is not None:
            upto = turn.number
        else:
            upto = max(self.run.progress.turns, self.asked)
        self.run = advance(self.run, Stopped("after_turn", upto))

    def stop_now(self) -> bool:
        """Cancel whatever is under way; what tools have done is still stored. Whether the run had begun."""
        self._cut = True
        if self._task is not None and self._closing is None:  # said twice, it must not cut short what is being stored
            self._task.cancel()
        return self._entered

    @property
    def leftover(self) -> asyncio.Task[None] | None:
        """What is still being stored, or told to stop, after `drive` had to let go; None where nothing is."""
        return self._closing if self._closing is not None and not self._closing.done() else None

    # --- the loop ----------------------------------------------------------------------------------------------------

    async def _reconcile(self) -> None:
        while True:
            effects = due(self.run)
            if not self._flights:
                if not effects:
                    return
                if len(effects) == 1:
                    await self._alone(effects[0])
                    self._mind_cancellation()
                    continue
            await self._together(effects)

    def _mind_cancellation(self) -> None:
        """A tool may swallow a cancellation that was meant for the run; then the run still ends, with its result."""
        if self._task is not None and self._task.cancelling() > self._cancelled_before:
            raise asyncio.CancelledError("the run was cancelled; what it was doing finished all the same")

    async def _alone(self, effect: Effect) -> None:
        self._inline = effect
        try:
            await self._perform(self, effect)
        except Exception:
            self._failed_append = isinstance(effect, Append)
            raise
        finally:
            self._inline = None
            self._settled.discard(effect.key)

    async def _together(self, effects: tuple[Effect, ...]) -> None:
        wanted = {effect.key: effect for effect in effects}
        stale = [key for key in self._flights if key not in wanted and key not in self._settled]
        if stale:
            await self._land(stale, patiently=False)
            return  # something may have been told while they were landing
        for key, effect in wanted.items():
            if key not in self._flights:
                self._flights[key] = asyncio.ensure_future(self._fly(effect))
        done, _ = await asyncio.wait(self._flights.values(), return_when=asyncio.FIRST_COMPLETED)
        failure: BaseException | None = None
        for key, task in list(self._flights.items()):
            if task in done:
                del self._flights[key]
                self._settled.discard(key)
                failed = self._failure_of(key, task)  # asked of each: a second failure is known of, not reported
                failure = failure or failed
        if failure is not None:
            raise failure

    async def _fly(self, effect: Effect) -> None:
        await self._perform(self, effect)

    def _failure_of(self, key: str, task: asyncio.Task[None]) -> BaseException | None:
        if task.cancelled():
            return asyncio.CancelledError(f"{key} was cancelled from inside")
        error = task.exception()
        if error is not None and key.startswith("append/"):
            self._failed_append = True
        return error

    async def _land(self, keys: list[str], *, patiently: bool = True) -> None:
        """Cancel these flights and wait for them; what they still say is dropped.

        Patiently means: also while being cancelled. Else they stay in flight then, and whoever closes the run waits.
        """
        tasks = [self._flights[key] for key in keys]
        for task in tasks:
            if not task.cancelling():  # to be told twice may mean to a nested run that it must not store what it did
                task.cancel()
        if patiently:
            await _all_done(tasks)
        elif tasks:
            await asyncio.wait(tasks)
        for key, task in zip(keys, tasks, strict=True):
            del self._flights[key]
            if not task.cancelled() and task.exception() is not None:
                logger.debug("a flight that was no longer due ended with %r", task.exception())

    async def _cancel(self, *, keep_appends: bool = True) -> None:
        """Stop everything in flight. An append is let finish: its outcome must be known."""
        appends = [key for key in self._flights if keep_appends and key.startswith("append/")]
        await self._land([key for key in self._flights if key not in appends])
        tasks = [self._flights.pop(key) for key in appends]
        await _all_done(tasks)
        for task in tasks:
            if task.cancelled() or task.exception() is not None:
                self._failed_append = True
        self._settled.clear()

    # --- leaving in order --------------------------------------------------------------------------------------------

    async def _close_after(self, error: BaseException) -> None:
        try:
            await self._close("failed")
        except Exception as second:  # the first error is the one to report
            error.add_note(f"While storing what the run had done, this happened too: {second!r}")

    async def _close(self, mode: str) -> None:
        """Settle the open turn, and store it if one of its tools has run (C8). A second cancellation does not wait."""
        self._closing = closing = asyncio.ensure_future(self._settle_and_store(mode))
        closing.add_done_callback(heard)
        try:
            done, _ = await asyncio.wait([closing], timeout=CLOSING_GRACE_S)
        except asyncio.CancelledError:
            closing.cancel()
            raise
        if not done:
            closing.cancel()
            logger.warning(
                "run %s was stopped, and its store did not take what it had done within %d s: resume it to store that",
                self.run.spec.run_id,
                CLOSING_GRACE_S,
            )
            return
        closing.result()

    async def _settle_and_store(self, mode: str) -> None:
        await self._cancel()
        stop = self.run.progress.stop
        if not self.run.finished and (stop is None or stop.mode == "after_turn"):
            stopped = Stopped("failed") if mode == "failed" else Stopped("immediate")
            self.run = advance(self.run, stopped)
        while not self._failed_append and (effects := due(self.run)):
            await self._alone(effects[0])
        await self._save_at_rest()

    async def _save_at_rest(self) -> None:
        if self.saver is None or not (self.saver.needed or self.run.paused):
            return
        self.saver.needed = True
        try:
            await self.save()
        except RunClaimedError:
            raise
        except Exception as error:
            if not self.run.settled:
                raise
            # Nothing is left to do or to resume: raised, this would only take the result from whoever paid for it.
            logger.warning(
                "run %s ended, and its run store did not take that: %s: %s",
                self.run.spec.run_id,
                type(error).__name__,
                error,
            )


def heard(work: asyncio.Future[None]) -> None:
    """Whoever waited for this may be gone; the next one to try meets the same error and raises it."""
    if not work.cancelled():
        work.exception()


async def _all_done(tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all have ended, even while being cancelled: a performer left behind could still act."""
    cancelled: asyncio.CancelledError | None = None
    while pending := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(pending)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
