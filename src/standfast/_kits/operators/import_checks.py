"""Checks on a session read elsewhere: only its own history, branches and runs may enter a store.

A session is read from a store that an operator names, or from a file that anyone may have written. Whatever it says, it
touches the session of its own id and no other. A file is trusted less than a store: its branches get new ids, and what
people decided about calls of its runs is asked for again, unless the caller's key has signed the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from standfast._kits.operators.export_format import Exported
from standfast._kits.operators.run_view import view_of
from standfast._src.base.errors import CorruptRecordError, ExportFileError, RunStateError, StandfastError
from standfast._src.base.json_values import decode_value
from standfast._src.realtime.machine import codec as talk_codec
from standfast._src.realtime.machine.voice_call import VoiceCall
from standfast._src.runs.engine.codec import (
    check_ending,
    decode_saved,
    encode_head,
    encode_tails,
    has_ended,
    may_go_on,
)
from standfast._src.runs.engine.decisions import strip_call_decisions, strip_decisions, strip_ledger_decisions
from standfast._src.runs.engine.run import Call, Run, evolve
from standfast._src.runs.engine.run_store import LogTail, SavedRun
from standfast._src.runs.engine.upgrades import SCHEMA
from standfast._src.sessions.rules.history import BRANCHES, MESSAGE
from standfast._src.sessions.rules.messages import decode_note
from standfast._src.sessions.rules.saved_runs import ENDED, LEFT_OPEN
from standfast._src.sessions.rules.snapshot import Picture, RunPicture
from standfast._src.sessions.wrappers.branches.branch_rules import check_own, renew_session_ids

LABELS = ("status", "agent", "session", "revision", LEFT_OPEN)
"""The labels that a run of a session has; all others are left behind."""

STATUSES = ENDED | {"running", "paused", "ready"}

UNREADABLE = (ValueError, TypeError, LookupError, ArithmeticError, RecursionError, AttributeError)
"""What decoding raises for data that is not of its type."""


def own(seen: Picture, moved: Sequence[RunPicture] = ()) -> tuple[Picture, list[RunPicture]]:
    """Return the session and the runs moved with it, reduced to everything allowed in another store.

    Raises RunStateError or CorruptRecordError if a run or a branch belongs to another session.
    """
    cell = seen.others.get(BRANCHES)
    if cell is not None:
        try:
            check_own(seen.session_id, cell)
        except UNREADABLE as error:
            raise CorruptRecordError(
                f"the branches of session {seen.session_id!r} cannot be used: {error}; nothing was changed",
                "Restore the source from a backup, or delete the branch there.",
            ) from error
    return seen._replace(runs=[_own_run(seen, run) for run in seen.runs]), [_own_run(seen, run) for run in moved]


def _own_run(seen: Picture, run: RunPicture) -> RunPicture:
    head = _head(run)
    owner = _owner(head)
    if run.labels.get("session") != seen.session_id or owner not in (None, seen.session_id):
        raise RunStateError(
            f"run {run.run_id!r} came with session {seen.session_id!r} and belongs to another one; nothing was changed",
            "Do not use this source: its author may want to act in that session.",
        )
    if _run_id(head) not in (None, run.run_id):
        raise RunStateError(
            f"run {run.run_id!r} holds another run, or its end; nothing was changed",
            "Take another copy of the session.",
        )
    labels = {name: run.labels[name] for name in LABELS if name in run.labels} | {"revision": str(run.revision)}
    return run._replace(labels=labels)


def _head(run: RunPicture) -> dict[str, Any]:
    """Return the head of a run as JSON; empty for a foreign head."""
    try:
        found = decode_value(run.head)
    except ValueError:
        return {}
    is_ours = isinstance(found, dict) and found.get("schema") in (SCHEMA, talk_codec.SCHEMA)
    return found if is_ours else {}


def _owner(head: dict[str, Any]) -> object:
    """Return the session named by a head of ours; None after the run's end, or for a foreign head."""
    if _is_call(head):
        return head.get("session_id") or ""
    if not head or "ended" in head:
        return None
    spec = head.get("spec")
    owner = spec.get("owner") if isinstance(spec, dict) else None
    return owner.get("id", "") if isinstance(owner, dict) and owner.get("kind") == "session" else ""


def _run_id(head: dict[str, Any]) -> object:
    """Return the run id in the head of a voice call or of an ended run; None for any other head."""
    return head.get("run_id", "") if _is_call(head) else head.get("ended")


def _is_call(head: dict[str, Any]) -> bool:
    """Return whether a head is a voice call's. There `ended` is a flag; in a run's head, the run's id."""
    return head.get("schema") == talk_codec.SCHEMA


# --- files -----------------------------------------------------------------------------------------------------------


class FromFile(NamedTuple):
    """Contributions of a file: the session, the accepted runs that can still act, and the ids of rejected runs."""

    seen: Picture
    moved: list[RunPicture]
    left: tuple[str, ...]


def from_file(given: Exported, session_id: str | None, *, accept_runs: bool) -> FromFile:
    """Return the allowed contents of a file. `session_id`: a different id for the session, without any of its runs.

    Raises ExportFileError or RunStateError for a file that cannot be used.
    """
    try:
        return _from_file(given, session_id, accept_runs=accept_runs)
    except StandfastError:
        raise
    except UNREADABLE as error:
        raise ExportFileError(
            f"this exported session cannot be used: {error}; nothing was imported",
            "Export it again, or take another copy of it.",
        ) from error


def _from_file(given: Exported, session_id: str | None, *, accept_runs: bool) -> FromFile:
    seen = given.picture
    notes = {name: cell for name, cell in seen.others.items() if name.startswith(MESSAGE)}
    for cell in notes.values():
        decode_note(cell)
    if unknown := sorted(seen.others.keys() - {BRANCHES} - notes.keys()):
        raise ValueError(f"it has a cell {unknown[0]!r}, which is none of a session's own")
    _, runs = own(seen._replace(others={}), given.runs)
    comes = accept_runs and session_id is None
    runs = [_check_run(run, is_signed=given.is_signed, comes=comes) for run in runs]
    others = notes | {
        name: renew_session_ids(session_id or seen.session_id, cell)
        for name, cell in seen.others.items()
        if name not in notes
    }
    seen = seen._replace(session_id=session_id or seen.session_id, others=others)
    ended = [run for run in runs if not may_go_on(run.status, run.head)]
    acting = [run for run in runs if may_go_on(run.status, run.head)]
    ids = tuple(run.run_id for run in acting)
    if session_id is not None:
        return FromFile(seen, [], ids)
    for run in acting:
        if not run.token:
            raise ValueError(f"run {run.run_id!r} can still act, and was not moved into the file")
    seen = seen._replace(runs=[run._replace(token="") for run in ended])
    return FromFile(seen, acting, ()) if accept_runs else FromFile(seen, [], ids)


def _check_run(run: RunPicture, *, is_signed: bool, comes: bool) -> RunPicture:
    """Decode a run into its type, and drop people's decisions unless the file is signed.

    `comes`: whether it is stored also if it can still act.
    """
    if run.labels.get("status") not in STATUSES or "agent" not in run.labels:
        raise ValueError(f"run {run.run_id!r} has no status that a run can have")
    saved = SavedRun(run.run_id, run.revision, run.head, {log: tuple(some) for log, some in run.logs.items()})
    head = _head(run)
    if not head:
        if run.status not in ENDED and not is_signed:
            raise ValueError(f"run {run.run_id!r} can still act, and is none that this release can read")
        return run
    is_checked_inside = not is_signed and (comes or not may_go_on(run.status, run.head))
    if _is_call(head):
        talk = talk_codec.decode_saved(saved)
        if is_checked_inside:
            _refuse_children(run, [one.call for one in talk.calls])
        checked = run if is_signed else _undecided_call(run, talk)
        return _relabel(checked, talk.run_id, talk.status, talk.agent)
    if has_ended(saved):
        ending = check_ending(saved)
        checked = _relabel(run, run.run_id, ending.status, ending.agent)
    else:
        found = decode_saved(saved)
        if is_checked_inside:
            _refuse_children(run, found.calls)
        found = found if is_signed else _strip_counts(strip_decisions(found))
        checked = run if is_signed else _replace_records(run, encode_head(found), encode_tails(found, {}))
        checked = _relabel(checked, found.spec.run_id, found.status, found.progress.agent)
    view_of(SavedRun(checked.run_id, checked.revision, checked.head, {k: tuple(v) for k, v in checked.logs.items()}))
    return checked


def _strip_counts(run: Run) -> Run:
    """Return the run of an unsigned file without its counts: they would fill, or refill, budgets of the target.

    Its limits stay. Under them, what it has used is counted from its replies.
    """
    return evolve(run, spec=run.spec.with_context("tally", None).with_context("budgets", None))


def _relabel(run: RunPicture, run_id: str, status: str, agent: str) -> RunPicture:
    """Return the run with labels taken from its own head: a listing and a pass of `recover` rely on them."""
    if run_id != run.run_id:
        raise ValueError(f"run {run.run_id!r} holds another run")
    return run._replace(labels={**run.labels, "status": status, "agent": agent})


def _undecided_call(run: RunPicture, talk: VoiceCall) -> RunPicture:
    calls = tuple(evolve(one, call=strip_call_decisions(one.call)) for one in talk.calls)
    new = evolve(talk, calls=calls, decisions=(), ledger=strip_ledger_decisions(talk.ledger))
    return _replace_records(run, talk_codec.encode_head(new), talk_codec.encode_tails(new, 0))


def _replace_records(run: RunPicture, head: bytes, tails: dict[str, LogTail]) -> RunPicture:
    return run._replace(head=head, logs={log: list(tail.records) for log, tail in tails.items()})


def _refuse_children(run: RunPicture, calls: Sequence[Call]) -> None:
    """Refuse a run inside a call (an agent tool's) in a file that is not signed.

    The inner run implies that a policy or a person let the call run, and an unsigned file is not evidence of that. If
    the call were asked about again, it would start from the beginning and repeat the effects of the inner run.
    """
    if any(call.child is not None for call in calls):
        raise RunStateError(
            f"run {run.run_id!r} is in the middle of an agent's call, with a run inside it; nothing was imported",
            "Only a signed file may bring it: export and import it with key=, or import it without its runs.",
        )
