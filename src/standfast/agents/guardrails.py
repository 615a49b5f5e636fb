"""Guardrails: functions that look at an input, an output or a tool call and may say no.

Agent guardrails trip the whole run; tool guardrails decide about one call: let it pass, put a message in its place, or
end the run. `judge` is how several agent guardrails are asked: at once, until the first one trips; what is still
running then is cancelled and awaited, so nothing of a judgement outlives it. A guardrail that raises has given no
verdict, and its error is the caller's to handle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar, overload

from standfast.agents.context import AnyAgent, RunContextWrapper, TContext, ToolContext
from standfast.ground.awaiting import cancel, maybe_await
from standfast.ground.errors import (
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    UserError,
)
from standfast.ground.jsonvalue import Item

G = TypeVar("G", bound="Guardrail")
V = TypeVar("V")
R = TypeVar("R", bound="InputGuardrailResult | OutputGuardrailResult")


@dataclass
class GuardrailFunctionOutput:
    """A guardrail's verdict."""

    output_info: Any
    """Whatever the guardrail wants to say about what it saw."""

    tripwire_triggered: bool
    """Whether the run must stop."""


@dataclass
class Guardrail:
    """A function with a name: what all four kinds of guardrails are. They differ in what the function gets."""

    guardrail_function: Callable[..., Any]
    """Gets what this kind of guardrail looks at; async or not."""

    name: str | None = None
    """The function's own name unless given."""

    def get_name(self) -> str:
        """The name that results and errors show."""
        function = self.guardrail_function
        return self.name or getattr(function, "__name__", None) or type(function).__name__

    async def _verdict(self, kind: type[V], *arguments: object) -> V:
        """What the function says about these arguments; raises UserError if that is no verdict of this kind."""
        name = self.get_name()
        if not callable(self.guardrail_function):
            given = type(self.guardrail_function).__name__
            raise UserError(f"guardrail {name!r} is a {given}", "Give a function, async or not.")
        verdict = await maybe_await(self.guardrail_function(*arguments))
        if not isinstance(verdict, kind):
            raise UserError(
                f"guardrail {name!r} returned a {type(verdict).__name__}, which is no verdict",
                f"Return a {kind.__name__}.",
            )
        return verdict


def _made(
    kind: Callable[..., G], function: Callable[..., Any] | None, name: str | None, **options: object
) -> G | Callable[[Callable[..., Any]], G]:
    """A guardrail of this function, or, without a function, the decorator that makes one."""

    def make(given: Callable[..., Any]) -> G:
        guardrail = kind(given, name=name, **options)
        guardrail.name = guardrail.get_name()
        return guardrail

    return make if function is None else make(function)


# --- agent guardrails ------------------------------------------------------------------------------------------------

InputGuardrailFunction = Callable[
    [RunContextWrapper[TContext], AnyAgent, "str | list[Item]"],
    "GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]",
]
OutputGuardrailFunction = Callable[
    [RunContextWrapper[TContext], AnyAgent, Any], "GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]"
]


@dataclass
class InputGuardrail(Guardrail, Generic[TContext]):
    """Looks at what a run was given, before or while the first model call goes on."""

    guardrail_function: InputGuardrailFunction[TContext]
    """Gets the context, the agent and the input."""

    run_in_parallel: bool = True
    """False: the model is not called before this guardrail has passed."""

    async def run(
        self, agent: AnyAgent, input: str | list[Item], context: RunContextWrapper[TContext]
    ) -> InputGuardrailResult:
        """Ask this guardrail alone."""
        return InputGuardrailResult(self, await self._verdict(GuardrailFunctionOutput, context, agent, input))


@dataclass
class InputGuardrailResult:
    """What an input guardrail said."""

    guardrail: InputGuardrail[Any]
    output: GuardrailFunctionOutput


@dataclass
class OutputGuardrail(Guardrail, Generic[TContext]):
    """Looks at the final output of a run, before anybody gets it."""

    guardrail_function: OutputGuardrailFunction[TContext]
    """Gets the context, the agent and its output."""

    async def run(
        self, context: RunContextWrapper[TContext], agent: AnyAgent, agent_output: Any
    ) -> OutputGuardrailResult:
        """Ask this guardrail alone."""
        output = await self._verdict(GuardrailFunctionOutput, context, agent, agent_output)
        return OutputGuardrailResult(guardrail=self, agent_output=agent_output, agent=agent, output=output)


@dataclass
class OutputGuardrailResult:
    """What an output guardrail said."""

    guardrail: OutputGuardrail[Any]
    agent_output: Any
    agent: AnyAgent
    output: GuardrailFunctionOutput


@overload
def input_guardrail(func: InputGuardrailFunction[TContext]) -> InputGuardrail[TContext]: ...


@overload
def input_guardrail(
    *, name: str | None = None, run_in_parallel: bool = True
) -> Callable[[InputGuardrailFunction[TContext]], InputGuardrail[TContext]]: ...


def input_guardrail(
    func: InputGuardrailFunction[Any] | None = None, *, name: str | None = None, run_in_parallel: bool = True
) -> InputGuardrail[Any] | Callable[[InputGuardrailFunction[Any]], InputGuardrail[Any]]:
    """Make an `InputGuardrail` of a function; use it bare or with arguments."""
    return _made(InputGuardrail, func, name, run_in_parallel=run_in_parallel)


@overload
def output_guardrail(func: OutputGuardrailFunction[TContext]) -> OutputGuardrail[TContext]: ...


@overload
def output_guardrail(
    *, name: str | None = None
) -> Callable[[OutputGuardrailFunction[TContext]], OutputGuardrail[TContext]]: ...


def output_guardrail(
    func: OutputGuardrailFunction[Any] | None = None, *, name: str | None = None
) -> OutputGuardrail[Any] | Callable[[OutputGuardrailFunction[Any]], OutputGuardrail[Any]]:
    """Make an `OutputGuardrail` of a function; use it bare or with arguments."""
    return _made(OutputGuardrail, func, name)


async def judge(guardrails: Sequence[G], call: Callable[[G], Awaitable[R]], results: list[R]) -> R | None:
    """Ask every guardrail at once; returns the one that tripped. What each says joins `results` as it comes, so that
    whoever catches an error knows what the others have said.

    The first trip cancels and awaits the rest. A guardrail that raises does the same, and its error is raised; if one
    trips in the very moment another raises, the verdict counts. One guardrail alone is asked without a task.
    """
    if len(guardrails) == 1:
        result = await call(guardrails[0])
        results.append(result)
        return result if result.output.tripwire_triggered else None
    tasks = [asyncio.ensure_future(call(guardrail)) for guardrail in guardrails]
    try:
        return await _first_trip(tasks, results)
    finally:
        await cancel(tasks)


async def _first_trip(tasks: Sequence[asyncio.Future[R]], results: list[R]) -> R | None:
    pending = set(tasks)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        results += [task.result() for task in tasks if task in done and _has_result(task)]
        for task in tasks:
            if task in done and _has_result(task) and task.result().output.tripwire_triggered:
                return task.result()
        for task in tasks:
            if task in done:
                task.result()  # raises what the guardrail raised
    return None


def _has_result(task: asyncio.Future[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


# --- tool guardrails -------------------------------------------------------------------------------------------------


class RejectContentBehavior(TypedDict):
    """The model reads `message` in place of the call's result."""

    type: Literal["reject_content"]
    message: str


class RaiseExceptionBehavior(TypedDict):
    """The run ends."""

    type: Literal["raise_exception"]


class AllowBehavior(TypedDict):
    """Nothing happens."""

    type: Literal["allow"]


@dataclass
class ToolGuardrailFunctionOutput:
    """A tool guardrail's verdict; make it with `allow`, `reject_content` or `raise_exception`."""

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
        """Put `message` in the place of the call's output; the run goes on."""
        return cls(output_info, RejectContentBehavior(type="reject_content", message=message))

    @classmethod
    def raise_exception(cls, output_info: Any = None) -> ToolGuardrailFunctionOutput:
        """End the run with a tripwire error."""
        return cls(output_info, RaiseExceptionBehavior(type="raise_exception"))


@dataclass
class ToolInputGuardrailData:
    """What a tool input guardrail looks at."""

    context: ToolContext[Any]
    agent: AnyAgent


@dataclass
class ToolOutputGuardrailData(ToolInputGuardrailData):
    """What a tool output guardrail looks at: always the tool's own output, whatever guardrails before it said."""

    output: Any


ToolInputGuardrailFunction = Callable[
    [ToolInputGuardrailData], "ToolGuardrailFunctionOutput | Awaitable[ToolGuardrailFunctionOutput]"
]
ToolOutputGuardrailFunction = Callable[
    [ToolOutputGuardrailData], "ToolGuardrailFunctionOutput | Awaitable[ToolGuardrailFunctionOutput]"
]


@dataclass
class ToolInputGuardrail(Guardrail, Generic[TContext]):
    """Looks at a call before it runs."""

    guardrail_function: ToolInputGuardrailFunction
    """Gets the call and the agent."""

    async def run(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Ask this guardrail alone."""
        return await self._verdict(ToolGuardrailFunctionOutput, data)


@dataclass
class ToolOutputGuardrail(Guardrail, Generic[TContext]):
    """Looks at a call's output before the model does."""

    guardrail_function: ToolOutputGuardrailFunction
    """Gets the call, the agent and the output."""

    async def run(self, data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Ask this guardrail alone."""
        return await self._verdict(ToolGuardrailFunctionOutput, data)


@dataclass
class ToolInputGuardrailResult:
    """What a tool input guardrail said."""

    guardrail: ToolInputGuardrail[Any]
    output: ToolGuardrailFunctionOutput


@dataclass
class ToolOutputGuardrailResult:
    """What a tool output guardrail said."""

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
    return _made(ToolInputGuardrail, func, name)


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
    return _made(ToolOutputGuardrail, func, name)


async def judge_call(
    guardrails: Sequence[ToolInputGuardrail[Any]], data: ToolInputGuardrailData
) -> tuple[list[ToolInputGuardrailResult], str | None]:
    """Ask the input guardrails of a tool, one after the other; the message of the one that rejected, if one did.

    Those behind a rejection are not asked. Raises the tripwire error of one that wants the run to end.
    """
    asked, message = await _ask_in_order(guardrails, data, ToolInputGuardrailTripwireTriggered)
    return [ToolInputGuardrailResult(*one) for one in asked], message


async def judge_output(
    guardrails: Sequence[ToolOutputGuardrail[Any]], data: ToolOutputGuardrailData
) -> tuple[list[ToolOutputGuardrailResult], Any]:
    """Ask the output guardrails of a tool, one after the other; the output that counts after them.

    Those behind a rejection are not asked. Raises the tripwire error of one that wants the run to end.
    """
    asked, message = await _ask_in_order(guardrails, data, ToolOutputGuardrailTripwireTriggered)
    return [ToolOutputGuardrailResult(*one) for one in asked], data.output if message is None else message


async def _ask_in_order(
    guardrails: Sequence[Any], data: ToolInputGuardrailData, tripwire: Callable[[Any, Any], Exception]
) -> tuple[list[tuple[Any, ToolGuardrailFunctionOutput]], str | None]:
    """Each guardrail that was asked with its verdict, and the message of the one that rejected."""
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
            case _:  # a behaviour nobody understands must not count as "allow"
                raise UserError(
                    f"tool guardrail {guardrail.get_name()!r} returned a behavior of no known kind",
                    "Make it with ToolGuardrailFunctionOutput.allow, .reject_content(message) or .raise_exception.",
                )
    return asked, None
