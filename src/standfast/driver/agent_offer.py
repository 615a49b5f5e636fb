"""What an agent brings to a request: its model and settings, its tools and handoffs, its instructions.

What cannot change between turns is resolved once for each agent; `is_enabled` functions, dynamic instructions and MCP
servers are asked again each turn, because they may answer differently.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from standfast.agents.agent import Agent
from standfast.agents.handoffs import Handoff, resolve_handoffs
from standfast.agents.output_type import AgentOutputSchemaBase, output_schema_of
from standfast.driver.run_scope import Live
from standfast.engine.run import Run, evolve
from standfast.ground.errors import UserError
from standfast.llm.interface import Model
from standfast.llm.settings import ModelSettings
from standfast.tools.enabled import enabled
from standfast.tools.function import FunctionTool
from standfast.tools.names import resolve_names


@dataclass(frozen=True, slots=True)
class Offer:
    """Everything of a request but the conversation itself."""

    model: Any
    settings: ModelSettings
    tools: list[Any]
    handoffs: list[Handoff[Any, Any]]
    tools_by_name: dict[str, FunctionTool]
    handoffs_by_name: dict[str, Handoff[Any, Any]]
    schema: AgentOutputSchemaBase | None
    instructions: str | None = None
    prompt: Any = None


async def offer_of(live: Live, run: Run, agent: Any) -> Offer:
    """The agent's offer for the next request."""
    key = ("offer", id(agent))
    fixed: Offer | None = live.cache.get(key)
    if fixed is None:
        fixed = await _resolved(live, agent)
        if _is_fixed(agent):
            live.cache[key] = fixed
    live.cache["current offer"] = (id(agent), fixed)
    instructions, prompt = agent.instructions, None
    if instructions is not None and not isinstance(instructions, str):
        if agent.prompt is not None:
            instructions, prompt = await asyncio.gather(
                agent.get_system_prompt(live.wrapper), agent.get_prompt(live.wrapper)
            )
        else:
            instructions = await agent.get_system_prompt(live.wrapper)
    elif agent.prompt is not None:
        prompt = await agent.get_prompt(live.wrapper)
    settings = fixed.settings
    if agent.reset_tool_choice and settings.tool_choice is not None and any(run.used_by(run.progress.agent)):
        settings = replace(settings, tool_choice=None)  # else a forced tool would be called for ever
    return evolve(fixed, instructions=instructions, prompt=prompt, settings=settings)


async def tools_of(live: Live, run: Run, agent: Any) -> dict[str, FunctionTool]:
    """The agent's tools by name, as last shown to the model, less those that have been disabled since."""
    tools = (await _current(live, agent)).tools_by_name
    asking = [tool for tool in tools.values() if tool.is_enabled is not True]
    if not asking:
        return tools
    still = {id(tool) for tool in await enabled(asking, live.wrapper, agent)}
    return {name: tool for name, tool in tools.items() if tool.is_enabled is True or id(tool) in still}


async def handoffs_of(live: Live, run: Run, agent: Any) -> dict[str, Handoff[Any, Any]]:
    """The agent's handoffs by name, likewise."""
    return (await _current(live, agent)).handoffs_by_name


async def _current(live: Live, agent: Any) -> Offer:
    known = live.cache.get("current offer")
    if known is not None and known[0] == id(agent):
        offer: Offer = known[1]
        return offer
    resolved = await _resolved(live, agent)
    live.cache["current offer"] = (id(agent), resolved)
    return resolved


def _is_fixed(agent: Any) -> bool:
    if agent.mcp_servers:
        return False
    return all(getattr(one, "is_enabled", True) is True for one in (*agent.tools, *agent.handoffs))


async def _resolved(live: Live, agent: Any) -> Offer:
    handoffs = await resolve_handoffs(agent, live.wrapper)
    tools: list[Any] = []
    if agent.tools or agent.mcp_servers or type(agent) is not Agent:  # another class may find its tools elsewhere
        tools = await agent.get_all_tools(live.wrapper)
    if tools or handoffs:
        tools, handoffs = resolve_names(tools, handoffs, live.config.tool_name_collision_policy)
    by_name = {}
    for tool in tools:
        if isinstance(tool, FunctionTool):
            by_name[tool.qualified_name] = by_name[tool.name] = tool
    return Offer(
        model=model_of(live, agent),
        settings=agent.model_settings.resolve(live.config.model_settings),
        tools=tools,
        handoffs=handoffs,
        tools_by_name=by_name,
        handoffs_by_name={one.tool_name: one for one in handoffs},
        schema=output_schema(agent),
    )


def model_of(live: Live, agent: Any) -> Any:
    """The model that answers for this agent: the run's, else the agent's; names go to the run's provider."""
    wanted = live.config.model if live.config.model is not None else agent.model
    if isinstance(wanted, Model) or (wanted is not None and hasattr(wanted, "get_response")):
        return wanted
    if wanted is not None and not isinstance(wanted, str):
        raise UserError(
            f"a {type(wanted).__name__} is not a model", "Give a model's name, or an object with get_response."
        )
    models: dict[Any, Any] = live.cache.setdefault("models", {})
    if wanted not in models:
        models[wanted] = live.provider().get_model(wanted)
    return models[wanted]


def output_schema(agent: Any) -> AgentOutputSchemaBase | None:
    """The agent's output type as a schema; None for plain text."""
    return output_schema_of(agent.output_type)
