"""Tools with free-form input, and tools that a program of the model's calls."""

from __future__ import annotations

import json
from typing import Any

import httpx2
from agents import (
    Agent,
    CustomTool,
    OpenAIResponsesModel,
    ProgrammaticToolCallingTool,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    SQLiteSession,
    ToolCallItem,
    ToolCallOutputItem,
    function_tool,
)
from agents.testing import ScriptedModel, assistant_message, function_call
from openai import AsyncOpenAI
from openai.types.responses import ResponseCustomToolCall, ResponseFunctionToolCall
from openai.types.responses.response_function_tool_call import CallerProgram
from openai.types.responses.response_output_item import Program, ProgramOutput
from pydantic import BaseModel


def _call(name: str, text: str, call_id: str = "c1", **more: Any) -> ResponseCustomToolCall:
    return ResponseCustomToolCall(type="custom_tool_call", name=name, call_id=call_id, input=text, **more)


def _shout(done: list[str], **settings: Any) -> CustomTool:
    async def shout(context, text):
        done.append(f"{context.tool_name} {context.tool_call_id} {context.tool_arguments}")
        return text.upper()

    return CustomTool(name="shout", description="Say it louder.", on_invoke_tool=shout, **settings)


def _agent(tool: Any, *steps: Any, **settings: Any) -> Agent[Any]:
    model = ScriptedModel(steps or [[_call("shout", "say: hi\n")], [assistant_message("Done.")]])
    tools = tool if isinstance(tool, list) else [tool]
    return Agent(name="Clerk", tools=tools, model=model, **settings)


class Wire:
    """A model of OpenAI's own API that streams these replies and keeps what it is sent."""

    def __init__(self, *replies: list[dict[str, Any]]) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._replies = iter(replies)
        http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))
        self.model = OpenAIResponsesModel("gpt-5", AsyncOpenAI(api_key="k", http_client=http))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.bodies.append(json.loads(request.content))
        output = next(self._replies)
        response = {"id": "r1", "object": "response", "created_at": 0, "model": "gpt-5", "status": "completed"}
        response |= {"output": output, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
        events: list[dict[str, Any]] = [{"type": "response.created", "response": {**response, "output": []}}]
        for place, item in enumerate(output):
            events.append({"type": "response.output_item.added", "output_index": place, "item": item})
            events.append({"type": "response.output_item.done", "output_index": place, "item": item})
        events.append({"type": "response.completed", "response": response})
        lines = [
            f"event: {event['type']}\ndata: {json.dumps({**event, 'sequence_number': number})}\n\n"
            for number, event in enumerate(events)
        ]
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text="".join(lines))


async def example_a_call(folder):
    done: list[str] = []
    agent = _agent(_shout(done, format={"type": "text"}))
    result = await Runner.run(agent, "Shout hi")
    return done, result, result.new_items[1].raw_item, result.new_items[1].output, agent.tools[0].tool_config


async def example_a_call_that_is_streamed(folder):
    done: list[str] = []
    item = {"type": "custom_tool_call", "name": "shout", "call_id": "c1", "input": "hi", "id": "ctc_1"}
    message = {"type": "message", "id": "m1", "role": "assistant", "status": "completed"}
    message["content"] = [{"type": "output_text", "text": "Done.", "annotations": []}]
    wire = Wire([item], [message])
    agent = Agent(name="Clerk", tools=[_shout(done)], model=wire.model)
    stream = Runner.run_streamed(agent, "Shout hi")
    events = [(event.type, getattr(event, "name", None)) async for event in stream.stream_events()]
    sent = [(body["tools"], body["input"][1:]) for body in wire.bodies]
    return done, [event for event in events if event[0] != "raw_response_event"], stream.final_output, sent


async def example_what_the_executor_may_be(folder):
    def number(context, text):
        return len(text)

    def later(context, text):
        async def answer():
            return f"<{text}>"

        return answer()

    outputs = []
    for executor in (number, later):
        tool = CustomTool(name="shout", description="Measure.", on_invoke_tool=executor)
        result = await Runner.run(_agent(tool), "Go")
        outputs.append((result.new_items[1].output, result.new_items[1].raw_item))
    return outputs


async def example_one_that_fails(folder):
    def fail(context, text):
        raise ValueError("no verb in it")

    tool = CustomTool(name="shout", description="Parse.", on_invoke_tool=fail)
    result = await Runner.run(_agent(tool), "Go")
    return result.final_output, "no verb in it" in result.new_items[1].output, result.new_items[1].raw_item["type"]


async def example_a_person_agrees_and_another_does_not(folder):
    seen = []
    for answer in ("approve", "reject"):
        done: list[str] = []
        agent = _agent(_shout(done, needs_approval=True))
        paused = await Runner.run(agent, "Shout hi")
        [asked] = paused.interruptions
        state = await RunState.from_string(agent, paused.to_state().to_string())
        [same] = state.get_interruptions()
        if answer == "approve":
            state.approve(same)
        else:
            state.reject(same, rejection_message="Too loud.")
        final = await Runner.run(agent, state)
        output = next(item for item in final.new_items if isinstance(item, ToolCallOutputItem))
        about = asked.name, asked.arguments, asked.call_id
        seen.append((about, done, output.raw_item, final.final_output))
    return seen


async def example_the_policy_reads_the_text(folder):
    asked: list[Any] = []

    def policy(context, text, call_id):
        asked.append((text, call_id))
        return "hi" in text

    done: list[str] = []
    steps = [_call("shout", "bye", "c1")], [_call("shout", "say hi", "c2")], [assistant_message("Done.")]
    result = await Runner.run(_agent(_shout(done, needs_approval=policy), *steps), "Go")
    return asked[:2], done, [item.arguments for item in result.interruptions]


async def example_the_application_answers(folder):
    seen = []
    for answer in ({"approve": True}, {"approve": False, "reason": "Not here."}, {"approve": False}, None):
        done: list[str] = []
        shown: list[Any] = []

        async def decide(context, item, answer=answer, shown=shown):
            shown.append((item.name, item.arguments, item.call_id))
            return answer

        agent = _agent(_shout(done, needs_approval=True, on_approval=decide))
        result = await Runner.run(agent, "Go", run_config=RunConfig(tool_error_formatter=lambda args: args.tool_type))
        outputs = [item.output for item in result.new_items if isinstance(item, ToolCallOutputItem)]
        seen.append((done, shown, outputs, len(result.interruptions)))
    return seen


async def example_always(folder):
    done: list[str] = []
    steps = [_call("shout", "a", "c1")], [_call("shout", "b", "c2")], [assistant_message("Done.")]
    agent = _agent(_shout(done, needs_approval=True), *steps)
    paused = await Runner.run(agent, "Go")
    state = paused.to_state()
    state.approve(paused.interruptions[0], always_approve=True)
    final = await Runner.run(agent, state)
    return done, final.final_output, len(final.interruptions)


async def example_hooks_and_data(folder):
    told: list[Any] = []

    class Hooks(RunHooks[Any]):
        async def on_tool_start(self, context, agent, tool):
            told.append(("start", type(tool).__name__, tool.name, tool.type))

        async def on_tool_end(self, context, agent, tool, result):
            told.append(("end", tool.name, result))

    def extract(context):
        return {
            "said": context.input,
            "answer": context.output,
            "item": dict(context.raw_item),
            "tool": context.tool.name,
        }

    done: list[str] = []
    result = await Runner.run(_agent(_shout(done, custom_data_extractor=extract)), "Go", hooks=Hooks())
    return told, result.new_items[1].custom_data


async def example_in_a_session(folder):
    done: list[str] = []
    session = SQLiteSession("s", folder / "history.db")
    first = await Runner.run(_agent(_shout(done)), "Shout hi", session=session)
    model = ScriptedModel([[assistant_message("Yes.")]])
    await Runner.run(Agent(name="Other", model=model), "Did you?", session=session)
    held, sent = await session.get_items(), model.calls[0].input
    session.close()
    return first, held, sent


async def example_tool_use_behavior_does_not_see_it(folder):
    done: list[str] = []
    result = await Runner.run(_agent(_shout(done), tool_use_behavior="stop_on_first_tool"), "Go")
    return result.final_output


async def example_one_that_is_not_there(folder):
    return await _failure(_agent([], [_call("shout", "hi")]))


async def example_a_function_of_the_same_name(folder):
    done: list[str] = []

    @function_tool
    def shout(text: str) -> str:
        """Shout."""
        done.append(f"function {text}")
        return text

    steps = (
        [_call("shout", "a", "c1"), function_call("shout", {"text": "b"}, call_id="c2")],
        [assistant_message("Done.")],
    )
    await Runner.run(_agent([_shout(done), shout], *steps), "Go")
    return sorted(done)


# --- programs --------------------------------------------------------------------------------------------------------


class Stock(BaseModel):
    sku: str
    units: int


def _stock(done: list[str], **settings: Any) -> Any:
    @function_tool(**({"allowed_callers": ["programmatic"]} | settings))
    def stock(sku: str) -> Any:
        """How many are there."""
        done.append(sku)
        if sku == "nothing":
            raise ValueError("no such thing")
        return Stock(sku=sku, units=3)

    return stock


def _program(call_id: str = "p1") -> Program:
    return Program(id=f"id_{call_id}", call_id=call_id, code="...", fingerprint="f", type="program")


def _by_program(sku: str, call_id: str, program: str = "p1") -> Any:
    caller = CallerProgram(type="program", caller_id=program)
    arguments = json.dumps({"sku": sku})
    return ResponseFunctionToolCall(
        type="function_call", name="stock", call_id=call_id, arguments=arguments, caller=caller
    )


def _ended(call_id: str = "p1") -> ProgramOutput:
    return ProgramOutput(id=f"out_{call_id}", call_id=call_id, result="3", status="completed", type="program_output")


async def example_a_program(folder):
    done: list[str] = []
    model = ScriptedModel(
        [
            [_program(), _by_program("lamp", "c1"), _by_program("dock", "c2")],
            [_ended(), assistant_message("Three each.")],
        ]
    )
    agent = Agent(name="Planner", tools=[_stock(done), ProgrammaticToolCallingTool()], model=model)
    result = await Runner.run(agent, "How many?")
    kinds = [(type(item).__name__, getattr(item, "output", None)) for item in result.new_items]
    callers = [item.raw_item.caller.type for item in result.new_items[1:3] if isinstance(item, ToolCallItem)]
    return sorted(done), [kind[0] for kind in kinds], result.to_input_list(), callers, kinds[-2][1]


async def example_outputs_by_their_schema(folder):
    seen = []
    for settings in (
        {"output_type": Stock},
        {"output_json_schema": {"type": "object", "properties": {"units": {"type": "integer"}}}},
        {"output_type": Stock, "allowed_callers": ["direct"]},
    ):
        done: list[str] = []
        direct = "direct" in settings.get("allowed_callers", ())
        call = function_call("stock", {"sku": "lamp"}, call_id="c1") if direct else _by_program("lamp", "c1")
        before = [] if direct else [_program()]
        model = ScriptedModel([[*before, call], [assistant_message("Three.")]])
        tools = [_stock(done, **settings), *([] if direct else [ProgrammaticToolCallingTool()])]
        result = await Runner.run(Agent(name="Planner", tools=tools, model=model), "How many?")
        output = next(item for item in result.new_items if isinstance(item, ToolCallOutputItem))
        seen.append((output.raw_item, type(output.output).__name__))
    return seen


async def example_an_output_that_is_not_what_was_declared(folder):
    @function_tool(output_type=Stock)
    def stock(sku: str) -> Any:
        """How many are there."""
        return "many"

    return await _failure(_agent(stock, [function_call("stock", {"sku": "lamp"}, call_id="c1")]))


async def example_calls_that_nobody_may_make(folder):
    seen = []
    programs = ProgrammaticToolCallingTool()
    direct = function_call("stock", {"sku": "lamp"}, call_id="c1")
    for tools, reply in (
        ([_stock([]), programs], [direct]),
        ([_stock([], allowed_callers=["direct"]), programs], [_program(), _by_program("lamp", "c1")]),
        ([_stock([])], [_program(), _by_program("lamp", "c1")]),
        ([_stock([])], [_by_program("lamp", "c1")]),
        ([_stock([]), programs], [_by_program("lamp", "c1")]),
        ([_stock([]), programs], [_program(), _by_program("lamp", "c1", "p2")]),
        ([_stock([]), programs], [_program(), _ended(), _by_program("lamp", "c1")]),
        ([_stock([]), programs], [_ended()]),
    ):
        seen.append(await _failure(_agent(tools, reply)))
    return seen


async def _failure(agent: Agent[Any]) -> Any:
    try:
        return await Runner.run(agent, "Go")
    except Exception as error:
        return error
