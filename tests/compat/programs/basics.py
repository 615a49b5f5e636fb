"""First steps: an agent, its instructions, its context, its settings, and what a run costs."""

from __future__ import annotations

from dataclasses import dataclass

from agents import (
    Agent,
    MaxTurnsExceeded,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    Runner,
    Usage,
    UserError,
    function_tool,
)
from agents.model_settings import ModelSettings as SameSettings
from agents.run import RunConfig as SameConfig
from agents.testing import ModelStep, ScriptedModel, UnexpectedModelCall, assistant_message, function_call
from agents.usage import Usage as SameUsage


@dataclass
class Guest:
    name: str
    member: bool = False


async def example_hello_world(folder):
    agent = Agent(name="Greeter", instructions="Greet people.", model=ScriptedModel([[assistant_message("Hello!")]]))
    result = await Runner.run(agent, "Hi")
    return result, str(result.final_output), result.input, agent.model.last_call.system_instructions


def example_without_a_loop(folder):
    agent = Agent(name="Greeter", model=ScriptedModel([[assistant_message("Hello!")], [assistant_message("Again!")]]))
    first = Runner.run_sync(agent, "Hi")
    second = Runner.run_sync(agent, [*first.to_input_list(), {"role": "user", "content": "And again"}])
    return first, second, agent.model.last_call.input


async def example_input_as_items(folder):
    agent = Agent(name="Reader", model=ScriptedModel([[assistant_message("A cat.")]]))
    asked = [
        {"role": "system", "content": "Be short."},
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is this?"},
                {"type": "input_image", "image_url": "https://example.com/cat.png", "detail": "auto"},
            ],
        },
    ]
    result = await Runner.run(agent, asked)
    return result, agent.model.last_call.input, result.input


async def example_instructions_from_a_function(folder):
    def by_guest(context: RunContextWrapper[Guest], agent: Agent[Guest]) -> str:
        return f"You are {agent.name} and talk to {context.context.name}."

    async def slowly(context: RunContextWrapper[Guest], agent: Agent[Guest]) -> str:
        return f"{'Thank' if context.context.member else 'Invite'} them."

    model = ScriptedModel([[assistant_message("1")], [assistant_message("2")]])
    agent = Agent[Guest](name="Host", instructions=by_guest, model=model)
    await Runner.run(agent, "Hi", context=Guest("Ada"))
    other = agent.clone(name="Porter", instructions=slowly)
    result = await Runner.run(other, "Hi", context=Guest("Ada", member=True))
    return [call.system_instructions for call in model.calls], other.name, other.model is model, result


async def example_context_reaches_tools(folder):
    @function_tool
    async def fee(context: RunContextWrapper[Guest], nights: int) -> str:
        """What the guest pays.

        Args:
            nights: How many nights.
        """
        return f"{context.context.name}: {0 if context.context.member else nights * 50}"

    steps = [[function_call("fee", {"nights": 3}, call_id="c1")], [assistant_message("150.")]]
    agent: Agent[Guest] = Agent[Guest](name="Desk", tools=[fee], model=ScriptedModel(steps))
    guest = Guest("Bo")
    result = await Runner.run(agent, "How much?", context=guest)
    return result, result.context_wrapper.context is guest, agent.model.last_call.input


async def example_model_settings(folder):
    model = ScriptedModel([[assistant_message("ok")]])
    agent = Agent(name="A", model=model, model_settings=ModelSettings(temperature=0.1, top_p=0.5, max_tokens=10))
    config = RunConfig(model_settings=ModelSettings(temperature=0.9, extra_args={"seed": 7}, metadata={"a": "b"}))
    await Runner.run(agent, "Hi", run_config=config)
    used = model.last_call.model_settings
    merged = ModelSettings(temperature=0.2, extra_args={"a": 1}).resolve(ModelSettings(top_p=0.3, extra_args={"b": 2}))
    return (
        {name: getattr(used, name) for name in ("temperature", "top_p", "max_tokens", "extra_args", "metadata")},
        (merged.temperature, merged.top_p, merged.extra_args),
        (SameSettings is ModelSettings, SameConfig is RunConfig, SameUsage is Usage),
        sorted(used.to_json_dict().items(), key=lambda pair: pair[0]),
    )


async def example_settings_as_plain_dicts(folder):
    model = ScriptedModel([{"output": [assistant_message("ok")]}])
    agent = Agent(name="A", model=model, model_settings={"temperature": 0.3})
    result = await Runner.run(agent, "Hi", run_config={"workflow_name": "w", "model_settings": {"top_p": 0.4}})
    used = model.last_call.model_settings
    return result, used.temperature, used.top_p


async def example_the_model_of_a_run_config(folder):
    mine, other = ScriptedModel([]), ScriptedModel([[assistant_message("from the other")]])
    result = await Runner.run(Agent(name="A", model=mine), "Hi", run_config=RunConfig(model=other))
    return result, len(mine.calls)


async def example_usage_adds_up(folder):
    @function_tool
    def noop() -> str:
        """Do nothing."""
        return "done"

    first = ModelStep(
        output=[function_call("noop", {}, call_id="c1")],
        usage=Usage(requests=1, input_tokens=10, output_tokens=2, total_tokens=12),
    )
    second = ModelStep(
        output=[assistant_message("ok")], usage=Usage(requests=1, input_tokens=20, output_tokens=3, total_tokens=23)
    )
    result = await Runner.run(Agent(name="A", tools=[noop], model=ScriptedModel([first, second])), "Hi")
    usage = result.context_wrapper.usage
    per_request = [(entry.input_tokens, entry.output_tokens) for entry in usage.request_usage_entries]
    raw = [(response.usage.total_tokens, response.response_id) for response in result.raw_responses]
    return usage.requests, usage.input_tokens, usage.output_tokens, usage.total_tokens, per_request, raw


async def example_too_many_turns(folder):
    @function_tool
    def again() -> str:
        """Once more."""
        return "again"

    steps = [[function_call("again", {}, call_id=f"c{n}")] for n in range(5)]
    agent = Agent(name="A", tools=[again], model=ScriptedModel(steps))
    try:
        await Runner.run(agent, "Hi", max_turns=2)
    except MaxTurnsExceeded as error:
        return error, [item.type for item in error.run_data.new_items], error.run_data.last_agent.name


async def example_forced_tool_use(folder):
    @function_tool
    def clock() -> str:
        """The time."""
        return "noon"

    def agent(**more):
        steps = [[function_call("clock", {}, call_id="c1")], [assistant_message("It is noon.")]]
        settings = ModelSettings(tool_choice="required")
        return Agent(name="A", tools=[clock], model=ScriptedModel(steps), model_settings=settings, **more)

    seen = []
    for one in (agent(), agent(reset_tool_choice=False)):
        result = await Runner.run(one, "Time?")
        seen.append((result, [call.model_settings.tool_choice for call in one.model.calls]))
    return seen


async def example_a_script_that_does_not_fit(folder):
    model = ScriptedModel([])
    seen = []
    try:
        await Runner.run(Agent(name="A", model=model), "Hi")
    except UnexpectedModelCall as error:
        seen.append(error)
    model.enqueue([assistant_message("x")])
    try:
        model.assert_complete()
    except Exception as error:
        seen.append(error)
    return seen, model.remaining_steps


async def example_mistakes_of_a_caller(folder):
    model = ScriptedModel([[assistant_message("x")]] * 3)
    attempts = {
        "agent of a wrong kind": lambda: Runner.run("agent", "Hi"),
        "name of a wrong kind": lambda: Agent(name=3),
        "tools of a wrong kind": lambda: Agent(name="A", tools="hammer"),
        "unknown setting": lambda: Agent(name="A", model_settings={"warmth": 1}),
        "unknown field of a config": lambda: Runner.run(Agent(name="A", model=model), "Hi", run_config={"x": 1}),
    }
    seen = {}
    for what, attempt in attempts.items():
        try:
            made = attempt()
            if hasattr(made, "__await__"):
                await made
            seen[what] = "accepted"
        except (UserError, TypeError, AttributeError, ValueError) as error:
            seen[what] = isinstance(error, TypeError | UserError | AttributeError)
    return seen
