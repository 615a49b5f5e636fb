"""Repair of a history broken by another program: reported first, done in one step, undone if it was wrong.

standfast appends whole turns, so its own histories need no repair. Other programs write a call before its output
exists, cut a history in the middle of a turn, or write a turn twice after a crash. Requests leave such items out by
themselves and report them (`result.left_out`), run after run. `repair_history` makes that final: the items left out of
requests are removed from the history, everything else stays, and the earlier history is kept (B3).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeGuard

from standfast._src.base.errors import AbilityMissingError, SessionConflictError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.operational_events import emit
from standfast._src.base.type_names import describe_type
from standfast._src.items.history import deduplicate, prune
from standfast._src.items.repair import SECOND_COPY
from standfast._src.sessions.foreign.copy_history import HistoryReader
from standfast._src.sessions.protocol import (
    NO_LIMIT,
    CanReplace,
    CorruptRecord,
    Head,
    Lease,
    Session,
    abilities,
    with_ability,
)

LEASE_TTL_S = 60.0
# Reading and replacing take far less; if this process dies, the session is free again after that time.

READS_MAX = 5
# Somebody who writes without a lease, again and again, in the moment between two reads: then it is no time for repair.


@dataclass(frozen=True, slots=True)
class BrokenItem:
    """Item refused by every provider at its place, with its place in the history and the reason."""

    index: int
    item: Item
    reason: str


@dataclass(frozen=True, slots=True)
class RepairReport:
    """Findings of a repair, and its changes."""

    broken: tuple[BrokenItem, ...] = ()
    """Taken out of the history, or, after a dry run, what would be."""

    corrupt: tuple[CorruptRecord, ...] = ()
    """Records that are no JSON objects. They are reported and left alone: `session.repair()` removes them."""

    generation: str | None = None
    """What `session.restore()` takes to undo the repair; None if nothing was changed."""

    @property
    def repaired(self) -> bool:
        """True if the history was changed."""
        return self.generation is not None


class _Repairable(Session, CanReplace, Protocol):
    """Abilities needed by a repair."""

    async def head(self) -> Head: ...


def _can_be_repaired(session: object) -> TypeGuard[_Repairable]:
    return {"replace", "head"} <= abilities(session)


async def repair_history(session: HistoryReader, *, dry_run: bool = False, lease_wait_s: float = 30.0) -> RepairReport:
    """Remove the items refused by every provider from the session's history, in one step with undo.

    The repair waits for a run on this session, at most `lease_wait_s`; then SessionBusyError is raised. With `dry_run`
    nothing is changed, and any session will do; else the session must be able to replace its history
    (AbilityMissingError). Raises SessionConflictError, having changed nothing, if another program writes at the same
    time.
    """
    if dry_run:
        items = await _whole(session)
        return RepairReport(_split_broken(items)[1], await _corrupt(session))
    if not _can_be_repaired(session):
        raise AbilityMissingError(
            f"{describe_type(session)} cannot replace its history in one step, so a repair could not be undone",
            "Look with dry_run=True; requests leave broken items out anyway. To repair, copy_history to a standfast "
            "session, which carries over only what is whole.",
        )
    async with _hold_lease(session, lease_wait_s) as lease:
        head, items = await _stable_read(session)
        kept, broken = _split_broken(items)
        corrupt = await _corrupt(session)
        if not broken:
            return RepairReport((), corrupt)
        before = {generation.id for generation in await session.generations()}
        await session.replace(kept, upto=head, lease=lease)
        emit("session_repaired", session=session.session_id, count=len(broken))
        return RepairReport(broken, corrupt, await _find_generation(session, before, items))


def _split_broken(items: Sequence[Item]) -> tuple[list[Item], tuple[BrokenItem, ...]]:
    """Return the remaining items, and the removed ones with place and reason: the rules of requests (C2, C8)."""
    single = deduplicate(items)
    kept, left_out = prune(single)
    reasons = {id(one.item): one.reason for one in left_out}
    staying = {id(item) for item in kept}
    broken = [
        BrokenItem(index, item, reasons.get(id(item), SECOND_COPY))
        for index, item in enumerate(items)
        if id(item) not in staying
    ]
    return kept, tuple(broken)


async def _whole(session: HistoryReader) -> list[Item]:
    # Copies: each item an object of its own, whatever the session hands out.
    return [copy_json(item) for item in await session.get_items(limit=NO_LIMIT)]


async def _stable_read(session: _Repairable) -> tuple[Head, list[Item]]:
    """Return the history together with its head."""
    head: Head = await session.head()
    for _ in range(READS_MAX):
        items = await _whole(session)
        seen, head = head, await session.head()
        if head == seen:
            return head, items
    raise SessionConflictError(
        f"session {session.session_id!r} was written to while it was read, {READS_MAX} times in a row",
        "Repair it when the program that writes to it has stopped.",
    )


async def _corrupt(session: HistoryReader) -> tuple[CorruptRecord, ...]:
    reporting = with_ability(session, "corrupt")
    return () if reporting is None else tuple(await reporting.corrupt_records())


async def _find_generation(session: _Repairable, before: set[str], items: list[Item]) -> str | None:
    """Return the generation with the earlier history; another one may have been made since."""
    for generation in await session.generations():
        if generation.id not in before and await session.read_generation(generation.id) == items:
            return str(generation.id)
    return None  # pushed out already by three more replacements


@contextlib.asynccontextmanager
async def _hold_lease(session: HistoryReader, wait_s: float) -> AsyncIterator[Lease | None]:
    """No run of ours meanwhile, where the session has leases."""
    leasing = with_ability(session, "lease")
    if leasing is None:
        yield None
        return
    async with await leasing.lease(ttl_s=LEASE_TTL_S, wait_s=wait_s) as lease:
        yield lease
