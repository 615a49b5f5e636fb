"""Formatting of times, numbers, items and calls, for people and in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from standfast._kits.cli.output import json_text

if TYPE_CHECKING:
    from standfast._kits.operators.run_view import CallView
    from standfast._src.base.json_values import Item
    from standfast._src.items.usage import Usage
    from standfast._src.sessions.records import Record

SPANS = ((86400 * 365, "y"), (86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def span(seconds: float) -> str:
    """A length of time in its largest unit: "2 min"."""
    for size, unit in SPANS:
        if seconds >= size:
            return f"{int(seconds // size):,} {unit}"
    return "0 s"


def age(at: datetime | None, now: datetime | None = None) -> str:
    """Return the age of a time: "2 min ago"; for a future time "in 2 min"."""
    if at is None:
        return "–"
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    if seconds <= -1:
        return f"in {span(-seconds)}"
    return "just now" if seconds < 1 else f"{span(seconds)} ago"


def when(at: datetime | None) -> str:
    """A time to the second, in UTC."""
    return "–" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def number(value: int | None) -> str:
    """Return a number with separated thousands."""
    return "–" if value is None else f"{value:,}"


def several(count: int, one: str, many: str = "") -> str:
    """So many of something: "1 item", "2 items"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


# --- items -----------------------------------------------------------------------------------------------------------


def speaker(item: Item | None) -> str:
    """Return the author of an item: a role, or its kind."""
    if item is None:
        return "corrupt"
    kind = str(item.get("type") or "message")
    if kind == "message" and item.get("role"):
        return str(item["role"])
    return {"function_call": "calls", "function_call_output": "returns"}.get(kind, kind.replace("_", " "))


def words_in(item: Item | None, fault: str | None = None) -> str:
    """Return the words of an item: for a call its tool and arguments, else its text."""
    if item is None:
        return fault or "this record cannot be read"
    if item.get("type") == "function_call":
        return f"{item.get('name')} {item.get('arguments')}"
    from standfast._src.items.item_text import text_of_item

    return text_of_item(item)


def record_fields(session_id: str, record: Record) -> dict[str, Any]:
    """A record in JSON (`standfast.record/1`)."""
    return {
        "session": session_id,
        "cursor": record.cursor,
        "at": record.at,
        "writer": record.writer,
        "number": record.number,
        "replaces": record.replaces,
        "fault": record.fault,
        "item": record.item,
    }


# --- runs and costs --------------------------------------------------------------------------------------------------


def call_fields(call: CallView) -> dict[str, Any]:
    """A call in JSON, as a part of `standfast.run/1`."""
    decision = call.decision
    return {
        "call": call.call_id,
        "tool": call.tool,
        "arguments": call.arguments,
        "prepared_arguments": call.prepared_arguments,
        "state": call.state,
        "turn": call.turn,
        "agent": call.agent,
        "run": call.run_id,
        "reason": call.reason,
        "output": call.output,
        "decision": None
        if decision is None
        else {"approved": decision.approved, "by": decision.by, "at": decision.at, "message": decision.message},
    }


def usage_fields(usage: Usage) -> dict[str, int]:
    """Tokens and requests in JSON."""
    return {
        "requests": usage.requests,
        "input_tokens": usage.input_tokens,
        "cached_tokens": usage.input_tokens_details.cached_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
        "total_tokens": usage.total_tokens,
    }


def tokens(usage: Mapping[str, int]) -> str:
    """Return a cost in a few words, from its fields in JSON: tokens only where there are some."""
    requests = several(usage["requests"], "request")
    return f"{several(usage['total_tokens'], 'token')} in {requests}" if usage["total_tokens"] else requests


def one_line(value: object) -> str:
    """Return any value of a run on one line: a text unchanged, any other value as JSON."""
    return " ".join((value if isinstance(value, str) else json_text(value)).split())
