"""Save runs, and close a turn in one step: items, run and lease together (C12).

A saved run is a name without rows: a head, fenced by its revision, and one cell for the log tails of each save. Saving
writes only what is new; loading applies the tails in the order of their revisions. An open run of a session also has a
cell on the session, written in the same step: the next holder of the session's lease sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from standfast._src.base.errors import (
    NotFoundError,
    RunClaimedError,
    RunStateError,
    SessionConflictError,
    StandfastError,
)
from standfast._src.base.json_values import Item, encode_value
from standfast._src.runs.engine.codec import (
    ENDED as ENDED,
    conversation_of,
    count_taken_signals,
    is_left_open,
    may_go_on,
)
from standfast._src.runs.engine.run_store import LogTail, RunSummary, SavedRun, check_run_id
from standfast._src.runs.engine.signals import encode_signals, pending_signals
from standfast._src.sessions.protocol import Head
from standfast._src.sessions.rules.append import AppendBatch, Written, plan_append
from standfast._src.sessions.rules.budgets import Draw, commit_with_draws, refused_draws
from standfast._src.sessions.rules.history import (
    INBOX,
    LEASE,
    MESSAGE,
    OPEN_RUN,
    SEALED,
    WRITER,
    as_time,
    commit,
    decode_cell,
    every,
    head,
    listing,
    look,
    value_of,
)
from standfast._src.sessions.rules.leases import (
    Fence,
    encode_inbox,
    inbox_in,
    lost_lease,
    open_run_value,
    release_put,
)
from standfast._src.sessions.storage import Cell, Done, KeyUpdate, Listed, Name, Plan, ReadAnswer, ReadRequest

HEAD, LENGTHS, LOG, SIGNALS = "head", "logs", "log/", "signals"

UNREADABLE = "unreadable"
"""Status in a listing for a run whose labels were damaged."""

REVISION_DIGITS = 19
# A revision has fewer: it is a number that every store can hold.

HEARD = Written(1, 1).value()
# The count of a message that another run has heard: a run that is started under its id is refused as one that has
# written (B1).

CONVERSATION, LEFT_OPEN = "conversation", "left_open"
# Labels, beside those that a listing shows: the server's conversation an open run is on ("": none; runs of sessions
# have their session), and that a run which failed or was cut has something to report to the next run.


@dataclass(frozen=True, slots=True)
class RunSave:
    """One save of a run: the arguments of `RunStore.save_run`."""

    run_id: str
    expect: int
    head: bytes
    tails: Mapping[str, LogTail] = field(default_factory=dict)
    status: str = "running"
    agent: str = ""
    session_id: str | None = None
    in_flight: bytes | None = None
    """The head of a save of the same writer whose outcome it does not know: revision `expect` + 1 with that head is
    its own, and this one follows it."""

    draws: tuple[Draw, ...] = ()
    """Totals of the run on its budgets, for the same step (F10)."""

    def __post_init__(self) -> None:
        check_run_id(self.run_id)


class NestedItems(NamedTuple):
    """Items of a run inside a tool call of the recorded run, as that writer's items from number `start` on."""

    writer: str
    start: int
    items: Sequence[Item]


class Recorded(NamedTuple):
    """Outcome of `record`: where the history ends, and the run's revision (0: no run was saved)."""

    head: Head
    revision: int
    inbox: tuple[str, ...] = ()
    """Ids of the waiting messages, as of this step (F1)."""
    refused: Mapping[str, int] = MappingProxyType({})
    """Limits of budgets without room for the run's reservation (F10)."""
    signals: bytes | None = None
    """Pending signals of the run after the step (F7); None without any."""


# --- loading and saving ----------------------------------------------------------------------------------------------


def load_run(run_id: str, *, times: bool = False) -> Plan[SavedRun | None]:
    """Load a run as last saved; `times` adds its creation time."""
    name = Name("run", run_id)
    sight = yield from look(ReadRequest(name, cells=(HEAD, SIGNALS), prefixes=(LOG,), mark=False, times=times))
    return saved_in(run_id, sight)


NEWER_AT_ONCE = 64
# How many saves are read one by one for a caller with an earlier state; behind more than that, all is read.


def saved_in(run_id: str, sight: ReadAnswer) -> SavedRun | None:
    """Decode the run in these cells; None without a head."""
    value = value_of(sight, HEAD)
    if value is None:
        return None
    revision, head = _parts(run_id, value)
    logs: dict[str, list[bytes]] = {}
    for cell in sorted(cell for cell in sight.cells if cell.startswith(LOG)):
        _apply(logs, sight.cells[cell])
    kept = {log: tuple(records) for log, records in logs.items() if records}
    return SavedRun(run_id, revision, head, kept, value_of(sight, SIGNALS), sight.created)


def load_run_since(known: SavedRun) -> Plan[SavedRun | None]:
    """Load a run as last saved, reading only the changes since an earlier state of it.

    The result has the creation time and can be passed in again; for any other state, all is read.
    """
    name = Name("run", known.run_id)
    made_at = known.made_at
    sight = yield from look(ReadRequest(name, cells=(HEAD, SIGNALS), mark=False, times=True))
    while True:
        value, signals = value_of(sight, HEAD), value_of(sight, SIGNALS)
        if value is None:
            return None
        revision, head = _parts(known.run_id, value)
        if sight.created != made_at or not known.revision <= revision <= known.revision + NEWER_AT_ONCE:
            return (yield from load_run(known.run_id, times=True))
        if revision == known.revision:
            return known if signals == known.signals else replace(known, signals=signals)
        newer = tuple(f"{LOG}{number:012d}" for number in range(known.revision + 1, revision + 1))
        # With the head again: what was saved in between may have removed what the logs held.
        sight = yield from look(ReadRequest(name, cells=(HEAD, LENGTHS, SIGNALS, *newer), mark=False, times=True))
        if value_of(sight, HEAD) != value or sight.created != made_at:
            continue
        logs = {log: list(records) for log, records in known.logs.items()}
        for cell in newer:
            _apply(logs, sight.cells.get(cell))
        lengths = decode_cell(LENGTHS, value_of(sight, LENGTHS) or b"{}", _lengths_in)
        kept = {log: tuple(records) for log, records in logs.items() if lengths.get(log)}
        return SavedRun(known.run_id, revision, head, kept, value_of(sight, SIGNALS), made_at)


_lengths_in = msgspec.json.Decoder(dict[str, int]).decode
_tails_in = msgspec.msgpack.Decoder(dict[str, tuple[int, list[bytes]]]).decode


def _apply(logs: dict[str, list[bytes]], cell: Cell | None) -> None:
    """Add the tails of one save to the logs."""
    if cell is not None:
        for log, (start, records) in decode_cell(LOG, cell.value, _tails_in).items():
            logs.setdefault(log, [])[start:] = records


def _parts(run_id: str, value: bytes) -> tuple[int, bytes]:
    """Split a head into revision and content; raises with the reason if it cannot be read."""
    revision, _, head = value.partition(b"|")
    if revision.isdigit() and len(revision) < REVISION_DIGITS:
        return int(revision), head
    if value.startswith(SEALED):
        raise _build_sealed_error(run_id)
    raise RunStateError(f"run {run_id!r} cannot be read here: it was damaged", "Restore the store from a backup.")


def _build_sealed_error(run_id: str) -> RunStateError:
    return RunStateError(
        f"run {run_id!r} cannot be read here: it is sealed",
        "Open its session with its key (EncryptedSession). If the key is lost for good, clear the session.",
    )


class PlannedSave(NamedTuple):
    """Planned save of a run: change (None: committed before), new revision, status for listings."""

    change: KeyUpdate | None
    revision: int
    status: str
    signals: bytes | None = None
    """Pending signals of the saved state (F7)."""


def plan_save(save: RunSave) -> Plan[PlannedSave]:
    """Plan the save of a run at the expected revision.

    The step meets every earlier signal: a pause with a pending signal is listed as ready, for a worker (F7).
    """
    name = Name("run", save.run_id)
    sight = yield from look(ReadRequest(name, cells=(HEAD, LENGTHS, SIGNALS), mark=False))
    value = value_of(sight, HEAD)
    revision, head = (0, b"") if value is None else _parts(save.run_id, value)
    kept = value_of(sight, SIGNALS) if SIGNALS in sight.cells else None
    pending = None if kept is None else _still_pending(kept, save)
    status = "ready" if pending is not None and save.status == "paused" else save.status
    ahead = revision - save.expect
    if value is not None and head == save.head and (ahead == 1 or (ahead == 2 and save.in_flight is not None)):
        return PlannedSave(None, revision, status, pending)
    if ahead != 0 and not (ahead == 1 and head == save.in_flight):
        raise RunClaimedError(
            f"run {save.run_id!r} is at revision {revision} and {save.expect} was expected",
            "Another process resumed or removed it: load it again, and resume only if it is still waiting.",
        )
    lengths = decode_cell(LENGTHS, value_of(sight, LENGTHS) or b"{}", _lengths_in)
    for log, tail in save.tails.items():
        if not 0 <= tail.start <= lengths.get(log, 0):
            raise NotFoundError(
                f"log {log!r} of run {save.run_id!r} has {lengths.get(log, 0)} records "
                f"and this tail starts at {tail.start}",
                "Save the records before it first.",
            )
    now = lengths | {log: tail.start + len(tail.records) for log, tail in save.tails.items()}
    put: dict[str, bytes | None] = {HEAD: b"%d|" % (revision + 1) + save.head}
    if now != lengths:
        put[LENGTHS] = msgspec.json.encode({log: length for log, length in now.items() if length})
    is_short = not any(now.values())  # an ended run needs none of what its logs said
    if not is_short and save.tails:
        tails = {log: (tail.start, list(tail.records)) for log, tail in save.tails.items()}
        put[f"{LOG}{revision + 1:012d}"] = msgspec.msgpack.encode(tails)
    if kept != pending:
        put[SIGNALS] = pending
    known = save if status == save.status else replace(save, status=status)
    labels = _labels(known) | {"revision": str(revision + 1)}
    sweep = (LOG,) if is_short and any(lengths.values()) else ()
    cells = {HEAD: value, SIGNALS: kept}
    change = KeyUpdate(name, cells=cells, sweep=sweep, put=put, touch=True, labels=labels)
    return PlannedSave(change, revision + 1, status, pending)


def _still_pending(kept: bytes, save: RunSave) -> bytes | None:
    """Return the pending signals of a saved state; None for an ended run."""
    taken = count_taken_signals(save.head)
    return None if taken is None else encode_signals(pending_signals(kept, taken))


def _labels(save: RunSave) -> dict[str, str]:
    """Return the labels by which a run is listed and found."""
    labels = {"status": save.status, "agent": save.agent}
    is_open = is_open_run(save.status, save.head)
    if save.session_id is not None:
        labels["session"] = save.session_id
    else:
        # The conversation only as long as a later run may have to find it (C15): any number of its runs have ended.
        labels[CONVERSATION] = (conversation_of(save.head) or "") if is_open else ""
    if is_open and save.status in ENDED and (save.session_id is not None or labels[CONVERSATION]):
        labels[LEFT_OPEN] = "1"
    return labels


def is_open_run(status: str, head: bytes) -> bool:
    """Return whether a run has not ended, or has stopped with something to report to the next run (C15)."""
    return status not in ENDED or is_left_open(head)


class HeardMessage(NamedTuple):
    """End of a message in the step of the run that has heard or refused it (F1).

    `save` ends the message's own record (None: no record is left). `note` is the new value of the message's cell.
    """

    message_id: str
    save: RunSave | None
    note: bytes | None


class Recording(NamedTuple):
    """Content of one record: batches, one per writer; a save of a run; costs of replies; the lease it is under.

    `session` is None for a run that no session owns. Costs are keyed by their `usage_cell` (B15): by number, so that a
    repeat that has grown since replaces its earlier state. `release`: the lease is released.
    """

    session: Name | None
    batches: Sequence[AppendBatch]
    save: RunSave | None
    fence: Fence | None
    release: bool = False
    costs: Mapping[str, Sequence[Item]] = MappingProxyType({})
    heard: Sequence[HeardMessage] = ()


def record(wanted: Recording) -> Plan[Recorded]:
    """Append batches, save a run, keep its costs, check the fence and release the lease: in one step, or nothing.

    Each part that was committed before, because an acknowledgement was lost, is left out.
    """
    session, batches, save, fence = wanted[:4]
    is_sure = False
    while True:
        sight, lost, changes = ReadAnswer(), None, list[KeyUpdate]()
        try:
            if session is not None:
                sight = yield from look(_session_look(session, batches, save, fence, mark=is_sure))
                lost = lost_lease(session, fence, sight)
                for batch in batches:
                    change = yield from plan_append(session, batch, sight)
                    changes += [] if change is None else [change]
            planned = PlannedSave(None, 0, "") if save is None else (yield from plan_save(save))
            ends = dict[str, KeyUpdate]()
            for one in wanted.heard:
                if one.save is not None and (end := (yield from _plan_end(one.save))) is not None:
                    ends[one.message_id] = end
        except StandfastError as error:
            raise lost or error  # noqa: B904 — the first says more than what came of it
        step = [*([] if planned.change is None else [planned.change]), *ends.values()]
        if lost is not None and (changes or step or not (batches or save)):
            raise lost
        # Else all was committed before, and another worker may have the lease since, as this step has released it. A
        # repeat that was refused for that would report a lost lease to a run which is stored and has ended.
        if session is not None and lost is None:
            # A run that is to go on with a signal keeps its lease.
            known = wanted if planned.signals is None else wanted._replace(release=False)
            if save is not None and planned.status != save.status:
                known = known._replace(save=replace(save, status=planned.status))
            own = _session_change(session, known, changes, sight, ends.keys())
            step = [own, *step] if step or own.put or own.push else []
        if step and len(changes) < len(batches) and not is_sure:
            # A batch is left out by what was seen, which may be a guess: the step would not notice that its count has
            # expired under a lease, since the value is the same. With the mark it is looked at really.
            is_sure = True
            continue
        refused: Mapping[str, int] = MappingProxyType({})
        if save is not None and save.draws and planned.change is None:
            refused = yield from refused_draws(save.draws)  # this very save was committed before
        if step:
            # A repeat has drawn already.
            draws = [*save.draws] if save is not None and planned.change is not None else []
            draws += [draw for one in wanted.heard if one.save and one.message_id in ends for draw in one.save.draws]
            got, drawn = yield from commit_with_draws(step, draws)
            refused = drawn or refused
            if not isinstance(got, Done):
                continue
            if step[0].name == session:
                inbox = _still_waiting(wanted, inbox_in(sight))
                return Recorded(Head(got.marks[0]), planned.revision, inbox, refused, planned.signals)
        inbox = _still_waiting(wanted, inbox_in(sight))
        at = Head() if session is None else (yield from head(session))
        return Recorded(at, planned.revision, inbox, refused, planned.signals)


def _plan_end(save: RunSave) -> Plan[KeyUpdate | None]:
    """Plan the end of a message's record; None for an ended or removed record (lost answer, clear)."""
    sight = yield from look(ReadRequest(Name("run", save.run_id), cells=(HEAD,), mark=False))
    value = value_of(sight, HEAD)
    if value is None or _parts(save.run_id, value)[1] == save.head:
        return None
    try:
        return (yield from plan_save(save)).change
    except RunClaimedError as error:
        raise SessionConflictError(
            f"message {save.run_id!r} was heard or begun by another run", "Resume the run: it hears what still waits."
        ) from error


def _still_waiting(wanted: Recording, ids: tuple[str, ...]) -> tuple[str, ...]:
    """Return the inbox after a record: without stored, heard, refused and ended messages."""
    if not ids:
        return ids
    gone = {batch.writer for batch in wanted.batches} | {one.message_id for one in wanted.heard}
    if wanted.save is not None and not may_go_on(wanted.save.status, wanted.save.head):
        gone.add(wanted.save.run_id)
    return tuple(one for one in ids if one not in gone)


def _session_look(
    session: Name, batches: Sequence[AppendBatch], save: RunSave | None, fence: Fence | None, *, mark: bool
) -> ReadRequest:
    """Build the read of the session that a record needs."""
    cells = {WRITER + batch.writer for batch in batches}
    cells |= {OPEN_RUN + save.run_id} if save is not None else set()
    cells |= {LEASE} if fence is not None else set()
    cells.add(INBOX)
    return ReadRequest(session, cells=tuple(sorted(cells)), mark=mark or any(one.expect is not None for one in batches))


def _session_change(
    session: Name, wanted: Recording, changes: Sequence[KeyUpdate], sight: ReadAnswer, ended: Set[str]
) -> KeyUpdate:
    """Merge a record's changes and conditions on the session into one change of its name.

    Each writer has cells of its own, so writers do not conflict.
    """
    save, fence = wanted.save, wanted.fence
    cells, put = dict[str, bytes | None](), dict[str, bytes | None]()
    if fence is not None:
        cells[LEASE] = value_of(sight, LEASE)
    if save is not None:
        run_cell = OPEN_RUN + save.run_id
        cells[run_cell] = value_of(sight, run_cell)  # a clear may remove the run, and must not leave this one unknown
        value = open_run_value(save.status, fence) if is_open_run(save.status, save.head) else None
        if value != cells[run_cell]:
            put[run_cell] = value
    put |= {cell: encode_value([sight.now, requests]) for cell, requests in wanted.costs.items()}
    if wanted.release and fence is not None:
        put |= release_put(sight, fence)
    ids = inbox_in(sight)
    if (left := _still_waiting(wanted, ids)) != ids:
        cells[INBOX], put[INBOX] = value_of(sight, INBOX), encode_inbox(left)
    for one in wanted.heard:
        if one.message_id in ended:
            put |= {OPEN_RUN + one.message_id: None, MESSAGE + one.message_id: one.note}
            put[WRITER + one.message_id] = HEARD
    for change in changes:
        cells |= change.cells
        put |= change.put
    return KeyUpdate(
        session,
        mark=next((one.mark for one in changes if one.mark is not None), None),
        cells=cells,
        push=[row for one in changes for row in one.push],
        put=put,
        touch=bool(changes),
    )


# --- listing, deleting, pruning --------------------------------------------------------------------------------------


def list_runs(
    status: str | None, session_id: str | None, after: str | None, limit: int
) -> Plan[tuple[list[RunSummary], str | None]]:
    """Return runs, newest change first, and the cursor of the next page."""
    labels = {key: value for key, value in (("status", status), ("session", session_id)) if value is not None}
    found = yield from listing("run", after, limit + 1, labels)
    shown = [summary(one) for one in found[:limit]]
    return shown, found[limit - 1].cursor if 0 < limit < len(found) else None


def summary(one: Listed) -> RunSummary:
    """Build the summary of a run in a listing; damaged labels are shown as such."""
    revision = one.labels.get("revision", "")
    return RunSummary(
        one.id,
        one.labels.get("status", UNREADABLE),
        one.labels.get("session"),
        one.labels.get("agent", ""),
        as_time(one.created),
        as_time(one.updated),
        int(revision) if revision.isdigit() and len(revision) < REVISION_DIGITS else 0,
    )


def open_on_conversation(conversation_id: str) -> Plan[list[RunSummary]]:
    """Return the runs on a server's conversation that are open or have something to report, newest change first."""
    return [summary(one) for one in (yield from every("run", {CONVERSATION: conversation_id}))]


def open_without_conversation() -> Plan[list[RunSummary]]:
    """Return running or paused runs with neither session nor conversation: saved before the label existed."""
    running = yield from every("run", {"status": "running"})
    paused = yield from every("run", {"status": "paused"})
    return [summary(one) for one in (*running, *paused) if one.labels.keys().isdisjoint(("session", CONVERSATION))]


def delete_run(
    run_id: str, *, loses_answers: bool, may_leave: Callable[[bytes], bool] = lambda head: True
) -> Plan[bool]:
    """Remove a run, if `may_leave` allows it by its head, and the run's cell on the session; return False if there was
    no run.
    """
    name = Name("run", run_id)
    was_there = False
    while True:
        # With its times, so that no executor guesses what it would see: a plan that prunes goes on to other runs and
        # does not come back to this one, and a listing that is read again does not show what was removed by then.
        sight = yield from look(ReadRequest(name, cells=(HEAD,), mark=False, times=True))
        value = value_of(sight, HEAD)
        if value is None:
            return was_there
        if not may_leave(value):
            return False
        if value.startswith(SEALED):
            raise _build_sealed_error(run_id)  # a worker with the key can read it, and may have to resume it (C15)
        was_there = loses_answers  # then a refusal may be the echo of this very step; else another process removed it
        step = [KeyUpdate(name, cells={HEAD: value}, remove=True)]
        if (session_id := sight.labels.get("session")) is not None:
            step.append(KeyUpdate(Name("session", session_id), put={OPEN_RUN + run_id: None}))
        got = yield from commit(step)
        if isinstance(got, Done):
            return True


def prune_runs(older_than_s: float | None, keep: int | None) -> Plan[int]:
    """Remove ended runs older than a time, and all but the newest `keep` of them, in the store's own order.

    A run that failed or was cut stays while it has something to report: the effects of its tools would be forgotten
    (C15).
    """
    known = yield from every("run", {})
    ended = [one for one in known if one.labels.get("status") in ENDED and LEFT_OPEN not in one.labels]
    clock = yield from look(ReadRequest(Name("run", "-"), mark=False))
    removed = 0
    for place, one in enumerate(ended):
        is_old = older_than_s is not None and one.updated < clock.now - older_than_s
        if is_old or (keep is not None and place >= keep):
            removed += yield from delete_run(one.id, loses_answers=True, may_leave=partial(_is_as_listed, one))
    return removed


def _is_as_listed(one: Listed, value: bytes) -> bool:
    """Return whether an ended run was not saved again since it was listed, and has nothing to report, whatever its
    label.

    A sealed run stays: without its key this cannot be decided. The label may be missing: the run was saved before the
    label existed.
    """
    if value.startswith(SEALED):
        return False
    revision, head = _parts(one.id, value)
    is_owned = "session" in one.labels or conversation_of(head) is not None
    return str(revision) == one.labels.get("revision") and not (is_left_open(head) and is_owned)
