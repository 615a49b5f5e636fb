"""Processors written for the OpenAI Agents SDK are given its spans, in its order and of its classes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import agents as sdk
import agents.testing
import agents.tracing.provider
import pytest

import standfast
import standfast.testing
from standfast import custom_span, set_trace_processors
from standfast.tracing import get_current_span, get_trace_provider
from standfast.tracing.processors import BackendSpanExporter, default_exporter, default_processor
from standfast.tracing.provider import SynchronousMultiTracingProcessor
from standfast.tracing.spans import NoOpSpan, Span, SpanImpl
from standfast.tracing.traces import NoOpTrace, Trace, TraceImpl


class Tree(sdk.TracingProcessor):
    """Writes down what begins and ends, and under what; a processor of the SDK's own class."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.spans: list[Any] = []
        self.traces: list[Any] = []
        self._names: dict[str | None, str] = {None: "-"}

    def on_trace_start(self, trace: Any) -> None:
        self.traces.append(trace)
        self.lines.append(f"+ trace {trace.name}")

    def on_trace_end(self, trace: Any) -> None:
        self.lines.append(f"- trace {trace.name}")

    def on_span_start(self, span: Any) -> None:
        data = span.span_data
        name = getattr(data, "name", None) or getattr(data, "turn", "")
        self._names[span.span_id] = f"{data.type} {name}".strip()
        self.lines.append(f"+ {self._names[span.span_id]} in {self._names[span.parent_id]}")

    def on_span_end(self, span: Any) -> None:
        self.spans.append(span)
        self.lines.append(f"- {self._names[span.span_id]}")

    def shutdown(self) -> None:
        pass

    def force_flush(self) -> None:
        pass

    def without(self, kind: str) -> list[str]:
        return [line for line in self.lines if line.split()[1] != kind]

    def of(self, kind: str) -> list[Any]:
        return [span for span in self.spans if span.span_data.type == kind]


@pytest.fixture
def tree() -> Iterator[Tree]:
    seen = Tree()
    set_trace_processors(processors=[seen])
    yield seen
    set_trace_processors([])
    sdk.set_trace_processors([])


async def hand_over(library: Any, *, streamed: bool = False, **config: Any) -> None:
    """One agent books with a tool and hands over to another, which books too."""
    testing = library.testing

    async def book(table: int) -> str:
        """Book."""
        return "booked"

    def books(table: int) -> Any:
        return [testing.function_call("book", {"table": table}, call_id=f"c{table}")]

    tool = library.function_tool(book)
    second = library.Agent(
        name="B", tools=[tool], model=testing.ScriptedModel([books(5), [testing.assistant_message("Done.")]])
    )
    moves = [testing.function_call("transfer_to_b", {}, call_id="c9")]
    first = library.Agent(name="A", tools=[tool], handoffs=[second], model=testing.ScriptedModel([books(4), moves]))
    if streamed:
        result = library.Runner.run_streamed(first, "q", run_config=library.RunConfig(**config))
        async for _ in result.stream_events():
            pass
    else:
        await library.Runner.run(first, "q", run_config=library.RunConfig(**config))


@pytest.mark.parametrize("streamed", [False, True])
async def test_processors_are_given_the_tree_of_the_sdk(tree: Tree, streamed: bool) -> None:
    """Each agent has a span of its own after a handoff: the second one's work is not booked on the first."""
    await hand_over(standfast, streamed=streamed)
    theirs = Tree()
    sdk.set_tracing_disabled(False)
    sdk.set_trace_processors([theirs])
    try:
        await hand_over(sdk, streamed=streamed)
    finally:
        sdk.set_tracing_disabled(True)
    assert tree.without("generation") == theirs.without("generation")  # the SDK's scripted model makes no spans
    assert "+ turn 3 in agent B" in tree.lines
    assert [line for line in tree.lines if "+ generation" in line] == [
        f"+ generation in turn {n}" for n in (1, 2, 3, 4)
    ]
    for kind in ("agent", "task", "turn", "handoff", "function"):
        for ours, other in zip(tree.of(kind), theirs.of(kind), strict=True):
            mine, them = ours.export(), other.export()
            assert mine.keys() == them.keys()
            assert mine["span_data"].keys() == them["span_data"].keys()
            if kind in ("agent", "handoff"):
                assert mine["span_data"] == them["span_data"]
            elif kind != "function":  # requests are counted by the model, and the SDK's scripted one counts none
                assert mine["span_data"]["data"].keys() == them["span_data"]["data"].keys()


async def test_processors_are_given_objects_of_the_sdks_classes_where_it_is_imported(tree: Tree) -> None:
    await hand_over(standfast)
    spans = sdk.tracing.span_data
    for span in tree.spans:
        assert isinstance(span, sdk.tracing.Span)
        assert isinstance(span, sdk.tracing.spans.SpanImpl)
        assert isinstance(span.span_data, sdk.tracing.SpanData)
    kinds = {
        "agent": spans.AgentSpanData,
        "task": spans.TaskSpanData,
        "turn": spans.TurnSpanData,
        "function": spans.FunctionSpanData,
        "generation": spans.GenerationSpanData,
        "handoff": spans.HandoffSpanData,
    }
    for kind, theirs in kinds.items():
        assert tree.of(kind)
        assert all(isinstance(one.span_data, theirs) for one in tree.of(kind))
    assert not isinstance(tree.of("agent")[0].span_data, spans.FunctionSpanData)
    assert isinstance(tree.traces[0], sdk.tracing.Trace)
    assert isinstance(tree.traces[0], TraceImpl)


async def test_without_task_and_turn_spans_agents_are_below_what_is_around_the_run(tree: Tree) -> None:
    tracing = {"include_task_and_turn_spans": False}
    await hand_over(standfast, tracing=tracing)
    theirs = Tree()
    sdk.set_tracing_disabled(False)
    sdk.set_trace_processors([theirs])
    try:
        await hand_over(sdk, tracing=tracing)
    finally:
        sdk.set_tracing_disabled(True)
    assert tree.without("generation") == theirs.without("generation")


async def test_spans_of_hooks_tools_and_nested_runs_are_below_what_runs_them(tree: Tree) -> None:
    testing = standfast.testing
    inner = standfast.Agent(name="inner", model=testing.ScriptedModel([testing.final("in")]))

    class Hooks(standfast.RunHooks[Any]):
        async def on_llm_end(self, *args: Any) -> None:
            with custom_span("hook"):
                pass

    @standfast.function_tool
    async def work(n: int) -> str:
        """Work."""
        with custom_span(f"work {n}"):
            await asyncio.sleep(0)
        return "worked"

    calls = [
        testing.function_call("work", {"n": 1}, call_id="c1"),
        testing.function_call("work", {"n": 2}, call_id="c2"),
        testing.function_call("ask_inner", {"input": "q"}, call_id="c3"),
    ]
    outer = standfast.Agent(
        name="outer",
        tools=[work, inner.as_tool("ask_inner", "Ask.")],
        model=testing.ScriptedModel([calls, testing.final("out")]),
    )
    with custom_span("around"):
        around = get_current_span()
        await standfast.Runner.run(outer, "q", hooks=Hooks())
        assert get_current_span() is around
    assert get_current_span() is None
    begun = [line for line in tree.lines if line.startswith("+")]
    assert "+ task Agent workflow in custom around" in begun
    assert [begun.count(f"+ custom hook in turn {n}") for n in (1, 2)] == [1, 1]
    assert begun.count("+ custom work 1 in function work") == begun.count("+ custom work 2 in function work") == 1
    assert "+ task Agent workflow in function ask_inner" in begun
    assert "+ generation in turn 1" in begun


async def test_what_ends_a_run_is_on_the_span_of_its_agent(tree: Tree) -> None:
    testing = standfast.testing
    again = [testing.function_call("missing", {}, call_id="c1")]
    agent = standfast.Agent(name="A", model=testing.ScriptedModel([again]))
    with pytest.raises(standfast.ModelBehaviorError):
        await standfast.Runner.run(agent, "q")
    (span,) = tree.of("agent")
    assert span.error == {"message": "ModelBehaviorError", "data": {"error_type": "ModelBehaviorError"}}
    assert {line for line in tree.lines if line[0] == "-"} >= {"- turn 1", "- agent A", "- task Agent workflow"}


# --- names -----------------------------------------------------------------------------------------------------------


def test_what_is_made_by_hand_is_as_in_the_sdk(tree: Tree) -> None:
    several, second = SynchronousMultiTracingProcessor(), Tree()
    several.add_tracing_processor(second)
    provider = get_trace_provider()
    assert provider.gen_trace_id().startswith("trace_")
    assert provider.gen_span_id().startswith("span_")
    assert provider.gen_group_id().startswith("group_")
    with TraceImpl("flow", None, "g", {"a": 1}, several, "key-1") as trace:
        assert trace.to_json(include_tracing_api_key=True)["tracing_api_key"] == "key-1"
        with SpanImpl(trace.trace_id, None, None, several, standfast.CustomSpanData("c", {}), "key-1", {"a": 1}):
            pass
    assert second.lines == ["+ trace flow", "+ custom c in -", "- custom c", "- trace flow"]
    with NoOpTrace() as nothing, NoOpSpan(standfast.CustomSpanData("c", {})) as span:
        assert (nothing.export(), span.export(), span.span_id, nothing.trace_id) == (None, None, "no-op", "no-op")
        assert isinstance(span, Span)
        assert isinstance(nothing, Trace)
        with custom_span("not told"):
            pass
    assert tree.lines == []


def test_processors_share_the_time_that_a_shutdown_has() -> None:
    given: list[float | None] = []

    class Slow(Tree):
        def shutdown(self, timeout: float | None = None) -> None:  # type: ignore[override]
            given.append(timeout)

    several = SynchronousMultiTracingProcessor()
    several.set_processors([Slow(), Tree(), Slow()])
    several.shutdown(timeout=30)
    several.shutdown()
    assert all(0 < (one or 0) <= 30 for one in given[:2])
    assert given[2:] == [None, None]


@pytest.fixture
def endpoint() -> Iterator[tuple[str, list[tuple[str, bytes]], list[int]]]:
    """A server of traces, what it was sent, and what it answers in turn."""
    got: list[tuple[str, bytes]] = []
    answers: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["Authorization"], body))
            self.send_response(answers.pop(0) if answers else 204)
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/traces", got, answers
    server.shutdown()
    thread.join()
    server.server_close()


async def test_an_exporter_posts_to_its_endpoint_and_repeats_what_the_server_could_not_take(
    endpoint: tuple[str, list[tuple[str, bytes]], list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    url, got, answers = endpoint
    exporter = BackendSpanExporter(endpoint=url, base_delay=0.001, max_retries=2)
    exporter.set_api_key("key-0")
    processor = standfast.tracing.processors.BatchTraceProcessor(exporter)
    set_trace_processors([processor])
    try:
        answers += [503, 429]
        await hand_over(standfast, tracing={"api_key": "key-7"})
        processor.force_flush()
        assert [key for key, _ in got] == ["Bearer key-7"] * 3
        assert b'"type": "agent"' in got[-1][1]
        got.clear()
        answers += [400]
        await hand_over(standfast)
        processor.force_flush()
        assert [key for key, _ in got] == ["Bearer key-0"]
        assert "was not exported: 400" in caplog.text
        answers += [500] * 3
        await hand_over(standfast)
        processor.shutdown()
        assert len(got) == 4
        assert "was not exported: 500" in caplog.text
    finally:
        set_trace_processors([])


def test_the_default_exporter_has_the_key_that_was_set_and_is_not_used_unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert default_processor() is default_processor()
    standfast.set_tracing_export_api_key("key-3")
    assert default_exporter().api_key == "key-3"
    assert get_trace_provider()._multi_processor._processors == ()
    default_exporter().api_key = None
    assert default_exporter().api_key is None


def test_the_base_classes_are_where_tracers_import_them_from():
    """Traceloop imports `agents.tracing.processors.TracingProcessor`; without it, it records nothing, silently."""
    from standfast.tracing import processors

    assert processors.TracingProcessor is standfast.TracingProcessor
    assert issubclass(processors.BackendSpanExporter, processors.TracingExporter)
