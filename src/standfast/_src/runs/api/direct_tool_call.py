"""Execution of an agent whose tool a program calls itself, outside any run: `await tool.on_invoke_tool(context,
arguments)`.

Loaded together with `Agent` (`LOADED_WITH` in the table of public names), it sets itself as what `_src.agents.as_tool`
calls
then: that layer does not know how an agent is run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.agents.as_tool import AgentToolRun, set_run_by_hand

if TYPE_CHECKING:
    from standfast._src.runs.loop.result import RunResultBase


async def run_by_hand(request: AgentToolRun) -> RunResultBase:
    """Run the agent of a tool to its end, with the application object and usage of the call's context.

    Raises UserError if the run has to wait for a person: there is no outer run to wait with it.
    """
    # Imported here, because this file is loaded by every program that has an agent, and few call its tools themselves.
    from standfast._src.runs.api.arguments import StartOptions, start
    from standfast._src.runs.loop.event_queue import EventQueue
    from standfast._src.runs.steps.nested_run import refuse_to_wait, result_of

    tool = request.tool
    config = tool.run_config or request.context.run_config
    options = StartOptions(
        context=request.context.for_child(request.tool_input, run_config=config),
        max_turns=tool.max_turns,
        hooks=tool.hooks,
        run_config=config,
        previous_response_id=tool.previous_response_id,
        conversation_id=tool.conversation_id,
        session=tool.session,
    )
    events = EventQueue() if tool.on_stream is not None else None
    attempt = start(tool.agent, request.input, options, events=events)
    result = await result_of(attempt, request)
    refuse_to_wait(attempt.run, tool)
    return result


set_run_by_hand(run_by_hand)
