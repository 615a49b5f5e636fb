"""One pass over a run store: resume every run with a crashed worker (`Runner.recover`).

The pass schedules nothing: a caller with a clock (cron, a queue's periodic job, a loop of the application's) calls it
again and again, in any number of processes. The right to take a run is decided by its lease and by its saved revision,
as everywhere; here runs are only found, offered and reported.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from standfast._src.agents.agent import Agent
from standfast._src.base.aio import maybe_await
from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import (
    ApprovalError,
    InvalidSettingError,
    LeaseLostError,
    ModelBehaviorError,
    OwnerError,
    RunCancelledError,
    RunClaimedError,
    RunHandedOverError,
    RunStateError,
    SessionBusyError,
    SettingTypeError,
    UserError,
)
from standfast._src.base.logs import logger
from standfast._src.base.operational_events import emit
from standfast._src.base.type_names import describe_type
from standfast._src.realtime.machine.codec import is_call
from standfast._src.runs.engine.codec import decode_saved, has_ended
from standfast._src.runs.engine.run_store import RunStore, RunSummary
from standfast._src.runs.loop.active_runs import HAND_OVER_S, hand_over
from standfast._src.runs.loop.loop import CLOSING_GRACE_S
from standfast._src.runs.loop.result import RunResult
from standfast._src.runs.loop.run_attempt import RunAttempt
from standfast._src.runs.persistence.session_lock import run_store_of
from standfast._src.runs.persistence.unfinished_runs import age_of, is_let_first
from standfast._src.sessions.protocol import Session

Outcome = Literal["continued", "alive", "waits", "no_agent", "failed", "handed_over"]

ANCHOR = "-"
# A session through which the store is asked for its runs; nothing is ever written under its id.

PAGE = 100
# How many runs are asked for at a time.


@dataclass(frozen=True, slots=True)
class RecoveredRun:
    """Run found by a pass, and its outcome.

    `outcome`: `continued` (it was taken and came to rest: ended, or waits again), `alive` (another worker has it, or
    its session, or took it meanwhile), `waits` (for a person), `no_agent` (no given agent can resume it), `failed`,
    `handed_over` (taken, and left to other workers because this worker stops or the pass had no time left).
    """

    run_id: str
    session_id: str | None
    agent: str
    outcome: Outcome
    result: RunResult[Any] | None = None
    """Of one that was continued. It may wait for a person again: `result.interruptions`."""
    error: BaseException | None = None
    """Why, of every outcome but `continued` and `waits`."""


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """Runs found by a pass, without the runs that ended meanwhile."""

    runs: tuple[RecoveredRun, ...]
    is_whole: bool
    """Whether all was looked at: neither the limit, nor the time, nor the store has ended the pass before."""
    error: BaseException | None = None
    """What the store said when it was asked for its runs, and could not tell."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the number of runs of each outcome."""
        return Counter(one.outcome for one in self.runs)

    def of(self, outcome: Outcome) -> tuple[RecoveredRun, ...]:
        """Return the runs of one outcome."""
        return tuple(one for one in self.runs if one.outcome == outcome)

    def __str__(self) -> str:
        told = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items())) or "no run"
        return told + ("" if self.is_whole else " (not all was looked at)")


Take = Callable[
    [Agent[Any], RunSummary, Session | None, RunStore],
    Awaitable[tuple[RunAttempt, Callable[[], Awaitable[RunResult[Any]]]]],
]
"""Makes the attempt to go on with a run, and what carries it out."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one pass."""

    limit: int
    concurrency: int
    timeout_s: float | None

    def __post_init__(self) -> None:
        for name, value in (("limit", self.limit), ("concurrency", self.concurrency)):
            if type(value) is not int:
                raise SettingTypeError(f"{name} is {describe_type(value)}", "Give a whole number from 1.")
            if value < 1:
                raise InvalidSettingError(f"{name}={value} lets no run go on", "Give a whole number from 1.")
        if self.timeout_s is not None:
            check_seconds("timeout_s", self.timeout_s)


class _Waiting:
    """Runs not yet offered by a pass, by conversation: at most one of each is under way at a time."""

    def __init__(self, groups: Iterable[deque[RunSummary]]) -> None:
        self._ready = deque(groups)
        self._behind: dict[asyncio.Task[None], deque[RunSummary]] = {}
        """What waits for a run of its conversation that is under way."""

    @property
    def runs_left(self) -> bool:
        """True while runs are left."""
        return bool(self._ready or self._behind)

    def has_one_ready(self) -> bool:
        """Return True if a conversation has a run to offer, and none under way."""
        for task in [task for task in self._behind if task.done()]:
            self._ready.appendleft(self._behind.pop(task))
        return bool(self._ready)

    def begin(self, offer: Callable[[RunSummary], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Offer the next run in a task of its own."""
        group = self._ready.popleft()
        task = asyncio.ensure_future(offer(group.popleft()))
        if group:
            self._behind[task] = group
        return task


class Recovery:
    """One pass over a run store."""

    def __init__(
        self,
        agents: Mapping[str, Agent[Any]],
        store: RunStore | None,
        sessions: Callable[[str], Session] | None,
        take: Take,
        bounds: Bounds,
    ) -> None:
        if store is None and sessions is None:
            raise UserError("there is no run store to look in", "Pass store=, or sessions= whose store keeps runs too.")
        self._agents, self._given, self._sessions, self._take, self._bounds = agents, store, sessions, take, bounds
        self._listing: RunStore
        self._taken_count = 0
        self._found: list[RecoveredRun] = []
        self._attempts: dict[str, RunAttempt] = {}
        self._is_whole, self._is_stopped = True, False
        self._error: BaseException | None = None

    async def make(self) -> RecoveryReport:
        """Look at every open run once. Raises nothing that a run or a store has raised."""
        anchor: Session | None = None
        store = self._given
        try:
            if store is None:
                assert self._sessions is not None
                anchor = self._sessions(ANCHOR)
                store = run_store_of(anchor, None)
            self._listing = store
            return await self._run_pass(store)
        finally:
            await _close_session(anchor)

    async def _run_pass(self, store: RunStore) -> RecoveryReport:
        allowed_s = self._bounds.timeout_s
        deadline = None if allowed_s is None else time.monotonic() + allowed_s
        for one in await self._list_runs(store, "paused", self._bounds.limit):
            if not await _is_nested(store, one.run_id):  # the run around it is said to wait
                self._tell(one, "waits")
        # Those that changed last are listed first: begun at the other end, a pass with a limit starves no run.
        runs = [*await self._list_runs(store, "ready"), *await self._list_runs(store, "running")][::-1]
        waiting = _Waiting(await self._by_conversation(sorted(runs, key=lambda one: one.updated_at)))
        tasks: set[asyncio.Task[None]] = set()
        try:
            while waiting.runs_left:
                if not await self._has_room(tasks, deadline, waiting):
                    self._is_whole = False
                    break
                tasks.add(waiting.begin(self._offer))
            await self._end(tasks, deadline)
        except asyncio.CancelledError:
            # Cancelled, its runs would say that they were, and no worker would resume them.
            await self._leave({task for task in tasks if not task.done()}, CLOSING_GRACE_S)
            raise
        found = [one for one in self._found if one.outcome != "alive" or not await self._has_ended_since(one)]
        return RecoveryReport(tuple(found), self._is_whole and self._error is None, self._error)

    async def _by_conversation(self, runs: Iterable[RunSummary]) -> list[deque[RunSummary]]:
        """Group the runs by conversation, in the order of resuming them; the groups stay in the given order.

        A run with a crashed worker is before a decided run and before one without any effect, as for every worker
        resuming one of them (C15). A run with many crashed workers is last: it must not keep the others from their
        turn.
        """
        groups: dict[str, list[RunSummary]] = {}
        for one in runs:
            groups.setdefault(f"run {one.run_id}" if one.session_id is None else f"of {one.session_id}", []).append(one)
        ordered = []
        for group in groups.values():
            if len(group) > 1:
                places = {one.run_id: await self._place_of(one) for one in group}
                group.sort(key=lambda one: places[one.run_id])
            ordered.append(deque(group))
        return ordered

    async def _place_of(self, one: RunSummary) -> tuple[int, tuple[datetime, str]]:
        if one.status != "running":
            return 1, (one.updated_at, one.run_id)
        place = 2
        try:
            async with self._session_of(one) as session:
                saved = await self._store_of(session).load_run(one.run_id)
            if saved is None or is_call(saved) or has_ended(saved):
                place = 0
            else:
                run = decode_saved(saved)
                place = 1 if not run.has_done_something else 0 if is_let_first(run) else 2
        except Exception as error:  # reported when the run is taken
            logger.debug("the place of run %s could not be asked: %r", one.run_id, error)
        return place, age_of(one)

    async def _has_ended_since(self, one: RecoveredRun) -> bool:
        """Return True if a run found with another worker has ended by now."""
        try:
            async with self._session_of(one) as session:
                return await self._has_ended(self._store_of(session), one.run_id)
        except Exception as error:
            logger.debug("whether run %s has ended could not be asked: %r", one.run_id, error)
            return False

    @asynccontextmanager
    async def _session_of(self, one: RunSummary | RecoveredRun) -> AsyncIterator[Session | None]:
        """Open the session of a run for the `with` block; None if no session owns the run or none is given."""
        session: Session | None = None
        if one.session_id is not None and self._sessions is not None:
            session = self._sessions(one.session_id)
        try:
            yield session
        finally:
            await _close_session(session)

    async def _list_runs(self, store: RunStore, status: str, limit: int | None = None) -> list[RunSummary]:
        found: list[RunSummary] = []
        after: str | None = None
        try:
            while limit is None or len(found) < limit:
                size = PAGE if limit is None else min(PAGE, limit - len(found))
                page, after = await store.list_runs(status=status, after=after, limit=size)
                found += page
                if after is None:
                    break
        except Exception as error:
            logger.warning("a run store could not be asked for its runs: %s: %s", type(error).__name__, error)
            self._error = self._error or error
        return found

    # --- how many at once, and until when ----------------------------------------------------------------------------

    async def _has_room(self, tasks: set[asyncio.Task[None]], deadline: float | None, waiting: _Waiting) -> bool:
        """Wait until the pass may take one more run, of an idle conversation; False if this pass takes no more."""
        while True:
            tasks -= {task for task in tasks if task.done()}
            left_s = None if deadline is None else deadline - time.monotonic()
            if self._is_stopped or (left_s is not None and left_s <= 0):
                return False
            # Only those count that were taken: runs that others have, or nobody here can go on with, are there in every
            # pass, and would take the place of those that can.
            room = self._bounds.limit - self._taken_count
            if waiting.has_one_ready() and len(tasks) < min(room, self._bounds.concurrency):
                return True
            if not tasks:
                return False
            await asyncio.wait(tasks, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)

    async def _end(self, tasks: set[asyncio.Task[None]], deadline: float | None) -> None:
        if not tasks:
            return
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        _, late = await asyncio.wait(tasks, timeout=left_s)
        await self._leave(late, HAND_OVER_S)

    async def _leave(self, tasks: set[asyncio.Task[None]], within_s: float) -> None:
        """Hand over the runs under way; a second cancellation does not wait for them."""
        self._is_stopped = True
        try:
            await hand_over([one.loop for one in self._attempts.values()], within_s)
            if tasks:
                await asyncio.wait(tasks)
        except asyncio.CancelledError:
            for task in tasks:
                task.cancel()
            raise

    # --- one run -----------------------------------------------------------------------------------------------------

    def _tell(
        self,
        summary: RunSummary,
        outcome: Outcome,
        *,
        result: RunResult[Any] | None = None,
        error: BaseException | None = None,
    ) -> None:
        self._is_stopped = self._is_stopped or outcome == "handed_over"
        told = RecoveredRun(summary.run_id, summary.session_id, summary.agent, outcome, result, error)
        self._found.append(told)
        if outcome in ("continued", "failed", "handed_over"):
            emit("run_recovered", run=summary.run_id, outcome=outcome)

    async def _offer(self, summary: RunSummary) -> None:
        try:
            async with self._session_of(summary) as session:
                await self._go_on(summary, session)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            task = asyncio.current_task()
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise
            self._tell(summary, "failed", error=error)  # one bad run never stops the pass
        finally:
            attempt = self._attempts.pop(summary.run_id, None)
            self._taken_count += attempt is not None and attempt.is_open

    async def _go_on(self, summary: RunSummary, session: Session | None) -> None:
        store = self._store_of(session)
        saved = await store.load_run(summary.run_id)
        if saved is None or has_ended(saved):
            return
        if is_call(saved):
            error = RunStateError(f"{summary.run_id!r} is a voice call", "RealtimeRunner.resume goes on with it.")
            self._tell(summary, "no_agent", error=error)
            return
        run = decode_saved(saved)
        if run.is_closed or run.spec.inside is not None:  # one that is inside another goes on with that one
            return
        agent = self._agents.get(run.spec.agent)
        if agent is None:
            given = ", ".join(sorted(self._agents)) or "none"
            error = RunStateError(
                f"run {summary.run_id!r} was started with agent {run.spec.agent!r}, and given were: {given}",
                "Give that agent too, or leave the run to a worker that has it.",
            )
            self._tell(summary, "no_agent", error=error)
            return
        if run.spec.owner.kind == "session" and session is None:
            raise OwnerError(
                f"run {summary.run_id!r} belongs to session {run.spec.owner.id!r}, and no sessions were given",
                "Pass sessions=, a function that opens the session of an id.",
            )
        attempt: RunAttempt | None = None
        try:
            attempt, go = await self._take(agent, summary, session, store)
            if self._is_stopped:
                self._is_whole = False
                return
            self._attempts[summary.run_id] = attempt
            result = await go()
        except Exception as error:
            await self._tell_why(summary, store, error, is_taken=attempt is not None and attempt.is_open)
        else:
            self._tell(summary, "continued", result=result)

    def _store_of(self, session: Session | None) -> RunStore:
        """Return the store for reading a run: the session's own, because it may have a key that the listing lacks."""
        return self._listing if session is None or self._given is not None else run_store_of(session, None)

    async def _tell_why(self, summary: RunSummary, store: RunStore, error: Exception, *, is_taken: bool) -> None:
        match error:
            case RunHandedOverError():
                self._tell(summary, "handed_over", error=error)
            case RunCancelledError():
                self._tell(summary, "continued")  # an operator had cancelled it, and now it has ended (F7)
            case RunClaimedError() | SessionBusyError() | LeaseLostError():
                if not await self._has_ended(store, summary.run_id):
                    self._tell(summary, "alive", error=error)
            case RunStateError() | ApprovalError() | ModelBehaviorError() if not is_taken:
                # Nothing of it was begun or written: a worker with other agents, newer ones perhaps, can take it.
                if not await self._has_ended(store, summary.run_id):
                    self._tell(summary, "no_agent", error=error)
            case _:
                self._tell(summary, "failed", error=error)

    async def _has_ended(self, store: RunStore, run_id: str) -> bool:
        """Return True if another worker has ended the run since the listing: then there is nothing to report."""
        try:
            saved = await store.load_run(run_id)
            return saved is None or has_ended(saved) or (not is_call(saved) and decode_saved(saved).is_closed)
        except Exception as error:
            logger.debug("whether run %s has ended could not be asked: %r", run_id, error)
            return False


async def _is_nested(store: RunStore, run_id: str) -> bool:
    """Return True if the run is inside another, for example an agent tool's run on a session of its own."""
    saved = await store.load_run(run_id) if "/" in run_id else None  # the id of such a one has its parent's before that
    if saved is None or has_ended(saved) or is_call(saved):
        return False
    try:
        return decode_saved(saved).spec.inside is not None
    except RunStateError:
        return False


async def _close_session(session: Session | None) -> None:
    close: Any = getattr(session, "close", None)
    if close is not None:
        try:
            await maybe_await(close())
        except Exception as error:  # what became of the run is told already
            logger.warning("a session could not be closed: %s: %s", type(error).__name__, error)
