"""An agent as a tool: a run inside a call. Its state is part of its parent's, so that it survives with it.

The nested run shares the parent's application context and usage and decides about approvals of its own. When it has
to wait for a person its call waits, and is entered again later with the run where it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

from standfast.agents.as_tool import AgentToolRun, relay_events
from standfast.agents.context import ChildPaused
from standfast.driver.event_buffer import EventBuffer
from standfast.driver.loop import Loop
from standfast.driver.owners import owner_of_tool
from standfast.driver.result import RunResult, RunResultBase, RunResultStreaming
from standfast.driver.run_scope import AgentToolInvocation, ResumedRun, RunArguments, RunScope, StartedRun
from standfast.engine.run import Call, Run
from standfast.tools.desk import OwnerFailed


def child_runner(
    children: set[Loop],
    scope: RunScope,
    call: Call,
    *,
    run_id: str,
    record: Callable[[Run], Awaitable[None]],
    is_saved: bool,
) -> Callable[[AgentToolRun], Awaitable[RunResultBase]]:
    """What a call's context gets to run an agent with. `record` notes in its owner where the nested run stands.

    `children` holds the loops of nested runs while they go on, for an owner that must close them when it is cut short.
    """

    async def tell_owner(child: Run) -> None:
        try:
            await record(child)
        except Exception as error:
            raise OwnerFailed(error) from error  # no failure of the tool: whoever invoked it turns it back

    async def moved(child: Run) -> None:
        # An ended child too, while its last turn is not stored: what its session gets, its parent knows first.
        if is_saved and (not child.finished or child.marks.stored < child.storable):
            await tell_owner(child)

    async def run_agent(request: AgentToolRun) -> RunResultBase:
        tool = request.tool
        events = EventBuffer() if tool.on_stream is not None else None
        config = replace(tool.run_config or scope.config, run_id=None)
        assert scope.spawn is not None  # only a scope that is read with has none, and that one runs nothing
        outer = scope.arguments
        child = scope.spawn(
            RunArguments(
                agent=tool.agent,
                given_input=request.input,
                wrapper=request.context.for_child(request.tool_input, run_config=config),
                config=config,
                provider=outer.provider,
                owner=owner_of_tool(tool),
                session=tool.session,
                hooks=tool.hooks,
                max_turns=tool.max_turns,
                events=events,
                # It may be told to keep quiet, or to keep out what was said.
                tracer=scope.tracer.under(config) if scope.tracer is not None else None,
                resumed=ResumedRun(call.child) if call.child is not None else None,
                run_id=run_id,
                outer=scope.session,
                invocation=AgentToolInvocation(call.name, call.id, call.arguments),
                moved=moved,
            )
        )
        children.add(child.loop)
        try:
            result = await _result_of(child, events, request)
        finally:
            children.discard(child.loop)
        if child.run.paused:
            scope.children[call.id] = child.scope
            await tell_owner(child.run)
            raise ChildPaused(child.run)
        scope.child_responses[call.id] = [replace(one, hidden=True) for one in child.run.responses]
        return result

    return run_agent


async def _result_of(child: StartedRun, events: EventBuffer | None, request: AgentToolRun) -> RunResultBase:
    """Run it to rest; where the tool has an `on_stream`, that is given the events meanwhile."""
    if events is None:
        await child.go()
        return RunResult(child)
    result = RunResultStreaming(child, events)
    task = result._start(child.go)
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
    return result
