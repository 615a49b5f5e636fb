"""What an agent brings to a request: its model and settings, its tools and handoffs, its instructions.

What cannot change between turns is resolved once for each agent; `is_enabled` functions, dynamic instructions and MCP
servers are asked again each turn, because they may answer differently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from standfast.agents.agent import Agent
from standfast.agents.context import RunContextWrapper
from standfast.agents.handoffs import Handoff, resolve_handoffs
from standfast.agents.output_type import AgentOutputSchemaBase, output_schema_of
from standfast.agents.run_config import ToolNameCollisionPolicy
from standfast.engine.run import evolve
from standfast.ground.errors import UserError
from standfast.llm.interface import Model, ModelProvider
from standfast.llm.settings import ModelSettings
from standfast.tools.enabled import enabled
from standfast.tools.function import FunctionTool
from standfast.tools.hosted import Tool
from standfast.tools.names import resolve_names


@dataclass(frozen=True, slots=True)
class ResolvedAgent:
    """Everything of a request but the conversation itself."""

    model: Any
    """A `Model`, or anything with its methods: an application may bring its own."""
    settings: ModelSettings
    tools: list[Tool]
    handoffs: list[Handoff[Any, Any]]
    tools_by_name: dict[str, FunctionTool]
    handoffs_by_name: dict[str, Handoff[Any, Any]]
    schema: AgentOutputSchemaBase | None
    instructions: str | None = None
    prompt: Any = None


class AgentResolver:
    """Resolves the agents of one run or call, and remembers what was last shown to the model."""

    def __init__(
        self,
        wrapper: RunContextWrapper[Any],
        provider: Callable[[], ModelProvider],
        *,
        collisions: ToolNameCollisionPolicy = "warn",
        model: str | Model | None = None,
        settings: ModelSettings | None = None,
    ) -> None:
        self._wrapper, self._provider = wrapper, provider
        self._collisions, self._model, self._settings = collisions, model, settings
        self._unchanging: dict[int, ResolvedAgent] = {}
        self._current: tuple[int, ResolvedAgent] | None = None
        self._models: dict[str | None, Model] = {}

    async def for_request(self, agent: Agent[Any], *, has_used_tools: bool) -> ResolvedAgent:
        """The agent as the next request shows it."""
        resolved = self._unchanging.get(id(agent))
        if resolved is None:
            resolved = await self._resolve(agent)
            if _is_unchanging(agent):
                self._unchanging[id(agent)] = resolved
        self._current = (id(agent), resolved)
        instructions, prompt = agent.instructions, None
        if instructions is not None and not isinstance(instructions, str):
            if agent.prompt is None:
                instructions = await agent.get_system_prompt(self._wrapper)
            else:
                both = (agent.get_system_prompt(self._wrapper), agent.get_prompt(self._wrapper))
                instructions, prompt = await asyncio.gather(*both)
        elif agent.prompt is not None:
            prompt = await agent.get_prompt(self._wrapper)
        settings = resolved.settings
        if agent.reset_tool_choice and settings.tool_choice is not None and has_used_tools:
            settings = replace(settings, tool_choice=None)  # else a forced tool would be called for ever
        return evolve(resolved, instructions=instructions, prompt=prompt, settings=settings)

    async def current(self, agent: Agent[Any]) -> ResolvedAgent:
        """The agent as it was last shown to the model, or resolved now after a resume."""
        if self._current is None or self._current[0] != id(agent):
            self._current = (id(agent), await self._resolve(agent))
        return self._current[1]

    async def tools(self, agent: Agent[Any]) -> dict[str, FunctionTool]:
        """The agent's tools by name, as last shown to the model, less those that have been disabled since."""
        tools = (await self.current(agent)).tools_by_name
        asking = [tool for tool in tools.values() if tool.is_enabled is not True]
        if not asking:
            return tools
        still = {id(tool) for tool in await enabled(asking, self._wrapper, agent)}
        return {name: tool for name, tool in tools.items() if tool.is_enabled is True or id(tool) in still}

    async def _resolve(self, agent: Agent[Any]) -> ResolvedAgent:
        handoffs = await resolve_handoffs(agent, self._wrapper)
        tools: list[Tool] = []
        if agent.tools or agent.mcp_servers or type(agent) is not Agent:  # another class may find its tools elsewhere
            tools = await agent.get_all_tools(self._wrapper)
        if tools or handoffs:
            tools, handoffs = resolve_names(tools, handoffs, self._collisions)
        by_name = {}
        for tool in tools:
            if isinstance(tool, FunctionTool):
                by_name[tool.qualified_name] = by_name[tool.name] = tool
        return ResolvedAgent(
            model=self._model_of(agent),
            settings=agent.model_settings.resolve(self._settings),
            tools=tools,
            handoffs=handoffs,
            tools_by_name=by_name,
            handoffs_by_name={one.tool_name: one for one in handoffs},
            schema=output_schema_of(agent.output_type),
        )

    def _model_of(self, agent: Agent[Any]) -> Any:
        """The model that answers for this agent: the run's, else the agent's; names go to the run's provider."""
        wanted = self._model if self._model is not None else agent.model
        if isinstance(wanted, Model) or hasattr(wanted, "get_response"):
            return wanted
        if wanted is not None and not isinstance(wanted, str):
            raise UserError(
                f"a {type(wanted).__name__} is not a model", "Give a model's name, or an object with get_response."
            )
        if wanted not in self._models:
            self._models[wanted] = self._provider().get_model(wanted)
        return self._models[wanted]


def _is_unchanging(agent: Agent[Any]) -> bool:
    if agent.mcp_servers:
        return False
    return all(getattr(one, "is_enabled", True) is True for one in (*agent.tools, *agent.handoffs))
