"""Budgets shared by processes: reserved and settled by additions to cells of the store (F10).

A budget is a separate name with a sum for each period: spent plus reserved. A run has a cell on the budget with its
reservation and the totals added so far. A step adds the difference between the run's totals and the cell: a repeated
step changes nothing. The bound applies only to a rising reservation: a cost is added even above the limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from standfast._src.base.errors import CorruptRecordError, InvalidNameError
from standfast._src.runs.engine.run_store import BUDGET_RUNS, SavableRecord
from standfast._src.sessions.rules.history import BUDGET, commit, decode_cell, look, value_of
from standfast._src.sessions.storage import (
    Addition,
    CommitRequest,
    Done,
    KeyUpdate,
    Name,
    Plan,
    ReadAnswer,
    ReadRequest,
    Refused,
)
from standfast._src.sessions.storage_helpers import signed_number

UNITS = ("usd", "tokens", "requests")
LIMIT, KNOWN, USED, UNKNOWN, HELD = (f"{BUDGET}{part}" for part in ("limit", "known", "used/", "unknown/", "held/"))
INDEX = Name("run", f"{BUDGET_RUNS}s")
ALWAYS = "always"
"""Period of a budget without days."""

HOLD_S = 400 * 86400.0
# Where names expire, a budget stays for more than a year after its last use: expired, it would be full again.


def check_budget_id(budget_id: str) -> str:
    """Return the id unchanged; raise InvalidNameError for an invalid id."""
    per, _, rest = budget_id.partition("/")
    unit, _, key = rest.partition("/")
    if per not in ("total", "day", "conversation") or unit not in UNITS or not key:
        raise InvalidNameError(
            f"{budget_id!r} is not a budget",
            "Name it as total/usd/KEY, day/tokens/KEY or conversation/requests/SESSION.",
        )
    return budget_id


def budget_name(budget_id: str) -> Name:
    """Return the name of a budget's cells."""
    return Name("run", f"{BUDGET_RUNS}:{budget_id}")


class Draw(NamedTuple):
    """Totals of a run on a budget, from its record: spent, unknown, and reserved for running requests."""

    budget_id: str
    run_id: str
    limit: int | None
    """Limit of the program, overridden by a limit in the store."""
    spent: int = 0
    unknown: int = 0
    held: int = 0
    has_ended: bool = False


def draws_of(record: SavableRecord) -> tuple[Draw, ...]:
    """Return a run's totals on its budgets, for the step that saves the run."""
    ends = bool(getattr(record, "has_ended", False))
    return tuple(
        Draw(one.id, record.run_id, one.limit, one.spent, one.unknown, one.held, ends)
        for one in getattr(record, "budgets", ())
    )


class Held(msgspec.Struct, frozen=True, array_like=True):
    """Cell of a run on a budget: period and amount of the reservation, and the totals added so far."""

    period: str = ""
    held: int = 0
    spent: int = 0
    unknown: int = 0


class BudgetState(NamedTuple):
    """State of a budget in a period."""

    budget_id: str
    period: str
    limit: int | None
    """Limit in the store, or None."""
    used: int
    """Spent and reserved."""
    unknown: int
    """Estimates in `used`, of requests without a known outcome."""
    held: Mapping[str, int]
    """Reservations by run id: part of `used`, too."""

    @property
    def left(self) -> int | None:
        """Remainder under the store's limit; never below 0."""
        return None if self.limit is None else max(0, self.limit - self.used)


_held_in = msgspec.json.Decoder(Held).decode
_encode = msgspec.json.Encoder().encode


def _period(budget_id: str, now: float) -> str:
    if not budget_id.startswith("day/"):
        return ALWAYS
    return datetime.fromtimestamp(now, UTC).date().isoformat()


def _number(sight: ReadAnswer, cell: str) -> int | None:
    value = value_of(sight, cell)
    number = None if value is None else signed_number(value)
    if value is not None and number is None:
        raise CorruptRecordError(f"cell {cell!r} of a budget holds no number", "Set the budget's limit anew.")
    return number


# --- drawing ---------------------------------------------------------------------------------------------------------


class Drawn(NamedTuple):
    """Result of a step with draws: the store's answer, and the refused reservations."""

    answer: Done | Refused
    refused: Mapping[str, int]
    """Limit of each full budget, by budget id."""


def commit_with_draws(step: CommitRequest, draws: Sequence[Draw]) -> Plan[Drawn]:
    """Commit a step together with its draws. A reservation without room stays unchanged; the step is committed."""
    refused = dict[str, int]()
    while True:
        changes, limits = list[KeyUpdate](), list[tuple[str, int]]()
        for draw in draws:
            sight = yield from look(_look_of(draw))
            limit = draw.limit if (stored := _number(sight, LIMIT)) is None else stored
            made = _changes_of(draw, sight, limit, may_rise=draw.budget_id not in refused)
            changes += made
            limits += [(draw.budget_id, limit or 0)] * len(made)
        got = yield from commit([*step, *changes])
        if isinstance(got, Done):
            return Drawn(got, refused)
        place = got.place - len(step)
        if place < 0:
            return Drawn(got, refused)
        if place < len(changes) and _holds(changes[place], got):  # so the bound was passed, and nothing else
            refused[limits[place][0]] = limits[place][1]


def refused_draws(draws: Sequence[Draw]) -> Plan[dict[str, int]]:
    """Return the refused reservations of a committed step with a lost answer."""
    refused = dict[str, int]()
    for draw in draws:
        sight = yield from look(_look_of(draw))
        value = value_of(sight, HELD + draw.run_id)
        held = 0 if value is None else decode_cell(HELD, value, _held_in).held
        if held < draw.held:
            stored = _number(sight, LIMIT)
            refused[draw.budget_id] = (draw.limit if stored is None else stored) or 0
    return refused


def _look_of(draw: Draw) -> ReadRequest:
    cells = (LIMIT, KNOWN, HELD + draw.run_id)
    # A day is the store's: with its times the look is never guessed.
    return ReadRequest(budget_name(draw.budget_id), cells, mark=False, times=draw.budget_id.startswith("day/"))


def _holds(change: KeyUpdate, got: Refused) -> bool:
    found = {cell: one.value for cell, one in got.cells.items()}
    return all(found.get(cell) == value for cell, value in change.cells.items())


def _changes_of(draw: Draw, sight: ReadAnswer, limit: int | None, *, may_rise: bool) -> list[KeyUpdate]:
    """Return the changes of a draw, the bounded change first; empty without a difference."""
    cell = HELD + draw.run_id
    value = value_of(sight, cell)
    before = Held() if value is None else decode_cell(cell, value, _held_in)
    period = _period(draw.budget_id, sight.now)
    rises = draw.held > before.held or (draw.held > 0 and before.period != period)
    held = draw.held if may_rise or not rises else before.held
    kept = before.period if before.held and held == before.held and not may_rise else period
    after = Held(kept if held else "", held, draw.spent, draw.unknown)
    put: bytes | None = None if draw.has_ended else _encode(after)
    if (put == value is not None) or (value is None and after == Held()):
        return []
    sums = dict[str, int]()
    old = before.period or period
    paid, lost = draw.spent - before.spent, draw.unknown - before.unknown
    sums[USED + old] = paid + lost - before.held
    sums[USED + kept] = sums.get(USED + kept, 0) + held
    if lost:
        sums[UNKNOWN + old] = lost
    bound = limit if may_rise and rises else None
    add = {
        one: Addition(n, bound if one == USED + kept else None) for one, n in sums.items() if n or one == USED + kept
    }
    name = budget_name(draw.budget_id)
    conditions = {LIMIT: value_of(sight, LIMIT), KNOWN: value_of(sight, KNOWN), cell: value}
    known = conditions[KNOWN] is not None
    puts = {cell: put} if known else {cell: put, KNOWN: b"1"}
    changes = [KeyUpdate(name, cells=conditions, put=puts, add=add, hold_s=HOLD_S)]
    return changes if known else [*changes, _list_in_index(draw.budget_id)]


def _list_in_index(budget_id: str) -> KeyUpdate:
    return KeyUpdate(INDEX, put={f"{KNOWN}/{budget_id}": b"1"}, hold_s=HOLD_S)


# --- operators -------------------------------------------------------------------------------------------------------


def read_budget(budget_id: str) -> Plan[BudgetState]:
    """Return the state of a budget in the present period."""
    sight = yield from look(ReadRequest(budget_name(budget_id), prefixes=(BUDGET,), mark=False, times=True))
    period = _period(budget_id, sight.now)
    held = {
        cell[len(HELD) :]: one.held
        for cell, found in sight.cells.items()
        if cell.startswith(HELD) and (one := decode_cell(cell, found.value, _held_in)).held and one.period == period
    }
    used, unknown = _number(sight, USED + period), _number(sight, UNKNOWN + period)
    return BudgetState(budget_id, period, _number(sight, LIMIT), used or 0, unknown or 0, held)


def list_budgets() -> Plan[list[BudgetState]]:
    """Return all budgets in their present periods, by id."""
    sight = yield from look(ReadRequest(INDEX, prefixes=(BUDGET,), mark=False, times=True))
    found = list[BudgetState]()
    for cell in sorted(sight.cells):
        found.append((yield from read_budget(cell[len(KNOWN) + 1 :])))
    return found


def set_limit(budget_id: str, limit: int | None) -> Plan[BudgetState]:
    """Set the limit of a budget in the store; None removes the limit."""
    name = budget_name(budget_id)
    while True:
        sight = yield from look(ReadRequest(name, cells=(LIMIT,), mark=False, times=True))
        value = None if limit is None else b"%d" % limit
        change = KeyUpdate(name, cells={LIMIT: value_of(sight, LIMIT)}, put={LIMIT: value, KNOWN: b"1"}, hold_s=HOLD_S)
        got = yield from commit([change, _list_in_index(budget_id)])
        if isinstance(got, Done):
            return (yield from read_budget(budget_id))
