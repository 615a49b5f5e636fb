"""Reconciler of a voice call: starts due effects, stops effects that are no longer due, and owns all tasks.

`tell` never waits: a transport's reader must not block because a store is slow. Saving is an effect like any other;
only the begin of a tool call and an append wait for it. This loop starts every task, in a copy of the context in which
the session was entered (E15), and none outlives `stop`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from standfast._src.base.errors import RealtimeStateError
from standfast._src.realtime.machine.events import Do, Event, Frame, Shown
from standfast._src.realtime.machine.live_call import LiveCall
from standfast._src.realtime.machine.opaque_connection import OpaqueConnection
from standfast._src.realtime.machine.voice_call import VoiceCall, worth_saving
from standfast._src.runs.loop.reconciler import Reconciler

Performer = Callable[[Do], Awaitable[None]]

RETRY_S_FIRST, RETRY_S_MAX = 0.05, 5.0
# A failed effect may stay due for as long as the call lasts, so the waits before its retries double, up to a bound.


class CallReconciler(Reconciler[LiveCall, Event, Do]):
    """Reconciler of a voice call."""

    def __init__(
        self,
        exchange: LiveCall,
        *,
        performers: dict[str, Performer],
        shown: Callable[[list[Shown]], None],
        failed: Callable[[Do, BaseException], None],
        one_call_at_a_time: bool = False,
    ) -> None:
        super().__init__(
            exchange,
            advance=self._step,
            due=self._due_effects,
            perform=self._do,
            inline=False,
            rests=lambda _: False,
        )
        self._performers, self._shown, self._failed = performers, shown, failed
        self._one_call_at_a_time = one_call_at_a_time
        self.has_memory = self.connects = self.connected = False
        """Available resources: a session, a way to connect again, a connection."""
        self.was_away: Callable[[], bool] = lambda: False
        """True if this process was suspended for so long that another may have taken over the call."""
        self.saves_with_items = False
        """True if storing items saves the call in the same step."""
        self.version = self.saved_version = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._refusal: BaseException | None = None
        """Error by which this process lost the call."""
        self._failures: dict[str, int] = {}
        self.task: asyncio.Task[None] | None = None
        self.stats_late = 0
        """Bytes of audio that came after an interruption."""
        self.stopped = False
        self._news = asyncio.Event()

    # --- what happens ------------------------------------------------------------------------------------------------

    @property
    def exchange(self) -> LiveCall:
        """The call with its connection."""
        return self.state

    @property
    def talk(self) -> VoiceCall:
        """Present state of the call."""
        return self.state.talk

    def now(self) -> float:
        """Return the loop time, used for playback and timeouts."""
        return asyncio.get_running_loop().time()

    def tell(self, event: Event) -> None:
        """Let the call know of an event. Returns at once."""
        self.happen(lambda exchange, now: exchange.tell(event, now))

    def happen(self, work: Callable[[LiveCall, float], list[Shown] | None]) -> None:
        """Apply work to the call and its connection, show the results, and reconcile again."""
        exchange, now = self.state, self.now()
        before = exchange.talk
        shown = list(work(exchange, now) or ())
        shown += exchange.follow_up(now)
        if worth_saving(before, exchange.talk):
            self.version += 1
        if shown:
            self._shown(shown)
        self.wake_reconciler()

    def wake_reconciler(self) -> None:
        """Schedule a comparison of due effects with running ones."""
        self._news.set()
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def _step(self, exchange: LiveCall, event: Event) -> LiveCall:
        self.tell(event)
        return exchange

    async def wait_until_saved(self) -> None:
        """Wait until all events so far are saved, if there is a store."""
        if self._refusal is not None:
            raise self._refusal
        if not self.has_memory or self.saved_version >= self.version:
            return
        if self.stopped:
            raise closed_before("this was saved")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((self.version, future))
        self.wake_reconciler()
        await future

    async def at_rest(self) -> None:
        """Return when nothing is under way: no reply, nothing being heard, nothing due; a person may have to decide."""
        while not self.stopped and self._is_busy():
            self._news.clear()
            await self._news.wait()

    def _is_busy(self) -> bool:
        if self._due_effects(self.state) or self.running():
            return True
        exchange = self.state
        link = exchange.link
        if link is not None and self.connected and (link.active or link.creating or exchange.talk.asks):
            return True
        exchange.fold()
        # Audio that no reader has taken is not heard, so there is no wait for it.
        return any(part.is_playing and exchange.playback.ends_at(part.id) for part in exchange.talk.open)

    def note_saved(self, version: int) -> None:
        """Record the saved version of the call, and wake its waiters."""
        self._news.set()
        self.saved_version = max(self.saved_version, version)
        for wanted, future in self._waiting:
            if wanted <= self.saved_version and not future.done():
                future.set_result(None)
        self._waiting = [one for one in self._waiting if not one[1].done()]

    def refuse(self, error: BaseException) -> None:
        """Stop all effects of a call now owned by another process, and fail its waiters."""
        self._refusal = error
        self._not_saved(error)

    @property
    def is_refused(self) -> bool:
        """True if another process owns the call."""
        return self._refusal is not None

    @property
    def in_doubt(self) -> bool:
        """True if another process may own the call: nothing is sent before the store has confirmed the owner."""
        return self.has_memory and self.was_away()

    def end_waiting(self, problem: BaseException | None) -> None:
        """Wake all callers that wait for a save at the end: with success, or with the problem."""
        if problem is None:
            self.note_saved(self.version)
        else:
            self._not_saved(problem)

    def _not_saved(self, error: BaseException) -> None:
        for _, future in self._waiting:
            if not future.done():
                future.set_exception(error)
        self._waiting = []

    # --- what is due -------------------------------------------------------------------------------------------------

    def frames(self) -> list[Frame]:
        """Return the frames missing at the server, in order."""
        link = self.state.link
        if isinstance(link, OpaqueConnection):
            return [] if self.talk.ended else link.sends(self.talk)
        return self.state.frames()

    def _due_effects(self, exchange: LiveCall) -> tuple[Do, ...]:
        if self.stopped or self._refusal is not None:
            return ()
        in_doubt = self.in_doubt
        wanted: list[Do] = [Do("ours", "ours")] if in_doubt else []
        running = False
        for effect in exchange.due():
            if effect.kind == "append" and not self.has_memory:
                continue
            if effect.kind == "connect" and (in_doubt or not self.connects):
                continue
            if effect.kind in ("run", "settle"):
                if running and self._one_call_at_a_time:
                    continue
                running = True
            wanted.append(effect)
        link = exchange.link
        if self.connected and link is not None:
            write = Do(f"write/{link.epoch}", "write")
            # A write under way ends by itself when no frame is missing. A frame counts as sent while it is being sent:
            # a write that is cancelled then, because no other frame is missing, has lost it.
            if write.key in self._tasks or (not in_doubt and self.frames()):
                wanted.append(write)
        stores = self.saves_with_items and any(effect.kind == "append" for effect in wanted)
        if self.has_memory and self.saved_version < self.version and not stores:
            wanted.append(Do("save", "save"))
        return tuple(wanted)

    async def _do(self, _: LiveCall, effect: Do) -> None:
        try:
            await self._performers[effect.kind](effect)
            self._failures.pop(effect.key, None)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling() or self.stopped:
                raise
            await self._rest(effect, error)  # the application's code cancelled itself
        except Exception as error:
            await self._rest(effect, error)
        finally:
            asyncio.get_running_loop().call_soon(self._news.set)  # once the task has ended

    async def _rest(self, effect: Do, error: BaseException) -> None:
        """Report a failed effect, and wait before its retry: the effect may stay due for the whole call."""
        self._failed(effect, error)
        if self._refusal is None:
            count = self._failures[effect.key] = self._failures.get(effect.key, 0) + 1
            await asyncio.sleep(min(RETRY_S_FIRST * 2 ** (count - 1), RETRY_S_MAX))

    # --- the loop ----------------------------------------------------------------------------------------------------

    def owns(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether a task belongs to the call."""
        return task is not None and (task is self.task or task in self._tasks.values())

    def running(self) -> list[asyncio.Task[None]]:
        """Return the running tasks."""
        return [task for task in self._tasks.values() if not task.done()]

    async def run(self) -> None:
        """Reconcile until `stop`."""
        try:
            await self.reconcile()
        finally:
            self.stopped = True
            self._news.set()

    async def stop(self, timeout_s: float) -> list[str]:
        """Cancel all running effects; return the keys of those still running after the timeout."""
        self.stopped = True
        self._news.set()
        current = asyncio.current_task()
        tasks = {key: task for key, task in self._tasks.items() if task is not current and not task.done()}
        for task in tasks.values():
            task.cancel()
        if self.task is not None and self.task is not current and not self.task.done():
            self.task.cancel()
            await asyncio.wait([self.task], timeout=timeout_s)
        if tasks:
            await asyncio.wait(tasks.values(), timeout=timeout_s)
        for task in tasks.values():
            if task.done() and not task.cancelled():
                task.exception()
        return [key for key, task in tasks.items() if not task.done()]


def closed_before(what: str) -> RealtimeStateError:
    """Build the error for a caller whose event cannot happen after the end of the session."""
    return RealtimeStateError(f"the session was closed before {what}", "Make a new one with RealtimeRunner.run().")
