"""Smaller attacks (issue 9, number 12): reused call ids (11), StopAsyncIteration (14), a run inside its own tool (19),
plain sessions made anew for each request (20), slow watchers, large outputs, odd values, and what `repr` gives away."""

from __future__ import annotations

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import agents as sdk
import pytest
from helpers.ledger_oracle import short

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    InMemorySession,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    SQLiteSession,
    StandfastError,
    function_tool,
    input_guardrail,
)
from standfast.testing import AnsweringModel, ScriptedModel, final, function_call

sdk.set_tracing_disabled(True)


@function_tool
async def weather(city: str) -> str:
    """Tell the weather."""
    return f"weather of {city}"


# --- call ids that are used again (11) -------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
async def test_a_call_id_used_again_by_a_later_run_is_another_call(backend: str, tmp_path: Path) -> None:
    """C2, attack 11: providers that number calls per request; an output belongs to the nearest call before it."""
    session: Any = InMemorySession("s") if backend == "memory" else SQLiteSession("s", tmp_path / "a.db")
    expected: list[tuple[str, str]] = []
    for city in ("Paris", "Oslo", "Rome"):
        model = ScriptedModel([[function_call("weather", {"city": city}, call_id="call_0")], final("ok")])
        agent: Agent[Any] = Agent(name="A", tools=[weather], model=model)
        await Runner.run(agent, f"weather in {city}?", session=session)
        expected += [("call", f'{{"city": "{city}"}}'), ("output", f"weather of {city}")]
        assert model.last_call is not None
        seen: Any = model.last_call.input
        assert calls_and_outputs(seen) == expected
    assert calls_and_outputs(await session.get_items()) == expected
    await session.close()


def calls_and_outputs(items: list[Any]) -> list[tuple[str, str]]:
    found = []
    for item in items:
        if item.get("type") == "function_call":
            found.append(("call", item["arguments"].replace('":"', '": "')))
        elif item.get("type") == "function_call_output":
            found.append(("output", item["output"]))
    return found


async def test_what_is_left_out_of_a_request_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """C8: an output whose call a limit cut away is left out of the request, not of the history, and reported."""
    session = SQLiteSession("s", tmp_path / "a.db")
    await session.add_items(
        [
            {"type": "function_call", "call_id": "call_0", "name": "weather", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_0", "output": "secret rain"},
            {"role": "user", "content": "thanks"},
        ]
    )
    model = ScriptedModel([final("ok")])
    config = RunConfig(session_settings={"limit": 2})  # type: ignore[arg-type]  # a mapping is read too
    with caplog.at_level(logging.INFO, logger="standfast"):
        await Runner.run(Agent(name="A", model=model), "hi", session=session, run_config=config)
    assert model.first_call is not None
    seen: Any = model.first_call.input
    assert short(seen) == ["U(thanks)", "U(hi)"]
    assert len(await session.get_items()) == 5
    assert "call_0" in caplog.text
    assert "secret rain" not in caplog.text
    session.close()


# --- StopAsyncIteration from user code (14) --------------------------------------------------------------------------


async def exhausted() -> Any:
    """An empty feed, and somebody who asks it for the next thing."""

    async def feed() -> Any:
        return
        yield

    return await anext(feed())


@input_guardrail
async def guard(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    await exhausted()
    raise AssertionError


class StoppingHooks(RunHooks[Any]):
    async def on_llm_start(self, *_: Any) -> None:
        await exhausted()


async def stopping_filter(data: Any) -> Any:
    return await exhausted()


async def stopping_instructions(context: Any, agent: Any) -> str:
    return str(await exhausted())


@pytest.mark.parametrize("where", ["a hook", "a guardrail", "a filter", "instructions"])
async def test_stop_async_iteration_of_user_code_is_an_error_in_both_modes(where: str) -> None:
    """C11, attack 14: a stream must not end quietly where a run raises."""
    hooks = StoppingHooks() if where == "a hook" else None
    config = RunConfig(call_model_input_filter=stopping_filter if where == "a filter" else None)
    errors = []
    for streamed in (False, True):
        agent: Agent[Any] = Agent(
            name="A",
            model=ScriptedModel([final("hello")]),
            instructions=stopping_instructions if where == "instructions" else None,
            input_guardrails=[guard] if where == "a guardrail" else [],
        )
        try:
            if streamed:
                result = Runner.run_streamed(agent, "hi", hooks=hooks, run_config=config)
                async for _ in result.stream_events():
                    pass
            else:
                await Runner.run(agent, "hi", hooks=hooks, run_config=config)
        except Exception as error:
            errors.append(type(error).__name__)
        else:
            errors.append("no error")
    assert errors[0] == errors[1]
    assert errors[0] not in ("no error", "AssertionError")


# --- a run on the same session inside its own tool (19) --------------------------------------------------------------

PATIENT = RunConfig(lease_wait_s=600.0)


def inner() -> Agent[Any]:
    return Agent(name="I", model=ScriptedModel([final("inner answer")]))


def outer(tool: Any) -> Agent[Any]:
    return Agent(name="A", tools=[tool], model=ScriptedModel([[function_call("ask", {}, call_id="c")], final("done")]))


@pytest.mark.parametrize("how", ["awaited", "streamed", "in the tool's thread", "through another object"])
async def test_a_run_that_would_wait_for_itself_is_refused_at_once(how: str, tmp_path: Path) -> None:
    """C13, attack 19: not after the wait; the error says what to do, and the outer run goes on."""
    path = tmp_path / "a.db"
    session = SQLiteSession("s", path)
    errors: list[StandfastError] = []

    async def nested() -> str:
        mine = SQLiteSession("s", path) if how == "through another object" else session
        try:
            if how == "streamed":
                streamed = Runner.run_streamed(inner(), "q", session=mine, run_config=PATIENT)
                async for _ in streamed.stream_events():
                    pass
                return str(streamed.final_output)
            return str((await Runner.run(inner(), "q", session=mine, run_config=PATIENT)).final_output)
        except StandfastError as error:
            errors.append(error)
            return "refused"
        finally:
            if mine is not session:
                mine.close()

    if how == "in the tool's thread":

        @function_tool(name_override="ask")
        def ask_in_a_thread() -> str:
            """Ask."""
            return asyncio.run(nested())

        tool: Any = ask_in_a_thread
    else:

        @function_tool(name_override="ask")
        async def ask_here() -> str:
            """Ask."""
            return await nested()

        tool = ask_here
    async with asyncio.timeout(20):
        result = await Runner.run(outer(tool), "go", session=session)
    assert result.final_output == "done"
    assert len(errors) == 1
    assert errors[0].remedy
    assert short(await session.get_items()) == ["U(go)", "C(c)", "O(c: refused)", "A(done)"]
    session.close()


async def test_a_run_that_a_tool_starts_in_a_task_of_its_own_waits_its_turn(tmp_path: Path) -> None:
    """C13: it is somebody else; it runs when the outer run has ended."""
    session = SQLiteSession("s", tmp_path / "a.db")
    tasks: list[asyncio.Task[Any]] = []

    @function_tool
    async def ask() -> str:
        """Ask."""
        tasks.append(asyncio.create_task(Runner.run(inner(), "q", session=session, run_config=PATIENT)))
        return "asked"

    async with asyncio.timeout(30):
        await Runner.run(outer(ask), "go", session=session)
        assert (await tasks[0]).final_output == "inner answer"
    assert short(await session.get_items()) == [
        "U(go)", "C(c)", "O(c: asked)", "A(done)", "U(q)", "A(inner answer)",
    ]  # fmt: skip
    session.close()


# --- plain sessions made anew for each request (20) ------------------------------------------------------------------


@pytest.mark.parametrize("objects", ["one object", "an object per request"])
async def test_two_messages_on_one_plain_conversation_do_not_mix(objects: str, tmp_path: Path) -> None:
    """C13, attack 20: the lock is per conversation, whatever object it is reached through."""
    first = sdk.SQLiteSession("s", tmp_path / "a.db")
    second = sdk.SQLiteSession("s", tmp_path / "a.db") if objects == "an object per request" else first
    asking = asyncio.Event()

    async def message(session: Any, number: int) -> None:
        def answer(call: Any) -> Any:
            asking.set()
            if call.input[-1].get("type") == "function_call_output":
                return f"answer {number}"
            return function_call("weather", {"city": "Oslo"}, call_id=f"c{number}")

        async def slowly(call: Any) -> Any:
            given = answer(call)
            await asyncio.sleep(0.05)
            return given

        agent: Agent[Any] = Agent(name="A", tools=[weather], model=AnsweringModel(slowly))
        await Runner.run(agent, f"question {number}", session=session)

    one = asyncio.create_task(message(first, 1))
    await asking.wait()
    await asyncio.gather(one, message(second, 2))
    stored: Any = await first.get_items()
    assert [line.split(":")[0].rstrip(")") for line in short(stored)] == [
        "U(question 1", "C(c1", "O(c1", "A(answer 1", "U(question 2", "C(c2", "O(c2", "A(answer 2",
    ]  # fmt: skip
    for session in {id(first): first, id(second): second}.values():
        session.close()


# --- watchers and large things ---------------------------------------------------------------------------------------


async def test_a_watcher_that_is_slow_never_slows_the_run(tmp_path: Path) -> None:
    """A stream nobody reads: the run ends all the same, stores everything and gives its session back."""
    session = SQLiteSession("s", tmp_path / "a.db")
    text = "word " * 20_000
    result = Runner.run_streamed(Agent(name="A", model=ScriptedModel([final(text)])), "go", session=session)
    events = result.stream_events()
    await anext(events)  # one event is read, and then nothing is
    async with asyncio.timeout(30):
        while len(await session.get_items()) < 2:
            await asyncio.sleep(0.01)
        next_one: Agent[Any] = Agent(name="A", model=ScriptedModel([final("ok")]))
        await Runner.run(next_one, "me", session=session)
    assert [event async for event in events], "what the slow watcher has not read yet is still there for it"
    session.close()


async def test_an_output_of_sixty_megabytes_is_stored_whole(tmp_path: Path) -> None:
    """A17, C3: nothing on its way cuts it or refuses it."""
    session = SQLiteSession("s", tmp_path / "a.db")
    size = 60_000_000

    @function_tool
    async def read() -> str:
        """Read a large file."""
        return "x" * size

    model = ScriptedModel([[function_call("read", {}, call_id="c1")], final("done")], record_calls=False)
    await Runner.run(Agent(name="A", tools=[read], model=model), "go", session=session)
    (stored,) = [item for item in await session.get_items() if item.get("type") == "function_call_output"]
    assert len(stored["output"]) == size
    session.close()


# --- odd values ------------------------------------------------------------------------------------------------------

ODD_PATHS: list[Any] = ["no/such/folder/a.db", ".", "a\0b", "", "x" * 300, 5, None, b"a.db", 1.5, object()]


@pytest.mark.parametrize("path", ODD_PATHS, ids=lambda path: repr(path)[:20].replace("\\", ""))
async def test_odd_paths_give_errors_of_ours(path: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every error says what to do; a foreign one does not."""
    monkeypatch.chdir(tmp_path)

    async def opened() -> None:
        session = SQLiteSession("s", path)
        try:
            await session.get_items()
        finally:
            session.close()

    with pytest.raises(StandfastError) as refused:
        await opened()
    assert refused.value.remedy


NAN, INFINITE = float("nan"), float("inf")
ODD_TIMES: list[tuple[Any, Any]] = [
    (NAN, 0), (INFINITE, 0), (-1, 0), (0, 0), ("1", 0), (None, 0), (1, NAN), (1, "1"), (1, None), (1, -1),
]  # fmt: skip


@pytest.mark.parametrize(("ttl_s", "wait_s"), ODD_TIMES, ids=repr)
async def test_odd_times_give_errors_of_ours(ttl_s: Any, wait_s: Any, tmp_path: Path) -> None:
    """Of a lease and of a run: refused at once, not met as a TypeError in some thread."""
    session = SQLiteSession("s", tmp_path / "a.db")
    with pytest.raises(StandfastError):
        await session.lease(ttl_s=ttl_s, wait_s=wait_s)
    with pytest.raises(StandfastError):
        RunConfig(lease_ttl_s=ttl_s, lease_wait_s=wait_s)
    session.close()


# --- what repr gives away --------------------------------------------------------------------------------------------

SECRET = "4111-1111"


async def test_repr_of_results_items_agents_and_contexts_has_no_content() -> None:
    """Logs are full of reprs; what was said, and what the application knows, is not for them."""

    @function_tool(needs_approval=True)
    async def pay(card: str) -> str:
        """Pay."""
        return card

    replies = [final(f"it is {SECRET}"), [function_call("pay", {"card": SECRET}, call_id="c1")]]
    agent: Agent[Any] = Agent(name="A", instructions=f"key {SECRET}", model=ScriptedModel(replies), tools=[pay])
    context = {"token": SECRET}
    result = await Runner.run(agent, f"card {SECRET}", context=context)
    paused = await Runner.run(agent, f"card {SECRET}", context=context)
    streamed = Runner.run_streamed(
        Agent(name="A", model=ScriptedModel([final(SECRET)]), instructions=SECRET), SECRET, context=context
    )
    async for _ in streamed.stream_events():
        pass
    things: list[Any] = [
        result, paused, streamed, *result.new_items, *paused.new_items, *paused.interruptions, agent,
        result.context_wrapper, RunContextWrapper(context), paused.to_state(),
    ]  # fmt: skip
    told = {type(thing).__name__ for thing in things if SECRET in repr(thing)}
    assert told == set()


async def test_a_blocking_thread_of_a_tool_does_not_show_up_in_another_run(tmp_path: Path) -> None:
    """C14: what a cut tool's thread does later reaches no history; its call was said to be unknown."""
    session = SQLiteSession("s", tmp_path / "a.db")
    begun, go_on = threading.Event(), threading.Event()

    @function_tool
    def block() -> str:
        """Block."""
        begun.set()
        go_on.wait(60)
        return "late"

    agent: Agent[Any] = Agent(
        name="A", tools=[block], model=ScriptedModel([[function_call("block", {}, call_id="c1")], final("x")])
    )
    task = asyncio.create_task(Runner.run(agent, "go", session=session))
    await asyncio.to_thread(begun.wait, 60)
    task.cancel()
    await asyncio.wait([task], timeout=20)
    go_on.set()
    next_one: Agent[Any] = Agent(name="A", model=ScriptedModel([final("ok")]))
    await Runner.run(next_one, "me", session=session, run_config=RunConfig(lease_wait_s=20.0))
    assert short(await session.get_items()) == ["U(go)", "C(c1)", "O(c1: unknown)", "U(me)", "A(ok)"]
    session.close()
