"""Traces under the SDK's names: what processors are told of a program's own spans and of its runs."""

from __future__ import annotations

from typing import Any

import agents
from agents import (
    Agent,
    RunConfig,
    Runner,
    agent_span,
    custom_span,
    function_span,
    function_tool,
    generation_span,
    get_current_span,
    get_current_trace,
    guardrail_span,
    handoff_span,
    set_trace_processors,
    set_tracing_disabled,
    trace,
)
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tracing import GuardrailSpanData, TracingProcessor, add_trace_processor, get_trace_provider
from agents.tracing.span_data import CustomSpanData, FunctionSpanData, SpeechSpanData, TurnSpanData


class Listening(TracingProcessor):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def on_trace_start(self, trace):
        self.told.append(("trace begins", trace))

    def on_trace_end(self, trace):
        self.told.append(("trace ends", trace))

    def on_span_start(self, span):
        self.told.append(("span begins", span))

    def on_span_end(self, span):
        self.told.append(("span ends", span))

    def shutdown(self):
        pass

    def force_flush(self):
        self.told.append(("flush", None))

    def spans(self, kind: str) -> list[Any]:
        return [one for what, one in self.told if what == "span ends" and one.span_data.type == kind]


def _listening() -> Listening:
    processor = Listening()
    set_trace_processors([processor])
    set_tracing_disabled(False)
    return processor


def _quiet() -> None:
    set_trace_processors([])
    set_tracing_disabled(True)


async def example_a_programs_own_spans(folder):
    processor = _listening()
    try:
        with trace("Desk", group_id="g", metadata={"floor": "2"}, trace_id="trace_1") as around:
            same = get_current_trace() is around
            with custom_span("outer", data={"a": 1}) as outer:
                inside = get_current_span() is outer
                with custom_span("inner") as inner:
                    inner.set_error({"message": "no", "data": None})
        exported = around.export()
        told = [(what, getattr(one, "name", None) or one.span_data.name) for what, one in processor.told]
        first, second = processor.spans("custom")
        return (
            same,
            inside,
            told,
            {name: exported[name] for name in ("object", "id", "workflow_name", "group_id", "metadata")},
            second.export()["span_data"],
            first.parent_id == second.span_id,
            first.trace_id,
            first.error,
            get_current_trace(),
            get_current_span(),
        )
    finally:
        _quiet()


async def example_spans_of_a_run(folder):
    @function_tool
    def add(a: int, b: int) -> int:
        """Add."""
        seen.append(get_current_trace() is not None)
        return a + b

    seen: list[bool] = []
    processor = _listening()
    try:
        steps = [[function_call("add", {"a": 1, "b": 2}, call_id="c1")], [assistant_message("3")]]
        agent = Agent(name="Clerk", tools=[add], model=ScriptedModel(steps))
        config = RunConfig(workflow_name="Sums", group_id="g", trace_include_sensitive_data=False)
        await Runner.run(agent, "1 + 2?", run_config=config)
        (traced,) = [one for what, one in processor.told if what == "trace ends"]
        (function,) = processor.spans("function")
        (of_agent,) = processor.spans("agent")
        return (
            traced.name,
            traced.export()["group_id"],
            processor.told[0][0],
            processor.told[-1][0],
            function.span_data.export()["name"],
            function.span_data.input,
            of_agent.span_data.export()["name"],
            of_agent.span_data.tools,
            of_agent.span_data.output_type,
            function.trace_id == of_agent.trace_id == traced.trace_id,
            seen,
        )
    finally:
        _quiet()


async def example_content_where_it_is_switched_on(folder):
    processor = _listening()
    echo = function_tool(lambda word: word, name_override="echo", strict_mode=False)
    try:
        steps = [[function_call("echo", '{"word":"x"}', call_id="c1")], [assistant_message("done")]]
        config = RunConfig(trace_include_sensitive_data=True)
        await Runner.run(Agent(name="A", tools=[echo], model=ScriptedModel(steps)), "Hi", run_config=config)
        (function,) = processor.spans("function")
        return function.span_data.input, str(function.span_data.output)
    finally:
        _quiet()


async def example_a_run_that_is_not_traced(folder):
    processor = _listening()
    try:
        agent = Agent(name="A", model=ScriptedModel([[assistant_message("x")], [assistant_message("y")]]))
        await Runner.run(agent, "Hi", run_config=RunConfig(tracing_disabled=True))
        with trace("Quiet", disabled=True):
            await Runner.run(agent, "Hi")
        return len(processor.told)
    finally:
        _quiet()


async def example_every_kind_of_span(folder):
    processor = _listening()
    try:
        with trace("All"):
            for made in (
                agent_span("A", tools=["t"]),
                function_span("f", input="i", output="o"),
                generation_span(model="m", usage={"input_tokens": 1}),
                guardrail_span("g", triggered=True),
                handoff_span("A", "B"),
            ):
                with made:
                    pass
        spans = [one for what, one in processor.told if what == "span ends"]
        return [span.span_data.export() for span in spans]
    finally:
        _quiet()


async def example_data_of_spans(folder):
    made = (
        CustomSpanData("c", {"a": 1}),
        FunctionSpanData("f", "i", 3),
        GuardrailSpanData("g"),
        SpeechSpanData(input="hi", model="m"),
        TurnSpanData(2, "A", usage={"input_tokens": 1}),
    )
    return [(one.type, one.export()) for one in made]


class Broken(Listening):
    def on_span_start(self, span):
        raise ValueError("no")


async def example_a_processor_that_raises_and_one_beside_it(folder):
    processor = _listening()
    try:
        add_trace_processor(Broken())
        agent = Agent(name="A", model=ScriptedModel([[assistant_message("done")]]))
        result = await Runner.run(agent, "Hi")
        agents.flush_traces()
        provider = get_trace_provider()
        return result.final_output, ("flush", None) in processor.told, hasattr(provider, "register_processor")
    finally:
        _quiet()
