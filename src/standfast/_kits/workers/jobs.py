"""Jobs of any queue that run agents: a job may be delivered any number of times, anywhere.

A run's store is its log already, and its lease tells whether its worker lives. So a job keeps no state of its own: it
starts the run under its id, and finds all earlier work there, from this process or a killed one. An engine adapter
hands deliveries to `RunJobs.perform` and asks `again_after_s` about its errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack

from standfast._kits.operators.copy_sessions import AnyStore
from standfast._kits.operators.open_store import open_store
from standfast._kits.operators.run_view import load
from standfast._kits.operators.store import Store
from standfast._kits.workers.plain_output import plain
from standfast._src.agents.agent import Agent
from standfast._src.agents.run_config import DEFAULT_MAX_TURNS, RunConfig
from standfast._src.base.errors import (
    GuardrailTripped,
    InvalidSessionIdError,
    InvalidSettingError,
    ItemNotStorableError,
    MaxTurnsExceeded,
    ModelRefusalError,
    NotFoundError,
    OwnerError,
    RunClaimedError,
    RunStateError,
    SessionBusyError,
    SessionConflictError,
)
from standfast._src.base.json_values import Item, JsonValue
from standfast._src.runs.api.arguments import StartOptions, named_agents
from standfast._src.runs.api.resume import deliver
from standfast._src.runs.api.runner import Runner
from standfast._src.runs.engine.codec import RunRecord, decode_saved, has_ended
from standfast._src.runs.engine.run import Owner, begin
from standfast._src.runs.engine.run_store import RunSummary
from standfast._src.runs.loop.initial_run import own_items
from standfast._src.runs.loop.result import RunResult
from standfast._src.runs.persistence.unfinished_runs import give_up_run
from standfast._src.runs.recovery.recover import ANCHOR

AGAIN_S_MAX = 60.0
# Long enough for a store that is being restarted, short enough that no operator searches for the job.

LASTING = (
    GuardrailTripped,
    MaxTurnsExceeded,
    ModelRefusalError,
    SessionConflictError,
    OwnerError,
    ItemNotStorableError,
    InvalidSessionIdError,
    InvalidSettingError,
)
"""What another delivery would only meet again. An agent or a tool that is missing is not among them: during a deploy
an older worker may have got the job, and the next one has them."""


@dataclass(frozen=True, slots=True)
class RunJob:
    """Content of a queue entry: plain values, so that any engine can carry it."""

    run_id: str
    agent: str
    """The name of the agent that the run starts with."""
    input: str | list[Item] | None = None
    """None: the run was begun by an earlier job, and is only resumed."""
    session_id: str | None = None
    """None: no session keeps the conversation."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """End of a job. `waits`: a person must decide first; the job is over, and another job resumes the run."""

    run_id: str
    status: Literal["done", "waits", "failed", "cancelled"]
    output: JsonValue = None
    """The final output as JSON."""
    waiting: tuple[str, ...] = ()
    """The ids of the calls that wait for a person."""

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON, for engines that keep a job's result."""
        return {"run_id": self.run_id, "status": self.status, "output": self.output, "waiting": list(self.waiting)}


ContextOf = Callable[[RunJob], object]
"""Makes the application's object of a job's run."""


class DecisionOptions(TypedDict, total=False):
    """Options of a decision; see `Store.decide`."""

    reason: str | None
    arguments: str | None
    prepared_arguments: str | None


class RunJobs:
    """Executor of jobs: `agents` by name, on one store, each job under its run's id."""

    def __init__(
        self,
        agents: Iterable[Agent[Any]],
        store: AnyStore,
        *,
        run_config: RunConfig | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        context: ContextOf | None = None,
    ) -> None:
        """`store` is a URL as for `open_store`, or a store that is open already.

        `context` makes the application's object for each job. `run_config` is used for every run, with its own id; if
        it says nothing of `unfinished`, that is "resume": what an earlier job's worker left of a conversation is
        finished before a later job begins there.
        """
        self.agents = named_agents(agents)
        config = run_config or RunConfig()
        # A job's run that was left has a caller, too, who waits for its answer: no other job's message closes it.
        self.config = config if config.unfinished is not None else replace(config, unfinished="resume")
        self._given, self._opened = store, store if isinstance(store, Store) else None
        self._max_turns, self._context = max_turns, context

    @property
    def store(self) -> Store:
        """The store, opened at its first use."""
        if self._opened is None:
            assert not isinstance(self._given, Store)
            self._opened = open_store(self._given, create=True)
        return self._opened

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the store, if opened here."""
        opened, self._opened = self._opened, self._given if isinstance(self._given, Store) else None
        if opened is not None and opened is not self._given:
            await opened.close()

    # --- one delivery ------------------------------------------------------------------------------------------------

    async def perform(self, job: RunJob) -> JobEnd:
        """Run a job, regardless of earlier deliveries.

        A run that has ended returns its result again; an interrupted one continues behind its last effect; one that
        waits for a person reports that. Raises RunClaimedError or SessionBusyError while another worker executes it,
        and errors of the run: `again_after_s` decides about another delivery.
        """
        agent = self.agents.get(job.agent)
        if agent is None:
            raise NotFoundError(
                f"this worker has no agent {job.agent!r} for run {job.run_id!r}",
                f"Give it to the worker; it has {', '.join(map(repr, self.agents)) or 'none'}.",
            )
        session = self.store.session(job.session_id or ANCHOR)
        try:
            owned, store = (session, None) if job.session_id is not None else (None, session.run_store())
            config = self.config if store is None else replace(self.config, run_store=store)
            context = self._context(job) if self._context is not None else None
            options = StartOptions(context, self._max_turns, None, config, session=owned, beside=self._find_agent_for)
            try:
                result = await deliver(agent, job.run_id, job.input, options, store)
            except RunStateError:
                ended = await self._find_ending(job.run_id)
                if ended is None:
                    raise
                return ended
            return _end_of(result)
        finally:
            await session.close()

    async def _find_ending(self, run_id: str) -> JobEnd | None:
        """Return the end of a run, or None: cancelled, settled by another run, or done in an earlier delivery."""
        try:
            view = await self.store.run(run_id)
        except (NotFoundError, RunStateError):
            return None
        match view.status:
            case "done" | "failed" | "cancelled" as status:
                return JobEnd(run_id, status, view.output)
            case _:
                return None

    # --- from another process ----------------------------------------------------------------------------------------

    async def decide(
        self, run_id: str, call_id: str, approve: bool, *, by: str, **shown: Unpack[DecisionOptions]
    ) -> RunJob | None:
        """Approve or reject a waiting call, and return the job that resumes its run; see `Store.decide`.

        None if other calls of the run still wait. Raises the errors of `Store.decide`. A process that crashes between
        this and putting the job into the queue leaves a run that is `ready`: `recover` finds it.
        """
        view = await self.store.decide(run_id, call_id, approve, by=by, **shown)
        return None if view.waiting else await self.job_of(run_id)

    async def call_off(self, job: RunJob, *, by: str) -> None:
        """Cancel a run without saved state: a worker that starts it later finds its end.

        Raises RunClaimedError if it has begun since.
        """
        owner = Owner() if job.session_id is None else Owner("session", job.session_id)
        fresh = begin(run_id=job.run_id, agent=job.agent, input_items=own_items(job.input or []), owner=owner)
        record = RunRecord(give_up_run(f"{by} cancelled the run.", fresh, 0))
        session = self.store.session(ANCHOR)
        try:
            await session.run_store().save_run(
                job.run_id,
                expect=0,
                head=record.head(),
                tails=record.tails({}),
                status=record.status,
                agent=record.agent,
                session_id=record.session_id,
            )
        finally:
            await session.close()

    async def recover(self) -> dict[str, int]:
        """Resume every run of the store that has no worker and that one of the agents can continue: one pass.

        Returns the number of runs by outcome (`Runner.recover`).
        """
        report = await Runner.recover(
            self.agents.values(),
            sessions=self.store.session,
            context_of=None if self._context is None else self._context_of_run,
            run_config=self.config,
        )
        return dict(report.counts)

    def _find_agent_for(self, started_with: str, run: RunSummary) -> tuple[Agent[Any], object] | None:
        """Return the agent and context to resume another run of a job's conversation, which must finish first (C15)."""
        agent = self.agents.get(started_with)
        job = RunJob(run.run_id, started_with, None, run.session_id)
        return None if agent is None else (agent, self._context(job) if self._context is not None else None)

    def _context_of_run(self, run: RunSummary) -> object:
        assert self._context is not None
        return self._context(RunJob(run.run_id, run.agent, None, run.session_id))

    async def job_of(self, run_id: str) -> RunJob:
        """Return the job that resumes a saved run; raise NotFoundError if unknown, RunStateError if ended."""
        session = self.store.session(ANCHOR)
        try:
            saved = await load(session.run_store(), run_id)
        finally:
            await session.close()
        if has_ended(saved):
            raise RunStateError(f"run {run_id!r} has ended", "There is nothing to go on with; read its result.")
        spec = decode_saved(saved).spec
        return RunJob(run_id, spec.agent, None, spec.owner.id if spec.owner.kind == "session" else None)


def _end_of(result: RunResult[Any]) -> JobEnd:
    waiting = tuple(str(item.call_id) for item in result.interruptions)
    if waiting:
        return JobEnd(result.run_id, "waits", waiting=waiting)
    return JobEnd(result.run_id, "done", plain(result.final_output))


# --- what to do about an error ---------------------------------------------------------------------------------------


def again_after_s(error: BaseException, attempts: int, *, attempts_max: int, lease_ttl_s: float) -> float | None:
    """Return the delay in seconds of the next delivery, after attempt number `attempts` raised an error; None: no
    delivery.

    Attempts count from zero. While another worker has the run or its session, the delay is at least the time to live of
    its lease.
    """
    if attempts + 1 >= attempts_max or isinstance(error, LASTING):
        return None
    backoff_s = min(2.0**attempts, AGAIN_S_MAX)
    if isinstance(error, RunClaimedError | SessionBusyError):
        return max(lease_ttl_s, backoff_s)
    return backoff_s
