"""Voice agents: instructions, tools and handoffs, as data. The model and its voice belong to the call, not to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, overload

from standfast._src.agents.agent import INSTRUCTIONS, AgentBase, check_kinds
from standfast._src.agents.context import RunContextWrapper, TContext, wrapper_of
from standfast._src.agents.guardrails import OutputGuardrail
from standfast._src.agents.handoffs import Handoff, OnHandoffWithInput, OnHandoffWithoutInput, THandoffInput, handoff
from standfast._src.agents.hooks import AgentHooksBase, RunHooksBase
from standfast._src.agents.prompts import Prompt
from standfast._src.base.aio import maybe_await, together
from standfast._src.base.errors import UserError
from standfast._src.base.logs import logger
from standfast._src.tools.availability import filter_enabled
from standfast._src.tools.function_tool import ToolEnabled
from standfast._src.tools.local_tool import called_as_function

RealtimeAgentHooks: TypeAlias = AgentHooksBase[TContext, "RealtimeAgent[Any]"]
"""Hooks of one voice agent."""

RealtimeRunHooks: TypeAlias = RunHooksBase[TContext, "RealtimeAgent[Any]"]
"""Hooks of a voice call: `RealtimeRunner.run(hooks=...)`."""


Instructions: TypeAlias = Callable[[RunContextWrapper[Any], "RealtimeAgent[Any]"], str | Awaitable[str]]
"""Makes the system prompt of an agent for a call."""


@dataclass(eq=False)
class RealtimeAgent(AgentBase[TContext]):
    """An agent that talks. A call has the model and the voice: see `RealtimeRunner`.

    Args:
        name: The name of the agent, which handoffs and traces show.
        handoff_description: A sentence for agents that may hand the call to this one.
        tools: Tools that the model may call.
        mcp_servers: Connected MCP servers, whose tools the model may call, too.
        mcp_config: Settings of these tools.
        instructions: The system prompt: a text, or a function of the context and the agent.
        prompt: A prompt in the provider's library.
        handoffs: Agents to which it may hand the call.
        output_guardrails: Output guardrails, which check the text during a reply and at its end.
        hooks: Called at this agent's turning points.
    """

    instructions: str | Instructions | None = None
    """The system prompt: a text, or a function of the context and the agent."""

    prompt: Prompt | None = None
    """A prompt in the provider's library."""

    handoffs: list[RealtimeAgent[Any] | Handoff[TContext, RealtimeAgent[Any]]] = field(default_factory=list)
    """Agents to which it may hand the call."""

    output_guardrails: list[OutputGuardrail[TContext]] = field(default_factory=list)
    """Output guardrails, which check the text during a reply and at its end."""

    hooks: RealtimeAgentHooks[TContext] | None = None
    """Called at this agent's turning points."""

    def __post_init__(self) -> None:
        check_kinds(self, "RealtimeAgent", _KINDS)

    def clone(self, **changes: Any) -> RealtimeAgent[TContext]:
        """A copy with some fields changed; lists that are not given are shared with this agent."""
        return dataclasses.replace(self, **changes)

    async def get_system_prompt(self, run_context: RunContextWrapper[TContext]) -> str | None:
        """The system prompt for this call."""
        if callable(self.instructions):
            return await maybe_await(self.instructions(run_context, self))
        if self.instructions is not None and not isinstance(self.instructions, str):
            logger.error("the instructions of voice agent %r are neither text nor a function", self.name)
            return None
        return self.instructions

    async def get_session_settings(
        self,
        run_context: RunContextWrapper[TContext] | TContext,
        *,
        base: Mapping[str, Any] | None = None,
        initial: Mapping[str, Any] | None = None,
        attached: bool = False,
    ) -> dict[str, Any]:
        """Resolve the settings of a call with this agent, in the SDK's words: instructions, enabled tools, handoffs.

        `initial` overrides the agent, `base` does not. An `attached` call keeps a prompt of its own.
        """
        wrapper: RunContextWrapper[Any] = wrapper_of(run_context)
        settings: dict[str, Any] = dict(base or {})
        if self.prompt is not None:
            settings["prompt"] = self.prompt
        made = _as_handoffs(self.handoffs)
        instructions, tools, handoffs = await together(
            self.get_system_prompt(wrapper), self.get_all_tools(wrapper), filter_enabled(made, wrapper, self)
        )
        # An attached call keeps the prompt it was accepted with, unless the agent says something.
        if instructions is not None or not attached:
            settings["instructions"] = instructions or ""
        settings["tools"], settings["handoffs"] = tools, handoffs
        if initial is not None:
            settings.update(initial)
            if "tools" in initial:
                settings["tools"] = await filter_enabled(initial["tools"], wrapper, self)
            if "handoffs" in initial:
                settings["handoffs"] = await filter_enabled(_as_handoffs(initial["handoffs"]), wrapper, self)
        settings["tools"] = [tool for tool in settings["tools"] if getattr(tool, "is_enabled", True) is not False]
        _refuse_equal_names(settings["tools"], settings["handoffs"])
        return settings


def _as_handoffs(given: Sequence[Any]) -> list[Handoff[Any, Any]]:
    return [one if isinstance(one, Handoff) else handoff(one) for one in given]


def _refuse_equal_names(tools: list[Any], handoffs: list[Any]) -> None:
    names = [tool.name for tool in tools if called_as_function(tool)] + [one.tool_name for one in handoffs]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UserError(
            f"Duplicate Realtime tool name(s) found: {', '.join(doubled)}",
            "A model calls by name: give each tool and handoff a name of its own.",
        )


_KINDS = {
    "name": (str, "a string"),
    "tools": (list, "a list"),
    "handoffs": (list, "a list"),
    "instructions": INSTRUCTIONS,
}


@overload
def realtime_handoff(
    agent: RealtimeAgent[TContext],
    *,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    is_enabled: ToolEnabled = True,
) -> Handoff[TContext, RealtimeAgent[TContext]]: ...


@overload
def realtime_handoff(
    agent: RealtimeAgent[TContext],
    *,
    on_handoff: OnHandoffWithInput[THandoffInput],
    input_type: type[THandoffInput],
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    is_enabled: ToolEnabled = True,
) -> Handoff[TContext, RealtimeAgent[TContext]]: ...


@overload
def realtime_handoff(
    agent: RealtimeAgent[TContext],
    *,
    on_handoff: OnHandoffWithoutInput,
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    is_enabled: ToolEnabled = True,
) -> Handoff[TContext, RealtimeAgent[TContext]]: ...


def realtime_handoff(
    agent: RealtimeAgent[TContext],
    tool_name_override: str | None = None,
    tool_description_override: str | None = None,
    on_handoff: OnHandoffWithInput[Any] | OnHandoffWithoutInput | None = None,
    input_type: type[Any] | None = None,
    is_enabled: ToolEnabled = True,
) -> Handoff[TContext, RealtimeAgent[TContext]]:
    """A handoff to this agent. There is no input filter: the conversation is on the server."""
    made: Any = handoff
    result: Handoff[TContext, RealtimeAgent[TContext]] = made(
        agent, tool_name_override, tool_description_override, on_handoff, input_type, is_enabled=is_enabled
    )
    return result
