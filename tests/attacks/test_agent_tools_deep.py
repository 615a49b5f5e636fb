"""Agents inside agents' calls: what was done inside a call that failed is told, and no run waits for one around it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.books import done, lines, outputs, write

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolContext,
    function_tool,
    output_guardrail,
)
from standfast.testing import ModelStep, ScriptedModel, final, function_call

# --- an agent tool that fails after its tools have run ---------------------------------------------------------------


def paying(book: Path, steps: list[Any], **settings: Any) -> Agent[Any]:
    """An agent that pays, or begins to and is cut."""
    paid = asyncio.Event()

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        write(book, ctx.tool_call_id)
        paid.set()
        return done(ctx.tool_call_id)

    @function_tool(failure_error_function=None)
    async def break_off() -> str:
        """End the run while another call is under way."""
        await paid.wait()
        raise ValueError("broken")

    @function_tool
    async def begin(ctx: ToolContext[Any]) -> str:
        """Pay, and never come back."""
        write(book, ctx.tool_call_id)
        paid.set()
        await asyncio.sleep(3600)
        return done(ctx.tool_call_id)

    return Agent(name="inner", model=ScriptedModel(steps), tools=[pay, begin, break_off], **settings)


@output_guardrail
def never(*_: Any) -> GuardrailFunctionOutput:
    """Nothing may be said."""
    return GuardrailFunctionOutput(None, tripwire_triggered=True)


async def _no_text(result: Any) -> str:
    raise ValueError("no text")


PAYS = [function_call("pay", {}, call_id="i1")]
FAILS: dict[str, tuple[list[Any], dict[str, Any], dict[str, Any], str]] = {
    "its turns are used up": ([PAYS], {}, {"max_turns": 1}, "pay"),
    "its provider fails": ([PAYS, ModelStep.raise_error(RuntimeError("away"))], {}, {}, "pay"),
    "a guardrail": ([PAYS, final("paid")], {"output_guardrails": [never]}, {}, "pay"),
    "its extractor": ([PAYS, final("paid")], {}, {"custom_output_extractor": _no_text}, "pay"),
    "a call beside it": (
        [[function_call("begin", {}, call_id="i1"), function_call("break_off", {}, call_id="i2")]],
        {},
        {},
        "begin",
    ),
}


@pytest.mark.parametrize("streamed", [False, True], ids=["", "streamed"])
@pytest.mark.parametrize("how", FAILS)
async def test_an_agent_tool_that_failed_says_what_it_had_called(tmp_path: Path, how: str, streamed: bool) -> None:
    """Only that it failed would have the next model pay again: nobody else knows of the call inside."""
    steps, settings, of_tool, tool = FAILS[how]
    book, session = tmp_path / "book", SQLiteSession("s", tmp_path / "s.db")
    on_stream = (lambda event: None) if streamed else None
    helper = paying(book, steps, **settings).as_tool("helper", "Help.", on_stream=on_stream, **of_tool)
    calls = [function_call("helper", {"input": "pay"}, call_id="o1")]
    model = ScriptedModel([calls, final("it failed")])
    await Runner.run(Agent(name="outer", model=model, tools=[helper]), "go", session=session)
    assert lines(book) == ["i1"]
    assert model.last_call is not None
    seen: Any = model.last_call.input
    (told,) = outputs(seen)["o1"]
    assert told.startswith("The tool failed: ")
    assert f"had called {tool}" in told
    assert outputs(await session.get_items())["o1"] == [told]


async def test_one_that_failed_before_it_called_anything_says_only_why(tmp_path: Path) -> None:
    broken = paying(tmp_path / "book", [ModelStep.raise_error(RuntimeError("away"))]).as_tool("helper", "Help.")
    model = ScriptedModel([[function_call("helper", {"input": "pay"}, call_id="o1")], final("it failed")])
    await Runner.run(Agent(name="outer", model=model, tools=[broken]), "go")
    assert model.last_call is not None
    seen: Any = model.last_call.input
    assert outputs(seen)["o1"] == ["The tool failed: away"]


async def test_a_failure_function_of_the_applications_own_is_told_and_has_the_last_word(tmp_path: Path) -> None:
    def in_short(ctx: Any, error: Exception) -> str:
        return f"{error} after {', '.join(ctx.called_inside)}"

    steps = [PAYS, ModelStep.raise_error(RuntimeError("away"))]
    helper = paying(tmp_path / "book", steps).as_tool("helper", "Help.", failure_error_function=in_short)
    model = ScriptedModel([[function_call("helper", {"input": "pay"}, call_id="o1")], final("it failed")])
    await Runner.run(Agent(name="outer", model=model, tools=[helper]), "go")
    assert model.last_call is not None
    seen: Any = model.last_call.input
    assert outputs(seen)["o1"] == ["away after pay"]


# --- a run on the session of a run further out -----------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True], ids=["", "streamed"])
@pytest.mark.parametrize("inner_by", ["agent tool", "by hand"])
@pytest.mark.parametrize("middle_by", ["agent tool", "on a session", "by hand"])
async def test_a_run_never_waits_for_a_run_that_waits_for_it(
    tmp_path: Path, middle_by: str, inner_by: str, streamed: bool
) -> None:
    """C13: refused at once, also from one of two calls side by side, which are carried out in tasks of their own."""
    session = SQLiteSession("s", tmp_path / "s.db")
    on_stream = (lambda event: None) if streamed else None
    inner = Agent(name="inner", model=ScriptedModel([final("in"), final("in")]))

    @function_tool(name_override="inner")
    async def inner_by_hand(input: str) -> str:
        return str((await Runner.run(inner, input, session=session)).final_output)

    reached = inner_by_hand if inner_by == "by hand" else inner.as_tool("inner", "", session=session)
    twice = [function_call("inner", {"input": "x"}, call_id=f"m{number}") for number in (1, 2)]
    middle = Agent(name="middle", model=ScriptedModel([twice, final("mid")]), tools=[reached])

    @function_tool(name_override="middle")
    async def middle_by_hand(input: str) -> str:
        return str((await Runner.run(middle, input)).final_output)

    own = SQLiteSession("m", tmp_path / "s.db") if middle_by == "on a session" else None
    as_tool = middle.as_tool("middle", "", session=own, on_stream=on_stream)
    steps = [[function_call("middle", {"input": "x"}, call_id="o1")], final("out")]
    outer = Agent(
        name="outer", model=ScriptedModel(steps), tools=[middle_by_hand if middle_by == "by hand" else as_tool]
    )
    # With the default policies: it waited here for as long as a lease is waited for, in vain.
    async with asyncio.timeout(RunConfig().lease_wait_s / 2):
        result = await Runner.run(outer, "go", session=session)
    assert result.final_output == "out"
    seen: Any = middle.model.last_call.input
    told = outputs(seen)
    assert [text for call in ("m1", "m2") for text in told[call] if "would wait for itself" not in text] == []
