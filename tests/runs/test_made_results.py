"""Results that a program makes itself: people's tests build them with the constructor of the SDK's dataclasses."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from pydantic import BaseModel

from standfast import (
    Agent,
    AgentUpdatedStreamEvent,
    InMemorySession,
    ModelResponse,
    RunContextWrapper,
    Runner,
    RunResult,
    RunResultStreaming,
    StandfastError,
    Usage,
)
from standfast.result import QueueCompleteSentinel
from standfast.testing import ScriptedModel, final

AGENT = Agent(name="Clerk")


def fields(**more: Any) -> dict[str, Any]:
    return {
        "input": "hi", "new_items": [], "raw_responses": [ModelResponse([], Usage(), "resp_1")], "final_output": "done",
        "input_guardrail_results": [], "output_guardrail_results": [], "tool_input_guardrail_results": [],
        "tool_output_guardrail_results": [], "context_wrapper": RunContextWrapper("mine"), **more,
    }  # fmt: skip


def streamed(**more: Any) -> RunResultStreaming[Any]:
    given = {"current_agent": AGENT, "current_turn": 2, "max_turns": 5, "_current_agent_output_schema": None}
    return RunResultStreaming(**fields(**given, trace=None, **more))


def test_a_made_result_shows_what_it_was_made_of():
    result = RunResult(**fields(_last_agent=AGENT, max_turns=3))
    assert (result.input, result.final_output, result.last_agent, result.max_turns) == ("hi", "done", AGENT, 3)
    assert result.last_response_id == "resp_1"
    assert result.context_wrapper.context == "mine"
    assert result.to_input_list() == [{"role": "user", "content": "hi"}]
    assert result.interruptions == []
    assert "done" in str(result)
    with pytest.raises(StandfastError, match="made"):
        result.to_state()
    with pytest.raises(TypeError, match="surprise"):
        RunResult(**fields(_last_agent=AGENT, surprise=1))


async def test_a_replaced_result_is_a_copy_of_its_run_with_the_given_values():
    session = InMemorySession("s")
    model = ScriptedModel([final("ok"), final("again")])
    result = await Runner.run(Agent(name="A", model=model), "hi", session=session)
    changed = dataclasses.replace(result, final_output="checked")
    assert (changed.final_output, result.final_output) == ("checked", "ok")
    assert changed.run_id == result.run_id
    assert changed.to_input_list() == result.to_input_list()
    assert changed.to_state().run_id == result.run_id
    assert [field.name for field in dataclasses.fields(changed)][:4] == [
        "input", "new_items", "raw_responses", "final_output",
    ]  # fmt: skip
    shorter = dataclasses.replace(changed, new_items=[])
    assert (shorter.final_output, shorter.new_items) == ("checked", [])
    assert len(shorter.to_input_list()) == 1
    assert len(result.new_items) == 1


async def test_a_made_stream_yields_what_its_queue_is_given_and_ends_or_raises():
    event = AgentUpdatedStreamEvent(AGENT)
    result = streamed()
    assert (result.current_turn, result.is_complete, result.current_agent) == (2, False, AGENT)
    result._event_queue.put_nowait(event)
    result._event_queue.put_nowait(QueueCompleteSentinel())
    assert [one async for one in result.stream_events()] == [event]
    stopped = streamed()
    stopped.cancel()
    assert [one async for one in stopped.stream_events()] == []
    assert stopped.is_complete
    failed = streamed(_stored_exception=ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        await anext(failed.stream_events())
    assert dataclasses.replace(failed, final_output=1).final_output == 1


def test_a_result_is_a_field_of_a_pydantic_model():
    class Answer(BaseModel):
        result: RunResult

    result = RunResult(**fields(_last_agent=AGENT))
    assert Answer(result=result).result is result
    with pytest.raises(ValueError, match="RunResult"):
        Answer(result="text")
