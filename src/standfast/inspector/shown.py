"""What a store holds, as the page is sent it: plain JSON, times as ISO texts, nothing that is not shown."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from standfast.engine.run_store import RunSummary
from standfast.operators.run_view import CallView, RunView
from standfast.operators.store import SessionSummary, WaitingCall
from standfast.sessions.protocol import Generation
from standfast.sessions.records import Holder, Origin, Record, RunUsage
from standfast.words.usage import Usage

Shown = dict[str, Any]
TEXT_MAX = 100_000
"""How much of one text is sent with a page; the whole record is a request of its own."""


def when(at: datetime | None) -> str | None:
    """A time, or that there is none."""
    return None if at is None else at.isoformat()


def session(one: SessionSummary) -> Shown:
    """One line of the listing."""
    return {
        "id": one.session_id,
        "created": when(one.created_at),
        "updated": when(one.updated_at),
        "items": one.item_count,
        "words": one.first_words,
        "open_runs": list(one.open_runs),
        "waiting": [waiting(call) for call in one.waiting],
    }


def waiting(one: WaitingCall) -> Shown:
    """A call that waits for a person."""
    return {**call(one.call), "run": one.run_id, "since": when(one.since)}


def record(one: Record, *, whole: bool = False) -> Shown:
    """One record of a history; very long texts are cut unless the `whole` is asked for."""
    shortened: list[str] = []
    item = one.item if whole or one.item is None else _cut(one.item, shortened)
    return {
        "cursor": one.cursor,
        "item": item,
        "cut": bool(shortened),
        "at": when(one.at),
        "writer": one.writer,
        "number": one.number,
        "replaces": one.replaces,
        "fault": one.fault,
    }


def _cut(value: object, shortened: list[str]) -> object:
    if isinstance(value, str) and len(value) > TEXT_MAX:
        shortened.append("")
        return value[:TEXT_MAX]
    if isinstance(value, dict):
        return {key: _cut(part, shortened) for key, part in value.items()}
    if isinstance(value, list):
        return [_cut(part, shortened) for part in value]
    return value


def call(one: CallView) -> Shown:
    """One call of a run."""
    decided = one.decision
    return {
        "call": one.call_id,
        "tool": one.tool,
        "arguments": one.arguments[:TEXT_MAX],
        "state": one.state,
        "turn": one.turn,
        "agent": one.agent,
        "reason": one.reason,
        "output": _cut(one.output, []),
        "decision": None
        if decided is None
        else {
            "approved": decided.approved,
            "by": decided.by,
            "at": when(decided.at),
            "message": decided.message,
        },
    }


def run(one: RunView) -> Shown:
    """A saved run: what it does, its open turn and what it has cost."""
    return {
        **run_line(one),
        "doing": one.doing,
        "kind": one.kind,
        "owner": one.owner,
        "turns": one.turns,
        "max_turns": one.max_turns,
        "input": [_cut(item, []) for item in one.input],
        "open_items": [_cut(item, []) for item in one.open_items],
        "calls": [call(part) for part in one.calls],
        "usage": usage(one.usage),
        "settled_by": one.settled_by,
    }


def run_line(one: RunView | RunSummary) -> Shown:
    """One line of a listing of runs."""
    return {
        "id": one.run_id,
        "status": one.status,
        "session": one.session_id,
        "agent": one.agent,
        "created": when(one.created_at),
        "updated": when(one.updated_at),
        "revision": one.revision,
    }


def usage(one: Usage) -> Shown:
    """Tokens."""
    return {"requests": one.requests, "input": one.input_tokens, "output": one.output_tokens, "total": one.total_tokens}


def cost(one: RunUsage, dollars: str | None) -> Shown:
    """What a run on a session has cost, by turn, and how often a turn asked again; in money where it is known."""
    replies = Counter(request.turn for request in one.requests)
    return {
        "run": one.run_id,
        "at": when(one.at),
        "dollars": dollars,
        "total": usage(one.total),
        "turns": [
            {"turn": number, **usage(part), "retries": max(0, part.requests - replies[number])}
            for number, part in one.turns.items()
        ],
        "models": sorted({request.model for request in one.requests if request.model}),
    }


def generation(one: Generation) -> Shown:
    """A replaced part of a history that is kept."""
    return {"id": one.id, "created": when(one.created_at), "items": one.item_count, "by": one.by}


def holder(one: Holder | None) -> Shown | None:
    """Who has the session."""
    if one is None:
        return None
    return {"name": one.name, "since": when(one.since), "until": when(one.until), "waiting": one.waiting}


def origin(one: Origin | None) -> Shown | None:
    """Where a fork came from."""
    if one is None:
        return None
    at = when(one.at)
    return {"session": one.session_id, "index": one.index, "generation": one.generation, "at": at, "by": one.by}
