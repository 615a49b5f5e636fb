"""What a user meets who changes one import: bills, cancelled streams, guardrails of approvals, settings, formats."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    ModelRetryBackoffSettings,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    Runner,
    RunState,
    ToolExecutionConfig,
    ToolGuardrailFunctionOutput,
    function_tool,
    tool_input_guardrail,
)
from agents.realtime import OpenAIRealtimeSIPModel, RealtimeAgent
from agents.realtime.audio_formats import to_realtime_audio_format
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.realtime.realtime_audio_formats import AudioPCM

AT_ONCE = ModelRetryBackoffSettings(initial_delay=0.0, max_delay=0.0, multiplier=1.0, jitter=False)


def _flaky(*steps: Any) -> Agent[Any]:
    retry = ModelRetrySettings(max_retries=3, backoff=AT_ONCE, policy=lambda context: True)
    return Agent(name="A", model=ScriptedModel(steps), model_settings=ModelSettings(retry=retry))


def _bill(result: Any) -> Any:
    usage, replies = result.context_wrapper.usage, result.raw_responses
    entries = [entry.total_tokens for entry in usage.request_usage_entries]
    return usage.requests, entries, [(one.usage.requests, len(one.usage.request_usage_entries)) for one in replies]


async def example_the_bill_of_attempts_that_failed(folder):
    steps = (ConnectionError("1"), ConnectionError("2"), [assistant_message("Hello.")])
    told = await Runner.run(_flaky(*steps), "Hi")
    watched = Runner.run_streamed(_flaky(*steps), "Hi")
    async for _ in watched.stream_events():
        pass
    return _bill(told), _bill(watched)


@function_tool
def note() -> str:
    return "noted"


async def _cancelled(event_type: str, *steps: Any) -> Any:
    result = Runner.run_streamed(Agent(name="A", model=ScriptedModel(steps), tools=[note]), "Hi")
    seen: list[str] = []
    async for event in result.stream_events():
        seen.append(event.type)
        if event.type == event_type:
            result.cancel()
    return seen[-1], result.final_output, result.is_complete


async def example_a_stream_that_is_cancelled_before_its_end(folder):
    final = [assistant_message("Done.")]
    return [
        await _cancelled(kind, *steps)
        for kind in ("agent_updated_stream_event", "raw_response_event", "run_item_stream_event")
        for steps in ((final,), ([function_call("note", {}, call_id="c1")], final))
    ]


async def example_a_stream_that_is_cancelled_after_its_end(folder):
    result = Runner.run_streamed(Agent(name="A", model=ScriptedModel([[assistant_message("Done.")]])), "Hi")
    async for _ in result.stream_events():
        pass
    result.cancel()
    return result.final_output


async def example_a_cancelled_run_that_nobody_watched(folder):
    result = Runner.run_streamed(Agent(name="A", model=ScriptedModel([[assistant_message("Done.")]])), "Hi")
    await result.run_loop_task
    result.cancel()
    return result.final_output


async def example_guardrails_before_and_after_an_approval(folder):
    asked: list[str] = []

    @tool_input_guardrail
    def look(data: Any) -> ToolGuardrailFunctionOutput:
        asked.append(data.context.tool_call_id)
        return ToolGuardrailFunctionOutput(output_info="fine")

    @function_tool(needs_approval=True, tool_input_guardrails=[look])
    def pay(amount: int) -> str:
        return "paid"

    config = RunConfig(tool_execution=ToolExecutionConfig(pre_approval_tool_input_guardrails=True))
    found = []
    for as_text in (False, True):
        calls = [function_call("pay", {"amount": number}, call_id=f"c{number}") for number in (1, 2)]
        agent = Agent(name="A", tools=[pay], model=ScriptedModel([calls, [assistant_message("Done.")]]))
        first = await Runner.run(agent, "Pay.", run_config=config)
        state = first.to_state()
        if as_text:
            state = await RunState.from_string(agent, state.to_string())
        for item in state.get_interruptions():
            state.approve(item)
        last = await Runner.run(agent, state, run_config=config)
        found.append((len(first.tool_input_guardrail_results), len(last.tool_input_guardrail_results)))
    return found, sorted(asked)


async def example_a_typo_in_context_management(folder):
    try:
        ModelSettings(context_management=[{"type": "compaction", "compact_treshold": 1000}])
    except ValueError:
        return "refused"
    return "accepted"


async def example_a_threshold_that_is_not_a_number(folder):
    try:
        ModelSettings(context_management=[{"type": "compaction", "compact_threshold": "many"}])
    except ValueError:
        return "refused"
    return "accepted"


async def example_agents_that_look_alike(folder):
    agent, voice = Agent(name="A"), RealtimeAgent(name="A")
    return agent == agent.clone(), voice == voice.clone(), agent == Agent(name="B")


# --- voice -----------------------------------------------------------------------------------------------------------


async def example_audio_formats(folder):
    names = ("pcm16", "pcm", "audio/pcm", "g711_ulaw", "audio/pcmu", "g711_alaw", "pcma", "unheard of", None)
    mappings = ({"type": "audio/pcm", "rate": 24000}, {"type": "audio/pcm", "rate": 8000}, {"type": "audio/pcmu"}, {})
    given = AudioPCM(type="audio/pcm", rate=24000)
    made = [to_realtime_audio_format(one) for one in (*names, *mappings)]
    return [(type(one).__name__, one) for one in made], to_realtime_audio_format(given) is given


async def example_the_settings_with_which_a_phone_call_is_accepted(folder):
    def greeting(context: Any, agent: Any) -> str:
        return f"Greet {context.context}."

    agent = RealtimeAgent(
        name="Clerk", instructions=greeting, tools=[note], handoffs=[RealtimeAgent(name="Boss")], prompt={"id": "p_1"}
    )
    build = OpenAIRealtimeSIPModel.build_initial_session_payload
    paid = await build(
        agent,
        context="Ada",
        model_config={"initial_model_settings": {"model_name": "gpt-realtime-mini", "voice": "verse"}},
        run_config={"model_settings": {"output_modalities": ["text"], "voice": "ash"}, "tracing_disabled": True},
        overrides={"output_audio_format": "g711_ulaw", "turn_detection": None},
    )
    bare = await build(RealtimeAgent(name="Clerk"))
    found = []
    for one in (paid, bare):
        plain = one.model_dump(exclude_none=True)
        for tool in plain["tools"]:
            del tool["description"], tool["parameters"]
        found.append((type(one).__name__, plain, one.audio.output.format.type))
    return found
