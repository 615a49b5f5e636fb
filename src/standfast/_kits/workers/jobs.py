"""Jobs of any queue that run agents: a job may be delivered any number of times, anywhere.

A run's store is its log already, and its lease tells whether its worker lives. So a job keeps nothing of the run: the
input is saved first (`RunJobs.put`), the engine carries the run's name, and a delivery begins or resumes the run of
that name (`RunJobs.perform`), with all earlier work, from this process or a killed one (G1). An engine adapter asks
`again_after_s` about errors, and takes a run back with `Store.cancel`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self, TypedDict, Unpack

from standfast._kits.operators.copy_sessions import AnyStore
from standfast._kits.operators.open_store import open_store
from standfast._kits.operators.run_view import RunView, load
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
    UsageLimitExceeded,
)
from standfast._src.base.json_values import Item, JsonValue, encode_value
from standfast._src.items.items import ItemHelpers
from standfast._src.runs.api.agent_runner import execute
from standfast._src.runs.api.arguments import StartOptions, named_agents
from standfast._src.runs.api.resume import AS_SAVED, to_resume
from standfast._src.runs.api.runner import Runner
from standfast._src.runs.engine.codec import RunRecord, decode_saved, has_ended
from standfast._src.runs.engine.run import Owner, begin
from standfast._src.runs.engine.run_store import RunStore, RunSummary, check_run_id
from standfast._src.runs.loop.initial_run import own_items
from standfast._src.runs.loop.result import RunResult
from standfast._src.runs.persistence.recover_from_session import another_input
from standfast._src.runs.persistence.unfinished_on_server import given_input_of
from standfast._src.runs.recovery.recover import ANCHOR, RecoveryReport
from standfast._src.sessions.rules.messages import WhenBusy

OUTPUT_BYTES_MAX = 2_000
# Twice in an engine's log (the job's result and the workflow's), with names and times it stays below 10 KB.

AGAIN_S_MAX = 60.0
# Long enough for a store that is being restarted, short enough that no operator searches for the job.

LASTING = (
    GuardrailTripped,
    MaxTurnsExceeded,
    UsageLimitExceeded,
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
    """Content of a queue entry: three names, and nothing of the run, so that any engine can carry it."""

    run_id: str
    agent: str
    """The name of the agent that the run starts with."""
    session_id: str | None = None
    """None: no session keeps the conversation."""


@dataclass(frozen=True, slots=True)
class JobEnd:
    """End of a job. `waits`: a person must decide first; the job is over, and another job resumes the run."""

    run_id: str
    status: Literal["done", "waits", "failed", "cancelled", "refused"]
    output: JsonValue = None
    """The final output as JSON."""
    waiting: tuple[str, ...] = ()
    """The ids of the calls that wait for a person."""
    heard_by: str | None = None
    """The run that heard the job's message together with its own. The end is that of this run, whose calls wait."""

    def as_json(self) -> dict[str, Any]:
        """Return the same as JSON, for engines that keep a job's result.

        An output of more than 2,000 bytes stays in the store (`output_left_out`): an engine keeps a job's result for
        each delivery, and its log must not grow with the conversation. `RunJobs.end_of` reads the output.
        """
        is_short = len(encode_value(self.output)) <= OUTPUT_BYTES_MAX
        said: dict[str, Any] = {"run_id": self.run_id, "status": self.status, "waiting": list(self.waiting)}
        said |= {"output": self.output} if is_short else {"output": None, "output_left_out": True}
        return said | ({} if self.heard_by is None else {"heard_by": self.heard_by})


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

    # --- a run's name ------------------------------------------------------------------------------------------------

    async def put(
        self,
        run_id: str,
        agent: str,
        input: str | list[Item],
        *,
        session_id: str | None = None,
        when_busy: WhenBusy = "queue",
        by: str | None = None,
    ) -> RunJob:
        """Save a run that no worker has begun, and return its job: the names to give to the engine.

        In a session the input is a message, sent under the run's id (F1): a repeat changes nothing, another input under
        the id raises SessionConflictError. `when_busy` as for `Store.send`; "queue" gives every job an answer of its
        own. A process that crashes between this and the engine leaves a run that `recover` begins.
        """
        if session_id is None:
            await self._put_alone(run_id, agent, input)
        else:
            await self.store.send(
                session_id, input, agent=agent, message_id=run_id, when_busy=when_busy, by=by, max_turns=self._max_turns
            )
        return RunJob(run_id, agent, session_id)

    async def _put_alone(self, run_id: str, agent: str, given: str | list[Item]) -> None:
        """Save a run without a conversation; do nothing if saved before."""
        items = own_items(given)
        fresh = begin(
            run_id=check_run_id(run_id),
            agent=agent,
            input_items=items,
            owner=Owner(),
            max_turns=self._max_turns,
            verdict="blocking",
            input_is_text=isinstance(given, str),
            message={},
        )
        record = RunRecord(fresh)
        session = self.store.session(ANCHOR)
        try:
            runs = session.run_store()
            saved = await runs.load_run(run_id)
            if saved is None:
                try:
                    await runs.save_run(
                        run_id,
                        expect=0,
                        head=record.head(),
                        tails=record.tails({}),
                        status=record.status,
                        agent=record.agent,
                        session_id=None,
                    )
                    return
                except RunClaimedError:
                    saved = await runs.load_run(run_id)  # another process has put it there meanwhile
            if saved is not None and not has_ended(saved) and given_input_of(decode_saved(saved)) != items:
                raise another_input(fresh)
        finally:
            await session.close()

    # --- one delivery ------------------------------------------------------------------------------------------------

    async def perform(self, job: RunJob) -> JobEnd:
        """Begin or resume the run of a job by its name, regardless of earlier deliveries.

        A run that has ended returns its result again; an interrupted one continues behind its last effect; one that
        waits for a person reports that. A message that another run heard has the end of that run. Raises
        RunClaimedError or SessionBusyError while another worker executes it, NotFoundError for a run that was never
        saved, and errors of the run: `again_after_s` decides about another delivery.
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
            options = StartOptions(context, AS_SAVED, None, config, session=owned, beside=self._find_agent_for)
            return _end_of(await self._resume(agent, job, options, store))
        except (RunStateError, NotFoundError) as error:
            if isinstance(error, NotFoundError) and await self._view(job.run_id) is not None:
                raise  # code of the run raised it
            ended = await self._find_ending(job)
            if isinstance(ended, RunJob):
                return replace(await self.perform(ended), run_id=job.run_id, heard_by=ended.run_id)
            if ended is None:
                raise
            return ended
        finally:
            await session.close()

    async def _resume(
        self, agent: Agent[Any], job: RunJob, options: StartOptions, store: RunStore | None
    ) -> RunResult[Any]:
        """Resume the run; load it again if another worker saved the run during the wait for the lease."""
        patience_end = time.monotonic() + self.config.lease_wait_s
        while True:
            state, given, resumed = await to_resume(agent, job.run_id, store, options)
            try:
                return await execute(agent, state, given, resumed)
            except RunClaimedError:
                runs = self.store.session(ANCHOR)
                try:
                    now = await runs.run_store().load_run(job.run_id)
                finally:
                    await runs.close()
                is_moved = now is None or now.revision != resumed.revision
                if not is_moved or time.monotonic() >= patience_end:
                    raise

    async def end_of(self, job: RunJob) -> JobEnd | None:
        """Return the end of a job's run as the store knows it, or None while the run has not ended. Nothing runs."""
        ended = await self._find_ending(job)
        if not isinstance(ended, RunJob):
            return ended
        found = await self.end_of(ended)
        return None if found is None else replace(found, run_id=job.run_id, heard_by=ended.run_id)

    async def _find_ending(self, job: RunJob) -> JobEnd | RunJob | None:
        """Return the end of a run, or the job of the run that heard the message; None without either."""
        view, said = await self._view(job.run_id), None
        if job.session_id is not None:
            with suppress(NotFoundError):
                said = await self.store.receipt(job.session_id, job.run_id)
        if said is not None and said.state == "heard" and said.run_id is not None:
            try:
                return await self.job_of(said.run_id)
            except (NotFoundError, RunStateError):
                return RunJob(said.run_id, job.agent, job.session_id)  # it has ended
        if said is not None and said.state in ("refused", "cleared", "moved"):
            return JobEnd(job.run_id, "refused" if said.state == "refused" else "cancelled")
        if view is None and said is not None and said.state == "done":
            return JobEnd(job.run_id, "done", await self._read_answer(job))
        match view and view.status:
            case "done":
                assert view is not None
                return JobEnd(job.run_id, "done", await self._read_output(job, view))
            case "failed" | "cancelled" as status:
                return JobEnd(job.run_id, status)
            case _:
                return None

    async def _read_output(self, job: RunJob, view: RunView) -> JsonValue:
        """Return the output in the type of the run's agent; without the agent, the stored output."""
        agent = self.agents.get(job.agent)
        if agent is None:
            return plain(view.output)
        session = self.store.session(job.session_id or ANCHOR)
        try:
            owned, store = (session, None) if job.session_id is not None else (None, session.run_store())
            return plain((await Runner.result(agent, job.run_id, session=owned, run_store=store)).final_output)
        finally:
            await session.close()

    async def _view(self, run_id: str) -> RunView | None:
        try:
            return await self.store.run(run_id)
        except (NotFoundError, RunStateError):
            return None

    async def _read_answer(self, job: RunJob) -> str | None:
        """Return the last text of a run whose record was pruned, from its session."""
        session = self.store.session(job.session_id or ANCHOR)
        try:
            items = await session.written(job.run_id)
        finally:
            await session.close()
        said = [item for item in items if item.get("type") == "message" or item.get("role") == "assistant"]
        return ItemHelpers.extract_text(said[-1]) if said else None

    # --- from another process ----------------------------------------------------------------------------------------

    async def decide(
        self, run_id: str, call_id: str, approve: bool, *, by: str, **shown: Unpack[DecisionOptions]
    ) -> RunJob | None:
        """Approve or reject a waiting call, and return the job that resumes its run; see `Store.decide`.

        None if other calls of the run still wait, or a worker of the run applies the decision. Raises the errors of
        `Store.decide`. A process that crashes between
        this and putting the job into the queue leaves a run that is `ready`: `recover` finds it.
        """
        view = await self.store.decide(run_id, call_id, approve, by=by, **shown)
        return await self.job_of(run_id) if view.status == "ready" else None

    async def recover(self) -> dict[str, int]:
        """Resume every run without a worker, for all agents here: one pass.

        Returns the number of runs by outcome (`Runner.recover`).
        """
        return dict((await self.recover_and_report()).counts)

    async def recover_and_report(self) -> RecoveryReport:
        """Make the same pass; return the report, with the names of the runs."""
        return await Runner.recover(
            self.agents.values(),
            sessions=self.store.session,
            context_of=None if self._context is None else self._context_of_run,
            run_config=self.config,
        )

    def _find_agent_for(self, started_with: str, run: RunSummary) -> tuple[Agent[Any], object] | None:
        """Return the agent and context to resume another run of a job's conversation, which must finish first (C15)."""
        agent = self.agents.get(started_with)
        job = RunJob(run.run_id, started_with, run.session_id)
        return None if agent is None else (agent, self._context(job) if self._context is not None else None)

    def _context_of_run(self, run: RunSummary) -> object:
        assert self._context is not None
        return self._context(RunJob(run.run_id, run.agent, run.session_id))

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
        return RunJob(run_id, spec.agent, spec.owner.id if spec.owner.kind == "session" else None)


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
