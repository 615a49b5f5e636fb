"""What the OpenAI Agents SDK does wrong, as found by probing it: each is a test that ours does not.

The numbers are those of spec/runner.md part 8 and, with a W, of spec/sessions.md 5.1. One is kept on purpose (14): see
docs/decisions/042-sdk-programs-run.md.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    AgentHooks,
    GuardrailFunctionOutput,
    InMemorySession,
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
    OwnerError,
    RunClaimedError,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    SQLiteSession,
    UserError,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
)
from standfast._src.agents.run_config import CallModelData
from standfast.testing import ModelStep, ScriptedModel, function_call, handoff_call

from .observing import SESSIONS
from .whole_runs import KINDS, RecordingAble, RecordingPlain, add, adding, go, kinds, outputs, said, user

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
every_session = pytest.mark.parametrize("kind", KINDS)


def paying(ran: list[Any], **options: Any) -> Any:
    @function_tool(**options)
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    return pay


# --- 1, 4, 5, 15, 16: who owns the conversation ----------------------------------------------------------------------


@both_modes
async def test_1_a_server_owned_run_keeps_all_its_turns(streamed: bool) -> None:
    model = ScriptedModel([[adding(1, "c1")], [adding(2, "c2")], [adding(3, "c3")], said("done")])
    agent = Agent(name="A", model=model, tools=[add])
    result = await go(agent, "go", streamed=streamed, conversation_id="conv_1")
    whole = ["user", *["function_call", "function_call_output"] * 3, "assistant"]
    assert kinds(result.to_input_list(mode="normalized")) == whole
    assert kinds(result.to_input_list()) == whole
    payload = result.to_state().to_json()
    assert len(payload["ledger"]) == len(whole)
    assert [len(call.input) for call in model.calls] == [1, 1, 1, 1]


@both_modes
async def test_4_a_chain_without_response_ids_replays_everything(streamed: bool) -> None:
    steps = [ModelStep(output=[adding(1, "c1")], response_id=None), ModelStep(output=said("2"), response_id=None)]
    model = ScriptedModel(steps)
    await go(Agent(name="A", model=model, tools=[add]), "go", streamed=streamed, auto_previous_response_id=True)
    assert kinds(model.calls[1].input) == ["user", "function_call", "function_call_output"]
    assert model.calls[1].previous_response_id is None


@both_modes
async def test_5_a_state_is_not_resumed_under_another_owner(streamed: bool) -> None:
    agent = Agent(
        name="A",
        model=ScriptedModel([[function_call("pay", {"amount": 1}, call_id="p1")]]),
        tools=[paying([], needs_approval=True)],
    )
    state = (await go(agent, "go", streamed=streamed)).to_state()
    state.approve(state.get_interruptions()[0])
    with pytest.raises(OwnerError):
        await go(agent, state, streamed=streamed, conversation_id="conv_1")
    with pytest.raises(OwnerError):
        await go(agent, state, streamed=streamed, session=InMemorySession("s"))


@both_modes
async def test_15_two_owners_and_a_filter_without_a_list_are_refused(streamed: bool) -> None:
    model = ScriptedModel([said("never")])
    agent = Agent(name="A", model=model)
    with pytest.raises(OwnerError):
        await go(agent, "go", streamed=streamed, conversation_id="conv_1", previous_response_id="resp_1")

    def wrong(data: CallModelData[Any]) -> Any:
        data.model_data.input = ("not", "a", "list")  # type: ignore[assignment]
        return data.model_data

    with pytest.raises(UserError, match="call_model_input_filter"):
        await go(agent, "go", streamed=streamed, run_config=RunConfig(call_model_input_filter=wrong))
    assert not model.calls


@both_modes
async def test_16_a_handoff_filter_is_refused_before_anything_is_paid_for(streamed: bool) -> None:
    model = ScriptedModel([[adding(1, "c1")], said("never")])
    other = Agent(name="Other", model=ScriptedModel([said("never")]))
    agent = Agent(name="A", model=model, tools=[add], handoffs=[handoff(other, input_filter=lambda data: data)])
    with pytest.raises(UserError, match="filter"):
        await go(agent, "go", streamed=streamed, conversation_id="conv_1")
    plain = Agent(name="A", model=model, handoffs=[other])
    config = RunConfig(handoff_input_filter=lambda data: data)
    with pytest.raises(UserError, match="filter"):
        await go(plain, "go", streamed=streamed, conversation_id="conv_1", run_config=config)
    assert not model.calls


# --- 2, 7, 8, 9, W1 to W7: sessions ----------------------------------------------------------------------------------


class Locked(Exception):
    """What a provider says while another response is being written."""

    code, status_code = "conversation_locked", 400


@both_modes
async def test_2_w7_a_locked_conversation_is_retried_and_nothing_is_ever_popped(
    streamed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio, "sleep", _no_waiting(asyncio.sleep))
    session = RecordingPlain()
    await session.add_items([user("before"), {"role": "assistant", "content": "ok"}])
    model = ScriptedModel([Locked("locked"), Locked("locked"), said("hello")])
    await go(Agent(name="A", model=model), "hi", streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user", "assistant", "user", "assistant"]
    assert session.pops == 0
    assert [call.input for call in model.calls] == [model.calls[0].input] * 3


def _no_waiting(sleep: Any) -> Any:
    async def at_once(delay: float, result: Any = None) -> Any:
        return await sleep(0, result)

    return at_once


@every_session
@both_modes
async def test_7_w1_a_plain_retry_doubles_no_message(streamed: bool, kind: str, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)
    model = ScriptedModel([RuntimeError("out"), RuntimeError("out"), said("hello")])
    agent = Agent(name="A", model=model)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            await go(agent, "hi", streamed=streamed, session=session)
    await go(agent, "hi", streamed=streamed, session=session)
    assert kinds(await session.get_items()) == ["user", "assistant"]
    assert model.calls[2].input == [user("hi")]


@both_modes
@pytest.mark.parametrize("how", ["state", "run id"])
async def test_8_a_failed_write_after_a_tool_ran_does_not_run_it_again(how: str, streamed: bool) -> None:
    ran: list[Any] = []
    session = RecordingAble(fail={1: "refused"})
    steps = [[function_call("pay", {"amount": 1}, call_id="p1")], said("paid"), said("paid")]
    agent = Agent(name="A", model=ScriptedModel(steps), tools=[paying(ran)])
    config = RunConfig(run_id="r")
    with pytest.raises(OSError, match="refused") as caught:
        await go(agent, "go", streamed=streamed, session=session, run_config=config)
    if how == "state":
        state: RunState = caught.value.run_state  # type: ignore[attr-defined]
        await go(agent, state, streamed=streamed, session=session)
    else:
        await go(agent, "go", streamed=streamed, session=session, run_config=config)
    assert ran == [1]
    assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output", "assistant"]
    assert outputs(await session.get_items()) == ["paid 1"]


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@both_modes
async def test_6_w2_one_saved_state_is_resumed_once(streamed: bool, kind: str, tmp_path: Path) -> None:
    session, ran = SESSIONS[kind](tmp_path), []
    steps = [[function_call("pay", {"amount": 1}, call_id="p1")], said("done"), said("done")]
    agent = Agent(name="A", model=ScriptedModel(steps), tools=[paying(ran, needs_approval=True)])
    result = await go(agent, "go", streamed=streamed, session=session)
    text = result.to_state().to_string()

    async def worker() -> Any:
        state = await RunState.from_string(agent, text)
        state.approve(state.get_interruptions()[0])
        return await go(agent, state, streamed=streamed, session=session)

    done = await asyncio.gather(worker(), worker(), return_exceptions=True)
    assert sorted(type(one).__name__ for one in done if isinstance(one, BaseException)) == ["RunClaimedError"]
    with pytest.raises(RunClaimedError):
        await worker()
    assert ran == [1]
    assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output", "assistant"]


@every_session
@both_modes
async def test_9_w3_two_runs_do_not_interleave(streamed: bool, kind: str, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)
    models = [ScriptedModel([ModelStep(output=said(f"answer {name}"), delay_s=0.02)]) for name in "AB"]
    agents = [Agent(name=name, model=model) for name, model in zip("AB", models, strict=True)]
    await asyncio.gather(*(go(agent, f"question {agent.name}", streamed=streamed, session=session) for agent in agents))
    assert kinds(await session.get_items()) == ["user", "assistant", "user", "assistant"]
    assert sorted(len(model.calls[0].input) for model in models) == [1, 3], "the second sees all of the first"


@every_session
@both_modes
async def test_w4_a_resumed_run_sees_what_was_added_meanwhile(streamed: bool, kind: str, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)
    model = ScriptedModel([[function_call("pay", {"amount": 1}, call_id="p1")], said("done")])
    agent = Agent(name="A", model=model, tools=[paying([], needs_approval=True)])
    result = await go(agent, "go", streamed=streamed, session=session)
    text = result.to_state().to_string()
    await go(Agent(name="B", model=ScriptedModel([said("meanwhile")])), "something else", session=session)
    state = await RunState.from_string(agent, text)
    state.approve(state.get_interruptions()[0])
    await go(agent, state, streamed=streamed, session=session)
    sent = model.calls[1].input
    assert kinds(sent) == ["user", "user", "assistant", "function_call", "function_call_output"]
    assert kinds(await session.get_items()) == [*kinds(sent), "assistant"], "a call and its output stay together"


@every_session
async def test_w4_a_saved_state_does_not_hold_the_history_a_second_time(kind: str, tmp_path: Path) -> None:
    session = SESSIONS[kind](tmp_path)
    await session.add_items([user(f"message {number} " + "x" * 100) for number in range(500)])
    agent = Agent(
        name="A",
        model=ScriptedModel([[function_call("pay", {"amount": 1}, call_id="p1")]]),
        tools=[paying([], needs_approval=True)],
    )
    result = await go(agent, "go", session=session)
    assert len(json.dumps(result.to_state().to_json())) < 5_000


@every_session
@both_modes
async def test_w5_a_callback_that_rewrites_history_adds_nothing_to_it(
    streamed: bool, kind: str, tmp_path: Path
) -> None:
    session = SESSIONS[kind](tmp_path)

    def redact(history: list[Any], new: list[Any]) -> list[Any]:
        return [user("[redacted]") if item.get("role") == "user" else item for item in history] + new

    for number in range(3):
        agent = Agent(name="A", model=ScriptedModel([said("ok")]))
        config = RunConfig(session_input_callback=redact)
        await go(agent, f"secret {number}", streamed=streamed, session=session, run_config=config)
    stored = await session.get_items()
    assert len(stored) == 6
    assert "[redacted]" not in str(stored)


@every_session
@pytest.mark.parametrize("where", ["on_llm_start", "instructions"])
async def test_w6_an_early_failure_leaves_the_same_in_both_modes(where: str, kind: str, tmp_path: Path) -> None:
    class Hooks(RunHooks[Any]):
        async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
            if where == "on_llm_start":
                raise RuntimeError("a hook")

    def instructions(context: Any, agent: Any) -> str:
        if where == "instructions":
            raise RuntimeError("instructions")
        return "be kind"

    left = []
    for streamed in (False, True):
        session = SESSIONS[kind](tmp_path)
        agent = Agent(name="A", model=ScriptedModel([said("never")]), instructions=instructions)
        with pytest.raises(RuntimeError):
            await go(agent, "hi", streamed=streamed, session=session, hooks=Hooks())
        left.append(await session.get_items())
    assert left == [[], []]


async def test_w8_a_turn_costs_what_is_new_and_not_what_is_old() -> None:
    """Counted in calls of Python functions, which no machine makes faster."""

    async def calls_made(history: int, turns: int) -> int:
        session = InMemorySession("s")
        await session.add_items([user(f"message {number}") for number in range(history)])
        steps = [*([adding(number, f"c{number}")] for number in range(turns)), said("done")]
        agent = Agent(name="A", model=ScriptedModel(steps, record_calls=False), tools=[add])
        count = 0

        def counting(frame: Any, event: str, argument: Any) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(counting)
        try:
            await Runner.run(agent, "go", session=session, max_turns=None)
        finally:
            sys.setprofile(None)
        return count

    await calls_made(10, 2)  # whatever is done once in a process
    short = await calls_made(50, 30) - await calls_made(50, 10)
    long = await calls_made(3000, 30) - await calls_made(3000, 10)
    assert long < short * 1.1, f"20 turns cost {short} calls on 50 items of history and {long} on 3,000"


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_w9_a_call_is_written_down_before_it_runs(kind: str, tmp_path: Path) -> None:
    """What a crash would leave: seen by another process's eyes while the tool is at work."""
    session, seen = SESSIONS[kind](tmp_path), []

    @function_tool
    async def pay() -> str:
        """Pay."""
        other = session if kind == "memory" else SQLiteSession("s", session.db_path)
        state = await Runner.load(agent, "r", session=other)
        seen.extend((record.tool_name, record.status) for record in state.get_calls())
        return "paid"

    agent: Agent[Any] = Agent(
        name="A", model=ScriptedModel([[function_call("pay", {}, call_id="p1")], said("done")]), tools=[pay]
    )
    await go(agent, "go", session=session, run_config=RunConfig(run_id="r"))
    assert seen == [("pay", "started")]


@every_session
@both_modes
async def test_w9b_orphans_never_reach_the_model(streamed: bool, kind: str, tmp_path: Path) -> None:
    session, model = SESSIONS[kind](tmp_path), ScriptedModel([said("ok")])
    await session.add_items([{"type": "function_call_output", "call_id": "gone", "output": "?"}, user("before")])
    await go(Agent(name="A", model=model), "hi", streamed=streamed, session=session)
    assert model.calls[0].input == [user("before"), user("hi")]


@both_modes
async def test_w9c_a_compaction_that_fails_does_not_fail_a_run(streamed: bool) -> None:
    class Compacting(InMemorySession):
        async def run_compaction(self, args: Any = None) -> None:
            raise RuntimeError("the endpoint is down")

    session = Compacting("s")
    result = await go(Agent(name="A", model=ScriptedModel([said("ok")])), "hi", streamed=streamed, session=session)
    assert result.final_output == "ok"
    assert kinds(await session.get_items()) == ["user", "assistant"]


# --- 3, 10 to 13: guardrails -----------------------------------------------------------------------------------------


@every_session
@both_modes
async def test_3_no_request_follows_a_slow_tripwire(streamed: bool, kind: str, tmp_path: Path) -> None:
    session, replied = SESSIONS[kind](tmp_path), asyncio.Event()

    class Hooks(RunHooks[Any]):
        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            replied.set()

    @input_guardrail
    async def slow(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await replied.wait()
        await asyncio.sleep(0.02)
        return GuardrailFunctionOutput(None, True)

    model = ScriptedModel([[adding(1, "c1")], said("never")])
    agent = Agent(name="A", model=model, tools=[add], input_guardrails=[slow])
    with pytest.raises(InputGuardrailTripwireTriggered):
        await go(agent, "hi", streamed=streamed, session=session, hooks=Hooks())
    assert len(model.calls) == 1


@every_session
async def test_10_11_12_guardrails_see_and_leave_the_same_in_both_modes(kind: str, tmp_path: Path) -> None:
    seen: list[Any] = []
    left: list[Any] = []
    for streamed in (False, True):
        for raises in (False, True):
            session = SESSIONS[kind](tmp_path)

            @input_guardrail
            async def look(context: Any, agent: Any, given: Any, raises: bool = raises) -> GuardrailFunctionOutput:
                seen.append(given)
                await asyncio.sleep(0.01)
                if raises:
                    raise RuntimeError("asleep")
                return GuardrailFunctionOutput(None, True)

            agent = Agent(
                name="A", model=ScriptedModel([[adding(1, "c1")], said("2")]), tools=[add], input_guardrails=[look]
            )
            with pytest.raises((InputGuardrailTripwireTriggered, RuntimeError)) as caught:
                await go(agent, "hi", streamed=streamed, session=session)
            data = getattr(caught.value, "run_data", None)
            left.append((raises, await session.get_items(), None if data is None else list(data.new_items)))
    assert seen == ["hi"] * 4
    assert left[:2] == left[2:]
    assert left[0][1] == [user("hi")]
    assert left[1][1] == []


@both_modes
async def test_13_a_withheld_tool_result_still_says_what_was_done(streamed: bool) -> None:
    @output_guardrail
    async def judge(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(None, True)

    agent = Agent(
        name="A",
        model=ScriptedModel([[adding(1, "c1")]]),
        tools=[add],
        tool_use_behavior="stop_on_first_tool",
        output_guardrails=[judge],
    )
    with pytest.raises(OutputGuardrailTripwireTriggered) as caught:
        await go(agent, "hi", streamed=streamed)
    data = caught.value.run_data
    assert [item.type for item in data.new_items] == ["tool_call_item", "tool_call_output_item"]
    assert len(data.raw_responses) == 1


# --- 14, 17, 18, 19 --------------------------------------------------------------------------------------------------


async def test_14_the_agent_that_hands_over_has_its_hooks_called() -> None:
    """Kept on purpose: programs written for the SDK count on what it does, not on what its guide says."""
    called: list[str] = []

    class Hooks(AgentHooks[Any]):
        def __init__(self, whose: str) -> None:
            self.whose = whose

        async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
            called.append(f"{self.whose}: {source.name} to {agent.name}")

    other = Agent(name="Other", model=ScriptedModel([said("hi")]), hooks=Hooks("target"))
    model = ScriptedModel([[handoff_call(other, call_id="h1")]])
    await go(Agent(name="A", model=model, handoffs=[other], hooks=Hooks("source")), "go")
    assert called == ["source: A to Other"]
    decision = Path(__file__).parents[2] / "docs" / "decisions" / "042-sdk-programs-run.md"
    assert "on_handoff" in decision.read_text(encoding="utf-8"), "a deviation from the guide is written down"


@both_modes
async def test_17_a_model_is_told_what_was_wrong_with_its_arguments(streamed: bool) -> None:
    model = ScriptedModel([[function_call("add", {"a": "many", "b": 1}, call_id="c1")], said("sorry")])
    await go(Agent(name="A", model=model, tools=[add]), "go", streamed=streamed)
    told = outputs(model.calls[1].input)[0]
    assert "a" in told
    assert "int" in told


async def test_18_an_immediate_cancel_spends_no_turn() -> None:
    model = ScriptedModel([ModelStep.hang(), said("done")])
    agent = Agent(name="A", model=model)
    result = Runner.run_streamed(agent, "go", max_turns=1)
    watching = asyncio.create_task(_watch(result))
    await model.wait_for_call()
    result.cancel()
    await watching
    assert result.current_turn == 0
    resumed = await go(agent, result.to_state())
    assert resumed.final_output == "done"


async def _watch(result: Any) -> None:
    async for _ in result.stream_events():
        pass


async def test_19_no_limit_means_no_limit_for_an_agent_used_as_a_tool_too() -> None:
    inner_steps = [*([adding(number, f"i{number}")] for number in range(14)), said("inner done")]
    inner = Agent(name="Inner", model=ScriptedModel(inner_steps), tools=[add])
    ask = inner.as_tool("ask", "Ask.", max_turns=None)
    outer_steps = [[function_call("ask", {"input": "?"}, call_id="o1")], said("outer done")]
    result = await go(Agent(name="Outer", model=ScriptedModel(outer_steps), tools=[ask]), "go")
    assert "inner done" in str(result.to_input_list())

    limited = Agent(name="Inner", model=ScriptedModel(inner_steps), tools=[add])
    strict = limited.as_tool("ask", "Ask.", max_turns=3, failure_error_function=None)
    with pytest.raises(MaxTurnsExceeded):
        await go(Agent(name="Outer", model=ScriptedModel(outer_steps), tools=[strict]), "go")
