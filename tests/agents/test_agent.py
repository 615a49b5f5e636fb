"""Agents: their shape, what they refuse, and an agent as another's tool."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, Literal

import agents
import pytest
from pydantic import BaseModel, Field

from standfast._src.agents.agent import Agent, resolve_tools
from standfast._src.agents.as_tool import AgentTool, AgentToolRun, relay_events
from standfast._src.agents.context import ChildPaused, RunContextWrapper
from standfast._src.agents.hooks import AgentHooks, RunHooks, RunHooksBase, await_both, overridden
from standfast._src.agents.output_type import AgentOutputSchema, AgentOutputSchemaBase, output_schema_of
from standfast._src.agents.run_config import RunConfig
from standfast._src.agents.tool_context import ToolContext
from standfast._src.agents.tool_input import default_tool_input_builder
from standfast._src.base.errors import ModelBehaviorError, OwnerError, UserError
from standfast._src.items.items import MessageOutputItem, ToolCallOutputItem, ToolOriginType
from standfast._src.models.model_settings import ModelSettings
from standfast._src.tools.function_tool import FunctionTool, function_tool
from standfast._src.tools.invocation import invoke
from standfast.testing import ScriptedModel, final, function_call

CTX: RunContextWrapper[Any] = RunContextWrapper("app")


@function_tool
def look(at: str) -> str:
    return at


# --- the shape -------------------------------------------------------------------------------------------------------


def test_fields_are_the_sdks_in_the_sdks_order():
    theirs = [field.name for field in dataclasses.fields(agents.Agent)]
    assert [field.name for field in dataclasses.fields(Agent)] == theirs


def test_defaults_are_the_sdks():
    theirs: Any = agents.Agent(name="a", model="gpt-4.1")
    ours: Any = Agent(name="a", model="gpt-4.1")
    for field in dataclasses.fields(agents.Agent):
        if field.name != "model_settings":
            assert getattr(ours, field.name) == getattr(theirs, field.name), field.name
    assert ours.model_settings == ModelSettings()


def test_as_tool_takes_what_the_sdks_takes():
    theirs = inspect.signature(agents.Agent.as_tool).parameters
    ours = inspect.signature(Agent.as_tool).parameters
    assert list(ours) == list(theirs)
    different = {name for name in theirs if ours[name].default != theirs[name].default}
    assert different == {"max_turns", "failure_error_function"}  # None means no limit here; the function is our own


def test_a_model_written_for_the_sdk_will_do():
    from agents.testing import ScriptedModel

    model: Any = ScriptedModel([])
    assert Agent(name="a", model=model).model is model
    assert Agent(name="a", model=model).model_settings == ModelSettings()


def test_an_agent_is_itself_and_can_be_a_key():
    one, other = Agent(name="a"), Agent(name="a")
    assert one != other
    assert {one: 1}[one] == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": 3},
        {"handoff_description": 3},
        {"tools": (look,)},
        {"mcp_servers": None},
        {"mcp_config": []},
        {"instructions": 3},
        {"prompt": "p1"},
        {"handoffs": ()},
        {"model": 3},
        {"model_settings": {"temprature": 1}},
        {"model_settings": "hot"},
        {"input_guardrails": None},
        {"output_guardrails": ()},
        {"output_type": "str"},
        {"hooks": RunHooks()},
        {"tool_use_behavior": "stop"},
        {"reset_tool_choice": 1},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_field_of_the_wrong_kind_is_a_type_error_at_once(wrong: dict[str, Any]):
    with pytest.raises(TypeError):
        Agent(**{"name": "a", **wrong})


# --- settings that follow from the model -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt-5", "gpt-5.1", "gpt-5.2-pro", "gpt-5.4-mini", "gpt-5-chat-latest", "gpt-4.1"])
def test_settings_follow_from_the_models_name_as_in_the_sdk(name: str):
    theirs = agents.Agent(name="a", model=name).model_settings
    ours = Agent(name="a", model=name).model_settings
    assert ours.verbosity == theirs.verbosity
    assert (ours.reasoning.effort if ours.reasoning else None) == (
        theirs.reasoning.effort if theirs.reasoning else None
    )


def test_settings_that_were_given_stay_and_a_dict_will_do():
    assert Agent(name="a", model="gpt-5", model_settings={"temperature": 1}).model_settings == ModelSettings(
        temperature=1
    )  # type: ignore[arg-type]


def test_a_clone_with_another_model_gets_the_settings_of_that_model():
    agent = Agent(name="a", model="gpt-5")
    assert agent.clone(model="gpt-4.1").model_settings == ModelSettings()
    told = Agent(name="a", model="gpt-5", model_settings=ModelSettings(temperature=1))
    assert told.clone(model="gpt-4.1").model_settings == ModelSettings(temperature=1)


def test_a_clone_shares_the_lists_it_was_not_given():
    agent = Agent(name="a", tools=[look], instructions="be")
    clone = agent.clone(name="b", handoffs=[])
    assert clone.tools is agent.tools
    assert clone.handoffs is not agent.handoffs
    assert (clone.name, clone.instructions) == ("b", "be")


# --- instructions, prompts, tools ------------------------------------------------------------------------------------


async def test_instructions_may_be_text_or_functions_of_two_kinds():
    async def later(ctx: RunContextWrapper[str], agent: Agent[str]) -> str:
        return f"{agent.name} for {ctx.context}, later"

    class Speaker:
        def say(self, ctx: RunContextWrapper[str], agent: Agent[str]) -> str:
            return "from a method"

    for instructions, expected in [
        (None, None),
        ("text", "text"),
        (lambda ctx, agent: f"{agent.name} for {ctx.context}", "a for app"),
        (later, "a for app, later"),
        (Speaker().say, "from a method"),
    ]:
        assert await Agent(name="a", instructions=instructions).get_system_prompt(CTX) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "function", [lambda ctx: "", lambda: "", lambda a, b, c: "", lambda *args: "", lambda a, b, *, c=1: ""]
)
async def test_an_instructions_function_takes_exactly_context_and_agent(function: Any):
    with pytest.raises(TypeError, match="exactly two"):
        await Agent(name="a", instructions=function).get_system_prompt(CTX)


async def test_prompts_may_be_data_or_chosen():
    whole = {"id": "p", "version": "2", "variables": {"x": 1}}
    assert await Agent(name="a").get_prompt(CTX) is None
    assert await Agent(name="a", prompt=whole).get_prompt(CTX) == whole  # type: ignore[arg-type]
    chosen = Agent(name="a", prompt=lambda data: {"id": f"{data.agent.name}-{data.context.context}"})
    assert await chosen.get_prompt(CTX) == {"id": "a-app", "version": None, "variables": None}

    async def later(data: Any) -> Any:
        return {"id": "late"}

    assert await Agent(name="a", prompt=later).get_prompt(CTX) == {"id": "late", "version": None, "variables": None}
    with pytest.raises(UserError, match="names none"):
        await Agent(name="a", prompt=lambda data: {}).get_prompt(CTX)  # type: ignore[typeddict-item]


async def test_an_agents_tools_are_those_that_are_enabled():
    hidden = function_tool(look.__wrapped__, is_enabled=lambda ctx, agent: agent.name != "a")
    assert await Agent(name="a", tools=[look, hidden]).get_all_tools(CTX) == [look]
    assert await resolve_tools(Agent(name="b", tools=[look, hidden]), CTX) == [look, hidden]


def test_the_decorators_are_found_under_their_documented_path():
    from standfast import decorators, function_schema

    assert decorators.tool is decorators.function_tool is function_tool
    assert function_schema.function_schema(look.__wrapped__).name == "look"


def test_making_agents_needs_no_schema_library():
    """`import standfast` and an agent with a handoff and a plain agent tool stay cheap."""
    program = (
        "import sys, standfast\n"
        "from standfast._src.agents.agent import Agent; from standfast._src.agents.handoffs import handoff\n"
        "a = Agent(name='a'); Agent(name='b', handoffs=[handoff(a)], tools=[a.as_tool('t', 'd')])\n"
        "sys.exit('pydantic' in sys.modules or 'openai' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=120).returncode == 0


@pytest.mark.parametrize(
    ("home", "told"), [("standfast", "bonjour"), ("standfast._src.agents.agent", "Import Agent from standfast")]
)
def test_whoever_has_agent_from_a_door_can_call_its_tool_without_a_runner(home: str, told: str):
    """Running is the face's: it comes with the public name, and the layer of agents alone says where to get it."""
    program = (
        "import asyncio\n"
        f"from {home} import Agent\n"
        "from standfast._src.agents.tool_context import ToolContext\n"
        "from standfast._src.base.errors import UserError\n"
        "from standfast.testing import ScriptedModel, final\n"
        "tool = Agent(name='a', model=ScriptedModel([final('bonjour')])).as_tool('say', 'Says it.')\n"
        "call = tool.on_invoke_tool(ToolContext(None, tool_name='say', tool_call_id='1', tool_arguments='{}'),"
        ' \'{"input": "hello"}\')\n'
        "try: print(asyncio.run(call))\n"
        "except UserError as error: print(error)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=120, capture_output=True, text=True)
    assert told in ended.stdout, ended.stderr


def test_an_unpickled_agents_tool_can_be_called_where_nothing_but_a_runner_was_imported():
    """Unpickling takes the class from its room, past every public module."""
    program = (
        "import asyncio, pickle, sys\n"
        "from standfast import Runner, RunContextWrapper\n"
        "from standfast.testing import ScriptedModel, final\n"
        "agent = pickle.loads(bytes.fromhex(sys.argv[1]))\n"
        "agent.model = ScriptedModel([final('bonjour')])\n"
        "tool = agent.as_tool('say', 'Says it.')\n"
        'print(asyncio.run(tool.on_invoke_tool(RunContextWrapper(None), \'{"input": "hello"}\')))\n'
    )
    pickled = pickle.dumps(Agent(name="a")).hex()
    ended = subprocess.run([sys.executable, "-c", program, pickled], timeout=120, capture_output=True, text=True)
    assert ended.stdout.strip() == "bonjour", ended.stdout + ended.stderr


# --- hooks -----------------------------------------------------------------------------------------------------------


def test_hooks_have_the_sdks_methods_and_parameters():
    for ours, theirs in [
        (RunHooksBase, agents.RunHooks.__origin__),
        (AgentHooks.__origin__, agents.AgentHooks.__origin__),
    ]:
        for name, method in inspect.getmembers(theirs, inspect.iscoroutinefunction):
            assert list(inspect.signature(getattr(ours, name)).parameters) == list(inspect.signature(method).parameters)


async def test_only_hooks_that_somebody_wrote_are_called():
    class Some(RunHooks[Any]):
        async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None: ...

    hooks = Some()
    assert overridden(hooks, "on_handoff") is not None
    assert overridden(hooks, "on_tool_start") is None
    assert overridden(AgentHooks(), "on_start") is None
    assert overridden(None, "on_start") is None


async def test_two_hooks_run_together_and_one_that_raises_ends_the_other():
    both = asyncio.Barrier(2)
    ended = []

    async def meet() -> None:
        await both.wait()

    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    async def broken() -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async with asyncio.timeout(60):
        await await_both(meet, meet)
    with pytest.raises(ZeroDivisionError):
        await await_both(endless, broken)
    assert ended == [True]
    await await_both(None, None)


# --- output types ----------------------------------------------------------------------------------------------------


class Answer(BaseModel):
    text: str
    score: int = 0


@pytest.mark.parametrize("kind", [Answer, list[int], int, dict[str, int], list[Answer], Answer | None])
@pytest.mark.parametrize("strict", [True, False])
def test_output_schemas_are_the_sdks(kind: Any, strict: bool):
    try:
        theirs: Any = agents.AgentOutputSchema(kind, strict)
    except agents.UserError:
        with pytest.raises(UserError, match="strict_json_schema=False"):
            AgentOutputSchema(kind, strict)
        return
    ours = AgentOutputSchema(kind, strict)
    assert ours.json_schema() == theirs.json_schema()
    assert ours.name() == theirs.name()
    assert (ours.is_plain_text(), ours.is_strict_json_schema()) == (False, strict)


def test_a_final_output_becomes_its_type():
    assert AgentOutputSchema(Answer).validate_json('{"text": "x", "score": 2}') == Answer(text="x", score=2)
    assert AgentOutputSchema(list[int]).validate_json('{"response": [1, 2]}') == [1, 2]


def test_a_value_becomes_the_text_that_stands_for_it():
    assert AgentOutputSchema(Answer).dump_json({"text": "x"}) == '{"text":"x","score":0}'
    assert AgentOutputSchema(list[int]).dump_json([1]) == '{"response":[1]}'
    with pytest.raises(UserError, match="is no list") as refused:
        AgentOutputSchema(list[int]).dump_json(["secret"])
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["", "{", '{"score": 1}', '{"text": 3, "score": "secret"}', "[]"])
def test_a_final_output_that_does_not_fit_is_refused_without_its_words(text: str):
    with pytest.raises(ModelBehaviorError, match="is no Answer") as refused:
        AgentOutputSchema(Answer).validate_json(text)
    assert "secret" not in str(refused.value)


def test_plain_text_needs_no_schema_and_schemas_are_made_once():
    class Own(AgentOutputSchemaBase):
        def is_plain_text(self) -> bool:
            return False

        def name(self) -> str:
            return "own"

        def json_schema(self) -> dict[str, Any]:
            return {}

        def is_strict_json_schema(self) -> bool:
            return False

        def validate_json(self, json_str: str) -> Any:
            return json_str

    own = Own()
    assert output_schema_of(None) is None
    assert output_schema_of(str) is None
    assert output_schema_of(own) is own
    assert output_schema_of(Answer) is output_schema_of(Answer)
    assert AgentOutputSchema(str).is_plain_text()
    with pytest.raises(UserError):
        AgentOutputSchema(str).json_schema()


# --- an agent as a tool ----------------------------------------------------------------------------------------------


class Query(BaseModel):
    """What to look for."""

    topic: str = Field(description="the topic")
    depth: int = 1


class Bare(BaseModel):
    topic: str
    depth: int


class Nested(BaseModel):
    inner: Query = Field(description="a query")


def result(final: Any = "done", items: list[Any] | None = None, judged: bool = False) -> Any:
    return SimpleNamespace(final_output=final, new_items=items or [], output_guardrail_results=[1] if judged else [])


def outer(answer: Any, asked: list[AgentToolRun] | None = None) -> ToolContext[Any]:
    async def run_agent(run: AgentToolRun) -> Any:
        if asked is not None:
            asked.append(run)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return ToolContext("app", tool_name="ask", tool_call_id="c", tool_arguments="{}", run_agent=run_agent)


async def test_an_agent_tool_asks_the_driver_for_a_run():
    asked: list[AgentToolRun] = []
    inner = Agent(name="Inner one")
    config = RunConfig(workflow_name="w")
    tool = inner.as_tool(None, "Asks.", run_config=config, max_turns=3)
    assert (tool.name, tool.description) == ("inner_one", "Asks.")
    assert tool.params_json_schema["properties"] == {"input": {"title": "Input", "type": "string"}}
    assert tool.origin is not None
    assert (tool.origin.type, tool.origin.agent_name, tool.origin.agent_tool_name) == (
        ToolOriginType.AGENT_AS_TOOL,
        "Inner one",
        "inner_one",
    )
    context = outer(result(), asked)
    assert (await invoke(tool, context, '{"input": "hello"}')).output == "done"
    [run] = asked
    assert (run.tool.agent, run.input, run.tool_input, run.context) == (inner, "hello", None, context)
    assert (run.tool.run_config, run.tool.max_turns) == (config, 3)
    assert tool.agent_tool is run.tool


def test_no_limit_means_no_limit_and_ten_is_the_default():
    """In the SDK `max_turns=None` means ten here and no limit elsewhere (§8 #19)."""
    agent = Agent(name="a")
    assert agent.as_tool("t", "d").agent_tool.max_turns == 10
    assert agent.as_tool("t", "d", max_turns=None).agent_tool.max_turns is None


async def test_outside_a_run_an_agent_tool_runs_its_agent():
    tool = Agent(name="a", model=ScriptedModel([final("done")])).as_tool("t", "d", failure_error_function=None)
    context = ToolContext(None, tool_name="t", tool_call_id="c", tool_arguments="{}")
    assert (await invoke(tool, context, '{"input": "x"}')).output == "done"


async def test_outside_a_run_an_agent_tool_cannot_wait_for_a_person():
    asking = function_tool(lambda: "x", name_override="ask", needs_approval=True)
    agent = Agent(name="a", tools=[asking], model=ScriptedModel([[function_call("ask", {}, call_id="c1")]]))
    tool = agent.as_tool("t", "d", failure_error_function=None)
    context = ToolContext(None, tool_name="t", tool_call_id="c", tool_arguments="{}")
    with pytest.raises(UserError, match="waits for a person"):
        await invoke(tool, context, '{"input": "x"}')


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"input": 3}', '{"other": "x"}'])
async def test_arguments_without_input_are_told_to_the_model(arguments: str):
    said = (await invoke(Agent(name="a").as_tool("t", "d"), outer(result()), arguments)).output
    assert "'input'" in said or "expected" in said


async def test_a_nested_failure_is_told_and_a_nested_pause_is_not():
    tool = Agent(name="a").as_tool("t", "d")
    assert (
        await invoke(tool, outer(ValueError("inner trouble")), '{"input": "x"}')
    ).output == "The tool failed: inner trouble"
    with pytest.raises(ChildPaused):
        await invoke(tool, outer(ChildPaused()), '{"input": "x"}')
    strict = Agent(name="a").as_tool("t", "d", failure_error_function=None)
    with pytest.raises(UserError, match="inner trouble"):
        await invoke(strict, outer(ValueError("inner trouble")), '{"input": "x"}')


async def test_the_output_is_the_final_output_or_the_last_thing_said():
    message = MessageOutputItem(
        agent=None,
        raw_item={"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "said"}]},
    )
    output = ToolCallOutputItem(agent=None, raw_item={"type": "function_call_output", "output": "o"}, output="returned")

    async def extract(nested: Any) -> str:
        return f"extracted {nested.final_output}"

    async def of(answer: Any, **options: Any) -> Any:
        return (await invoke(Agent(name="a").as_tool("t", "d", **options), outer(answer), '{"input": "x"}')).output

    assert await of(result({"a": 1})) == {"a": 1}
    assert await of(result(0)) == 0
    assert await of(result("", [message, output])) == "returned"
    assert await of(result("", [output, message])) == "said"
    assert await of(result(None, [])) is None
    assert await of(result("", [message], judged=True)) == "", "guardrails judged the output, not what came before"
    assert await of(result("x"), custom_output_extractor=extract) == "extracted x"


async def read(tool: FunctionTool, arguments: str) -> AgentToolRun:
    asked: list[AgentToolRun] = []
    outcome = await invoke(tool, outer(result(), asked), arguments)
    assert asked, outcome.output
    return asked[0]


async def test_structured_arguments_reach_the_inner_run_as_data_and_as_text():
    agent = Agent(name="a")
    run = await read(agent.as_tool("t", "d", parameters=Query), '{"topic": "sea"}')
    assert run.tool_input == {"topic": "sea", "depth": 1}
    assert isinstance(run.input, str)
    assert '"topic": "sea"' in run.input
    assert "- topic (string): the topic" in run.input
    run = await read(
        agent.as_tool("t", "d", parameters=Query, include_input_schema=True), '{"topic": "sea", "depth": 2}'
    )
    assert '"additionalProperties": false' in str(run.input)
    run = await read(agent.as_tool("t", "d", parameters=Bare), '{"topic": "sea", "depth": 2}')
    assert run.input == '{"topic": "sea", "depth": 2}', "fields without descriptions need no explanation"
    run = await read(agent.as_tool("t", "d", parameters=Nested), '{"inner": {"topic": "sea", "depth": 2}}')
    assert run.input == '{"inner": {"topic": "sea", "depth": 2}}', "too complicated for words"


class Kinds(BaseModel):
    choice: Literal["a", "b"] = Field(description="one of two")
    fixed: Literal["x"]


async def test_fields_are_put_into_words_where_words_will_do():
    run = await read(Agent(name="a").as_tool("t", "d", parameters=Kinds), '{"choice": "a", "fixed": "x"}')
    assert '- choice ("a" | "b"): one of two\n- fixed ("x")' in str(run.input)


async def test_an_input_builder_makes_the_input():
    seen: list[Any] = []

    async def build(options: Any) -> list[dict[str, Any]]:
        seen.append(options)
        return [{"role": "user", "content": options["params"]["topic"]}]

    run = await read(Agent(name="a").as_tool("t", "d", parameters=Query, input_builder=build), '{"topic": "sea"}')
    assert run.input == [{"role": "user", "content": "sea"}]
    assert seen[0]["params"] == {"topic": "sea", "depth": 1}
    assert "the topic" in seen[0]["summary"]
    assert seen[0]["json_schema"] is None
    plain = await read(
        Agent(name="a").as_tool("t", "d", input_builder=lambda options: f"<{options['params']['input']}>"),
        '{"input": "x"}',
    )
    assert (plain.input, plain.tool_input) == ("<x>", {"input": "x"})
    wrong = Agent(name="a").as_tool("t", "d", input_builder=lambda options: 3, failure_error_function=None)  # type: ignore[arg-type,return-value]
    with pytest.raises(UserError, match="input_builder"):
        await invoke(wrong, outer(result()), '{"input": "x"}')


async def test_structured_arguments_that_do_not_fit_are_told_without_values():
    tool = Agent(name="a").as_tool("t", "d", parameters=Query)
    said = (await invoke(tool, outer(result()), '{"topic": "x", "depth": "secret"}')).output
    assert "depth: Input should be a valid integer" in said
    assert "secret" not in said


def test_the_default_input_is_text_with_the_data_first():
    text = default_tool_input_builder({"params": {"a": 1}, "summary": "- a (integer)", "json_schema": None})
    assert text.index('"a": 1') < text.index("- a (integer)")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"on_stream": 3}, UserError),
        ({"on_stream_max_pending_events": 0}, ValueError),
        ({"run_config": {"modle": 1}}, TypeError),
        ({"hooks": AgentHooks()}, TypeError),
        ({"parameters": dict}, TypeError),
        ({"parameters": 3}, TypeError),
        ({"conversation_id": "c", "previous_response_id": "r"}, OwnerError),
        ({"conversation_id": "c", "session": object()}, OwnerError),
    ],
)
def test_an_agent_tool_that_could_not_run_is_refused_at_once(options: dict[str, Any], error: type[Exception]):
    with pytest.raises(error):
        Agent(name="a").as_tool("t", "d", **options)


def test_a_dict_will_do_for_the_run_config_of_an_agent_tool():
    assert AgentTool(Agent(name="a"), run_config={"workflow_name": "w"}).run_config == RunConfig(workflow_name="w")  # type: ignore[arg-type]


# --- events of an inner run ------------------------------------------------------------------------------------------


async def stream(*events: Any) -> AsyncIterator[Any]:
    for event in events:
        yield event


async def test_events_arrive_in_order_with_the_agent_that_made_them_and_all_before_it_returns():
    seen: list[Any] = []

    async def slow(event: Any) -> None:
        await asyncio.sleep(0)
        seen.append((event["event"], event["agent"], event["tool_call"]))

    moved = SimpleNamespace(type="agent_updated_stream_event", new_agent="second")
    await relay_events(stream("a", moved, "b"), slow, agent="first", tool_call="call", max_pending=10)
    assert seen == [("a", "first", "call"), (moved, "second", "call"), ("b", "second", "call")]


async def test_an_observer_that_raises_misses_nothing_and_fails_nothing(caplog: pytest.LogCaptureFixture):
    seen: list[Any] = []

    def picky(event: Any) -> None:
        seen.append(event["event"])
        raise ValueError("no")

    with caplog.at_level(logging.WARNING, "standfast"):
        await relay_events(stream(1, 2), picky, agent=None, tool_call=None, max_pending=None)
    assert seen == [1, 2]
    assert "ValueError" in caplog.text


async def test_an_observer_that_falls_behind_fails_the_call_instead_of_filling_the_memory():
    handed: list[Any] = []

    async def stuck(event: Any) -> None:
        handed.append(event["event"])
        await asyncio.Event().wait()

    with pytest.raises(UserError, match="3 events behind"):
        await relay_events(stream(*range(100)), stuck, agent=None, tool_call=None, max_pending=3)
    assert handed == [0]


async def test_a_burst_is_not_held_against_an_observer_that_had_no_turn():
    seen: list[Any] = []
    await relay_events(
        stream(*range(100)), lambda event: seen.append(event["event"]), agent=None, tool_call=None, max_pending=3
    )
    assert seen == list(range(100))


async def test_an_inner_run_that_fails_leaves_no_courier_behind():
    async def failing() -> AsyncIterator[Any]:
        yield 1
        raise ZeroDivisionError

    before = asyncio.all_tasks()
    with pytest.raises(ZeroDivisionError):
        await relay_events(failing(), lambda event: None, agent=None, tool_call=None, max_pending=None)
    assert asyncio.all_tasks() == before
