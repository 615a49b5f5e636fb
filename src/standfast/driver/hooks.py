"""Observers: hooks, and the news of another agent. They are no events; one that raises fails its effect."""

from __future__ import annotations

from functools import partial
from typing import Any

from standfast.agents.context import AgentHookContext
from standfast.agents.hooks import await_both, overridden
from standfast.driver.run_scope import Live
from standfast.engine.run import Run
from standfast.ground.jsonvalue import Item, copy_json
from standfast.words.stream_events import AgentUpdatedStreamEvent

# The agent's own hooks carry shorter names for what concerns the agent itself.
AGENT_NAMES = {"on_agent_start": "on_start", "on_agent_end": "on_end"}


def wants(live: Live, agent: Any, name: str) -> bool:
    """Whether anybody listens: what is copied for observers is copied only then."""
    return bool(overridden(live.hooks, name) or overridden(agent.hooks, AGENT_NAMES.get(name, name)))


async def hook_pair(live: Live, agent: Any, name: str, *args: Any) -> None:
    """Call the run's hook and the agent's own, together; cheap where there is none."""
    if live.hooks is None and agent.hooks is None:
        return
    first = overridden(live.hooks, name)
    second = overridden(agent.hooks, AGENT_NAMES.get(name, name))
    await await_both(first and partial(first, *args), second and partial(second, *args))


async def handoff_hooks(live: Live, source: Any, target: Any) -> None:
    """Tell the run's hooks, and those of the agent that hands over, that it does (as the SDK does, not as it says)."""
    first = overridden(live.hooks, "on_handoff")
    second = overridden(source.hooks, "on_handoff")
    await await_both(
        first and partial(first, context=live.wrapper, from_agent=source, to_agent=target),
        second and partial(second, live.wrapper, agent=target, source=source),
    )


async def announce_agent(live: Live, run: Run, agent: Any, turn_input: list[Item]) -> None:
    """Once for each tenure of an agent: show it to whoever watches, and call the start hooks."""
    key = run.progress.agent
    if live.tenure == key:
        return
    live.tenure = key
    if live.shown_agent != key:
        live.shown_agent = key
        live.show(AgentUpdatedStreamEvent(agent))
    if live.hooks is not None or agent.hooks is not None:
        # A copy: the application may change it, and history is not its to change. Only for who has asked to look.
        live.wrapper.turn_input = copy_json(turn_input)
        await hook_pair(live, agent, "on_agent_start", hook_context(live), agent)


def hook_context(live: Live) -> AgentHookContext[Any]:
    """What start and end hooks get."""
    wrapper = live.wrapper
    return AgentHookContext(
        wrapper.context, wrapper.usage, wrapper.turn_input, wrapper.tool_input, approvals=wrapper.approvals
    )
