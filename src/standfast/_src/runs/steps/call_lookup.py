"""From a call of a run to the item, the tool and the agent it stands for; and every call, however deep it is nested."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import tool_scope
from standfast._src.base.errors import ApprovalError, ModelBehaviorError
from standfast._src.base.json_values import Item
from standfast._src.base.operational_events import emit
from standfast._src.runs.engine.run import Call, Run
from standfast._src.tools.custom_tool import CUSTOM_CALL, LocalTool, lookup_name


def idempotency_key(run_id: str, call_id: str) -> str:
    """The same for every attempt at this call, in any process, and for no other call."""
    return f"{run_id}:{call_id}"


def scope_of_call(call: Call, item: Item) -> str:
    """What a sticky decision about this call covers."""
    if call.kind == "hosted":
        return tool_scope(call.name, namespace=item.get("server_label"), kind="mcp")
    kind = CUSTOM_CALL if item.get("type") == CUSTOM_CALL else "function"
    return tool_scope(call.name, namespace=item.get("namespace"), kind=kind)


def tool_of(tools: Mapping[str, LocalTool], item: Item, name: str) -> LocalTool | None:
    """The tool of this name that a call is for: one of its kind, and that of its namespace, where the call has one."""
    name, namespace = lookup_name(item.get("type"), name), item.get("namespace")
    return tools.get(f"{namespace}.{name}" if namespace else name) or tools.get(name)


def missing_tool(agent: Agent[Any], call: Call) -> ModelBehaviorError:
    """What is raised about a call of a tool that is gone."""
    return ModelBehaviorError(
        f"tool {call.name!r} of agent {agent.name!r} is no longer there or no longer enabled",
        "Resume with the agent that has it, or set RunConfig(tool_not_found_behavior='return_error_to_model').",
    )


class Question(NamedTuple):
    """A call that may be decided about, and what a decision about it is bound to."""

    path: tuple[str, ...]
    """The calls it is inside of, from the outermost; empty for a call of the run itself."""
    call: Call
    scope: str
    """What a sticky decision about it covers."""
    agent: str


def calls_within(run: Run, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Run, Call]]:
    """Every open call of a run and, behind each, those of the run inside it: the calls around it, its run, the call."""
    for call in run.calls:
        yield path, run, call
        if call.child is not None:
            yield from calls_within(call.child, (*path, call.id))


def questions_of(run: Run) -> Iterator[Question]:
    """Every call of a run, and of runs inside it, that waits, or was decided and has not run.

    One that was decided and not yet run is still the same question: asked and approved once more elsewhere, it would be
    done twice.
    """
    for path, inner, call in calls_within(run):
        if call.child is None and call.is_question:
            assert inner.turn is not None
            yield Question(path, call, scope_of_call(call, inner.turn.item_of(call)), inner.turn.agent)


def question_shown(run: Run, call_id: str, is_as_shown: Callable[[Call], bool]) -> Question:
    """The one question of this id that is the call which was shown; raises ApprovalError if there is none, or two.

    Not by the id alone: ids of nested runs may collide, and what was shown is what was agreed to.
    """
    found = [one for one in questions_of(run) if one.call.id == call_id]
    if not found:
        raise ApprovalError(
            f"call {call_id!r} is not waiting for a decision in run {run.spec.run_id!r}",
            "Decide about a call that waits (get_interruptions(), Store.run()); one that was decided and ran cannot be"
            " decided again.",
        )
    same = [one for one in found if is_as_shown(one.call)]
    if not same:
        raise ApprovalError(
            f"call {call_id!r} is not the one that was shown: its tool or its arguments differ",
            "Show the call as it is now to whoever decides, and ask again.",
        )
    if len(same) > 1:
        raise ApprovalError(
            f"call id {call_id!r} waits in more than one nested run, for the same",
            "Give nested agents models with unique call ids.",
        )
    return same[0]


def tell_unknown(run: Run, call_id: str, done: str) -> None:
    """Tell operators that nobody knows whether this call has done its work, and what is done about it."""
    emit("outcome_unknown", what=f"call {call_id}", run=run.spec.run_id, done=done)


def tell_begun(run: Run, done: str) -> None:
    """Tell the same of every call of the open turn that has begun and not returned; of a nested run's, its own."""
    for _, inner, call in calls_within(run):
        if call.child is None and call.has_begun and call.state != "returned":
            tell_unknown(inner, call.id, done)
