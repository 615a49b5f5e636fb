"""What ordinary programs import besides."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    AgentBase,
    ItemHelpers,
    RunConfig,
    Runner,
    TContext,
    ToolOutputFileContentDict,
    ToolOutputImageDict,
    ToolOutputTextDict,
    __version__,
    custom_span,
    enable_verbose_stdout_logging,
    flush_traces,
    gen_span_id,
    gen_trace_id,
    get_current_trace,
    run_demo_loop,
    set_default_openai_api,
    set_default_openai_key,
    set_trace_processors,
    set_tracing_disabled,
    set_tracing_export_api_key,
    trace,
)
from agents.repl import run_demo_loop as same_loop
from agents.testing import ScriptedModel, assistant_message
from agents.tracing import trace as same_trace


async def example_a_trace_around_two_runs(folder):
    agent = Agent(name="A", model=ScriptedModel([[assistant_message("one")], [assistant_message("two")]]))
    with trace("Jokes", group_id="thread", metadata={"a": "b"}, trace_id=gen_trace_id()):
        first = await Runner.run(agent, "Hi")
        with custom_span("rate", data={"stars": "5"}):
            second = await Runner.run(agent, "Hi", run_config=RunConfig(workflow_name="w", group_id="g"))
    flush_traces()
    return first.final_output, second.final_output, get_current_trace(), same_trace is trace


async def example_switches(folder):
    set_tracing_export_api_key("sk-unused")
    set_tracing_disabled(True)
    set_default_openai_key("sk-unused", use_for_tracing=False)
    set_default_openai_api("responses")
    ids = gen_trace_id(), gen_span_id()
    return [(one.partition("_")[0], len(one)) for one in ids], same_loop is run_demo_loop


async def example_things_that_are_only_named(folder):
    text: ToolOutputTextDict = {"type": "text", "text": "a"}
    image: ToolOutputImageDict = {"type": "image", "file_id": "f"}
    file: ToolOutputFileContentDict = {"type": "file", "file_url": "u"}
    things = [enable_verbose_stdout_logging, run_demo_loop, set_trace_processors]
    return text, image, file, [callable(one) for one in things], isinstance(__version__, str), TContext.__name__


async def example_agents_are_generic_and_have_helpers(folder):
    agent = Agent[Any](name="A", model=ScriptedModel([[assistant_message("Hello.")]]))
    result = await Runner.run(agent, "Hi")
    return (
        isinstance(agent, AgentBase),
        ItemHelpers.text_message_outputs(result.new_items),
        ItemHelpers.extract_last_text(result.new_items[-1].raw_item),
        ItemHelpers.input_to_new_input_list("Hi"),
        result.new_items[0].to_input_item(),
        result.last_agent.name,
        result.raw_responses[0].to_input_items(),
    )


async def example_printing_a_result(folder):
    agent = Agent(name="A", model=ScriptedModel([[assistant_message("Hello.")]]))
    result = await Runner.run(agent, "Hi")
    return "Hello." in str(result), "RunResult" in str(result)
