"""Agents inside agents' calls: what was done inside a call that failed is told, and no run waits for one around it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import done, lines, outputs, write
from helpers.processes import Child, Line, eventually

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
from standfast.testing import AnsweringModel, ModelStep, ScriptedModel, final, function_call

_open: list[SQLiteSession] = []


def opened(session_id: str, path: Any) -> SQLiteSession:
    """A session that is closed when its test is over."""
    _open.append(SQLiteSession(session_id, path))
    return _open[-1]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _open:
        _open.pop().close()


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
    book, session = tmp_path / "book", opened("s", tmp_path / "s.db")
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
    session = opened("s", tmp_path / "s.db")
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

    own = opened("m", tmp_path / "s.db") if middle_by == "on a session" else None
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


# --- killed three deep -----------------------------------------------------------------------------------------------


def three_deep(line: Line | None, path: str, owns: dict[str, bool], *, asks: bool = False) -> Agent[Any]:
    """`a` calls `b`, which calls `c`, which pays, and stands still in its second call."""
    book = f"{path}.book"

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    @function_tool
    async def stand(ctx: ToolContext[Any]) -> str:
        """Pay, and stand still."""
        write(book, ctx.tool_call_id)
        if line is not None:
            if asks:
                await eventually(partial(_is_asked, path, owns))
            await line.stand("paid")
        return done(ctx.tool_call_id)

    @function_tool(needs_approval=True)
    async def ask(ctx: ToolContext[Any]) -> str:
        """Pay, if a person agrees."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    def inside(agent: Agent[Any], name: str) -> Any:
        own = opened(name, path) if owns[name] else None
        return agent.as_tool(name, "Help.", session=own)

    steps = [["ask", "stand"]] if asks else [["pay"], ["stand"]]
    c = Agent(name="c", model=_in_steps(*steps), tools=[pay, stand, ask])
    b = Agent(name="b", model=_in_steps(["c"]), tools=[inside(c, "c")])
    return Agent(name="a", model=_in_steps(["b"]), tools=[inside(b, "b")])


async def _is_asked(path: str, owns: dict[str, bool]) -> bool:
    """Whether the question is saved: the calls beside each other begin in no certain order."""
    state = await Runner.load(three_deep(None, path, owns, asks=True), "r", session=opened("s", path))
    return len(state.get_interruptions()) == 1


def _in_steps(*steps: list[str]) -> AnsweringModel:
    """Asks for what comes next: what was asked for before is in the request. In the end it says what it was told."""

    def answer(call: Any) -> Any:
        told = outputs(call.input)
        for number, step in enumerate(steps):
            if not any(f"{step[0]}{number}" == call_id for call_id in told):
                given = {name: {"input": "go"} if len(name) == 1 else {} for name in step}
                return [function_call(name, given[name], call_id=f"{name}{number}") for name in step]
        return " ".join(str(text) for texts in told.values() for text in texts)

    return AnsweringModel(answer)


async def start_three_deep(line: Line, *, path: str, owns: dict[str, bool], asks: bool) -> None:
    session = opened("s", path)
    agent = three_deep(line, path, owns, asks=asks)
    await Runner.run(agent, "go", session=session, run_config=RunConfig(run_id="r"))


OWNS = [{"b": b, "c": c} for b in (False, True) for c in (False, True)]


@pytest.mark.parametrize("owns", OWNS, ids=["no sessions", "c has one", "b has one", "both"])
async def test_what_was_paid_three_deep_is_not_paid_again_after_a_kill(tmp_path: Path, owns: dict[str, bool]) -> None:
    """C12: each step of the innermost run is saved with the outermost, also through one that nobody saves by itself."""
    path = str(tmp_path / "s.db")
    with Child(start_three_deep, path=path, owns=owns, asks=False) as child:
        child.hear_until("here")
        child.kill()
    session = opened("s", path)
    result = await Runner.resume(three_deep(None, path, owns), "r", session=session)
    assert lines(f"{path}.book") == ["pay0", "stand1"]
    assert done("pay0") in result.final_output
    assert "not known" in result.final_output
    assert done("stand1") not in result.final_output


@pytest.mark.parametrize("owns", OWNS, ids=["no sessions", "c has one", "b has one", "both"])
async def test_a_question_inside_can_be_answered_though_a_call_beside_it_was_killed(
    tmp_path: Path, owns: dict[str, bool]
) -> None:
    """The run is not paused, it was cut; its question waits all the same, and may be answered."""
    path = str(tmp_path / "s.db")
    with Child(start_three_deep, path=path, owns=owns, asks=True) as child:
        child.hear_until("here")
        child.kill()
    session = opened("s", path)
    agent = three_deep(None, path, owns, asks=True)
    state = await Runner.load(agent, "r", session=session)
    (asked,) = state.get_interruptions()
    state.approve(asked)
    result = await Runner.run(agent, state, session=session)
    assert lines(f"{path}.book") == ["stand0", "ask0"]
    assert done("ask0") in result.final_output
    assert "not known" in result.final_output


async def test_a_run_that_a_call_has_left_behind_waits_its_turn(tmp_path: Path) -> None:
    """The call has ended, so nobody waits for what it started; what that starts in turn waits for the session."""
    session, asks = opened("s", tmp_path / "s.db"), asyncio.Event()
    left: list[Any] = []

    @function_tool(failure_error_function=None)
    async def note() -> str:
        await has_returned.wait()
        asks.set()
        noting = Agent(name="noting", model=ScriptedModel([final("noted")]))
        return str((await Runner.run(noting, "note", session=session)).final_output)

    steps = [[function_call("note", {}, call_id="b1")], final("behind")]
    behind = Agent(name="behind", model=ScriptedModel(steps), tools=[note])
    has_returned = asyncio.Event()

    @function_tool
    async def start() -> str:
        left.append(Runner.run_streamed(behind, "go"))
        return "started"

    @function_tool
    async def linger() -> str:
        has_returned.set()
        await asks.wait()
        await asyncio.sleep(0.1)  # long enough to be refused; if it is not, the test is only easier
        return "lingered"

    calls = [[function_call(name, {}, call_id=name)] for name in ("start", "linger")]
    outer = Agent(name="outer", model=ScriptedModel([*calls, final("out")]), tools=[start, linger])
    assert (await Runner.run(outer, "go", session=session)).final_output == "out"
    async for _ in left[0].stream_events():
        pass
    assert left[0].final_output == "behind"
    assert [item["content"] for item in await session.get_items() if item.get("role") == "user"] == ["go", "note"]
