"""Base of every kind of tool whose calls the program runs.

A kind of tool is one class in one file. It says how it is called (`call_type`, `lookup_names`), judged (`judged_input`,
`prepare`), run (`runner`) and answered (`item_output`, `custom_data`, `may_end_run`). The code around a call (parsing a
reply, approvals, hooks, saved runs, crashes, voice calls) asks the tool, and never which class the tool has. This base
answers as a tool does that is called as a function and has nothing optional.

An agent offers a tool of a kind by the attributes that a wire format reads: `params_json_schema` for a function, else
`tool_config`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, TypeGuard

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import InvalidSettingError, StandfastError, UserError
from standfast._src.base.json_values import Item, JsonValue
from standfast._src.items.history import FUNCTION_CALL
from standfast._src.items.items import ToolOrigin
from standfast._src.items.texts_for_models import model_text
from standfast._src.items.tool_outputs import tool_output
from standfast._src.tools.prepared_arguments import ArgumentMismatch, Prepared, plain_object
from standfast._src.tools.refusal_texts import ToolKind
from standfast._src.tools.tool_guardrails import ToolInputGuardrail, ToolOutputGuardrail

ToolErrorFunction = Callable[[RunContextWrapper[Any], Exception], "str | Awaitable[str]"]
ToolTimeoutBehavior = Literal["error_as_result", "raise_exception"]
ToolCaller = Literal["direct", "programmatic"]
"""Callers of a tool: the model itself, or a program it wrote."""

UnknownOutcomePolicy = Literal["rerun", "ask", "report"]
ToolInvoker = Callable[[ToolContext[Any], str], Awaitable[Any]]

BY_IDEMPOTENCE: Any = None
# An unset policy; `checked_policy` replaces it by the one that follows from `idempotent`.


def default_tool_error_function(ctx: RunContextWrapper[Any], error: Exception) -> str:
    """Default text for the model after a tool raised: the error, so that the model can react.

    If an agent failed inside the call, the text names its tools that had run: the model cannot know of them otherwise,
    and they are not undone.
    """
    why = str(error) or type(error).__name__
    if isinstance(ctx, ToolContext) and ctx.called_inside:
        return model_text("agent_tool_failed", error=_sentence(why), calls=", ".join(ctx.called_inside))
    return model_text("tool_failed", error=why)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


class LocalTool:
    """A tool whose calls the program runs itself."""

    name: str
    """The name the model calls."""

    description: str
    """Description for the model."""

    call_type: ClassVar[str] = FUNCTION_CALL
    """Type of the item by which a model calls the tool, a key of `items.history.LOCAL_CALL_INPUTS`."""

    error_kind: ClassVar[ToolKind] = "function"
    """The kind as a `tool_error_formatter` gets it."""

    may_end_run: ClassVar[bool] = False
    """True if `tool_use_behavior` may make an output of this kind the final output of the run."""

    # --- what a tool may have; a kind overrides what it offers -------------------------------------------------------

    @property
    def qualified_name(self) -> str:
        """Name of the tool, prefixed by a namespace if any."""
        return self.name

    @property
    def title(self) -> str | None:
        """A name for people."""
        return None

    @property
    def origin(self) -> ToolOrigin | None:
        """Source of the tool, if other than the program."""
        return None

    @property
    def is_enabled(self) -> Any:
        """Condition for offering the tool: a bool, or a function of the context and the agent."""
        return True

    @property
    def needs_approval(self) -> Any:
        """Need for an approval: a bool, or a function of the context, the judged input and the call id."""
        return False

    @property
    def on_approval(self) -> Callable[[RunContextWrapper[Any], Any], Any] | None:
        """Function to answer in place of a person if a call needs approval."""
        return None

    @property
    def argument_mismatch(self) -> ArgumentMismatch:
        """Policy for a call if a function decides and the values for the tool differ from the model's text."""
        return "ask"

    @property
    def tool_input_guardrails(self) -> list[ToolInputGuardrail[Any]] | None:
        """Guardrails asked before a call runs."""
        return None

    @property
    def tool_output_guardrails(self) -> list[ToolOutputGuardrail[Any]] | None:
        """Guardrails asked before the model reads the output."""
        return None

    @property
    def timeout_seconds(self) -> float | None:
        """Seconds that a call may take."""
        return None

    @property
    def timeout_behavior(self) -> ToolTimeoutBehavior:
        """Effect of a timeout: a text for the model, or the end of the run."""
        return "error_as_result"

    @property
    def timeout_error_function(self) -> ToolErrorFunction | None:
        """Function to describe a timeout to the model."""
        return None

    @property
    def failure_error_function(self) -> ToolErrorFunction | None:
        """Function to describe a failure to the model; None ends the run instead."""
        return default_tool_error_function

    @property
    def on_unknown(self) -> UnknownOutcomePolicy:
        """Policy for a call that had begun when the process crashed."""
        return "report"

    @property
    def allowed_callers(self) -> list[ToolCaller] | None:
        """Allowed callers on a provider with programmatic tool calling."""
        return None

    @property
    def output_json_schema(self) -> dict[str, Any] | None:
        """The JSON schema of the output, for programs of the model."""
        return None

    @property
    def custom_data_extractor(self) -> Callable[[Any], Any] | None:
        """Function to make data for the application from an output."""
        return None

    @property
    def agent_tool(self) -> Any:
        """The `AgentTool` of a tool that runs an agent."""
        return None

    # --- how a kind is called, judged, run and answered --------------------------------------------------------------

    def lookup_names(self) -> tuple[str, ...]:
        """Return the keys of this tool among an agent's tools; see `lookup_name`."""
        return (lookup_name(self.call_type, self.name),)

    def target(self) -> str:
        """Return the target behind the name: a decision about a call is about the target too (C16)."""
        return self.error_kind

    def judged_input(self, arguments: str) -> object | None:
        """Return the input for a policy function; None for input that the function could misread."""
        return plain_object(arguments)

    def prepare(self, arguments: str) -> Prepared:
        """Read a call's arguments before the call. A tool that gets the model's raw text is judged by that text."""
        return Prepared("exact", arguments)

    def runner(self) -> ToolInvoker:
        """Return the function that runs a call and raises the tool's errors."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its calls are run")

    def item_output(self, value: object) -> str | list[Item]:
        """Convert a value for the model: text, or parts of content."""
        return tool_output(value)

    async def custom_data(self, ctx: ToolContext[Any], output: Any, raw_item: Mapping[str, JsonValue]) -> Any:
        """Return the data for the application from an output. Called only with a `custom_data_extractor`."""
        return None


def called_as_function(tool: object) -> TypeGuard[LocalTool]:
    """Return whether a model calls this tool as a function: only those share their names with handoffs and voice."""
    return isinstance(tool, LocalTool) and tool.call_type == FUNCTION_CALL


def lookup_name(call_type: object, name: str) -> str:
    """Return the key of a tool among an agent's local tools, distinct for each type of call."""
    # With a blank, which no provider allows in a name: a function cannot be called so.
    return name if call_type in (None, FUNCTION_CALL) else f"{call_type} {name}"


def facts_of(tool: LocalTool) -> dict[str, Any] | None:
    """Return the facts about a tool for an item of its call: description, title, origin; None without any."""
    origin = None if tool.origin is None else tool.origin.to_json_dict()
    facts = {"description": tool.description, "title": tool.title, "tool_origin": origin}
    return {name: value for name, value in facts.items() if value} or None


def timeout_text(tool_name: str, timeout_seconds: float) -> str:
    """Return the default text for the model after a tool's timeout."""
    return model_text("tool_timed_out", tool_name=tool_name, seconds=timeout_seconds)


async def failure_text(tool: LocalTool, ctx: RunContextWrapper[Any], error: Exception) -> str:
    """Return the text for the model about a failure; raise the failure if the tool has no failure function."""
    format_failure = tool.failure_error_function
    if format_failure is None:
        if isinstance(error, StandfastError):
            raise error
        raise UserError(
            f"tool {tool.qualified_name!r} raised {type(error).__name__}: {error}",
            "Handle it in the tool, or give the tool a failure_error_function so that the model is told.",
        ) from error
    return await maybe_await(format_failure(ctx, error))


# --- checks of settings ----------------------------------------------------------------------------------------------


def check_callers(tool_name: str, callers: object) -> None:
    """Raise UserError unless the value is None or a list of known callers."""
    if callers is None:
        return
    if not isinstance(callers, list) or not callers or any(c not in ("direct", "programmatic") for c in callers):
        raise UserError(
            f"allowed_callers={callers!r} of tool {tool_name!r} names an unknown caller or none",
            "Give a list of 'direct' and 'programmatic', or None.",
        )


def checked_policy(
    tool_name: str, policy: UnknownOutcomePolicy | None, *, idempotent: bool | None
) -> UnknownOutcomePolicy:
    """Return the policy for a call of unknown outcome: as given, else by `idempotent`."""
    if policy is BY_IDEMPOTENCE:
        return "rerun" if idempotent else "report"
    if policy not in ("rerun", "ask", "report"):
        raise InvalidSettingError(
            f"on_unknown={policy!r} of tool {tool_name!r} is not a policy", "Choose 'rerun', 'ask' or 'report'."
        )
    if policy == "rerun" and idempotent is False:
        raise InvalidSettingError(
            f"tool {tool_name!r} is declared not idempotent and to be run again when its outcome is unknown",
            "Choose on_unknown='ask' or 'report', or drop idempotent=False.",
        )
    return policy
