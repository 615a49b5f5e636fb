"""Contents of a store as JSON for the page: times as ISO texts, and only fields that the page shows.

An id goes twice where it may hold anything: as it is, for the page to ask with, and as `name`, for people to read.
"""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from typing import Any

from standfast._kits.inspector.rendering import indent_json, item_view
from standfast._kits.inspector.timeline import heard_in_words, unheard_text
from standfast._kits.operators.budgets import BudgetView
from standfast._kits.operators.next_steps import next_step_of
from standfast._kits.operators.run_view import CallView, RunView, SpokenView
from standfast._kits.operators.run_worker import STATES_IN_WORDS, RunWorker
from standfast._kits.operators.store import SessionSummary, WaitingCall
from standfast._src.base.safe_text import safe
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.run_store import RunSummary
from standfast._src.sessions.protocol import Generation
from standfast._src.sessions.records import Holder, Origin, Record, RunUsage

Shown = dict[str, Any]
TEXT_MAX = 100_000
"""How much of one text is sent with a page; the whole record is a request of its own."""


ARGUMENTS_MAX = 30_000
"""How long the arguments of a call, with the values its tool gets, may be to be shown whole, and so to be approved.
The decision sends them back, at three bytes a character within the bound on a request."""


def when(at: datetime | None) -> str | None:
    """Return a time as text, or None."""
    return None if at is None else at.isoformat()


def session(one: SessionSummary) -> Shown:
    """Return one line of the listing."""
    return {
        "id": one.session_id,
        "name": safe(one.session_id),
        "created": when(one.created_at),
        "updated": when(one.updated_at),
        "items": one.item_count,
        "words": _name(one.first_words),
        "open_runs": list(one.open_runs),
        "waiting": [waiting(call) for call in one.waiting],
    }


def waiting(one: WaitingCall) -> Shown:
    """Return a call waiting for a person."""
    return {**call(one.call), "run": one.run_id, "since": when(one.since)}


def record(one: Record, *, whole: bool = False) -> Shown:
    """One record of a history; very long texts are cut unless the `whole` is asked for."""
    shortened: list[str] = []
    item: object = one.item
    if not whole:
        try:
            item = _cut(item, shortened)
        except RecursionError:
            item = "(an item that is nested too deeply to be shown)"
    return {
        "cursor": one.cursor,
        "item": item,
        "view": None if item is None else item_view(item),
        "cut": bool(shortened),
        "at": when(one.at),
        "writer": one.writer,
        "writer_name": _name(one.writer),
        "number": one.number,
        "replaces": one.replaces,
        "fault": _name(one.fault),
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
    """Return one call of a run. Arguments too long to be shown whole are not sent: no person may approve a part."""
    decided = one.decision
    is_long = is_too_long(one.arguments, one.prepared_arguments)
    values = None if is_long else one.prepared_arguments
    return {
        "call": one.call_id,
        "tool": safe(one.tool),
        "arguments": None if is_long else one.arguments,
        "prepared_arguments": values,
        "length": len(one.arguments),
        "text": None if is_long else indent_json(one.arguments),
        "values": None if values is None else indent_json(values),
        "state": one.state,
        "turn": one.turn,
        "agent": safe(one.agent),
        "reason": one.reason,
        "output": _cut(one.output, []),
        "decision": None
        if decided is None
        else {
            "approved": decided.approved,
            "by": _name(decided.by),
            "at": when(decided.at),
            "message": _name(decided.message),
        },
    }


def spoken(one: SpokenView) -> Shown:
    """Return the heard and the unheard part of a spoken reply."""
    return {"heard": heard_in_words(one), "unheard": unheard_text(one)}


def is_too_long(arguments: str, prepared: str | None) -> bool:
    """Return True if a call's arguments are too long for the page to show them whole."""
    return len(arguments) + len(prepared or "") > ARGUMENTS_MAX


def next_step(one: RunView, store: str) -> Shown | None:
    """Return the advice of `standfast runs show` about a run, with commands for pasting."""
    step = next_step_of(one, store)
    if step is None:
        return None
    text = f"{step.text[:1].upper()}{step.text[1:]}:"
    return {"text": text, "command": safe(step.command), "give_up": _name(step.give_up)}


def worker(one: RunWorker | None) -> Shown | None:
    """Return the worker of a run, with a state in words."""
    if one is None:
        return None
    name = safe(one.holder) or "A worker that gave no name"
    return {"state": one.state, "text": f"{name} {STATES_IN_WORDS[one.state]}", "until": when(one.until)}


def run(one: RunView, store: str) -> Shown:
    """Return a saved run: activity, open turn, cost, and next step; `store` is the URL for the command."""
    return {
        **run_line(one),
        "doing": safe(one.doing),
        "kind": one.kind,
        "owner": one.owner,
        "turns": one.turns,
        "max_turns": one.max_turns,
        "input": [_cut(item, []) for item in one.input],
        "open_items": [_cut(item, []) for item in one.open_items],
        "open_views": [item_view(item) for item in one.open_items],
        "calls": [call(part) for part in one.calls],
        "usage": usage(one.usage),
        "settled_by": one.settled_by,
        "is_held": one.hold is not None and not one.waiting,
        "worker": worker(one.worker) if one.status == "running" else None,
        "next": next_step(one, store),
    }


def budget(view: BudgetView) -> dict[str, Any]:
    """Budget in the overview; amounts as text."""
    return {
        "id": view.budget_id,
        "name": safe(view.budget_id),
        "period": view.period,
        "limit": None if view.limit is None else view.format(view.limit),
        "amount": None if view.limit is None else str(view.limit),
        "used": view.format(view.used),
        "left": None if view.left is None else view.format(view.left),
        "unknown": view.format(view.unknown) if view.unknown else "",
        "reserved": view.format(view.reserved) if view.held else "",
    }


def run_line(one: RunView | RunSummary) -> Shown:
    """Return one line of a listing of runs."""
    return {
        "id": one.run_id,
        "name": safe(one.run_id),
        "status": one.status,
        "session": one.session_id,
        "session_name": _name(one.session_id),
        "agent": safe(one.agent),
        "created": when(one.created_at),
        "updated": when(one.updated_at),
        "revision": one.revision,
    }


def usage(one: Usage) -> Shown:
    """Tokens."""
    return {"requests": one.requests, "input": one.input_tokens, "output": one.output_tokens, "total": one.total_tokens}


def cost(one: RunUsage, dollars: str | None) -> Shown:
    """Return the cost of a run on a session by turn, with retries, and in money if prices are known."""
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
    return {"id": one.id, "created": when(one.created_at), "items": one.item_count, "by": _name(one.by)}


def holder(one: Holder | None) -> Shown | None:
    """Return the holder of the session."""
    if one is None:
        return None
    return {"name": _name(one.name), "since": when(one.since), "until": when(one.until), "waiting": one.waiting}


def origin(one: Origin | None) -> Shown | None:
    """Return the origin of a fork."""
    if one is None:
        return None
    return {
        "session": one.session_id,
        "name": safe(one.session_id),
        "index": one.index,
        "generation": one.generation,
        "at": when(one.at),
        "by": _name(one.by),
    }


def _name(text: str | None) -> str | None:
    return None if text is None else safe(text)
