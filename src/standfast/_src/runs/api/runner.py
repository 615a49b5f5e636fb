"""The face of runs: `Runner.run`, `run_sync`, `run_streamed`, and resuming by id.

Everything that can be refused is refused here, before anything is read or sent. What follows is one `RunAttempt`,
however it is watched: `run` awaits it, `run_streamed` lets it go on in the background, `run_sync` runs it on a loop
of its own thread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import ApprovalBook
from standfast._src.agents.context import RunContextWrapper, TContext, wrapper_of
from standfast._src.agents.error_handlers import RunErrorHandlers, check_error_handlers
from standfast._src.agents.hooks import RunHooksBase, check_hooks
from standfast._src.agents.run_config import DEFAULT_MAX_TURNS, RunConfig, check_max_turns, coerce_run_config
from standfast._src.base.errors import (
    InputGuardrailTripwireTriggered,
    NotFoundError,
    RunClaimedError,
    RunStateError,
    SessionBusyError,
    UserError,
)
from standfast._src.base.json_values import Item
from standfast._src.runs.api.agent_runner import (
    execute,
    execute_attempt,
    get_default_agent_runner,
    start_streamed,
    state_of,
)
from standfast._src.runs.api.arguments import StartOptions, default_provider, named_agents, start
from standfast._src.runs.api.run_state import RunState
from standfast._src.runs.api.saved_context import wrap_context
from standfast._src.runs.engine.codec import decode_saved, ending_of
from standfast._src.runs.engine.run import Owner, evolve
from standfast._src.runs.engine.run_store import RunStore, RunSummary, SavedRun
from standfast._src.runs.loop.active_runs import HAND_OVER_S, hand_over_all
from standfast._src.runs.loop.agent_graph import AgentGraph
from standfast._src.runs.loop.conversation_owner import owner_of, owner_on_resume
from standfast._src.runs.loop.result import RunResult, RunResultStreaming
from standfast._src.runs.loop.run_attempt import RunAttempt
from standfast._src.runs.loop.run_scope import ResumedRun, RunArguments, usage_of
from standfast._src.runs.persistence.pending_items import unsent_items
from standfast._src.runs.persistence.resume_checks import check_saved, refuse_to_delete
from standfast._src.runs.persistence.session_lock import run_store_of
from standfast._src.runs.recovery.recover import Bounds, Recovery, RecoveryReport
from standfast._src.runs.recovery.run_updates import RunUpdate
from standfast._src.runs.recovery.watch import POLL_S, WAIT_S, watch
from standfast._src.sessions.protocol import Session, require
from standfast._src.sessions.rules.messages import Receipt, WhenBusy

AS_SAVED: Any = object()
"""What `max_turns` of a resume is if nobody says it."""


class Runner:
    """Runs agents."""

    @classmethod
    async def run(
        cls,
        starting_agent: Agent[TContext],
        input: str | list[Item] | RunState[TContext],
        *,
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooksBase[TContext, Any] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[TContext] | dict[str, Any] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResult[RunState[TContext]]:
        """Run an agent until it has a final output, waits for a person, or fails.

        Raises what ended it: a tripwire, `MaxTurnsExceeded`, what a tool or the model raised. The error carries what
        was done (`run_data`) and, as `run_state`, the run to go on with.
        """
        # fmt: off
        return await get_default_agent_runner().run(
            starting_agent, input, context=context, max_turns=max_turns, hooks=hooks, run_config=run_config,
            error_handlers=error_handlers, previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id, conversation_id=conversation_id, session=session,
        )
        # fmt: on

    @classmethod
    def run_sync(
        cls,
        starting_agent: Agent[TContext],
        input: str | list[Item] | RunState[TContext],
        *,
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooksBase[TContext, Any] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[TContext] | dict[str, Any] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResult[RunState[TContext]]:
        """`run`, for code without an event loop. Ctrl-C stops the run in order and is raised."""
        # fmt: off
        return get_default_agent_runner().run_sync(
            starting_agent, input, context=context, max_turns=max_turns, hooks=hooks, run_config=run_config,
            error_handlers=error_handlers, previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id, conversation_id=conversation_id, session=session,
        )
        # fmt: on

    @classmethod
    def run_streamed(
        cls,
        starting_agent: Agent[TContext],
        input: str | list[Item] | RunState[TContext],
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooksBase[TContext, Any] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
        *,
        error_handlers: RunErrorHandlers[TContext] | dict[str, Any] | None = None,
    ) -> RunResultStreaming[RunState[TContext]]:
        """Start a run in the background and return at once; iterate `stream_events()` to watch it.

        It runs to its end whether or not anybody watches. Errors of the arguments are raised here, all others by the
        iteration.
        """
        # fmt: off
        return get_default_agent_runner().run_streamed(
            starting_agent, input, context=context, max_turns=max_turns, hooks=hooks, run_config=run_config,
            error_handlers=error_handlers, previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id, conversation_id=conversation_id, session=session,
        )
        # fmt: on

    @classmethod
    async def send(
        cls,
        starting_agent: Agent[TContext],
        message: str | list[Item],
        *,
        session: Session,
        message_id: str | None = None,
        when_busy: WhenBusy = "steer",
        by: str | None = None,
        context: TContext | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: RunHooksBase[TContext, Any] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[TContext] | dict[str, Any] | None = None,
    ) -> Receipt:
        """Send a message to a conversation in any state, and begin it here if no run has the conversation (F1, F2).

        While a run is under way, in whatever process, that run hears the message before its next request, and the
        receipt is `waiting`. Else this call runs the message, and returns when that run has come to rest. Sent again
        under its `message_id`, a message is not heard again: the receipt tells what became of it. Raises what the run
        raised; the message then waits for the next run, or for `recover`.
        """
        able: Any = require(session, "send")
        receipt: Receipt = await able.send(
            message, agent=starting_agent.name, message_id=message_id, when_busy=when_busy, by=by, max_turns=max_turns
        )
        if receipt.state != "waiting":
            return receipt
        options = StartOptions(context, AS_SAVED, hooks, run_config, error_handlers, session=session)
        try:
            state, options, resumed = await _to_resume(starting_agent, receipt.message_id, None, options)
            attempt = start(starting_agent, state, options, resumed=replace(resumed, at_once=True))
            await execute_attempt(attempt, state)
        except (RunClaimedError, SessionBusyError, RunStateError, InputGuardrailTripwireTriggered) as error:
            after: Receipt | None = await able.receipt(receipt.message_id)
            if after is None or (after.state == "waiting" and isinstance(error, RunStateError)):
                raise
            return after._replace(is_new=receipt.is_new)
        after = await able.receipt(receipt.message_id)
        return receipt if after is None else after._replace(is_new=receipt.is_new)

    # --- saved runs --------------------------------------------------------------------------------------------------

    @classmethod
    async def resume(
        cls,
        starting_agent: Agent[TContext],
        run_id: str,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        context: TContext | None = None,
        hooks: RunHooksBase[TContext, Any] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[TContext] | dict[str, Any] | None = None,
        takeover: bool = False,
        max_turns: int | None = AS_SAVED,
    ) -> RunResult[RunState[TContext]]:
        """Go on with a saved run, in any process: after a pause, a failure or a crash.

        What was done is not done again; a call that had begun is settled by its tool's policy. Raises NotFoundError if
        there is no such run, RunStateError if it has ended, RunClaimedError if another worker has it. `takeover`
        takes a run that is marked as running without a lease to prove that its worker is gone. `max_turns` is of the
        whole run, the turns before included; left out, it stays what it was.
        """
        options = StartOptions(context, max_turns, hooks, run_config, error_handlers, session=session)
        return await execute(starting_agent, *await _to_resume(starting_agent, run_id, run_store, options, takeover))

    @classmethod
    async def resume_streamed(
        cls,
        starting_agent: Agent[TContext],
        run_id: str,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        context: TContext | None = None,
        hooks: RunHooksBase[TContext, Any] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[TContext] | dict[str, Any] | None = None,
        takeover: bool = False,
        max_turns: int | None = AS_SAVED,
    ) -> RunResultStreaming[RunState[TContext]]:
        """`resume`, watched: load the saved run, then start it in the background as `run_streamed` does."""
        options = StartOptions(context, max_turns, hooks, run_config, error_handlers, session=session)
        return start_streamed(starting_agent, *await _to_resume(starting_agent, run_id, run_store, options, takeover))

    @classmethod
    async def result(
        cls,
        starting_agent: Agent[TContext],
        run_id: str,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        context: TContext | None = None,
    ) -> RunResult[RunState[TContext]]:
        """The result of a run that has ended, in whatever process: nothing runs, and nothing is written.

        Of a run in a session the session has the items: pass it. Raises NotFoundError if there is no such run, and
        RunStateError if it has not ended.
        """
        store = run_store_of(session, run_store)
        saved = await _load_saved_run(store, run_id)
        owner = owner_of(session if ending_of(saved) is not None else None, None, None, False)
        attempt = _attempt_without_model(starting_agent, wrapper_of(context), store, owner, session)
        await attempt.look_at(saved)
        return RunResult(attempt, partial(state_of, attempt))

    @classmethod
    def watch(
        cls,
        run_id: str,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        after: str | None = None,
        wait_s: float | None = WAIT_S,
        poll_s: float = POLL_S,
    ) -> AsyncGenerator[RunUpdate, None]:
        """What happens to a run, as it is saved, in whatever process it runs: an async iterator that ends with the run.

        Every update has a `cursor`; given as `after`, in any process, the watcher goes on behind that update. Items and
        calls are told once each, whenever a watcher came and wherever it was cut off; how the run stands is told when
        it is seen to have changed. A run of a session is watched with the session. One that is not saved yet is waited
        for (`wait_s`; None: without end), then NotFoundError is raised. The store is asked every `poll_s` seconds, and
        at once when this process saves the run; nothing is written, and no run waits for a watcher.
        """
        return watch(run_id, session, run_store, after, wait_s, poll_s)

    @classmethod
    async def recover(
        cls,
        agents: Agent[Any] | Iterable[Agent[Any]],
        *,
        store: RunStore | None = None,
        sessions: Callable[[str], Session] | None = None,
        context_of: Callable[[RunSummary], Any] | None = None,
        hooks: RunHooksBase[Any, Any] | None = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers[Any] | dict[str, Any] | None = None,
        limit: int = 100,
        concurrency: int = 4,
        timeout_s: float | None = None,
    ) -> RecoveryReport:
        """Go on, in one pass, with every saved run whose worker is gone, or that was decided and has no worker yet.

        A run goes to the one of `agents` that it was started with, by name. `sessions` opens the session of an id and
        is needed for runs that a session owns; whatever it opens is closed here. The runs are looked for in `store`, or
        beside those sessions. At most `limit` runs are taken, `concurrency` at a time, none after `timeout_s`: those
        under way then are handed over (see `hand_over`). Runs that other workers have, or that wait for a person, are
        left as they are; so are those that failed or were cancelled, which somebody was told of. Any number of
        processes may do this at once. What a run or a store raises is in the report, and nothing of it is raised.
        """
        config = coerce_run_config(run_config)
        if config.run_id is not None:
            raise UserError("recover goes on with many runs, and its run_config names one", "Leave run_id out.")
        check_hooks(hooks)
        check_error_handlers(error_handlers)

        given = named_agents(agents)

        def beside(started_with: str, summary: RunSummary) -> tuple[Agent[Any], object] | None:
            agent = given.get(started_with)
            return None if agent is None else (agent, None if context_of is None else context_of(summary))

        async def take(
            agent: Agent[Any], summary: RunSummary, session: Session | None, at: RunStore
        ) -> tuple[RunAttempt, Callable[[], Awaitable[RunResult[Any]]]]:
            context = None if context_of is None else context_of(summary)
            options = StartOptions(context, AS_SAVED, hooks, config, error_handlers, session=session, beside=beside)
            state, options, resumed = await _to_resume(agent, summary.run_id, at, options)
            attempt = start(agent, state, options, resumed=replace(resumed, at_once=True))
            return attempt, partial(execute_attempt, attempt, state)

        bounds = Bounds(limit, concurrency, timeout_s)
        return await Recovery(given, store, sessions, take, bounds).make()

    @classmethod
    async def hand_over(cls, *, within_s: float = HAND_OVER_S) -> tuple[str, ...]:
        """Leave every run of this event loop to other workers, because this process stops; their ids.

        Nothing more begins. What has begun ends, or is cut after `within_s` seconds as by a crash (then its outcome is
        said to be unknown); the run is saved as it is and its lease given back. Whoever waits for it gets
        RunHandedOverError. A run that is saved nowhere goes on until then, and is cancelled.
        """
        return await hand_over_all(within_s)

    @classmethod
    async def load(
        cls,
        starting_agent: Agent[TContext],
        run_id: str,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        context: TContext | None = None,
    ) -> RunState[TContext]:
        """A saved run as a `RunState`: to look at, to decide about, and to resume with `run`."""
        return await _load(starting_agent, run_id, run_store_of(session, run_store), context)

    @classmethod
    async def list_runs(
        cls,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        status: str | None = None,
        after: str | None = None,
        limit: int = 100,
    ) -> tuple[list[RunSummary], str | None]:
        """Saved runs, newest change first, and the cursor of the next page; with a session only its own."""
        store = run_store_of(session, run_store)
        session_id = session.session_id if session is not None and run_store is None else None
        return await store.list_runs(status=status, session_id=session_id, after=after, limit=limit)

    @classmethod
    async def cancel_run(
        cls,
        starting_agent: Agent[TContext],
        run_id: str,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        message: str = "This call was not approved: the run was cancelled.",
    ) -> list[Item]:
        """Give up a saved run: what waits is rejected, and its turn is stored whole (C8).

        Returns what a server that owns the conversation has not got then; the next run there has to bring it (D11).
        Raises NotFoundError, RunStateError if it has ended, RunClaimedError if another worker took it meanwhile.
        """
        store = run_store_of(session, run_store)
        state = await _load(starting_agent, run_id, store)
        saved = state._saved
        session = session if saved.run.spec.owner.kind == "session" else None
        owner = owner_on_resume(saved.run, owner_of(session, None, None))
        attempt = _attempt_without_model(starting_agent, state._wrapper, store, owner, session, resumed=saved)
        await attempt.abandon(saved, message)
        return unsent_items(attempt.run)

    @classmethod
    async def delete_run(
        cls, run_id: str, *, session: Session | None = None, run_store: RunStore | None = None
    ) -> bool:
        """Forget a saved run that has ended; the history in its session stays. Whether there was one.

        Raises RunStateError for one that has not ended: what it did, or waits for, would be forgotten with it (C15).
        """
        store = run_store_of(session, run_store)
        saved = await store.load_run(run_id)
        if saved is not None:
            refuse_to_delete(saved, "Runner.cancel_run(...)")
        return await store.delete_run(run_id)

    @classmethod
    async def prune_runs(
        cls,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        older_than_s: float | None = None,
        keep: int | None = None,
    ) -> int:
        """Forget ended runs by age and number; how many were forgotten."""
        return await run_store_of(session, run_store).prune_runs(older_than_s=older_than_s, keep=keep)


# --- from arguments to an attempt ------------------------------------------------------------------------------------


async def _to_resume(
    agent: Agent[Any], run_id: str, run_store: RunStore | None, options: StartOptions, takeover: bool = False
) -> tuple[RunState[Any], StartOptions, ResumedRun]:
    """A saved run, and what it is resumed with."""
    state = await _load(agent, run_id, run_store_of(options.session, run_store), options.context)
    run = state._run
    if options.max_turns is not AS_SAVED:
        check_max_turns(options.max_turns)
        run = evolve(run, spec=evolve(run.spec, max_turns=options.max_turns))
        state._saved = replace(state._saved, run=run)
    resumed = replace(state._saved, takeover=takeover, status=run.status)
    # The session may only be where the run store is: a run that a server owns is not given it.
    owned = options.session if run.spec.owner.kind == "session" else None
    return state, options._replace(session=owned, max_turns=run.spec.max_turns), resumed


async def deliver(
    agent: Agent[Any], run_id: str, given: str | list[Item] | None, options: StartOptions, run_store: RunStore | None
) -> RunResult[RunState[Any]]:
    """Start a run under its id, wherever it has got to; without input, resume the saved run of that id."""
    if given is None:
        return await execute(agent, *await _to_resume(agent, run_id, run_store, options._replace(max_turns=AS_SAVED)))
    config = replace(coerce_run_config(options.run_config), run_id=run_id)
    return await execute(agent, given, options._replace(run_config=config))


# --- saved runs ------------------------------------------------------------------------------------------------------


async def _load_saved_run(store: RunStore, run_id: str) -> SavedRun:
    saved = await store.load_run(run_id)
    if saved is None:
        raise NotFoundError(f"there is no saved run {run_id!r}", "List them with Runner.list_runs(...).")
    return saved


async def _load(agent: Agent[Any], run_id: str, store: RunStore, context: object = None) -> RunState[Any]:
    """A saved run, checked against the agents it is to go on with."""
    saved = await _load_saved_run(store, run_id)
    run = decode_saved(saved)
    check_saved(run, AgentGraph(agent))
    wrapper = wrap_context(context, usage_of(run), ApprovalBook())  # what it has cost so far, in whatever process
    return RunState._from_saved(ResumedRun(run, saved.revision, store), wrapper, agent)


def _attempt_without_model(
    agent: Agent[Any],
    wrapper: RunContextWrapper[Any],
    store: RunStore,
    owner: Owner,
    session: Session | None,
    resumed: ResumedRun | None = None,
) -> RunAttempt:
    """An attempt that reads a saved run, or gives it up."""
    config, session = RunConfig(run_store=store), session if owner.kind == "session" else None
    return RunAttempt(RunArguments(agent, "", wrapper, config, default_provider, owner, session, resumed=resumed))
