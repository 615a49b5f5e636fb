"""Owner of a run's conversation: exactly one, chosen once, for the run and every resume of it (D1).

Combinations that cannot work with a server as owner are refused before anything is read, sent or paid for (D6). A
server keeps all received items: nothing can be filtered out at a handoff, no output can be taken back, and a chain
cannot continue from a response that was not stored. The check reads the agents reachable by handoffs, and the agents
run as tools under a server of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.as_tool import AgentTool
from standfast._src.agents.handoffs import Handoff
from standfast._src.agents.run_config import RunConfig
from standfast._src.base.errors import OwnerError, UserError
from standfast._src.base.identifiers import is_name
from standfast._src.base.logs import logger
from standfast._src.runs.engine.run import Owner, Run
from standfast._src.runs.loop.agent_graph import AgentGraph
from standfast._src.runs.persistence.session_lock import session_id_of
from standfast._src.sessions.protocol import Session

_KEEP = "let the application or a session own the conversation"


def owner_of(
    session: Session | None, conversation_id: str | None, previous_response_id: str | None, auto: bool = False
) -> Owner:
    """Return the owner of the conversation for these arguments; refuse two (D1)."""
    if session is None and conversation_id is None and previous_response_id is None and not auto:
        return Owner()
    has_chain = previous_response_id is not None or auto
    chain = "auto_previous_response_id" if previous_response_id is None else "previous_response_id"
    given = {"session": session is not None, "conversation_id": conversation_id is not None, chain: has_chain}
    named = [name for name, is_given in given.items() if is_given]
    if len(named) > 1:
        raise OwnerError(
            f"the conversation would have two owners: {' and '.join(named)}",
            "Keep one: a session stores the history here; the other two leave it to the server.",
        )
    for name, value in (("conversation_id", conversation_id), ("previous_response_id", previous_response_id)):
        if value is not None and not is_name(value):
            raise OwnerError(f"{value!r} is no {name}", "Give the id that the server gave, or leave it out.")
    if session is not None:
        return Owner("session", session_id_of(session))
    if conversation_id is not None:
        return Owner("conversation", conversation_id)
    return Owner("chain", previous_response_id)


def owner_of_tool(tool: AgentTool) -> Owner:
    """Return the owner of the conversation of an agent used as a tool."""
    return owner_of(tool.session, tool.conversation_id, tool.previous_response_id)


def owner_on_resume(run: Run, given: Owner) -> Owner:
    """Return the owner of a resumed run; raise OwnerError if the arguments name another."""
    owner = run.spec.owner
    # Nothing was said, and nothing needs to be: a server's conversation is known by the id the run has.
    if given.kind == "replay" and owner.kind != "session":
        return owner
    has_any_id = owner.kind == "session" and owner.id is None  # it had none before its first use
    ids = (owner.id, run.marks.response_id, None) if owner.kind == "chain" else (owner.id,)
    if given.kind != owner.kind or not (has_any_id or given.id in ids):
        raise OwnerError(
            f"run {run.spec.run_id!r} is owned by {_name_owner(owner)} and would go on under {_name_owner(given)}",
            "Resume it under its own owner, or start a new run to move the conversation.",
        )
    return owner


def _name_owner(owner: Owner) -> str:
    name = {"replay": "the application", "chain": "response chain"}.get(owner.kind, owner.kind)
    return name if owner.id is None else f"{name} {owner.id!r}"


# --- what a server cannot do -----------------------------------------------------------------------------------------


def refuse_early(graph: AgentGraph, owner: Owner, config: RunConfig) -> None:
    """Raise UserError now for combinations refused later by the run or one of its agent tools."""
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
    """Yield the agents reachable by handoffs. An agent tool has its own conversation and is not followed."""
    queue = [start]
    for agent in queue:
        yield agent
        for target in agent.handoffs:
            after: Any = target if hasattr(target, "handoffs") else getattr(target, "agent", None)
            if after is not None and all(after is not known for known in queue):
                queue.append(after)
