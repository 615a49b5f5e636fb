"""Function tools: every kind of parameter, the schema a model sees, failures, and what may come back."""

from __future__ import annotations

import asyncio
import enum
import json
from typing import Annotated, Any, Literal, Optional

from agents import (
    Agent,
    FunctionTool,
    ModelBehaviorError,
    RunConfig,
    RunContextWrapper,
    Runner,
    ToolCallItem,
    ToolCallOutputItem,
    ToolOutputImage,
    ToolOutputText,
    UserError,
    default_tool_error_function,
    function_tool,
)
from agents.decorators import tool
from agents.function_schema import function_schema
from agents.strict_schema import ensure_strict_json_schema
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext
from pydantic import BaseModel, Field
from typing_extensions import TypedDict


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Place(TypedDict):
    street: str
    number: int


class Parcel(BaseModel):
    weight: float = Field(ge=0, description="In kilograms.")
    labels: list[str] = []


@function_tool
def simple(a: int, b: float = 1.5, c: str | None = None) -> str:
    """Add things up.

    Args:
        a: The first.
        b: The second.
        c: A word.
    """
    return f"{a} {b} {c}"


@function_tool
async def rich(
    color: Color,
    place: Place,
    parcel: Parcel,
    mode: Literal["fast", "cheap"] = "fast",
    tags: Optional[list[str]] = None,  # noqa: UP045 — both ways of writing it are met
    note: Annotated[str, "What to write on it"] = "",
    count: int = Field(3, ge=1, le=9, description="How many."),
) -> str:
    """Send a parcel.

    :param color: Of the paper.
    :param place: Where to.
    """
    return json.dumps([color.value, place, parcel.model_dump(), mode, tags, note, count])


@function_tool(strict_mode=False)
def loose(first: str, *rest: int, **more: Any) -> str:
    """Take anything."""
    return json.dumps([first, list(rest), more])


@function_tool(name_override="renamed", description_override="Another word for it.", use_docstring_info=False)
def original(x: list[int] | int = 3) -> str:
    """Not shown."""
    return str(x)


@tool
def nothing() -> None:
    """Return nothing."""


async def example_schemas_a_model_sees(folder):
    assert isinstance(simple, FunctionTool)
    made = [simple, rich, loose, original, nothing]
    return [(t.name, t.description, t.params_json_schema, t.strict_json_schema) for t in made]


async def example_a_tool_that_strict_mode_refuses(folder):
    def open_ended(x: dict[str, int]) -> str:
        """Anything."""
        return str(x)

    try:
        function_tool(open_ended)
    except UserError as error:
        return error, function_tool(open_ended, strict_mode=False).params_json_schema


async def example_calls_of_every_kind(folder):
    calls = [
        function_call("simple", {"a": 1, "b": 2.5, "c": "x"}, call_id="c1"),
        function_call("simple", {"a": 1}, call_id="c2"),
        function_call(
            "rich",
            {
                "color": "blue",
                "place": {"street": "High", "number": 5},
                "parcel": {"weight": 1.5, "labels": ["a"]},
                "mode": "cheap",
                "tags": ["t"],
                "note": "n",
                "count": 4,
            },
            call_id="c3",
        ),
        function_call("loose", {"first": "a", "rest": [1, 2], "more": {"k": "v"}}, call_id="c4"),
        function_call("nothing", {}, call_id="c5"),
    ]
    agent = Agent(
        name="A", tools=[simple, rich, loose, nothing], model=ScriptedModel([calls, [assistant_message("ok")]])
    )
    result = await Runner.run(agent, "Go")
    outputs = [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    names = [item.raw_item.name for item in result.new_items if isinstance(item, ToolCallItem)]
    return outputs, names, agent.model.last_call.input


async def example_outputs_of_every_kind(folder):
    @function_tool
    def picture() -> ToolOutputImage:
        """A picture."""
        return ToolOutputImage(image_url="https://example.com/a.png", detail="low")

    @function_tool
    def text_parts() -> list[Any]:
        """Two texts."""
        return [ToolOutputText(text="one"), {"type": "text", "text": "two"}]

    @function_tool
    def number() -> int:
        """A number."""
        return 7

    @function_tool
    def table() -> dict[str, Any]:
        """A dict."""
        return {"a": [1, 2], "b": None}

    tools = [picture, text_parts, number, table]
    calls = [function_call(t.name, {}, call_id=t.name) for t in tools]
    agent = Agent(name="A", tools=tools, model=ScriptedModel([calls, [assistant_message("ok")]]))
    result = await Runner.run(agent, "Go")
    outputs = [type(item.output).__name__ for item in result.new_items if isinstance(item, ToolCallOutputItem)]
    return outputs, agent.model.last_call.input[-4:]


async def example_a_tool_that_fails(folder):
    @function_tool
    def fails() -> str:
        """Fail."""
        raise ValueError("out of paper")

    def explain(context: RunContextWrapper[Any], error: Exception) -> str:
        return f"sorry: {type(error).__name__}"

    @function_tool(failure_error_function=explain)
    def explained() -> str:
        """Fail, explained."""
        raise ValueError("out of ink")

    @function_tool(failure_error_function=None)
    def strict() -> str:
        """Fail for good."""
        raise ZeroDivisionError("no")

    steps = [
        [function_call("fails", {}, call_id="c1"), function_call("explained", {}, call_id="c2")],
        [function_call("strict", {}, call_id="c3")],
    ]
    agent = Agent(name="A", tools=[fails, explained, strict], model=ScriptedModel(steps))
    try:
        await Runner.run(agent, "Go")
        return "no error"
    except Exception as error:
        outputs = [item["output"] for item in agent.model.last_call.input if item.get("type") == "function_call_output"]
        default = default_tool_error_function(RunContextWrapper(None), ValueError("out of paper"))
        return error, ["out of paper" in outputs[0], outputs[1]], outputs[0] == default


async def example_arguments_that_do_not_fit(folder):
    steps = [
        [function_call("simple", {"a": "many"}, call_id="c1"), function_call("simple", "{not json", call_id="c2")],
        [assistant_message("ok")],
    ]
    agent = Agent(name="A", tools=[simple], model=ScriptedModel(steps))
    result = await Runner.run(agent, "Go")
    return result.final_output, [item.type for item in result.new_items]


async def example_a_tool_that_is_not_there(folder):
    steps = [[function_call("missing", {}, call_id="c1")], [assistant_message("ok")]]
    try:
        await Runner.run(Agent(name="A", tools=[simple], model=ScriptedModel(steps)), "Go")
    except ModelBehaviorError as error:
        first = error
    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    result = await Runner.run(Agent(name="A", tools=[simple], model=ScriptedModel(steps)), "Go", run_config=config)
    return first, result.final_output, [item.type for item in result.new_items]


async def example_a_tool_made_by_hand(folder):
    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        return f"{context.tool_name} {context.tool_call_id} {json.loads(arguments)['x']}"

    made = FunctionTool(
        name="by_hand",
        description="Made by hand.",
        params_json_schema={"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
        on_invoke_tool=invoke,
    )
    steps = [[function_call("by_hand", {"x": 5}, call_id="c1")], [assistant_message("ok")]]
    agent = Agent(name="A", tools=[made], model=ScriptedModel(steps))
    result = await Runner.run(agent, "Go")
    return result, made.params_json_schema, agent.model.last_call.input


async def example_tools_that_are_switched_off(folder):
    def members_only(context: RunContextWrapper[dict], agent: Agent[Any]) -> bool:
        return context.context["member"]

    @function_tool(is_enabled=members_only)
    def lounge() -> str:
        """The lounge."""
        return "open"

    @function_tool(is_enabled=False)
    def cellar() -> str:
        """The cellar."""
        return "closed"

    seen = []
    for member in (True, False):
        model = ScriptedModel([[assistant_message("ok")]])
        agent = Agent(name="A", tools=[lounge, cellar, simple], model=model)
        await Runner.run(agent, "Go", context={"member": member})
        seen.append([t.name for t in model.last_call.tools])
    return seen


async def example_a_tool_that_takes_too_long(folder):
    @function_tool(timeout=0.05)
    async def slow() -> str:
        """Wait."""
        await asyncio.sleep(60)
        return "never"

    steps = [[function_call("slow", {}, call_id="c1")], [assistant_message("ok")]]
    agent = Agent(name="A", tools=[slow], model=ScriptedModel(steps))
    result = await Runner.run(agent, "Go")
    return result.final_output, [item.type for item in result.new_items]


async def example_calls_run_side_by_side_and_come_back_in_order(folder):
    gate = asyncio.Event()

    @function_tool
    async def waits() -> str:
        """Wait for the other."""
        await gate.wait()
        return "first"

    @function_tool
    async def opens() -> str:
        """Open the gate."""
        gate.set()
        return "second"

    steps = [
        [function_call("waits", {}, call_id="c1"), function_call("opens", {}, call_id="c2")],
        [assistant_message("ok")],
    ]
    agent = Agent(name="A", tools=[waits, opens], model=ScriptedModel(steps))
    result = await Runner.run(agent, "Go")
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


async def example_the_schema_of_a_function(folder):
    def greet(name: str, times: int = 1) -> str:
        """Greet somebody.

        Args:
            name: Who.
        """
        return name * times

    schema = function_schema(greet)
    args, kwargs = schema.to_call_args(schema.params_pydantic_model(name="x", times=2))
    strict = ensure_strict_json_schema({"type": "object", "properties": {"a": {"type": "string"}}})
    return schema.name, schema.description, schema.params_json_schema, args, kwargs, strict
