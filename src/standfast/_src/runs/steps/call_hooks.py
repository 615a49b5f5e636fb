"""Observers of a run: hooks, and the announcement of agents. They are not events; an error fails the
observed effect.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import AgentHookContext
from standfast._src.agents.hooks import await_both, overridden
from standfast._src.base.json_values import Item, copy_json
from standfast._src.items.stream_events import AgentUpdatedStreamEvent
from standfast._src.runs.engine.run import Run
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.loop.run_scope import RunScope

# The agent's own hooks carry shorter names for what concerns the agent itself.
AGENT_NAMES = {"on_agent_start": "on_start", "on_agent_end": "on_end"}


def wants(scope: RunScope, agent: Agent[Any], name: str) -> bool:
    """Return whether a hook is set: data are copied for observers only then."""
    if scope.hooks is None and agent.hooks is None:
        return False
    return bool(overridden(scope.hooks, name) or overridden(agent.hooks, AGENT_NAMES.get(name, name)))


async def hook_pair(scope: RunScope, agent: Agent[Any], name: str, *args: Any) -> None:
    """Call the run's hook and the agent's own, together; cheap without hooks."""
    if scope.hooks is None and agent.hooks is None:
        return
    first = overridden(scope.hooks, name)
    second = overridden(agent.hooks, AGENT_NAMES.get(name, name))
    calls = first and partial(first, *args), second and partial(second, *args)
    with scope.enter_user_code():
        await await_both(*(calls[::-1] if name == "on_llm_end" else calls))  # the SDK calls the agent's hook first here


async def observers(loop: Loop, scope: RunScope, agent: Agent[Any], name: str, *args: Any) -> None:
    """Call `hook_pair` for hooks that observe a reply in hand: after an error, the run keeps the reply to continue
    from.
    """
    try:
        await hook_pair(scope, agent, name, *args)
    except Exception as error:
        loop.failed_observer = error
        raise


async def handoff_hooks(scope: RunScope, source: Agent[Any], target: Agent[Any]) -> None:
    """Call the handoff hooks of the run and of the agent that hands over (as the SDK does, not as its docs say)."""
    first = overridden(scope.hooks, "on_handoff")
    second = overridden(source.hooks, "on_handoff")
    await await_both(
        first and partial(first, context=scope.wrapper, from_agent=source, to_agent=target),
        second and partial(second, scope.wrapper, agent=target, source=source),
    )


async def announce_agent(scope: RunScope, run: Run, agent: Agent[Any], turn_input: list[Item]) -> None:
    """Announce an agent once each time it gets the conversation: to the watchers, and to the start hooks."""
    key = run.progress.agent
    if scope.announced_agent == key:
        return
    scope.announced_agent = key
    if scope.shown_agent != key:
        scope.shown_agent = key
        scope.show(AgentUpdatedStreamEvent(agent))
    if scope.hooks is not None or agent.hooks is not None:
        # A copy: the application may change it, and history is not its to change. Only for who has asked to look.
        scope.wrapper.turn_input = copy_json(turn_input)
        await hook_pair(scope, agent, "on_agent_start", hook_context(scope), agent)


def hook_context(scope: RunScope) -> AgentHookContext[Any]:
    """Return the context for start and end hooks."""
    wrapper = scope.wrapper
    return AgentHookContext(
        wrapper.context, wrapper.usage, wrapper.turn_input, wrapper.tool_input, approvals=wrapper.approvals
    )
