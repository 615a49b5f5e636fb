"""Closing of a voice session: releases everything in order, for any number of concurrent closers (E2, E3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from standfast._src.base.aio import waiting_tasks
from standfast._src.base.errors import CloseTimeoutError, ConnectionLostError
from standfast._src.realtime.session.call_hooks import CallHookRunner
from standfast._src.realtime.session.call_scope import CallScope
from standfast._src.realtime.session.entry import Entering, closed_while_connecting
from standfast._src.realtime.session.lifecycle import Lifecycle
from standfast._src.realtime.session.persistence import CallPersistence
from standfast._src.realtime.session_events import RealtimeCallDropped
from standfast._src.runs.loop.reconciler import ignore_exception
from standfast._src.tools.worker_threads import ThreadWatch


class SessionCloser:
    """The end of one session: begun once, awaited by everybody, begun again only if the model's close failed."""

    def __init__(
        self,
        scope: CallScope,
        standing: Lifecycle,
        *,
        keeping: CallPersistence,
        observing: CallHookRunner,
        threads: ThreadWatch,
        entering: Entering,
        let_go: Callable[[], None],
        failure: Callable[[], BaseException | None],
    ) -> None:
        self._scope, self._standing, self._keeping = scope, standing, keeping
        self._observing, self._threads, self._entering = observing, threads, entering
        self._let_go, self._failure = let_go, failure
        """Own resources of the session, released without waiting: listener, timer, futures of its callers."""
        self.hangs_up = True
        self._task: asyncio.Task[None] | None = None
        self._model_closed = False
        self._left_behind: list[str] = []
        self._has_stopped = False
        """True once the work of the session was stopped: closing no longer waits for the rest."""
        scope.refuse_late = self._refuse_late

    def begin(self) -> asyncio.Task[None]:
        """Return the only closing task; the first closer creates it."""
        if self._task is None or (self._task.done() and self._standing.state != "closed"):
            if self._task is None:
                self._report_dropped()  # before readers learn that the session is over
            self._standing.move("closing")
            self._task = asyncio.get_running_loop().create_task(self._close())
            self._task.add_done_callback(ignore_exception)
        return self._task

    def is_own(self, task: asyncio.Task[object] | None) -> bool:
        """Return whether a task, or a task waiting for it, belongs to the session: such a task must not await the
        closing.
        """
        owners = (self._entering, self._scope.hands, self._observing)
        return any(owner.owns(one) for one in waiting_tasks(task) for owner in owners)

    async def _refuse_late(self) -> None:
        """Raise if the session is over. A connection opened after its work was stopped is closed again."""
        if not self._standing.is_over:
            return
        if self._has_stopped and self._task is not None:
            await asyncio.wait([self._task])
            await self._scope.model.close()
        raise closed_while_connecting()

    async def release_late(self) -> None:
        """Release a lease acquired by an entry after the closing had stopped waiting for it."""
        if self._has_stopped and self._scope.memory is not None:
            await self._scope.memory.release()

    async def _close(self) -> None:
        scope, hands = self._scope, self._scope.hands
        scope.wake_readers()
        await self._stop_work()
        problems: list[BaseException] = []
        failure = self._failure()
        # A call that only lost its connection is not hung up: the process that takes it over continues it.
        hang_up = self.hangs_up and not isinstance(failure, ConnectionLostError)
        try:
            problem = await self._keeping.end(failure, hang_up=hang_up)
        except BaseException as error:  # of a session of another package: the connection is closed all the same
            problem = error
        if problem is not None:
            problems.append(problem)
        hands.end_waiting(problem)
        self._let_go()
        if not self._model_closed:
            try:
                await scope.model.close()
                self._model_closed = True
            except Exception as error:
                problems.insert(0, error)
        scope.offers.clear()
        if self._model_closed:
            self._standing.move("closed")
        scope.wake_readers()
        if self._left_behind:
            names, self._left_behind = self._left_behind, []
            problems.append(
                CloseTimeoutError(
                    f"closed while this was still running: {', '.join(names)}",
                    "Let tools notice cancellation, give them a timeout, or raise close_timeout_s.",
                )
            )
        if problems:
            for other in problems[1:]:
                problems[0].add_note(f"While closing, this happened too: {other!r}")
            raise problems[0]
        assert hands.stopped or hands.task is None

    async def _stop_work(self) -> None:
        hands = self._scope.hands
        timeout_s = self._scope.config.get("close_timeout_s", 5.0)
        self._left_behind += await self._entering.stop(timeout_s)  # first: it starts the others
        self._left_behind += await hands.stop(timeout_s)
        self._left_behind += await self._threads.wait_until_idle(timeout_s)
        self._left_behind += await self._observing.stop(timeout_s)
        hands.stopped = self._has_stopped = True

    def _report_dropped(self) -> None:
        """Report waiting calls and unsent outputs as dropped if no record keeps them (E2)."""
        scope, talk = self._scope, self._scope.hands.talk
        if scope.is_kept:
            return
        for one in talk.calls:
            part = next((part for part in talk.open if part.call_id == one.call.id), None)
            output = part.text if part is not None else None
            scope.show(RealtimeCallDropped(one.call.id, one.call.name, output, scope.info))
