"""Names of tools: valid for a provider, and unique.

A model calls by name, so only one of two tools with equal names can be meant. A handoff beats a tool, and otherwise the
later one wins, as in the SDK; the losers are not shown to the model. The policy "error" refuses instead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal, Protocol, TypeVar

from standfast._src.base.errors import InvalidSettingError, UserError
from standfast._src.base.logs import logger
from standfast._src.tools.local_tool import called_as_function

H = TypeVar("H", bound="NamedTool")
T = TypeVar("T")

NameCollisionPolicy = Literal["warn", "error"]


class NamedTool(Protocol):
    """Attributes of a handoff needed here."""

    @property
    def tool_name(self) -> str:
        """The name the model calls."""
        ...


def function_style(name: str) -> str:
    """A name as a function would have it: lower case, with underscores for everything a provider refuses.

    A warning says so where more than blanks had to be replaced: two such names may have become one.
    """
    blanks = name.replace(" ", "_")
    style = re.sub(r"[^a-zA-Z0-9_]", "_", blanks)
    if style != blanks:
        logger.warning(
            "tool name %r has characters that no function may have and becomes %r; use letters, digits and underscores",
            name,
            style.lower(),
        )
    return style.lower()


def resolve_names(
    tools: Sequence[T], handoffs: Sequence[H], policy: NameCollisionPolicy = "warn"
) -> tuple[list[T], list[H]]:
    """Return the tools and handoffs with unique names, in their order.

    Hosted tools have no names of their own and are all kept. Raises UserError under the policy "error".
    """
    if policy not in ("warn", "error"):
        raise InvalidSettingError(f"{policy!r} is no policy for equal names", "Choose 'warn' or 'error'.")
    functions = [tool for tool in tools if called_as_function(tool)]
    winners: dict[str, object] = {tool.qualified_name: tool for tool in functions}
    winners.update({handoff.tool_name: handoff for handoff in handoffs})
    if len(winners) == len(functions) + len(handoffs):
        return list(tools), list(handoffs)
    _complain(tools, handoffs, policy)
    kept = {id(winner) for winner in winners.values()}
    return (
        _once([tool for tool in tools if not called_as_function(tool) or id(tool) in kept]),
        _once([handoff for handoff in handoffs if id(handoff) in kept]),
    )


def _once(candidates: list[T]) -> list[T]:
    """Keep each object once, at its last place: a tool listed twice is one tool."""
    last = {id(candidate): index for index, candidate in enumerate(candidates)}
    return [candidate for index, candidate in enumerate(candidates) if last[id(candidate)] == index]


def _complain(tools: Sequence[object], handoffs: Sequence[NamedTool], policy: NameCollisionPolicy) -> None:
    names = [tool.qualified_name for tool in tools if called_as_function(tool)]
    names += [handoff.tool_name for handoff in handoffs]
    doubled = ", ".join(sorted({name for name in names if names.count(name) > 1}))
    if policy == "error":
        raise UserError(
            f"more than one tool or handoff is called {doubled}",
            "Give them different names, or set tool_name_collision_policy='warn' to let the last one win.",
        )
    logger.warning("more than one tool or handoff is called %s; a handoff wins, else the last one", doubled)
