"""The runner behind `Runner`: what carries out a run, and may be replaced for the whole process.

Packages that carry runs elsewhere (a workflow engine), or that look at every run, subclass `AgentRunner` and install an
object of theirs with `set_default_agent_runner`. Runs inside a run (agents as tools) belong to the outer one.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import ApprovalBook
from standfast._src.agents.context import RunContextWrapper, TContext
from standfast._src.agents.hooks import check_hooks
from standfast._src.agents.run_options import RunOptions
from standfast._src.base.errors import RunClaimedError, SettingTypeError, UserError
from standfast._src.base.json_values import Item
from standfast._src.runs.api.arguments import StartOptions, check_agent, check_key, start
from standfast._src.runs.api.run_state import RunState
from standfast._src.runs.loop.event_queue import EventQueue
from standfast._src.runs.loop.result import RunResult
from standfast._src.runs.loop.run_attempt import RunAttempt
from standfast._src.runs.loop.run_scope import ResumedRun
from standfast._src.runs.loop.streamed_result import RunResultStreaming
from standfast._src.runs.loop.thread_loop import run_on_thread_loop


class UserLoopError(UserError, RuntimeError):
    """A synchronous call inside an event loop, or the other way round."""


class AgentRunner:
    """Carries out runs: `Runner.run`, `run_sync` and `run_streamed` call the methods of these names."""

    async def run(
        self,
        starting_agent: Agent[TContext],
        input: str | list[Item] | RunState[TContext],
        **kwargs: Unpack[RunOptions[TContext]],
    ) -> RunResult[RunState[TContext]]:
        """Carry out `Runner.run`."""
        return await execute(starting_agent, input, options_of(kwargs))

    def run_sync(
        self,
        starting_agent: Agent[TContext],
        input: str | list[Item] | RunState[TContext],
        **kwargs: Unpack[RunOptions[TContext]],
    ) -> RunResult[RunState[TContext]]:
        """Carry out `Runner.run_sync`."""
        if asyncio._get_running_loop() is not None:
            raise UserLoopError(
                "run_sync was called where an event loop is running", "Use `await Runner.run(...)` there."
            )
        check_agent(starting_agent)
        check_key(starting_agent, input, kwargs.get("run_config"))
        return run_on_thread_loop(execute(starting_agent, input, options_of(kwargs)))

    def run_streamed(
        self,
        starting_agent: Agent[TContext],
        input: str | list[Item] | RunState[TContext],
        **kwargs: Unpack[RunOptions[TContext]],
    ) -> RunResultStreaming[RunState[TContext]]:
        """Carry out `Runner.run_streamed`."""
        check_hooks(kwargs.get("hooks"))
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise UserLoopError(
                "run_streamed needs a running event loop", "Call it inside an async function."
            ) from None
        return start_streamed(starting_agent, input, options_of(kwargs))


_default = AgentRunner()


def get_default_agent_runner() -> AgentRunner:
    """Return the runner that `Runner` calls."""
    return _default


def set_default_agent_runner(runner: AgentRunner | None) -> None:
    """Make `Runner` call this runner, in the whole process; None installs a plain `AgentRunner`."""
    global _default
    missing = [name for name in ("run", "run_sync", "run_streamed") if not callable(getattr(runner, name, None))]
    if runner is not None and missing:
        raise SettingTypeError(
            f"a {type(runner).__name__} is not an agent runner: it has no {missing[0]}",
            "Give a subclass of AgentRunner.",
        )
    _default = AgentRunner() if runner is None else runner


# --- carrying out ----------------------------------------------------------------------------------------------------


def options_of(given: Any) -> StartOptions:
    """Return the options of a run from keyword arguments, with the defaults of `Runner.run`."""
    try:
        return StartOptions(**given)
    except TypeError as error:
        raise TypeError(str(error).replace("StartOptions.__new__()", "AgentRunner.run()")) from None


def start_streamed(
    agent: Agent[Any], given: str | list[Item] | RunState[Any], options: StartOptions, resumed: ResumedRun | None = None
) -> RunResultStreaming[RunState[Any]]:
    """Start an attempt in the background and return its result."""
    events = EventQueue()
    attempt = start(agent, given, options, events=events, resumed=resumed)
    result = RunResultStreaming._wrap_stream(attempt, events, partial(state_of, attempt))
    result._start(partial(execute_attempt, attempt, given))
    return result


async def execute(
    agent: Agent[Any], given: str | list[Item] | RunState[Any], options: StartOptions, resumed: ResumedRun | None = None
) -> RunResult[RunState[Any]]:
    """Carry out an attempt and return its result."""
    return await execute_attempt(start(agent, given, options, resumed=resumed), given)


async def execute_attempt(attempt: RunAttempt, given: str | list[Item] | RunState[Any]) -> RunResult[RunState[Any]]:
    """Carry out a prepared attempt; an error carries the run to resume."""
    state = given if isinstance(given, RunState) else None
    if state is not None:
        if state._is_busy:
            raise RunClaimedError(
                f"run {state.run_id!r} is being resumed already", "Wait for it; a saved run is consumed once."
            )
        state._is_busy = True
    try:
        await attempt.execute()
    except BaseException as error:
        if attempt.is_open or state is not None:
            # Before a run is opened there is nothing to go on with but what the caller has: a state made of its input
            # alone would take the place of whatever is saved under its name.
            carried = state_of(attempt) if attempt.is_open else state
            with contextlib.suppress(AttributeError):
                error.run_state = carried  # type: ignore[attr-defined]  # any error may carry it
        raise
    finally:
        if state is not None:
            state._is_busy = False
            if attempt.is_open:  # the same object, resumed again, goes on from here
                run, revision, scope = attempt.run, attempt.revision, attempt.scope
                state._saved = replace(state._saved, run=run, revision=revision, scope=scope)
    return RunResult._wrap(attempt, partial(state_of, attempt))


def state_of(attempt: RunAttempt) -> RunState[Any]:
    """Return a state of an attempt as it is now, with a context of its own."""
    wrapper, scope = attempt.scope.wrapper, attempt.scope
    book = ApprovalBook.from_decisions(wrapper.approvals.decisions())
    copy = RunContextWrapper(wrapper.context, wrapper.usage.copy(), approvals=book)
    return RunState._from_saved(
        ResumedRun(attempt.run, attempt.revision, scope.store, scope=scope), copy, scope.graph.start
    )
