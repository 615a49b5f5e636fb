"""Resolution of a voice agent: its instructions, tools and handoffs, over the settings of the call (spec 1.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.handoffs import Handoff
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.machine.wire_format import session_object
from standfast._src.tools.local_tool import LocalTool, called_as_function


@dataclass(frozen=True, slots=True)
class ResolvedVoiceAgent:
    """An agent's settings, tools and handoffs, resolved once for as long as it is current."""

    agent: RealtimeAgent[Any]
    settings: dict[str, Any]
    """The settings in the SDK's words."""
    tools: dict[str, LocalTool] = field(default_factory=dict)
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
    settings = await agent.get_session_settings(wrapper, base=base, initial=initial, attached=attached)
    if tracing_disabled:
        settings["tracing"] = None
    return ResolvedVoiceAgent(
        agent,
        settings,
        {tool.name: tool for tool in settings["tools"] if called_as_function(tool)},
        {one.tool_name: one for one in settings["handoffs"]},
    )
