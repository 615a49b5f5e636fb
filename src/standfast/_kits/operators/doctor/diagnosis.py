"""Diagnosis of a session: a pure function of its sight at one instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from standfast._kits.operators.doctor.findings import Finding, build_finding
from standfast._src.base.json_values import CorruptJSON, Item, decode, decode_many
from standfast._src.items.history import CUT_REASONING, NO_CALL, NO_FOLLOWER, NO_OUTPUT, NO_PROGRAM
from standfast._src.items.repair import SECOND_COPY, judge
from standfast._src.sessions.rules.generations import next_number
from standfast._src.sessions.rules.history import (
    GENERATIONS,
    LEASE,
    SEALED,
    SEALED_ROW,
    UNOPENED,
    as_time,
    fault_of,
    value_of,
)
from standfast._src.sessions.rules.leases import lease_state_in, open_runs_in
from standfast._src.sessions.rules.record_repair import Chain, Removed, Repair
from standfast._src.sessions.storage import Name, Range, ReadAnswer, Row

CLOCK_SLACK_S = 60.0
# Clocks of machines that keep time differ by less; so do rows whose times are whole seconds.

LONG_TTL_S = 3600.0
# Leases of ours are for a minute and are renewed; a longer one without renewal blocks other workers.

KIND_OF = {
    NO_OUTPUT: "call_without_output",
    NO_CALL: "output_without_call",
    NO_FOLLOWER: "cut_reasoning",
    CUT_REASONING: "cut_reasoning",
    NO_PROGRAM: "call_without_output",
    SECOND_COPY: "second_copy",
}
"""Which kind of finding each reason is."""

CORRUPT = "corrupt_record"


class Diagnosis(NamedTuple):
    """Findings about a session, and the necessary changes to its rows."""

    findings: list[Finding]
    order: list[int]
    """The places of the rows that stay, in the order in which they are to stand."""
    leaving: dict[int, str]
    """The places of those that leave, with the kind of finding that each is."""
    is_sealed: bool
    has_foreign_rows: bool
    """Whether another program has written to it."""
    lease_number: int = 0


def diagnose(name: Name, sight: ReadAnswer, now: float, is_gone: Callable[[str], bool]) -> Diagnosis:
    """Diagnose a session from its whole sight."""
    rows = sight.rows[0]
    found: list[Finding] = []
    is_sealed = any(cell.value.startswith(SEALED) for cell in sight.cells.values()) or any(
        row.data.startswith(SEALED_ROW) for row in rows
    )
    if is_sealed:
        found.append(_build_finding(name, "sealed_session"))
        order, leaving = list(range(len(rows))), dict[int, str]()
    else:
        order, leaving = _judge_rows(name, rows, found)
    found += _times(name, sight, now)
    found += _lease(name, sight, now, is_gone)
    number = lease_state_in(sight).number
    return Diagnosis(found, order, leaving, is_sealed, any(row.tag is None for row in rows), number)


def _build_finding(name: Name, kind: str, detail: str = "", index: int | None = None) -> Finding:
    where = f"session {name.id!r}" if index is None else f"session {name.id!r}, record {index}"
    return build_finding(kind, where, detail, session_id=name.id, index=index)


def _judge_rows(name: Name, rows: Sequence[Row], found: list[Finding]) -> tuple[list[int], dict[int, str]]:
    """Return the rows to keep, in order, and the rows to remove with the reason; append to `found`."""
    places: Sequence[int] = range(len(rows))
    leaving: dict[int, str] = {}
    try:
        items = decode_many([row.data for row in rows])
    except CorruptJSON:
        places, items = [], []
        for place, row in enumerate(rows):
            fault = fault_of(row)
            if row.data.startswith(UNOPENED):
                found.append(_build_finding(name, "unopened_record", index=place))
                fault, item = "", dict[str, Any]()  # it stays, and its type cannot be known
            elif fault:
                leaving[place] = CORRUPT
                found.append(_build_finding(name, CORRUPT, fault, place))
            else:
                item = decode(row.data)
            if not fault:
                places.append(place)
                items.append(item)
    verdict = judge(items)
    for number, reason in sorted(verdict.leaving.items()):
        kind = leaving[places[number]] = KIND_OF[reason]
        found.append(_build_finding(name, kind, _describe_item(items[number]), places[number]))
    return [places[number] for number in verdict.order], leaving


def _describe_item(item: Item) -> str:
    """Describe the item in a few words without its contents."""
    named = item.get("name") or item.get("role") or item.get("type") or "item"
    known = item.get("call_id") or item.get("id")
    return f"{named} {known}" if known else str(named)


def _times(name: Name, sight: ReadAnswer, now: float) -> list[Finding]:
    found: list[Finding] = []
    times = sight.times[0]
    newest = max((at for at in (sight.created, sight.updated, *times) if at is not None), default=None)
    if newest is not None and newest > now + CLOCK_SLACK_S:
        found.append(_build_finding(name, "clock_ahead", as_time(newest).isoformat(timespec="seconds")))
    if value_of(sight, GENERATIONS) is not None:
        return found  # rows were moved, and may have the times of that
    latest = 0.0
    for place, at in enumerate(times):
        if at is None:
            continue
        if at < latest - CLOCK_SLACK_S:
            found.append(_build_finding(name, "clock_back", f"by {latest - at:.0f} s", place))
            break  # one is enough: everything behind it was written by the same clock
        latest = max(latest, at)
    return found


def number_went_back(name: Name, number: int, known: int) -> list[Finding]:
    """A finding where a session's lease has a lower number than is known to have been given out."""
    return [_build_finding(name, "numbers_went_back", f"{number}, and it was {known}")] if number < known else []


def _lease(name: Name, sight: ReadAnswer, now: float, is_gone: Callable[[str], bool]) -> list[Finding]:
    held = lease_state_in(sight)
    # A run is saved under a lease that was taken before: no run can know a number that the session has not had.
    known = max((one.lease_number for one in open_runs_in(sight)), default=0)
    return number_went_back(name, held.number, known) + _stuck_lease(name, sight, now, is_gone)


def _stuck_lease(name: Name, sight: ReadAnswer, now: float, is_gone: Callable[[str], bool]) -> list[Finding]:
    value = value_of(sight, LEASE)
    held = lease_state_in(sight)
    if value is None or not held.ttl_s:
        return []
    if held.since > now + CLOCK_SLACK_S:
        since = as_time(held.since).isoformat(timespec="seconds")
        return [_build_finding(name, "clock_ahead", f"its lease was renewed at {since}")]
    if held.is_over(now):
        return []
    silent = now - held.since
    if is_gone(held.process) or (held.ttl_s > LONG_TTL_S and silent > LONG_TTL_S):
        left = held.ttl_s - silent
        return [_build_finding(name, "stuck_lease", f"{held.holder or 'unnamed'}, for another {left:.0f} s")]
    return []


# --- what to do about it ---------------------------------------------------------------------------------------------


def plan_repair(repair_id: str, sight: ReadAnswer, diagnosis: Diagnosis) -> Repair:
    """Build the repair of a session from its sight, with everything needed for an undo."""
    rows, order = sight.rows[0], diagnosis.order
    leaving = dict(diagnosis.leaving)
    moved = _find_displaced(order)
    for number in moved:  # it leaves its own place for that of an earlier copy
        leaving[order[number]] = "second_copy"
    repaired = [rows[place].data for place in order]
    chain, numbers = Chain(repaired), {place: number for number, place in enumerate(order)}
    removed: list[Removed] = []
    before = 0
    for place, row in enumerate(rows):
        if place in leaving:
            follower = Chain(repaired[before : before + 1]).upto(1) if before < len(repaired) else ""
            removed.append(Removed(row, leaving[place], before, chain.upto(before), follower))
        else:
            before = numbers[place] + 1
    # The last range: an encrypted session may have rows behind that are too old to be shown.
    parts = (*_ranges(rows, order), Range(0, rows[-1].ref)) if moved else ()
    return Repair(
        repair_id,
        sight.mark,
        value_of(sight, GENERATIONS),
        value_of(sight, LEASE),
        next_number(sight),
        tuple(removed),
        parts,
        tuple(moved),
    )


def _find_displaced(order: Sequence[int]) -> list[int]:
    """Find the rows in an order that precede a row of an earlier place."""
    found: list[int] = []
    lowest: int | None = None
    for number in range(len(order) - 1, -1, -1):
        if lowest is not None and order[number] > lowest:
            found.append(number)
        else:
            lowest = order[number]
    return found[::-1]


def _ranges(rows: Sequence[Row], order: Sequence[int]) -> list[Range]:
    """Return the rows of these places, in order, as few ranges as possible."""
    found: list[Range] = []
    last = -2
    for place in order:
        if place == last + 1:
            found[-1] = found[-1]._replace(upto=rows[place].ref)
        else:
            found.append(Range(0, rows[place - 1].ref if place else None, rows[place].ref))
        last = place
    return found
