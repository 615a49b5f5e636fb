"""Guardrails: functions that look at an input, an output or a tool call and may say no.

Agent guardrails trip the whole run; tool guardrails decide about one call: let it pass, put a message in its place, or
end the run. `judge` is how several agent guardrails are asked: at once, until the first one trips; what is still
running then is cancelled and awaited, so nothing of a judgement outlives it. A guardrail that raises has given no
verdict, and its error is the caller's to handle.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypedDict, TypeVar, overload

from standfast.agents.context import RunContextWrapper, TContext, ToolContext
from standfast.ground.errors import (
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    UserError,
)
from standfast.ground.jsonvalue import Item

G = TypeVar("G")
R = TypeVar("R", bound="InputGuardrailResult | OutputGuardrailResult")


@dataclass
class GuardrailFunctionOutput:
    """A guardrail's verdict."""

    output_info: Any
    """Whatever the guardrail wants to say about what it saw."""

    tripwire_triggered: bool
    """Whether the run must stop."""


def _name_of(name: str | None, function: Any) -> str:
    return name or getattr(function, "__name__", None) or type(function).__name__


async def _call(function: Any, name: str, *arguments: Any) -> Any:
    if not callable(function):
        raise UserError(f"guardrail {name!r} is a {type(function).__name__}", "Give a function, async or not.")
    result = function(*arguments)
    return await result if inspect.isawaitable(result) else result


def _checked(result: Any, kind: type[Any], name: str) -> Any:
    if isinstance(result, kind):
        return result
    raise UserError(
        f"guardrail {name!r} returned a {type(result).__name__}, which is no verdict", f"Return a {kind.__name__}."
    )


# --- agent guardrails ------------------------------------------------------------------------------------------------

InputGuardrailFunction = Callable[
    [RunContextWrapper[TContext], Any, "str | list[Item]"],
    "GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]",
]
OutputGuardrailFunction = Callable[
    [RunContextWrapper[TContext], Any, Any], "GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]"
]


@dataclass
class InputGuardrail(Generic[TContext]):
    """Looks at what a run was given, before or while the first model call goes on."""

    guardrail_function: InputGuardrailFunction[TContext]
    """Gets the context, the agent and the input."""

    name: str | None = None
    """The function's own name unless given."""

    run_in_parallel: bool = True
    """False: the model is not called before this guardrail has passed."""

    def get_name(self) -> str:
        """The name that results and errors show."""
        return _name_of(self.name, self.guardrail_function)

    async def run(
        self, agent: Any, input: str | list[Item], context: RunContextWrapper[TContext]
    ) -> InputGuardrailResult:
        """Ask this guardrail alone."""
        name = self.get_name()
        output = _checked(
            await _call(self.guardrail_function, name, context, agent, input), GuardrailFunctionOutput, name
        )
        return InputGuardrailResult(guardrail=self, output=output)


@dataclass
class InputGuardrailResult:
    """What an input guardrail said."""

    guardrail: InputGuardrail[Any]
    output: GuardrailFunctionOutput


@dataclass
class OutputGuardrail(Generic[TContext]):
    """Looks at the final output of a run, before anybody gets it."""

    guardrail_function: OutputGuardrailFunction[TContext]
    """Gets the context, the agent and its output."""

    name: str | None = None
    """The function's own name unless given."""

    def get_name(self) -> str:
        """The name that results and errors show."""
        return _name_of(self.name, self.guardrail_function)

    async def run(self, context: RunContextWrapper[TContext], agent: Any, agent_output: Any) -> OutputGuardrailResult:
        """Ask this guardrail alone."""
        name = self.get_name()
        output = _checked(
            await _call(self.guardrail_function, name, context, agent, agent_output), GuardrailFunctionOutput, name
        )
        return OutputGuardrailResult(guardrail=self, agent_output=agent_output, agent=agent, output=output)


@dataclass
class OutputGuardrailResult:
    """What an output guardrail said."""

    guardrail: OutputGuardrail[Any]
    agent_output: Any
    agent: Any
    output: GuardrailFunctionOutput


@overload
def input_guardrail(func: InputGuardrailFunction[TContext]) -> InputGuardrail[TContext]: ...


@overload
def input_guardrail(
    *, name: str | None = None, run_in_parallel: bool = True
) -> Callable[[InputGuardrailFunction[TContext]], InputGuardrail[TContext]]: ...


def input_guardrail(
    func: InputGuardrailFunction[Any] | None = None, *, name: str | None = None, run_in_parallel: bool = True
) -> Any:
    """Make an `InputGuardrail` of a function; use it bare or with arguments."""

    def make(function: InputGuardrailFunction[Any]) -> InputGuardrail[Any]:
        return InputGuardrail(function, name=_name_of(name, function), run_in_parallel=run_in_parallel)

    return make if func is None else make(func)


@overload
def output_guardrail(func: OutputGuardrailFunction[TContext]) -> OutputGuardrail[TContext]: ...


@overload
def output_guardrail(
    *, name: str | None = None
) -> Callable[[OutputGuardrailFunction[TContext]], OutputGuardrail[TContext]]: ...


def output_guardrail(func: OutputGuardrailFunction[Any] | None = None, *, name: str | None = None) -> Any:
    """Make an `OutputGuardrail` of a function; use it bare or with arguments."""

    def make(function: OutputGuardrailFunction[Any]) -> OutputGuardrail[Any]:
        return OutputGuardrail(function, name=_name_of(name, function))

    return make if func is None else make(func)


async def judge(guardrails: Sequence[G], call: Callable[[G], Awaitable[R]]) -> tuple[list[R], R | None]:
    """Ask every guardrail at once; returns the results there are, in the guardrails' order, and the one that tripped.

    The first trip cancels and awaits the rest. A guardrail that raises does the same, and its error is raised; if one
    trips in the very moment another raises, the verdict counts. One guardrail alone is asked without a task.
    """
    if len(guardrails) == 1:
        result = await call(guardrails[0])
        return [result], result if result.output.tripwire_triggered else None
    tasks = [asyncio.ensure_future(call(guardrail)) for guardrail in guardrails]
    try:
        tripped = await _first_trip(tasks)
        finished = [task.result() for task in tasks if _has_result(task)]
    finally:
        await _stop(tasks)
    return finished, tripped


async def _first_trip(tasks: Sequence[asyncio.Future[R]]) -> R | None:
    pending = set(tasks)
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task in done and _has_result(task) and task.result().output.tripwire_triggered:
                return task.result()
        for task in tasks:
            if task in done:
                task.result()  # raises what the guardrail raised
    return None


def _has_result(task: asyncio.Future[Any]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is None


async def _stop(tasks: Iterable[asyncio.Future[Any]]) -> None:
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)


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
    agent: Any


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
class ToolInputGuardrail(Generic[TContext]):
    """Looks at a call before it runs."""

    guardrail_function: ToolInputGuardrailFunction
    name: str | None = None

    def get_name(self) -> str:
        """The name that results and errors show."""
        return _name_of(self.name, self.guardrail_function)

    async def run(self, data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Ask this guardrail alone."""
        name = self.get_name()
        verdict: ToolGuardrailFunctionOutput = _checked(
            await _call(self.guardrail_function, name, data), ToolGuardrailFunctionOutput, name
        )
        return verdict


@dataclass
class ToolOutputGuardrail(Generic[TContext]):
    """Looks at a call's output before the model does."""

    guardrail_function: ToolOutputGuardrailFunction
    name: str | None = None

    def get_name(self) -> str:
        """The name that results and errors show."""
        return _name_of(self.name, self.guardrail_function)

    async def run(self, data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        """Ask this guardrail alone."""
        name = self.get_name()
        verdict: ToolGuardrailFunctionOutput = _checked(
            await _call(self.guardrail_function, name, data), ToolGuardrailFunctionOutput, name
        )
        return verdict


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


def tool_input_guardrail(func: ToolInputGuardrailFunction | None = None, *, name: str | None = None) -> Any:
    """Make a `ToolInputGuardrail` of a function; use it bare or with arguments."""

    def make(function: ToolInputGuardrailFunction) -> ToolInputGuardrail[Any]:
        return ToolInputGuardrail(function, name=_name_of(name, function))

    return make if func is None else make(func)


@overload
def tool_output_guardrail(func: ToolOutputGuardrailFunction) -> ToolOutputGuardrail[Any]: ...


@overload
def tool_output_guardrail(
    *, name: str | None = None
) -> Callable[[ToolOutputGuardrailFunction], ToolOutputGuardrail[Any]]: ...


def tool_output_guardrail(func: ToolOutputGuardrailFunction | None = None, *, name: str | None = None) -> Any:
    """Make a `ToolOutputGuardrail` of a function; use it bare or with arguments."""

    def make(function: ToolOutputGuardrailFunction) -> ToolOutputGuardrail[Any]:
        return ToolOutputGuardrail(function, name=_name_of(name, function))

    return make if func is None else make(func)


async def judge_call(
    guardrails: Sequence[ToolInputGuardrail[Any]], data: ToolInputGuardrailData
) -> tuple[list[ToolInputGuardrailResult], str | None]:
    """Ask the input guardrails of a tool, one after the other; the message of the one that rejected, if one did.

    Those behind a rejection are not asked. Raises the tripwire error of one that wants the run to end.
    """
    results: list[ToolInputGuardrailResult] = []
    for guardrail in guardrails:
        output = await guardrail.run(data)
        results.append(ToolInputGuardrailResult(guardrail, output))
        match output.behavior:
            case {"type": "allow"}:
                continue
            case {"type": "raise_exception"}:
                raise ToolInputGuardrailTripwireTriggered(guardrail, output)
            case {"type": "reject_content", "message": str(message)}:
                return results, message
            case _:
                raise _no_verdict(guardrail.get_name())
    return results, None


async def judge_output(
    guardrails: Sequence[ToolOutputGuardrail[Any]], data: ToolOutputGuardrailData
) -> tuple[list[ToolOutputGuardrailResult], Any]:
    """Ask the output guardrails of a tool, one after the other; the output that counts after them.

    Those behind a rejection are not asked. Raises the tripwire error of one that wants the run to end.
    """
    results: list[ToolOutputGuardrailResult] = []
    for guardrail in guardrails:
        output = await guardrail.run(data)
        results.append(ToolOutputGuardrailResult(guardrail, output))
        match output.behavior:
            case {"type": "allow"}:
                continue
            case {"type": "raise_exception"}:
                raise ToolOutputGuardrailTripwireTriggered(guardrail, output)
            case {"type": "reject_content", "message": str(message)}:
                return results, message
            case _:
                raise _no_verdict(guardrail.get_name())
    return results, data.output


def _no_verdict(name: str) -> UserError:
    # A behaviour nobody understands must not count as "allow".
    return UserError(
        f"tool guardrail {name!r} returned a behavior of no known kind",
        "Make it with ToolGuardrailFunctionOutput.allow, .reject_content(message) or .raise_exception.",
    )
