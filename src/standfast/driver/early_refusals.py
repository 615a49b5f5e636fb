"""What cannot work with a server that owns the conversation, found before anything is read, sent or paid for (D6).

A server keeps what it was sent: nothing can be filtered out of it at a handoff, no output can be taken back, and a
chain cannot go on from a response that was not stored. All of it is known from the agents that handoffs can reach, and
from those that run as tools under a server of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from standfast.agents.agent import Agent
from standfast.agents.handoffs import Handoff
from standfast.agents.run_config import RunConfig
from standfast.driver.agent_graph import AgentGraph
from standfast.driver.owners import owner_of_tool
from standfast.engine.run import Owner
from standfast.ground.errors import UserError

logger = logging.getLogger("standfast")

_KEEP = "let the application or a session own the conversation"


def refuse_early(graph: AgentGraph, owner: Owner, config: RunConfig) -> None:
    """Raise UserError for what this run, or a run of one of its agent tools, would be refused for later."""
    if owner.is_server:
        _refuse(graph.start, owner, config)
    # Most runs end here, before the graph is walked: no other agent can be reached.
    if not graph.start.handoffs and all(getattr(tool, "agent_tool", None) is None for tool in graph.start.tools):
        return
    for agent in graph.agents():
        for tool in agent.tools:
            described = getattr(tool, "agent_tool", None)
            if described is not None and (inner := owner_of_tool(described)).is_server:
                _refuse(described.agent, inner, described.run_config or config)


def _refuse(start: Agent[Any], owner: Owner, config: RunConfig) -> None:
    if config.handoff_input_filter is not None:
        raise UserError(
            "RunConfig.handoff_input_filter cannot change a conversation that a server owns", f"Remove it, or {_KEEP}."
        )
    if config.nest_handoff_history:
        logger.warning("nest_handoff_history is switched off: a server owns the conversation")
    if config.output_guardrails:
        raise _output_guardrail("RunConfig has")
    for agent in _handed_to(start):
        for target in agent.handoffs:
            if isinstance(target, Handoff) and target.input_filter is not None:
                raise UserError(
                    f"handoff {target.tool_name!r} has an input filter, and a server owns the conversation",
                    f"Remove the filter, or {_KEEP}.",
                )
        if agent.output_guardrails:
            raise _output_guardrail(f"agent {agent.name!r} has")
        if owner.kind == "chain" and agent.model_settings.resolve(config.model_settings).store is False:
            raise UserError(
                f"agent {agent.name!r} has store=False, and the conversation is a chain of stored responses",
                f"Remove store=False, or {_KEEP}: then nothing needs to be stored on the server.",
            )


def _output_guardrail(who: str) -> UserError:
    return UserError(
        f"{who} an output guardrail, which cannot take back what a server has already stored in its conversation",
        f"Remove the output guardrails, or {_KEEP}.",
    )


def _handed_to(start: Agent[Any]) -> Iterator[Agent[Any]]:
    """The agents that the conversation itself can come to: by handoffs only, a tool's run is one of its own."""
    queue = [start]
    for agent in queue:
        yield agent
        for target in agent.handoffs:
            after: Any = target if hasattr(target, "handoffs") else getattr(target, "agent", None)
            if after is not None and all(after is not known for known in queue):
                queue.append(after)
