"""What once differed in small ways: classes of errors, names, callables that are false, and the test kit."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from agents import (
    Agent,
    AgentOutputSchema,
    ModelBehaviorError,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    Runner,
    RunState,
    ToolApprovalItem,
    function_tool,
    handoff,
)
from agents.testing import InvalidModelStep, ModelStep, ScriptedModel, assistant_message, function_call
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseReasoningItem,
    ResponseTextDeltaEvent,
)


def _caught(action: Any, kind: type[Exception] = Exception) -> Any:
    try:
        return action()
    except kind as error:
        return error if kind is Exception else kind.__name__


async def _failure(agent: Agent[Any], **options: Any) -> Any:
    try:
        return (await Runner.run(agent, "Go", **options)).final_output
    except Exception as error:
        return error


def _office(**settings: Any) -> Agent[Any]:
    other = Agent(name="Other", model=ScriptedModel([[assistant_message("Here.")]]))
    steps = [[function_call("transfer_to_other", {}, call_id="c1")]]
    return Agent(name="First", handoffs=[handoff(other, **settings)], model=ScriptedModel(steps))


def example_settings_that_are_wrong(folder):
    seen = []
    for wrong in (
        {"temperature": "hot"},
        {"top_p": []},
        {"max_tokens": 1.5},
        {"max_tokens": "many"},
        {"store": "perhaps"},
        {"verbosity": "loud"},
        {"truncation": "never"},
        {"prompt_cache_retention": "1h"},
        {"context_management": [{"typ": "compaction"}]},
        {"context_management": {"type": "compaction"}},
    ):
        found = _caught(lambda wrong=wrong: ModelSettings(**wrong), ValueError)
        seen.append(found if isinstance(found, str) else f"accepted {wrong}")
    return seen


def example_settings_that_can_be_read(folder):
    said = {"temperature": "0.5", "top_p": 1, "max_tokens": "12", "store": "yes", "parallel_tool_calls": 0}
    settings = ModelSettings(**said, top_logprobs=2.0)
    return [getattr(settings, name) for name in (*said, "top_logprobs")]


async def example_what_cannot_be_called(folder):
    @function_tool(needs_approval="yes")
    def act() -> str:
        """Act."""
        return "done"

    agent = Agent(name="A", tools=[act], model=ScriptedModel([[function_call("act", {}, call_id="c1")]]))
    return await _failure(_office(input_filter="no")), await _failure(agent)


class Falsey:
    """Something that can be called, and is false."""

    def __init__(self, name: str, seen: list[str], answer: Any) -> None:
        self.name, self.seen, self.answer = name, seen, answer

    def __bool__(self) -> bool:
        return False

    def __call__(self, given: Any) -> Any:
        self.seen.append(self.name)
        return self.answer(given)


async def example_callables_that_are_false(folder):
    seen: list[str] = []
    kept = Falsey("filter", seen, lambda data: data)
    await Runner.run(_office(input_filter=kept), "Go")
    of_run = Falsey("run's", seen, lambda data: data)
    await Runner.run(_office(), "Go", run_config=RunConfig(handoff_input_filter=of_run))
    agent = Agent(name="A", model=ScriptedModel([[assistant_message("Hi.")]]))
    sent = Falsey("sent", seen, lambda data: data.model_data)
    await Runner.run(agent, "Go", run_config=RunConfig(call_model_input_filter=sent))
    said = Falsey("formatter", seen, lambda args: "No such thing.")
    config = RunConfig(tool_error_formatter=said, tool_not_found_behavior="return_error_to_model")
    steps = [[function_call("x", {}, call_id="c1")], [assistant_message("Hi.")]]
    result = await Runner.run(Agent(name="A", model=ScriptedModel(steps)), "Go", run_config=config)
    return seen, result.new_items[1].output


async def example_when_the_words_about_a_missing_tool_are_asked_for(folder):
    order: list[str] = []

    async def formatter(args):
        await asyncio.sleep(0.01)
        order.append(f"told {args.tool_name}")
        return "No such thing."

    @function_tool
    async def act() -> str:
        """Act."""
        order.append("acted")
        return "done"

    @function_tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        order.append("paid")
        return "done"

    @function_tool(needs_approval=True)
    async def gone() -> str:
        """Go away."""
        return "done"

    config = RunConfig(tool_error_formatter=formatter, tool_not_found_behavior="return_error_to_model")
    calls = [function_call(name, {}, call_id=name) for name in ("made_up", "act")]
    agent = Agent(name="A", tools=[act], model=ScriptedModel([calls, [assistant_message("Hi.")]]))
    new = await Runner.run(agent, "Go", run_config=config)
    order.append("and resumed")
    calls = [function_call(name, {}, call_id=name) for name in ("pay", "gone")]
    agent = Agent(name="B", tools=[pay, gone], model=ScriptedModel([calls, [assistant_message("Hi.")]]))
    paused = await Runner.run(agent, "Go", run_config=config)
    state = paused.to_state()
    for item in paused.interruptions:
        state.approve(item)
    agent.tools = [pay]
    resumed = await Runner.run(agent, state, run_config=config)
    outputs = [item.call_id for item in resumed.new_items if item.type == "tool_call_output_item"]
    return order, new.final_output, resumed.final_output, sorted(outputs)


def example_names(folder):
    kinds = Literal["ok"], Literal["a", 1], list[int], dict[str, int]
    names = [AgentOutputSchema(kind, strict_json_schema=False).name() for kind in kinds]
    odd = Agent(name="Refund/agent")
    return names, handoff(odd).tool_name, odd.as_tool(None, "Refund.").name


async def example_a_handoff_can_be_asked_whether_it_is_enabled(folder):
    agent = Agent(name="A")
    plain = handoff(agent, is_enabled=lambda context, agent: False)
    return await plain.is_enabled(RunContextWrapper(context=None), agent), handoff(agent).is_enabled


def example_a_schema_that_is_too_deep(folder):
    deep: dict[str, Any] = {"type": "object", "properties": {}}
    inner = deep
    for _ in range(5000):
        inner["properties"]["a"] = {"type": "object", "properties": {}}
        inner = inner["properties"]["a"]

    def act() -> str:
        """Act."""
        return ""

    return _caught(lambda: function_tool(act, output_json_schema=deep))


def example_hooks_of_another_kind(folder):
    agent = Agent(name="A")
    return _caught(lambda: Runner.run_streamed(agent, "Go", hooks="no"), TypeError)


def example_one_id_for_two_calls(folder):
    def item(arguments):
        raw = {"type": "function_call", "name": "act", "call_id": "c", "arguments": arguments}
        return ToolApprovalItem(agent=agent, raw_item=raw)

    agent, context = Agent(name="A"), RunContextWrapper(context=None)
    context.approve_tool(item("{}"))
    ask = context.get_approval_status
    return _caught(lambda: ask("act", "c", current_invocation=item('{"a":1}')), ModelBehaviorError)


async def example_a_version_that_is_none_is_not_repeated(folder):
    try:
        await RunState.from_json(Agent(name="A"), {"$schemaVersion": "somebody's words"})
    except Exception as error:
        return error, "somebody" in str(error)


# --- the classes of the openai package -------------------------------------------------------------------------------


async def example_items_by_their_class(folder):
    @function_tool(needs_approval=True)
    def act() -> str:
        """Act."""
        return "done"

    steps = [[function_call("act", {}, call_id="c1")], [assistant_message("Hi.")]]
    agent = Agent(name="A", tools=[act], model=ScriptedModel(steps))
    paused = await Runner.run(agent, "Go")
    state = await RunState.from_string(agent, paused.to_state().to_string())
    state.approve(state.get_interruptions()[0])
    final = await Runner.run(agent, state)
    raw = [item.raw_item for item in final.new_items if item.type in ("tool_call_item", "message_output_item")]
    calls = [one for one in raw if isinstance(one, ResponseFunctionToolCall)]
    messages = [one for one in raw if isinstance(one, ResponseOutputMessage)]
    return len(calls), len(messages), calls[0].model_dump(exclude_unset=True)["name"], messages[0].content[0].text


async def example_events_by_their_class_and_as_json(folder):
    agent = Agent(name="A", model=ScriptedModel([[assistant_message("Hello there.")]]))
    stream = Runner.run_streamed(agent, "Go")
    said = []
    async for event in stream.stream_events():
        if event.type == "raw_response_event":
            match event.data:
                case ResponseTextDeltaEvent(delta=delta):
                    said.append((delta, event.data.model_dump()["delta"]))
    return said


# --- the test kit ----------------------------------------------------------------------------------------------------


async def example_what_a_script_streams_of_a_thought(folder):
    summary = [{"type": "summary_text", "text": "why"}, {"type": "summary_text", "text": "so"}]
    thought = ResponseReasoningItem.model_validate({"id": "r", "type": "reasoning", "summary": summary})
    stream = Runner.run_streamed(Agent(name="A", model=ScriptedModel([[thought, assistant_message("Hi.")]])), "Go")
    return [event.data.type async for event in stream.stream_events() if event.type == "raw_response_event"]


async def example_a_script_that_computes(folder):
    inner = ModelStep.respond(lambda call: [assistant_message("At last.")])
    agent = Agent(name="A", model=ScriptedModel([ModelStep.respond(lambda call: inner)]))
    events: list[Any] = []
    step = ModelStep.stream(events, output=[assistant_message("x")])
    return (await Runner.run(agent, "Go")).final_output, type(step.stream_events).__name__


def example_which_step_is_wrong(folder):
    model = ScriptedModel([[assistant_message("x")]])
    indexes = []
    for action in (lambda: model.enqueue({"wrong": 1}), lambda: model.extend([[], {"wrong": 1}])):
        try:
            action()
        except InvalidModelStep as error:
            indexes.append(error.input_index)
    return indexes, model.remaining_steps


async def example_an_empty_response_id(folder):
    agent = Agent(name="A", model=ScriptedModel([ModelStep(output=[assistant_message("x")], response_id="")]))
    result = await Runner.run(agent, "Go")
    return result.raw_responses[0].response_id, result.last_response_id
