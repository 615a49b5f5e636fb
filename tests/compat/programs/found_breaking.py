"""What once broke programs that only changed their import: one example for each, so that none comes back."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
from typing import Any

import agents
from agents import (
    Agent,
    AgentHooks,
    AgentsException,
    Model,
    ModelProvider,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    RunState,
    SQLiteSession,
    Usage,
    UserError,
    function_tool,
    handoff,
)
from agents.retry import ModelRetryAdvice, RetryDecision
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext
from agents.usage import RequestUsage, deserialize_usage, serialize_usage
from openai.types.responses.response_usage import InputTokensDetails, OutputTokensDetails
from openai.types.shared import Reasoning
from pydantic import TypeAdapter


def _call(name: str, arguments: Any, call_id: str = "c1") -> list[Any]:
    return [function_call(name, arguments, call_id=call_id)]


def _say(text: str) -> list[Any]:
    return [assistant_message(text)]


def _context(name: str, arguments: str, call_id: str = "c1") -> ToolContext[Any]:
    return ToolContext(context=None, tool_name=name, tool_call_id=call_id, tool_arguments=arguments)


# --- a session that changes what is stored ---------------------------------------------------------------------------


class Redacting(SQLiteSession):
    async def add_items(self, items):
        await super().add_items([{**item, "content": "REDACTED"} if "content" in item else item for item in items])


async def example_a_session_that_redacts(folder):
    session = Redacting("s", str(folder / "talks.db"))
    agent = Agent(name="A", model=ScriptedModel([_say("Hello")]))
    result = await Runner.run(agent, "secret", session=session)
    return [item["content"] for item in await session.get_items()], result.final_output


# --- agent tools called by hand --------------------------------------------------------------------------------------


async def example_an_agent_tool_called_by_hand(folder):
    inner = Agent(name="Inner", model=ScriptedModel([_say("bonjour")]))
    tool = inner.as_tool("translate", "To French.")
    arguments = '{"input": "hello"}'
    output = await tool.on_invoke_tool(_context("translate", arguments), arguments)
    return output, inner.model.last_call.input


async def example_an_agent_tool_called_from_a_tool(folder):
    inner = Agent(name="Inner", model=ScriptedModel([ModelStep(output=_say("bonjour"), usage=_cost(5))]))
    translate = inner.as_tool("translate", "To French.")

    @function_tool
    async def polite(ctx: RunContextWrapper[Any], word: str) -> str:
        """Translate politely."""
        inner_output = await translate.on_invoke_tool(ctx, json.dumps({"input": word}))
        return f"{inner_output}, please"

    model = ScriptedModel([_call("polite", {"word": "hello"}), _say("done")])
    result = await Runner.run(Agent(name="Outer", tools=[polite], model=model), "Go")
    return result, result.context_wrapper.usage.input_tokens, model.last_call.input


def _cost(tokens: int) -> Usage:
    return Usage(requests=1, input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)


# --- an agent that is changed while it runs --------------------------------------------------------------------------


@function_tool
def late() -> str:
    """Came later."""
    return "late"


async def example_a_tool_that_adds_a_tool(folder):
    @function_tool
    def unlock() -> str:
        """Unlock the other tool."""
        agent.tools.append(late)
        return "unlocked"

    steps = [_call("unlock", {}, "c1"), _call("late", {}, "c2"), _say("done")]
    agent = Agent(name="A", tools=[unlock], model=ScriptedModel(steps))
    result = await Runner.run(agent, "Go")
    return result, [[tool.name for tool in call.tools] for call in agent.model.calls]


async def example_a_hook_that_changes_settings_model_and_tools(folder):
    second = ScriptedModel([_say("from the second")])

    class Hooks(RunHooks):
        async def on_tool_end(self, context, agent, tool, result):
            agent.model, agent.tools = second, [late]
            agent.model_settings = ModelSettings(temperature=0.5)
            agent.instructions = "Anew."

    @function_tool
    def go() -> str:
        """Go."""
        return "gone"

    agent = Agent(name="A", tools=[go], model=ScriptedModel([_call("go", {})]))
    result = await Runner.run(agent, "Go", hooks=Hooks())
    call = second.last_call
    return result.final_output, [tool.name for tool in call.tools], call.model_settings.temperature


async def example_a_tool_that_adds_a_handoff(folder):
    other = Agent(name="Other", model=ScriptedModel([_say("from the other")]))

    @function_tool
    def open_door() -> str:
        """Open the door."""
        agent.handoffs.append(handoff(other))
        return "open"

    steps = [_call("open_door", {}, "c1"), _call("transfer_to_other", {}, "c2")]
    agent = Agent(name="A", tools=[open_door], model=ScriptedModel(steps))
    result = await Runner.run(agent, "Go")
    return result.final_output, result.last_agent.name


class Counting(Agent):
    async def get_all_tools(self, run_context):
        _ASKED.append(self.name)
        return await super().get_all_tools(run_context)


_ASKED: list[str] = []


async def example_an_overridden_get_all_tools_is_asked_each_turn(folder):
    _ASKED.clear()
    agent = Counting(name="A", tools=[late], model=ScriptedModel([_call("late", {}), _say("done")]))
    await Runner.run(agent, "Go")
    return len(_ASKED)


# --- defaults of models ----------------------------------------------------------------------------------------------


class Recording(ModelProvider):
    def __init__(self) -> None:
        self.models: dict[str | None, ScriptedModel] = {}

    def get_model(self, model_name):
        return self.models.setdefault(model_name, ScriptedModel([_say("ok")]))


async def example_defaults_follow_the_model_that_is_used(folder):
    seen = []
    for own, run in (("gpt-5", "gpt-4.1"), ("gpt-4.1", "gpt-5"), (None, "gpt-5.2"), ("gpt-5", None), (None, None)):
        provider = Recording()
        agent = Agent(name="A", model=own)
        await Runner.run(agent, "Hi", run_config=RunConfig(model=run, model_provider=provider))
        (model,) = provider.models.values()
        settings = model.last_call.model_settings
        seen.append((own, run, settings.reasoning and settings.reasoning.effort, settings.verbosity))
    return seen


async def example_a_name_goes_to_the_provider_that_is_there_by_default(folder):
    try:
        await Runner.run(Agent(name="A", model="nobody/model"), "Hi")
    except Exception as error:
        return error


async def example_settings_that_were_given_stay(folder):
    provider = Recording()
    agent = Agent(name="A", model="gpt-5", model_settings=ModelSettings(temperature=0.1))
    await Runner.run(agent, "Hi", run_config=RunConfig(model="gpt-4.1", model_provider=provider))
    settings = provider.models["gpt-4.1"].last_call.model_settings
    return settings.temperature, settings.reasoning, settings.verbosity


async def example_names_about_default_models(folder):
    from agents.models import (
        get_default_model,
        get_default_model_settings,
        gpt_5_reasoning_settings_required,
        is_gpt_5_default,
    )
    from agents.models.default_models import OPENAI_DEFAULT_MODEL_ENV_VARIABLE_NAME

    names = ("gpt-5", "gpt-5.2-pro", "gpt-5.4-mini", "gpt-5-chat-latest", "gpt-4.1", "gpt-5.1-2025-11-13", "gpt-5-x")
    settings = [get_default_model_settings(name) for name in names]
    return (
        OPENAI_DEFAULT_MODEL_ENV_VARIABLE_NAME,
        get_default_model(),
        is_gpt_5_default(),
        [gpt_5_reasoning_settings_required(name) for name in names],
        [(one.reasoning and one.reasoning.effort, one.verbosity) for one in settings],
        Agent(name="A").model_settings == get_default_model_settings(),
    )


# --- types -----------------------------------------------------------------------------------------------------------


async def example_a_state_with_a_type(folder):
    return RunState[dict].__origin__ is RunState, RunState[dict, Agent[Any]].__args__[0] is dict


async def example_reasoning_is_what_openai_calls_it(folder):
    given = ModelSettings(reasoning={"effort": "low"})
    adapter = TypeAdapter(ModelSettings)
    same = ModelSettings(reasoning=Reasoning(effort="low", summary="auto"))
    back = adapter.validate_json(adapter.dump_json(same))
    return (
        given.reasoning.effort,
        given.reasoning == Reasoning(effort="low"),
        isinstance(given.reasoning, Reasoning),
        given.reasoning.model_dump(exclude_unset=True),
        back == same,
        back.reasoning.summary,
        dataclasses.replace(given, temperature=1.0).reasoning.effort,
        given.resolve(ModelSettings(reasoning=Reasoning(effort="high"))).reasoning.effort,
        Agent(name="A", model="gpt-5").model_settings.reasoning.effort,
        given.to_json_dict()["reasoning"],
    )


async def example_details_of_usage_are_what_openai_calls_them(folder):
    empty, counted = Usage(), Usage(1, 5, InputTokensDetails(cached_tokens=2, cache_write_tokens=1))
    total = Usage()
    total.add(counted)
    entry = RequestUsage(
        input_tokens=1,
        output_tokens=1,
        total_tokens=2,
        input_tokens_details=InputTokensDetails(cached_tokens=1, cache_write_tokens=0),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=1),
    )
    total.request_usage_entries.append(entry)
    again = deserialize_usage(serialize_usage(total))
    return (
        empty.input_tokens_details.model_dump(),
        empty.output_tokens_details == OutputTokensDetails(reasoning_tokens=0),
        isinstance(total.input_tokens_details, InputTokensDetails),
        total.input_tokens_details.cached_tokens,
        total.input_tokens_details == counted.input_tokens_details,
        serialize_usage(total),
        again == total,
        again.request_usage_entries[0].output_tokens_details.reasoning_tokens,
    )


# --- results that are edited -----------------------------------------------------------------------------------------


async def example_a_result_that_is_edited(folder):
    agent = Agent(name="A", tools=[late], model=ScriptedModel([_call("late", {}), _say("done")]))
    result = await Runner.run(agent, "Go")
    result.final_output = "mine"
    before = len(result.to_input_list())
    result.new_items.pop()
    after = len(result.to_input_list())
    result.new_items = result.new_items[:2]
    result.input = "Something else"
    result.raw_responses = []
    return result.final_output, before, after, result.to_input_list(), result.raw_responses, result.last_response_id


async def example_an_edit_does_not_reach_the_session(folder):
    session = SQLiteSession("s", str(folder / "talks.db"))
    agent = Agent(name="A", model=ScriptedModel([_say("done")]))
    result = await Runner.run(agent, "Go", session=session)
    result.new_items.clear()
    result.final_output = None
    stored = len(await session.get_items())
    session.close()
    return stored, result.to_input_list()


# --- failures --------------------------------------------------------------------------------------------------------


async def example_hooks_that_raise(folder):
    class Starts(RunHooks):
        async def on_tool_start(self, context, agent, tool):
            raise RuntimeError("no")

    class Ends(AgentHooks):
        async def on_tool_end(self, context, agent, tool, result):
            raise RuntimeError("no")

    caught = []
    for run_hooks, agent_hooks in ((Starts(), None), (None, Ends())):
        agent = Agent(name="A", tools=[late], hooks=agent_hooks, model=ScriptedModel([_call("late", {})]))
        try:
            await Runner.run(agent, "Go", hooks=run_hooks)
        except AgentsException as error:
            caught.append((isinstance(error, UserError), type(error.__cause__).__name__))
        except Exception as error:
            caught.append(error)
    return caught


async def example_a_call_repeated_in_other_spacing(folder):
    seen = []

    @function_tool
    def note(v: str) -> str:
        """Note it."""
        seen.append(v)
        return v

    steps = [_call("note", '{"v":"a"}'), _call("note", '{ "v" : "a" }'), _say("done")]
    result = await Runner.run(Agent(name="A", tools=[note], model=ScriptedModel(steps)), "Go")
    return result.final_output, seen


async def example_a_call_id_used_for_another_call(folder):
    @function_tool
    def note(v: str) -> str:
        """Note it."""
        return v

    steps = [_call("note", '{"v":"a"}'), _call("note", '{"v":"b"}'), _say("done")]
    try:
        await Runner.run(Agent(name="A", tools=[note], model=ScriptedModel(steps)), "Go")
    except Exception as error:
        return error


# --- tools that are objects ------------------------------------------------------------------------------------------


class Scale:
    """A scale."""

    class Unit(str):
        pass

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, weight: int, unit: str = "g") -> str:
        """Weigh something.

        Args:
            weight: How heavy.
            unit: In which unit.
        """
        self.count += 1
        return f"{weight} {unit}"


class Café:
    def __call__(self) -> str:
        """Serve."""
        return "coffee"


async def example_an_object_as_a_tool(folder):
    scale = Scale()
    tool = function_tool(scale)
    copied = copy.deepcopy(tool)
    agent = Agent(name="A", tools=[tool], model=ScriptedModel([_call(tool.name, {"weight": 3}), _say("done")]))
    result = await Runner.run(agent, "Go")
    return (
        tool.name,
        tool.description,
        tool.params_json_schema,
        result,
        scale.count,
        tool.__wrapped__ is scale,
        copied.__wrapped__ is scale,
    )


async def example_an_object_whose_class_has_no_usable_name(folder):
    try:
        function_tool(Café())
    except Exception as error:
        return error
    return "accepted"


# --- settings --------------------------------------------------------------------------------------------------------


async def example_dumping_settings_with_a_retry_policy(folder):
    settings = ModelSettings(retry=ModelRetrySettings(max_retries=2, policy=lambda context: True))
    adapter = TypeAdapter(ModelSettings)
    dumped = json.loads(adapter.dump_json(settings, exclude_none=True))
    back = adapter.validate_python(dumped)
    return dumped, back.retry.max_retries, back.retry.policy


class Dropping(Model):
    """Fails once after its answer has begun."""

    def __init__(self) -> None:
        self.asked = 0

    async def get_response(self, *args, **more):
        self.asked += 1
        if self.asked == 1:
            raise ConnectionError("cut")
        return await ScriptedModel([_say("done")]).get_response(*args, **more)

    def stream_response(self, *args, **more):
        raise NotImplementedError

    def get_retry_advice(self, request):
        return ModelRetryAdvice(suggested=False, replay_safety="unsafe", response_started=True)


async def example_a_policy_that_approves_an_unsafe_replay(folder):
    asked = []

    def approve(context):
        asked.append((context.response_started, context.replay_safety))
        return RetryDecision(retry=True, delay=0, approve_unsafe_replay=True)

    model = Dropping()
    settings = ModelSettings(retry=ModelRetrySettings(max_retries=1, policy=approve))
    agent = Agent(name="A", model=model, model_settings=settings)
    result = await Runner.run(agent, "Go", previous_response_id="resp_1")
    return result.final_output, asked, model.asked


# --- loops -----------------------------------------------------------------------------------------------------------


def example_run_sync_on_the_loop_that_the_program_has_set(folder):
    loop = asyncio.get_event_loop()
    waiting = loop.create_future()
    loop.call_soon(waiting.set_result, "from the program's loop")

    @function_tool
    async def wait() -> str:
        """Wait."""
        return await waiting + str(asyncio.get_running_loop() is loop)

    agent = Agent(name="A", tools=[wait], model=ScriptedModel([_call("wait", {}), _say("done")]))
    result = Runner.run_sync(agent, "Go")
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"], loop.is_closed()


async def example_modules_are_attributes(folder):
    modules = (agents.run, agents.items, agents.memory, agents.tool, agents.models, agents.result, agents.version)
    return [module.__name__.partition(".")[2] for module in modules], agents.run.Runner is Runner
