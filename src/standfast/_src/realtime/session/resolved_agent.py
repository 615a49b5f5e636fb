"""Resolution of a voice agent: its instructions, tools and handoffs, over the settings of the call (spec 1.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.handoffs import Handoff, handoff
from standfast._src.base.aio import together
from standfast._src.base.errors import UserError
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.machine.wire_format import session_object
from standfast._src.tools.availability import filter_enabled
from standfast._src.tools.function_tool import FunctionTool


@dataclass(frozen=True, slots=True)
class ResolvedVoiceAgent:
    """An agent's settings, tools and handoffs, resolved once for as long as it is current."""

    agent: RealtimeAgent[Any]
    settings: dict[str, Any]
    """The settings in the SDK's words."""
    tools: dict[str, FunctionTool] = field(default_factory=dict)
    handoffs: dict[str, Handoff[Any, Any]] = field(default_factory=dict)

    def session_object(self, *, attached: bool) -> dict[str, Any]:
        """The settings in the wire's words."""
        return session_object(self.settings, attached=attached)


async def resolve(
    agent: RealtimeAgent[Any],
    wrapper: RunContextWrapper[Any],
    *,
    base: Mapping[str, Any],
    initial: Mapping[str, Any] | None,
    tracing_disabled: bool,
    attached: bool = False,
) -> ResolvedVoiceAgent:
    """Resolve an agent; `initial` settings override its own, at entry only."""
    settings: dict[str, Any] = dict(base)
    if agent.prompt is not None:
        settings["prompt"] = agent.prompt
    made = [one if isinstance(one, Handoff) else handoff(one) for one in agent.handoffs]
    instructions, tools, handoffs = await together(
        agent.get_system_prompt(wrapper), agent.get_all_tools(wrapper), filter_enabled(made, wrapper, agent)
    )
    # An attached call keeps the prompt it was accepted with, unless the agent says something.
    if instructions is not None or not attached:
        settings["instructions"] = instructions or ""
    settings["tools"], settings["handoffs"] = tools, handoffs
    if initial is not None:
        settings.update(initial)
        if "tools" in initial:
            settings["tools"] = await filter_enabled(initial["tools"], wrapper, agent)
        if "handoffs" in initial:
            given = [one if isinstance(one, Handoff) else handoff(one) for one in initial["handoffs"]]
            settings["handoffs"] = await filter_enabled(given, wrapper, agent)
    settings["tools"] = [tool for tool in settings["tools"] if getattr(tool, "is_enabled", True) is not False]
    _refuse_equal_names(settings["tools"], settings["handoffs"])
    if tracing_disabled:
        settings["tracing"] = None
    return ResolvedVoiceAgent(
        agent,
        settings,
        {tool.name: tool for tool in settings["tools"] if isinstance(tool, FunctionTool)},
        {one.tool_name: one for one in settings["handoffs"]},
    )


def _refuse_equal_names(tools: list[Any], handoffs: list[Any]) -> None:
    names = [tool.name for tool in tools if isinstance(tool, FunctionTool)] + [one.tool_name for one in handoffs]
    doubled = sorted({name for name in names if names.count(name) > 1})
    if doubled:
        raise UserError(
            f"Duplicate Realtime tool name(s) found: {', '.join(doubled)}",
            "A model calls by name: give each tool and handoff a name of its own.",
        )
