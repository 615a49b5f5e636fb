"""Data of a failed run, and handlers that may turn three kinds of failure into a final output."""

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
    """Progress of a run at its failure: `error.run_data`."""

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
    """Items that the server of the conversation lacks: pass them to the next run (D11)."""


@dataclass
class RunErrorData:
    """The run as seen by an error handler: `history` is `input` and `output` as one list of items."""

    input: str | list[Item]
    new_items: list[RunItem]
    history: list[Item]
    output: list[Item]
    raw_responses: list[ModelResponse]
    last_agent: AnyAgent


@dataclass
class RunErrorHandlerInput(Generic[TContext]):
    """Argument of an error handler."""

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
    """Handlers by kind of failure."""

    max_turns: RunErrorHandler[TContext]
    model_refusal: RunErrorHandler[TContext]
    invalid_final_output: RunErrorHandler[TContext]


HANDLED_KINDS = ("max_turns", "model_refusal", "invalid_final_output")


def check_error_handlers(handlers: Mapping[str, Any] | None) -> None:
    """Refuse handlers of unknown kinds: a misspelt handler would be missing when needed."""
    unknown = sorted(str(kind) for kind in handlers if kind not in HANDLED_KINDS) if handlers else ()
    if unknown:
        raise UserError(f"error_handlers has no kind {', '.join(unknown)}", f"Use {', '.join(HANDLED_KINDS)}.")


def read_handler_result(value: object) -> RunErrorHandlerResult | None:
    """Convert a handler's result, None if the handler declined. Raises UserError for a dict with unknown keys."""
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
