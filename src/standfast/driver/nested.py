"""An agent as a tool: a run inside a call. Its state is part of its parent's, so that it survives with it.

The nested run shares the parent's application context and usage and decides about approvals of its own. When it has
to wait for a person its call waits, and is entered again later with the run where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from standfast.agents.as_tool import AgentToolRun, relay_events
from standfast.agents.context import ChildPaused
from standfast.driver.early_refusals import owner_of_tool
from standfast.driver.event_buffer import Watch
from standfast.driver.loop import Driver
from standfast.driver.result import AgentToolInvocation, RunResult, RunResultStreaming
from standfast.driver.run_scope import Live
from standfast.engine.events import ChildMoved
from standfast.engine.run import Call, Run, Turn


class ParentFailed(BaseException):
    """The outer run could not be saved while a nested one went on.

    Not an Exception, like `ChildPaused`: no failure of the tool, about which a model could be told something.
    """

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def child_runner(driver: Driver, live: Live, turn: Turn, call: Call) -> Callable[[AgentToolRun], Awaitable[Any]]:
    """What a call's context gets to run an agent with."""

    async def run_agent(request: AgentToolRun) -> Any:
        tool = request.tool
        watch = Watch() if tool.on_stream is not None else None
        config = replace(tool.run_config or live.config, run_id=None)

        async def tell(child: Run) -> None:
            try:
                await driver.tell(ChildMoved(call.id, child))
            except Exception as error:
                raise ParentFailed(error) from error

        async def moved(child: Run) -> None:
            # An ended child too, while its last turn is not stored: what its session gets, its parent knows first.
            if driver.saver is not None and (not child.finished or child.marks.stored < child.storable):
                await tell(child)

        execution = live.spawn(
            agent=tool.agent,
            given_input=request.input,
            wrapper=request.context.for_child(request.tool_input, run_config=config),
            config=config,
            hooks=tool.hooks,
            max_turns=tool.max_turns,
            owner=owner_of_tool(tool),
            session=tool.session,
            watch=watch,
            invocation=AgentToolInvocation(call.name, call.id, call.arguments),
            resumed=call.child,
            run_id=f"{driver.run.spec.run_id}/{call.id}",
            moved=moved,
        )
        result: Any
        if watch is None:
            await execution.go()
            result = RunResult(execution.driver, execution.live, tool.max_turns)
        else:
            result = RunResultStreaming(execution.driver, execution.live, tool.max_turns, watch)
            await _watched(result, execution, request)
        if execution.run.paused:
            live.children[call.id] = execution.live
            await tell(execution.run)
            raise ChildPaused(execution.run)
        live.cache["child responses", call.id] = [replace(one, hidden=True) for one in execution.run.responses]
        return result

    return run_agent


async def _watched(result: RunResultStreaming, execution: Any, request: AgentToolRun) -> None:
    task = asyncio.ensure_future(result._drain(execution.go))
    result._go_on_in(task)
    assert request.tool.on_stream is not None
    try:
        await relay_events(
            result.stream_events(),
            request.tool.on_stream,
            agent=request.tool.agent,
            tool_call=request.context.tool_call,
            max_pending=request.tool.on_stream_max_pending_events,
        )
    finally:
        if not task.done():
            result.cancel()
            await asyncio.wait([task])
