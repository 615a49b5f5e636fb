"""Where a function decides about a call, it decides about the values that the tool gets; else a person does (C16)."""

from __future__ import annotations

import json
from datetime import date
from enum import Enum
from typing import Annotated, Any

import pytest
from hypothesis import given, strategies as st
from pydantic import AfterValidator, BaseModel, Field

from standfast import (
    Agent,
    FunctionTool,
    Runner,
    RunState,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    function_tool,
    tool_input_guardrail,
)
from standfast._src.base.errors import ApprovalError, InvalidSettingError
from standfast.testing import ScriptedModel, assistant_message, function_call

EXACT, OTHER = '{"euros": 50}', '{"euros": "5000"}'


class Till:
    """A tool that pays, the policies that may decide about it, and what they were asked."""

    def __init__(self) -> None:
        self.paid: list[Any] = []
        self.judged: list[Any] = []

    async def large(self, context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        self.judged.append(arguments)
        return type(arguments["euros"]) is int and arguments["euros"] > 100

    def small(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        self.judged.append(data.context.tool_arguments)
        return ToolGuardrailFunctionOutput.allow()

    def tool(self, kind: Any = int, **settings: Any) -> FunctionTool:
        async def pay(euros: Any) -> str:
            self.paid.append(euros)
            return f"paid {euros!r}"

        pay.__annotations__["euros"] = kind
        return function_tool(pay, **settings)

    def by_policy(self, kind: Any = int, **settings: Any) -> FunctionTool:
        return self.tool(kind, needs_approval=self.large, **settings)

    def by_guardrail(self, kind: Any = int, **settings: Any) -> FunctionTool:
        return self.tool(kind, tool_input_guardrails=[tool_input_guardrail(self.small)], **settings)


def clerk(tool: Any, arguments: str = OTHER) -> Agent[Any]:
    steps = [[function_call("pay", arguments, call_id="c1")], [assistant_message("done")]]
    return Agent(name="Clerk", tools=[tool], model=ScriptedModel(steps))


def told(agent: Agent[Any]) -> str:
    """The output of the call, as the model read it."""
    return str(agent.model.last_call.input[-1]["output"])  # type: ignore[union-attr,index]


# --- who decides -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["by_policy", "by_guardrail"])
async def test_a_function_decides_where_the_tool_gets_exactly_what_the_model_wrote(who: str):
    till = Till()
    result = await Runner.run(clerk(getattr(till, who)(), EXACT), "pay")
    assert result.interruptions == []
    assert (till.judged, till.paid) == ([{"euros": 50} if who == "by_policy" else EXACT], [50])


@pytest.mark.parametrize("who", ["by_policy", "by_guardrail"])
@pytest.mark.parametrize("arguments", [OTHER, '{"euros": 5000.0}', '{"euros": 5, "to": "me"}', '{"euros":5,"euros":5}'])
async def test_a_person_decides_where_the_tool_would_get_something_else(who: str, arguments: str):
    till = Till()
    agent = clerk(getattr(till, who)(), arguments)
    result = await Runner.run(agent, "pay")
    [asked] = result.interruptions
    assert (till.judged, till.paid) == ([], [])
    assert asked.arguments == arguments
    assert asked.prepared_arguments == json.dumps({"euros": 5000 if "5000" in arguments else 5})
    state = result.to_state()
    state.approve(asked)
    await Runner.run(agent, state)
    assert till.paid == [json.loads(asked.prepared_arguments)["euros"]]


async def test_a_filled_in_default_is_something_else():
    seen: list[Any] = []

    async def policy(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        seen.append(arguments)
        return False

    @function_tool(needs_approval=policy)
    def pay(euros: int, to: str = "the bank") -> str:
        """Pay."""
        raise AssertionError("nobody agreed")

    [asked] = (await Runner.run(clerk(pay, EXACT), "pay")).interruptions
    assert seen == []
    assert asked.prepared_arguments == '{"euros": 50, "to": "the bank"}'


@pytest.mark.parametrize("needs_approval", [True, False])
async def test_a_bool_decides_as_before_and_a_person_sees_the_values(needs_approval: bool):
    till = Till()
    result = await Runner.run(clerk(till.tool(needs_approval=needs_approval)), "pay")
    assert till.paid == ([] if needs_approval else [5000])
    assert [item.prepared_arguments for item in result.interruptions] == ['{"euros": 5000}'] * needs_approval


async def test_arguments_that_do_not_fit_are_no_question_for_a_guardrail_and_reach_no_policy():
    """The tool would get nothing. A policy cannot read them, which counts as "ask a person"; a guardrail reads text."""
    till = Till()
    agent = clerk(till.by_guardrail(), '{"euros": "many"}')
    assert (await Runner.run(agent, "pay")).final_output == "done"
    assert "euros" in told(agent)
    [asked] = (await Runner.run(clerk(till.by_policy(), '{"euros": "many"}'), "pay")).interruptions
    assert asked.prepared_arguments is None
    assert (till.judged, till.paid) == (['{"euros": "many"}'], [])


async def test_a_hand_made_tool_is_judged_on_the_text_that_it_gets():
    till = Till()

    async def run(context: Any, arguments: str) -> str:
        till.paid.append(arguments)
        return "paid"

    schema = {"type": "object", "properties": {"euros": {"type": "integer"}}}
    tool = FunctionTool("pay", "Pay.", schema, run, strict_json_schema=False, needs_approval=till.large)
    await Runner.run(clerk(tool), "pay")
    assert (till.judged, till.paid) == ([{"euros": "5000"}], [OTHER])


@pytest.mark.parametrize("arguments", ['{"euros": 5, "euros": 5000}', '{"to": {"iban": "a", "iban": "b"}}'])
async def test_a_key_that_is_written_twice_is_read_by_no_policy(arguments: str):
    """C16: a hand-made tool may pass the text on to a parser that takes the first one; Python's takes the last."""
    till = Till()

    async def run(context: Any, text: str) -> str:
        till.paid.append(text)
        return "paid"

    tool = FunctionTool("pay", "Pay.", {"type": "object"}, run, strict_json_schema=False, needs_approval=till.large)
    [asked] = (await Runner.run(clerk(tool, arguments), "pay")).interruptions
    assert (asked.arguments, till.judged, till.paid) == (arguments, [], [])


async def test_an_agent_used_as_a_tool_is_judged_like_any_other():
    asked_about: list[Any] = []

    async def policy(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        asked_about.append(arguments)
        return False

    async def run(text: str) -> Any:
        inner = Agent(name="Inner", model=ScriptedModel([[assistant_message("helped")]]))
        tool = inner.as_tool(tool_name="pay", tool_description="Pay.", needs_approval=policy)
        return await Runner.run(clerk(tool, text), "pay")

    assert (await run('{"input": "hi"}')).final_output == "done"
    assert asked_about == [{"input": "hi"}]
    [asked] = (await run('{"input": "hi", "all": true}')).interruptions
    assert asked.prepared_arguments == '{"input": "hi"}'
    assert len(asked_about) == 1


# --- code of the application -----------------------------------------------------------------------------------------


ran: list[Any] = []


def _noted(value: Any) -> Any:
    ran.append(value)
    return value


class Sum(BaseModel):
    """A model of the application, whose making is its own business."""

    amount: int

    def model_post_init(self, context: Any) -> None:
        ran.append(self.amount)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        (Annotated[int, AfterValidator(_noted)], EXACT),
        (list[Annotated[int, AfterValidator(_noted)]], '{"euros": [50]}'),
        (Sum, '{"euros": {"amount": 50}}'),
        (dict[str, Sum | None], '{"euros": {"a": {"amount": 50}}}'),
        (Annotated[list[int], Field(default_factory=lambda: [_noted(50)])], "{}"),
    ],
)
async def test_code_of_the_application_runs_only_after_a_person_agreed(kind: Any, arguments: str):
    ran.clear()
    till = Till()
    agent = clerk(till.by_policy(kind, strict_mode=False), arguments)
    result = await Runner.run(agent, "pay")
    [asked] = result.interruptions
    assert (ran, till.judged, till.paid) == ([], [], [])
    assert asked.prepared_arguments is None  # nobody can say before it runs
    state = result.to_state()
    state.approve(asked)
    await Runner.run(agent, state)
    assert ran == [50]
    assert len(till.paid) == 1


class Coin(Enum):
    CENT = "cent"


@pytest.mark.parametrize(
    ("kind", "written"),
    [(date, "2026-11-18"), (Coin, "cent"), (Sum, {"amount": 50}), (Annotated[int, AfterValidator(_noted)], 50)],
)
async def test_guardrails_alone_judge_the_text_of_types_that_json_does_not_have(kind: Any, written: Any):
    """openai-agents runs these calls, and text is the only form that a guardrail could see of such a value."""
    ran.clear()
    order: list[Any] = []

    def small(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        order.append((data.context.tool_arguments, list(ran)))
        return ToolGuardrailFunctionOutput.allow()

    till = Till()
    arguments = json.dumps({"euros": written})
    tool = till.tool(kind, strict_mode=False, tool_input_guardrails=[tool_input_guardrail(small)])
    result = await Runner.run(clerk(tool, arguments), "pay")
    assert (result.interruptions, len(till.paid)) == ([], 1)
    assert order == [(arguments, [])]


@pytest.mark.parametrize(
    ("arguments", "asks"),
    [
        ('{"euros": 50, "day": "2026-11-18", "note": "x"}', False),
        ('{"euros": "5000", "day": "2026-11-18", "note": "x"}', True),
        ('{"euros": 50, "day": "2026-11-18", "note": "x", "force": true}', True),
        ('{"euros": 50, "day": "2026-11-18"}', True),
        ('{"euros": 50, "euros": 5, "day": "2026-11-18", "note": "x"}', True),
        ('{"euros": "many", "day": "2026-11-18", "note": "x"}', False),
        ('{"euros": 50, "day": "20', False),
        ('{"day": "2026-11-18", "note": "x"}', False),
    ],
)
async def test_a_date_beside_it_hides_no_difference_from_guardrails(arguments: str, asks: bool):
    """Converted, dropped, filled in, written twice: each is certain, whatever the tool makes of the date."""
    paid: list[Any] = []
    guard = tool_input_guardrail(lambda data: ToolGuardrailFunctionOutput.allow())

    @function_tool(tool_input_guardrails=[guard], strict_mode=False)
    def pay(euros: int, day: date, note: str = "") -> str:
        """Pay."""
        paid.append((euros, day, note))
        return "paid"

    result = await Runner.run(clerk(pay, arguments), "pay")
    assert bool(result.interruptions) is asks
    runs = arguments == '{"euros": 50, "day": "2026-11-18", "note": "x"}'
    assert paid == ([(50, date(2026, 11, 18), "x")] if runs else [])


async def test_an_approval_of_every_call_lets_no_other_value_past_a_guardrail():
    """C16: "always" was said of a call that the guardrail could read. A call with other values waits by itself."""
    till = Till()
    tool = till.by_guardrail(needs_approval=True)
    steps: Any = [[function_call("pay", text, call_id=f"c{place}")] for place, text in enumerate([EXACT, EXACT, OTHER])]
    agent = Agent[Any](name="Clerk", tools=[tool], model=ScriptedModel([*steps, [assistant_message("done")]]))
    result = await Runner.run(agent, "pay")
    state = result.to_state()
    state.approve(result.interruptions[0], always_approve=True)
    result = await Runner.run(agent, state)
    [asked] = result.interruptions
    assert (asked.call_id, asked.prepared_arguments, till.paid) == ("c2", '{"euros": 5000}', [50, 50])
    state = result.to_state()
    state.approve(asked, always_approve=True)
    assert (await Runner.run(agent, state)).final_output == "done"
    assert till.paid == [50, 50, 5000]


# --- the setting -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("who", ["by_policy", "by_guardrail"])
async def test_a_tool_may_refuse_other_values_and_the_model_reads_which(who: str):
    till = Till()
    agent = clerk(getattr(till, who)(argument_mismatch="refuse"))
    result = await Runner.run(agent, "pay")
    assert (result.interruptions, result.final_output, till.judged, till.paid) == ([], "done", [], [])
    assert "did not run" in told(agent)
    assert "(euros)" in told(agent)
    assert "5000" not in told(agent)


async def test_refusing_asks_about_values_that_only_the_tools_own_code_can_tell():
    """A model could not write them in another way: refused, the tool could never be called."""
    till = Till()
    agent = clerk(till.by_policy(date, argument_mismatch="refuse"), '{"euros": "2026-11-18"}')
    result = await Runner.run(agent, "pay")
    assert (len(result.interruptions), till.judged, till.paid) == (1, [], [])
    state = result.to_state()
    state.approve(result.interruptions[0])
    await Runner.run(agent, state)
    assert till.paid == [date(2026, 11, 18)]


async def test_refusing_needs_a_function_that_decides():
    till = Till()
    await Runner.run(clerk(till.tool(argument_mismatch="refuse")), "pay")
    assert till.paid == [5000]
    with pytest.raises(InvalidSettingError, match="argument_mismatch"):
        till.tool(argument_mismatch="guess")


# --- what was shown is what runs -------------------------------------------------------------------------------------


async def _resumed(before: FunctionTool, after: FunctionTool, arguments: str) -> tuple[Any, Agent[Any]]:
    """Approve a call of one release's tool, through text, and go on with the next release's."""
    result = await Runner.run(clerk(before, arguments), "pay")
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    agent = clerk(after, arguments)
    agent.model = ScriptedModel([[assistant_message("done")]])
    return await Runner.run(agent, await RunState.from_string(agent, state.to_string())), agent


def _doubled(value: int) -> int:
    return value * 2


@pytest.mark.parametrize(
    ("before", "after", "arguments", "values"),
    [
        (int, float, OTHER, '{"euros": 5000.0}'),
        (int, Annotated[int, AfterValidator(_doubled)], EXACT, None),
        (Annotated[int, AfterValidator(_doubled)], int, OTHER, '{"euros": 5000}'),
        (float, int, '{"euros": 50.0}', EXACT),
    ],
)
async def test_a_call_whose_values_are_others_in_another_release_is_asked_about_again(
    before: Any, after: Any, arguments: str, values: str | None
):
    till = Till()
    tools = till.tool(before, needs_approval=True), till.tool(after, needs_approval=True)
    result, agent = await _resumed(*tools, arguments)
    [asked] = result.interruptions
    assert till.paid == []
    assert (asked.arguments, asked.prepared_arguments) == (arguments, values)
    state = result.to_state()
    state.approve(asked)
    assert (await Runner.run(agent, state)).final_output == "done"
    assert len(till.paid) == 1


@pytest.mark.parametrize(
    ("before", "after", "arguments"), [(int, int, OTHER), (Annotated[int, AfterValidator(_doubled)], int, EXACT)]
)
async def test_a_call_whose_values_are_the_same_needs_no_second_decision(before: Any, after: Any, arguments: str):
    till = Till()
    tools = till.tool(before, needs_approval=True), till.tool(after, needs_approval=True)
    result, _ = await _resumed(*tools, arguments)
    assert result.final_output == "done"
    assert till.paid == [int(json.loads(arguments)["euros"])]


async def test_a_decision_about_values_that_were_shown_before_does_not_count_for_the_others():
    """Two people look at one call: the first one's page still shows what the tool of the last release got."""
    till = Till()
    old = (await Runner.run(clerk(till.tool(needs_approval=True)), "pay")).interruptions[0]
    state = (await Runner.run(clerk(till.tool(float, needs_approval=True)), "pay")).to_state()
    with pytest.raises(ApprovalError, match="not the one that was shown"):
        state.approve(old)


# --- any arguments ---------------------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
KINDS: list[Any] = [int, float, bool, str, list[int], dict[str, float], int | None, str | int, Any]


@given(st.sampled_from(KINDS), VALUES)
async def test_a_function_is_asked_only_about_what_the_tool_gets(kind: Any, value: Any):
    """Whatever a model writes: either the policy saw the very values that the tool got, or neither saw any."""
    till = Till()

    async def policy(context: Any, arguments: dict[str, Any], call_id: str) -> bool:
        till.judged.append(arguments["euros"])
        return False

    await Runner.run(
        clerk(till.tool(kind, needs_approval=policy, strict_mode=False), json.dumps({"euros": value})), "pay"
    )
    assert [repr(one) for one in till.judged] == [repr(one) for one in till.paid]
