"""Agent resolved for a request: model and settings, tools and handoffs, instructions.

An agent's parts are resolved once, and again after a tool or hook has changed them. `is_enabled` functions, dynamic
instructions, MCP servers and a program's own `get_all_tools` are called each turn, because their answers may change.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from standfast._src.agents.agent import Agent
from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.default_models import get_default_model_settings
from standfast._src.agents.handoffs import Handoff, resolve_handoffs
from standfast._src.agents.hooks import await_both
from standfast._src.agents.output_type import AgentOutputSchemaBase, output_schema_of
from standfast._src.agents.run_config import ToolNameCollisionPolicy
from standfast._src.base.errors import UserError
from standfast._src.base.type_names import describe_type
from standfast._src.models.interface import Model, ModelProvider
from standfast._src.models.model_settings import ModelSettings
from standfast._src.tools.availability import filter_enabled
from standfast._src.tools.hosted_tools import Tool
from standfast._src.tools.local_tool import LocalTool
from standfast._src.tools.tool_names import resolve_names


class ResolvedAgent(NamedTuple):
    """Everything of a request but the conversation itself."""

    model: Any
    """A `Model`, or anything with its methods: an application may bring its own."""
    settings: ModelSettings
    tools: list[Tool]
    handoffs: list[Handoff[Any, Any]]
    tools_by_name: dict[str, LocalTool]
    """The tools that the program runs, by what a call finds them by (`lookup_name`)."""
    handoffs_by_name: dict[str, Handoff[Any, Any]]
    schema: AgentOutputSchemaBase | None
    instructions: str | None = None
    prompt: Any = None


class AgentResolver:
    """Resolver of the agents of one run or call. It remembers the tools last shown to the model."""

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
        self._shown: dict[int, tuple[tuple[Any, ...], ResolvedAgent]] = {}
        """By agent: what it was made of when it was last shown to the model, and what it brought."""
        self._models: dict[str | None, Model] = {}

    async def for_request(self, agent: Agent[Any], *, has_used_tools: bool) -> ResolvedAgent:
        """The agent as the next request shows it."""
        parts = _parts(agent)
        known, resolved = self._shown.get(id(agent), (None, None))
        if resolved is None or known is None or not _are_same(known, parts) or not _is_unchanging(agent):
            # In the SDK's order: a prompt's function may set what a handoff's `is_enabled` then reads.
            tools = await self._tools_of(agent)
            instructions, prompt = await self._resolve_prompts(agent)
            resolved = await self._resolve(agent, tools)
            self._shown[id(agent)] = parts, resolved
        else:
            instructions, prompt = await self._resolve_prompts(agent)
        settings = resolved.settings
        if agent.reset_tool_choice and settings.tool_choice is not None and has_used_tools:
            settings = replace(settings, tool_choice=None)  # else a forced tool would be called for ever
        return resolved._replace(instructions=instructions, prompt=prompt, settings=settings)

    async def _resolve_prompts(self, agent: Agent[Any]) -> tuple[str | None, Any]:
        """Return the agent's instructions and prompt."""
        instructions = agent.instructions
        if instructions is None or isinstance(instructions, str):
            return instructions, None if agent.prompt is None else await agent.get_prompt(self._wrapper)
        if agent.prompt is None:
            return await agent.get_system_prompt(self._wrapper), None
        asked = partial(agent.get_system_prompt, self._wrapper), partial(agent.get_prompt, self._wrapper)
        return await await_both(*asked)

    async def current(self, agent: Agent[Any]) -> ResolvedAgent:
        """The agent as it was last shown to the model, or resolved now after a resume."""
        if id(agent) not in self._shown:
            self._shown[id(agent)] = _parts(agent), await self._resolve(agent, await self._tools_of(agent))
        return self._shown[id(agent)][1]

    async def tools(self, agent: Agent[Any]) -> dict[str, LocalTool]:
        """Return the agent's tools by name, as last shown to the model, without those disabled since."""
        tools = (await self.current(agent)).tools_by_name
        asking = [tool for tool in tools.values() if tool.is_enabled is not True]
        if not asking:
            return tools
        still = {id(tool) for tool in await filter_enabled(asking, self._wrapper, agent)}
        return {name: tool for name, tool in tools.items() if tool.is_enabled is True or id(tool) in still}

    async def _tools_of(self, agent: Agent[Any]) -> list[Tool]:
        # Another class, or a method put on the agent, may find its tools elsewhere.
        if agent.tools or agent.mcp_servers or type(agent) is not Agent or "get_all_tools" in vars(agent):
            return await agent.get_all_tools(self._wrapper)
        return []

    async def _resolve(self, agent: Agent[Any], tools: list[Tool]) -> ResolvedAgent:
        handoffs = await resolve_handoffs(agent, self._wrapper)
        if tools or handoffs:
            tools, handoffs = resolve_names(tools, handoffs, self._collisions)
        by_name: dict[str, LocalTool] = {}
        for tool in tools:
            if isinstance(tool, LocalTool):
                by_name.update(dict.fromkeys(tool.lookup_names(), tool))
        return ResolvedAgent(
            model=self.model_of(agent),
            settings=self._settings_of(agent),
            tools=tools,
            handoffs=handoffs,
            tools_by_name=by_name,
            handoffs_by_name={one.tool_name: one for one in handoffs},
            schema=output_schema_of(agent.output_type),
        )

    def _settings_of(self, agent: Agent[Any]) -> ModelSettings:
        """Return the agent's settings, overridden by the run's. Defaults of the agent's model give way to the run's
        model.
        """
        settings = agent.model_settings
        if self._model is not None and settings == get_default_model_settings(agent.model):
            settings = get_default_model_settings(self._model)
        return settings.resolve(self._settings)

    def model_of(self, agent: Agent[Any]) -> Any:
        """Return the model for this agent: the run's, else the agent's; names are resolved by the run's provider."""
        wanted = self._model if self._model is not None else agent.model
        if hasattr(wanted, "get_response"):  # a Model, or what has its methods
            return wanted
        if wanted is not None and not isinstance(wanted, str):
            raise UserError(
                f"{describe_type(wanted)} is not a model", "Give a model's name, or an object with get_response."
            )
        if wanted not in self._models:
            self._models[wanted] = self._provider().get_model(wanted)
        return self._models[wanted]


def _parts(agent: Agent[Any]) -> tuple[Any, ...]:
    """Return the parts of an offer: another object in any place means a changed agent."""
    return (agent.model, agent.model_settings, agent.output_type, *agent.tools, None, *agent.handoffs)


def _are_same(known: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    # By identity: equal settings may be changed in place later, and comparing tools would compare their functions.
    return len(known) == len(now) and all(one is other for one, other in zip(known, now, strict=True))


def _is_unchanging(agent: Agent[Any]) -> bool:
    if agent.mcp_servers or "get_all_tools" in vars(agent) or type(agent).get_all_tools is not Agent.get_all_tools:
        return False
    return all(getattr(one, "is_enabled", True) is True for one in (*agent.tools, *agent.handoffs))
