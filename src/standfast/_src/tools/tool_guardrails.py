"""Tool guardrails: functions to check a single tool call, before or after the call, and to refuse.

They decide about that call alone: let it pass, put a message in its place, or end the run.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, overload

from standfast._src.agents.context import AnyAgent, TContext
from standfast._src.agents.guardrails import Guardrail, make_guardrail
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.errors import (
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    UserError,
)


class RejectContentBehavior(TypedDict):
    """The model reads `message` in place of the call's result."""

    type: Literal["reject_content"]
    message: str


class RaiseExceptionBehavior(TypedDict):
    """The run ends."""

    type: Literal["raise_exception"]


class AllowBehavior(TypedDict):
    """Verdict without an effect."""

    type: Literal["allow"]


@dataclass
class ToolGuardrailFunctionOutput:
    """Verdict of a tool guardrail, made by `allow`, `reject_content` or `raise_exception`."""

    output_info: Any
    behavior: RejectContentBehavior | RaiseExceptionBehavior | AllowBehavior = field(
        default_factory=lambda: AllowBehavior(type="allow")
    )

    @classmethod
    def allow(cls, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """Let the call, or its output, pass."""
        return cls(output_info, AllowBehavior(type="allow"))

    @classmethod
    def reject_content(cls, message: str, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """Replace the call's output by `message`; the run continues."""
        return cls(output_info, RejectContentBehavior(type="reject_content", message=message))

    @classmethod
    def raise_exception(cls, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """End the run with a tripwire error."""
        return cls(output_info, RaiseExceptionBehavior(type="raise_exception"))


@dataclass
class ToolInputGuardrailData:
    """Argument of a tool input guardrail."""

    context: ToolContext[Any]
    agent: AnyAgent


@dataclass
class ToolOutputGuardrailData(ToolInputGuardrailData):
    """Argument of a tool output guardrail: always the tool's own output, regardless of earlier guardrails."""

    output: Any


ToolInputGuardrailFunction = Callable[
    [ToolInputGuardrailData], "ToolGuardrailFunctionOutput | Awaitable[ToolGuardrailFunctionOutput]"
]
ToolOutputGuardrailFunction = Callable[
    [ToolOutputGuardrailData], "ToolGuardrailFunctionOutput | Awaitable[ToolGuardrailFunctionOutput]"
]


@dataclass
class ToolInputGuardrail(Guardrail, Generic[TContext]):
    """Check of a tool call before it runs."""

    guardrail_function: ToolInputGuardrailFunction
    """Gets the call and the agent."""

    async def run(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Run this guardrail alone."""
        return await self._verdict(ToolGuardrailFunctionOutput, data)


@dataclass
class ToolOutputGuardrail(Guardrail, Generic[TContext]):
    """Looks at a call's output before the model does."""

    guardrail_function: ToolOutputGuardrailFunction
    """Gets the call, the agent and the output."""

    async def run(self, data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Run this guardrail alone."""
        return await self._verdict(ToolGuardrailFunctionOutput, data)


@dataclass
class ToolInputGuardrailResult:
    """Verdict of a tool input guardrail."""

    guardrail: ToolInputGuardrail[Any]
    output: ToolGuardrailFunctionOutput


@dataclass
class ToolOutputGuardrailResult:
    """Verdict of a tool output guardrail."""

    guardrail: ToolOutputGuardrail[Any]
    output: ToolGuardrailFunctionOutput


@overload
def tool_input_guardrail(func: ToolInputGuardrailFunction) -> ToolInputGuardrail[Any]: ...


@overload
def tool_input_guardrail(
    *, name: str | None = None
) -> Callable[[ToolInputGuardrailFunction], ToolInputGuardrail[Any]]: ...


def tool_input_guardrail(
    func: ToolInputGuardrailFunction | None = None, *, name: str | None = None
) -> ToolInputGuardrail[Any] | Callable[[ToolInputGuardrailFunction], ToolInputGuardrail[Any]]:
    """Make a `ToolInputGuardrail` of a function; use it bare or with arguments."""
    return make_guardrail(ToolInputGuardrail, func, name)


@overload
def tool_output_guardrail(func: ToolOutputGuardrailFunction) -> ToolOutputGuardrail[Any]: ...


@overload
def tool_output_guardrail(
    *, name: str | None = None
) -> Callable[[ToolOutputGuardrailFunction], ToolOutputGuardrail[Any]]: ...


def tool_output_guardrail(
    func: ToolOutputGuardrailFunction | None = None, *, name: str | None = None
) -> ToolOutputGuardrail[Any] | Callable[[ToolOutputGuardrailFunction], ToolOutputGuardrail[Any]]:
    """Make a `ToolOutputGuardrail` of a function; use it bare or with arguments."""
    return make_guardrail(ToolOutputGuardrail, func, name)


async def judge_call(
    guardrails: Sequence[ToolInputGuardrail[Any]], data: ToolInputGuardrailData
) -> tuple[list[ToolInputGuardrailResult], str | None]:
    """Ask the input guardrails of a tool, one after the other; return the results, and the message of a rejection.

    Guardrails behind a rejection are not asked. Raises the tripwire error of a guardrail that ends the run.
    """
    asked, message = await _ask_in_order(guardrails, data, ToolInputGuardrailTripwireTriggered)
    return [ToolInputGuardrailResult(*one) for one in asked], message


async def judge_output(
    guardrails: Sequence[ToolOutputGuardrail[Any]], data: ToolOutputGuardrailData
) -> tuple[list[ToolOutputGuardrailResult], Any]:
    """Ask the output guardrails of a tool, one after the other; return the results, and the final output.

    Guardrails behind a rejection are not asked. Raises the tripwire error of a guardrail that ends the run.
    """
    asked, message = await _ask_in_order(guardrails, data, ToolOutputGuardrailTripwireTriggered)
    return [ToolOutputGuardrailResult(*one) for one in asked], data.output if message is None else message


async def _ask_in_order(
    guardrails: Sequence[Any], data: ToolInputGuardrailData, tripwire: Callable[[Any, Any], Exception]
) -> tuple[list[tuple[Any, ToolGuardrailFunctionOutput]], str | None]:
    """Return each asked guardrail with its verdict, and the message of a rejection."""
    asked: list[tuple[Any, ToolGuardrailFunctionOutput]] = []
    for guardrail in guardrails:
        output: ToolGuardrailFunctionOutput = await guardrail.run(data)
        asked.append((guardrail, output))
        match output.behavior:
            case {"type": "allow"}:
                continue
            case {"type": "raise_exception"}:
                raise tripwire(guardrail, output)
            case {"type": "reject_content", "message": str(message)}:
                return asked, message
            case _:  # an unknown behaviour must not count as "allow"
                raise UserError(
                    f"tool guardrail {guardrail.get_name()!r} returned a behavior of no known kind",
                    "Make it with ToolGuardrailFunctionOutput.allow, .reject_content(message) or .raise_exception.",
                )
    return asked, None
