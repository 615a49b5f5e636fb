"""The path of one call, with an owner that is no run: the order of its steps, and whose failure is whose."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

import pytest

from standfast import Agent, ToolGuardrailFunctionOutput, function_tool, tool_input_guardrail
from standfast._src.agents.approvals import arguments_digest, tool_scope
from standfast._src.agents.tool_context import ToolContext
from standfast._src.runs.engine.run import Call, Decision
from standfast._src.runs.steps.reply_parsing import call_digest
from standfast._src.tools.approval import CallRefused, CallWaits
from standfast._src.tools.invocation import CallOutcome
from standfast._src.tools.tool_call import ConcurrencyLimit, OwnerFailed, answer_of, run_tool_call, settle_after_crash

ARGUMENTS = '{"amount": 1}'
ITEM = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": ARGUMENTS}


class Owner:
    """Whoever owns a call, as little as that can be."""

    def __init__(self, *, guardrails_before_approval: bool = False) -> None:
        self.log: list[str] = []
        self.formatter, self.hooks = None, None
        self.guardrails_before_approval = guardrails_before_approval

    def agent_key(self, agent: Any) -> str:
        return str(agent.name)

    async def record_decisions(self) -> None:
        self.log.append("decisions")

    async def begin(self, call: Call) -> None:
        self.log.append("begin")

    def place(self) -> AbstractAsyncContextManager[Any]:
        @asynccontextmanager
        async def taken() -> Any:
            self.log.append("place")
            yield

        return taken()

    def span(self, call: Call, tool: Any, agent: Any) -> AbstractContextManager[Any]:
        return nullcontext()


def paying(owner: Owner, needs_approval: Any = False, error: BaseException | None = None) -> Any:
    @tool_input_guardrail
    def small(data: Any) -> ToolGuardrailFunctionOutput:
        owner.log.append("guardrail")
        return ToolGuardrailFunctionOutput.allow()

    @function_tool(needs_approval=needs_approval, tool_input_guardrails=[small])
    async def pay(amount: int) -> str:
        """Pay."""
        owner.log.append("pay")
        if error is not None:
            raise error
        return "paid"

    return pay


async def carried(owner: Owner, tool: Any, **changes: Any) -> Any:
    call = Call("c1", "pay", "tool", ARGUMENTS, call_digest(ITEM), **changes)
    context = ToolContext(None, None, "pay", "c1", ARGUMENTS)  # type: ignore[arg-type]  # nobody counts here
    return await run_tool_call(owner, call, tool, context, agent=Agent(name="a"))


async def test_a_call_takes_a_place_and_is_noted_before_anything_of_it_happens():
    owner = Owner()
    outcome = await carried(owner, paying(owner))
    assert owner.log == ["decisions", "place", "begin", "guardrail", "pay"]
    assert answer_of(outcome, ITEM, paying(owner), "a").entry.item["output"] == "paid"


async def test_a_call_that_needs_a_person_waits_and_nothing_of_it_happens():
    owner = Owner()
    assert await carried(owner, paying(owner, needs_approval=True)) == CallWaits(values=ARGUMENTS)
    assert owner.log == ["decisions"]


async def test_guardrails_may_look_before_a_person_is_asked():
    owner = Owner(guardrails_before_approval=True)
    waits = await carried(owner, paying(owner, needs_approval=True))
    assert isinstance(waits, CallWaits)
    assert [one.guardrail.get_name() for one in waits.results] == ["small"]
    assert owner.log == ["decisions", "guardrail"]


@pytest.mark.parametrize("approved", [True, False])
async def test_a_decision_is_followed_and_the_policy_is_not_asked(approved: bool):
    owner = Owner()
    decision = Decision(approved, "c1", tool_scope("pay"), arguments_digest=arguments_digest(ARGUMENTS), message="no!")
    found = await carried(owner, paying(owner, needs_approval=True), decision=decision)
    if approved:
        assert owner.log == ["place", "begin", "guardrail", "pay"]
    else:
        assert found == CallRefused("no!")
        assert owner.log == []


async def test_a_failure_of_the_owner_inside_the_call_is_the_owners_again():
    """It is no failure of the tool: a model must not be told that the tool failed, and the run must end."""
    owner = Owner()
    with pytest.raises(LookupError, match="the store"):
        await carried(owner, paying(owner, error=OwnerFailed(LookupError("the store"))))


async def test_a_failure_met_while_the_begin_is_noted_passes_as_it_is():
    """It belongs to the run outside this one: turned into its error here, it would become a tool's output there."""

    class Nested(Owner):
        async def begin(self, call: Call) -> None:
            raise OwnerFailed(LookupError("the store"))

    with pytest.raises(OwnerFailed):
        await carried(Nested(), paying(Owner()))


def test_after_a_crash_only_a_tools_policy_repeats_a_call():
    tool = paying(Owner())
    call = Call("c1", "pay", "tool", ARGUMENTS, call_digest(ITEM), state="doubt")
    for policy in ("rerun", "ask", "report"):
        tool.on_unknown = policy
        assert settle_after_crash(call, tool) == policy
    assert settle_after_crash(call, None) == "report"


async def test_no_limit_of_places_costs_nothing():
    async with ConcurrencyLimit(None).one(), ConcurrencyLimit(None).one(), ConcurrencyLimit(1).one():
        pass


def test_what_a_call_came_to_is_json():
    outcome = CallOutcome({"a": 1}, "text", custom_data={"seen": [1]})
    answer = answer_of(outcome, ITEM, paying(Owner()), "a")
    assert answer.entry.extra == {"custom_data": {"seen": [1]}}
