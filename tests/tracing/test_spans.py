"""Spans of a program's own: a trace around several runs, off where it is off, clear words where the SDK differs."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from standfast import (
    Agent,
    RunConfig,
    Runner,
    TracingProcessor,
    add_trace_processor,
    custom_span,
    enable_verbose_stdout_logging,
    function_tool,
    gen_span_id,
    gen_trace_id,
    get_current_trace,
    set_trace_processors,
    set_trace_provider,
    set_tracing_disabled,
    set_tracing_export_api_key,
    trace,
)
from standfast._src.tracing.spans import get_trace_provider
from standfast.testing import ScriptedModel, final, function_call
from standfast.tracing.provider import DefaultTraceProvider


class Told:
    """What a tracer provider was told, and the settings that lead there."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracing = {"tracer_provider": provider}
        self.config = RunConfig(tracing=self.tracing)

    def spans(self) -> dict[str, ReadableSpan]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def parents(self) -> dict[str, str | None]:
        by_id = {span.context.span_id: span.name for span in self.exporter.get_finished_spans()}
        return {name: by_id[span.parent.span_id] if span.parent else None for name, span in self.spans().items()}


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture(autouse=True)
def _the_switch_is_put_back() -> Iterator[None]:
    yield
    set_tracing_disabled(None)
    set_trace_processors([])


def agent(name: str = "clerk", **more: Any) -> Agent[Any]:
    return Agent(name=name, model=ScriptedModel([final("done")]), **more)


async def test_runs_inside_a_trace_belong_to_its_span_and_its_workflow(told: Told):
    with trace("desk", group_id="thread-1", metadata={"floor": 2}, tracing=told.tracing) as around:
        assert get_current_trace() is around
        await Runner.run(agent("first"), "hi", run_config=told.config)
        await Runner.run(agent("second"), "hi", run_config=told.config)
    assert get_current_trace() is None
    assert told.parents() == {
        "chat": "invoke_agent second",  # one name stands for both
        "invoke_agent first": "invoke_workflow desk",
        "invoke_agent second": "invoke_workflow desk",
        "invoke_workflow desk": None,
    }
    whole, run = (dict(told.spans()[name].attributes or {}) for name in ("invoke_workflow desk", "invoke_agent first"))
    assert (whole["gen_ai.workflow.name"], run["gen_ai.workflow.name"]) == ("desk", "desk")
    assert (whole["standfast.group_id"], run["standfast.group_id"]) == ("thread-1", "thread-1")
    assert (whole["standfast.metadata.floor"], whole["standfast.trace_id"]) == (2, around.trace_id)


async def test_a_custom_span_stands_where_it_is_made_or_below_its_parent(told: Told):
    @function_tool
    async def look() -> str:
        """Look."""
        with custom_span("inside the tool", {"shelf": 3}):
            return "found"

    model = ScriptedModel([[function_call("look", {}, call_id="c1")], final("done")])
    with trace("desk", tracing=told.tracing) as around:
        await Runner.run(Agent(name="clerk", model=model, tools=[look]), "hi", run_config=told.config)
        with custom_span("beside"), custom_span("below the trace", parent=around):
            pass
    parents = told.parents()
    assert parents["inside the tool"] == "execute_tool look"
    assert (parents["beside"], parents["below the trace"]) == ("invoke_workflow desk", "invoke_workflow desk")
    assert dict(told.spans()["inside the tool"].attributes or {}) == {"standfast.data.shelf": 3}


async def test_two_tasks_have_a_trace_each(told: Told):
    async def work(name: str) -> str | None:
        with trace(name, tracing=told.tracing):
            await asyncio.sleep(0)
            with custom_span(f"step of {name}"):
                await asyncio.sleep(0)
            current = get_current_trace()
            return current.name if current else None

    assert await asyncio.gather(work("a"), work("b")) == ["a", "b"]
    assert told.parents()["step of a"] == "invoke_workflow a"
    assert told.parents()["step of b"] == "invoke_workflow b"


def test_a_trace_that_fails_says_so_without_the_text(told: Told):
    with pytest.raises(ValueError), trace("desk", tracing=told.tracing):
        raise ValueError("the safe opens with 4711")
    span = told.spans()["invoke_workflow desk"]
    assert span.status.status_code is StatusCode.ERROR
    assert "4711" not in span.to_json()


def test_started_and_finished_by_hand(told: Told):
    around = trace("desk", tracing=told.tracing)
    around.start(mark_as_current=True)
    assert get_current_trace() is around
    step = custom_span("step")
    step.start()
    step.set_error({"message": "no paper", "data": {"tray": 1}})
    step.finish()
    around.finish(reset_current=True)
    around.finish(reset_current=True)
    assert get_current_trace() is None
    assert told.spans()["step"].status.description == "no paper"
    assert dict(told.spans()["step"].attributes or {}) == {"standfast.data.tray": 1}
    assert len(told.exporter.get_finished_spans()) == 2


async def test_what_is_off_leaves_no_spans(told: Told, monkeypatch: pytest.MonkeyPatch):
    async def desk() -> int:
        with trace("desk", tracing=told.tracing):
            await Runner.run(agent(), "hi", run_config=told.config)
        count = len(told.exporter.get_finished_spans())
        told.exporter.clear()
        return count

    assert await desk() == 3
    set_tracing_disabled(True)
    assert await desk() == 0
    set_tracing_disabled(False)
    assert await desk() == 3
    with trace("quiet", disabled=True):
        await Runner.run(agent(), "hi", run_config=told.config)
    assert not told.exporter.get_finished_spans()
    set_tracing_disabled(None)
    assert await desk() == 3
    monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "true")
    assert await desk() == 0


async def test_without_a_provider_a_trace_is_only_a_name():
    with trace("desk") as around:
        result = await Runner.run(agent(), "hi")
    assert (result.final_output, around.name) == ("done", "desk")


def test_switching_tracing_off_does_not_load_opentelemetry():
    code = (
        "import sys, standfast; standfast.set_tracing_disabled(True); "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_ids_have_the_sdks_shape_and_differ():
    assert len(gen_trace_id()) == len("trace_") + 32
    assert len(gen_span_id()) == len("span_") + 24
    assert gen_trace_id() != gen_trace_id()


class Listening(TracingProcessor):
    """Keeps the kinds of the spans that ended."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def on_trace_start(self, trace: Any) -> None:
        self.kinds.append("begin")

    def on_trace_end(self, trace: Any) -> None:
        self.kinds.append("end")

    def on_span_start(self, span: Any) -> None:
        pass

    def on_span_end(self, span: Any) -> None:
        self.kinds.append(span.span_data.type)

    def shutdown(self) -> None:
        pass

    def force_flush(self) -> None:
        pass


async def test_processors_are_told_whether_or_not_opentelemetry_is_set_up(told: Told):
    set_tracing_export_api_key("sk-unused")
    listening = Listening()
    add_trace_processor(listening)
    await Runner.run(agent(), "hi")
    assert listening.kinds == ["begin", "generation", "turn", "agent", "task", "end"]
    await Runner.run(agent(), "hi", run_config=told.config)
    assert listening.kinds[6:] == listening.kinds[:6]
    assert told.parents() == {"chat": "invoke_agent clerk", "invoke_agent clerk": None}
    set_trace_processors([])
    await Runner.run(agent(), "hi")
    assert len(listening.kinds) == 12


async def test_a_provider_of_the_sdks_kind_is_told_through_its_processors():
    listening = Listening()

    class Provider:
        _multi_processor = listening  # the SDK's name for it

    before = get_trace_provider()
    try:
        set_trace_provider(Provider())
        await Runner.run(agent(), "hi")
        assert listening.kinds == ["begin", "generation", "turn", "agent", "task", "end"]
    finally:
        set_trace_provider(before)


# --- a convenience that is not about tracing -----------------------------------------------------------------


def test_verbose_logging_prints_once_however_often_it_is_asked_for(capsys: pytest.CaptureFixture[str]):
    logger = logging.getLogger("standfast")
    before, level = list(logger.handlers), logger.level
    try:
        enable_verbose_stdout_logging()
        enable_verbose_stdout_logging()
        logging.getLogger("standfast.sessions").debug("opened")
        assert capsys.readouterr().out == "opened\n"
    finally:
        logger.handlers, logger.level = before, level
        logger.setLevel(level)


def test_a_provider_of_its_own_calls_its_processors_once_it_is_set_and_can_be_shut_down():
    """A second provider shared the processors of the process: once set it called itself without end."""
    kept, own = Recorded(), Recorded()
    set_trace_processors([kept])
    before = get_trace_provider()
    provider = DefaultTraceProvider()
    provider.register_processor(own)
    try:
        with trace("before"):
            pass
        set_trace_provider(provider)
        with trace("while set"):
            pass
        provider.shutdown()
    finally:
        set_trace_provider(before)
        with trace("afterwards"):
            pass
        set_trace_processors([])
    assert own.names == ["while set"]
    assert own.shutdowns == 1
    assert kept.names == ["before", "afterwards"]


class Recorded(TracingProcessor):
    def __init__(self):
        self.names, self.shutdowns = [], 0

    def on_trace_start(self, trace):
        self.names.append(trace.name)

    def on_trace_end(self, trace): ...

    def on_span_start(self, span): ...

    def on_span_end(self, span): ...

    def shutdown(self, timeout=None):
        self.shutdowns += 1

    def force_flush(self): ...
