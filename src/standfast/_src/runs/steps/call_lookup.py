"""Lookup of a call's item, tool and agent; and iteration over all calls, nested ones included."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import scope_kind, tool_scope
from standfast._src.base.errors import ApprovalError, ModelBehaviorError
from standfast._src.base.json_values import Item
from standfast._src.base.operational_events import emit
from standfast._src.runs.engine.run import Call, Run
from standfast._src.tools.local_tool import LocalTool, lookup_name


def idempotency_key(run_id: str, call_id: str) -> str:
    """Return the key that is equal for every attempt at this call, in any process, and for no other call."""
    # A model chooses the call's id. Without a colon in the first part, no other run and call make the same text.
    return f"{run_id.replace('%', '%25').replace(':', '%3A')}:{call_id}"


def scope_of_call(call: Call, item: Item) -> str:
    """Return the scope of a sticky decision about this call."""
    if call.kind == "hosted":
        return tool_scope(call.name, namespace=item.get("server_label"), kind="mcp")
    return tool_scope(call.name, namespace=item.get("namespace"), kind=scope_kind(item.get("type")))


def tool_of(tools: Mapping[str, LocalTool], item: Item, name: str) -> LocalTool | None:
    """Return the tool of a call, of the call's kind and namespace, if any."""
    name, namespace = lookup_name(item.get("type"), name), item.get("namespace")
    return tools.get(f"{namespace}.{name}" if namespace else name) or tools.get(name)


def missing_tool(agent: Agent[Any], call: Call) -> ModelBehaviorError:
    """Build the error about a call whose tool no longer exists."""
    return ModelBehaviorError(
        f"tool {call.name!r} of agent {agent.name!r} is no longer there or no longer enabled",
        "Resume with the agent that has it, or set RunConfig(tool_not_found_behavior='return_error_to_model').",
    )


class Question(NamedTuple):
    """A call that may be decided about, and the binding of a decision about it."""

    path: tuple[str, ...]
    """The enclosing calls, from the outermost; empty for a call of the run itself."""
    call: Call
    scope: str
    """Scope of a sticky decision about it."""
    agent: str


def calls_within(run: Run, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Run, Call]]:
    """Yield every open call of a run, each followed by those of its nested run: the enclosing calls, the
    run, the call.
    """
    for call in run.calls:
        yield path, run, call
        if call.child is not None:
            yield from calls_within(call.child, (*path, call.id))


def questions_of(run: Run) -> Iterator[Question]:
    """Yield every call of a run, nested runs included, that waits, or was decided and has not run.

    A call that was decided and has not run is still the same question: asked and approved once more elsewhere, it would
    be executed twice.
    """
    for path, inner, call in calls_within(run):
        if call.child is None and call.is_question:
            assert inner.turn is not None
            yield Question(path, call, scope_of_call(call, inner.turn.item_of(call)), inner.turn.agent)


def question_shown(run: Run, call_id: str, is_as_shown: Callable[[Call], bool]) -> Question:
    """Return the question of this id that equals the shown call; raise ApprovalError if there is none, or two.

    The id alone is not enough: ids of nested runs may collide, and the approval is for the shown call.
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
    """Emit an operational event: the outcome of this call is unknown, and the action taken."""
    emit("outcome_unknown", what=f"call {call_id}", run=run.spec.run_id, done=done)


def tell_begun(run: Run, done: str) -> None:
    """Emit the same event for every begun call of the open turn without an output; for a nested run, for
    its own calls.
    """
    for _, inner, call in calls_within(run):
        if call.child is None and call.has_begun and call.state != "returned":
            tell_unknown(inner, call.id, done)
