"""Spans of a run as records for processors, in the SDK's format.

Content (inputs, outputs, arguments) is included only if the run's config asks for it, as in OpenTelemetry's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol

from standfast._src.items.items import to_plain
from standfast._src.items.usage import (
    Usage,
    model_usage_to_span_usage,
    task_usage_to_span_data,
    turn_usage_to_span_data,
)
from standfast._src.tracing import tracing_switch
from standfast._src.tracing.span_data import (
    AgentSpanData,
    FunctionSpanData,
    GenerationSpanData,
    GuardrailSpanData,
    HandoffSpanData,
    SpanData,
    TaskSpanData,
    TurnSpanData,
)
from standfast._src.tracing.trace_records import Span, Trace, make_span, processors


class TracedConfig(Protocol):
    """Part of a `RunConfig` needed for spans."""

    @property
    def workflow_name(self) -> str:
        """Return the application's name for its workflow."""
        ...

    @property
    def trace_id(self) -> str | None:
        """Return the application's id for the trace."""
        ...

    @property
    def group_id(self) -> str | None:
        """Return the common id of several traces."""
        ...

    @property
    def trace_metadata(self) -> Mapping[str, Any] | None:
        """Further facts of the application."""
        ...

    @property
    def tracing(self) -> object:
        """Return the application's receiver of spans."""
        ...

    @property
    def tracing_disabled(self) -> bool:
        """Return whether tracing is off for this run."""
        ...

    @property
    def trace_include_sensitive_data(self) -> bool:
        """Return whether spans may contain content."""
        ...


class RunRecord:
    """Records of a whole run: trace (unless the caller has one), task, and the agent and turn under way.

    Effects of a run are tasks of their own, so what is current cannot be changed for them from here. The task span is
    current in all of them, and leads to the agent and turn under way (`Span.inner`).
    """

    def __init__(self, facts: Mapping[str, Any], config: TracedConfig, *, content: bool) -> None:
        self._content = content
        self._trace: Trace | None = None
        if tracing_switch.current_trace.get() is None:
            key = config.tracing.get("api_key") if isinstance(config.tracing, Mapping) else None
            self._trace = Trace(
                config.workflow_name, config.trace_id, config.group_id, config.trace_metadata, processors, key
            )
        self._first = facts["agent"]
        # A voice call has an owner nowhere in its facts: it is no task, and its turns are not counted.
        self._has_turns = "owner" in facts and _wants_task_and_turn_spans(config.tracing)
        self._name = config.workflow_name
        self._task: Span[TaskSpanData] | None = None
        self._agent: Span[AgentSpanData] | None = None
        self._turn: Span[TurnSpanData] | None = None
        self._under_way: object = None
        self._turn_usage = Usage()

    def __enter__(self) -> RunRecord:
        if self._trace is not None:
            self._trace.start(mark_as_current=True)
        # Where task spans are not wanted this one is told to no processor, and only leads to the agent's.
        self._task = make_span(TaskSpanData(self._name), told=self._has_turns)
        self._task.start(mark_as_current=True)
        self.place(self._first, None)
        return self

    def place(self, agent: Any, turn: int | None) -> None:
        """Open the spans of an agent and its turn, after closing the spans of the previous ones."""
        task = self._task
        assert task is not None
        if turn is not None and self._turn is not None and turn < self._turn.span_data.turn:
            return  # the last word of an effect of an earlier turn
        if self._under_way is not agent:
            self._close_agent()
            self._under_way = agent
            self._agent = make_span(_agent_data(agent), parent=task)
            if not self._has_turns:
                self._agent.parent_id = task.parent_id
            self._agent.start()
            task.inner = self._agent
        if turn is None or not self._has_turns or (self._turn is not None and self._turn.span_data.turn == turn):
            return
        self._close_turn()
        self._turn = make_span(TurnSpanData(turn, agent.name), parent=self._agent)
        self._turn.start()
        assert self._agent is not None
        self._agent.inner = self._turn

    def count(self, usage: Usage) -> None:
        """Add the tokens of a request to the turn under way."""
        self._turn_usage.add(usage)

    def note(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """Add the facts known at the end of the run."""
        if self._task is not None and "usage" in facts:
            self._task.span_data.usage = task_usage_to_span_data(facts["usage"])
        if error is not None:
            _fail(self._agent, error, content=self._content)

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, Exception):
            _fail(self._agent, error, content=self._content)
        self._close_agent()
        assert self._task is not None
        self._task.finish(reset_current=True)
        if self._trace is not None:
            self._trace.finish(reset_current=True)

    def _close_agent(self) -> None:
        self._close_turn()
        if self._agent is not None and self._task is not None:
            self._task.inner = None
            self._agent.finish()
            self._agent = None

    def _close_turn(self) -> None:
        if self._turn is not None and self._agent is not None:
            self._agent.inner = None
            self._turn.span_data.usage = turn_usage_to_span_data(self._turn_usage)
            self._turn.finish()
            self._turn, self._turn_usage = None, Usage()


class EffectRecord:
    """Record of one effect of a run."""

    def __init__(self, kind: str, facts: Mapping[str, Any], run: RunRecord | None, *, content: bool) -> None:
        self._run, self._content = run, content
        self._agent, self._turn = facts["agent"], facts.get("turn")
        self._data = _data(kind, facts, content=content)
        self._span: Span[Any] | None = None

    def __enter__(self) -> EffectRecord:
        if self._run is not None:
            self._run.place(self._agent, self._turn)
        self._span = make_span(self._data)
        self._span.start(mark_as_current=True)
        return self

    def note(self, facts: Mapping[str, Any], error: BaseException | None) -> None:
        """Add the facts known by now."""
        _complete(self._data, facts, content=self._content)
        if self._run is not None and "response" in facts:
            self._run.count(Usage.from_provider(facts["response"].usage))
        if error is not None:
            _fail(self._span, error, content=self._content)

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        assert self._span is not None
        if isinstance(error, Exception):
            _fail(self._span, error, content=self._content)
        self._span.finish(reset_current=True)


def _fail(span: Span[Any] | None, error: BaseException, *, content: bool) -> None:
    if span is not None:
        said = str(error) if content else type(error).__name__
        span.error = {"message": said, "data": {"error_type": type(error).__name__}}


def _wants_task_and_turn_spans(tracing: object) -> bool:
    return not isinstance(tracing, Mapping) or bool(tracing.get("include_task_and_turn_spans", True))


def _agent_data(agent: Any) -> AgentSpanData:
    tools = [getattr(tool, "name", type(tool).__name__) for tool in agent.tools]
    handoffs = [str(getattr(one, "agent_name", None) or one.name) for one in agent.handoffs]
    output_type = getattr(agent, "output_type", None)
    output = "str" if output_type is None else getattr(output_type, "__name__", "object")
    return AgentSpanData(agent.name, handoffs, tools, output)


def _data(kind: str, facts: Mapping[str, Any], *, content: bool) -> SpanData:
    match kind:
        case "model":
            offer = facts["offer"]
            name = getattr(offer.model, "model", None)
            said = [to_plain(item) for item in facts["items"]] if content else None
            settings = offer.settings.to_traceable_dict()
            return GenerationSpanData(input=said, model=name if isinstance(name, str) else None, model_config=settings)
        case "tool":
            return FunctionSpanData(facts["call"].name, facts["call"].arguments if content else None, None)
        case "handoff":
            return HandoffSpanData(facts["agent"].name, None)
        case _:
            return GuardrailSpanData(str(facts["guardrail"]))


def _complete(data: SpanData, facts: Mapping[str, Any], *, content: bool) -> None:
    match data:
        case GenerationSpanData():
            response = facts["response"]
            data.usage = model_usage_to_span_usage(Usage.from_provider(response.usage))
            if content:
                data.output = [to_plain(item) for item in response.output]
        case FunctionSpanData():
            if content:
                data.output = facts["outcome"].item_output
        case HandoffSpanData():
            data.to_agent = facts["target"].name
        case GuardrailSpanData():
            data.triggered = bool(facts["tripped"])
        case _:
            pass
