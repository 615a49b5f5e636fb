"""Timeline of one run: its input, each turn with its cost, each call with its outcome, each decision.

For a voice call it shows the heard and unheard parts of replies. A store keeps the time of a stored turn and of a
decision, not of a request. So the times are those of the records, and the time between two rows is the time between two
saves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from standfast._kits.inspector.rendering import View, escape_text, item_view
from standfast._kits.operators.run_view import RunView, SpokenView
from standfast._src.base.safe_text import safe
from standfast._src.sessions.records import Record, RunUsage, sum_usages

Row = dict[str, Any]
TITLE_MAX = 120


def timeline_of(run: RunView, records: Sequence[Record], kept: RunUsage | None) -> list[Row]:
    """Return the rows in order of time; `records` are the run's own, oldest first.

    A `kept` usage is the session's record of the run's costs; without it the run's own record is used.
    """
    requests = kept.requests if kept is not None else run.requests
    rows = _spoken_rows(records, run.spoken) if run.kind == "voice call" else _stored_rows(records, requests)
    for one in run.calls:
        if one.decision is not None and one.decision.at is not None:
            word, who = ("approved" if one.decision.approved else "rejected"), one.decision.by or "a program"
            title = safe(f"{one.tool} was {word} by {who}")
            _insert(rows, _row(word, one.decision.at, title, one.decision.message or ""))
    views = [item_view(item) for item in run.open_items]
    rows += [_row("turn", None, f"Not stored yet: {view['title'][:TITLE_MAX]}", view["text"]) for view in views]
    rows += [_row("waits", run.updated_at, safe(f"{one.tool} waits for a decision")) for one in run.waiting]
    if run.status in ("done", "failed", "cancelled"):
        by = f", closed by run {run.settled_by}" if run.settled_by else ""
        rows.append(_row("end", run.updated_at, safe(run.status + by)))
    return rows


def _stored_rows(records: Sequence[Record], requests: Sequence[Any]) -> list[Row]:
    """Return a row for each record; the first of a reply has its turn's number and cost."""
    replies = Counter(one.turn for one in requests)
    agents = {one.turn: one.agent for one in requests if one.agent is not None and not one.is_nested}
    rows: list[Row] = []
    turn, was_reply, speaker = 0, False, agents.get(1)
    for record in records:
        view = None if record.item is None else item_view(record.item)
        row = _row_of(view, record)
        is_reply = row["kind"] == "turn" or (row["kind"] == "call" and view is not None and view["kind"] != "output")
        if is_reply and not was_reply:
            turn += 1
            if (agent := agents.get(turn, speaker)) != speaker:
                rows.append(_row("handover", record.at, safe(f"Handed over to {agent}")))
                speaker = agent
            row["turn"] = turn
            row["title"] = f"Turn {turn}: {row['title']}"
            used = sum_usages([one.usage for one in requests if one.turn == turn])
            row["tokens"] = used.total_tokens
            again = used.requests - replies[turn]
            if again > 0:
                row["title"] += f" (asked {again} {'time' if again == 1 else 'times'} more)"
        was_reply = is_reply
        rows.append(row)
    return rows


def _spoken_rows(records: Sequence[Record], spoken: Sequence[SpokenView]) -> list[Row]:
    """Return a row for each record of a voice call; a reply says how much of it was heard, and shows the rest."""
    replies = {one.number: one for one in spoken}
    rows: list[Row] = []
    for record in records:
        row = _row_of(None if record.item is None else item_view(record.item), record)
        if row["kind"] == "input":
            row["title"] = "The caller"
        elif record.number is not None and (reply := replies.get(record.number)) is not None:
            row |= {"kind": "heard", "title": f"The agent: {heard_in_words(reply)}", "unheard": unheard_text(reply)}
        rows.append(row)
    return rows


def heard_in_words(reply: SpokenView) -> str:
    """Say how much of a reply was heard."""
    if reply.unheard is None:
        return f"{reply.heard_ms / 1000:.1f} s heard, then refused by a guardrail"
    if reply.heard_ms >= reply.total_ms:
        return f"heard, {reply.total_ms / 1000:.1f} s"
    return f"{reply.heard_ms / 1000:.1f} of {reply.total_ms / 1000:.1f} s heard"


def unheard_text(reply: SpokenView) -> str:
    """Return the part of a reply that was not heard, as the page shows texts."""
    return escape_text(reply.unheard or "")


def _row_of(view: View | None, record: Record) -> Row:
    if view is None:
        return _row("failed", record.at, safe(f"a record that cannot be read: {record.fault or ''}"))
    if view["kind"] == "output":
        failed = view.get("failed")
        return _row(
            "failed" if failed else "call", record.at, f"Output ({failed})" if failed else "Output", view["text"]
        )
    if view["kind"] == "said":
        kind, title = ("input", "Asked") if view["role"] == "user" else ("turn", "Answered")
        return _row(kind, record.at, title, view["text"])
    return _row("call" if view.get("call") else "turn", record.at, view["title"][:TITLE_MAX], view["text"])


def _insert(rows: list[Row], row: Row) -> None:
    """Insert a row behind the last one that is not younger. A call is decided before its turn is stored."""
    behind = [number for number, one in enumerate(rows, 1) if one["at"] is not None and one["at"] <= row["at"]]
    rows.insert(max(behind, default=0), row)


def _row(kind: str, at: datetime | None, title: str, text: str = "") -> Row:
    return {"kind": kind, "at": None if at is None else at.isoformat(), "title": title, "text": text}
