"""Decisions of people about calls: they cannot be overridden, and the output of the call keeps them.

A decision with the name of its author cannot be replaced by another author's. And every decision stays with the call's
output, so that an audit can tell long after the end of the run who approved the call.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from standfast._src.base.errors import AlreadyDecidedError
from standfast._src.base.json_values import Item
from standfast._src.runs.engine.append_log import Log, plain
from standfast._src.runs.engine.run import Call, Decision, Entry, Run, evolve

KEY = "decisions"
"""Name in an output's extra for the decisions about its call, and about calls of a nested run."""


def already_decided(run_id: str, call_id: str, decision: Decision) -> AlreadyDecidedError:
    """Build the error with the author, time and outcome of an existing decision."""
    at = None if decision.at is None else datetime.fromtimestamp(decision.at, UTC)
    when = "" if at is None else f" at {at.isoformat(timespec='seconds')}"
    did = "approved" if decision.approved else "rejected"
    return AlreadyDecidedError(
        f"{decision.by or 'somebody'} {did} call {call_id!r} of run {run_id!r}{when}; that stands",
        "Whoever resumes the run goes by it.",
        approved=decision.approved,
        by=decision.by,
        at=at,
    )


def refuse_to_override(run: Run, call: Call, decision: Decision) -> None:
    """Raise if a named person has already decided differently about the call."""
    known = call.decision
    # Without a name it is the decision of the program that holds the state, which may change it until the call runs.
    if known is not None and known.by is not None and known != decision:
        raise already_decided(run.spec.run_id, call.id, known)


def attach_decisions(entries: tuple[Entry, ...], run: Run, call: Call) -> tuple[Entry, ...]:
    """Attach the decisions about a call, and inside it, to the first of its outputs."""
    decided = list(_decided_in(run, call))
    if not decided or not entries:
        return entries
    first = entries[0]
    return (evolve(first, extra={**(first.extra or {}), KEY: decided}), *entries[1:])


def _decided_in(run: Run, call: Call) -> Iterator[Item]:
    if call.decision is not None:
        about: Item = {"call_id": call.id, "tool": call.name, "run_id": run.spec.run_id}
        yield about | {name: value for name, value in plain(call.decision).items() if value is not None}
    if call.child is not None:
        yield from decisions_of(call.child)
        for inner in call.child.calls:
            yield from (
                _decided_in(call.child, inner) if inner.state != "returned" else _attached_decisions(inner.outputs)
            )


def decisions_of(run: Run) -> Iterator[Item]:
    """Yield the decisions about the calls in a run's history, in order."""
    yield from _attached_decisions(tuple(run.ledger))


def _attached_decisions(entries: tuple[Entry, ...]) -> Iterator[Item]:
    for entry in entries:
        if entry.extra is not None:
            yield from entry.extra.get(KEY, ())


def only_decisions(entry: Entry) -> Item | None:
    """Return the extra of a withheld output: its decisions, and nothing of its content."""
    return {KEY: entry.extra[KEY]} if entry.extra is not None and KEY in entry.extra else None


# --- without them ----------------------------------------------------------------------------------------------------


def strip_decisions(run: Run) -> Run:
    """Remove all decisions from a run: each approved call waits again (C16).

    Effects that have happened stay as recorded; only their approvals are left out.
    """
    turn = run.turn
    if turn is not None:
        turn = evolve(turn, calls=tuple(map(strip_call_decisions, turn.calls)))
    # A message that waits is ready without any decision.
    is_waiting = run.spec.message is not None and not run.has_done_something
    progress = evolve(run.progress, is_ready=is_waiting and run.progress.is_ready)
    return evolve(run, progress=progress, turn=turn, ledger=strip_ledger_decisions(run.ledger), decided=Log())


def strip_call_decisions(call: Call) -> Call:
    """Remove all decisions about an open call, and about calls of its nested run."""
    child = None if call.child is None else strip_decisions(call.child)
    if call.kind == "hosted" and any("approve" in entry.item for entry in call.outputs):
        return evolve(call, state="waiting", reason="approval", decision=None, outputs=())  # the output is the answer
    known = evolve(call, decision=None, child=child, outputs=tuple(map(_strip_entry_decisions, call.outputs)))
    if call.decision is None or child is not None or call.state not in ("asked", "waiting"):
        return known
    return evolve(known, state="waiting", reason=call.reason or "approval")


def strip_ledger_decisions(ledger: Log[Entry]) -> Log[Entry]:
    """Remove the decisions from the entries of a ledger."""
    return Log([_strip_entry_decisions(entry) for entry in ledger])


def _strip_entry_decisions(entry: Entry) -> Entry:
    if entry.extra is None or KEY not in entry.extra:
        return entry
    return evolve(entry, extra={name: value for name, value in entry.extra.items() if name != KEY} or None)
