"""What once gave other results in programs that only changed their import: requests, outputs, guardrails and tools."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    HandoffInputData,
    HostedMCPTool,
    InputGuardrail,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    RunErrorHandlerResult,
    Runner,
    SQLiteSession,
    Usage,
    function_tool,
    handoff,
    tool_namespace,
)
from agents.handoffs import nest_handoff_history
from agents.retry import ModelRetrySettings
from agents.run import CallModelData, ModelInputData
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall
from openai.types.responses.response_output_item import McpApprovalRequest
from pydantic import BaseModel


def _call(name: str, arguments: Any, call_id: str = "c1") -> list[Any]:
    return [function_call(name, arguments, call_id=call_id)]


def _say(text: str) -> list[Any]:
    return [assistant_message(text)]


@function_tool
def note(v: str = "x") -> str:
    """Note it."""
    return v


# --- who decides about a call ----------------------------------------------------------------------------------------


async def example_a_policy_and_arguments_that_are_missing(folder):
    asked, ran = [], []

    async def policy(context, arguments, call_id):
        asked.append(arguments)
        return False

    @function_tool(needs_approval=policy)
    def pay(amount: int = 1) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    seen = []
    for arguments in ("", "null", "[]", "{", '{"amount": 2}'):
        asked.clear(), ran.clear()
        model = ScriptedModel([_call("pay", arguments), _say("done")])
        result = await Runner.run(Agent(name="A", tools=[pay], model=model), "Go")
        seen.append((arguments, len(result.interruptions), list(asked), list(ran)))
    return seen


async def example_a_waiting_agent_tool_is_replaced_by_another_tool(folder):
    ran = []

    @function_tool(needs_approval=True)
    def deep() -> str:
        """Ask first."""
        ran.append("deep")
        return "deep"

    inner = Agent(name="Inner", tools=[deep], model=ScriptedModel([_call("deep", {}, "d1"), _say("inner")]))
    steps = [_call("work", {"input": "x"}), _say("done")]
    outer = Agent(name="Outer", tools=[inner.as_tool("work", "Work.")], model=ScriptedModel(steps))
    state = (await Runner.run(outer, "Go")).to_state()
    state.approve(state.get_interruptions()[0])

    @function_tool
    def work(input: str) -> str:
        """Something else."""
        ran.append("local")
        return "local"

    outer.tools = [work]
    try:
        await Runner.run(outer, state)
    except Exception as error:
        return type(error).__name__ != "Exception", ran
    return "ran on", ran


async def example_a_queued_handoff_that_is_gone(folder):
    ran = []

    @function_tool(needs_approval=True)
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    other = Agent(name="Other", model=ScriptedModel([_say("other")]))
    calls = [function_call("pay", {}, call_id="c1"), function_call("transfer_to_other", {}, call_id="c2")]
    agent = Agent(name="A", tools=[pay], handoffs=[other], model=ScriptedModel([calls, _say("done")]))
    state = (await Runner.run(agent, "Go")).to_state()
    state.approve(state.get_interruptions()[0])
    agent.handoffs = []
    try:
        await Runner.run(agent, state)
    except Exception as error:
        return error, ran


# --- what is sent ----------------------------------------------------------------------------------------------------


async def example_a_filter_that_repeats_an_output(folder):
    def repeat(data: CallModelData[Any]) -> ModelInputData:
        items = list(data.model_data.input)
        outputs = [item for item in items if item.get("type") == "function_call_output"]
        again = [{**item, "output": "newer"} for item in outputs]
        return ModelInputData(input=items + again, instructions=data.model_data.instructions)

    model = ScriptedModel([_call("note", {"v": "a"}), _say("done")])
    config = RunConfig(call_model_input_filter=repeat)
    await Runner.run(Agent(name="A", tools=[note], model=model), "Go", run_config=config)
    return model.last_call.input


def _reasoning(item_id: str) -> dict[str, Any]:
    return {"type": "reasoning", "id": item_id, "summary": [{"type": "summary_text", "text": "hm"}]}


async def example_reasoning_ids_under_the_policy_omit(folder):
    session = SQLiteSession("s", str(folder / "talks.db"))
    answer = {
        "type": "message",
        "role": "assistant",
        "id": "m1",
        "status": "completed",
        "content": [{"type": "output_text", "text": "x", "annotations": []}],
    }
    await session.add_items([{"role": "user", "content": "before"}, _reasoning("rs_stored"), answer])
    config = RunConfig(reasoning_item_id_policy="omit")
    stored = ScriptedModel([_say("done")])
    await Runner.run(Agent(name="A", model=stored), "Go", session=session, run_config=config)
    given = ScriptedModel([_say("done")])
    await Runner.run(Agent(name="A", model=given), [_reasoning("rs_given"), answer, {"role": "user", "content": "Go"}])
    ids = [
        [item.get("id") for item in model.last_call.input if item.get("type") == "reasoning"]
        for model in (stored, given)
    ]
    return ids


class Person(BaseModel):
    age: int


async def example_a_strict_output_is_not_coerced(folder):
    agent = Agent(name="A", output_type=Person, model=ScriptedModel([_say('{"age": "25"}'), _say('{"age": 25}')]))
    try:
        return (await Runner.run(agent, "Go")).final_output
    except Exception as error:
        return error


# --- what comes of it ------------------------------------------------------------------------------------------------


async def example_a_handler_that_returns_a_dict(folder):
    outputs = []
    for told in (
        {"summary": "ok"},
        {"final_output": {"summary": "ok"}},
        RunErrorHandlerResult({"summary": "ok"}),
        "text",
    ):
        agent = Agent(name="A", tools=[note], model=ScriptedModel([_call("note", {})]))
        handlers = {"max_turns": lambda data, told=told: told}
        try:
            result = await Runner.run(agent, "Go", max_turns=1, error_handlers=handlers)
            last = result.new_items[-1]
            outputs.append((result.final_output, type(last).__name__, bool(last.raw_item.id)))
        except Exception as error:
            outputs.append(error)
    return outputs


async def example_a_prompt_that_sets_what_a_handoff_asks_for(folder):
    class Context:
        is_open = False

    async def prompt(data):
        data.context.context.is_open = True
        return {"id": "p1"}

    other = Agent(name="Other", model=ScriptedModel([_say("other")]))
    way = handoff(other, is_enabled=lambda ctx, agent: ctx.context.is_open)
    agent = Agent(name="A", prompt=prompt, handoffs=[way], model=ScriptedModel([_say("done")]))
    await Runner.run(agent, "Go", context=Context())
    return [one.tool_name for one in agent.model.last_call.handoffs]


def _guardrail(name: str, seconds: float, fails: bool = False) -> InputGuardrail[Any]:
    async def check(context, agent, input):
        await asyncio.sleep(seconds)
        if fails:
            raise ValueError("broken")
        return GuardrailFunctionOutput(output_info=name, tripwire_triggered=False)

    return InputGuardrail(guardrail_function=check, name=name)


async def example_results_of_guardrails_come_as_they_finish(folder):
    guardrails = [_guardrail("slow", 0.05), _guardrail("fast", 0)]
    agent = Agent(name="A", input_guardrails=guardrails, model=ScriptedModel([_say("done")]))
    result = await Runner.run(agent, "Go")
    return [one.output.output_info for one in result.input_guardrail_results]


async def example_results_of_guardrails_before_one_that_raised_in_a_stream(folder):
    guardrails = [_guardrail("fast", 0), _guardrail("broken", 0.05, fails=True)]
    agent = Agent(name="A", input_guardrails=guardrails, model=ScriptedModel([_say("done")]))
    result = Runner.run_streamed(agent, "Go")
    try:
        async for _ in result.stream_events():
            pass
    except ValueError:
        return [one.output.output_info for one in result.input_guardrail_results]


async def example_instructions_are_cancelled_when_the_prompt_fails(folder):
    ended = []

    async def instructions(context, agent):
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def prompt(data):
        await asyncio.sleep(0)
        raise ValueError("no prompt")

    agent = Agent(name="A", instructions=instructions, prompt=prompt, model=ScriptedModel([_say("done")]))
    try:
        await Runner.run(agent, "Go")
    except ValueError:
        await asyncio.sleep(0)
        return ended


async def example_where_a_tool_comes_from(folder):
    inner = Agent(name="Inner", model=ScriptedModel([_say("inner")]))
    calls = [function_call("note", {}, call_id="c1"), function_call("ask", {"input": "x"}, call_id="c2")]
    agent = Agent(name="A", tools=[note, inner.as_tool("ask", "Ask.")], model=ScriptedModel([calls, _say("done")]))
    result = await Runner.run(agent, "Go")
    origins = [getattr(item, "tool_origin", None) for item in result.new_items]
    return [origin and (origin.type.value, origin.agent_name, origin.agent_tool_name) for origin in origins]


async def example_usage_of_a_retried_stream(folder):
    steps = [
        ModelStep.raise_error(ConnectionError("gone")),
        ModelStep(output=_say("done"), usage=Usage(1, 5, output_tokens=1, total_tokens=6)),
    ]
    settings = ModelSettings(
        retry=ModelRetrySettings(max_retries=1, backoff={"initial_delay": 0}, policy=lambda ctx: True)
    )
    agent = Agent(name="A", model=ScriptedModel(steps), model_settings=settings)
    result = Runner.run_streamed(agent, "Go")
    async for _ in result.stream_events():
        pass
    usage = result.context_wrapper.usage
    return usage.requests, [entry.total_tokens for entry in usage.request_usage_entries]


def _request(call_id: str = "mcpr_1") -> McpApprovalRequest:
    return McpApprovalRequest(
        id=call_id, name="search", arguments="{}", server_label="docs", type="mcp_approval_request"
    )


async def example_an_approval_of_a_hosted_tool(folder):
    tool = HostedMCPTool(
        tool_config={"type": "mcp", "server_label": "docs", "server_url": "https://x", "require_approval": "always"}
    )
    agent = Agent(name="A", tools=[tool], model=ScriptedModel([[_request()], _say("done")]))
    result = await Runner.run(agent, "Go")
    wrapper = result.context_wrapper
    item = result.interruptions[0]
    wrapper.approve_tool(item)
    return (
        wrapper.is_tool_approved("search", "mcpr_1"),
        wrapper.get_approval_status("search", "mcpr_1", existing_pending=item),
    )


# --- contexts, names, histories --------------------------------------------------------------------------------------


async def example_a_tool_context_made_by_hand(folder):
    call = ResponseFunctionToolCall(name="f", arguments="{}", call_id="c", type="function_call", namespace="space")
    context = ToolContext(context=None, tool_name="f", tool_call_id="c", tool_arguments="{}", tool_call=call)
    config = ToolContext(
        context=None, tool_name="f", tool_call_id="c", tool_arguments="{}", run_config={"workflow_name": "w"}
    )
    seen = [context.tool_namespace, context.qualified_tool_name, type(config.run_config).__name__]
    try:
        ToolContext(context=None, tool_name="f", tool_call_id="c", tool_arguments="{}", run_config={"no_such": 1})
    except Exception as error:
        seen.append(error)
    return seen


async def example_a_namespace_named_like_its_tool(folder):
    try:
        tool_namespace(name="note", description="Notes.", tools=[note])
    except Exception as error:
        return error
    return "accepted"


async def example_a_history_that_was_folded_before_is_unfolded(folder):
    first = HandoffInputData(
        input_history=({"role": "user", "content": "Hello", "name": "Alice"}, {"role": "assistant", "content": "Hi"}),
        pre_handoff_items=(),
        new_items=(),
    )
    once = nest_handoff_history(first)
    twice = nest_handoff_history(once.clone(pre_handoff_items=(), new_items=()))
    texts = [[item["content"] for item in nested.input_history] for nested in (once, twice)]
    return [len(one) for one in texts], "Alice" in json.dumps(texts), texts[1][0].count("Hello"), texts[0] == texts[1]


async def example_a_context_used_for_a_second_run_after_a_tool_failed(folder):
    ran = []

    @function_tool(failure_error_function=None)
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        raise ValueError("no")

    wrapper = RunContextWrapper(context=None)
    seen = []
    for _ in range(2):
        agent = Agent(name="A", tools=[pay], model=ScriptedModel([_call("pay", {}), _say("done")]))
        try:
            await Runner.run(agent, "Go", context=wrapper)
        except Exception as error:
            seen.append(error)
    return seen, ran


async def example_a_sync_tool_that_returns_a_coroutine(folder):
    async def later() -> str:
        return "later"

    tool = function_tool(lambda: later(), name_override="soon")
    result = await Runner.run(Agent(name="A", tools=[tool], model=ScriptedModel([_call("soon", {}), _say("d")])), "Go")
    (output,) = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    return output if isinstance(output, str) else "a coroutine"
