"""What a person decides about a call, and what becomes of it: one call, all calls of a tool, the last word."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types import responses

from standfast import (
    ApprovalError,
    HostedMCPTool,
    InMemorySession,
    RunConfig,
    Runner,
    RunState,
    ToolApprovalItem,
    ToolExecutionConfig,
    ToolGuardrailFunctionOutput,
    UserError,
    tool_input_guardrail,
)
from standfast._src.tools.refusal_texts import REJECTED

from .payment_app import Desk, asks, kinds, look, outputs, pay, says


async def test_calls_that_need_nobody_run_before_the_pause_and_the_others_wait():
    desk = Desk([asks(pay(5, "c1"), look("sky", "c2")), says("done")])
    result = await desk.run("hi")
    assert [item.call_id for item in result.interruptions] == ["c1"]
    assert result.interruptions[0].reason == "approval"
    assert desk.done == [("look", "sky")]
    assert result.final_output is None


async def test_an_approved_call_runs_once_and_the_model_reads_the_outputs_in_call_order():
    desk = Desk([asks(pay(5, "c1"), look("sky", "c2")), says("done")])
    state = (await desk.run("hi")).to_state()
    state.approve(state.get_interruptions()[0])
    result = await desk.run(state)
    assert result.final_output == "done"
    assert desk.done == [("look", "sky"), ("pay", 5)]
    assert kinds(desk.sent[-1]) == ["user", "call c1", "call c2", "output c1", "output c2"]


async def test_a_rejected_call_gets_the_persons_words_then_the_formatters_then_the_usual_ones():
    for words, formatter, expected in [
        ("too much", lambda args: "formatted", "too much"),
        (None, lambda args: f"formatted {args.tool_name} {args.kind}", "formatted pay approval_rejected"),
        (None, None, REJECTED),
    ]:
        desk = Desk([asks(pay(5, "c1")), says("done")])
        config = RunConfig(tool_error_formatter=formatter)
        state = (await desk.run("hi", run_config=config)).to_state()
        state.reject(state.get_interruptions()[0], rejection_message=words)
        await desk.run(state, run_config=config)
        assert outputs(desk.sent[-1]) == {"c1": expected}
        assert desk.done == []


async def test_deciding_again_is_allowed_until_the_call_runs_and_the_last_word_counts():
    desk = Desk([asks(pay(5, "c1"), pay(6, "c2")), says("done")])
    state = (await desk.run("hi")).to_state()
    first, second = state.get_interruptions()
    state.approve(first)
    state.approve(first)  # the same again changes nothing
    state.approve(second)
    state.reject(second, rejection_message="on second thought, no")
    await desk.run(await desk.reloaded(state))
    assert desk.done == [("pay", 5)]
    assert outputs(desk.sent[-1])["c2"] == "on second thought, no"


async def test_a_call_that_ran_cannot_be_decided_about_again():
    desk = Desk([asks(pay(5, "c1")), asks(pay(6, "c2")), says("done")])
    state = (await desk.run("hi")).to_state()
    item = state.get_interruptions()[0]
    state.approve(item)
    later = (await desk.run(state)).to_state()
    for decide in (later.approve, later.reject):
        with pytest.raises(ApprovalError, match="c1"):
            decide(item)


async def test_an_item_of_the_result_decides_about_a_state_that_was_loaded_elsewhere():
    """A call is known by its id, its tool and its arguments, not by an object."""
    desk = Desk([asks(pay(5, "c1")), says("done")])
    result = await desk.run("hi")
    state = await desk.reloaded(result.to_state())
    state.approve(result.interruptions[0])
    await desk.run(state)
    assert desk.done == [("pay", 5)]


async def test_what_was_approved_for_good_is_not_asked_about_again():
    desk = Desk([asks(pay(1, "c1"), pay(2, "c2")), asks(pay(3, "c3")), says("done")])
    state = (await desk.run("hi")).to_state()
    state.approve(state.get_interruptions()[0], always_approve=True)
    result = await desk.run(await desk.reloaded(state))
    assert result.final_output == "done"
    assert sorted(desk.done) == [("pay", 1), ("pay", 2), ("pay", 3)]


async def test_what_was_rejected_for_good_keeps_its_words_over_later_turns_and_another_save():
    desk = Desk([asks(pay(1, "c1")), asks(pay(2, "c2")), asks(look("sky", "c3"), pay(4, "c4")), says("done")])
    state = (await desk.run("hi")).to_state()
    state.reject(state.get_interruptions()[0], always_reject=True, rejection_message="never pay")
    result = await desk.run(await desk.reloaded(state))
    assert result.final_output == "done"
    answered = outputs(desk.sent[-1])
    assert {answered[one] for one in ("c1", "c2", "c4")} == {"never pay"}
    assert desk.done == [("look", "sky")]


async def test_a_decision_about_one_call_overrides_the_one_about_its_tool():
    desk = Desk([asks(pay(1, "c1"), pay(2, "c2")), says("done")])
    state = (await desk.run("hi")).to_state()
    first, second = state.get_interruptions()
    state.approve(first, always_approve=True)
    state.reject(second, rejection_message="not this one")
    await desk.run(await desk.reloaded(state))
    assert desk.done == [("pay", 1)]
    assert outputs(desk.sent[-1])["c2"] == "not this one"


async def test_of_two_decisions_for_good_the_last_counts():
    """As in the SDK: whoever takes back what they allowed is heard."""
    desk = Desk([asks(pay(1, "c1"), pay(2, "c2")), asks(pay(3, "c3")), says("done")])
    state = (await desk.run("hi")).to_state()
    first, second = state.get_interruptions()
    state.approve(first, always_approve=True)
    state.reject(second, always_reject=True)
    await desk.run(state)
    assert desk.done == [("pay", 1)]


async def test_resuming_with_nothing_decided_asks_nobody_writes_nothing_and_consumes_nothing():
    desk = Desk([asks(pay(5, "c1")), says("done")])
    session = InMemorySession("s")
    first = await desk.run("hi", session=session)
    state = first.to_state()
    text = state.to_string()
    before = await session.get_items()
    runs, _ = await Runner.list_runs(session=session)
    for _ in range(3):
        again = await desk.run(await RunState.from_string(desk.agent, text), session=session)
        assert [item.call_id for item in again.interruptions] == ["c1"]
    assert len(desk.sent) == 1
    assert await session.get_items() == before
    assert await Runner.list_runs(session=session) == (runs, None)
    state.approve(state.get_interruptions()[0])
    assert (await desk.run(state, session=session)).final_output == "done"


async def test_deciding_about_one_of_two_runs_that_one_and_waits_for_the_other():
    desk = Desk([asks(pay(1, "c1"), pay(2, "c2")), says("done")])
    state = (await desk.run("hi")).to_state()
    state.approve(state.get_interruptions()[1])
    result = await desk.run(await desk.reloaded(state))
    assert desk.done == [("pay", 2)]
    assert [item.call_id for item in result.interruptions] == ["c1"]
    assert len(desk.sent) == 1
    last = result.to_state()
    last.approve(last.get_interruptions()[0])
    await desk.run(last)
    assert desk.done == [("pay", 2), ("pay", 1)]
    assert list(outputs(desk.sent[-1])) == ["c1", "c2"]


async def test_the_interrupted_turn_is_not_counted_again():
    desk = Desk([asks(pay(1, "c1")), says("done")])
    state = (await desk.run("hi", max_turns=2)).to_state()
    assert (state.current_turn, state.max_turns) == (1, 2)
    state.approve(state.get_interruptions()[0])
    result = await desk.run(state, max_turns=99)
    assert result.final_output == "done"
    assert result.to_state().current_turn == 2
    assert result.max_turns == 2  # the state's, whatever is given when it is resumed


async def test_the_policy_of_a_tool_is_asked_once_for_each_call():
    asked: list[str] = []

    async def policy(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        asked.append(call_id)
        return True

    desk = Desk([asks(pay(1, "c1"), pay(2, "c2")), says("done")], needs_approval=policy)
    result = await desk.run("hi")
    while result.interruptions:
        state = await desk.reloaded(result.to_state())
        state.approve(state.get_interruptions()[0])
        result = await desk.run(state)
    assert sorted(asked) == ["c1", "c2"]


@pytest.mark.parametrize("before", [False, True])
async def test_a_tools_input_guardrails_look_again_before_the_side_effect(before: bool):
    looks: list[str] = []

    @tool_input_guardrail
    def closing_time(data: Any) -> ToolGuardrailFunctionOutput:
        looks.append(data.context.tool_call_id)
        if len(looks) > before:
            return ToolGuardrailFunctionOutput.reject_content("too late now")
        return ToolGuardrailFunctionOutput.allow()

    desk = Desk([asks(pay(1, "c1")), says("done")])
    desk.pay.tool_input_guardrails = [closing_time]
    config = RunConfig(tool_execution=ToolExecutionConfig(pre_approval_tool_input_guardrails=before))
    state = (await desk.run("hi", run_config=config)).to_state()
    state.approve(state.get_interruptions()[0])
    await desk.run(await desk.reloaded(state), run_config=config)
    assert looks == ["c1"] * (1 + before)
    assert desk.done == []
    assert outputs(desk.sent[-1]) == {"c1": "too late now"}


async def test_interruptions_are_copies():
    desk = Desk([asks(pay(5, "c1")), says("done")])
    state = (await desk.run("hi")).to_state()
    state.get_interruptions()[0].raw_item["arguments"] = json.dumps({"amount": 5000})
    assert json.loads(state.get_interruptions()[0].arguments or "") == {"amount": 5}


async def test_a_call_that_is_not_the_one_that_was_shown_is_refused():
    desk = Desk([asks(pay(5, "c1")), says("done")])
    state = (await desk.run("hi")).to_state()
    for change in ({"arguments": '{"amount":6}'}, {"name": "look"}, {"call_id": "c9"}):
        item = state.get_interruptions()[0]
        forged = ToolApprovalItem(item.agent, {**item.raw_item, **change})
        with pytest.raises(ApprovalError):
            state.approve(forged)
    with pytest.raises(ApprovalError):
        state.approve("c1")  # type: ignore[arg-type]  # what a program without types may pass
    assert [item.call_id for item in state.get_interruptions()] == ["c1"]


async def test_what_cannot_be_copied_is_said_so():
    class Stubborn(dict[str, Any]):
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("no copies")

    desk = Desk([asks(pay(5, "c1"))])
    result = await desk.run("hi")
    state = result.to_state()
    item = result.interruptions[0]
    item.raw_item = Stubborn(item.raw_item)
    with pytest.raises(UserError, match="c1"):
        state.get_interruptions()


async def test_decisions_made_on_the_context_wrapper_count():
    desk = Desk([asks(pay(5, "c1")), says("done")])
    state = (await desk.run("hi")).to_state()
    state.context_wrapper.approve_tool(state.get_interruptions()[0])
    assert (await desk.run(state)).final_output == "done"
    assert desk.done == [("pay", 5)]


# --- a provider's own approval requests ------------------------------------------------------------------------------


def hosted(call_id: str, name: str = "delete") -> dict[str, Any]:
    return {"type": "mcp_approval_request", "id": call_id, "name": name, "arguments": "{}", "server_label": "files"}


HOSTED_TOOL = {
    "type": "mcp",
    "server_label": "files",
    "server_url": "https://files.test",
    "require_approval": "always",
}


@pytest.mark.clause("C5", backend="runs")
@pytest.mark.parametrize("approve", [True, False])
async def test_a_hosted_tools_answer_is_an_item_that_is_sent_and_stored_once(approve: bool):
    desk = Desk([asks(hosted("m1")), says("done")], tools=[HostedMCPTool(tool_config=HOSTED_TOOL)])
    session = InMemorySession("s")
    result = await desk.run("hi", session=session)
    assert [item.call_id for item in result.interruptions] == ["m1"]
    state = await desk.reloaded(result.to_state())
    item = state.get_interruptions()[0]
    state.approve(item) if approve else state.reject(item, rejection_message="keep them")
    await desk.run(state, session=session)
    answer = {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": approve}
    expected = answer if approve else {**answer, "reason": "keep them"}
    stored = await session.get_items()
    assert [one for one in stored if one.get("type") == "mcp_approval_response"] == [expected]
    assert [one for one in desk.sent[-1] if one.get("type") == "mcp_approval_response"] == [expected]
    assert kinds(stored) == ["user", "mcp_approval_request m1", "mcp_approval_response m1", "assistant"]
    assert not any("tool_approval" in json.dumps(one) for one in stored)  # our placeholders never are (C5)


async def test_a_sticky_decision_covers_one_tool_of_one_server():
    other = {**hosted("m3"), "server_label": "mail"}
    desk = Desk([asks(hosted("m1")), asks(hosted("m2")), asks(other), says("done")])
    state = (await desk.run("hi")).to_state()
    state.approve(state.get_interruptions()[0], always_approve=True)
    result = await desk.run(await desk.reloaded(state))
    assert [item.call_id for item in result.interruptions] == ["m3"]


# --- what models give ------------------------------------------------------------------------------------------------


async def test_a_call_whose_arguments_are_no_text_can_be_decided_about_too():
    """Some models give an object. What the person sees, what is bound and what runs is the same text."""
    call = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": {"amount": 5}}
    desk = Desk([asks(call), says("done")])
    result = await desk.run("hi")
    state = await desk.reloaded(result.to_state())
    state.reject(state.get_interruptions()[0])
    state.approve(result.interruptions[0])
    await desk.run(state)
    assert desk.done == [("pay", 5)]


async def test_a_providers_own_objects_can_be_decided_about():
    call = responses.ResponseFunctionToolCall(
        arguments='{"amount":5}', call_id="c1", name="pay", type="function_call", id="c1"
    )
    desk = Desk([asks(call), says("done")])
    result = await desk.run("hi")
    state = result.to_state()
    (item,) = state.get_interruptions()
    assert isinstance(item.raw_item, responses.ResponseFunctionToolCall)
    assert item.raw_item is not result.interruptions[0].raw_item
    item.raw_item.arguments = '{"amount":6}'
    with pytest.raises(ApprovalError):
        state.approve(item)
    state = await desk.reloaded(state)
    state.approve(result.interruptions[0])
    await desk.run(state)
    assert desk.done == [("pay", 5)]
