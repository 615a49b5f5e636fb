"""Carrying out calls: tools, agents as tools, handoffs, a provider's approval requests, and what must not be repeated.

The policy of one tool call is `tools.invoke`, shared with voice. Here is what belongs to a run: whether a person must
agree, writing down that a call begins before it does, and what becomes of a call that had begun when the process
died.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from typing import Any, Literal

from standfast.agents.approvals import ApprovalBook, arguments_digest, tool_scope
from standfast.agents.context import ChildPaused, ToolContext
from standfast.driver.agent_offer import tools_of
from standfast.driver.handoff import hand_over
from standfast.driver.loop import Driver
from standfast.driver.nested import ParentFailed, child_runner
from standfast.driver.run_scope import Live
from standfast.driver.saved_checks import call_item, idempotency_key, missing_tool, tool_of
from standfast.engine.events import ApprovalNeeded, Begun, Decided, NotTaken, Returned, RunCall, Settle
from standfast.engine.run import Call, Entry, Run, Turn
from standfast.ground.errors import ItemNotStorableError, UserError
from standfast.ground.jsonvalue import encode
from standfast.tools.invoke import CallOutcome, invoke, judge_before_approval, needs_approval
from standfast.tools.texts import HANDOFF_IGNORED, UNKNOWN_OUTCOME, rejection_text, unknown_tool_text
from standfast.words.items import ItemHelpers, to_plain


async def perform_call(driver: Driver, live: Live, effect: RunCall) -> None:
    """Carry out one call and tell the run of its output, or that it waits."""
    run = driver.run
    call, turn = run.call(effect.call_id), run.turn
    assert call is not None
    assert turn is not None
    agent = live.graph.agent(turn.agent)
    match call.kind:
        case "handoff":
            await hand_over(driver, live, effect, agent, turn, call)
        case "ignored":
            await _answer(driver, live, effect, turn, call, HANDOFF_IGNORED)
        case "unknown":
            text = await unknown_tool_text(
                live.wrapper, tool_name=call.name, call_id=call.id, formatter=live.config.tool_error_formatter
            )
            await _answer(driver, live, effect, turn, call, text)
        case "hosted":
            await _hosted(driver, live, effect, turn, call)
        case _:
            await _tool(driver, live, effect, agent, turn, call)


# --- function tools --------------------------------------------------------------------------------------------------


async def _tool(driver: Driver, live: Live, effect: RunCall, agent: Any, turn: Turn, call: Call) -> None:
    tools = await tools_of(live, driver.run, agent)
    tool = tool_of(tools, call_item(turn, call), call)
    if tool is None:
        if live.config.tool_not_found_behavior != "return_error_to_model":
            raise missing_tool(agent, call)
        text = await unknown_tool_text(
            live.wrapper, tool_name=call.name, call_id=call.id, formatter=live.config.tool_error_formatter
        )
        await _answer(driver, live, effect, turn, call, text)
        return
    context = _context(driver, live, agent, tool, turn, call)
    verdict = await _approved(driver, live, effect, agent, tool, context, call)
    if verdict is None:
        return
    if isinstance(verdict, str):
        await _answer(driver, live, effect, turn, call, verdict)
        return
    async with _one_of(live):
        if call.state == "asked" and (call.child is None or call.decision is not None):
            await driver.tell(Begun(call.id))
        with live.span("tool", call.name, agent=agent, tool=tool, call=call) as span:
            try:
                outcome = await invoke(
                    tool,
                    context,
                    call.arguments,
                    agent=agent,
                    run_hooks=live.hooks,
                    agent_hooks=agent.hooks,
                    formatter=live.config.tool_error_formatter,
                    again=call.child is not None,
                )
            except ChildPaused:
                return  # the nested run has told where it stands
            except ParentFailed as failed:
                raise failed.error from None
            if span is not None:
                span.note(outcome=outcome, error=outcome.error)
        await _took(driver, live, effect, agent, tool, turn, call, outcome)


async def _took(
    driver: Driver, live: Live, effect: RunCall, agent: Any, tool: Any, turn: Turn, call: Call, outcome: CallOutcome
) -> None:
    live.tool_input_results += outcome.input_results
    live.tool_output_results += outcome.output_results
    original = _call_item(turn, call)
    item = ItemHelpers.tool_call_output_item(original, "")
    item["output"] = outcome.item_output
    live.remember(item, native=outcome.output)
    extra: dict[str, Any] = {}
    if tool.origin is not None:
        extra["tool_origin"] = tool.origin.to_json_dict()
    if outcome.custom_data is not None:
        extra["custom_data"] = _custom_json(tool, outcome.custom_data)
    entry = Entry("tool_call_output_item", turn.agent, item, extra or None)
    results = [_result_json("tool_input", result) for result in outcome.input_results]
    results += [_result_json("tool_output", result) for result in outcome.output_results]
    child = live.cache.pop(("child responses", call.id), ())
    await driver.tell(
        Returned(call.id, (entry,), tuple(results), used=(call.name,), responses=tuple(child)), effect=effect
    )
    show_outputs(live, turn, driver.run)


def _custom_json(tool: Any, data: dict[str, Any]) -> Any:
    plain = to_plain(data)
    try:
        encode(plain)  # what cannot be saved is refused now, while the turn can still be stored without it
    except ItemNotStorableError as error:
        raise UserError(
            f"the custom_data_extractor of tool {tool.qualified_name!r} returned what is not JSON: {error.what}",
            "Return a mapping of JSON values, or None.",
        ) from None
    return plain


def _result_json(stage: str, result: Any) -> dict[str, Any]:
    return {"stage": stage, "guardrail": result.guardrail.get_name(), "behavior": dict(result.output.behavior)}


def _context(driver: Driver, live: Live, agent: Any, tool: Any, turn: Turn, call: Call) -> ToolContext[Any]:
    item = _call_item(turn, call)
    return ToolContext.from_agent_context(
        live.wrapper,
        call.id,
        tool_call=live.original(item),
        agent=agent,
        tool_name=call.name,
        tool_arguments=call.arguments,
        tool_namespace=item.get("namespace"),
        run_config=live.config,
        idempotency_key=idempotency_key(driver.run, call.id),
        run_agent=child_runner(driver, live, turn, call) if tool.agent_tool is not None else None,
    )


def _call_item(turn: Turn, call: Call) -> dict[str, Any]:
    made = {"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments}
    return call_item(turn, call) or made


@contextlib.asynccontextmanager
async def _one_of(live: Live) -> Any:
    """At most `max_function_tool_concurrency` calls at once; no limit costs nothing."""
    execution = live.config.tool_execution
    limit = execution.max_function_tool_concurrency if execution is not None else None
    if limit is None:
        yield
        return
    gate = live.cache.get("gate")
    if gate is None:
        gate = live.cache["gate"] = asyncio.Semaphore(limit)
    async with gate:
        yield


# --- approvals -------------------------------------------------------------------------------------------------------


async def _approved(
    driver: Driver, live: Live, effect: RunCall, agent: Any, tool: Any, context: ToolContext[Any], call: Call
) -> Literal[True] | str | None:
    """True: run it. Text: what the model reads in its place. None: the run has been told that it waits."""
    book: ApprovalBook = live.wrapper.approvals
    scope = tool_scope(call.name, namespace=context.tool_namespace)
    if call.child is not None and call.decision is None:
        return True  # it was let run before, and its own run waits inside
    decision = call.decision
    if decision is not None:
        status: bool | None = decision.approved
    else:
        status = book.status(call.id, scope, arguments_digest(call.arguments))
        if status is None and call.reason != "approval":  # else its policy was asked before the pause, and not again
            needed = await needs_approval(tool, context, call.arguments, call.id)
            await tell_decisions(driver, live)
            if not needed:
                return True
            status = book.status(call.id, scope, arguments_digest(call.arguments))  # the policy may have decided itself
    if status is True:
        return True
    if status is False:
        message = decision.message if decision is not None else None
        message = message if message is not None else book.message(call.id, scope)
        if message is None and call.reason == "unknown":
            return UNKNOWN_OUTCOME  # a person chose not to run it again; that it did not run is not known
        return await rejection_text(
            context,
            tool_name=call.name,
            call_id=call.id,
            message=message,
            formatter=live.config.tool_error_formatter,
        )
    execution = live.config.tool_execution
    if execution is not None and execution.pre_approval_tool_input_guardrails:
        results, rejection = await judge_before_approval(tool, context, agent=agent)
        live.tool_input_results += results
        if rejection is not None:
            return rejection
    await driver.tell(ApprovalNeeded(call.id), effect=effect)
    return None


async def tell_decisions(driver: Driver, live: Live) -> None:
    """Write down what the application's own code decided while it ran."""
    for one in live.wrapper.approvals.drain():
        await driver.tell(Decided(one))


async def _hosted(driver: Driver, live: Live, effect: RunCall, turn: Turn, call: Call) -> None:
    """A provider asks whether its hosted MCP tool may run: a callback of the tool answers, else a person."""
    request = _call_item(turn, call)
    label = request.get("server_label")
    scope = tool_scope(call.name, namespace=label, kind="mcp")
    book: ApprovalBook = live.wrapper.approvals
    approve: bool | None
    reason: str | None = None
    if call.decision is not None:
        approve, reason = call.decision.approved, call.decision.message
    else:
        approve = book.status(call.id, scope, arguments_digest(call.arguments))
        reason = book.message(call.id, scope) if approve is False else None
    if approve is None:
        answer = await _ask_callback(live, driver.run, label, request)
        if answer is None:
            await driver.tell(ApprovalNeeded(call.id), effect=effect)
            return
        approve, reason = bool(answer.get("approve")), answer.get("reason")
    item: dict[str, Any] = {"type": "mcp_approval_response", "approval_request_id": call.id, "approve": approve}
    if reason:
        item["reason"] = reason
    entry = Entry("mcp_approval_response_item", turn.agent, item)
    await driver.tell(Returned(call.id, (entry,)), effect=effect)
    show_outputs(live, turn, driver.run)


async def _ask_callback(live: Live, run: Run, label: Any, request: dict[str, Any]) -> dict[str, Any] | None:
    agent = live.graph.agent(run.progress.agent)
    for tool in agent.tools:
        callback = getattr(tool, "on_approval_request", None)
        config = getattr(tool, "tool_config", None)
        if callback is None or not isinstance(config, dict) or config.get("server_label") != label:
            continue
        from standfast.tools.hosted import MCPToolApprovalRequest

        answer = callback(MCPToolApprovalRequest(ctx_wrapper=live.wrapper, data=live.original(request)))
        if inspect.isawaitable(answer):
            answer = await answer
        return dict(answer)
    return None


# --- outputs ---------------------------------------------------------------------------------------------------------


async def _answer(driver: Driver, live: Live, effect: RunCall, turn: Turn, call: Call, text: str) -> None:
    """The call gets this text as its output."""
    item = ItemHelpers.tool_call_output_item(_call_item(turn, call), text)
    entry = Entry("tool_call_output_item", turn.agent, item)
    await driver.tell(Returned(call.id, (entry,)), effect=effect)
    show_outputs(live, turn, driver.run)


def show_outputs(live: Live, turn: Turn, run: Run, *, all_so_far: bool = False) -> None:
    """Announce the turn's outputs, in call order, once all are there (or, when a run pauses, those that are)."""
    if live.watch is None:
        return
    now = run.turn if run.turn is not None and run.turn.number == turn.number else None
    if now is None or not (now.complete or all_so_far):
        return
    shown: set[str] = live.cache.setdefault("shown", set())
    for call in now.calls:
        if call.state == "returned" and call.id not in shown:
            shown.add(call.id)
            live.show_entries(call.outputs)


# --- after a crash ---------------------------------------------------------------------------------------------------


async def settle_call(driver: Driver, live: Live, effect: Settle) -> None:
    """A call had begun when the process died. Its tool's policy decides; it is never run again silently."""
    turn = driver.run.turn
    assert turn is not None
    assert effect.call_id is not None
    call = driver.run.call(effect.call_id)
    assert call is not None
    agent = live.graph.agent(turn.agent)
    tool = tool_of(await tools_of(live, driver.run, agent), call_item(turn, call), call)
    policy = getattr(tool, "on_unknown", "report") if tool is not None else "report"
    # A nested run tells where it stands before it does anything that counts: one that is not there has done nothing.
    if policy == "rerun" or call.kind == "agent":
        await driver.tell(NotTaken(call.id), effect=effect)
    elif policy == "ask":
        await driver.tell(ApprovalNeeded(call.id, reason="unknown"), effect=effect)
    else:
        item = ItemHelpers.tool_call_output_item(_call_item(turn, call), UNKNOWN_OUTCOME)
        entry = Entry("tool_call_output_item", turn.agent, item, {"outcome": "unknown"})
        await driver.tell(Returned(call.id, (entry,), used=(call.name,)), effect=effect)
        show_outputs(live, turn, driver.run)
