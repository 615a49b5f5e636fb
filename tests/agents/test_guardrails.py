"""Guardrails: what they say, how several are asked, and that nothing of a judgement outlives it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.guardrails import (
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailResult,
    OutputGuardrail,
    input_guardrail,
    judge,
    output_guardrail,
)
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import (
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    UserError,
)
from standfast._src.tools.tool_guardrails import (
    ToolGuardrailFunctionOutput,
    ToolInputGuardrail,
    ToolInputGuardrailData,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
    judge_call,
    judge_output,
    tool_input_guardrail,
    tool_output_guardrail,
)

CTX: RunContextWrapper[Any] = RunContextWrapper(None)
CALL: ToolContext[Any] = ToolContext(None, tool_name="t", tool_call_id="c", tool_arguments="{}")


def fine(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput("fine", False)


def trips(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput("tripped", True)


async def ask(guardrail: InputGuardrail[Any]) -> InputGuardrailResult:
    return await guardrail.run("agent", "hello", CTX)


# --- one guardrail ---------------------------------------------------------------------------------------------------


async def test_guardrail_functions_may_be_sync_or_async():
    async def later(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        await asyncio.sleep(0)
        return GuardrailFunctionOutput((agent, value), True)

    assert (await InputGuardrail(fine).run("agent", "hi", CTX)).output.output_info == "fine"
    result = await OutputGuardrail(later).run(CTX, "agent", 42)
    assert (result.agent, result.agent_output, result.output.output_info) == ("agent", 42, ("agent", 42))


async def test_something_that_is_no_verdict_is_refused():
    with pytest.raises(UserError, match="no verdict"):
        await InputGuardrail(lambda ctx, agent, value: True).run("agent", "hi", CTX)  # type: ignore[arg-type,return-value]
    with pytest.raises(UserError, match="is an int"):
        await InputGuardrail(3).run("agent", "hi", CTX)  # type: ignore[arg-type]


def test_decorators_work_bare_and_with_arguments():
    @input_guardrail
    def bare(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        return fine(ctx, agent, value)

    @input_guardrail(name="polite", run_in_parallel=False)
    async def named(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        return fine(ctx, agent, value)

    @output_guardrail
    def out(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        return fine(ctx, agent, value)

    @tool_input_guardrail(name="tin")
    def tool_in(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow()

    @tool_output_guardrail
    def tool_out(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow()

    assert (bare.get_name(), bare.run_in_parallel) == ("bare", True)
    assert (named.get_name(), named.run_in_parallel) == ("polite", False)
    assert (out.get_name(), tool_in.get_name(), tool_out.get_name()) == ("out", "tin", "tool_out")


# --- several ---------------------------------------------------------------------------------------------------------


async def test_all_pass_and_results_stand_in_the_guardrails_order():
    gates = [asyncio.Event(), asyncio.Event()]

    async def first(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        gates[1].set()
        await gates[0].wait()
        return GuardrailFunctionOutput(1, False)

    async def second(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        await gates[1].wait()
        gates[0].set()
        return GuardrailFunctionOutput(2, False)

    results: list[Any] = []
    tripped = await judge([InputGuardrail(first), InputGuardrail(second)], ask, results)
    assert [result.output.output_info for result in results] == [1, 2]
    assert tripped is None


async def test_the_first_trip_cancels_and_awaits_the_rest():
    """Clause C6: nothing of a judgement goes on behind the run's back."""
    ended = []

    async def endless(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ended.append("endless")
        raise AssertionError("unreachable")

    results: list[Any] = []
    tripped = await judge([InputGuardrail(endless), InputGuardrail(fine), InputGuardrail(trips)], ask, results)
    assert ended == ["endless"]
    assert tripped is not None
    assert tripped.guardrail.get_name() == "trips"
    assert [result.guardrail.get_name() for result in results] == ["fine", "trips"]


async def test_a_guardrail_that_raises_ends_the_judgement_with_its_error():
    ended = []

    async def endless(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("endless")
        raise AssertionError("unreachable")

    async def broken(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await judge([InputGuardrail(endless), InputGuardrail(broken)], ask, [])
    assert ended == ["endless"]


async def test_a_verdict_beats_an_error_of_the_same_moment():
    async def broken(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        raise ZeroDivisionError

    async def tripping(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, True)

    results: list[Any] = []
    tripped = await judge([InputGuardrail(broken), InputGuardrail(tripping)], ask, results)
    assert tripped is not None
    assert results == [tripped]


async def test_cancelling_a_judgement_ends_every_guardrail():
    started, ended = [], []
    running = asyncio.Event()

    async def endless(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        started.append(1)
        if len(started) == 2:
            running.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(1)
        raise AssertionError("unreachable")

    task = asyncio.create_task(judge([InputGuardrail(endless), InputGuardrail(endless)], ask, []))
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(ended) == 2


async def test_one_guardrail_alone_is_asked_in_the_callers_task():
    seen = []

    def where(ctx: Any, agent: Any, value: Any) -> GuardrailFunctionOutput:
        seen.append(asyncio.current_task())
        return GuardrailFunctionOutput(None, True)

    results: list[Any] = []
    tripped = await judge([InputGuardrail(where)], ask, results)
    assert seen == [asyncio.current_task()]
    assert results == [tripped]


async def test_no_guardrail_is_no_verdict():
    assert await judge([], ask, []) is None


# --- tools -----------------------------------------------------------------------------------------------------------


def saying(output: ToolGuardrailFunctionOutput, log: list[Any] | None = None) -> Any:
    def guardrail(data: Any) -> ToolGuardrailFunctionOutput:
        if log is not None:
            log.append(getattr(data, "output", None))
        return output

    return guardrail


async def test_tool_guardrails_are_asked_in_order_until_one_rejects():
    log: list[Any] = []
    guardrails = [
        ToolInputGuardrail[Any](saying(ToolGuardrailFunctionOutput.allow("a"), log)),
        ToolInputGuardrail[Any](saying(ToolGuardrailFunctionOutput.reject_content("no", "b"), log)),
        ToolInputGuardrail[Any](saying(ToolGuardrailFunctionOutput.allow("c"), log)),
    ]
    results, rejection = await judge_call(guardrails, ToolInputGuardrailData(CALL, "agent"))
    assert rejection == "no"
    assert [result.output.output_info for result in results] == ["a", "b"]
    assert len(log) == 2


async def test_an_output_guardrail_replaces_what_the_model_reads():
    keep = ToolOutputGuardrail[Any](saying(ToolGuardrailFunctionOutput.allow()))
    hide = ToolOutputGuardrail[Any](saying(ToolGuardrailFunctionOutput.reject_content("[hidden]")))
    data = ToolOutputGuardrailData(CALL, "agent", {"secret": 1})
    assert (await judge_output([keep], data))[1] == {"secret": 1}
    assert (await judge_output([keep, hide], data))[1] == "[hidden]"


async def test_a_tool_guardrail_can_end_the_run():
    output = ToolGuardrailFunctionOutput.raise_exception("why")
    before = ToolInputGuardrail[Any](saying(output), name="before")
    with pytest.raises(ToolInputGuardrailTripwireTriggered, match="before") as tripped:
        await judge_call([before], ToolInputGuardrailData(CALL, "agent"))
    assert (tripped.value.guardrail, tripped.value.output) == (before, output)
    after = ToolOutputGuardrail[Any](saying(output), name="after")
    with pytest.raises(ToolOutputGuardrailTripwireTriggered, match="after"):
        await judge_output([after], ToolOutputGuardrailData(CALL, "agent", 1))


@pytest.mark.parametrize(
    "behavior", [{"type": "reject_content"}, {"type": "reject_content", "message": 3}, {"type": "?"}, {}]
)
async def test_a_behavior_nobody_understands_does_not_count_as_allowed(behavior: Any):
    guardrail = ToolInputGuardrail[Any](saying(ToolGuardrailFunctionOutput(None, behavior)))
    with pytest.raises(UserError, match="no known kind"):
        await judge_call([guardrail], ToolInputGuardrailData(CALL, "agent"))
    after = ToolOutputGuardrail[Any](saying(ToolGuardrailFunctionOutput(None, behavior)))
    with pytest.raises(UserError, match="no known kind"):
        await judge_output([after], ToolOutputGuardrailData(CALL, "agent", 1))
