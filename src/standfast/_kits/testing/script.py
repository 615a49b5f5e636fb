"""Script of a scripted model: a step for each call, checked at construction.

A step answers, fails, computes its answer, streams given events, waits, hangs, or breaks off in the middle. Mistakes in
a script are found when the script is made, not in the middle of a run: `InvalidModelStep` names the step and the
reason.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias, TypedDict

from standfast._src.base.errors import StandfastError
from standfast._src.items.items import ModelResponse, ReadableItem
from standfast._src.items.usage import Usage
from standfast._src.models.interface import ModelTracing
from standfast._src.models.model_settings import ModelSettings
from standfast._src.models.retry import ModelRetryAdvice
from standfast._src.tools.tool_names import function_style

DEFAULT_RESPONSE_ID = "resp-789"

ModelStepReason: TypeAlias = Literal[
    "invalid_input",
    "unsupported_field",
    "invalid_error",
    "invalid_responder",
    "invalid_stream_events",
    "conflicting_outcomes",
    "invalid_retry_advice",
]


@dataclass(frozen=True)
class ModelCall:
    """Arguments of a model call, as they were at that moment."""

    system_instructions: str | None
    input: Any
    model_settings: ModelSettings
    tools: list[Any]
    output_schema: Any | None
    handoffs: list[Any]
    tracing: ModelTracing
    previous_response_id: str | None
    conversation_id: str | None
    prompt: Any | None
    streamed: bool


# --- errors ----------------------------------------------------------------------------------------------------------


class ModelScriptError(StandfastError):
    """A script does not match the run."""

    __module__ = "standfast.testing"  # in a traceback, the path that it is imported from


class InvalidModelStep(ModelScriptError):
    """A step that cannot be played; `reason` names the fault and `input_index` the step."""

    __module__ = "standfast.testing"  # in a traceback, the path that it is imported from

    def __init__(self, message: str, *, reason: ModelStepReason, input_index: int) -> None:
        super().__init__(message, "Write a ModelStep, its dict form, a ModelResponse, a list of items or an exception.")
        self.reason, self.input_index = reason, input_index


class UnexpectedModelCall(ModelScriptError):
    """The model was called more often than the script has steps."""

    __module__ = "standfast.testing"  # in a traceback, the path that it is imported from

    def __init__(self, message: str, *, call: ModelCall, call_index: int) -> None:
        super().__init__(message, "Add a step, or find out why the run did not end: `call` has what was sent.")
        self.call, self.call_index = call, call_index


class UnconsumedModelSteps(ModelScriptError):
    """The run ended before the script did."""

    __module__ = "standfast.testing"  # in a traceback, the path that it is imported from

    def __init__(self, message: str, *, remaining_steps: int) -> None:
        super().__init__(message, "Remove the steps, or find out why the run ended early.")
        self.remaining_steps = remaining_steps


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass
class ModelStep:
    """Behaviour of the model at its next call. Of `error`, `responder` and `stream_events` at most one.

    `delay_s` waits before anything else; `chunk_chars` cuts generated deltas; `cut_after` ends the stream after that
    many events, with `error` if given. A cut reply is an error for a caller that does not stream, too.
    """

    output: Sequence[Any] = ()
    usage: Usage | None = None
    response_id: str | None = DEFAULT_RESPONSE_ID
    request_id: str | None = None
    raw_usage: dict[str, Any] | None = None
    error: Exception | None = None
    responder: ModelResponder | None = None
    stream_events: StreamEvents | None = None
    retry_advice: ModelRetryAdvice | None = None
    delay_s: float = 0.0
    hangs: bool = False
    cut_after: int | None = None
    chunk_chars: int | None = None

    def __post_init__(self) -> None:
        if isinstance(self.stream_events, list):
            self.stream_events = tuple(self.stream_events)  # what is changed behind a script's back does not count

    @classmethod
    def raise_error(
        cls, error: Exception, *, retry_advice: ModelRetryAdvice | None = None, delay_s: float = 0.0
    ) -> ModelStep:
        """Fail with an exception; `retry_advice` is the model's advice about it."""
        return cls(error=error, retry_advice=retry_advice, delay_s=delay_s)

    @classmethod
    def respond(cls, responder: ModelResponder) -> ModelStep:
        """Compute the step from the call, at once or later."""
        return cls(responder=responder)

    @classmethod
    def stream(
        cls,
        events: StreamEvents,
        *,
        output: Sequence[Any] = (),
        usage: Usage | None = None,
        response_id: str | None = DEFAULT_RESPONSE_ID,
    ) -> ModelStep:
        """Stream exactly these events. A caller that does not stream gets `output`, or the reply assembled from the
        events.
        """
        return cls(output=output, usage=usage, response_id=response_id, stream_events=events)

    @classmethod
    def delay(cls, seconds: float, output: Sequence[Any] = (), **more: Any) -> ModelStep:
        """Answer after `seconds`."""
        return cls(output=output, delay_s=seconds, **more)

    @classmethod
    def hang(cls) -> ModelStep:
        """Never answer: wait until cancelled."""
        return cls(hangs=True)

    @classmethod
    def cut(cls, events: int, output: Sequence[Any] = (), *, error: Exception | None = None, **more: Any) -> ModelStep:
        """Begin to answer and break off after this many events: with `error`, or without a word."""
        return cls(output=output, error=error, cut_after=events, **more)


class ModelStepSpec(TypedDict, total=False):
    """A step as a dict."""

    output: Sequence[Any]
    usage: Usage
    response_id: str | None
    request_id: str | None
    raw_usage: dict[str, Any] | None
    error: Exception | None
    responder: ModelResponder | None
    stream_events: StreamEvents | None
    retry_advice: ModelRetryAdvice | None
    delay_s: float
    hangs: bool
    cut_after: int | None
    chunk_chars: int | None


ModelScriptItem: TypeAlias = ModelStep | ModelStepSpec | ModelResponse | Sequence[Any] | Exception
ModelResponder: TypeAlias = Callable[[ModelCall], "ModelScriptItem | Awaitable[ModelScriptItem]"]
StreamEvents: TypeAlias = Sequence[Any] | Callable[[ModelCall], AsyncIterable[Any] | Iterable[Any]]

_STEP_FIELDS = frozenset(f.name for f in fields(ModelStep))


def coerce_step(value: ModelScriptItem, index: int) -> ModelStep:
    """Convert to a step; raise InvalidModelStep, naming the step, if impossible."""
    if isinstance(value, ModelStep):
        step = value
    elif isinstance(value, Exception):
        step = ModelStep(error=value)
    elif isinstance(value, ModelResponse):
        step = ModelStep(value.output, value.usage, value.response_id, value.request_id, value.raw_usage)
    elif isinstance(value, Mapping):
        unknown = sorted(str(name) for name in value if name not in _STEP_FIELDS)
        if unknown:
            raise InvalidModelStep(
                f"scripted model step #{index + 1} has unsupported fields: {', '.join(unknown)}",
                reason="unsupported_field",
                input_index=index,
            )
        step = ModelStep(**value)
    else:
        step = ModelStep(output=value)
    _check(step, index)
    return step


def _check(step: ModelStep, index: int) -> None:
    def refuse(fault: str, reason: ModelStepReason) -> InvalidModelStep:
        return InvalidModelStep(f"scripted model step #{index + 1} {fault}", reason=reason, input_index=index)

    output: Any = step.output
    if not isinstance(output, Sequence) or isinstance(output, str | bytes):
        raise refuse("must use a sequence for output", "invalid_input")
    if step.usage is not None and not hasattr(step.usage, "total_tokens"):
        raise refuse("must use Usage for usage", "invalid_input")
    for name in ("response_id", "request_id"):
        if not isinstance(getattr(step, name), str | None):
            raise refuse(f"must use a string or None for {name}", "invalid_input")
    if step.error is not None and not isinstance(step.error, Exception):
        raise refuse("must use an Exception for error", "invalid_error")
    if step.responder is not None and not callable(step.responder):
        raise refuse("must use a callable responder", "invalid_responder")
    events: Any = step.stream_events
    if events is not None and not callable(events) and (not isinstance(events, Sequence) or isinstance(events, str)):
        raise refuse("must use a sequence or callable stream_events value", "invalid_stream_events")
    if sum(outcome is not None for outcome in (step.error, step.responder, step.stream_events)) > 1:
        raise refuse("cannot combine error, responder, and stream_events outcomes", "conflicting_outcomes")
    advice: Any = step.retry_advice
    if advice is not None and (step.error is None or not hasattr(advice, "replay_safety")):
        raise refuse("requires an error and a ModelRetryAdvice value", "invalid_retry_advice")
    for name, least in (("delay_s", 0), ("cut_after", 0), ("chunk_chars", 1)):
        value = getattr(step, name)
        if value is not None and not (isinstance(value, int | float) and value >= least):
            raise refuse(f"must use a number of {least} or more for {name}", "invalid_input")


# --- items -----------------------------------------------------------------------------------------------------------


def assistant_message(text: str, *, item_id: str = "scripted-message") -> dict[str, Any]:
    """A message of the model, as a plain item."""
    return _message({"type": "output_text", "text": text, "annotations": [], "logprobs": []}, item_id)


def _message(part: dict[str, Any], item_id: str) -> dict[str, Any]:
    return ReadableItem(id=item_id, content=[part], role="assistant", status="completed", type="message")


def refusal(text: str, *, item_id: str = "scripted-message") -> dict[str, Any]:
    """Build a message in which the model refuses."""
    return _message({"type": "refusal", "refusal": text}, item_id)


def function_call(
    name: str,
    arguments: str | Mapping[str, Any],
    *,
    call_id: str,
    item_id: str | None = None,
    namespace: str | None = None,
) -> dict[str, Any]:
    """Build a call of a function tool, as a plain item. Arguments given as text are kept, valid or not."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, separators=(",", ":"))
    made = ReadableItem(arguments=text, call_id=call_id, name=name, type="function_call", id=item_id or call_id)
    if namespace is not None:
        made["namespace"] = namespace
    return made


def handoff_call(
    to: Any, arguments: str | Mapping[str, Any] = "{}", *, call_id: str, item_id: str | None = None
) -> dict[str, Any]:
    """A call that hands over: `to` is the agent, a Handoff, or the name of the handoff's tool."""
    name = to if isinstance(to, str) else getattr(to, "tool_name", None) or function_style(f"transfer_to_{to.name}")
    return function_call(name, arguments, call_id=call_id, item_id=item_id)


def reasoning(*summary: str, item_id: str) -> dict[str, Any]:
    """Build a plain reasoning item with summary texts. Two items with one id would be the same reasoning."""
    parts = [{"type": "summary_text", "text": text} for text in summary]
    return ReadableItem(id=item_id, summary=parts, type="reasoning")


def final(value: object, **step: Any) -> ModelStep:
    """The step that ends a run: a text, or any JSON value for an agent with an output type."""
    text = value if isinstance(value, str) else json.dumps(value)
    return ModelStep(output=[assistant_message(text)], **step)
