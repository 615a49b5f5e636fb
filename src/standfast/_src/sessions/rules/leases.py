"""Leases: at most one holder per session, across processes, by the store's own clock (B7).

A lease is one cell of the session. Its number is a fencing token and only grows: release, expiry and clear keep it, so
a write with a lower number is refused in its own step, whatever its holder believes. The cell has the beginning and the
length of the lease, not its end: a clock that was ahead and went back could keep an end in the far future alive, but a
beginning in the future is plainly wrong, and a waiter sees by its own clock that the record has not changed for its
time.

Waiters leave a ticket in the cell, in the order of arrival. A ticket expires with its waiter. No later arrival, and
none that does not wait, gets the lease before a live ticket.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from standfast._src.base.errors import LeaseLostError
from standfast._src.sessions.rules.history import (
    INBOX,
    LEASE,
    OPEN_RUN,
    Decision,
    IdempotencySlot,
    commit,
    decode_cell,
    look,
    time_in,
    until_done,
    value_of,
)
from standfast._src.sessions.storage import Done, KeyUpdate, Name, Plan, ReadAnswer, ReadRequest

TICKET_S = 3.0
# How long a waiter may be silent before the next one is served; it writes again after a third of that.


class Ticket(msgspec.Struct, frozen=True):
    """A waiter, and the time of its last sign of life."""

    id: str
    at: float

    def has_lapsed(self, now: float) -> bool:
        """Return whether the waiter has been silent for too long, or its clock was set back since."""
        return not 0 <= now - self.at <= TICKET_S


class LeaseState(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cell of a session's lease. A `ttl_s` of 0: the lease is free."""

    number: int = 0
    nonce: str = ""
    renewals: int = 0
    since: float = 0.0
    ttl_s: float = 0.0
    holder: str = ""
    process: str = ""
    tickets: tuple[Ticket, ...] = ()
    taken: float = 0.0
    """When it was taken; `since` is when it was last renewed."""
    asked: str = ""
    """Id of the newest signal to a run under the lease; the holder looks for signals at the next renewal (F7)."""

    def is_over(self, now: float) -> bool:
        """Return whether the lease is free by the store's clock."""
        return not self.ttl_s or not 0 <= now - self.since < self.ttl_s


_decoder = msgspec.json.Decoder(LeaseState)
_open_run_in = msgspec.json.Decoder(tuple[str, int]).decode
_encode = msgspec.json.Encoder().encode


def _lease_in(value: bytes) -> LeaseState:
    found = _decoder.decode(value)
    for at in (found.since, found.taken):
        time_in(at)
    return found


def lease_state_in(sight: ReadAnswer) -> LeaseState:
    """Parse a session's lease cell. The cell outlives a clear, so a dead cell counts as well."""
    value = value_of(sight, LEASE)
    return LeaseState() if value is None else decode_cell(LEASE, value, _lease_in)


# --- fencing ---------------------------------------------------------------------------------------------------------


class Fence(NamedTuple):
    """Fencing token of a write under a lease. The nonce detects numbers that started over: in a restored store, or
    after an expiry.
    """

    number: int
    nonce: str = ""


def lost_lease(name: Name, fence: Fence | None, sight: ReadAnswer) -> LeaseLostError | None:
    """Return the error for a write under a lease that another holder has taken since (B7); None if the lease is
    intact.
    """
    if fence is None:
        return None
    held = lease_state_in(sight)
    # A higher number than the store's is as bad as a lower one if another worker holds the lease: after an expiry, or
    # in a restored store, numbers start over. Only a store without any number shows that the lease was not taken.
    is_other = held.number > 0 and fence.nonce not in ("", held.nonce)
    if fence.number < held.number or is_other:
        return LeaseLostError(
            f"the lease number {fence.number} on session {name.id!r} was taken over by number {held.number}",
            "Another run has the session now: reload it and run again.",
        )
    return None


def check_fence(name: Name, fence: Fence | None, sight: ReadAnswer) -> dict[str, bytes | None]:
    """Return the conditions of a write under a lease; raises if the lease is lost."""
    if (lost := lost_lease(name, fence, sight)) is not None:
        raise lost
    return {} if fence is None else {LEASE: value_of(sight, LEASE)}


# --- open runs -------------------------------------------------------------------------------------------------------


class OpenRun(NamedTuple):
    """A saved, unfinished run of a session, and the lease of its last save (0: none)."""

    run_id: str
    status: str
    lease_number: int


def open_run_value(status: str, fence: Fence | None) -> bytes:
    """Encode the session's cell of an open run."""
    return msgspec.json.encode([status, 0 if fence is None else fence.number])


def open_runs_in(sight: ReadAnswer) -> tuple[OpenRun, ...]:
    """Parse the open runs of a session from a read with all their cells."""
    found = sorted((cell, value.value) for cell, value in sight.cells.items() if cell.startswith(OPEN_RUN))
    return tuple(OpenRun(cell[len(OPEN_RUN) :], *decode_cell(cell, value, _open_run_in)) for cell, value in found)


_decode_inbox = msgspec.json.Decoder(tuple[str, ...]).decode


def inbox_in(sight: ReadAnswer) -> tuple[str, ...]:
    """Return the ids of a session's waiting messages, in the order of sending (F1)."""
    value = value_of(sight, INBOX)
    return () if value is None else decode_cell(INBOX, value, _decode_inbox)


def encode_inbox(ids: Sequence[str]) -> bytes | None:
    """Encode the cell of the inbox; None for an empty inbox."""
    return msgspec.json.encode(list(ids)) if ids else None


def is_under_way(sight: ReadAnswer, value: bytes | None) -> bool:
    """Return whether an open run still holds its session's lease: then a clear keeps its record (A12, C15)."""
    held = lease_state_in(sight)
    if value is None or held.is_over(sight.now):
        return False
    status, number = decode_cell(OPEN_RUN, value, _open_run_in)
    return status == "running" and number in (0, held.number)  # 0: saved without naming a lease


# --- taking, renewing, giving back -----------------------------------------------------------------------------------


class Asker(NamedTuple):
    """A task that asks for a lease."""

    ttl_s: float
    nonce: str
    holder: str
    process: str
    tickets: tuple[str, ...]
    """Its own ticket, then those of the waiters behind it in the same process; empty: it does not wait."""


class UnchangedLease(NamedTuple):
    """A lease that a waiter has seen unchanged for some time, by its own clock."""

    number: int
    renewals: int
    unchanged_s: float


class Taken(NamedTuple):
    """The asker holds the lease now."""

    number: int
    open_runs: tuple[OpenRun, ...]
    taken_from: str = ""
    """The holder before, if it never released the lease; else empty."""
    inbox: tuple[str, ...] = ()
    """Ids of the waiting messages, in the order of sending (F1)."""


class Busy(NamedTuple):
    """Another worker holds the lease, or another waiter's turn comes first."""

    held: LeaseState
    is_ahead: bool
    """True if the lease is free, but another waiter's turn comes first."""


IsGone = Callable[[str], bool]
"""Returns True if a process has certainly ended, judged by its own name for itself; False where that is unknown."""


def acquire(name: Name, asker: Asker, watch: UnchangedLease | None, is_gone: IsGone) -> Plan[Taken | Busy]:
    """Take the lease if it is free and no waiter comes first; otherwise leave a ticket, if the asker waits."""
    while True:
        sight = yield from look(ReadRequest(name, cells=(LEASE, INBOX), prefixes=(OPEN_RUN,), mark=False))
        held, runs = lease_state_in(sight), open_runs_in(sight)
        if held.ttl_s and held.nonce == asker.nonce:  # its answer was lost
            return Taken(held.number, runs, inbox=inbox_in(sight))
        waiting = [one for one in held.tickets if not one.has_lapsed(sight.now)]
        mine = asker.tickets[0] if asker.tickets else None
        ids = [one.id for one in waiting]
        ahead = ids[: ids.index(mine)] if mine in ids else ids
        if (held.is_over(sight.now) or _is_unchanged(held, watch) or is_gone(held.process)) and not ahead:
            rest = tuple(one for one in waiting if one.id != mine)
            now = sight.now
            taken = LeaseState(
                held.number + 1, asker.nonce, 0, now, asker.ttl_s, asker.holder, asker.process, rest, now
            )
            if (yield from _try_write(name, sight, taken)):
                before = (held.holder or "another holder") if held.ttl_s else ""
                return Taken(taken.number, runs, before, inbox_in(sight))
            continue
        tickets = _renew_tickets(waiting, asker.tickets, sight.now)
        if tickets is None or (yield from _try_write(name, sight, msgspec.structs.replace(held, tickets=tickets))):
            return Busy(held, bool(ahead))


def _is_unchanged(held: LeaseState, watch: UnchangedLease | None) -> bool:
    if watch is None or (watch.number, watch.renewals) != (held.number, held.renewals):
        return False
    return watch.unchanged_s >= held.ttl_s


def _renew_tickets(waiting: Sequence[Ticket], mine: Sequence[str], now: float) -> tuple[Ticket, ...] | None:
    """Return the tickets with one asker's renewed in place; None if a write is not due yet."""
    there = {one.id for one in waiting}
    new = [Ticket(ticket, now) for ticket in mine if ticket not in there]
    if not new and all(now - one.at < TICKET_S / 3 for one in waiting if one.id in mine):
        return None
    return (*(Ticket(one.id, now) if one.id in mine else one for one in waiting), *new)


def _change(name: Name, sight: ReadAnswer, held: LeaseState) -> KeyUpdate:
    return KeyUpdate(name, cells={LEASE: value_of(sight, LEASE)}, put={LEASE: _encode(held)}, hold_s=held.ttl_s)


def _try_write(name: Name, sight: ReadAnswer, held: LeaseState) -> Plan[bool]:
    got = yield from commit([_change(name, sight, held)])
    return isinstance(got, Done)


def renew(name: Name, fence: Fence) -> Plan[LeaseState | None]:
    """Extend the newest lease by one ttl, and return the new state; None for a lost lease."""
    renewed = msgspec.structs.replace
    return (yield from _if_ours(name, fence, lambda held, now: renewed(held, since=now, renewals=held.renewals + 1)))


def release(name: Name, fence: Fence) -> Plan[bool]:
    """Release a lease, if it is still the newest; return whether it was."""
    return (yield from _if_ours(name, fence, lambda held, now: clear_holder(held))) is not None


def _if_ours(name: Name, fence: Fence, change: Callable[[LeaseState, float], LeaseState]) -> Plan[LeaseState | None]:
    """Change the newest lease, and return the new state; None for a lost lease."""
    tried: LeaseState | None = None
    while True:
        sight = yield from look(ReadRequest(name, cells=(LEASE,), mark=False))
        held = lease_state_in(sight)
        if not _is_ours(held, fence):
            return None
        if tried is not None and tried.ttl_s and held.renewals >= tried.renewals:
            return held  # it was renewed, and the answer lost
        tried = change(held, sight.now)
        if (yield from _try_write(name, sight, tried)):
            return tried


def _is_ours(held: LeaseState, fence: Fence) -> bool:
    return bool(held.ttl_s) and (held.number, held.nonce) == (fence.number, fence.nonce or held.nonce)


def clear_holder(held: LeaseState) -> LeaseState:
    """Return the cell after a release: the number and the tickets stay."""
    return LeaseState(held.number, held.nonce, tickets=held.tickets)


def release_put(sight: ReadAnswer, fence: Fence) -> Mapping[str, bytes]:
    """Return the cells for releasing a lease within a larger step; empty if another worker holds it."""
    held = lease_state_in(sight)
    return {LEASE: _encode(clear_holder(held))} if _is_ours(held, fence) else {}


def ask_holder(name: Name, signal_id: str) -> Plan[KeyUpdate | None]:
    """Plan the change for making a lease's holder look for signals; None for a free lease (F7)."""
    sight = yield from look(ReadRequest(name, cells=(LEASE,), mark=False))
    held = lease_state_in(sight)
    return None if held.is_over(sight.now) else _change(name, sight, msgspec.structs.replace(held, asked=signal_id))


def withdraw(name: Name, ticket: str, nonce: str | None = None) -> Plan[None]:
    """Remove a ticket whose waiter has stopped. `nonce`: also release the lease, if the waiter acquired it
    meanwhile.
    """
    while True:
        sight = yield from look(ReadRequest(name, cells=(LEASE,), mark=False))
        held = lease_state_in(sight)
        now = clear_holder(held) if nonce is not None and held.ttl_s and held.nonce == nonce else held
        now = msgspec.structs.replace(now, tickets=tuple(one for one in now.tickets if one.id != ticket))
        if now == held or (yield from _try_write(name, sight, now)):
            return


def revoke(name: Name, nonce: str, lane: IdempotencySlot | None = None) -> Plan[int]:
    """Take the lease from its holder: raise the number, and change nothing else (B7).

    With an idempotency slot a repeat is recognized even if a waiter has taken the lease since; that waiter keeps it.
    """

    def decide(sight: ReadAnswer) -> Decision[int]:
        held = lease_state_in(sight)
        if held.nonce == nonce:  # the answer was lost
            return held.number, []
        taken = LeaseState(held.number + 1, nonce, tickets=held.tickets)
        return taken.number, [_change(name, sight, taken)]

    return (yield from until_done(ReadRequest(name, cells=(LEASE,), mark=False), decide, lane))[0]
