"""Hooks: methods that a run awaits at its turning points. Override some of them; the rest cost nothing.

Run hooks see every agent of a run, agent hooks only their own agent; both are awaited together. A hook observes: its
result is ignored, and an error fails the run. `overridden` lets a run skip the empty ones.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias

from standfast._src.agents.context import AgentHookContext, NamedAgent, RunContextWrapper, TContext
from standfast._src.base.aio import together
from standfast._src.base.errors import SettingTypeError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type

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

    if not TYPE_CHECKING:

        def __class_getitem__(cls, params):  # the second parameter has a default, as for type checkers
            if not isinstance(params, tuple) and len(cls.__parameters__) == 2:
                params = (params, Any)
            return super().__class_getitem__(params)

    async def on_llm_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, system_prompt: str | None, input_items: list[Item]
    ) -> None:
        """Called before a model request, with the exact input. Once per turn, regardless of retries."""

    async def on_llm_end(self, context: RunContextWrapper[TContext], agent: TAgent, response: ModelResponse) -> None:
        """After a model has answered and its answer was found usable, before any tool runs."""

    async def on_agent_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """Before an agent's first turn: at the start, after each handoff, and again after a resume."""

    async def on_agent_end(self, context: AgentHookContext[TContext], agent: TAgent, output: Any) -> None:
        """Called when an agent has a final output, before the output guardrails."""

    async def on_handoff(self, context: RunContextWrapper[TContext], from_agent: TAgent, to_agent: TAgent) -> None:
        """Called when an agent hands the conversation to another agent."""

    async def on_tool_start(self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool) -> None:
        """Before a local tool runs; `context` is its `ToolContext`. Not called for a rejected call."""

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """Called after a local tool, with the final result: the output guardrails may have replaced the tool's own."""


class AgentHooksBase(Generic[TContext, TAgent]):
    """Hooks of a single agent: set it as `Agent(hooks=...)`."""

    async def on_start(self, context: AgentHookContext[TContext], agent: TAgent) -> None:
        """Called before this agent's first turn: at the start, after a handoff to it, and again after a resume."""

    async def on_end(self, context: AgentHookContext[TContext], agent: TAgent, output: Any) -> None:
        """Called when this agent has a final output, before the output guardrails."""

    async def on_handoff(self, context: RunContextWrapper[TContext], agent: TAgent, source: TAgent) -> None:
        """Called when this agent hands over: `source` is the present agent, `agent` the successor."""

    async def on_tool_start(self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool) -> None:
        """Called before a local tool of this agent; `context` is its `ToolContext`."""

    async def on_tool_end(
        self, context: RunContextWrapper[TContext], agent: TAgent, tool: Tool, result: object
    ) -> None:
        """Called after a local tool of this agent, with the final result."""

    async def on_llm_start(
        self, context: RunContextWrapper[TContext], agent: TAgent, system_prompt: str | None, input_items: list[Item]
    ) -> None:
        """Called before a request to this agent's model, with the exact input."""

    async def on_llm_end(self, context: RunContextWrapper[TContext], agent: TAgent, response: ModelResponse) -> None:
        """Called after a usable answer of this agent's model."""


RunHooks = RunHooksBase[TContext, Any]
"""Run hooks of an application with context `TContext`; subclass it."""

AgentHooks = AgentHooksBase[TContext, Any]
"""Agent hooks of an application with context `TContext`; subclass it."""


class HookedAgent(NamedAgent, Protocol):
    """Attributes of an agent needed to execute its calls."""

    @property
    def hooks(self) -> AgentHooksBase[Any, Any] | None:
        """Return the agent's hooks."""
        ...


Hook: TypeAlias = Callable[..., Awaitable[None]]
"""A method of hooks written by the application."""


def check_hooks(hooks: object) -> None:
    """Raise SettingTypeError, a TypeError, unless the object is a set of run hooks."""
    if hooks is not None and not isinstance(hooks, RunHooksBase):
        raise SettingTypeError(f"hooks is {describe_type(hooks)}", "Pass RunHooks here; AgentHooks go on an Agent.")


def overridden(hooks: RunHooksBase[Any, Any] | AgentHooksBase[Any, Any] | None, name: str) -> Hook | None:
    """Return the bound hook of a name, or None if not overridden: then there is nothing to await."""
    if hooks is None:
        return None
    base: type = RunHooksBase if isinstance(hooks, RunHooksBase) else AgentHooksBase
    hook: Hook = getattr(hooks, name)
    return None if getattr(hook, "__func__", None) is getattr(base, name) else hook


async def await_both(
    first: Callable[[], Awaitable[Any]] | None, second: Callable[[], Awaitable[Any]] | None
) -> tuple[Any, Any]:
    """Await two callables together and return both results. A single one needs no task; a missing one gives None.

    If one raises, the other is cancelled and awaited, so that no hook outlives a failed run.
    """
    if first is None or second is None:
        return await first() if first is not None else None, await second() if second is not None else None
    one, other = await together(first(), second())
    return one, other
