"""The application's context beside a saved run: what comes back, and what is said when it does not."""

from __future__ import annotations

import dataclasses
import logging
from typing import Any

import pytest
from pydantic import BaseModel

from standfast import RunContextWrapper, Runner, RunState, UserError
from tests.runs.saved_runs.payment_app import Desk, asks, pay, says


@dataclasses.dataclass
class Account:
    number: int
    names: list[str]


class Order(BaseModel):
    number: int


class Opaque:
    pass


async def paused(context: Any) -> tuple[Desk, RunState]:
    desk = Desk([asks(pay(5, "c1")), says("done")])
    return desk, (await desk.run("hi", context=context)).to_state()


TABLE = [
    (None, "none", None, True, True),
    ({"a": [1, {"b": None}]}, "mapping", {"a": [1, {"b": None}]}, True, True),
    (Account(7, ["x"]), "asdict", {"number": 7, "names": ["x"]}, False, False),
    (Order(number=7), "model_dump", {"number": 7}, False, False),
    (Opaque(), "omitted", {}, False, False),
]


@pytest.mark.parametrize(("context", "via", "restored", "saves", "loads"), TABLE, ids=[row[1] for row in TABLE])
async def test_a_context_comes_back_as_the_table_says(
    context: Any, via: str, restored: Any, saves: bool, loads: bool, caplog: pytest.LogCaptureFixture
):
    desk, state = await paused(context)
    payload = state.to_json()
    assert (payload["saved_context"]["via"], payload["saved_context"]["value"]) == (via, restored)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "standfast"):
        loaded = await RunState.from_json(desk.agent, payload)
    assert loaded.context_wrapper.context == restored
    assert bool(caplog.records) is not loads
    if saves:
        assert state.to_json(strict_context=True) == payload
        await RunState.from_json(desk.agent, payload, strict_context=True)
    else:
        with pytest.raises(UserError):
            state.to_json(strict_context=True)
        with pytest.raises(UserError):
            await RunState.from_json(desk.agent, payload, strict_context=True)


async def test_a_serialiser_and_its_deserialiser_make_the_object_again():
    desk, state = await paused(Account(7, ["x"]))
    text = state.to_string(context_serializer=lambda account: {"number": account.number}, strict_context=True)
    loaded = await RunState.from_string(
        desk.agent, text, context_deserializer=lambda value: Account(value["number"], []), strict_context=True
    )
    assert loaded.context_wrapper.context == Account(7, [])
    with pytest.raises(UserError):
        await RunState.from_string(desk.agent, text, strict_context=True)


async def test_serialisers_that_do_not_do_their_work_are_named():
    desk, state = await paused(Account(7, ["x"]))
    with pytest.raises(UserError, match="context_serializer returned a str"):
        state.to_json(context_serializer=lambda account: "text")  # type: ignore[arg-type,return-value]  # that is the fault
    for wrong in ({"when": object()}, {"x": float("nan")}, {1: 2}):
        with pytest.raises(UserError, match="context_serializer"):
            state.to_json(context_serializer=lambda account, wrong=wrong: wrong)  # type: ignore[misc]
    payload = state.to_json()
    with pytest.raises(UserError, match="KeyError"):
        await RunState.from_json(desk.agent, payload, context_deserializer=lambda value: value["missing"])


async def test_a_context_that_is_not_json_is_refused_when_it_is_saved():
    for context in ({"lock": object()}, Account(7, [object()])):  # type: ignore[list-item]  # that is the fault
        _, state = await paused(context)
        with pytest.raises(UserError, match="context_serializer="):
            state.to_string()


async def test_an_override_is_the_object_itself_and_keeps_usage_and_decisions():
    desk, state = await paused(Account(7, []))
    state.approve(state.get_interruptions()[0])
    text = state.to_string()
    mine = Account(8, [])
    loaded = await RunState.from_string(desk.agent, text, context_override=mine)
    assert loaded.context_wrapper.context is mine
    wrapper: RunContextWrapper[Any] = RunContextWrapper(mine)
    loaded = await RunState.from_string(desk.agent, text, context_override=wrapper)
    assert loaded.context_wrapper is wrapper
    assert wrapper.usage.requests == 1
    result = await desk.run(loaded)
    assert result.context_wrapper.usage.requests == 2

    class Special(RunContextWrapper[Any]):
        pass

    with pytest.raises(UserError, match="Special"):
        await RunState.from_string(desk.agent, text, context_override=Special(mine))


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_context_given_when_resuming_replaces_only_the_applications_object(wrapped: bool):
    desk = Desk([asks(pay(5, "c1")), asks(pay(6, "c2")), says("done")])
    state = (await desk.run("hi", context={"a": 1})).to_state()
    state.approve(state.get_interruptions()[0], always_approve=True)
    state = await desk.reloaded(state)
    mine = {"a": 2}
    context: Any = RunContextWrapper(mine) if wrapped else mine
    result = await desk.run(state, context=context)
    assert result.final_output == "done"  # what was approved for good still is
    assert result.context_wrapper.context is mine
    assert result.context_wrapper.usage.requests == 3
    if wrapped:
        assert result.context_wrapper is context


async def test_a_state_made_by_hand_runs_from_the_start():
    from standfast import GuardrailFunctionOutput, input_guardrail

    looked: list[Any] = []

    @input_guardrail
    def looking(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        looked.append((context.context, given))
        return GuardrailFunctionOutput(None, tripwire_triggered=False)

    desk = Desk([says("done")], input_guardrails=[looking])
    state = RunState({"a": 1}, "hi", desk.agent, max_turns=3)
    assert (state.status, state.current_turn, state.max_turns) == ("running", 0, 3)
    assert state.get_interruptions() == []
    result = await Runner.run(desk.agent, await desk.reloaded(state))
    assert result.final_output == "done"
    assert looked == [({"a": 1}, "hi")]
    assert desk.sent == [[{"content": "hi", "role": "user"}]]
    with pytest.raises(UserError, match="two owners"):
        RunState(None, "hi", desk.agent, conversation_id="c", previous_response_id="r")
