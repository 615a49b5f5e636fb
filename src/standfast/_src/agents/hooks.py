"""Hooks: methods that a run awaits at its turning points. Override those you need; the rest cost nothing.

Run hooks see every agent of a run, agent hooks the one they are set on; both are awaited together. A hook observes:
what it returns is ignored, and one that raises fails the run. `overridden` lets the driver skip the empty ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

from standfast._src.agents.context import AgentHookContext, NamedAgent, RunContextWrapper, TContext
from standfast._src.base.aio import together
from standfast._src.base.errors import SettingTypeError
from standfast._src.base.json_values import Item

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from standfast._src.items.items import ModelResponse
    from standfast._src.tools.hosted_tools import Tool

    TAgent = TypeVar("TAgent", default=Any)
else:
    from typing import TypeVar

    TAgent = TypeVar("TAgent")


class RunHooksBase(Generic[TContext, TAgent]):
    """Called for every agent of a run."""

    async def on_llm_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, system_prompt: str | None, input_items: list[Item]
    ) -> None:
        """Before a model is called, with exactly what it will see. Once per turn, however often it is retried."""

    async def on_llm_end(self, context: RunContextWrapper[TContext], agent: TAgent, response: ModelResponse) -> None:
        """After a model has answered and its answer was found usable, before any tool runs."""

    async def on_agent_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """Before an agent's first turn: at the start, after each handoff, and again after a resume."""

    async def on_agent_end(self, context: AgentHookContext[TContext], agent: TAgent, output: Any) -> None:
        """When an agent has a final output, before the output guardrails."""

    async def on_handoff(self, context: RunContextWrapper[TContext], from_agent: TAgent, to_agent: TAgent) -> None:
        """When one agent hands the conversation to another."""

    async def on_tool_start(self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool) -> None:
        """Before a local tool runs; `context` is its `ToolContext`. Not called for a rejected call."""

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """After a local tool has run, with the result that counts: the output guardrails may have replaced it."""


class AgentHooksBase(Generic[TContext, TAgent]):
    """Called for one agent: set it as `Agent(hooks=...)`."""

    async def on_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """Before this agent's first turn: at the start, after a handoff to it, and again after a resume."""

    async def on_end(self, context: AgentHookContext[TContext], agent: TAgent, output: Any) -> None:
        """When this agent has a final output, before the output guardrails."""

    async def on_handoff(self, context: RunContextWrapper[TContext], agent: TAgent, source: TAgent) -> None:
        """When this agent hands over (`source` is this agent, `agent` the one that takes over)."""

    async def on_tool_start(self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool) -> None:
        """Before a local tool of this agent runs; `context` is its `ToolContext`."""

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """After a local tool of this agent has run, with the result that counts."""

    async def on_llm_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, system_prompt: str | None, input_items: list[Item]
    ) -> None:
        """Before this agent's model is called, with exactly what it will see."""

    async def on_llm_end(self, context: RunContextWrapper[TContext], agent: TAgent, response: ModelResponse) -> None:
        """After this agent's model has answered and its answer was found usable."""


RunHooks = RunHooksBase[TContext, Any]
"""Run hooks of an application with context `TContext`; subclass it."""

AgentHooks = AgentHooksBase[TContext, Any]
"""Agent hooks of an application with context `TContext`; subclass it."""


class HookedAgent(NamedAgent, Protocol):
    """What is asked of an agent whose calls are carried out."""

    @property
    def hooks(self) -> AgentHooksBase[Any, Any] | None:
        """What is called at this agent's turning points."""
        ...


Hook: TypeAlias = Callable[..., Awaitable[None]]
"""A method of hooks that somebody wrote."""


def check_hooks(hooks: object) -> None:
    """Raise SettingTypeError, a TypeError, if these are no hooks of a run."""
    if hooks is not None and not isinstance(hooks, RunHooksBase):
        raise SettingTypeError(f"hooks is a {type(hooks).__name__}", "Pass RunHooks here; AgentHooks go on an Agent.")


def overridden(hooks: RunHooksBase[Any, Any] | AgentHooksBase[Any, Any] | None, name: str) -> Hook | None:
    """The bound hook of that name if somebody wrote it, None if it is the empty one: nothing to await then."""
    if hooks is None:
        return None
    base: type = RunHooksBase if isinstance(hooks, RunHooksBase) else AgentHooksBase
    hook: Hook = getattr(hooks, name)
    return None if getattr(hook, "__func__", None) is getattr(base, name) else hook


async def await_both(
    first: Callable[[], Awaitable[Any]] | None, second: Callable[[], Awaitable[Any]] | None
) -> tuple[Any, Any]:
    """What both give, called together if there are two; one alone needs no task, and one that is not there gives None.

    One that raises cancels and awaits the other: none goes on behind a failed run.
    """
    if first is None or second is None:
        return await first() if first is not None else None, await second() if second is not None else None
    one, other = await together(first(), second())
    return one, other
