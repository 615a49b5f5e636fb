"""Runs as spans: the right tree under concurrency, closed however a run ends, silent about what was said.

The spans are made by OpenTelemetry's own SDK and kept in memory; nothing is patched.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap
from collections import Counter
from typing import Any

import pytest
from openai import AsyncOpenAI
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import server_attributes
from opentelemetry.trace import StatusCode

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    InMemorySession,
    InputGuardrailTripwireTriggered,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    Runner,
    Usage,
    UserError,
    function_tool,
    input_guardrail,
    output_guardrail,
    retry_policies,
)
from standfast._src.models.providers.responses_model import OpenAIResponsesModel
from standfast._src.tracing import opentelemetry_spans as telemetry
from standfast.testing import ModelStep, ScriptedModel, assistant_message, final, function_call, handoff_call
from standfast.testing.loopback import LoopbackServer

SECRET = "the-safe-opens-with-4711"


class Traced:
    """A tracer provider of its own, and what it was told."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def config(self, **more: Any) -> RunConfig:
        return RunConfig(tracing={"tracer_provider": self.provider}, **more)

    @property
    def spans(self) -> list[ReadableSpan]:
        return sorted(self.exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def named(self, name: str) -> ReadableSpan:
        [found] = [span for span in self.spans if span.name == name]
        return found

    def tree(self) -> dict[str, Any]:
        """Every span's children by name, from the roots; equal names are counted."""
        return self._below(None)

    def _below(self, parent: int | None) -> dict[str, Any]:
        children = [span for span in self.spans if (span.parent.span_id if span.parent else None) == parent]
        names = Counter(span.name for span in children)
        found: dict[str, Any] = {}
        for span in children:
            label = span.name if names[span.name] == 1 else f"{span.name} x{names[span.name]}"
            found.setdefault(label, {}).update(self._below(span.context.span_id))
        return found

    def everything(self) -> str:
        return "".join(span.to_json() for span in self.spans)


@pytest.fixture
def traced() -> Traced:
    return Traced()


@function_tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word} means {SECRET}"


@function_tool
async def fail(word: str) -> str:
    """Fail, quoting the word."""
    raise ValueError(f"cannot look up {SECRET}")


def calls(*names: str) -> ModelStep:
    return ModelStep(
        output=[function_call(name, {"word": SECRET}, call_id=f"c{n}") for n, name in enumerate(names)],
        usage=Usage(requests=1, input_tokens=10, output_tokens=3, total_tokens=13),
    )


def agent_of(*steps: Any, **more: Any) -> Agent[Any]:
    return Agent(name="clerk", instructions=f"Say {SECRET}.", model=ScriptedModel(steps), **more)


async def run(agent: Agent[Any], config: RunConfig, *, streamed: bool = False, **more: Any) -> Any:
    if not streamed:
        return await Runner.run(agent, f"What is {SECRET}?", run_config=config, **more)
    result = Runner.run_streamed(agent, f"What is {SECRET}?", run_config=config, **more)
    async for _ in result.stream_events():
        pass
    return result


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


# --- the tree --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_run_is_a_tree_of_requests_and_calls(traced: Traced, streamed: bool):
    usage = Usage(requests=1, input_tokens=20, output_tokens=4, total_tokens=24)
    agent = agent_of(calls("look_up"), final("done", usage=usage), tools=[look_up])
    await run(agent, traced.config(workflow_name="desk"), streamed=streamed, session=InMemorySession("guest-1"))

    assert traced.tree() == {"invoke_agent clerk": {"chat x2": {}, "execute_tool look_up": {}}}
    whole = attributes(traced.named("invoke_agent clerk"))
    assert whole["gen_ai.operation.name"] == "invoke_agent"
    assert whole["gen_ai.agent.name"] == "clerk"
    assert whole["gen_ai.workflow.name"] == "desk"
    assert whole["gen_ai.conversation.id"] == "guest-1"
    assert (whole["gen_ai.usage.input_tokens"], whole["gen_ai.usage.output_tokens"]) == (30, 7)
    assert (whole["standfast.run.status"], whole["standfast.run.turns"]) == ("done", 2)
    assert whole["standfast.usage.requests"] == 2
    call = attributes(traced.named("execute_tool look_up"))
    assert call["gen_ai.tool.call.id"] == "c0"
    assert call["gen_ai.tool.description"] == "Look a word up."
    first = attributes(next(span for span in traced.spans if span.name == "chat"))
    assert first["gen_ai.usage.input_tokens"] == 10
    assert first["gen_ai.response.id"] == "resp-789"
    assert first["gen_ai.response.finish_reasons"] == ("tool_call",)
    assert first.get("gen_ai.request.stream", False) is streamed
    assert all(span.status.status_code is StatusCode.UNSET for span in traced.spans)


@pytest.mark.parametrize("streamed", [False, True])
async def test_parallel_calls_stand_side_by_side_and_keep_what_their_tools_trace(traced: Traced, streamed: bool):
    """Both calls are under way at once, one of them in a thread; each has its own span as the current one."""
    tracer = traced.provider.get_tracer("application")
    both = asyncio.Barrier(2)

    @function_tool
    async def here(word: str) -> str:
        await both.wait()
        with tracer.start_as_current_span("inside here"):
            await both.wait()
        return "here"

    @function_tool
    async def there(word: str) -> str:
        await both.wait()
        with tracer.start_as_current_span("inside there"):
            await both.wait()
        return "there"

    @function_tool
    def apart(word: str) -> str:
        with tracer.start_as_current_span("inside apart"):
            return "apart"

    agent = agent_of(calls("here", "there", "apart"), final("done"), tools=[here, there, apart])
    await run(agent, traced.config(), streamed=streamed)
    assert traced.tree() == {
        "invoke_agent clerk": {
            "chat x2": {},
            "execute_tool here": {"inside here": {}},
            "execute_tool there": {"inside there": {}},
            "execute_tool apart": {"inside apart": {}},
        }
    }


async def test_runs_at_the_same_time_do_not_get_into_each_others_trees(traced: Traced):
    config = traced.config()
    await asyncio.gather(
        *(
            run(agent_of(calls("look_up", "look_up"), final("done"), tools=[look_up]), config, streamed=bool(n % 2))
            for n in range(20)
        )
    )
    per_trace = Counter(span.context.trace_id for span in traced.spans)
    assert set(per_trace.values()) == {5}
    assert len(per_trace) == 20


async def test_a_run_is_part_of_what_the_application_traces(traced: Traced):
    with traced.provider.get_tracer("application").start_as_current_span("request"):
        await run(agent_of(final("done")), traced.config())
        await run(agent_of(final("done")), traced.config(), streamed=True)
    assert traced.tree() == {"request": {"invoke_agent clerk x2": {"chat": {}}}}
    assert not trace.get_current_span().get_span_context().is_valid  # and leaves nothing behind


async def test_a_handoff_is_a_span_and_the_next_requests_name_the_next_agent(traced: Traced):
    second = Agent(name="expert", model=ScriptedModel([final("done")]))
    first = agent_of([handoff_call(second, call_id="h1")], handoffs=[second])
    await run(first, traced.config())
    assert traced.tree() == {"invoke_agent clerk": {"chat x2": {}, "handoff expert": {}}}
    assert attributes(traced.named("handoff expert"))["standfast.handoff.target"] == "expert"
    asked = [attributes(span)["gen_ai.agent.name"] for span in traced.spans if span.name == "chat"]
    assert asked == ["clerk", "expert"]
    assert attributes(traced.named("invoke_agent clerk"))["standfast.run.last_agent"] == "expert"


async def test_an_agent_as_a_tool_is_a_run_inside_its_call(traced: Traced):
    inner = Agent(name="expert", model=ScriptedModel([final("done")]))
    outer = agent_of(
        [function_call("ask_expert", {"input": "hm"}, call_id="c1")],
        final("done"),
        tools=[inner.as_tool("ask_expert", "Ask.")],
    )
    await run(outer, traced.config())
    inside = {"execute_tool ask_expert": {"invoke_agent expert": {"chat": {}}}}
    assert traced.tree() == {"invoke_agent clerk": {"chat x2": {}, **inside}}


async def test_a_nested_run_follows_its_own_config(traced: Traced):
    """The outer run may tell what was said; the inner one may not, or may not be traced at all."""
    for inner_config, spans in ((RunConfig(), 2), (RunConfig(tracing_disabled=True), 0)):
        traced.exporter.clear()
        inner = Agent(name="expert", model=ScriptedModel([final("inner words")]))
        tool = inner.as_tool("ask_expert", "Ask.", run_config=inner_config)
        outer = agent_of([function_call("ask_expert", {"input": "x"}, call_id="c1")], final("done"), tools=[tool])
        await run(outer, traced.config(trace_include_sensitive_data=True))
        below = [span for span in traced.spans if attributes(span).get("gen_ai.agent.name") == "expert"]
        assert len(below) == spans
        assert not any("inner words" in span.to_json() for span in below)


# --- how it ends -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
async def test_each_attempt_is_a_span_and_only_the_failed_one_failed(traced: Traced, streamed: bool):
    retry = ModelRetrySettings(max_retries=2, policy=retry_policies.network_error(), backoff={"initial_delay": 0})
    agent = agent_of(
        ConnectionRefusedError(SECRET), final("done"), model_settings=ModelSettings(retry=retry, temperature=0.5)
    )
    await run(agent, traced.config(), streamed=streamed)
    failed, answered = (span for span in traced.spans if span.name == "chat")
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(failed)["error.type"] == "ConnectionRefusedError"
    assert "standfast.model.attempt" not in attributes(failed)
    assert attributes(answered)["standfast.model.attempt"] == 2
    assert attributes(answered)["gen_ai.request.temperature"] == 0.5
    assert traced.named("invoke_agent clerk").status.status_code is StatusCode.UNSET


async def test_a_tool_that_failed_is_marked_though_the_run_went_on(traced: Traced):
    await run(agent_of(calls("fail"), final("done"), tools=[fail]), traced.config())
    call = traced.named("execute_tool fail")
    assert call.status.status_code is StatusCode.ERROR
    assert attributes(call)["error.type"] == "ValueError"
    assert traced.named("invoke_agent clerk").status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("streamed", [False, True])
async def test_an_error_that_ends_a_run_is_on_its_span(traced: Traced, streamed: bool):
    with pytest.raises(RuntimeError):
        await run(agent_of(RuntimeError(SECRET)), traced.config(), streamed=streamed)
    for span in traced.spans:
        assert span.status.status_code is StatusCode.ERROR
        assert [event.name for event in span.events] == ["exception"]
    assert [span.name for span in traced.spans] == ["invoke_agent clerk", "chat"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_tripwire_ends_the_request_it_overtook(traced: Traced, streamed: bool):
    asked = asyncio.Event()

    @input_guardrail
    async def no_safes(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asked.wait()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    async def never(call: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    agent = agent_of(ModelStep.respond(never), input_guardrails=[no_safes])
    with pytest.raises(InputGuardrailTripwireTriggered):
        await run(agent, traced.config(), streamed=streamed)
    assert traced.tree() == {"invoke_agent clerk": {"chat": {}, "guardrail no_safes": {}}}
    assert attributes(traced.named("guardrail no_safes"))["standfast.guardrail.tripped"] is True
    assert attributes(traced.named("guardrail no_safes"))["standfast.guardrail.stage"] == "input"
    assert attributes(traced.named("chat"))["standfast.cancelled"] is True
    assert traced.named("chat").status.status_code is StatusCode.UNSET
    whole = traced.named("invoke_agent clerk")
    assert attributes(whole)["error.type"] == "standfast.InputGuardrailTripwireTriggered"
    assert whole.status.status_code is StatusCode.ERROR


async def test_output_guardrails_are_asked_side_by_side(traced: Traced):
    @output_guardrail
    async def short(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    @output_guardrail
    async def polite(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    await run(agent_of(final("done"), output_guardrails=[short, polite]), traced.config())
    assert traced.tree() == {"invoke_agent clerk": {"chat": {}, "guardrail short": {}, "guardrail polite": {}}}


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancelled_run_leaves_no_span_open(traced: Traced, streamed: bool):
    """Two tools are under way; every span that was begun is ended, and none is called an error."""
    begun = asyncio.Barrier(3)

    @function_tool
    async def wait(word: str) -> str:
        await begun.wait()
        await asyncio.Event().wait()
        return ""

    agent = agent_of(calls("wait", "wait"), final("done"), tools=[wait])
    stopped = {"execute_tool wait"}
    if streamed:
        result = Runner.run_streamed(agent, "go", run_config=traced.config())
        await begun.wait()
        result.cancel()  # said by whoever watches: the run ends in order, and only what it cut was cancelled
        async for _ in result.stream_events():
            pass
    else:
        task = asyncio.create_task(run(agent, traced.config()))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stopped.add("invoke_agent clerk")
    assert traced.tree() == {"invoke_agent clerk": {"chat": {}, "execute_tool wait x2": {}}}
    assert {span.name for span in traced.spans if attributes(span).get("standfast.cancelled")} == stopped
    assert all(span.status.status_code is StatusCode.UNSET for span in traced.spans)


# --- what was said ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streamed", [False, True])
async def test_nothing_that_was_said_is_traced_by_default(traced: Traced, streamed: bool):
    """Not in attributes, not in errors, not in their stack traces."""
    agent = agent_of(calls("look_up", "fail"), RuntimeError(SECRET), tools=[look_up, fail])
    with pytest.raises(RuntimeError):
        await run(agent, traced.config(), streamed=streamed)
    assert len(traced.spans) == 5
    assert SECRET not in traced.everything()


async def test_what_was_said_is_traced_when_asked_for_in_the_shape_of_the_conventions(traced: Traced):
    agent = agent_of(calls("look_up", "fail"), final(f"It is {SECRET}."), tools=[look_up, fail])
    await run(agent, traced.config(trace_include_sensitive_data=True))
    whole = attributes(traced.named("invoke_agent clerk"))
    question = {"role": "user", "parts": [{"type": "text", "content": f"What is {SECRET}?"}]}
    answer = {"role": "assistant", "parts": [{"type": "text", "content": f"It is {SECRET}."}]}
    assert json.loads(whole["gen_ai.input.messages"]) == [question]
    assert json.loads(whole["gen_ai.output.messages"]) == [answer]
    last = attributes([span for span in traced.spans if span.name == "chat"][-1])
    assert json.loads(last["gen_ai.system_instructions"]) == [{"type": "text", "content": f"Say {SECRET}."}]
    sent = json.loads(last["gen_ai.input.messages"])
    arguments = json.dumps({"word": SECRET}, separators=(",", ":"))
    assert sent[0] == question
    assert sent[1]["parts"] == [{"type": "tool_call", "id": "c0", "name": "look_up", "arguments": arguments}]
    assert [message["role"] for message in sent] == ["user", "assistant", "assistant", "tool", "tool"]
    assert json.loads(last["gen_ai.output.messages"]) == [answer]
    assert attributes(traced.named("execute_tool look_up"))["gen_ai.tool.call.result"] == f"{SECRET} means {SECRET}"
    [event] = traced.named("execute_tool fail").events
    assert SECRET in str((event.attributes or {})["exception.message"])


async def test_words_that_no_exporter_can_encode_do_not_break_a_run(traced: Traced):
    agent = agent_of([assistant_message("half a pair: \ud83d")])
    result = await Runner.run(agent, "hm \udc00", run_config=traced.config(trace_include_sensitive_data=True))
    assert result.final_output == "half a pair: \ud83d"
    traced.everything().encode()


# --- whether there are any -------------------------------------------------------------------------------------------


async def test_what_the_config_says_about_the_trace_is_on_the_run(traced: Traced):
    config = traced.config(group_id="thread-7", trace_id="trace_1", trace_metadata={"tenant": "acme", "tags": ["a"]})
    await run(agent_of(final("done")), config)
    whole = attributes(traced.named("invoke_agent clerk"))
    assert whole["standfast.group_id"] == whole["gen_ai.conversation.id"] == "thread-7"
    assert whole["standfast.trace_id"] == "trace_1"
    assert (whole["standfast.metadata.tenant"], whole["standfast.metadata.tags"]) == ("acme", '["a"]')


async def test_a_run_with_tracing_disabled_leaves_no_span(traced: Traced):
    await run(agent_of(calls("look_up"), final("done"), tools=[look_up]), traced.config(tracing_disabled=True))
    assert not traced.spans


async def test_spans_that_are_not_sampled_cost_no_attributes_at_the_end():
    traced = Traced(sampler=ALWAYS_OFF)
    result = await run(agent_of(calls("look_up"), final("done"), tools=[look_up]), traced.config())
    assert result.final_output == "done"
    assert not traced.spans


def test_a_tracer_provider_that_is_none_is_refused_before_anything_runs():
    with pytest.raises(TypeError, match="Give an OpenTelemetry TracerProvider"):
        telemetry.tracer_for(RunConfig(tracing={"tracer_provider": "console"}))


def test_a_provider_that_makes_no_spans_is_not_asked_for_any():
    assert telemetry.tracer_for(RunConfig(tracing={"tracer_provider": trace.NoOpTracerProvider()})) is None


async def test_an_error_of_the_arguments_is_raised_before_a_span_begins(traced: Traced):
    with pytest.raises(UserError):
        await Runner.run(agent_of(), 42, run_config=traced.config())  # type: ignore[arg-type]  # that is the mistake
    assert not traced.spans


def child(program: str) -> str:
    """What a fresh interpreter prints that runs this program."""
    preamble = """
        import sys
        from standfast import Agent, Runner
        from standfast.testing import ScriptedModel, final
        agent = Agent(name="clerk", model=ScriptedModel([final("done")]))
    """
    source = textwrap.dedent(preamble) + textwrap.dedent(program)
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_a_program_without_opentelemetry_does_not_load_it():
    program = """
        Runner.run_sync(agent, "hi")
        loaded = [name for name in sys.modules if name.startswith("opentelemetry")]
        print(loaded, "standfast._src.tracing.opentelemetry_spans" in sys.modules)
    """
    assert child(program) == "[] False"


def test_a_program_that_loaded_it_and_set_up_nothing_gets_no_tracer():
    program = """
        import opentelemetry.trace
        from standfast import RunConfig
        from standfast._src.runs.api.arguments import tracer_for
        Runner.run_sync(agent, "hi")
        print(tracer_for(RunConfig()))
    """
    assert child(program) == "None"


def test_the_programs_own_provider_is_used_without_being_named():
    program = """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        Runner.run_sync(agent, "hi")
        print([span.name for span in exporter.get_finished_spans()])
    """
    assert child(program) == "['chat', 'invoke_agent clerk']"


def test_tokens_and_durations_are_measured_where_a_meter_is_set_up():
    program = """
        from opentelemetry import metrics
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import InMemoryMetricReader
        from standfast import Agent, Runner, function_tool
        from standfast.testing import ScriptedModel, final, function_call

        reader = InMemoryMetricReader()
        metrics.set_meter_provider(MeterProvider([reader]))
        add = function_tool(lambda: "x", name_override="add")
        model = ScriptedModel([[function_call("add", {}, call_id="c")], final("d")])
        agent = Agent(name="clerk", tools=[add], model=model)
        Runner.run_sync(agent, "hi")
        (scope,) = reader.get_metrics_data().resource_metrics[0].scope_metrics
        for metric in sorted(scope.metrics, key=lambda one: one.name):
            points = metric.data.data_points
            print(metric.name, metric.unit, sorted(
                (point.attributes["gen_ai.operation.name"], point.attributes.get("gen_ai.token.type"), point.count)
                for point in points
            ))
    """
    duration, tokens = child(program).splitlines()
    assert duration == (
        "gen_ai.client.operation.duration s [('chat', None, 2), ('execute_tool', None, 1), ('invoke_agent', None, 1)]"
    )
    assert tokens == "gen_ai.client.token.usage {token} [('chat', 'input', 2), ('chat', 'output', 2)]"


async def test_a_request_says_where_it_went_and_which_model_answered(traced: Traced):
    async with LoopbackServer() as server:
        client = AsyncOpenAI(api_key="k", base_url=server.base_url)
        agent = Agent(name="clerk", model=OpenAIResponsesModel("gpt-x", client))
        await run(agent, traced.config())
        await client.close()
        port = int(server.base_url.split(":")[2].partition("/")[0])
    asked = attributes(next(span for span in traced.spans if span.name.startswith("chat")))
    assert asked["server.address"] == "127.0.0.1"
    assert asked["server.port"] == port
    assert asked["gen_ai.response.model"] == "gpt-x"
    assert asked["gen_ai.response.finish_reasons"] == ("stop",)


# --- the names -------------------------------------------------------------------------------------------------------


def test_every_name_we_take_from_the_conventions_is_one_of_theirs():
    """So that a span is understood where the conventions are; a name they have not is ours, and says so."""
    modules = (gen_ai_attributes, server_attributes, gen_ai_metrics)
    theirs = {value for module in modules for name, value in vars(module).items() if name.isupper()}
    values = [value for name, value in vars(telemetry).items() if name.isupper() and isinstance(value, str)]
    values += telemetry.SETTINGS.values()
    named = [value for value in values if "." in value and value != "error.type"]
    assert len(named) > 30
    assert not [name for name in named if name not in theirs and not name.startswith("standfast.")]
    operations = {one.value for one in gen_ai_attributes.GenAiOperationNameValues}
    assert set(telemetry.OPERATIONS.values()) <= operations


def test_only_one_file_knows_the_conventions():
    source = telemetry.__file__ or ""
    package = source.rpartition("/")[0]
    found = subprocess.run(["grep", "-rl", "--include=*.py", "gen_ai", package], capture_output=True, text=True)
    assert found.stdout.split() == [source]
