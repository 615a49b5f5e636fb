"""Prompts kept by a provider: named by id, with a version and variables, given as data or made by a function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

from standfast._src.agents.context import AnyAgent, NamedAgent, RunContextWrapper
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import UserError


class Prompt(TypedDict):
    """A prompt in the provider's library."""

    id: str
    version: NotRequired[str]
    variables: NotRequired[dict[str, Any]]


@dataclass
class GenerateDynamicPromptData:
    """Argument of a function that chooses a prompt."""

    context: RunContextWrapper[Any]
    agent: AnyAgent


DynamicPromptFunction = Callable[[GenerateDynamicPromptData], "Prompt | Awaitable[Prompt]"]
"""Chooses the prompt of a turn."""


async def resolve_prompt(
    prompt: Prompt | DynamicPromptFunction | None, context: RunContextWrapper[Any], agent: NamedAgent
) -> dict[str, Any] | None:
    """Return the prompt in the form for a model: id, version and variables."""
    if prompt is None:
        return None
    found: Any = prompt
    if callable(prompt):
        found = await maybe_await(prompt(GenerateDynamicPromptData(context=context, agent=agent)))
    if not isinstance(found, dict) or not found.get("id"):
        raise UserError(f"the prompt of agent {agent.name!r} names none", "Give a dict with the id of a prompt.")
    return {"id": found["id"], "version": found.get("version"), "variables": found.get("variables")}


class PromptUtil:
    """The SDK's name for the resolution of prompts."""

    @staticmethod
    async def to_model_input(
        prompt: Prompt | DynamicPromptFunction | None, context: RunContextWrapper[Any], agent: NamedAgent
    ) -> dict[str, Any] | None:
        """Return the prompt in the form for a model: id, version and variables."""
        return await resolve_prompt(prompt, context, agent)
