"""From a call of a run to the item, the tool and the agent it stands for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from standfast.agents.agent import Agent
from standfast.agents.approvals import tool_scope
from standfast.engine.run import Call, Run, Turn
from standfast.ground.errors import ModelBehaviorError
from standfast.ground.jsonvalue import Item
from standfast.tools.custom import CUSTOM_CALL, LocalTool, lookup_name


def call_item_or_made(turn: Turn, call: Call) -> Item:
    """The item of the reply that is this call, or, where the reply does not have it, one that says the same."""
    made = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    return turn.item_of(call) or made


def idempotency_key(run_id: str, call_id: str) -> str:
    """The same for every attempt at this call, in any process, and for no other call."""
    return f"{run_id}:{call_id}"


def scope_of_call(call: Call, item: Item) -> str:
    """What a sticky decision about this call covers."""
    if call.kind == "hosted":
        return tool_scope(call.name, namespace=item.get("server_label"), kind="mcp")
    kind = CUSTOM_CALL if item.get("type") == CUSTOM_CALL else "function"
    return tool_scope(call.name, namespace=item.get("namespace"), kind=kind)


def tool_of(tools: Mapping[str, LocalTool], item: Item | None, call: Call) -> LocalTool | None:
    """The tool a call is for: one of its kind, and that of its namespace, where the call names one."""
    item = item or {}
    name, namespace = lookup_name(item.get("type"), call.name), item.get("namespace")
    return tools.get(f"{namespace}.{name}" if namespace else name) or tools.get(name)


def missing_tool(agent: Agent[Any], call: Call) -> ModelBehaviorError:
    """What is raised about a call of a tool that is gone."""
    return ModelBehaviorError(
        f"tool {call.name!r} of agent {agent.name!r} is no longer there or no longer enabled",
        "Resume with the agent that has it, or set RunConfig(tool_not_found_behavior='return_error_to_model').",
    )


def nested_agent(agent: Agent[Any], call: Call) -> Agent[Any] | None:
    """The agent that a call of this agent's runs, if the call is of an agent used as a tool."""
    for tool in getattr(agent, "tools", ()):
        described = getattr(tool, "agent_tool", None)
        if described is not None and getattr(tool, "name", None) == call.name:
            inner: Agent[Any] = described.agent
            return inner
    return None


class Question(NamedTuple):
    """A call that may be decided about, and what a decision about it is bound to."""

    path: tuple[str, ...]
    """The calls it is inside of, from the outermost; empty for a call of the run itself."""
    call: Call
    scope: str
    """What a sticky decision about it covers."""
    agent: str


def questions_of(run: Run, path: tuple[str, ...] = ()) -> Iterator[Question]:
    """Every call of a run, and of runs inside it, that waits, or was decided and has not run.

    One that was decided and not yet run is still the same question: asked and approved once more elsewhere, it would be
    done twice.
    """
    turn = run.turn
    for call in turn.calls if turn is not None else ():
        if call.child is not None:
            yield from questions_of(call.child, (*path, call.id))
        elif call.is_question:
            assert turn is not None
            yield Question(path, call, scope_of_call(call, turn.item_of(call) or {}), turn.agent)
