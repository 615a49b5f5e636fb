"""Models and providers of one's own, and when a tool's result is the answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from agents import (
    Agent,
    FunctionToolResult,
    Model,
    ModelProvider,
    ModelResponse,
    ModelSettings,
    MultiProvider,
    RunConfig,
    RunContextWrapper,
    Runner,
    StopAtTools,
    ToolsToFinalOutputResult,
    Usage,
    function_tool,
)
from agents.agent import StopAtTools as SameStop
from agents.models.interface import Model as SameModel, ModelTracing
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)


def _message(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(text=text, type="output_text", annotations=[], logprobs=[])
    return ResponseOutputMessage(id="m1", type="message", role="assistant", status="completed", content=[part])


class Parrot(Model):
    """Repeats the last thing that was said; calls a tool first if there is one."""

    def __init__(self, name: str = "parrot") -> None:
        self.name = name

    def _output(self, input: Any, tools: list[Any]) -> list[Any]:
        items = [{"role": "user", "content": input}] if isinstance(input, str) else input
        if tools and not any(item.get("type") == "function_call_output" for item in items):
            return [
                ResponseFunctionToolCall(
                    id="f1", call_id="c1", type="function_call", name=tools[0].name, arguments='{"word": "tea"}'
                )
            ]
        last = items[-1]
        return [_message(f"{self.name}: {last.get('content') or last.get('output')}")]

    async def get_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any,
        handoffs: list[Any],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: Any,
    ) -> ModelResponse:
        usage = Usage(requests=1, input_tokens=3, output_tokens=4, total_tokens=7)
        return ModelResponse(output=self._output(input, tools), usage=usage, response_id="r1")

    async def stream_response(
        self,
        system_instructions: str | None,
        input: Any,
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any,
        handoffs: list[Any],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: Any,
    ) -> AsyncIterator[Any]:
        output = self._output(input, tools)
        if output[0].type == "message":
            for letter in output[0].content[0].text:
                yield ResponseTextDeltaEvent(
                    type="response.output_text.delta",
                    delta=letter,
                    content_index=0,
                    item_id="m1",
                    output_index=0,
                    sequence_number=0,
                    logprobs=[],
                )
        response = Response(
            id="r1",
            created_at=0,
            model=self.name,
            object="response",
            output=output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=False,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=1)


class Aviary(ModelProvider):
    def get_model(self, model_name: str | None) -> Model:
        return Parrot(model_name or "nameless")


@function_tool
def define(word: str) -> str:
    """Define a word."""
    return f"{word} is a drink"


async def example_a_model_of_ones_own(folder):
    result = await Runner.run(Agent(name="A", model=Parrot(), tools=[define]), "Hi")
    first, last = result.new_items[0].raw_item, result.new_items[-1].raw_item
    usage = result.context_wrapper.usage
    return result, (first.name, first.arguments), last.content[0].text, usage.total_tokens, SameModel is Model


async def example_it_streams(folder):
    result = Runner.run_streamed(Agent(name="A", model=Parrot(), tools=[define]), "Hi")
    text, names = "", []
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            text += event.data.delta
        elif event.type == "run_item_stream_event":
            names.append(event.name)
    return text, names, result.final_output


async def example_a_provider_of_ones_own(folder):
    config = RunConfig(model_provider=Aviary())
    named = await Runner.run(Agent(name="A", model="grey"), "Hi", run_config=config)
    nameless = await Runner.run(Agent(name="A"), "Hi", run_config=config)
    chosen = await Runner.run(
        Agent(name="A", model="grey"), "Hi", run_config=RunConfig(model="blue", model_provider=Aviary())
    )
    return named.final_output, nameless.final_output, chosen.final_output


async def example_providers_by_prefix(folder):
    from agents.models.multi_provider import MultiProviderMap

    birds = MultiProviderMap()
    birds.add_provider("birds", Aviary())
    config = RunConfig(model_provider=MultiProvider(provider_map=birds, openai_api_key="unused"))
    result = await Runner.run(Agent(name="A", model="birds/grey"), "Hi", run_config=config)
    return result.final_output


@function_tool
def price(item: str) -> int:
    """The price."""
    return 7


@function_tool
def stock(item: str) -> str:
    """The stock."""
    return "plenty"


def _shop(behavior: Any, *steps: Any) -> Agent[Any]:
    return Agent(name="Shop", tools=[price, stock], tool_use_behavior=behavior, model=ScriptedModel(steps))


_ASK_PRICE = [function_call("price", {"item": "tea"}, call_id="c1")]
_ASK_STOCK = [function_call("stock", {"item": "tea"}, call_id="c2")]
_SAY = [assistant_message("7, and plenty.")]


async def example_every_behavior(folder):
    def sold(context: RunContextWrapper[Any], results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
        assert all(result.tool.name in ("price", "stock") for result in results)
        outputs = [result.output for result in results]
        return ToolsToFinalOutputResult(is_final_output=7 in outputs, final_output=outputs if 7 in outputs else None)

    async def later(context: RunContextWrapper[Any], results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
        return ToolsToFinalOutputResult(is_final_output=False)

    seen = {}
    behaviors = {
        "run_llm_again": "run_llm_again",
        "stop_on_first_tool": "stop_on_first_tool",
        "stop at": StopAtTools(stop_at_tool_names=["price"]),
        "a function": sold,
        "another": later,
    }
    for name, behavior in behaviors.items():
        agent = _shop(behavior, _ASK_STOCK, _ASK_PRICE, _SAY)
        result = await Runner.run(agent, "Tea?")
        kind = type(result.final_output).__name__
        seen[name] = (result.final_output, kind, [item.type for item in result.new_items], len(agent.model.calls))
    return seen, SameStop is StopAtTools


async def example_two_calls_and_a_stop(folder):
    result = await Runner.run(_shop("stop_on_first_tool", [*_ASK_STOCK, *_ASK_PRICE]), "Tea?")
    return result
