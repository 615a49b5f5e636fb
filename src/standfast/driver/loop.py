"""The only loop of runs: the reconciler with the engine's two functions, saving, and the ways to stop.

Streaming is watching this loop, not streaming is not watching; resuming is entering it with a saved run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from standfast.driver.reconcile import Reconciler, ignore_exception, wait_for_all
from standfast.driver.run_saver import RunSaver
from standfast.engine.advance import advance
from standfast.engine.due import due
from standfast.engine.events import ApprovalNeeded, Begun, ChildMoved, Effect, Event, Replied, Returned, Stopped
from standfast.engine.run import Run
from standfast.ground.errors import RunClaimedError

logger = logging.getLogger("standfast")

# What must be known after a crash, so that nothing with side effects is repeated: saved before anything else happens.
# A reply is among them only if a server has taken the request; else asking again is harmless.
ALWAYS_SAVED = (Begun, Returned, ApprovalNeeded, ChildMoved)

CLOSING_GRACE_S = 60.0
# A stopped run stores what its tools did before it lets go. Stores have deadlines of their own; this bounds others.


class Loop(Reconciler[Run, Event, Effect]):
    """Drives one run to rest: ended, paused or stopped."""

    def __init__(
        self,
        run: Run,
        perform: Callable[[Loop, Effect], Awaitable[None]],
        *,
        moved: Callable[[Run], Awaitable[None]] | None = None,
    ) -> None:
        super().__init__(run, advance=advance, due=due, perform=perform)
        self.saver: RunSaver[Run] | None = None
        self._moved = moved
        self.last_requested_turn = 1
        """The last turn for which a request is under way; a run that was started counts as being in its first."""
        self.failed_observer: BaseException | None = None
        """What a hook raised that only observes: the reply it was told of stays, see `Stopped.keeps_turn`."""
        self._is_cut = self._has_entered = False
        self._closing: asyncio.Task[None] | None = None
        self._append_failed = False

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self.state

    # --- saving ------------------------------------------------------------------------------------------------------

    async def _recorded(self, event: Event) -> None:
        if self.saver is not None and self._must_save(event):
            self.saver.needed = True
            await self.save()
        if self._moved is not None:
            await self._moved(self.state)

    def _must_save(self, event: Event) -> bool:
        if isinstance(event, ALWAYS_SAVED):
            return True
        return isinstance(event, Replied) and self.state.spec.owner.is_server

    async def save(self) -> None:
        """Save the run as it is now, if there is where to and anything that must survive."""
        if self.saver is not None and self.saver.needed:
            saving = asyncio.ensure_future(self.saver.save(self.state))
            saving.add_done_callback(ignore_exception)
            await asyncio.shield(saving)  # a cancelled caller must not tear a save: its outcome would be unknown

    # --- driving and stopping ----------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Perform what is due until nothing is. Raises what an effect raised, after the run has been left in order."""
        self._has_entered = True
        try:
            await self.reconcile()
        except asyncio.CancelledError:
            await self._close(Stopped("immediate"))
            if not self._is_cut:
                raise
            if self._task is not None:
                self._task.uncancel()  # it was ours, and it is dealt with
        except RunClaimedError:
            await self._cancel_all(keep_appends=False)
            raise  # the run is another's now: nothing more may be written in its name
        except BaseException as error:
            await self._close_after(error)
            raise
        finally:
            self._task = None
        await self._save_at_rest()

    def stop_after_turn(self) -> None:
        """Let the turn under way finish and be stored; ask the model nothing more."""
        run = self.state
        if not run.finished and run.progress.stop is None:
            upto = run.turn.number if run.turn is not None else max(run.progress.turns, self.last_requested_turn)
            self.apply(Stopped("after_turn", upto))

    def stop_now(self) -> bool:
        """Cancel whatever is under way; what tools have done is still stored. Whether the run had begun."""
        self._is_cut = True
        if self._task is not None and self._closing is None:  # said twice, it must not cut short what is being stored
            self._task.cancel()
        return self._has_entered

    @property
    def closing_task(self) -> asyncio.Task[None] | None:
        """What is still being stored, or told to stop, after `drive` had to let go; None where nothing is."""
        return self._closing if self._closing is not None and not self._closing.done() else None

    # --- leaving in order --------------------------------------------------------------------------------------------

    def _has_failed(self, key: str) -> None:
        # What a session did not take is not tried again by closing: resuming does, when the session is well again.
        self._append_failed = self._append_failed or key.startswith("append/")

    async def _cancel_all(self, *, keep_appends: bool = True) -> None:
        """Stop everything under way. An append is let finish: its outcome must be known."""
        appends = [key for key in self._tasks if keep_appends and key.startswith("append/")]
        await self._cancel_and_wait([key for key in self._tasks if key not in appends])
        tasks = [self._tasks.pop(key) for key in appends]
        await wait_for_all(tasks)
        if any(task.cancelled() or task.exception() is not None for task in tasks):
            self._append_failed = True
        self._completed.clear()

    async def _close_after(self, error: BaseException) -> None:
        try:
            await self._close(Stopped("failed", keeps_turn=error is self.failed_observer))
        except Exception as second:  # the first error is the one to report
            error.add_note(f"While storing what the run had done, this happened too: {second!r}")

    async def _close(self, stopped: Stopped) -> None:
        """Close the open turn, and store it if one of its tools has run (C8). A second cancellation does not wait."""
        self._closing = closing = asyncio.ensure_future(self._stop_and_store(stopped))
        closing.add_done_callback(ignore_exception)
        try:
            done, _ = await asyncio.wait([closing], timeout=CLOSING_GRACE_S)
        except asyncio.CancelledError:
            closing.cancel()
            raise
        if not done:
            closing.cancel()
            logger.warning(
                "run %s was stopped, and its store did not take what it had done within %d s: resume it to store that",
                self.state.spec.run_id,
                CLOSING_GRACE_S,
            )
            return
        closing.result()

    async def _stop_and_store(self, stopped: Stopped) -> None:
        await self._cancel_all()
        stop = self.state.progress.stop
        if not self.state.finished and (stop is None or stop.mode == "after_turn"):
            self.apply(stopped)
        while not self._append_failed and (effects := due(self.state)):
            await self._perform_inline(effects[0])
        await self._save_at_rest()

    async def _save_at_rest(self) -> None:
        if self.saver is None or not (self.saver.needed or self.state.paused):
            return
        self.saver.needed = True
        try:
            await self.save()
        except RunClaimedError:
            raise
        except Exception as error:
            if not self.state.is_closed:
                raise
            # Nothing is left to do or to resume: raised, this would only take the result from whoever paid for it.
            logger.warning(
                "run %s ended, and its run store did not take that: %s: %s",
                self.state.spec.run_id,
                type(error).__name__,
                error,
            )
