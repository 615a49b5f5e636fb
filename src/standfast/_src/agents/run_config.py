"""Settings of a run besides the agent and the input: models, filters, sessions, tools, storage, tracing.

All settings are optional, a dict is accepted in place of a config, and an unknown key is refused. Errors in settings
are found here, before anything runs.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from standfast._src.agents.context import AnyAgent, RunContextWrapper, TContext
from standfast._src.agents.guardrails import InputGuardrail, OutputGuardrail
from standfast._src.agents.handoff_data import HandoffHistoryMapper, HandoffInputFilter
from standfast._src.agents.usage_limits import Budget, PriceFunction, UsageLimits
from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import InvalidSettingError, SettingTypeError, UserError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.models.interface import Model, ModelProvider
from standfast._src.models.model_settings import ModelSettings, coerce_model_settings
from standfast._src.runs.engine.run_store import RunStore, check_run_id
from standfast._src.sessions.protocol import SessionSettings, coerce_session_settings
from standfast._src.tools.refusal_texts import (  # the SDK has both here
    ToolErrorFormatter,
    ToolErrorFormatterArgs as ToolErrorFormatterArgs,
)

C = TypeVar("C")

DEFAULT_MAX_TURNS = 10
"""Default turn limit of a run."""

ReasoningItemIdPolicy = Literal["preserve", "omit"]
"""Policy for the ids of reasoning items in model input: keep or omit."""

ToolNotFoundBehavior = Literal["raise_error", "return_error_to_model"]
"""Effect of a call of an unknown tool: end of the run, or an error text as its output."""

ToolNameCollisionPolicy = Literal["warn", "error"]
"""Effect of two tools of equal name: an error, or the last one wins."""

Concurrency = Literal["wait", "reject", "allow"]
"""Behaviour of a run while another one holds the session (C13)."""

Messages = Literal["steer", "queue"]
Unfinished = Literal["settle", "resume", "refuse", "ignore"]
"""Behaviour of a run towards another unfinished run of the conversation (C15)."""


@dataclass
class ModelInputData:
    """Input of the next model request."""

    input: list[Item]
    instructions: str | None


@dataclass
class CallModelData(Generic[TContext]):
    """Argument of a `call_model_input_filter`."""

    model_data: ModelInputData
    agent: AnyAgent
    context: TContext | None


CallModelInputFilter = Callable[[CallModelData[Any]], "ModelInputData | Awaitable[ModelInputData]"]
"""Changes what a model sees, just before it is called; the history is not touched."""

StoredInputFilter = Callable[[list[Item]], "list[Item] | Awaitable[list[Item]]"]
"""Takes copies of the items of a new input, and returns the items to store."""

SessionInputCallback = Callable[[list[Item], list[Item]], "list[Item] | Awaitable[list[Item]]"]
"""From the stored history and the new input to what the model sees; what is stored does not change (C1)."""


@dataclass
class OutputGuardrailBlockedMessageArgs(Generic[TContext]):
    """Argument of an `output_guardrail_blocked_message` function; never contains the output itself."""

    default_message: str
    guardrail_name: str
    agent: AnyAgent
    run_context: RunContextWrapper[TContext]


OutputGuardrailBlockedMessageFormatter = Callable[[OutputGuardrailBlockedMessageArgs[Any]], "str | None"]
"""Makes the replacement of a withheld output; None keeps the default."""


@dataclass
class ToolExecutionConfig:
    """Execution of the tool calls of a turn."""

    max_function_tool_concurrency: int | None = None
    """Number of function calls of a turn that run at the same time; None: all of them."""

    pre_approval_tool_input_guardrails: bool = False
    """True to run a tool's input guardrails also before a person is asked, not only before the call."""

    def __post_init__(self) -> None:
        limit: Any = self.max_function_tool_concurrency
        if limit is not None and (type(limit) is not int or limit < 1):
            raise InvalidSettingError(
                f"max_function_tool_concurrency={limit!r} lets no tool run", "Give a whole number from 1, or None."
            )
        if not isinstance(self.pre_approval_tool_input_guardrails, bool):
            raise InvalidSettingError("pre_approval_tool_input_guardrails is no bool", "Give True or False.")


def _trace_content_by_default() -> bool:
    """Return whether traces contain content: only if the environment asks for it, because traces are kept elsewhere."""
    names = ("STANDFAST_TRACE_INCLUDE_SENSITIVE_DATA", "OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA")
    value = next((os.environ[name] for name in names if name in os.environ), "")
    return value.strip().lower() in ("1", "true", "yes", "on")


@dataclass
class RunConfig:
    """Settings of a run, or of several runs that share the object. Every field has a default.

    Args:
        model: Used in place of every agent's own model.
        model_provider: Finds models by name; None: the default provider.
        model_settings: Laid over every agent's own settings.
        handoff_input_filter: Filter for handoffs without their own.
        nest_handoff_history: True if a handoff without a filter folds the conversation so far into one message.
        handoff_history_mapper: Function that folds the conversation.
        input_guardrails: Asked beside those of the first agent.
        output_guardrails: Asked beside those of the last agent.
        tracing_disabled: True for a run without a trace.
        tracing: `{"tracer_provider": ...}`: the OpenTelemetry provider to use in place of the global one.
        trace_include_sensitive_data: True if traces contain content.
        workflow_name: The name of the trace.
        trace_id: Kept as an attribute; OpenTelemetry makes its own ids.
        group_id: Common id of the traces of a conversation.
        trace_metadata: Further attributes of the trace.
        session_input_callback: Makes what the model sees from the stored history and the new input.
        call_model_input_filter: Changes what a model sees, just before it is called.
        tool_error_formatter: Replaces the texts that a model reads about rejected calls, unknown tools and failures.
        session_settings: Laid over the session's own settings.
        reasoning_item_id_policy: Policy for the ids of reasoning items in model input: keep or omit.
        sandbox: Not available in standfast: anything but None is refused.
        tool_execution: Execution of the tool calls of a turn.
        tool_not_found_behavior: Effect of a call of an unknown tool: end of the run, or an error text as its output.
        tool_name_collision_policy: Effect of two tools of equal name: an error, or the last one wins.
        output_guardrail_blocked_message: Replacement of a tool's result that was the final output and tripped an output
            guardrail.
        stored_input_filter: Takes a run's new items and returns those to store in their place, once, before anything
            else sees them (C1).
        run_id: The run's name as a writer: running again under the same name continues where it was interrupted (C12).
        run_store: Store of the saved run.
        save: "auto": the run is saved whenever its promises need it; "never": not even with a run store.
        concurrency: Behaviour while another run holds the session: wait for it, be refused, or write anyway (C13).
        messages: Whether this run hears messages sent to its conversation meanwhile (F2).
        unfinished: Policy of a new run towards another run of the conversation that has not ended (C15).
        limits: Upper bounds of the run in requests, tokens, tool calls and money (F9).
        budgets: Budgets shared with other runs (F10). None: the budgets of the saved run, if any.
        price: Gives the cost of a usage of a model in US dollars, for limits in money; None: by `genai-prices`.
        lease_ttl_s: Seconds for which the session stays leased after a crash of this process; renewed while it lives.
        lease_wait_s: Seconds to wait for another run's session: longer than the lease of a crashed one lives.
        close_session: True if the run closes the session it was given (C14).
    """

    model: str | Model | None = None
    """Used in place of every agent's own model."""

    model_provider: ModelProvider | None = None
    """Finds models by name; None: the default provider."""

    model_settings: ModelSettings | None = None
    """Laid over every agent's own settings."""

    handoff_input_filter: HandoffInputFilter | None = None
    """Filter for handoffs without their own."""

    nest_handoff_history: bool = False
    """True if a handoff without a filter folds the conversation so far into one message."""

    handoff_history_mapper: HandoffHistoryMapper | None = None
    """Function that folds the conversation."""

    input_guardrails: list[InputGuardrail[Any]] | None = None
    """Asked beside those of the first agent."""

    output_guardrails: list[OutputGuardrail[Any]] | None = None
    """Asked beside those of the last agent."""

    tracing_disabled: bool = False
    """True for a run without a trace."""

    tracing: Any = None
    """`{"tracer_provider": ...}`: the OpenTelemetry provider to use in place of the global one.

    `{"api_key": ...}` is the SDK's: trace processors find it on each trace and span. With
    `{"include_task_and_turn_spans": False}` processors are given no task and turn spans.
    """

    trace_include_sensitive_data: bool = field(default_factory=_trace_content_by_default)
    """True if traces contain content. Off by default (STANDFAST_TRACE_INCLUDE_SENSITIVE_DATA)."""

    workflow_name: str = "Agent workflow"
    """The name of the trace."""

    trace_id: str | None = None
    """Kept as an attribute; OpenTelemetry makes its own ids."""

    group_id: str | None = None
    """Common id of the traces of a conversation."""

    trace_metadata: dict[str, Any] | None = None
    """Further attributes of the trace."""

    session_input_callback: SessionInputCallback | None = None
    """Makes what the model sees from the stored history and the new input."""

    call_model_input_filter: CallModelInputFilter | None = None
    """Changes what a model sees, just before it is called."""

    tool_error_formatter: ToolErrorFormatter | None = None
    """Replaces the texts that a model reads about rejected calls, unknown tools and failures."""

    session_settings: SessionSettings | None = None
    """Laid over the session's own settings."""

    reasoning_item_id_policy: ReasoningItemIdPolicy | None = None
    """Policy for the ids of reasoning items in model input: keep or omit."""

    sandbox: Any = None
    """Not available in standfast: anything but None is refused."""

    tool_execution: ToolExecutionConfig | None = None
    """Execution of the tool calls of a turn."""

    tool_not_found_behavior: ToolNotFoundBehavior = "raise_error"
    """Effect of a call of an unknown tool: end of the run, or an error text as its output."""

    tool_name_collision_policy: ToolNameCollisionPolicy = "warn"
    """Effect of two tools of equal name: an error, or the last one wins."""

    output_guardrail_blocked_message: str | OutputGuardrailBlockedMessageFormatter | None = None
    """Replacement of a tool's result that was the final output and tripped an output guardrail."""

    stored_input_filter: StoredInputFilter | None = field(default=None, kw_only=True)
    """Takes a run's new items and returns those to store in their place, once, before anything else sees them (C1).

    What it leaves out is in no session, saved run or span, and no guardrail or model sees it. For an input that was
    saved before its run (a job's, a message's) it is not called: filter that before saving it.
    """

    run_id: str | None = field(default=None, kw_only=True)
    """The run's name as a writer: running again under the same name continues where it was interrupted (C12)."""

    run_store: RunStore | Literal["auto"] | None = field(default="auto", kw_only=True)
    """Store of the saved run. "auto": the session's own, if able; None: no store.

    A new run on a session with its own run store is refused any other store.
    """

    save: Literal["auto", "never"] = field(default="auto", kw_only=True)
    """"auto": the run is saved whenever its promises need it; "never": not even with a run store."""

    concurrency: Concurrency = field(default="wait", kw_only=True)
    """Behaviour while another run holds the session: wait for it, be refused, or write anyway (C13)."""

    messages: Messages = field(default="steer", kw_only=True)
    """Whether this run hears messages sent to its conversation meanwhile (F2).

    "steer": before its next request; "queue": never, they wait for a run of their own.
    """

    unfinished: Unfinished | None = field(default=None, kw_only=True)
    """Policy of a new run towards another run of the conversation that has not ended (C15).

    "settle": close and store a run that lost its worker, show the model a run that waits for a person; "resume": let
    a run that lost its worker, or was decided about, finish first, and show the model what stays open; "refuse": raise
    UnfinishedRunError before anything runs; "ignore": neither look for such runs nor show them. None: "settle", and
    "resume" for a job of a queue. A run that is resumed never settles another one: "settle" is "resume" there.
    """

    limits: UsageLimits | None = field(default=None, kw_only=True)
    """Upper bounds of the run in requests, tokens, tool calls and money (F9). None: those it was saved with, if any."""

    budgets: Sequence[Budget] | None = field(default=None, kw_only=True)
    """Budgets shared with other runs (F10). None: the budgets of the saved run, if any."""

    price: PriceFunction | None = field(default=None, kw_only=True)
    """Gives the cost of a usage of a model in US dollars, for limits in money; None: by `genai-prices`."""

    lease_ttl_s: float = field(default=15.0, kw_only=True)
    """Seconds for which the session stays leased after a crash of this process; renewed while it lives."""

    lease_wait_s: float = field(default=40.0, kw_only=True)
    """Seconds to wait for another run's session: longer than the lease of a crashed one lives."""

    close_session: bool = field(default=False, kw_only=True)
    """True if the run closes the session it was given (C14)."""

    def __post_init__(self) -> None:
        if self.model_settings is not None:
            self.model_settings = coerce_model_settings(self.model_settings, owner="RunConfig model_settings")
        if self.session_settings is not None:
            self.session_settings = coerce_session_settings(self.session_settings)
        if self.tool_execution is not None:
            self.tool_execution = _coerce(self.tool_execution, ToolExecutionConfig, "run_config.tool_execution")
        if self.limits is not None:
            self.limits = _coerce(self.limits, UsageLimits, "run_config.limits")
        self._check_kinds()
        self._check_choices()
        if self.sandbox is not None:
            raise UserError("RunConfig.sandbox is not available", "Leave it out; standfast has no sandbox.")
        if self.run_id is not None:
            check_run_id(self.run_id)
        if self.output_guardrail_blocked_message == "":
            raise InvalidSettingError("output_guardrail_blocked_message is empty", "Give a text, or None.")
        check_seconds("RunConfig.lease_ttl_s", self.lease_ttl_s, is_ttl=True)
        check_seconds("RunConfig.lease_wait_s", self.lease_wait_s)

    def _check_kinds(self) -> None:
        for name, (fits, wanted) in _KINDS.items():
            value = getattr(self, name)
            # Most fields have their defaults, and those are known to fit: a run without settings of its
            # own makes a config, too.
            if value is not getattr(RunConfig, name, _MISSING) and not fits(value):
                raise SettingTypeError(f"RunConfig.{name} is {describe_type(value)}", f"Give {wanted}.")

    def _check_choices(self) -> None:
        for name, choices in _CHOICES.items():
            if getattr(self, name) not in choices:
                known = ", ".join(repr(choice) for choice in choices)
                raise InvalidSettingError(f"{name}={getattr(self, name)!r} is no choice", f"Choose one of {known}.")


_MISSING = object()


def _has(*attributes: str) -> Callable[[Any], bool]:
    """Return a check for None or an object with these methods; objects written for the SDK pass as well."""
    return lambda value: value is None or all(callable(getattr(value, name, None)) for name in attributes)


def _is_tracing(value: object) -> bool:
    # "api_key" is the SDK's: it is for processors that send traces themselves, and reaches them with each trace.
    known = {"tracer_provider", "api_key", "include_task_and_turn_spans"}
    return value is None or (isinstance(value, Mapping) and set(value) <= known)


def _is_guardrail_list(value: object) -> bool:
    return value is None or (
        isinstance(value, list) and all(callable(getattr(one, "guardrail_function", None)) for one in value)
    )


_FUNCTION = (lambda value: value is None or callable(value), "a function, or None")
_BOOL = (lambda value: isinstance(value, bool), "True or False")
_TEXT = (lambda value: value is None or isinstance(value, str), "a string, or None")
_GUARDRAILS = (_is_guardrail_list, "a list of guardrails, as @input_guardrail and @output_guardrail make them")

_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "model": (
        lambda value: isinstance(value, str) or _has("get_response", "stream_response")(value),
        "a model's name, or an object with get_response and stream_response",
    ),
    "model_provider": (_has("get_model"), "an object with get_model(name)"),
    "handoff_input_filter": _FUNCTION,
    "nest_handoff_history": _BOOL,
    "handoff_history_mapper": _FUNCTION,
    "input_guardrails": _GUARDRAILS,
    "output_guardrails": _GUARDRAILS,
    "tracing_disabled": _BOOL,
    "tracing": (_is_tracing, "{'tracer_provider': an OpenTelemetry TracerProvider}"),
    "trace_include_sensitive_data": _BOOL,
    "workflow_name": (lambda value: isinstance(value, str), "a string"),
    "trace_id": _TEXT,
    "group_id": _TEXT,
    "trace_metadata": (lambda value: value is None or isinstance(value, Mapping), "a dict, or None"),
    "session_input_callback": _FUNCTION,
    "stored_input_filter": _FUNCTION,
    "call_model_input_filter": _FUNCTION,
    "tool_error_formatter": _FUNCTION,
    "output_guardrail_blocked_message": (
        lambda value: value is None or isinstance(value, str) or callable(value),
        "a text, a function or None",
    ),
    "run_store": (
        lambda value: value == "auto" or _has("save_run", "load_run")(value),
        "a RunStore, 'auto' (beside the session) or None (nowhere)",
    ),
    "close_session": _BOOL,
    "budgets": (
        lambda value: (
            value is None or (isinstance(value, list | tuple) and all(isinstance(one, Budget) for one in value))
        ),
        "a list of Budget",
    ),
    "price": _FUNCTION,
}

_CHOICES: dict[str, tuple[Any, ...]] = {
    "tool_not_found_behavior": ("raise_error", "return_error_to_model"),
    "tool_name_collision_policy": ("warn", "error"),
    "reasoning_item_id_policy": (None, "preserve", "omit"),
    "concurrency": ("wait", "reject", "allow"),
    "save": ("auto", "never"),
    "messages": ("steer", "queue"),
    "unfinished": (None, "settle", "resume", "refuse", "ignore"),
}


def check_max_turns(max_turns: object) -> None:
    """Refuse a value that is not a number of turns: a saved run could not be read again."""
    if max_turns is not None and type(max_turns) is not int:
        raise SettingTypeError(f"max_turns is {describe_type(max_turns)}", "Give a whole number, or None for no limit.")


def coerce_run_config(value: RunConfig | Mapping[str, Any] | None) -> RunConfig:
    """Convert to a RunConfig: an instance is kept, a mapping is read, None gives the defaults.

    Raises SettingTypeError (a TypeError) for a key that is no setting and for any other kind of value.
    """
    return RunConfig() if value is None else _coerce(value, RunConfig, "run_config")


def _coerce(value: object, kind: type[C], owner: str) -> C:
    if isinstance(value, kind):
        return value
    if not isinstance(value, Mapping):
        raise SettingTypeError(
            f"{owner} is {describe_type(value)}", f"Give a {kind.__name__} or a dict with its field names."
        )
    known = {f.name for f in dataclasses.fields(kind)}  # type: ignore[arg-type]  # every kind here is a dataclass
    unknown = sorted(str(key) for key in value if key not in known)
    if unknown:
        raise SettingTypeError(f"{owner} has no setting {', '.join(unknown)}", "Check the spelling.")
    return kind(**value)
