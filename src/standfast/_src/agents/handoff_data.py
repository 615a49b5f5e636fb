"""Input and result of a handoff filter: the next agent's view of the conversation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from standfast._src.agents.context import RunContextWrapper
from standfast._src.base.json_values import Item
from standfast._src.items.items import RunItem


@dataclass(frozen=True)
class HandoffInputData:
    """The next agent's view of the conversation, for a filter to change."""

    input_history: str | tuple[Item, ...]
    """The input of the run, or the view after an earlier handoff."""

    pre_handoff_items: tuple[RunItem, ...]
    """Items between the input and the turn of the handoff."""

    new_items: tuple[RunItem, ...]
    """The turn of the handoff, with the handoff call and its output."""

    run_context: RunContextWrapper[Any] | None = None
    """The context of the run."""

    input_items: tuple[RunItem, ...] | None = None
    """If set, the next agent sees these in place of `new_items`, and the history still keeps `new_items`."""

    def clone(self, **kwargs: Any) -> HandoffInputData:
        """A copy with some fields changed."""
        return replace(self, **kwargs)


HandoffInputFilter: TypeAlias = Callable[[HandoffInputData], HandoffInputData | Awaitable[HandoffInputData]]
"""Changes what the next agent sees."""

HandoffHistoryMapper: TypeAlias = Callable[[list[Item]], list[Item]]
"""From a transcript to the items that stand for it when history is nested."""
