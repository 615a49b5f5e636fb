"""Items as parts of turns: author, kind and tool.

The words are those of the OpenAI Agents SDK's `AdvancedSQLiteSession`. A person's message begins a turn, and all items
up to the next one belong to it. Items before the first message are turn 0.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from standfast._src.base.json_values import Item

MAIN = "main"
"""The branch that every session has."""

PREVIEW_CHARACTERS = 100

_CALLS = {
    "tool_call", "function_call", "computer_call", "file_search_call", "web_search_call", "code_interpreter_call",
    "tool_search_call", "custom_tool_call", "mcp_call", "mcp_approval_request", "shell_call", "apply_patch_call",
}  # fmt: skip
_NAMELESS = {
    "computer_call", "file_search_call", "web_search_call", "code_interpreter_call", "shell_call", "apply_patch_call",
}  # fmt: skip
_SEARCHES = {"tool_search_call", "tool_search_output"}


def is_user(item: Item) -> bool:
    """Return True for a person's message, the beginning of a turn."""
    return item.get("role") == "user"


def kind_of(item: Item) -> str:
    """`user`, `assistant`, or the item's type."""
    if item.get("role") in ("user", "assistant"):
        return str(item["role"])
    return str(item.get("type") or "other")


def tool_of(item: Item) -> str | None:
    """Return the tool named by a call or its output, or None."""
    kind, name = item.get("type"), item.get("name")
    if kind in ("mcp_call", "mcp_approval_request") and "server_label" in item:
        parts = [str(part) for part in (item["server_label"], name) if part]
        return ".".join(parts) or None
    if kind in _SEARCHES:
        return "tool_search"
    if kind in _NAMELESS:
        return str(kind)
    if name is None:
        return None
    namespace = item.get("namespace")
    # A namespace that repeats the name is what the provider adds to a tool that has none.
    return str(name) if not namespace or namespace == name else f"{namespace}.{name}"


def turn_numbers(items: Iterable[Item]) -> list[int]:
    """Return the turn of each item."""
    turn, found = 0, []
    for item in items:
        turn += is_user(item)
        found.append(turn)
    return found


def by_turns(items: Sequence[Item]) -> dict[int, list[dict[str, str | None]]]:
    """Return the kinds and tools of each turn's items."""
    found: dict[int, list[dict[str, str | None]]] = {}
    for turn, item in zip(turn_numbers(items), items, strict=True):
        found.setdefault(turn, []).append({"type": kind_of(item), "tool_name": tool_of(item)})
    return found


def tool_uses(items: Sequence[Item]) -> list[tuple[str, int, int]]:
    """Count the calls of each tool in each turn: (tool, count, turn). A search for tools counts by its call."""
    counts: Counter[tuple[int, str | None]] = Counter()
    outputs: Counter[tuple[int, str | None]] = Counter()
    searched: set[int] = set()
    for turn, item in zip(turn_numbers(items), items, strict=True):
        kind = kind_of(item)
        if kind in _CALLS:
            counts[turn, tool_of(item)] += 1
            if kind == "tool_search_call":
                searched.add(turn)
        elif kind == "tool_search_output":
            outputs[turn, tool_of(item)] += 1
    for (turn, tool), count in outputs.items():
        if turn not in searched:
            counts[turn, tool] += count
    ordered = sorted(counts.items(), key=lambda one: (one[0][0], one[0][1] or ""))
    return [(tool, count, turn) for (turn, tool), count in ordered]  # type: ignore[misc]  # None: a call without a name


def preview(content: object, characters: int | None) -> str:
    """Return a message's content as text, cut at this length; other values as JSON."""
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    return text if characters is None or len(text) <= characters else f"{text[:characters]}..."


def says(content: object, words: str) -> bool:
    """Return True if a message's text contains these words, in any case: as a person sees the text, not as it is
    stored.
    """
    parts = [content] if isinstance(content, str) else content if isinstance(content, list) else []
    texts = [part if isinstance(part, str) else part.get("text") for part in parts if isinstance(part, str | dict)]
    return any(words.casefold() in text.casefold() for text in texts if isinstance(text, str))
