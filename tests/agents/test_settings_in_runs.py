"""Settings and rules that a run must follow: each test fails if its setting is ignored."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    InMemorySession,
    InputGuardrailTripwireTriggered,
    ModelSettings,
    ModelTimeoutError,
    ModelTracing,
    RunConfig,
    RunHooks,
    ToolExecutionConfig,
    UserError,
    function_tool,
    handoff,
    input_guardrail,
)
from standfast._src.agents.run_config import CallModelData, ModelInputData
from standfast.testing import ModelStep, ScriptedModel, function_call, handoff_call
from standfast.testing.loopback import LoopbackServer
from tests.runs.whole_runs import go, outputs, said, user

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


# --- what a filter gets ----------------------------------------------------------------------------------------------


@pytest.mark.clause("C2", backend="runs")
@STREAMED
@pytest.mark.parametrize("owner", ["nobody", "session", "chain"])
async def test_a_filter_gets_copies_and_what_it_does_to_them_reaches_nothing_it_did_not_return(
    owner: str, streamed: bool
) -> None:
    """Compared by content: a filter that is handed the originals could rewrite history."""

    def spoil(data: CallModelData[Any]) -> ModelInputData:
        seen = data.model_data.input
        for item in seen:
            if item.get("type") == "function_call_output":
                item["output"] = "spoilt"
            elif isinstance(item.get("content"), list):
                item["content"][0]["text"] = "spoilt"
            else:
                item["content"] = "spoilt"
        return ModelInputData(input=[user("only this")], instructions=None)

    @function_tool
    async def look() -> str:
        """Look."""
        return "seen"

    given = [{"role": "user", "content": [{"type": "input_text", "text": "look"}]}, user("please")]
    session = InMemorySession("s") if owner == "session" else None
    if session is not None:
        await session.add_items([user("before")])
    options: dict[str, Any] = {"auto_previous_response_id": True} if owner == "chain" else {"session": session}
    model = ScriptedModel([[function_call("look", {}, call_id="c1")], said("done")])
    config = RunConfig(call_model_input_filter=spoil, session_input_callback=lambda old, new: old + new)
    agent = Agent(name="a", model=model, tools=[look])
    result = await go(agent, given, streamed=streamed, run_config=config, **options)
    assert [call.input for call in model.calls] == [[user("only this")]] * 2
    assert "spoilt" not in str(given)
    assert "spoilt" not in str(result.to_input_list())
    assert "spoilt" not in str([item.to_input_item() for item in result.new_items])
    assert outputs(result.to_input_list()) == ["seen"]
    if session is not None:
        stored = await session.get_items()
        assert "spoilt" not in str(stored)
        assert stored[0] == user("before")


# --- tools -----------------------------------------------------------------------------------------------------------


@STREAMED
@pytest.mark.parametrize(("limit", "most"), [(None, 5), (1, 1), (2, 2), (5, 5)])
async def test_at_most_so_many_function_calls_of_a_turn_run_at_once(
    limit: int | None, most: int, streamed: bool
) -> None:
    running, peak = 0, 0

    @function_tool
    async def work() -> str:
        """Work."""
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        for _ in range(50):  # turns of the loop, not time: whoever may start has started by then
            await asyncio.sleep(0)
        running -= 1
        return "done"

    calls = [function_call("work", {}, call_id=f"c{number}") for number in range(5)]
    agent = Agent(name="a", model=ScriptedModel([calls, said("ok")]), tools=[work])
    config = RunConfig(tool_execution=ToolExecutionConfig(max_function_tool_concurrency=limit))
    result = await go(agent, "work", streamed=streamed, run_config=config)
    assert outputs(result.to_input_list()) == ["done"] * 5
    assert peak == most


def named(text: str) -> Any:
    @function_tool(name_override="look")
    async def look() -> str:
        """Look."""
        return text

    return look


@STREAMED
async def test_two_tools_of_one_name_are_an_error_before_the_model_is_asked(streamed: bool) -> None:
    model = ScriptedModel([[function_call("look", {}, call_id="c1")], said("ok")])
    agent = Agent(name="a", model=model, tools=[named("first"), named("last")])
    with pytest.raises(UserError, match="look"):
        await go(agent, "look", streamed=streamed, run_config=RunConfig(tool_name_collision_policy="error"))
    assert model.calls == ()


@STREAMED
async def test_otherwise_the_last_of_them_wins_and_somebody_is_warned(
    streamed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel([[function_call("look", {}, call_id="c1")], said("ok")])
    agent = Agent(name="a", model=model, tools=[named("first"), named("last")])
    result = await go(agent, "look", streamed=streamed, run_config=RunConfig(tool_name_collision_policy="warn"))
    assert outputs(result.to_input_list()) == ["last"]
    assert len(model.calls[0].tools) == 1
    assert any("look" in line for line in caplog.messages)


async def is_strict_on_the_wire(api: str, **offered: Any) -> Any:
    """What a provider is told about the one tool or handoff of an agent."""
    from standfast import OpenAIChatCompletionsModel, OpenAIResponsesModel

    with LoopbackServer() as server:
        async with server.client(max_retries=0) as client:
            kind = OpenAIResponsesModel if api == "responses" else OpenAIChatCompletionsModel
            await go(Agent(name="a", model=kind("m", client), **offered), "hello")
        (request,) = server.model_calls
    (tool,) = request.body["tools"]
    return (tool if api == "responses" else tool["function"])["strict"]


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("strict", [True, False])
async def test_the_wire_says_whether_a_function_is_strict(api: str, strict: bool) -> None:
    @function_tool(strict_mode=strict)
    async def look(depth: int = 1) -> str:
        """Look."""
        return "seen"

    assert await is_strict_on_the_wire(api, tools=[look]) is strict


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize("strict", [True, False])
async def test_the_wire_says_whether_a_handoff_is_strict(api: str, strict: bool) -> None:
    over = handoff(Agent(name="b"))
    over.strict_json_schema = strict
    assert await is_strict_on_the_wire(api, handoffs=[over]) is strict


def written() -> Any:
    async def look(where: str) -> str:
        """Look around.

        Args:
            where: The place to look at.
        """
        return where

    return look


def shown(tool: Any) -> tuple[str, str | None]:
    """What a model is told of this tool: its description, and that of its parameter."""
    return tool.description, tool.params_json_schema["properties"]["where"].get("description")


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, ("Look around.", "The place to look at.")),
        ({"docstring_style": "google"}, ("Look around.", "The place to look at.")),
        ({"use_docstring_info": False}, ("", None)),
    ],
    ids=str,
)
async def test_the_model_is_told_what_the_docstring_says_unless_it_is_not_to_be_read(
    options: dict[str, Any], wanted: tuple[str, str | None]
) -> None:
    model = ScriptedModel([said("ok")])
    await go(Agent(name="a", model=model, tools=[function_tool(written(), **options)]), "hello")
    assert shown(model.calls[0].tools[0]) == wanted


async def test_a_docstring_is_read_in_the_style_that_is_named() -> None:
    """The same text, with the signs of one style in the words of another."""
    model = ScriptedModel([said("ok")])
    tools = []
    for style in ("google", "sphinx"):

        async def look(where: str) -> str:
            """Look around.

            :param where: In Sphinx's words.

            Args:
                where: In Google's words.
            """
            return where

        tools.append(function_tool(look, docstring_style=style, name_override=f"look_{style}"))
    await go(Agent(name="a", model=model, tools=tools), "hello")
    told = [str(shown(tool)[1]).splitlines()[0] for tool in model.calls[0].tools]
    assert told == ["In Google's words.", "In Sphinx's words."]


# --- handoffs --------------------------------------------------------------------------------------------------------


def handing(**options: Any) -> tuple[Agent[Any], ScriptedModel]:
    model = ScriptedModel([])
    second = Agent(name="second", model=model)
    first = Agent(name="first", model=model, handoffs=[handoff(second, **options)])
    model.extend([[handoff_call(second, call_id="h1")], said("done")])
    return first, model


@STREAMED
async def test_the_history_is_folded_by_the_mapper_that_is_given(streamed: bool) -> None:
    first, model = handing()
    folded: list[Any] = []

    def fold(transcript: list[Any]) -> list[Any]:
        folded.append(transcript)
        return [user(f"{len(transcript)} items before")]

    config = RunConfig(nest_handoff_history=True, handoff_history_mapper=fold)
    await go(first, "refund", streamed=streamed, run_config=config)
    (transcript,) = folded
    assert transcript[0] == user("refund")
    assert model.calls[1].input[0] == user(f"{len(transcript)} items before")


@STREAMED
@pytest.mark.parametrize("of_run", [False, True])
@pytest.mark.parametrize("own", [None, False, True])
async def test_a_handoffs_own_word_about_nesting_counts_before_the_runs(
    own: bool | None, of_run: bool, streamed: bool
) -> None:
    first, model = handing(nest_handoff_history=own)
    await go(first, "refund", streamed=streamed, run_config=RunConfig(nest_handoff_history=of_run))
    nested = of_run if own is None else own
    assert (model.calls[1].input[0] == user("refund")) is not nested


# --- tracing and usage -----------------------------------------------------------------------------------------------


@STREAMED
@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"tracing_disabled": True}, ModelTracing.DISABLED),
        ({"tracing_disabled": True, "trace_include_sensitive_data": True}, ModelTracing.DISABLED),
        ({"trace_include_sensitive_data": False}, ModelTracing.ENABLED_WITHOUT_DATA),
        ({"trace_include_sensitive_data": True}, ModelTracing.ENABLED),
    ],
    ids=str,
)
async def test_a_model_is_told_what_it_may_trace(options: dict[str, Any], wanted: Any, streamed: bool) -> None:
    model = ScriptedModel([said("ok")])
    await go(Agent(name="a", model=model), "hello", streamed=streamed, run_config=RunConfig(**options))
    assert [call.tracing for call in model.calls] == [wanted]


@STREAMED
@pytest.mark.parametrize("keep", [None, False, True])
async def test_the_providers_own_usage_is_kept_where_that_is_asked_for(keep: bool | None, streamed: bool) -> None:
    raw = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, "cost_in_cents": 7}
    model = ScriptedModel([ModelStep(output=said("ok"), raw_usage=raw)])
    agent = Agent(name="a", model=model, model_settings=ModelSettings(preserve_raw_usage=keep))
    result = await go(agent, "hello", streamed=streamed)
    (response,) = result.raw_responses
    assert (response.raw_usage or {}).get("cost_in_cents") == (7 if keep else None)
    assert response.usage.total_tokens == 5


# --- agents as tools -------------------------------------------------------------------------------------------------


def outer_of(tool: Any) -> Agent[Any]:
    model = ScriptedModel([[function_call("ask", {"input": "x"}, call_id="c1")], said("ok")])
    return Agent(name="outer", model=model, tools=[tool])


@STREAMED
async def test_the_hooks_of_an_agent_tool_see_its_run_and_no_other(streamed: bool) -> None:
    seen: list[str] = []

    class Notes(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            seen.append(f"{agent.name} starts")

        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            seen.append(f"{agent.name} was answered")

    inner = Agent(name="inner", model=ScriptedModel([said("inside")]))
    result = await go(outer_of(inner.as_tool("ask", "Asks.", hooks=Notes())), "go", streamed=streamed)
    assert outputs(result.to_input_list()) == ["inside"]
    assert seen == ["inner starts", "inner was answered"]


@pytest.mark.parametrize(("limit", "fails"), [(1, True), (None, False), (1024, False)])
async def test_a_watcher_of_an_agent_tool_may_fall_only_so_far_behind(limit: int | None, fails: bool) -> None:
    """The watcher waits at its first event until the inner run has told everything, or its call has failed."""
    told = asyncio.Event()
    seen: list[Any] = []

    async def watch(event: Any) -> None:
        seen.append(event)
        await told.wait()

    class Inner(ScriptedModel):
        async def stream_response(self, *given: Any, **named: Any) -> Any:
            async for event in super().stream_response(*given, **named):
                yield event
            if not fails:
                told.set()

    inner = Agent(name="inner", model=Inner([said("a long answer in many pieces " * 20)]))
    tool = inner.as_tool("ask", "Asks.", on_stream=watch, on_stream_max_pending_events=limit)
    result = await go(outer_of(tool), "go")
    (output,) = outputs(result.to_input_list())
    assert ("events behind" in output) is fails
    assert fails or len(seen) > 5


# --- limits, and what is left behind ---------------------------------------------------------------------------------


@STREAMED
async def test_one_attempt_of_a_model_call_may_take_only_so_long(streamed: bool) -> None:
    model = ScriptedModel([ModelStep.hang()])
    agent = Agent(name="a", model=model, model_settings=ModelSettings(timeout=0.01))
    with pytest.raises(ModelTimeoutError, match=r"0\.01 s"):
        await asyncio.wait_for(go(agent, "hello", streamed=streamed), 30)


@STREAMED
async def test_a_tripwire_awaits_the_model_call_that_it_cancels(streamed: bool) -> None:
    """What a model's own clean-up does is done when the run ends, not some time later."""
    asked, closed = asyncio.Event(), []

    async def respond(call: Any) -> Any:
        asked.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for _ in range(20):
                await asyncio.sleep(0)
            closed.append("the connection")

    @input_guardrail
    async def refuse(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asked.wait()  # both are under way
        return GuardrailFunctionOutput("no", tripwire_triggered=True)

    agent = Agent(name="a", model=ScriptedModel([ModelStep.respond(respond)]), input_guardrails=[refuse])
    with pytest.raises(InputGuardrailTripwireTriggered):
        await asyncio.wait_for(go(agent, "hello", streamed=streamed), 30)
    assert closed == ["the connection"]


class Broken(InMemorySession):
    async def close(self) -> None:  # type: ignore[override]
        raise OSError("the disk is gone")


@STREAMED
async def test_an_error_of_the_clean_up_never_hides_what_ended_the_run(streamed: bool) -> None:
    agent = Agent(name="a", model=ScriptedModel([ZeroDivisionError("the first")]))
    with pytest.raises(ZeroDivisionError, match="the first") as ended:
        await go(agent, "hello", streamed=streamed, session=Broken("s"), run_config=RunConfig(close_session=True))
    assert any("the disk is gone" in note for note in ended.value.__notes__)


@STREAMED
async def test_an_error_of_the_clean_up_alone_is_raised(streamed: bool) -> None:
    agent = Agent(name="a", model=ScriptedModel([said("ok")]))
    with pytest.raises(OSError, match="the disk is gone"):
        await go(agent, "hello", streamed=streamed, session=Broken("s"), run_config=RunConfig(close_session=True))
