"""The only loop of runs: the reconciler that saves, and the ways to stop.

Streaming is watching this loop, not streaming is not watching; resuming is entering it with a saved run.

What closes a run that was stopped or failed (its last state, its turn, its lease) is one request to the store, made
from what is known at that moment and carried out without this loop. So a first cancellation lets what is under way end
within `CLOSING_GRACE_S` and then closes; a second one closes at once and gets control back (C14). No cancellation is
swallowed: anyio repeats one until it has left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

from standfast._src.base.errors import (
    LeaseLostError,
    RunCancelledError,
    RunClaimedError,
    RunHandedOverError,
    UsageLimitExceeded,
)
from standfast._src.base.logs import logger
from standfast._src.base.operational_events import emit
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.codec import settler_of
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.events import Append, Appended, Effect, HandedOver, Stopped
from standfast._src.runs.engine.run import Run
from standfast._src.runs.loop.reconciler import ignore_exception
from standfast._src.runs.loop.saving_loop import SavingLoop
from standfast._src.runs.persistence.pending_items import cut_nested
from standfast._src.runs.persistence.run_saver import RunSaver
from standfast._src.runs.persistence.session_lock import NewItems
from standfast._src.runs.steps.call_lookup import tell_begun

CLOSING_GRACE_S = 5.0
# How long a stopped run waits for what was told to stop, and then for its store, before it lets go all the same.
# Shorter than what containers leave a process between SIGTERM and SIGKILL (10 s and more).


def handed_over_error(run: Run) -> RunHandedOverError:
    """Return the error raised to waiting callers when this worker stops before the run's end."""
    run_id = run.spec.run_id
    return RunHandedOverError(
        f"run {run_id!r} was handed over, because this worker stops: what it had done is saved",
        "Give its job back to the queue, or let another worker go on: Runner.recover(...), or its run_id again.",
        run_id=run_id,
    )


def cancelled_error(run: Run, wish: Mapping[str, str]) -> RunCancelledError:
    """Build the error for callers of a run after an operator cancelled the run."""
    return RunCancelledError(
        f"{wish['by']} cancelled run {run.spec.run_id!r}, and it has ended",
        "Read the history; start a new run under another run_id for what is still to be done.",
        by=wish["by"],
    )


class Children:
    """Nested runs of a run, tracked because they store their own items."""

    def __init__(self) -> None:
        self.under_way: set[Loop] = set()
        self.closed: set[str] = set()
        """The ids of those that were under way in this process and are not any more, but for those that wait."""

    @contextmanager
    def track(self, loop: Loop) -> Iterator[None]:
        """Track a nested run while it is under way."""
        self.under_way.add(loop)
        try:
            yield
        finally:
            self.under_way.discard(loop)
            if loop.has_entered and not loop.run.paused:
                self.closed.add(loop.run.spec.run_id)

    def storing(self) -> set[str]:
        """Return the ids of the nested runs that store their own items."""
        return self.closed | {loop.run.spec.run_id for loop in self.under_way if not loop.run.paused}


class Loop(SavingLoop):
    """Drives one run to rest: ended, paused or stopped."""

    last_requested_turn = 0
    """The last turn for which a request is under way; 0 before the first."""
    is_to_stop = False
    """True if a caller asked for a stop after the turn; also before the run was opened."""
    failed_observer: BaseException | None = None
    """What a hook raised that only observes: the reply it was told of stays, see `Stopped.keeps_turn`."""
    limit_error: UsageLimitExceeded | None = None
    """Error of an effect at a limit: no further effect begins, and running effects end first (F9)."""
    is_kept = False
    """True if the run or an enclosing run is saved: its open turn survives a stop at a limit."""
    has_entered = False
    sibling: Loop | None = None
    """Another run of the conversation, which this one lets finish first."""
    _is_cut = _is_closing = _is_submitted = _append_failed = _is_to_end = False
    _looking: asyncio.Task[None] | None = None
    _handing_over: Literal["no", "when what is under way has ended", "now"] = "no"
    _closing: asyncio.Task[None] | None = None

    @cached_property
    def children(self) -> Children:
        """Nested runs in calls of this one."""
        return Children()

    def _due_now(self) -> tuple[Effect, ...]:
        if self._handing_over != "no" and self._hands_over:
            # Nothing more begins; what the run has come to is still stored.
            return tuple(one for one in due(self.state) if one.key in self._tasks or isinstance(one, Append))
        if self.limit_error is not None:
            return tuple(one for one in due(self.state) if one.key in self._tasks or isinstance(one, Append))
        return super()._due_now()

    def _failure_of(self, key: str, task: asyncio.Task[None]) -> BaseException | None:
        failure = super()._failure_of(key, task)
        if isinstance(failure, UsageLimitExceeded):
            self.limit_error, failure = failure, None
        return failure

    # --- driving and stopping ----------------------------------------------------------------------------------------

    async def drive(self) -> None:
        """Perform due effects until none is left. If an effect raises, end the run in order first."""
        self.has_entered = True
        try:
            spec = self.state.spec
            if spec.context is not None and spec.cancel_wish is not None and not self.state.finished:
                self.task = asyncio.current_task()
                await self._end_as_wished()
            while True:
                await self.reconcile()
                if self.meter is not None:
                    self.meter.release_ahead()  # the run came to rest without a further request
                if self.limit_error is not None:
                    raise self.limit_error
                if self._hands_over and due(self.state):
                    await self._hand_over()
                await self._save_at_rest()
                saver = self.saver
                if saver is None or saver.signals is None or self.state.finished:
                    break
                taken = self.state.spec.signals_taken
                await self.take_signals()  # the step of a pause has met a decision
                if self.state.spec.signals_taken == taken and saver.has(self.state):
                    break
        except RunHandedOverError:
            raise
        except asyncio.CancelledError:
            if self._hands_over and self._handing_over == "now":
                await self._give_up()  # as a crash would leave it: what had begun is known to have
                if self.task is not None:
                    self.task.uncancel()
                raise handed_over_error(self.state) from None
            await self._close_when_cancelled()
            if not self._is_cut:
                raise
            if self.task is not None:
                self.task.uncancel()  # it was ours, and it is dealt with
            if (wish := self.state.spec.cancel_wish) is not None and self._is_to_end:
                raise cancelled_error(self.state, wish) from None
        except (RunClaimedError, LeaseLostError) as error:
            await self._give_up()  # the run is another's now: nothing more may be written in its name
            emit("lease_lost", run=self.state.spec.run_id, reason=type(error).__name__)
            await self._say_whose(error)
            raise
        except GeneratorExit:  # its loop was closed under it: nothing can be awaited any more
            self.close_now(Stopped("immediate"))
            raise
        except BaseException as error:
            await self._close_after(error)
            raise
        finally:
            self.task = None

    def stop_after_turn(self) -> None:
        """Let the turn under way finish and be stored; ask the model nothing more."""
        run, self.is_to_stop = self.state, True
        if not run.finished and run.progress.stop is None:
            upto = run.turn.number if run.turn is not None else max(run.progress.turns, self.last_requested_turn)
            self.apply(Stopped("after_turn", upto))

    def stop_now(self) -> bool:
        """Cancel running effects; work done by tools is still stored. Return True if the run's task had begun."""
        self._is_cut = True
        self._cut()
        return self.task is not None or self.has_entered

    async def _end_as_wished(self) -> None:
        if not self._is_to_end:
            self._is_to_end = self._is_cut = True
            self._cut()
            await asyncio.sleep(0)  # said to this very task, it is to be heard here

    def look_for_signals(self) -> None:
        """Read the run's signals in a task: a renewal of the lease has found a new one (F7)."""
        if self.saver is not None and not self._is_closing and not self.state.finished:
            self._looking = asyncio.ensure_future(self._read_signals(self.saver))
            self._looking.add_done_callback(ignore_exception)  # the next save meets them in any case

    async def _read_signals(self, saver: RunSaver[Run]) -> None:
        saved = await saver.store.load_run(self.state.spec.run_id)
        if saved is not None and self.task is not None:
            saver.signals = saved.signals
            await self.take_signals()

    def _cut(self) -> None:
        if self.task is not None and not self._is_closing:  # said twice, it must not cut short what is being stored
            self.task.cancel()

    def hand_over(self) -> None:
        """Begin nothing more. Once the running effects have ended, save the run for another worker."""
        if self.sibling is not None:
            self.sibling.hand_over()
        if self._handing_over == "no":
            self._handing_over = "when what is under way has ended"
            if self._wake is not None and not self._wake.done():
                self._wake.set_result(None)

    def hand_over_now(self) -> None:
        """Cancel running effects and write nothing more: the next worker finds the begun calls in doubt."""
        self._handing_over = "now"
        self._cut()

    @property
    def is_sent_away(self) -> bool:
        """True if the run was asked to leave before it began anything: it waited to be opened."""
        return self._handing_over == "now" and not self.has_entered

    @property
    def _hands_over(self) -> bool:
        # A run that is not saved cannot be taken by another worker: it continues, and is stopped in the end.
        return self._handing_over != "no" and self.saver is not None

    async def _hand_over(self) -> None:
        assert self.saver is not None
        self.saver.needed = True
        try:
            self.apply(HandedOver())
            await self.saver.save(self.state)
        except (RunClaimedError, LeaseLostError):
            raise
        except Exception as error:
            # What had begun was saved before: the worker that takes the run continues from there.
            logger.warning("run %s was handed over as it was last saved: %s", self.state.spec.run_id, error)
        raise handed_over_error(self.state)

    @property
    def closing_task(self) -> asyncio.Task[None] | None:
        """Task that stores the end of the run after `drive` returned, and then releases the session; else None."""
        return self._closing if self._closing is not None and not self._closing.done() else None

    # --- leaving in order --------------------------------------------------------------------------------------------

    def _note_failure(self, key: str) -> None:
        # What a session did not take is not tried again by closing: resuming does, when the session is well again.
        self._append_failed = self._append_failed or key.startswith("append/")

    async def _close_after(self, error: BaseException) -> None:
        try:
            at_limit = isinstance(error, UsageLimitExceeded)
            keeps_turn = error is self.failed_observer or (at_limit and self.is_kept)
            if at_limit and self.saver is not None:
                self.saver.needed = True  # any process with the store resumes it under a higher limit
            await self._close(Stopped("failed", keeps_turn=keeps_turn, at_limit=at_limit))
        except Exception as second:  # the first error is the one to report
            error.add_note(f"While storing what the run had done, this happened too: {second!r}")

    async def _close_when_cancelled(self) -> None:
        try:
            await self._close(self._make_stop(), CLOSING_GRACE_S)
        except Exception as error:  # raised, it would take the place of the cancellation
            self.close_now(self._make_stop())
            logger.warning(
                "run %s was cancelled, and its store has not said yet that it has what the run had done: %s: %s",
                self.state.spec.run_id,
                type(error).__name__,
                error,
            )

    def _make_stop(self) -> Stopped:
        wish = self.state.spec.cancel_wish if self._is_to_end else None
        return Stopped("immediate") if wish is None else Stopped("abandoned", message=wish["text"])

    async def _close(self, stopped: Stopped, store_s: float | None = None) -> None:
        """Close the open turn, and store the turn if a tool has run in it (C8). A second cancellation does not wait.

        The store may take `store_s` seconds, or by default as long as its own limit.
        """
        self._is_closing = True
        try:
            await self._end_effects()
            self._stop(stopped)
            async with asyncio.timeout(store_s):
                await (self._store_the_end() if self._is_submittable() else self._wait_for_the_background())
        except asyncio.CancelledError:
            self.close_now(stopped)
            raise

    def close_now(self, stopped: Stopped) -> None:
        """Have stored what is known now, without waiting for anything."""
        if self._is_submitted:
            return
        # What they store is theirs, under this run's lease where they share it.
        for child in list(self.children.under_way):
            child.close_now(Stopped("immediate"))
        self._stop(stopped)
        if self._is_submittable():
            self._submit_the_end()
        elif self._closing is None:
            try:
                asyncio.get_running_loop()
            except RuntimeError:  # it was closed
                self._let_go()
            else:
                self._store_in_the_background()

    async def _end_effects(self) -> None:
        """Cancel the running effects and wait for them. An effect still running after the grace period cannot record
        anything.
        """
        # An append to a session that cannot tell what it has is let finish: its outcome must be known.
        keeps = self._session is not None and not self._session.can_record
        told = [task for key, task in self._tasks.items() if not (keeps and key.startswith("append/"))]
        for task in told:
            if not task.cancelling():  # to be told twice means to a nested run that it must let go
                task.cancel()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks.values(), timeout=CLOSING_GRACE_S)
            if late:
                logger.warning(
                    "run %s was stopped, and %d of its effects did not end within %d s: they are left behind",
                    self.state.spec.run_id,
                    len(late),
                    CLOSING_GRACE_S,
                )
        for key, task in self._tasks.items():
            if task.done() and (task.cancelled() or task.exception() is not None):
                self._append_failed = self._append_failed or (keeps and key.startswith("append/"))
        self._tasks.clear()
        self._completed.clear()

    def _stop(self, stopped: Stopped) -> None:
        if self.meter is not None:
            self.meter.release_ahead()
        run = self.state
        stop = run.progress.stop
        # A run that waits for a person is left waiting: it was at rest, and only that had still to be saved.
        is_left = run.paused and stopped.mode != "abandoned"
        if not run.finished and not is_left and (stop is None or stop.mode == "after_turn"):
            tell_begun(run, "it was cut, and its turn says so")
            self.nested = cut_nested(run, self.children.storing())
            self.apply(stopped)

    def _is_submittable(self) -> bool:
        """Return True if the store accepts the closing write as a request independent of this event loop and of any
        waiter.
        """
        session, saver = self._session, self.saver
        if session is not None and not session.can_record:
            return False
        # On the class, never by attribute delegation: a store around another must not be gone around.
        return saver is None or saver.beside is not None or hasattr(type(saver.store), "save_detached")

    async def _store_the_end(self) -> None:
        """Store the closing write of the run, and release its lease. A write refused or delayed by the store is not
        done.
        """
        self._is_over = True
        await self._find_out_what_is_stored()
        after, new = self._end()
        if self._session is not None:
            await self._store(after, new, release=True)
        self.state = after
        await self._save_at_rest()

    async def _wait_for_the_background(self) -> None:
        closing = self._store_in_the_background()
        ended, _ = await asyncio.wait([closing], timeout=CLOSING_GRACE_S)
        if not ended:
            logger.warning(
                "run %s was stopped, and its store did not take what it had done within %d s; it goes on",
                self.state.spec.run_id,
                CLOSING_GRACE_S,
            )
            return
        closing.result()

    async def _find_out_what_is_stored(self) -> None:
        """Repeat a step of items and run that may have been done: taken for not done, an ended run would look open."""
        saver = self.saver
        if not self._append_failed or saver is None or saver.beside is None:
            return
        saved = await saver.confirm()
        if saved is not None and saved.marks.stored > self.state.marks.stored:
            self.state, self._append_failed = advance(self.state, Appended(saved.marks.stored)), False

    def _end(self) -> tuple[Run, NewItems]:
        if self._session is None or self._append_failed:
            return self.state, NewItems(self.run.spec.run_id, nested=self.nested)
        return self._with_items()  # of a run that stores nothing, what it cost is kept

    def _submit_the_end(self) -> None:
        """Submit the closing write without waiting. An unreachable store receives it later."""
        self._is_submitted = self._is_over = True
        saver, (after, new) = self.saver, self._end()
        beside = saver.last(after) if saver is not None and saver.beside is not None else None
        if self._session is not None and (beside is not None or not new.is_empty):
            self._session.record_now(new, run=beside)
        # In another store it does not say that the session has these items: a kill may keep the session from them, and
        # whoever resumes the run asks it. One that has ended nobody would resume, and it would be said to run for ever.
        known = after if after.finished else self.state
        if saver is not None and saver.beside is None and (save := saver.last(known)) is not None:
            detached: Any = saver.store
            detached.save_detached(save).close()  # not awaited: no task is left that could wait

    def _store_in_the_background(self) -> asyncio.Task[None]:
        """Store the end by tasks of this event loop: the only way for a store without a thread of its own."""
        self._closing = asyncio.ensure_future(self._store_as_long_as_it_lives())
        self._closing.add_done_callback(ignore_exception)
        return self._closing

    async def _store_as_long_as_it_lives(self) -> None:
        try:
            await self._store_the_end()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        """Release the session. Items the session did not get are reported at the next run on it."""
        self._is_over = True
        session, run = self._session, self.state
        if session is not None:
            if run.marks.stored < run.storable:
                session.could_not_store(run.spec.run_id, run.storable - run.marks.stored)
            session.release_now()

    async def _give_up(self) -> None:
        """Stop everything under way and write nothing."""
        self._is_closing = True
        try:
            await self._end_effects()
        finally:
            self._is_over = True

    async def _say_whose(self, error: RunClaimedError | LeaseLostError) -> None:
        """Add the present state to the error: the id of the settling run, or the lack of one."""
        run_id = self.state.spec.run_id
        try:
            saved = await self.saver.store.load_run(run_id) if self.saver is not None else None
            settled_by = settler_of(saved) if saved is not None else None
        except Exception as second:
            logger.debug("who has run %s could not be asked: %r", run_id, second)
            return
        if settled_by is not None:
            error.what += (
                f"; run {settled_by!r} has taken the session and settled run {run_id!r}: what it had begun is in the"
                " history, and said to be of unknown outcome"
            )
            error.remedy = "Read the history, and start a new run for what is still to be done."
        elif isinstance(error, LeaseLostError) and saved is not None:
            error.what += f"; run {run_id!r} has stopped, and nobody has settled it"
            error.remedy = f"Resume it: Runner.resume(agent, {run_id!r}, session=...)."
