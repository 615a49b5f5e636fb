"""The face of runs: `Runner.run`, `run_sync`, `run_streamed`, and resuming by id.

Everything that can be refused is refused here, before anything is read or sent. What follows is one `Execution`,
however it is watched: `run` awaits it, `run_streamed` lets it go on in the background, `run_sync` runs it on a loop
of its own thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sys
from functools import partial
from typing import Any

from standfast._doors.lazy import edge
from standfast.agents.approvals import ApprovalBook
from standfast.agents.context import RunContextWrapper
from standfast.agents.error_handlers import RunErrorHandlers, check_error_handlers
from standfast.agents.hooks import RunHooksBase
from standfast.agents.run_config import DEFAULT_MAX_TURNS, RunConfig, coerce_run_config
from standfast.driver.agent_graph import AgentGraph
from standfast.driver.early_refusals import refuse_early
from standfast.driver.event_buffer import Watch
from standfast.driver.result import RunResult, RunResultStreaming
from standfast.driver.run_attempt import Execution
from standfast.driver.run_scope import usage_of
from standfast.driver.saved_checks import check_saved
from standfast.driver.thread_loop import run_on_thread_loop
from standfast.driver.unsent import owed
from standfast.engine.codec import decode_saved
from standfast.engine.run import Owner
from standfast.engine.run_store import RunStore, RunSummary
from standfast.face.run_state import RunState, owner_of, with_context
from standfast.face.saved_context import around
from standfast.ground.errors import (
    NotFoundError,
    OwnerError,
    RunClaimedError,
    SettingTypeError,
    UserError,
)
from standfast.ground.jsonvalue import Item
from standfast.sessions.protocol import Session, abilities


class Runner:
    """Runs agents."""

    @classmethod
    async def run(
        cls,
        starting_agent: Any,
        input: str | list[Item] | RunState,
        *,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: Any = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers | dict[str, Any] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResult:
        """Run an agent until it has a final output, waits for a person, or fails.

        Raises what ended it: a tripwire, `MaxTurnsExceeded`, what a tool or the model raised. The error carries what
        was done (`run_data`) and, as `run_state`, the run to go on with.
        """
        execution, state = _prepare(
            starting_agent,
            input,
            context=context,
            max_turns=max_turns,
            hooks=hooks,
            run_config=run_config,
            error_handlers=error_handlers,
            previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id,
            conversation_id=conversation_id,
            session=session,
        )
        await _go(execution, state)
        return RunResult(execution.driver, execution.live, execution.max_turns, partial(_state_of, execution))

    @classmethod
    def run_sync(
        cls,
        starting_agent: Any,
        input: str | list[Item] | RunState,
        *,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: Any = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers | dict[str, Any] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
    ) -> RunResult:
        """`run`, for code without an event loop. Ctrl-C stops the run in order and is raised."""
        if asyncio._get_running_loop() is not None:
            raise UserLoopError(
                "run_sync was called where an event loop is running", "Use `await Runner.run(...)` there."
            )
        return run_on_thread_loop(
            cls.run(
                starting_agent,
                input,
                context=context,
                max_turns=max_turns,
                hooks=hooks,
                run_config=run_config,
                error_handlers=error_handlers,
                previous_response_id=previous_response_id,
                auto_previous_response_id=auto_previous_response_id,
                conversation_id=conversation_id,
                session=session,
            )
        )

    @classmethod
    def run_streamed(
        cls,
        starting_agent: Any,
        input: str | list[Item] | RunState,
        context: Any = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        hooks: Any = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        previous_response_id: str | None = None,
        auto_previous_response_id: bool = False,
        conversation_id: str | None = None,
        session: Session | None = None,
        *,
        error_handlers: RunErrorHandlers | dict[str, Any] | None = None,
    ) -> RunResultStreaming:
        """Start a run in the background and return at once; iterate `stream_events()` to watch it.

        It runs to its end whether or not anybody watches. Errors of the arguments are raised here, all others by the
        iteration.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UserLoopError(
                "run_streamed needs a running event loop", "Call it inside an async function."
            ) from None
        watch = Watch()
        execution, state = _prepare(
            starting_agent,
            input,
            context=context,
            max_turns=max_turns,
            hooks=hooks,
            run_config=run_config,
            error_handlers=error_handlers,
            previous_response_id=previous_response_id,
            auto_previous_response_id=auto_previous_response_id,
            conversation_id=conversation_id,
            session=session,
            watch=watch,
        )
        state_of = partial(_state_of, execution)
        result = RunResultStreaming(execution.driver, execution.live, execution.max_turns, watch, state_of)
        result._go_on_in(asyncio.get_running_loop().create_task(result._drain(partial(_go, execution, state))))
        return result

    # --- saved runs --------------------------------------------------------------------------------------------------

    @classmethod
    async def resume(
        cls,
        starting_agent: Any,
        run_id: str,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        context: Any = None,
        hooks: Any = None,
        run_config: RunConfig | dict[str, Any] | None = None,
        error_handlers: RunErrorHandlers | dict[str, Any] | None = None,
        takeover: bool = False,
    ) -> RunResult:
        """Go on with a saved run, in any process: after a pause, a failure or a crash.

        What was done is not done again; a call that had begun is settled by its tool's policy. Raises NotFoundError if
        there is no such run, RunStateError if it has ended, RunClaimedError if another worker has it. `takeover`
        takes a run that is marked as running without a lease to prove that its worker is gone.
        """
        state = await cls.load(starting_agent, run_id, session=session, run_store=run_store, context=context)
        config = coerce_run_config(run_config)
        state._takeover = takeover
        owned = session if state._run.spec.owner.kind == "session" else None
        return await cls.run(
            starting_agent, state, hooks=hooks, run_config=config, error_handlers=error_handlers, session=owned
        )

    @classmethod
    async def load(
        cls,
        starting_agent: Any,
        run_id: str,
        *,
        session: Session | None = None,
        run_store: RunStore | None = None,
        context: Any = None,
    ) -> RunState:
        """A saved run as a `RunState`: to look at, to decide about, and to resume with `run`."""
        store = _store_of(session, run_store)
        saved = await store.load_run(run_id)
        if saved is None:
            raise NotFoundError(f"there is no saved run {run_id!r}", "List them with Runner.list_runs(...).")
        run = decode_saved(saved)
        check_saved(run, AgentGraph(starting_agent))
        wrapper = around(context, usage_of(run), ApprovalBook())  # what it has cost so far, in whatever process
        return RunState._of(run, wrapper, starting_agent, None, saved.revision, store)

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
        store = _store_of(session, run_store)
        session_id = session.session_id if session is not None and run_store is None else None
        return await store.list_runs(status=status, session_id=session_id, after=after, limit=limit)

    @classmethod
    async def cancel_run(
        cls,
        starting_agent: Any,
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
        store = _store_of(session, run_store)
        state = await cls.load(starting_agent, run_id, session=session, run_store=run_store)
        owner = state._run.spec.owner
        execution = Execution(
            agent=starting_agent,
            given_input="",
            wrapper=state._wrapper,
            config=RunConfig(run_store=store),
            provider=_default_provider,
            owner=owner,
            session=session if owner.kind == "session" else None,
            revision=state._revision,
        )
        await execution.settle_abandoned(state._run, message)
        return owed(execution.run)

    @classmethod
    async def delete_run(
        cls, run_id: str, *, session: Session | None = None, run_store: RunStore | None = None
    ) -> bool:
        """Forget a saved run; the history in its session stays."""
        return await _store_of(session, run_store).delete_run(run_id)

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
        return await _store_of(session, run_store).prune_runs(older_than_s=older_than_s, keep=keep)


class UserLoopError(UserError, RuntimeError):
    """A synchronous call inside an event loop, or the other way round."""


# --- from arguments to an execution ----------------------------------------------------------------------------------


def _prepare(
    agent: Any,
    given: str | list[Item] | RunState,
    *,
    context: Any,
    max_turns: int | None,
    hooks: Any,
    run_config: Any,
    error_handlers: Any,
    previous_response_id: str | None,
    auto_previous_response_id: bool,
    conversation_id: str | None,
    session: Any,
    watch: Watch | None = None,
) -> tuple[Execution, RunState | None]:
    if not hasattr(agent, "handoffs") or not hasattr(agent, "instructions"):
        raise SettingTypeError(f"a {type(agent).__name__} is not an agent", "Pass an Agent as the first argument.")
    if hooks is not None and not isinstance(hooks, RunHooksBase):
        raise SettingTypeError(f"hooks is a {type(hooks).__name__}", "Pass RunHooks here; AgentHooks go on an Agent.")
    if max_turns is not None and type(max_turns) is not int:  # a saved run could not be read again
        raise SettingTypeError(
            f"max_turns is a {type(max_turns).__name__}", "Give a whole number, or None for no limit."
        )
    config = coerce_run_config(run_config)
    check_error_handlers(error_handlers)
    owner = owner_of(session, conversation_id, previous_response_id, auto_previous_response_id)
    state = given if isinstance(given, RunState) else None
    if state is not None:
        owner = _owner_on_resume(state, owner, session, conversation_id, previous_response_id)
        if not state._busy:
            state._take_decisions()
        wrapper = with_context(state._wrapper, context)
        max_turns = state._run.spec.max_turns
    else:
        wrapper = context if isinstance(context, RunContextWrapper) else RunContextWrapper(context)
    execution = Execution(
        agent=agent,
        given_input="" if state is not None else given,  # type: ignore[arg-type]  # not a state in that branch
        wrapper=wrapper,
        config=config,
        provider=partial(_provider_of, config),
        hooks=hooks,
        max_turns=max_turns,
        error_handlers=error_handlers,
        owner=owner,
        session=session,
        watch=watch,
        resumed=state._run if state is not None else None,
        revision=state._revision if state is not None else 0,
        store=state._store if state is not None else None,
        takeover=state._takeover if state is not None else False,
        tracer=_tracer(config),
    )
    refuse_early(execution.live.graph, owner, config)
    return execution, state


def _owner_on_resume(
    state: RunState, given: Owner, session: Any, conversation_id: str | None, previous_response_id: str | None
) -> Owner:
    owner = state._run.spec.owner
    if given.kind == "replay" and owner.kind != "session":
        return owner
    same = given.kind == owner.kind
    if same and owner.kind == "conversation":
        same = conversation_id == owner.id
    if same and owner.kind == "chain":
        same = previous_response_id in (None, owner.id, state._run.marks.response_id)
    if same and owner.kind == "session":
        same = owner.id is None or given.id == owner.id
    if not same:
        raise OwnerError(
            f"run {state.run_id!r} is owned by {_said(owner)} and would be resumed under {_said(given)}",
            "Resume it under its own owner, or start a new run to move the conversation.",
        )
    return owner


def _said(owner: Owner) -> str:
    names = {
        "replay": "the application",
        "session": "session",
        "conversation": "conversation",
        "chain": "response chain",
    }
    return names[owner.kind] if owner.id is None else f"{names[owner.kind]} {owner.id!r}"


async def _go(execution: Execution, state: RunState | None) -> None:
    if state is not None:
        if state._busy:
            raise RunClaimedError(
                f"run {state.run_id!r} is being resumed already", "Wait for it; a saved run is consumed once."
            )
        state._busy = True
    try:
        await execution.go()
    except BaseException as error:
        if execution.started or state is not None:
            # Before a run is opened there is nothing to go on with but what the caller has: a state made of its input
            # alone would take the place of whatever is saved under its name.
            carried = _state_of(execution, None) if execution.started else state
            with contextlib.suppress(AttributeError):
                error.run_state = carried  # type: ignore[attr-defined]  # any error may carry it
        raise
    finally:
        if state is not None:
            state._busy = False
            if execution.started:
                state._run = execution.run  # the same object, resumed again, goes on from here
                state._revision = _revision(execution)
                state._live = execution.live


def _state_of(execution: Execution, _result: Any) -> RunState:
    wrapper = execution.live.wrapper
    copy = RunContextWrapper(
        wrapper.context, wrapper.usage.copy(), approvals=type(wrapper.approvals).of(wrapper.approvals.decisions())
    )
    start = execution.live.graph.start
    return RunState._of(execution.run, copy, start, execution.live, _revision(execution), execution.run_store())


def _revision(execution: Execution) -> int:
    if not execution.started:  # it holds what it was given, whatever it has found in a store meanwhile
        return execution.given_revision
    saver: Any = execution.driver.saver
    return saver.revision if saver is not None else execution.revision


# --- what is looked up late ------------------------------------------------------------------------------------------


def _provider_of(config: RunConfig) -> Any:
    return config.model_provider if config.model_provider is not None else _default_provider()


def _default_provider() -> Any:
    global _provider
    if _provider is None:
        _provider = importlib.import_module(__package__).MultiProvider()
    return _provider


_provider: Any = None


def _tracer(config: RunConfig) -> Any:
    """Whoever traces runs; None where the program has set up no tracing, and then OpenTelemetry is not even loaded."""
    if config.tracing_disabled or (config.tracing is None and "opentelemetry.trace" not in sys.modules):
        return None
    return edge("telemetry.otel").tracer_for(config)


def _store_of(session: Any, run_store: RunStore | None) -> RunStore:
    if run_store is not None:
        return run_store
    if session is not None and "runs" in abilities(session):
        store: RunStore = session.run_store()
        return store
    raise UserError("there is no run store to look in", "Pass session= (a session of standfast's) or run_store=.")
