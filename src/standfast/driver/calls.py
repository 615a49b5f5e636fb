"""Carrying out the calls of a run: tools, agents as tools, handoffs, a provider's approval requests.

The path of one tool call is `tools.desk`, shared with voice. Here is what belongs to a run: it owns its calls
(`_OwnedCall`), records what became of each, and shows the outputs of a turn in call order.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any

from standfast.agents.agent import Agent
from standfast.agents.context import ChildPaused, ToolContext
from standfast.driver.call_lookup import (
    call_item,
    call_item_or_made,
    idempotency_key,
    missing_tool,
    scope_of_call,
    tool_of,
)
from standfast.driver.handoff import hand_over
from standfast.driver.loop import Loop
from standfast.driver.nested import by_hand_runner, child_runner
from standfast.driver.run_scope import RunScope, Span
from standfast.driver.session_hold import inside_a_call
from standfast.driver.unfinished import question_of
from standfast.engine.events import ApprovalNeeded, Begun, ChildMoved, Decided, NotTaken, Returned, RunCall, Settle
from standfast.engine.run import Call, Entry, Run, Turn
from standfast.ground.jsonvalue import Item
from standfast.tools.approval import Refused, Waits, hosted_approval
from standfast.tools.desk import after_a_crash, answer_of, carry_out, guardrail_json
from standfast.tools.function import FunctionTool
from standfast.tools.texts import HANDOFF_IGNORED, UNKNOWN_OUTCOME, unknown_tool_text
from standfast.words.items import ItemHelpers


async def perform_call(loop: Loop, scope: RunScope, effect: RunCall) -> None:
    """Carry out one call and record its output, or that it waits."""
    call, turn = _open_call(loop.run, effect.call_id)
    agent = scope.graph.agent(turn.agent)
    match call.kind:
        case "handoff":
            await hand_over(loop, scope, effect, agent, turn, call)
        case "ignored":
            await _answer(loop, scope, effect, turn, call, HANDOFF_IGNORED)
        case "unknown":
            await _answer_unknown(loop, scope, effect, turn, call)
        case "hosted":
            await _perform_hosted(loop, scope, effect, agent, turn, call)
        case _:
            await _perform_tool(loop, scope, effect, agent, turn, call)


def _open_call(run: Run, call_id: str) -> tuple[Call, Turn]:
    call, turn = run.call(call_id), run.turn
    assert call is not None  # due() names calls of the open turn only
    assert turn is not None
    return call, turn


# --- function tools --------------------------------------------------------------------------------------------------


class _OwnedCall:
    """One call of a run, as its desk sees its owner."""

    def __init__(self, loop: Loop, scope: RunScope) -> None:
        self._loop, self._scope = loop, scope
        self.formatter, self.hooks = scope.config.tool_error_formatter, scope.hooks
        execution = scope.config.tool_execution
        self.guardrails_before_approval = bool(execution and execution.pre_approval_tool_input_guardrails)

    def agent_key(self, agent: Agent[Any]) -> str:
        return self._scope.graph.key(agent)

    async def record_decisions(self) -> None:
        for decision in self._scope.wrapper.approvals.drain():
            await self._loop.record(Decided(decision))

    async def begin(self, call: Call) -> None:
        await self._loop.record(Begun(call.id))

    def place(self) -> AbstractAsyncContextManager[Any]:
        return self._scope.places.one()

    def span(self, call: Call, tool: FunctionTool, agent: Agent[Any]) -> AbstractContextManager[Span | None]:
        return self._scope.span("tool", call.name, agent=agent, tool=tool, call=call)


async def _perform_tool(
    loop: Loop, scope: RunScope, effect: RunCall, agent: Agent[Any], turn: Turn, call: Call
) -> None:
    item = call_item_or_made(turn, call)
    tool = tool_of(await scope.agents.tools(agent), item, call)
    if tool is None:
        if scope.config.tool_not_found_behavior != "return_error_to_model":
            raise missing_tool(agent, call)
        await _answer_unknown(loop, scope, effect, turn, call)
        return
    context = ToolContext.from_agent_context(
        scope.wrapper,
        call.id,
        tool_call=scope.original(item),
        agent=agent,
        tool_name=call.name,
        tool_arguments=call.arguments,
        tool_namespace=item.get("namespace"),
        run_config=scope.config,
        idempotency_key=idempotency_key(loop.run.spec.run_id, call.id),
        run_agent=_child_runner(loop, scope, effect, call, tool),
    )
    try:
        with inside_a_call(scope.session):
            outcome = await carry_out(_OwnedCall(loop, scope), call, tool, context, agent=agent)
    except ChildPaused:
        # A pause is no failure and no result: the call is entered again, with its run where it was.
        return  # the nested run has recorded where it stands
    if isinstance(outcome, Waits):
        scope.results.of_tool_input += outcome.results
        results = tuple(guardrail_json("tool_input", one) for one in outcome.results)
        same = _same_question(scope, turn, call, item)
        await loop.record(ApprovalNeeded(call.id, results=results, same_as_run=same), completes=effect)
        return
    answer = answer_of(outcome, item, tool, turn.agent)
    used: tuple[str, ...] = ()
    if isinstance(outcome, Refused):
        scope.results.of_tool_input += outcome.results
    else:
        scope.results.of_tool_input += outcome.input_results
        scope.results.of_tool_output += outcome.output_results
        scope.remember(answer.entry.item, native=outcome.output)
        used = (call.name,)
    # What a nested run used is charged with its call, so that a resumed run counts it once.
    responses = tuple(scope.child_responses.pop(call.id, ()))
    await loop.record(
        Returned(call.id, (answer.entry,), answer.results, used=used, responses=responses), completes=effect
    )
    show_outputs(scope, turn, loop.run)


def _same_question(scope: RunScope, turn: Turn, call: Call, item: Item) -> str | None:
    """The run of this conversation in which the same question waits already, so that nobody answers it twice (C15)."""
    if not scope.open_questions:
        return None
    asked = question_of(turn.agent, call, scope_of_call(call, item), "")
    return next((one.run_id for one in scope.open_questions if one[:3] == asked[:3]), None)


def _child_runner(loop: Loop, scope: RunScope, effect: RunCall, call: Call, tool: FunctionTool) -> Any:
    run_id = f"{loop.run.spec.run_id}/{call.id}"
    if tool.agent_tool is None:
        return by_hand_runner(loop.children, scope, call, run_id)

    async def record(child: Run) -> None:
        await loop.record(ChildMoved(call.id, child), completes=effect if child.paused else None)

    return child_runner(loop.children, scope, call, run_id=run_id, record=record, is_saved=loop.saver is not None)


async def _perform_hosted(
    loop: Loop, scope: RunScope, effect: RunCall, agent: Agent[Any], turn: Turn, call: Call
) -> None:
    """Answer a provider that asks whether its hosted tool may run, or wait for a person to do so."""
    request = call_item_or_made(turn, call)
    shown = scope.original(request)
    item = await hosted_approval(call, request, shown, agent_key=turn.agent, tools=agent.tools, wrapper=scope.wrapper)
    if item is None:
        same = _same_question(scope, turn, call, request)
        await loop.record(ApprovalNeeded(call.id, same_as_run=same), completes=effect)
        return
    await _record_output(loop, scope, effect, turn, Entry("mcp_approval_response_item", turn.agent, item))


# --- outputs ---------------------------------------------------------------------------------------------------------


async def _answer_unknown(loop: Loop, scope: RunScope, effect: RunCall, turn: Turn, call: Call) -> None:
    formatter = scope.config.tool_error_formatter
    text = await unknown_tool_text(scope.wrapper, tool_name=call.name, call_id=call.id, formatter=formatter)
    await _answer(loop, scope, effect, turn, call, text)


async def _answer(loop: Loop, scope: RunScope, effect: RunCall, turn: Turn, call: Call, text: str) -> None:
    """Give the call this text as its output."""
    item = ItemHelpers.tool_call_output_item(call_item_or_made(turn, call), text)
    await _record_output(loop, scope, effect, turn, Entry("tool_call_output_item", turn.agent, item))


async def _record_output(
    loop: Loop, scope: RunScope, effect: RunCall | Settle, turn: Turn, entry: Entry, used: tuple[str, ...] = ()
) -> None:
    assert effect.call_id is not None
    await loop.record(Returned(effect.call_id, (entry,), used=used), completes=effect)
    show_outputs(scope, turn, loop.run)


def show_outputs(scope: RunScope, turn: Turn, run: Run, *, all_so_far: bool = False) -> None:
    """Announce the turn's outputs, in call order, once all are there (or, when a run pauses, those that are)."""
    now = run.turn if run.turn is not None and run.turn.number == turn.number else None
    if scope.events is None or now is None or not (now.complete or all_so_far):
        return
    # In call order, never in the order in which they finished: a history that depends on the clock cannot be replayed.
    for call in now.calls:
        if call.state == "returned" and call.id not in scope.shown_calls:
            scope.shown_calls.add(call.id)
            scope.show_entries(call.outputs)


# --- after a crash ---------------------------------------------------------------------------------------------------


async def settle_call(loop: Loop, scope: RunScope, effect: Settle) -> None:
    """Follow the tool's policy for a call that had begun when the process died; it is never run again silently."""
    assert effect.call_id is not None
    call, turn = _open_call(loop.run, effect.call_id)
    agent = scope.graph.agent(turn.agent)
    tool = tool_of(await scope.agents.tools(agent), call_item(turn, call), call)
    match after_a_crash(call, tool):
        case "rerun":
            await loop.record(NotTaken(call.id), completes=effect)
        case "ask":
            await loop.record(ApprovalNeeded(call.id, reason="unknown"), completes=effect)
        case "report":
            item = ItemHelpers.tool_call_output_item(call_item_or_made(turn, call), UNKNOWN_OUTCOME)
            entry = Entry("tool_call_output_item", turn.agent, item, {"outcome": "unknown"})
            await _record_output(loop, scope, effect, turn, entry, used=(call.name,))
