"""Input for a run that is paused or stopped: where it goes, who looks at it, and when it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import (
    GuardrailFunctionOutput,
    InMemorySession,
    InputGuardrailTripwireTriggered,
    RunConfig,
    RunStateError,
    StandfastError,
    ToolsToFinalOutputResult,
    UserError,
    input_guardrail,
)

from .payment_app import Desk, asks, kinds, look, pay, says


async def paused(desk: Desk, **options: Any) -> Any:
    state = (await desk.run("hi", **options)).to_state()
    state.approve(state.get_interruptions()[0])
    return state


@pytest.mark.clause("D7", backend="runs")
@pytest.mark.parametrize("owner", ["replay", "session", "conversation", "chain"])
async def test_staged_input_follows_the_outputs_and_is_sent_once(owner: str):
    desk = Desk([asks(pay(5, "c1"), response_id="r1"), asks(look("sky", "c2"), response_id="r2"), says("done")])
    options: dict[str, Any] = {
        "replay": {},
        "session": {"session": InMemorySession("s")},
        "conversation": {"conversation_id": "conv"},
        "chain": {"auto_previous_response_id": True},
    }[owner]
    state = await paused(desk, **options)
    state.add_input("and hurry")
    state.add_input([{"role": "user", "content": "and hurry"}])  # said twice is two messages
    assert state.pending_input == [{"role": "user", "content": "and hurry"}] * 2
    state = await desk.reloaded(state)
    assert len(state.pending_input) == 2
    again = {name: value for name, value in options.items() if name != "auto_previous_response_id"}
    result = await desk.run(state, **again)
    tail = ["output c1", "user", "user"]
    if owner in ("replay", "session"):
        assert kinds(desk.sent[1]) == ["user", "call c1", *tail]
        assert kinds(desk.sent[2]) == ["user", "call c1", *tail, "call c2", "output c2"]
    else:
        assert kinds(desk.sent[1]) == tail
        assert kinds(desk.sent[2]) == ["output c2"]
    if owner == "session":
        stored = await options["session"].get_items()
        assert kinds(stored) == ["user", "call c1", *tail, "call c2", "output c2", "assistant"]
    added = [item for item in result.new_items if item.type == "input_item"]
    assert [item.to_input_item()["content"] for item in added] == ["and hurry"] * 2
    assert len({item.input_id for item in added}) == 2
    assert result.to_state().pending_input == []


async def test_a_request_that_failed_does_not_double_staged_input():
    desk = Desk([asks(pay(5, "c1")), ValueError("the line is dead"), ValueError("still dead"), says("done")])
    session = InMemorySession("s")
    state = await paused(desk, session=session)
    state.add_input("and hurry")
    for _ in range(2):
        with pytest.raises(ValueError, match="dead") as caught:
            await desk.run(await desk.reloaded(state), session=session)
        state = caught.value.run_state  # type: ignore[attr-defined]  # any error carries it
    await desk.run(await desk.reloaded(state), session=session)
    assert [kinds(sent) for sent in desk.sent[1:]] == [["user", "call c1", "output c1", "user"]] * 3
    assert kinds(await session.get_items()) == ["user", "call c1", "output c1", "user", "assistant"]
    assert desk.done == [("pay", 5)]


async def test_input_guardrails_look_at_staged_input_alone_and_may_end_the_run():
    seen: list[Any] = []

    @input_guardrail
    def polite(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        seen.append(given)
        return GuardrailFunctionOutput(None, tripwire_triggered="rude" in str(given))

    desk = Desk([asks(pay(5, "c1")), says("never")], input_guardrails=[polite])
    state = await paused(desk)
    state.add_input("rude words")
    with pytest.raises(InputGuardrailTripwireTriggered):
        await desk.run(state)
    assert seen == ["hi", [{"role": "user", "content": "rude words"}]]
    assert len(desk.sent) == 1


async def test_staged_input_can_be_looked_at_as_a_copy_and_taken_back():
    desk = Desk([asks(pay(5, "c1")), says("done")])
    state = await paused(desk)
    state.add_input("and hurry")
    state.pending_input[0]["content"] = "changed"
    assert state.pending_input == [{"role": "user", "content": "and hurry"}]
    state.clear_pending_input()
    assert state.pending_input == []
    await desk.run(state)
    assert kinds(desk.sent[-1]) == ["user", "call c1", "output c1"]


async def test_input_nobody_would_read_is_refused():
    def ends(context: Any, results: Any) -> ToolsToFinalOutputResult:
        return ToolsToFinalOutputResult(is_final_output=True, final_output="x")

    for behavior in ("stop_on_first_tool", {"stop_at_tool_names": ["pay"]}, ends):
        desk = Desk([asks(pay(5, "c1")), says("done")], tool_use_behavior=behavior)
        with pytest.raises(UserError, match="may end"):
            (await paused(desk)).add_input("more")
    desk = Desk([asks(pay(5, "c1")), says("done")], tool_use_behavior={"stop_at_tool_names": ["look"]})
    (await paused(desk)).add_input("more")
    desk = Desk([asks(pay(5, "c1")), says("done")])
    with pytest.raises(UserError, match="no turn left"):
        (await paused(desk, max_turns=1)).add_input("more")
    finished = (await Desk([says("done")]).run("hi")).to_state()
    with pytest.raises(RunStateError, match="ended"):
        finished.add_input("more")


async def test_what_is_no_input_is_refused():
    state = await paused(Desk([asks(pay(5, "c1"))]))
    for wrong in (7, None, [object()], [{"role": "user", "content": object()}]):
        with pytest.raises(StandfastError):
            state.add_input(wrong)
    assert state.pending_input == []


async def test_a_run_that_failed_between_turns_takes_input_too():
    desk = Desk([ValueError("dead"), says("done")])
    with pytest.raises(ValueError, match="dead") as caught:
        await desk.run("hi", run_config=RunConfig())
    state = caught.value.run_state  # type: ignore[attr-defined]  # any error carries it
    state.add_input("are you there?")
    assert (await desk.run(state)).final_output == "done"
    assert kinds(desk.sent[-1]) == ["user", "user"]
