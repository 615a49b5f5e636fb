"""CONTRACT part C, C1 to C6: what a run adds to a history, clause by clause, on every kind of session, in both modes.

Crashes have tests of their own (test_kill_between_effects, test_killed_process), and so have saved runs
(tests/driver/saved_runs).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    HandoffInputData,
    HostedMCPTool,
    InputGuardrailTripwireTriggered,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    RunHooks,
    RunState,
    Usage,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
)
from standfast._src.agents.run_config import CallModelData, ModelInputData
from standfast.testing import ModelStep, ScriptedModel, function_call, handoff_call

from .observing import SESSIONS
from .whole_runs import KINDS, RecordingAble, RecordingPlain, add, adding, go, kinds, outputs, said, user

pytestmark = [
    pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"]),
    pytest.mark.parametrize("kind", KINDS),
]
HISTORY = [user("yes"), {"role": "assistant", "content": "yes"}, user("yes")]


# --- C1: two lists ---------------------------------------------------------------------------------------------------


def _spoil(history: list[Any], new: list[Any]) -> list[Any]:
    for item in [*history, *new]:
        item["content"] = "spoilt"
    return history + new


CALLBACKS: dict[str, Callable[[list[Any], list[Any]], list[Any]]] = {
    "keeps": lambda history, new: history + new,
    "reverses": lambda history, new: [*reversed(new), *reversed(history)],
    "drops the history": lambda history, new: new,
    "drops everything": lambda history, new: [],
    "repeats": lambda history, new: history + history + new + new,
    "rebuilds": lambda history, new: [{"content": item["content"], "role": item["role"]} for item in history + new],
    "redacts": lambda history, new: [{**item, "content": "[redacted]"} for item in history] + new,
    "summarises": lambda history, new: [user(f"{len(history)} items before"), *new],
    "changes what it was given": _spoil,
}


@pytest.mark.clause("C1", "C2", backend="runs")
@pytest.mark.parametrize("name", CALLBACKS)
async def test_what_a_callback_returns_is_seen_by_the_model_and_never_stored(
    name: str, kind: str, streamed: bool, tmp_path: Path
) -> None:
    session = SESSIONS[kind](tmp_path)
    await session.add_items(HISTORY)
    given = [user("yes"), user("yes")]
    for number in range(1, 4):
        model = ScriptedModel([said(f"answer {number}")])
        config = RunConfig(session_input_callback=CALLBACKS[name])
        await go(Agent(name="A", model=model), given, streamed=streamed, session=session, run_config=config)
        stored = await session.get_items()
        assert len(stored) == len(HISTORY) + 3 * number
        assert stored[: len(HISTORY)] == HISTORY
        assert stored[-3:-1] == given
        if name == "drops everything":
            assert model.calls[0].input == []
        if name == "repeats":
            assert len(model.calls[0].input) == 2 * (len(stored) - 1)
        if name == "summarises":
            assert model.calls[0].input[0] == user(f"{len(stored) - 3} items before")
    assert given == [user("yes"), user("yes")], "the caller's own items were changed"


@pytest.mark.clause("C1", backend="runs")
async def test_the_caller_keeps_items_and_stores_keep_their_own(kind: str, streamed: bool, tmp_path: Path) -> None:
    """Changing what was given, after the run, changes nothing that was stored."""
    session, given = SESSIONS[kind](tmp_path), [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]
    await go(Agent(name="A", model=ScriptedModel([said("b")])), given, streamed=streamed, session=session)
    given[0]["content"][0]["text"] = "changed"  # type: ignore[index]
    assert (await session.get_items())[0]["content"][0]["text"] == "a"


# --- C2: callbacks and equal items -----------------------------------------------------------------------------------


@pytest.mark.clause("C2", backend="runs")
async def test_a_filter_gets_copies_and_changes_the_view_only(kind: str, streamed: bool, tmp_path: Path) -> None:
    session, model = SESSIONS[kind](tmp_path), ScriptedModel([[adding(1, "c1")], said("2")])
    await session.add_items(HISTORY)

    def spoil(data: CallModelData[Any]) -> ModelInputData:
        for item in data.model_data.input:
            item["content"] = "spoilt"
        return ModelInputData([user("only this")], "other instructions")

    config = RunConfig(call_model_input_filter=spoil)
    result = await go(
        Agent(name="A", model=model, tools=[add]), "go", streamed=streamed, session=session, run_config=config
    )
    assert [call.input for call in model.calls] == [[user("only this")]] * 2
    stored = await session.get_items()
    assert stored[: len(HISTORY)] == HISTORY
    assert kinds(stored[len(HISTORY) :]) == ["user", "function_call", "function_call_output", "assistant"]
    assert kinds(result.to_input_list())[-3:] == ["function_call", "function_call_output", "assistant"]


@pytest.mark.clause("C2", backend="runs")
async def test_equal_messages_are_all_stored_and_all_sent(kind: str, streamed: bool, tmp_path: Path) -> None:
    """Two people may both say "yes"."""
    session, model = SESSIONS[kind](tmp_path), ScriptedModel([said("yes"), said("yes")])
    agent = Agent(name="A", model=model)
    await go(agent, [user("yes"), user("yes")], streamed=streamed, session=session)
    await go(agent, "yes", streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user", "user", "assistant", "user", "assistant"]
    assert kinds(model.calls[1].input) == ["user", "user", "assistant", "user"]


@pytest.mark.clause("C2", backend="runs")
async def test_the_same_call_given_twice_is_one_with_its_latest_value(
    kind: str, streamed: bool, tmp_path: Path
) -> None:
    session, model = SESSIONS[kind](tmp_path), ScriptedModel([said("ok")])
    given = [
        user("before"),
        adding(1, "c1"),
        {"type": "function_call_output", "call_id": "c1", "output": "old"},
        user("between"),
        {"type": "function_call_output", "call_id": "c1", "output": "new"},
    ]
    await go(Agent(name="A", model=model), given, streamed=streamed, session=session)
    sent, stored = model.calls[0].input, await session.get_items()
    assert outputs(sent) == outputs(stored) == ["new"]
    assert kinds(stored).index("function_call") == 1, "a call keeps its earliest place"


# --- C3: whole turns -------------------------------------------------------------------------------------------------


@pytest.mark.clause("C3", backend="runs")
async def test_each_completed_turn_is_one_append_the_first_with_the_input(
    kind: str, streamed: bool, tmp_path: Path
) -> None:
    session: Any = RecordingPlain() if kind == "plain" else RecordingAble()
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    steps = [[thought, adding(1, "c1"), adding(2, "c2")], [adding(3, "c3")], said("done")]
    await go(Agent(name="A", model=ScriptedModel(steps), tools=[add]), "go", streamed=streamed, session=session)
    assert [kinds(batch) for batch in session.batches] == [
        ["user", "reasoning", "function_call", "function_call", "function_call_output", "function_call_output"],
        ["function_call", "function_call_output"],
        ["assistant"],
    ]
    assert outputs(session.batches[0]) == ["2", "4"]


@pytest.mark.clause("C3", backend="runs")
async def test_a_request_that_failed_leaves_nothing_so_a_plain_retry_doubles_nothing(
    kind: str, streamed: bool, tmp_path: Path
) -> None:
    session = SESSIONS[kind](tmp_path)
    model = ScriptedModel([RuntimeError("out"), said("hello")])
    agent = Agent(name="A", model=model)
    with pytest.raises(RuntimeError, match="out"):
        await go(agent, "hi", streamed=streamed, session=session)
    assert await session.get_items() == []
    await go(agent, "hi", streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user", "assistant"]
    assert model.calls[1].input == [user("hi")]


@pytest.mark.clause("C3", backend="runs")
async def test_completed_turns_survive_a_later_error(kind: str, streamed: bool, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)
    model = ScriptedModel([[adding(1, "c1")], RuntimeError("out"), said("2")])
    agent = Agent(name="A", model=model, tools=[add])
    with pytest.raises(RuntimeError, match="out") as caught:
        await go(agent, "hi", streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output"]
    state: RunState = caught.value.run_state  # type: ignore[attr-defined]
    result = await go(agent, state, streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output", "assistant"]
    assert result.final_output == "2"
    assert model.calls[2].input == model.calls[1].input


@pytest.mark.clause("C3", "C4", backend="runs")
async def test_handoff_items_are_stored_with_their_turn(kind: str, streamed: bool, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)
    other = Agent(name="Other", model=ScriptedModel([RuntimeError("out")]))
    agent = Agent(name="A", model=ScriptedModel([[handoff_call(other, call_id="h1")]]), handoffs=[other])
    with pytest.raises(RuntimeError):
        await go(agent, "hi", streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output"]


# --- C4: the unfiltered sequence ------------------------------------------------------------------------------------


@pytest.mark.clause("C4", backend="runs")
@pytest.mark.parametrize("through_json", [False, True], ids=["same process", "through JSON"])
async def test_a_filter_hides_from_the_next_agent_and_from_nobody_else(
    through_json: bool, kind: str, streamed: bool, tmp_path: Path
) -> None:
    """The filtered view survives a pause, serialised or not, and so does the whole sequence."""
    session = SESSIONS[kind](tmp_path)

    @function_tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    def nothing_before(data: HandoffInputData) -> HandoffInputData:
        return data.clone(input_history=(), pre_handoff_items=(), new_items=())

    second = ScriptedModel([[function_call("pay", {}, call_id="p1")], said("done")])
    other = Agent(name="Other", model=second, tools=[pay])
    first = ScriptedModel([[adding(1, "c1")], [handoff_call(other, call_id="h1")]])
    agent = Agent(name="A", model=first, tools=[add], handoffs=[handoff(other, input_filter=nothing_before)])
    result = await go(agent, "hi", streamed=streamed, session=session)
    state = result.to_state()
    if through_json:
        state = await RunState.from_string(agent, state.to_string())
    state.approve(state.get_interruptions()[0])
    result = await go(agent, state, streamed=streamed, session=session)
    assert second.calls[0].input == []
    assert kinds(second.calls[1].input) == ["function_call", "function_call_output"]
    whole = ["user", *["function_call", "function_call_output"] * 3, "assistant"]
    assert kinds(await session.get_items()) == whole
    assert kinds([item.to_input_item() for item in result.new_items]) == whole[1:]
    assert kinds(result.to_input_list()) == whole
    assert kinds(result.to_input_list(mode="normalized")) == ["function_call", "function_call_output", "assistant"]


# --- C5: nothing twice ----------------------------------------------------------------------------------------------


@pytest.mark.clause("C5", backend="runs")
@pytest.mark.parametrize("resumed", ["whole", "streamed"])
@pytest.mark.parametrize("through_json", [False, True], ids=["same process", "through JSON"])
async def test_an_interrupted_run_stores_each_item_once(
    through_json: bool, resumed: str, kind: str, streamed: bool, tmp_path: Path
) -> None:
    session, ran = SESSIONS[kind](tmp_path), []

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    calls = [function_call("pay", {"amount": n}, call_id=f"p{n}") for n in (1, 2)]
    model = ScriptedModel([[adding(1, "c0")], [calls[0], adding(2, "c1"), calls[1]], said("done")])
    agent = Agent(name="A", model=model, tools=[add, pay])
    result = await go(agent, "hi", streamed=streamed, session=session)
    before = await session.get_items()
    assert "tool_approval_item" not in kinds(before)
    assert kinds(before) == ["user", "function_call", "function_call_output"]
    for _ in range(2):  # one decision at a time
        state = result.to_state()
        if through_json:
            state = await RunState.from_string(agent, state.to_string())
        state.approve(state.get_interruptions()[0])
        result = await go(agent, state, streamed=resumed == "streamed", session=session)
    stored = await session.get_items()
    assert kinds(stored)[3:] == ["function_call"] * 3 + ["function_call_output"] * 3 + ["assistant"]
    assert outputs(stored)[1:] == ["paid 1", "4", "paid 2"]
    assert ran == [1, 2]


@pytest.mark.clause("C5", backend="runs")
async def test_a_providers_approval_response_is_stored_on_resume(kind: str, streamed: bool, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)
    request = {"type": "mcp_approval_request", "id": "m1", "name": "delete", "arguments": "{}", "server_label": "x"}
    hosted = HostedMCPTool(tool_config={"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1"})
    agent = Agent(name="A", model=ScriptedModel([[request], said("deleted")]), tools=[hosted])
    result = await go(agent, "hi", streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user"]
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    await go(agent, state, streamed=streamed, session=session)
    stored = await session.get_items()
    assert kinds(stored) == ["user", "mcp_approval_request", "mcp_approval_response", "assistant"]
    assert stored[2]["approve"] is True


@pytest.mark.clause("C5", backend="runs")
async def test_a_lost_acknowledgement_stores_a_turn_once(kind: str, streamed: bool, tmp_path: Path) -> None:
    session: Any = RecordingPlain(fail={1: "after"}) if kind == "plain" else RecordingAble(fail={1: "after"})
    agent = Agent(name="A", model=ScriptedModel([[adding(1, "c1")], said("2"), said("2")]), tools=[add])
    try:
        await go(agent, "hi", streamed=streamed, session=session)
    except OSError as error:
        state: RunState = error.run_state  # type: ignore[attr-defined]
        await go(agent, state, streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output", "assistant"]


# --- C6: guardrails --------------------------------------------------------------------------------------------------


def guard(*, trips: bool, parallel: bool, until: asyncio.Event | None = None, raises: bool = False) -> Any:
    @input_guardrail(name="guard", run_in_parallel=parallel)
    async def check(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        if until is not None:
            await until.wait()
            await asyncio.sleep(0.02)  # the reply is on its way; it must not begin anything
        if raises:
            raise RuntimeError("no verdict")
        return GuardrailFunctionOutput(None, trips)

    return check


class Watched(ScriptedModel):
    """A model that says when it has been asked."""

    def __init__(self, steps: Any) -> None:
        super().__init__(steps)
        self.asked = asyncio.Event()

    async def get_response(self, *args: Any, **named: Any) -> Any:
        self.asked.set()
        return await super().get_response(*args, **named)

    async def stream_response(self, *args: Any, **named: Any) -> Any:
        self.asked.set()
        async for event in super().stream_response(*args, **named):
            yield event


@pytest.mark.clause("C6", backend="runs")
@pytest.mark.parametrize("parallel", [False, True], ids=["sequential", "parallel"])
async def test_an_input_trip_leaves_exactly_the_input(
    parallel: bool, kind: str, streamed: bool, tmp_path: Path
) -> None:
    session, ran = SESSIONS[kind](tmp_path), []
    await session.add_items(HISTORY)

    @function_tool
    async def act() -> str:
        """Do something."""
        ran.append(1)
        return "done"

    model = Watched([[function_call("act", {}, call_id="c1")], said("never")])
    watch = guard(trips=True, parallel=parallel, until=model.asked if parallel else None)
    agent = Agent(name="A", model=model, tools=[act], input_guardrails=[watch])
    with pytest.raises(InputGuardrailTripwireTriggered) as caught:
        await go(agent, [user("a"), user("b")], streamed=streamed, session=session)
    assert await session.get_items() == [*HISTORY, user("a"), user("b")]
    assert not ran, "a call began before the verdict"
    assert len(model.calls) == (1 if parallel else 0), "a model call followed the trip"
    assert caught.value.run_data.new_items == []


@pytest.mark.clause("C6", backend="runs")
async def test_no_turn_is_stored_and_no_call_begins_before_a_late_guardrail_has_passed(
    kind: str, streamed: bool, tmp_path: Path
) -> None:
    order: list[str] = []
    session: Any = RecordingPlain() if kind == "plain" else RecordingAble()

    @function_tool
    async def act() -> str:
        """Do something."""
        order.append("act")
        return "done"

    @input_guardrail
    async def late(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await model.asked.wait()
        await asyncio.sleep(0.03)
        assert session.batches == []
        order.append("passed")
        return GuardrailFunctionOutput(None, False)

    model = Watched([[function_call("act", {}, call_id="c1")], said("ok")])
    await go(
        Agent(name="A", model=model, tools=[act], input_guardrails=[late]), "go", streamed=streamed, session=session
    )
    assert order == ["passed", "act"]


def judge(*, trips: bool = True, raises: bool = False) -> Any:
    @output_guardrail(name="judge")
    async def check(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        if raises:
            raise RuntimeError("no verdict")
        return GuardrailFunctionOutput(None, trips)

    return check


@pytest.mark.clause("C6", backend="runs")
async def test_an_output_trip_keeps_earlier_turns_and_drops_the_message(
    kind: str, streamed: bool, tmp_path: Path
) -> None:
    session = SESSIONS[kind](tmp_path)
    model = ScriptedModel([[adding(1, "c1")], said("a secret")])
    agent = Agent(name="A", model=model, tools=[add], output_guardrails=[judge()])
    with pytest.raises(OutputGuardrailTripwireTriggered):
        await go(agent, "hi", streamed=streamed, session=session)
    stored = await session.get_items()
    assert kinds(stored) == ["user", "function_call", "function_call_output"]
    assert "a secret" not in str(stored)


@pytest.mark.clause("C6", backend="runs")
async def test_a_tools_result_that_trips_is_withheld_and_its_call_kept(
    kind: str, streamed: bool, tmp_path: Path
) -> None:
    session = SESSIONS[kind](tmp_path)
    agent = Agent(
        name="A",
        model=ScriptedModel([[adding(21, "c1")]]),
        tools=[add],
        tool_use_behavior="stop_on_first_tool",
        output_guardrails=[judge()],
    )
    with pytest.raises(OutputGuardrailTripwireTriggered) as caught:
        await go(agent, "hi", streamed=streamed, session=session)
    stored = await session.get_items()
    assert kinds(stored) == ["user", "function_call", "function_call_output"]
    assert "42" not in str(stored)
    assert "withheld" in outputs(stored)[0].lower()
    assert caught.value.run_data.new_items, "what was accumulated is handed over"


@pytest.mark.clause("C6", backend="runs")
@pytest.mark.parametrize("parallel", [False, True], ids=["sequential", "parallel"])
async def test_an_input_guardrail_that_raises_leaves_nothing(
    parallel: bool, kind: str, streamed: bool, tmp_path: Path
) -> None:
    session = SESSIONS[kind](tmp_path)
    model = Watched([[adding(1, "c1")], said("never")])
    broken = guard(trips=False, parallel=parallel, raises=True, until=model.asked if parallel else None)
    agent = Agent(name="A", model=model, tools=[add], input_guardrails=[broken])
    with pytest.raises(RuntimeError, match="no verdict"):
        await go(agent, "hi", streamed=streamed, session=session)
    assert await session.get_items() == []


@pytest.mark.clause("C6", backend="runs")
async def test_after_an_output_guardrail_that_raises_the_turn_is_stored(
    kind: str, streamed: bool, tmp_path: Path
) -> None:
    session = SESSIONS[kind](tmp_path)
    agent = Agent(name="A", model=ScriptedModel([said("an answer")]), output_guardrails=[judge(raises=True)])
    with pytest.raises(RuntimeError, match="no verdict"):
        await go(agent, "hi", streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user", "assistant"]


@pytest.mark.clause("C11", backend="runs")
@pytest.mark.parametrize("arrived", [False, True], ids=["cut before the reply", "cut after it"])
async def test_tokens_of_a_cut_call_count_only_if_its_reply_had_arrived(
    arrived: bool, kind: str, streamed: bool, tmp_path: Path
) -> None:
    session, replied = SESSIONS[kind](tmp_path), asyncio.Event()
    usage = Usage(requests=1, input_tokens=7, total_tokens=7)
    model = Watched([ModelStep(output=said("hello"), usage=usage, delay_s=0.0 if arrived else 3600.0)])

    class Hooks(RunHooks[Any]):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            replied.set()

    @input_guardrail
    async def late(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await (replied if arrived else model.asked).wait()
        return GuardrailFunctionOutput(None, True)

    agent = Agent(name="A", model=model, input_guardrails=[late])
    with pytest.raises(InputGuardrailTripwireTriggered) as caught:
        await go(agent, "hi", streamed=streamed, session=session, hooks=Hooks())
    assert caught.value.run_data.context_wrapper.usage.total_tokens == (7 if arrived else 0)
