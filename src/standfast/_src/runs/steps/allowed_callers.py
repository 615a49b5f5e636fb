"""Check of the callers in a reply: is each call made by the model itself, or by a known program of it?

With `ProgrammaticToolCallingTool` a provider runs programs of the model's and sends their calls. A call names its
caller. The output of a call by an unknown or ended program, or by a caller that the tool does not allow, would have no
receiver: the reply is refused before any of it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from standfast._src.base.errors import ModelBehaviorError
from standfast._src.base.json_values import Item
from standfast._src.items.fields import read

_CHECK = "Check the Model implementation or its provider."


class Callers:
    """Programs of a conversation, and the allowed callers of tools. Costs nothing without programs."""

    def __init__(
        self, *, tools: Iterable[Any], history: Callable[[], Iterable[Item]] = tuple, is_elsewhere: bool = False
    ) -> None:
        """Take the tools offered to the model. `is_elsewhere`: a server has history absent from this process."""
        self._tools, self._history, self._is_elsewhere = tools, history, is_elsewhere
        self._known: dict[str, bool] | None = None

    def take(self, item: Item) -> None:
        """Take in the next item of a reply; raises ModelBehaviorError if nothing could come of it."""
        kind = str(item.get("type"))
        caller = item.get("caller")
        by_program = read(caller, "type") == "program"
        if kind not in ("program", "program_output") and not by_program:
            return
        if not _offers_programs(self._tools):
            raise ModelBehaviorError(
                f"the model made a {kind} by a program, and its agent lets it write none",
                "Give the agent a ProgrammaticToolCallingTool(), or check the Model implementation.",
            )
        if by_program:
            self._open(kind, read(caller, "caller_id"))
        call_id = item.get("call_id")
        if kind == "program" and not (isinstance(call_id, str) and call_id):
            raise ModelBehaviorError("the model made a program without a call id", _CHECK)
        if kind == "program_output":
            self._open(kind, call_id)
            if item.get("status") not in ("completed", "incomplete") or not isinstance(item.get("result"), str):
                raise ModelBehaviorError("the model's program ended without a status and a result", _CHECK)
        _note(self._programs(), item)

    def _open(self, kind: str, program_id: object) -> None:
        """Raise unless the id names a program that has not ended."""
        has_ended = self._programs().get(program_id) if isinstance(program_id, str) else None
        if has_ended is None and not self._is_elsewhere:
            raise ModelBehaviorError(f"the model made a {kind} of a program that is not in the conversation", _CHECK)
        if has_ended:
            raise ModelBehaviorError(f"the model made a {kind} of a program that has ended", _CHECK)

    def _programs(self) -> dict[str, bool]:
        """Every program of the conversation so far, and whether it has ended."""
        if self._known is None:
            self._known = {}
            for item in self._history():
                _note(self._known, item)
        return self._known


def _note(programs: dict[str, bool], item: Item) -> None:
    """Record a program, or the end of a program, from an item."""
    if item.get("type") == "program":
        programs[str(item.get("call_id"))] = False  # also behind one of its id that has ended
    elif item.get("type") == "program_output" and item.get("status") == "completed":
        programs[str(item.get("call_id"))] = True


def check_allowed(item: Item, tool: Any) -> None:
    """Raise ModelBehaviorError if the tool does not allow the caller of this call; `tool` may be a handoff, or None."""
    kind = read(item.get("caller"), "type")
    caller = {None: "direct", "direct": "direct", "program": "programmatic"}.get(kind)
    allowed = getattr(tool, "allowed_callers", None) or ["direct"]
    if caller not in allowed:
        raise ModelBehaviorError(
            f"tool {item.get('name')!r} was called by {caller or kind!r} and allows only {', '.join(allowed)}",
            "Name the caller in allowed_callers of the tool, or check the Model implementation.",
        )


def _offers_programs(tools: Iterable[Any]) -> bool:
    """Return whether one of these tools lets the model write programs."""
    return any(_wire_type(tool) == "programmatic_tool_calling" for tool in tools)


def _wire_type(tool: Any) -> Any:
    config = getattr(tool, "tool_config", None)
    return config.get("type") if isinstance(config, Mapping) else getattr(tool, "name", None)
