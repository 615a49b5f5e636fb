"""Guardrails of agents: functions that check the input or the output of a run and may end it.

`judge` asks several of them at the same time, until the first one trips; those still running are then cancelled and
awaited, so that no guardrail outlives the question. A guardrail that raises has given no verdict, and the caller
handles its error. Guardrails of tool calls are in `_src.tools.tool_guardrails`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, overload

from standfast._src.agents.context import AnyAgent, RunContextWrapper, TContext
from standfast._src.base.aio import cancel, maybe_await, side_by_side
from standfast._src.base.errors import (
    UserError,
)
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type

G = TypeVar("G", bound="Guardrail")
V = TypeVar("V")
R = TypeVar("R", bound="InputGuardrailResult | OutputGuardrailResult")


@dataclass
class GuardrailFunctionOutput:
    """A guardrail's verdict."""

    output_info: Any
    """Whatever the guardrail wants to say about what it saw."""

    tripwire_triggered: bool
    """True if the run must stop."""


@dataclass
class Guardrail:
    """A function with a name: base of all four kinds of guardrails. They differ in the function's arguments."""

    guardrail_function: Callable[..., Any]
    """Checks the arguments of this kind of guardrail; sync or async."""

    name: str | None = None
    """The function's own name unless given."""

    def get_name(self) -> str:
        """Return the name for results and errors."""
        function = self.guardrail_function
        return self.name or getattr(function, "__name__", None) or type(function).__name__

    async def _verdict(self, kind: type[V], *arguments: object) -> V:
        """Call the function; raise UserError if its result is not a verdict of this kind."""
        name = self.get_name()
        if not callable(self.guardrail_function):
            given = describe_type(self.guardrail_function)
            raise UserError(f"guardrail {name!r} is {given}", "Give a function, async or not.")
        verdict = await maybe_await(self.guardrail_function(*arguments))
        if not isinstance(verdict, kind):
            raise UserError(
                f"guardrail {name!r} returned {describe_type(verdict)}, which is no verdict",
                f"Return a {kind.__name__}.",
            )
        return verdict


def make_guardrail(
    kind: Callable[..., G], function: Callable[..., Any] | None, name: str | None, **options: object
) -> G | Callable[[Callable[..., Any]], G]:
    """Make a guardrail of a function or, without a function, a decorator for one."""

    def make(given: Callable[..., Any]) -> G:
        guardrail = kind(given, name=name, **options)
        guardrail.name = guardrail.get_name()
        return guardrail

    return make if function is None else make(function)


InputGuardrailFunction = Callable[
    [RunContextWrapper[TContext], AnyAgent, "str | list[Item]"],
    "GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]",
]
OutputGuardrailFunction = Callable[
    [RunContextWrapper[TContext], AnyAgent, Any], "GuardrailFunctionOutput | Awaitable[GuardrailFunctionOutput]"
]


@dataclass
class InputGuardrail(Guardrail, Generic[TContext]):
    """Check of a run's input, before or during the first model call."""

    guardrail_function: InputGuardrailFunction[TContext]
    """Gets the context, the agent and the input."""

    run_in_parallel: bool = True
    """False: the model is not called before this guardrail has passed."""

    async def run(
        self, agent: AnyAgent, input: str | list[Item], context: RunContextWrapper[TContext]
    ) -> InputGuardrailResult:
        """Run this guardrail alone."""
        return InputGuardrailResult(self, await self._verdict(GuardrailFunctionOutput, context, agent, input))


@dataclass
class InputGuardrailResult:
    """Verdict of an input guardrail."""

    guardrail: InputGuardrail[Any]
    output: GuardrailFunctionOutput


@dataclass
class OutputGuardrail(Guardrail, Generic[TContext]):
    """Check of a run's final output, before any caller gets it."""

    guardrail_function: OutputGuardrailFunction[TContext]
    """Gets the context, the agent and its output."""

    async def run(
        self, context: RunContextWrapper[TContext], agent: AnyAgent, agent_output: Any
    ) -> OutputGuardrailResult:
        """Run this guardrail alone."""
        output = await self._verdict(GuardrailFunctionOutput, context, agent, agent_output)
        return OutputGuardrailResult(guardrail=self, agent_output=agent_output, agent=agent, output=output)


@dataclass
class OutputGuardrailResult:
    """Verdict of an output guardrail."""

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
    return make_guardrail(InputGuardrail, func, name, run_in_parallel=run_in_parallel)


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
    return make_guardrail(OutputGuardrail, func, name)


async def judge(guardrails: Sequence[G], call: Callable[[G], Awaitable[R]], results: list[R]) -> R | None:
    """Ask all guardrails at the same time; return the result that tripped, or None. Each result joins `results` on
    arrival.

    So a caller that catches an error knows the results so far. The first trip cancels and awaits the rest. A guardrail
    that raises does the same, and its error is raised; if one trips in the very moment another raises, the verdict
    counts. A single guardrail is asked without a task.
    """
    if len(guardrails) == 1:
        result = await call(guardrails[0])
        results.append(result)
        return result if result.output.tripwire_triggered else None
    tasks = side_by_side(call(guardrail) for guardrail in guardrails)
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
