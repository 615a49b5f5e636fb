"""Programs as the SDK's documentation shows them, whole: what a user who follows it writes on the first days."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import dataclass
from typing import Any, Literal

from agents import (
    Agent,
    AgentHooks,
    AgentOutputSchema,
    GuardrailFunctionOutput,
    HandoffInputData,
    InputGuardrailTripwireTriggered,
    ItemHelpers,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ModelSettings,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    SQLiteSession,
    StopAtTools,
    ToolGuardrailFunctionOutput,
    ToolsToFinalOutputResult,
    TResponseInputItem,
    Usage,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.extensions import handoff_filters
from agents.extensions.handoff_prompt import RECOMMENDED_PROMPT_PREFIX, prompt_with_handoff_instructions
from agents.mcp import MCPServerStdio, create_static_tool_filter
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseTextDeltaEvent
from pydantic import BaseModel, Field


def _says(*texts: str) -> ScriptedModel:
    return ScriptedModel([[assistant_message(text)] for text in texts])


def _sent(model: ScriptedModel) -> list[Any]:
    """What each request carried, without the sentences that are each library's own."""
    sent = []
    for call in model.calls:
        items = [call.input] if isinstance(call.input, str) else call.input
        sent.append([item if isinstance(item, str) else item.get("role") or item.get("type") for item in items])
    return sent


# --- handoffs --------------------------------------------------------------------------------------------------------


class Escalation(BaseModel):
    reason: str
    urgency: Literal["low", "high"] = "low"


async def example_a_triage_with_filters_and_input(folder):
    log: list[Any] = []

    @function_tool
    def look_up(order: str) -> str:
        """Look an order up."""
        return f"{order} was shipped"

    async def on_escalation(ctx: RunContextWrapper[dict[str, Any]], data: Escalation) -> None:
        ctx.context["escalated"] = data.reason
        log.append((data.reason, data.urgency))

    def keep_last(data: HandoffInputData) -> HandoffInputData:
        data = handoff_filters.remove_all_tools(data)
        history = data.input_history[-1:] if isinstance(data.input_history, tuple) else data.input_history
        return HandoffInputData(history, data.pre_handoff_items, data.new_items)

    refunds_model, manager_model = _says("Refunded."), _says("I take over.")
    refunds = Agent(name="Refund agent", instructions=f"{RECOMMENDED_PROMPT_PREFIX}\nRefund.", model=refunds_model)
    manager = Agent(
        name="Manager", handoff_description="For complaints", model=manager_model, instructions="Calm people down."
    )
    results = []
    for name, arguments in (("escalate", {"reason": "angry", "urgency": "high"}), ("transfer_to_refund_agent", {})):
        model = ScriptedModel(
            [
                [function_call("look_up", {"order": "A1"}, call_id="c1")],
                [assistant_message("One moment."), function_call(name, arguments, call_id="c2")],
            ]
        )
        triage = Agent[dict[str, Any]](
            name="Triage agent",
            instructions=prompt_with_handoff_instructions("Route people."),
            tools=[look_up],
            handoffs=[
                handoff(refunds, input_filter=keep_last),
                handoff(manager, tool_name_override="escalate", on_handoff=on_escalation, input_type=Escalation),
            ],
            model=model,
        )
        context: dict[str, Any] = {}
        result = await Runner.run(triage, "Where is my order?", context=context)
        kinds = [type(item).__name__ for item in result.new_items]
        results.append(
            (result.final_output, result.last_agent.name, context, kinds, [t.name for t in model.calls[0].tools])
        )
    prefix = RECOMMENDED_PROMPT_PREFIX in (refunds_model.calls[0].system_instructions or "")
    return results[0], results[1][:3], log, _sent(refunds_model), _sent(manager_model), prefix


# --- guardrails ------------------------------------------------------------------------------------------------------


class Homework(BaseModel):
    is_homework: bool
    reasoning: str


async def example_guardrails_that_ask_an_agent(folder):
    verdict = {"is_homework": True, "reasoning": "It asks to solve for x."}
    judge_model = ScriptedModel([[assistant_message(json.dumps(verdict))] for _ in range(2)])
    judge = Agent(name="Guardrail check", output_type=Homework, model=judge_model)

    @input_guardrail
    async def homework(
        ctx: RunContextWrapper[None], agent: Agent[Any], input: str | list[TResponseInputItem]
    ) -> GuardrailFunctionOutput:
        result = await Runner.run(judge, input, context=ctx.context)
        found = result.final_output_as(Homework)
        return GuardrailFunctionOutput(output_info=found, tripwire_triggered=found.is_homework)

    @output_guardrail(name="no numbers")
    async def numbers(ctx: RunContextWrapper[Any], agent: Agent[Any], output: str) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(
            output_info={"said": output}, tripwire_triggered=any(c.isdigit() for c in output)
        )

    seen: list[Any] = []
    agent = Agent(name="Support", input_guardrails=[homework], model=_says("x is 3."))
    try:
        await Runner.run(agent, "Solve 2x + 3 = 9")
    except InputGuardrailTripwireTriggered as error:
        found = error.guardrail_result
        seen.append((found.guardrail.get_name(), found.output.output_info, error.run_data is not None))
    stream = Runner.run_streamed(agent.clone(model=_says("x is 3.")), "Solve 2x + 3 = 9")
    try:
        async for _ in stream.stream_events():
            pass
    except InputGuardrailTripwireTriggered as error:
        seen.append((type(error.guardrail_result).__name__, stream.is_complete))
    try:
        await Runner.run(Agent(name="Support", output_guardrails=[numbers], model=_says("It is 42.")), "How many?")
    except OutputGuardrailTripwireTriggered as error:
        found = error.guardrail_result
        seen.append((found.guardrail.get_name(), found.output.output_info, found.agent_output, found.agent.name))
    passed = await Runner.run(Agent(name="Support", output_guardrails=[numbers], model=_says("Many.")), "How many?")
    return seen, passed, [result.output.tripwire_triggered for result in passed.output_guardrail_results]


async def example_guardrails_of_tools(folder):
    @tool_input_guardrail
    def no_secrets(data):
        arguments = json.loads(data.context.tool_arguments)
        if "sk-" in arguments["text"]:
            return ToolGuardrailFunctionOutput.reject_content("Leave keys out.")
        return ToolGuardrailFunctionOutput.allow(output_info={"checked": True})

    @tool_output_guardrail
    def no_numbers(data):
        if "42" in str(data.output):
            return ToolGuardrailFunctionOutput.reject_content("Withheld.", output_info="a number")
        return ToolGuardrailFunctionOutput.allow()

    @function_tool(tool_input_guardrails=[no_secrets], tool_output_guardrails=[no_numbers])
    def classify(text: str) -> str:
        """Classify."""
        return f"{text} is {len(text)}"

    texts = ("sk-123", "hello", "x" * 42)
    calls = [function_call("classify", {"text": text}, call_id=f"c{n}") for n, text in enumerate(texts)]
    agent = Agent(name="A", tools=[classify], model=ScriptedModel([calls, [assistant_message("Done.")]]))
    result = await Runner.run(agent, "Go")
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    return outputs, len(result.tool_input_guardrail_results), len(result.tool_output_guardrail_results)


# --- streaming -------------------------------------------------------------------------------------------------------


async def example_a_stream_as_a_page_shows_it(folder):
    @function_tool
    def how_many_jokes() -> int:
        """How many."""
        return 2

    joker = Agent(name="Joker", model=_says("Ha. Ha."))
    steps = [
        [function_call("how_many_jokes", {}, call_id="c1")],
        [assistant_message("Over to Joker."), function_call("transfer_to_joker", {}, call_id="c2")],
    ]
    agent = Agent(name="Host", tools=[how_many_jokes], handoffs=[joker], model=ScriptedModel(steps))
    result = Runner.run_streamed(agent, input="Hello")
    lines: list[str] = []
    async for event in result.stream_events():
        if event.type == "raw_response_event":
            if isinstance(event.data, ResponseTextDeltaEvent):
                lines.append(f"delta {event.data.delta}")
        elif event.type == "agent_updated_stream_event":
            lines.append(f"agent {event.new_agent.name}")
        elif event.item.type == "tool_call_item":
            lines.append(f"{event.name} {getattr(event.item.raw_item, 'name', None)}")
        elif event.item.type == "tool_call_output_item":
            lines.append(f"{event.name} {event.item.output}")
        elif event.item.type == "message_output_item":
            lines.append(f"{event.name} {ItemHelpers.text_message_output(event.item)}")
        else:
            lines.append(event.name)
    return lines, result.is_complete, result.current_turn, result.final_output, result.current_agent.name


# --- sessions --------------------------------------------------------------------------------------------------------


async def example_a_conversation_with_a_correction(folder):
    session = SQLiteSession("user_1", folder / "talks.db")
    model = _says("San Francisco.", "California.", "About 39 million.", "Of what?")
    agent = Agent(name="Assistant", instructions="Reply very concisely.", model=model)
    first = await Runner.run(agent, "What city is the Golden Gate Bridge in?", session=session)
    second = await Runner.run(agent, "What state is it in?", session=session)
    popped = [await session.pop_item(), await session.pop_item()]

    def last_two(history: list[TResponseInputItem], new: list[TResponseInputItem]) -> list[TResponseInputItem]:
        return history[-2:] + new

    config = RunConfig(session_input_callback=last_two)
    third = await Runner.run(agent, "And its population?", session=session, run_config=config)
    held = [item.get("role") for item in await session.get_items()]
    latest = len(await session.get_items(limit=1))
    await session.clear_session()
    fourth = await Runner.run(agent, [{"role": "user", "content": "And its population?"}], session=session)
    results = [result.final_output for result in (first, second, third, fourth)]
    return results, [item.get("role") for item in popped], held, latest, _sent(model)


# --- tools that end a run --------------------------------------------------------------------------------------------


class Weather(BaseModel):
    city: str
    degrees: int


async def example_what_tools_may_decide(folder):
    @function_tool
    def get_weather(city: str) -> Weather:
        """Weather."""
        return Weather(city=city, degrees=20)

    @function_tool
    def sum_numbers(a: int, b: int) -> int:
        """Sum."""
        return a + b

    async def decide(context, results):
        best = results[0].output
        return ToolsToFinalOutputResult(is_final_output=True, final_output=f"{best.city} is fine")

    calls = [
        function_call("sum_numbers", {"a": 1, "b": 2}, call_id="c1"),
        function_call("get_weather", {"city": "Rome"}, call_id="c2"),
    ]
    seen = []
    for behavior, reply in (
        ("run_llm_again", calls),
        ("stop_on_first_tool", calls),
        (StopAtTools(stop_at_tool_names=["get_weather"]), calls),
        (decide, calls[1:]),
    ):
        model = ScriptedModel([reply, [assistant_message("Said by the model.")]])
        settings = ModelSettings(tool_choice="required", parallel_tool_calls=True)
        agent = Agent(
            name="A", tools=[get_weather, sum_numbers], tool_use_behavior=behavior, model=model, model_settings=settings
        )
        result = await Runner.run(agent, "Go")
        choices = [call.model_settings.tool_choice for call in model.calls]
        seen.append((str(result.final_output), type(result.final_output).__name__, choices))
    return seen


# --- lifecycle -------------------------------------------------------------------------------------------------------


async def example_every_hook_in_its_order(folder):
    told: list[str] = []

    def used(usage: Usage) -> str:
        return f"{usage.requests} requests, {usage.total_tokens} tokens"

    class OfRun(RunHooks[Any]):
        async def on_agent_start(self, context, agent):
            told.append(f"run: {agent.name} started, {used(context.usage)}")

        async def on_llm_start(self, context, agent, system_prompt, input_items):
            told.append(f"run: asking for {agent.name}: {system_prompt}, {len(input_items)} items")

        async def on_llm_end(self, context, agent, response):
            told.append(f"run: answered {agent.name}: {len(response.output)} items, {used(context.usage)}")

        async def on_agent_end(self, context, agent, output):
            told.append(f"run: {agent.name} ended with {output}")

        async def on_tool_start(self, context, agent, tool):
            told.append(f"run: {tool.name} {context.tool_call_id} {context.tool_arguments}")

        async def on_tool_end(self, context, agent, tool, result):
            told.append(f"run: {tool.name} returned {result!r}")

        async def on_handoff(self, context, from_agent, to_agent):
            told.append(f"run: {from_agent.name} to {to_agent.name}")

    class OfAgent(AgentHooks[Any]):
        async def on_start(self, context, agent):
            told.append(f"agent: {agent.name} started")

        async def on_end(self, context, agent, output):
            told.append(f"agent: {agent.name} ended with {output}")

        async def on_handoff(self, context, agent, source):
            told.append(f"agent: {source.name} to {agent.name}")

        async def on_tool_start(self, context, agent, tool):
            told.append(f"agent: {tool.name}")

        async def on_tool_end(self, context, agent, tool, result):
            told.append(f"agent: {tool.name} returned {result!r}")

        async def on_llm_start(self, context, agent, system_prompt, input_items):
            told.append("agent: asking")

        async def on_llm_end(self, context, agent, response):
            told.append("agent: answered")

    @function_tool
    def double(number: int) -> int:
        """Double."""
        return number * 2

    usage = Usage(requests=1, input_tokens=3, output_tokens=4, total_tokens=7)
    second = Agent(
        name="Multiply",
        instructions="Double it.",
        hooks=OfAgent(),
        tools=[double],
        model=ScriptedModel(
            [
                ModelStep(output=[function_call("double", {"number": 3}, call_id="c2")], usage=usage),
                ModelStep(output=[assistant_message("6")], usage=usage),
            ]
        ),
    )
    first = Agent(
        name="Start",
        instructions="Hand over.",
        hooks=OfAgent(),
        handoffs=[second],
        model=ScriptedModel([ModelStep(output=[function_call("transfer_to_multiply", {}, call_id="c1")], usage=usage)]),
    )
    result = await Runner.run(first, "Take 3", hooks=OfRun())
    return told, result.final_output, used(result.context_wrapper.usage), len(result.raw_responses)


# --- outputs ---------------------------------------------------------------------------------------------------------


class Step(BaseModel):
    explanation: str
    output: str = Field(description="What it came to")


class Solution(BaseModel):
    steps: list[Step]
    answer: str | None = None


@dataclass
class Joke:
    setup: str
    laughs: int


async def example_outputs_of_many_types(folder):
    solution = {"steps": [{"explanation": "Add.", "output": "3"}], "answer": "3"}
    seen = []
    for kind, text in (
        (Solution, json.dumps(solution)),
        (Joke, '{"setup": "Knock", "laughs": 2}'),
        (list[int], '{"response": [1, 2]}'),
        (int | None, '{"response": null}'),
        (AgentOutputSchema(dict[str, int], strict_json_schema=False), '{"a": 1}'),
        (Solution, "no JSON"),
        (Solution, '{"steps": 3}'),
    ):
        model = _says(text)
        try:
            result = await Runner.run(Agent(name="A", output_type=kind, model=model), "Go")
            seen.append((result.final_output, type(result.final_output).__name__))
        except ModelBehaviorError as error:
            seen.append(("wrong", type(error).__name__))
        schema = model.calls[0].output_schema
        seen.append((schema.name(), schema.is_strict_json_schema(), schema.json_schema()))
    return seen


# --- agents as tools -------------------------------------------------------------------------------------------------


class Translation(BaseModel):
    text: str = Field(description="What to translate")
    language: str = "es"


async def example_agents_as_tools_that_are_watched(folder):
    watched: list[Any] = []

    async def on_stream(event):
        inner = event["event"]
        name = inner.name if inner.type == "run_item_stream_event" else inner.type
        if inner.type != "raw_response_event":
            watched.append((event["agent"].name, event["tool_call"].call_id, name))

    async def extract(result):
        return f"[{result.final_output}]"

    async def enabled(ctx: RunContextWrapper[Any], agent: Agent[Any]) -> bool:
        return bool(ctx.context["french"])

    spanish = Agent(name="Spanish", instructions="Translate.", model=_says("Hola", "Adiós"))
    french = Agent(name="French", instructions="Translate.", model=_says("Salut"))
    model = ScriptedModel(
        [
            [function_call("to_spanish", {"input": "Hi"}, call_id="c1")],
            [function_call("structured", {"text": "Bye", "language": "es"}, call_id="c2")],
            [assistant_message("Hola. Adiós.")],
        ]
    )
    agent = Agent(
        name="Orchestrator",
        tools=[
            spanish.as_tool("to_spanish", "To Spanish", on_stream=on_stream, custom_output_extractor=extract),
            spanish.as_tool("structured", "To any language", parameters=Translation, include_input_schema=False),
            french.as_tool("to_french", "To French", is_enabled=enabled),
        ],
        model=model,
    )
    result = await Runner.run(agent, "Translate", context={"french": False})
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    shown = [[tool.name for tool in call.tools] for call in model.calls]
    return result.final_output, outputs, watched, shown, result.context_wrapper.usage.requests


# --- limits and handlers ---------------------------------------------------------------------------------------------


async def example_limits_and_what_handles_them(folder):
    @function_tool
    def again() -> str:
        """Again."""
        return "again"

    def model() -> ScriptedModel:
        return ScriptedModel([[function_call("again", {}, call_id=f"c{n}")] for n in range(5)])

    seen: list[Any] = []
    try:
        await Runner.run(Agent(name="A", tools=[again], model=model()), "Go", max_turns=2)
    except MaxTurnsExceeded as error:
        data = error.run_data
        seen.append((len(data.new_items), len(data.raw_responses), data.last_agent.name, data.input))

    def handler(given):
        return {"final_output": f"Stopped after {len(given.run_data.new_items)} items.", "include_in_history": False}

    handled = await Runner.run(
        Agent(name="A", tools=[again], model=model()), "Go", max_turns=2, error_handlers={"max_turns": handler}
    )
    return seen, handled.final_output, len(handled.new_items)


@dataclass
class User:
    name: str
    is_pro: bool


async def example_a_chat_turn_by_turn(folder):
    def instructions(ctx: RunContextWrapper[User], agent: Agent[User]) -> str:
        return f"{agent.name} talks to {ctx.context.name}{' (pro)' if ctx.context.is_pro else ''}."

    @function_tool
    async def fetch_user_age(wrapper: RunContextWrapper[User]) -> str:
        """Fetch the age of the user."""
        return f"{wrapper.context.name} is 47 years old"

    model = ScriptedModel(
        [
            [function_call("fetch_user_age", {}, call_id="c1")],
            [assistant_message("You are 47.")],
            [assistant_message("As I said.")],
        ]
    )
    agent = Agent[User](name="Assistant", instructions=instructions, tools=[fetch_user_age], model=model)
    pirate = agent.clone(name="Pirate")
    first = await Runner.run(agent, "How old am I?", context=User("John", True))
    items = [*first.to_input_list(), {"role": "user", "content": "Really?"}]
    second = await Runner.run(pirate, items, context=User("John", False))
    prompts = [call.system_instructions for call in model.calls]
    return first, second, prompts, _sent(model), first.last_response_id


async def example_many_at_once(folder):
    agents = [Agent(name=f"A{n}", model=_says(f"Answer {n}")) for n in range(5)]
    results = await asyncio.gather(*(Runner.run(agent, "Go") for agent in agents))
    return [result.final_output for result in results]


# --- MCP -------------------------------------------------------------------------------------------------------------

SERVER = """
from mcp.server.mcpserver import MCPServer

server = MCPServer("Files", log_level="ERROR")


@server.tool()
def read_file(path: str) -> str:
    "Read a file."
    return f"contents of {path}"


@server.tool()
def delete_file(path: str) -> str:
    "Delete a file."
    raise ValueError("not allowed")


server.run()
"""


async def example_tools_of_a_server_over_stdio(folder):
    (folder / "server.py").write_text(SERVER)
    params = {"command": sys.executable, "args": [str(folder / "server.py")]}
    model = ScriptedModel(
        [
            [function_call("read_file", {"path": "a.txt"}, call_id="c1")],
            [assistant_message("Read.")],
        ]
    )
    async with MCPServerStdio(
        name="Files",
        params=params,
        cache_tools_list=True,
        client_session_timeout_seconds=60,
        tool_filter=create_static_tool_filter(blocked_tool_names=["delete_file"]),
    ) as server:
        agent = Agent(name="A", mcp_servers=[server], model=model)
        result = await Runner.run(agent, "Read a.txt")
        listed = [tool.name for tool in await server.list_tools(RunContextWrapper(context=None), agent)]
        direct = await server.call_tool("read_file", {"path": "b.txt"})
    output = result.new_items[1]
    origin = output.tool_origin
    shown = [(tool.name, tool.description) for tool in model.calls[0].tools]
    texts = [part.text for part in direct.content]
    return result.final_output, output.output, shown, listed, texts, origin.type.value, origin.mcp_server_name
