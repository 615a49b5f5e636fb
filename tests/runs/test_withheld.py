"""What stands in history in the place of a tool's result that an output guardrail refused (C6)."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    InMemorySession,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    Runner,
    function_tool,
    output_guardrail,
)
from standfast.testing import ScriptedModel, function_call

USUAL = "Output withheld by an output guardrail."


@output_guardrail(name="no secrets")
async def refuse(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, tripwire_triggered=True)


def raises(args: Any) -> str:
    raise RuntimeError("no words")


@pytest.mark.clause("C6", backend="runs")
@pytest.mark.parametrize(
    ("wanted", "stored"),
    [
        (None, USUAL),
        ("Not for you.", "Not for you."),
        (lambda args: f"{args.guardrail_name} of {args.agent.name}", "no secrets of A"),
        (lambda args: args.default_message.upper(), USUAL.upper()),
        (lambda args: None, USUAL),
        (raises, USUAL),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_text_is_the_applications_or_the_usual_one_and_never_the_result(
    wanted: Any, stored: str, streamed: bool
) -> None:
    @function_tool
    async def secret() -> str:
        """Tell."""
        return "42"

    calls = [[function_call("secret", {}, call_id="c1")]]
    agent = Agent(
        name="A",
        model=ScriptedModel(calls),
        tools=[secret],
        output_guardrails=[refuse],
        tool_use_behavior="stop_on_first_tool",
    )
    session, config = InMemorySession("s"), RunConfig(output_guardrail_blocked_message=wanted)

    async def run() -> None:
        if not streamed:
            await Runner.run(agent, "hi", session=session, run_config=config)
            return
        async for _ in Runner.run_streamed(agent, "hi", session=session, run_config=config).stream_events():
            pass

    with pytest.raises(OutputGuardrailTripwireTriggered):
        await run()
    assert (await session.get_items())[-1]["output"] == stored
