"""Handoff to another agent. The history keeps everything; the next agent's view may be filtered (C4)."""

from __future__ import annotations

from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.handoff_data import HandoffInputData
from standfast._src.agents.handoffs import Handoff, nest_handoff_history
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import ModelBehaviorError, UserError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import ItemHelpers, ToolApprovalItem
from standfast._src.items.stream_events import AgentUpdatedStreamEvent
from standfast._src.runs.engine.events import Returned, RunCall
from standfast._src.runs.engine.run import Call, Entry, Run, Turn, evolve
from standfast._src.runs.loop.loop import Loop
from standfast._src.runs.loop.run_scope import RunScope, logger
from standfast._src.runs.steps.call_hooks import handoff_hooks
from standfast._src.runs.steps.reply_parsing import stored_form


async def hand_over(loop: Loop, scope: RunScope, effect: RunCall, agent: Agent[Any], turn: Turn, call: Call) -> None:
    """Let the handoff choose the next agent and its view, and record them in the run."""
    handoff = (await scope.agents.current(agent)).handoffs_by_name.get(call.name)
    if handoff is None:
        raise ModelBehaviorError(
            f"handoff {call.name!r} of agent {agent.name!r} is no longer there or no longer enabled",
            "Resume with the agent graph the run was started with.",
        )
    # The handoff decides, and hooks are told, before anything of it is recorded: one that raises has not happened.
    asked = scope.span("handoff", handoff.agent_name, agent=agent, call=call, turn=turn.number)
    with scope.enter_user_code(), asked as span:
        target = await handoff.on_invoke_handoff(scope.wrapper, call.arguments)
        if not hasattr(target, "handoffs"):
            raise UserError(
                f"handoff {call.name!r} returned {describe_type(target)}", "on_invoke_handoff must return an Agent."
            )
        if span is not None:
            span.note(target=target)
        await handoff_hooks(scope, agent, target)
    key = scope.graph.key(target)
    item = {"type": "function_call_output", "call_id": call.id, "output": handoff.get_transfer_message(target)}
    entry = Entry("handoff_output_item", turn.agent, item, {"source_agent": turn.agent, "target_agent": key})
    # It comes last in its turn (see `due`), which is complete with it.
    returned = evolve(call, state="returned", outputs=(entry,))
    turn = evolve(turn, calls=tuple(returned if one.id == call.id else one for one in turn.calls))
    # The filter shapes what the next agent sees. The history keeps everything, whatever it leaves out (C4).
    with scope.enter_user_code():
        base = await _base(scope, loop.run, turn, handoff)
    scope.show_outputs(turn)
    await loop.record(Returned(call.id, (entry,), used=(call.name,), target=key, base=base), completes=effect)
    # The same agent may get the conversation back: its start hooks are then called again.
    scope.announced_agent = None
    scope.shown_agent = key
    scope.show(AgentUpdatedStreamEvent(target))


async def _base(scope: RunScope, run: Run, turn: Turn, handoff: Handoff[Any, Any]) -> tuple[Item, ...] | None:
    """Return the items shown to the next agent in place of the conversation, or None for the whole conversation."""
    filter_input = scope.config.handoff_input_filter if handoff.input_filter is None else handoff.input_filter
    nest = handoff.nest_handoff_history
    nest = scope.config.nest_handoff_history if nest is None else nest
    if filter_input is None and not nest:
        return None
    if run.spec.owner.is_server:
        if filter_input is not None:
            raise UserError(
                "a handoff input filter cannot change a conversation that a server owns",
                "Remove the filter, or let the application or a session own the conversation.",
            )
        logger.warning("nest_handoff_history is ignored: a server owns the conversation")
        return None
    data = _input_data(scope, run, turn)
    if filter_input is not None:
        if not callable(filter_input):
            raise UserError(
                f"the input filter of a handoff is {describe_type(filter_input)}",
                "Give a function of HandoffInputData.",
            )
        changed = await maybe_await(filter_input(data))
    else:
        changed = nest_handoff_history(data, history_mapper=scope.config.handoff_history_mapper)
    if not isinstance(changed, HandoffInputData):
        raise UserError(
            f"a handoff input filter returned {describe_type(changed)}",
            "Return HandoffInputData, e.g. data.clone(...).",
        )
    history = changed.input_history
    base = ItemHelpers.input_to_new_input_list(history if isinstance(history, str) else list(history))
    news = changed.new_items if changed.input_items is None else changed.input_items
    base += [
        stored_form(item.to_input_item())
        for item in (*changed.pre_handoff_items, *news)
        if not isinstance(item, ToolApprovalItem)
    ]
    return tuple(base)


def _input_data(scope: RunScope, run: Run, turn: Turn) -> HandoffInputData:
    view, first = run.view, run.spec.input_count
    base = scope.history if view.base is None else view.base
    inputs = [one.item for one in run.ledger[view.tail : first]] if view.tail < first else []
    history: Any
    if not base and run.spec.input_is_text and len(inputs) == 1:
        history = scope.given_input
    else:
        history = tuple(copy_json(item) for item in (*base, *inputs))
    outputs = [one for call in turn.calls for one in call.outputs]
    return HandoffInputData(
        input_history=history,
        pre_handoff_items=tuple(scope.run_items(run.ledger.since(max(view.tail, first)))),
        new_items=tuple(scope.run_items((*turn.reply, *outputs))),
        run_context=scope.wrapper,
    )
