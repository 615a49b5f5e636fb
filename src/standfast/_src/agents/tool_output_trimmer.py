"""Trimming of tool outputs of older turns: a ready-made `RunConfig.call_model_input_filter`.

What a tool said ten questions ago is seldom read again and is paid for with every request. The filter changes what the
model sees; the history keeps every output whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from standfast._src.agents.run_config import CallModelData, ModelInputData
from standfast._src.base.errors import InvalidSettingError
from standfast._src.base.json_values import Item

_READABLE = {"input_text": "text"}
# Of an output in parts only text can be shown in part; an image or a file is left out and counted.


@dataclass
class ToolOutputTrimmer:
    """Replaces long tool outputs before the last `recent_turns` user messages by their beginning.

    Use it as `RunConfig(call_model_input_filter=ToolOutputTrimmer())`.
    """

    recent_turns: int = 2
    """Number of the latest user messages that are kept unchanged, with all items behind them."""

    max_output_chars: int = 500
    """Outputs of up to this many characters are left alone."""

    preview_chars: int = 200
    """Number of characters kept of a longer output."""

    trimmable_tools: str | Iterable[str] | None = None
    """The tools whose outputs may be shortened, by name or by `namespace.name`; None: all."""

    def __post_init__(self) -> None:
        for name, least in (("recent_turns", 1), ("max_output_chars", 1), ("preview_chars", 0)):
            value = getattr(self, name)
            if value < least:
                raise InvalidSettingError(f"{name} is {value}", f"Give {least} or more.")
        tools: Any = self.trimmable_tools
        if isinstance(tools, bytes):
            raise InvalidSettingError("trimmable_tools is bytes", "Give a tool's name, or several names.")
        if tools is not None:
            self.trimmable_tools = frozenset({tools} if isinstance(tools, str) else tools)

    def __call__(self, data: CallModelData[Any]) -> ModelInputData:
        """Return the model's input with older outputs trimmed."""
        seen = data.model_data
        boundary = self._boundary(seen.input)
        names = _names_of_calls(seen.input)
        items = [self._trim_item(item, names) if place < boundary else item for place, item in enumerate(seen.input)]
        return ModelInputData(items, seen.instructions)

    def _boundary(self, items: Sequence[Item]) -> int:
        """Return the place where the recent turns begin; 0 if there are fewer user messages."""
        asked = [place for place, item in enumerate(items) if isinstance(item, dict) and item.get("role") == "user"]
        return asked[-self.recent_turns] if len(asked) >= self.recent_turns else 0

    def _trim_item(self, item: Item, names: Mapping[str, tuple[str, ...]]) -> Item:
        if not isinstance(item, dict):
            return item
        kind = item.get("type")
        if kind not in ("function_call_output", "tool_search_output"):
            return item
        own = ("tool_search",) if kind == "tool_search_output" else ()
        called = names.get(str(item.get("call_id") or item.get("id") or ""), own)
        wanted: Any = self.trimmable_tools
        if wanted is not None and not any(name in wanted for name in called):
            return item
        if kind == "tool_search_output":
            return self._with_shorter_tools(item)
        output = item.get("output", "")
        shorter = self._of_parts(output, called) if isinstance(output, list) else self._of_text(str(output), called)
        return item if shorter is None else {**item, "output": shorter}

    def _of_text(self, text: str, called: tuple[str, ...]) -> str | None:
        if len(text) <= self.max_output_chars:
            return None
        name = called[0] if called else "unknown_tool"
        head = f"[Trimmed: {name} output — {len(text)} chars → {self.preview_chars} char preview]"
        shorter = f"{head}\n{text[: self.preview_chars]}..."
        return shorter if len(shorter) < len(text) else None

    def _of_parts(self, parts: list[Any], called: tuple[str, ...]) -> str | None:
        """Convert an overlong output in parts to a text, never longer than the limit."""
        size, texts, dropped = 0, [], 0
        for part in parts:
            if not isinstance(part, dict) or part.get("type") not in ("input_text", "input_image", "input_file"):
                return None  # what is not known is not cut
            size += sum(len(value) for name, value in part.items() if name != "type" and isinstance(value, str))
            if part["type"] in _READABLE:
                texts.append(str(part.get("text", "")))
            else:
                dropped += 1
        if size <= self.max_output_chars:
            return None
        kept = "\n".join(texts)[: min(self.preview_chars, max(0, self.max_output_chars - len("[Trimmed]\n")))]
        name = called[0] if called else "unknown_tool"
        note = f"; dropped {dropped} opaque" if dropped else ""
        heads = (f"[Trimmed: {name}; payload {size}{note}]", f"[Trimmed{note}]", "[Trimmed]")
        body = f"\n{kept}" if kept else ""
        fitting = (head + body for head in heads if len(head) + len(body) <= self.max_output_chars)
        return next(fitting, "[Trimmed]"[: self.max_output_chars])

    def _with_shorter_tools(self, item: Item) -> Item:
        """Remove prose from the schemas of found tools; a model can call them without it."""
        tools = item.get("tools")
        if not isinstance(tools, list) or len(json.dumps(tools)) <= self.max_output_chars:
            return item
        return {**item, "tools": [_without_prose(tool) for tool in tools]}


def _names_of_calls(items: Iterable[Any]) -> dict[str, tuple[str, ...]]:
    """Map call ids to the names of the called tool: with its namespace, if any, and without."""
    found: dict[str, tuple[str, ...]] = {}
    for item in items:
        match item:
            case {"type": "function_call", "call_id": str(call_id), "name": str(name)}:
                space = item.get("namespace")
                found[call_id] = (f"{space}.{name}", name) if space else (name,)
            case {"type": "tool_search_call"}:
                found[str(item.get("call_id") or item.get("id") or "")] = ("tool_search",)
    return found


_PROSE = frozenset({"description", "title", "$comment", "examples"})
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})


def _without_prose(value: object, *, names: bool = False) -> object:
    """A tool or schema without its prose; below `properties` the keys are names, not keywords."""
    if isinstance(value, list):
        return [_without_prose(one) for one in value]
    if not isinstance(value, dict):
        return value
    kept = value.items() if names else [(key, one) for key, one in value.items() if key not in _PROSE]
    return {key: _without_prose(one, names=not names and key in _NAMED) for key, one in kept}
