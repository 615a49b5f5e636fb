"""Public entry points of runs: `Runner.run`, `run_sync`, `run_streamed`, and resuming by id.

Every refusal comes here, before anything is read or sent. All ways use one `RunAttempt`: `run` awaits it,
`run_streamed` drives it in the background, `run_sync` runs it on an event loop of its own thread.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import RunContextWrapper, TContext, wrapper_of
from standfast._src.agents.error_handlers import RunErrorHandlers, check_error_handlers
from standfast._src.agents.hooks import RunHooksBase, check_hooks
from standfast._src.agents.run_config import DEFAULT_MAX_TURNS, RunConfig, coerce_run_config
from standfast._src.base.errors import (
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
from standfast._src.runs.api.resume import AS_SAVED, load_saved_run, load_state, to_resume
from standfast._src.runs.api.run_state import RunState
from standfast._src.runs.api.send_message import send_message
from standfast._src.runs.engine.codec import ending_of
from standfast._src.runs.engine.run import Owner
from standfast._src.runs.engine.run_store import RunStore, RunSummary
from standfast._src.runs.loop.active_runs import HAND_OVER_S, hand_over_all
from standfast._src.runs.loop.conversation_owner import owner_of, owner_on_resume
from standfast._src.runs.loop.result import RunResult
from standfast._src.runs.loop.run_attempt import RunAttempt
from standfast._src.runs.loop.run_scope import ResumedRun, RunArguments
from standfast._src.runs.loop.streamed_result import RunResultStreaming
from standfast._src.runs.persistence.pending_items import unsent_items
from standfast._src.runs.persistence.resume_checks import refuse_to_delete
from standfast._src.runs.persistence.session_lock import run_store_of
from standfast._src.runs.recovery.recover import Bounds, Recovery, RecoveryReport
from standfast._src.runs.recovery.run_updates import RunUpdate
from standfast._src.runs.recovery.watch import POLL_S, WAIT_S, watch
from standfast._src.sessions.protocol import Session
from standfast._src.sessions.rules.messages import Receipt, WhenBusy


class Runner:
    """Runs agents: `run`, `run_sync` and `run_streamed` begin, `resume` and `recover` continue after a crash."""

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

        Raises the error that ended the run, such as a tripwire, `MaxTurnsExceeded`, or an exception of a tool or the
        model. The error carries the work done (`run_data`) and, as `run_state`, the run to resume.

        Args:
            starting_agent: The agent that gets the input. Handoffs may end the run with another one.
            input: A text, a list of Responses items, or a `RunState` to resume.
            context: An object for tools, hooks and instructions. The model never sees it.
            max_turns: The number of model replies before `MaxTurnsExceeded`; None for no limit.
            hooks: Callbacks for the events of the whole run.
            run_config: Settings such as the model, the run id and the tracing, as `RunConfig` or a dict of its fields.
            error_handlers: Functions that turn an error into a final output, by the kind of the error.
            previous_response_id: The response after which a server continues; without a session.
            auto_previous_response_id: True to chain each request to the response before it.
            conversation_id: A conversation on the server; without a session.
            session: The stored conversation: its history is read first, and every turn is stored in it.

        Returns:
            The result: `final_output`, `new_items`, `interruptions` that wait for a person, and `to_input_list()`.

        Example:
            result = await Runner.run(agent, "A table for two.", session=SQLiteSession("guest-42", "conversations.db"))
            print(result.final_output)
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
        """Run an agent from code without an event loop. Ctrl-C stops the run in order and is raised.

        Inside a running event loop (a notebook, a web handler) it is refused: use `await Runner.run(...)` there.

        Args:
            starting_agent: The agent that gets the input. Handoffs may end the run with another one.
            input: A text, a list of Responses items, or a `RunState` to resume.
            context: An object for tools, hooks and instructions. The model never sees it.
            max_turns: The number of model replies before `MaxTurnsExceeded`; None for no limit.
            hooks: Callbacks for the events of the whole run.
            run_config: Settings such as the model, the run id and the tracing, as `RunConfig` or a dict of its fields.
            error_handlers: Functions that turn an error into a final output, by the kind of the error.
            previous_response_id: The response after which a server continues; without a session.
            auto_previous_response_id: True to chain each request to the response before it.
            conversation_id: A conversation on the server; without a session.
            session: The stored conversation: its history is read first, and every turn is stored in it.

        Returns:
            The result, as `run` returns it.
        """
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

        It runs to its end with or without a watcher. Errors of the arguments are raised here, all others by the
        iteration.

        Args:
            starting_agent: The agent that gets the input. Handoffs may end the run with another one.
            input: A text, a list of Responses items, or a `RunState` to resume.
            context: An object for tools, hooks and instructions. The model never sees it.
            max_turns: The number of model replies before `MaxTurnsExceeded`; None for no limit.
            hooks: Callbacks for the events of the whole run.
            run_config: Settings such as the model, the run id and the tracing, as `RunConfig` or a dict of its fields.
            error_handlers: Functions that turn an error into a final output, by the kind of the error.
            previous_response_id: The response after which a server continues; without a session.
            auto_previous_response_id: True to chain each request to the response before it.
            conversation_id: A conversation on the server; without a session.
            session: The stored conversation: its history is read first, and every turn is stored in it.

        Returns:
            A result whose `stream_events()` yields the events of the run, and whose `final_output` is set at its end.
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

        Args:
            starting_agent: The agent that answers, if this call runs the message.
            message: A text, or a list of Responses items.
            session: The conversation.
            message_id: The name of the message, under which it may be sent again; left out, a new one.
            when_busy: `steer`: a run under way hears the message; `queue`: it waits for a run of its own.
            by: The sender, which is stored.
            context: An object for tools, hooks and instructions. The model never sees it.
            max_turns: The number of model replies before `MaxTurnsExceeded`; None for no limit.
            hooks: Callbacks for the events of the run.
            run_config: Settings of the run, without a `run_id`.
            error_handlers: Functions that turn an error into a final output.

        Returns:
            A receipt, with the state of the message and, if this call ran it, the result.
        """
        options = StartOptions(context, max_turns, hooks, run_config, error_handlers, session=session)
        return await send_message(starting_agent, message, options, message_id=message_id, when_busy=when_busy, by=by)

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
        """Resume a saved run, in any process: after a pause, a failure or a crash.

        Finished work is not repeated; a call that had begun is settled by its tool's policy. Raises NotFoundError if
        there is no such run, RunStateError if it has ended, RunClaimedError if another worker has it.

        Args:
            starting_agent: The agent that the run began with, as this process has it.
            run_id: The id of the saved run.
            session: The session of the run, if one owns it.
            run_store: The store of the run, if the session's own store does not keep it.
            context: An object for tools, hooks and instructions; without it the saved one is used.
            hooks: Callbacks for the events of the run from here on.
            run_config: Settings of this part of the run.
            error_handlers: Functions that turn an error into a final output.
            takeover: True to take a run that is marked as running, without a lease as proof that its worker crashed.
            max_turns: The limit of the whole run, earlier turns included; left out, the limit stays as it was.

        Returns:
            The result of the whole run.
        """
        options = StartOptions(context, max_turns, hooks, run_config, error_handlers, session=session)
        return await execute(starting_agent, *await to_resume(starting_agent, run_id, run_store, options, takeover))

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
        """`resume`, watched: load the saved run, then start it in the background as `run_streamed` does.

        Args:
            starting_agent: The agent that the run began with, as this process has it.
            run_id: The id of the saved run.
            session: The session of the run, if one owns it.
            run_store: The store of the run, if the session's own store does not keep it.
            context: An object for tools, hooks and instructions; without it the saved one is used.
            hooks: Callbacks for the events of the run from here on.
            run_config: Settings of this part of the run.
            error_handlers: Functions that turn an error into a final output.
            takeover: True to take a run that is marked as running, without a lease as proof that its worker crashed.
            max_turns: The limit of the whole run, earlier turns included; left out, the limit stays as it was.

        Returns:
            A result whose `stream_events()` yields the events from here on.
        """
        options = StartOptions(context, max_turns, hooks, run_config, error_handlers, session=session)
        return start_streamed(starting_agent, *await to_resume(starting_agent, run_id, run_store, options, takeover))

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
        """Return the result of an ended run of any process. Nothing runs, and nothing is written.

        The session has the items of a run in a session: pass it. Raises NotFoundError if there is no such run, and
        RunStateError if it has not ended.

        Args:
            starting_agent: The agent that the run began with, as this process has it.
            run_id: The id of the saved run.
            session: The session of the run, if one owns it.
            run_store: The store of the run, if the session's own store does not keep it.
            context: An object for tools, hooks and instructions; without it the saved one is used.
        """
        store = run_store_of(session, run_store)
        saved = await load_saved_run(store, run_id)
        owner = owner_of(session if ending_of(saved) is not None else None, None, None, False)
        attempt = _attempt_without_model(starting_agent, wrapper_of(context), store, owner, session)
        await attempt.look_at(saved)
        return RunResult._wrap(attempt, partial(state_of, attempt))

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
        """Watch a saved run of any process: return an async iterator of updates, ended by the end of the run.

        Every update has a `cursor`. Given as `after`, in any process, watching continues behind that update. Items and
        calls are reported once each, even after a disconnection; the state of the run is reported when a change is
        seen. A run of a session is watched with the session. An unsaved run is waited for (`wait_s`; None: without
        end), then NotFoundError is raised. The store is read every `poll_s` seconds, and at once when this process
        saves the run. Nothing is written, and no run waits for a watcher.

        Args:
            run_id: The id of the saved run.
            session: The session of the run, if one owns it.
            run_store: The store of the run, if the session's own store does not keep it.
            after: The cursor of the last update that was seen.
            wait_s: Seconds to wait for a run that is not saved yet; None: without end.
            poll_s: Seconds between two reads of the store.
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
        """Resume, in one pass, every saved run with a crashed worker, or with a decision and no worker yet.

        Runs that other workers have, or that wait for a person, are left as they are. So are failed and cancelled runs:
        their callers got the error. Any number of processes may do this at once. Exceptions of a run or a store are in
        the report, and none is raised.

        Args:
            agents: The starting agents of this process; a run goes to the one with its name.
            store: The store to look in; left out, the store of `sessions`.
            sessions: A function that opens the session of an id, for runs that a session owns. They are closed here.
            context_of: A function that makes the context of a run from its summary.
            hooks: Callbacks for the events of the runs.
            run_config: Settings of the runs; without a `run_id`.
            error_handlers: Functions that turn an error into a final output.
            limit: The number of runs that are taken at most.
            concurrency: The number of runs at a time.
            timeout_s: The time after which no run is taken, and those under way are handed over (see `hand_over`).

        Returns:
            A report with an outcome for each run that was found.
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
            state, options, resumed = await to_resume(agent, summary.run_id, at, options)
            attempt = start(agent, state, options, resumed=replace(resumed, at_once=True))
            return attempt, partial(execute_attempt, attempt, state)

        bounds = Bounds(limit, concurrency, timeout_s)
        return await Recovery(given, store, sessions, take, bounds).make()

    @classmethod
    async def hand_over(cls, *, within_s: float = HAND_OVER_S) -> tuple[str, ...]:
        """Hand every run of this event loop over to other workers, because this process stops. Return the ids of the
        runs.

        Nothing more begins. A begun effect ends, or is cut after `within_s` seconds as by a crash (then its outcome is
        reported as unknown). The run is saved in its present state and its lease released. A caller waiting for the run
        gets RunHandedOverError. A run without a store continues until then, and is cancelled.

        Args:
            within_s: Seconds for effects that have begun; then they are cut.

        Returns:
            The ids of the runs that were handed over.
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
        """A saved run as a `RunState`: to look at, to decide about, and to resume with `run`.

        Args:
            starting_agent: The agent that the run began with, as this process has it.
            run_id: The id of the saved run.
            session: The session of the run, if one owns it.
            run_store: The store of the run, if the session's own store does not keep it.
            context: An object for tools, hooks and instructions; without it the saved one is used.
        """
        return await load_state(starting_agent, run_id, run_store_of(session, run_store), context)

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
        """Saved runs, newest change first, and the cursor of the next page; with a session only its own.

        Args:
            session: Only runs of this session.
            run_store: The store of the run, if the session's own store does not keep it.
            status: Only runs of this status, such as `paused`.
            after: The cursor of the page before.
            limit: The number of runs on a page.
        """
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
        """Give up a saved run: waiting calls are rejected, and its turn is stored whole (C8).

        Returns the items not received by a server that owns the conversation; the next run there has to send them
        (D11). Raises NotFoundError, RunStateError if the run has ended, RunClaimedError if another worker took it
        meanwhile.

        Args:
            starting_agent: The agent that the run began with, as this process has it.
            run_id: The id of the saved run.
            session: The session of the run, if one owns it.
            run_store: The store of the run, if the session's own store does not keep it.
            message: The output of each waiting call, which the model reads.
        """
        store = run_store_of(session, run_store)
        state = await load_state(starting_agent, run_id, store)
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
        """Delete the record of an ended run; the history in its session stays. Return True if there was one.

        Raises RunStateError for a run that has not ended: its effects and open questions would be forgotten (C15).

        Args:
            run_id: The id of the saved run.
            session: The session of the run, if one owns it.
            run_store: The store of the run, if the session's own store does not keep it.
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
        """Forget ended runs by age and number; how many were forgotten.

        Args:
            session: Only runs of this session.
            run_store: The store of the run, if the session's own store does not keep it.
            older_than_s: Only runs without a change for so many seconds.
            keep: The number of newest ended runs that stay.
        """
        return await run_store_of(session, run_store).prune_runs(older_than_s=older_than_s, keep=keep)


# --- from arguments to an attempt ------------------------------------------------------------------------------------


def _attempt_without_model(
    agent: Agent[Any],
    wrapper: RunContextWrapper[Any],
    store: RunStore,
    owner: Owner,
    session: Session | None,
    resumed: ResumedRun | None = None,
) -> RunAttempt:
    """Return an attempt for reading or giving up a saved run."""
    config, session = RunConfig(run_store=store), session if owner.kind == "session" else None
    return RunAttempt(RunArguments(agent, "", wrapper, config, default_provider, owner, session, resumed=resumed))
