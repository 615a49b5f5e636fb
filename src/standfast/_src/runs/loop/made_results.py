"""Results made by a program, usually by a test: fields of the SDK's dataclasses, and the run behind a made result.

A result shows a run. A made result shows the given values. The run behind a made result has the given input and agent,
never started, and answers for all other attributes.
"""

from __future__ import annotations

import asyncio
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.run_config import RunConfig
from standfast._src.base.errors import SettingTypeError, StandfastError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import ItemHelpers
from standfast._src.runs.engine.run import begin, evolve
from standfast._src.runs.loop.run_scope import ResumedRun, RunArguments, RunScope

if TYPE_CHECKING:
    from standfast._src.runs.engine.run import Run
    from standfast._src.runs.loop.loop import Loop

COMMON = ("input", "new_items", "raw_responses", "final_output", "input_guardrail_results", "output_guardrail_results",
          "tool_input_guardrail_results", "tool_output_guardrail_results", "context_wrapper")  # fmt: skip
"""Fields of both kinds of result, in the order of the SDK's constructors."""


class QueueCompleteSentinel:
    """End marker in the queue of events of a made result."""


@dataclass(frozen=True)
class Source:
    """Result to be copied by `dataclasses.replace`."""

    result: Any

    def __deepcopy__(self, memo: dict[int, Any]) -> Source:
        return self  # asdict copies deeply, and a run is not copied


@dataclass
class ResultFields:
    """Fields of a `RunResult`."""

    input: Any
    new_items: Any
    raw_responses: Any
    final_output: Any
    input_guardrail_results: Any
    output_guardrail_results: Any
    tool_input_guardrail_results: Any
    tool_output_guardrail_results: Any
    context_wrapper: Any
    _last_agent: Any
    max_turns: Any = 10
    interruptions: Any = field(default_factory=list)
    _source: Any = field(default=None, repr=False, compare=False)


@dataclass
class StreamedResultFields:
    """Fields of a `RunResultStreaming`."""

    input: Any
    new_items: Any
    raw_responses: Any
    final_output: Any
    input_guardrail_results: Any
    output_guardrail_results: Any
    tool_input_guardrail_results: Any
    tool_output_guardrail_results: Any
    context_wrapper: Any
    current_agent: Any
    current_turn: Any
    max_turns: Any
    trace: Any = field(default=None, repr=False)
    is_complete: Any = False
    interruptions: Any = field(default_factory=list)
    _source: Any = field(default=None, repr=False, compare=False)


class MadeRun:
    """Run behind a made result: ended, with an input and an agent. Starting or stopping raises an error."""

    loop: Loop  # not set: nothing drives this run

    def __init__(
        self,
        agent: Agent[Any],
        given: str | list[Item],
        wrapper: RunContextWrapper[Any],
        max_turns: int | None,
        turns: int = 0,
    ) -> None:
        if not isinstance(given, str | list):
            raise SettingTypeError(
                f"the input of a result is {describe_type(given)}", "Give a text or a list of items."
            )
        arguments = RunArguments(agent, given, wrapper, RunConfig(), _no_models, max_turns=max_turns)
        self.scope = RunScope(arguments)
        fresh = begin(
            run_id=uuid.uuid4().hex,
            agent=self.scope.graph.key(agent),
            input_items=ItemHelpers.input_to_new_input_list(given),
            max_turns=max_turns,
            input_is_text=isinstance(given, str),
        )
        self.run: Run = evolve(fresh, progress=evolve(fresh.progress, ended=True, turns=turns))

    async def execute(self) -> None:
        """Raise: nothing drives this run."""
        raise _never_ran()

    async def abandon(self, resumed: ResumedRun, message: str) -> None:
        """Raise: nothing drives this run."""
        raise _never_ran()


def take_queue(private: dict[str, Any]) -> asyncio.Queue[Any]:
    """Return the queue of events given under the SDK's private name, or a new queue."""
    queue = private.get("_event_queue")
    return queue if isinstance(queue, asyncio.Queue) else asyncio.Queue()


def check_private(private: dict[str, Any]) -> None:
    """Raise TypeError for an argument without a place in the SDK's constructor; private arguments are ignored."""
    unknown = [name for name in private if not name.startswith("_")]
    if unknown:
        raise SettingTypeError(f"a result has no {', '.join(unknown)}", "Give the fields of the SDK's result.")


def _no_models() -> Any:
    raise _never_ran()


def _never_ran() -> StandfastError:
    return StandfastError("this result was made by the program, and no run is behind it", "Use a result of Runner.run.")
