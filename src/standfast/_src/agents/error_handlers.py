"""What a failed run knows, and the handlers that may turn three of its failures into a final output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict

from standfast._src.agents.context import AnyAgent, RunContextWrapper, TContext
from standfast._src.agents.guardrails import InputGuardrailResult, OutputGuardrailResult
from standfast._src.base.errors import MaxTurnsExceeded, ModelBehaviorError, ModelRefusalError, UserError
from standfast._src.base.json_values import Item
from standfast._src.items.items import ModelResponse, RunItem
from standfast._src.tools.tool_guardrails import ToolInputGuardrailResult, ToolOutputGuardrailResult


@dataclass
class RunErrorDetails:
    """What a run had done when it failed: `error.run_data`."""

    input: str | list[Item]
    new_items: list[RunItem]
    raw_responses: list[ModelResponse]
    last_agent: AnyAgent
    context_wrapper: RunContextWrapper[Any]
    input_guardrail_results: list[InputGuardrailResult]
    output_guardrail_results: list[OutputGuardrailResult]
    tool_input_guardrail_results: list[ToolInputGuardrailResult] = field(default_factory=list)
    tool_output_guardrail_results: list[ToolOutputGuardrailResult] = field(default_factory=list)
    owed_items: list[Item] = field(default_factory=list)
    """What the server that owns the conversation has not got: give it to the next run (D11)."""


@dataclass
class RunErrorData:
    """The run, as an error handler sees it: `history` is `input` and `output` as one list of items."""

    input: str | list[Item]
    new_items: list[RunItem]
    history: list[Item]
    output: list[Item]
    raw_responses: list[ModelResponse]
    last_agent: AnyAgent


@dataclass
class RunErrorHandlerInput(Generic[TContext]):
    """What an error handler gets."""

    error: MaxTurnsExceeded | ModelRefusalError | ModelBehaviorError
    context: RunContextWrapper[TContext]
    run_data: RunErrorData


@dataclass
class RunErrorHandlerResult:
    """A final output in place of the error; without history the model never hears of it."""

    final_output: Any
    include_in_history: bool = True


RunErrorHandler = Callable[
    [RunErrorHandlerInput[TContext]],
    Any,  # Python cannot say "one of these or anything else"; a handler may also be async
]
"""Returns None to decline, a `RunErrorHandlerResult`, a dict with `final_output`, or the final output itself."""


class RunErrorHandlers(TypedDict, Generic[TContext], total=False):
    """Handlers by what went wrong."""

    max_turns: RunErrorHandler[TContext]
    model_refusal: RunErrorHandler[TContext]
    invalid_final_output: RunErrorHandler[TContext]


HANDLED_KINDS = ("max_turns", "model_refusal", "invalid_final_output")


def check_error_handlers(handlers: Mapping[str, Any] | None) -> None:
    """Refuse handlers for errors that nobody handles: a misspelt one would be found missing when it is needed."""
    unknown = sorted(str(kind) for kind in handlers if kind not in HANDLED_KINDS) if handlers else ()
    if unknown:
        raise UserError(f"error_handlers has no kind {', '.join(unknown)}", f"Use {', '.join(HANDLED_KINDS)}.")


def read_handler_result(value: object) -> RunErrorHandlerResult | None:
    """What a handler wants: None if it declined. Raises UserError for a dict with keys that mean nothing."""
    if value is None or isinstance(value, RunErrorHandlerResult):
        return value
    if isinstance(value, dict) and "final_output" in value:
        extra = sorted(str(key) for key in value if key not in ("final_output", "include_in_history"))
        include = value.get("include_in_history", True)
        if extra or not isinstance(include, bool):
            fault = f"the keys {', '.join(extra)}" if extra else "an include_in_history that is no bool"
            raise UserError(
                f"an error handler returned a dict with {fault}", "Return final_output and include_in_history only."
            )
        return RunErrorHandlerResult(value["final_output"], include)
    return RunErrorHandlerResult(value)
