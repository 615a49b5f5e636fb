"""Decide, cancel and unlock saved runs without their agents (B17, F7).

What is said to a run changes it at once if no worker has it, and else is kept for its worker as a signal: one plan does
both (`_src/sessions/rules/run_signals.py`). A decision is bound to the call, its tool, its arguments and its agent, as
one made with the agents at hand is (C16): the worker that resumes the run checks it against its own agents. Deciding
does not continue the run: it is `ready` until a worker does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from standfast._kits.operators.run_view import load
from standfast._src.agents.approvals import arguments_digest, digest_shown_arguments
from standfast._src.base.errors import (
    ApprovalError,
    InvalidSettingError,
    RunClaimedError,
    RunStateError,
    SessionBusyError,
)
from standfast._src.realtime.machine.codec import is_call
from standfast._src.runs.engine.advance import advance, refuse_finished
from standfast._src.runs.engine.codec import RunRecord, decode_saved
from standfast._src.runs.engine.decisions import already_decided
from standfast._src.runs.engine.events import Decided
from standfast._src.runs.engine.run import Call, Decision, Run
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.runs.engine.signals import Signal
from standfast._src.runs.persistence.pending_items import ended_nested, unsent_items, with_items
from standfast._src.runs.persistence.unfinished_runs import give_up_run
from standfast._src.runs.steps.call_lookup import calls_within, question_shown
from standfast._src.sessions.client.stored_runs import StoredRunStore
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.rules.budgets import draws_of
from standfast._src.sessions.rules.run_signals import Change
from standfast._src.sessions.rules.saved_runs import RunSave

LEASE_S = 30.0
# Cancelling is two round trips. An operator's process that dies between them blocks the run for no longer than this.


async def decide(
    runs: StoredRunStore,
    run_id: str,
    call_id: str,
    *,
    approve: bool,
    by: str,
    reason: str | None = None,
    arguments: str | None = None,
    prepared_arguments: str | None = None,
) -> None:
    """Save a decision about a waiting call; see `Store.decide`."""
    check_name(by)
    signal_id, at = uuid4().hex, time.time()

    def is_as_shown(call: Call) -> bool:
        if arguments is None:
            return prepared_arguments is None or call.prepared_arguments == prepared_arguments
        return digest_shown_arguments(call) == arguments_digest(arguments, prepared_arguments)

    def change(saved: SavedRun) -> Change:
        run = open_run(saved)
        try:
            path, call, scope, agent = question_shown(run, call_id, is_as_shown)
        except ApprovalError:
            if _has_decided(run, call_id, is_as_shown, by, at):
                return None
            _refuse_at_work(run)
            raise
        if call.decision is not None:
            _refuse_second(run_id, call, by, at)
            return None
        digest = digest_shown_arguments(call)
        decision = Decision(approve, call.id, scope, False, reason, digest, agent, by, at)
        if not run.is_parked:
            return Signal(0, signal_id, path, decision)
        return save_of(advance(run, Decided(decision, path, at_rest=True)), saved)

    await runs.change_run(run_id, change)


def _refuse_second(run_id: str, call: Call, by: str, at: float) -> None:
    """Raise AlreadyDecidedError for a decided call, unless the decision is this one: an answer may have been lost."""
    assert call.decision is not None
    if (call.decision.by, call.decision.at) != (by, at):
        raise already_decided(run_id, call.id, call.decision)


def _has_decided(run: Run, call_id: str, is_as_shown: Callable[[Call], bool], by: str, at: float) -> bool:
    """Return True if a worker has applied the decision and run the call; raise AlreadyDecidedError for another one."""
    for _, _, call in calls_within(run):
        if call.id == call_id and call.decision is not None and call.decision.by is not None and is_as_shown(call):
            _refuse_second(run.spec.run_id, call, by, at)
            return True
    return False


def open_run(saved: SavedRun) -> Run:
    """Return an open run with pending signals applied; otherwise raise the reason against a change."""
    if is_call(saved):
        raise RunStateError(
            f"{saved.run_id!r} is a voice call, and whoever is in it decides",
            "Decide in the call: docs/how-to/approve-in-a-call.md.",
        )
    run = decode_saved(saved)
    if run.is_closed:
        refuse_finished(run)
    if run.spec.inside is not None:
        raise RunStateError(
            f"run {saved.run_id!r} is inside run {run.spec.inside!r}, which alone can go on with it",
            f"Decide in run {run.spec.inside!r}, where the same call waits; or give this one up.",
        )
    return run


def _refuse_at_work(run: Run) -> None:
    """Raise if a worker is at the run, so that the call may wait for a decision later."""
    if not run.is_parked:
        raise RunClaimedError(
            f"run {run.spec.run_id!r} does not wait for anybody ({run.status}): a worker is at it, or was",
            "Decide when the call waits; if its worker is gone, resume it first.",
        )


def save_of(run: Run, saved: SavedRun) -> RunSave:
    """Build the save of a run under its loaded revision."""
    record = RunRecord(run)
    tails = record.tails({log: len(records) for log, records in saved.logs.items()})
    return RunSave(
        record.run_id, saved.revision, record.head(), tails, record.status, record.agent, record.session_id,
        draws=draws_of(record),
    )  # fmt: skip


def check_name(by: object) -> None:
    """Refuse a decision without a decider's name."""
    if not isinstance(by, str) or not by.strip():
        raise InvalidSettingError(f"{by!r} does not say who decides", "Give a name or an address as `by`.")


# --- giving up -------------------------------------------------------------------------------------------------------


async def cancel(
    runs: StoredRunStore, session: StoredSession | None, run_id: str, *, by: str, reason: str | None = None
) -> None:
    """Cancel a saved run, or ask its worker to end it; see `Store.cancel`."""
    check_name(by)
    text = f"This call was not approved: {by} cancelled the run" + (f" ({reason})." if reason else ".")
    if session is not None and await _take_back(runs, session, run_id, text):
        return
    signal_id = uuid4().hex
    try:
        await _cancel_at_rest(runs, session, run_id, by, text)
    except (SessionBusyError, RunClaimedError) as error:
        busy = error

        def wish(saved: SavedRun) -> Change:
            run = open_run(saved)
            if run.spec.message is not None and run.status == "ready" and not run.has_done_something:
                raise busy  # the run under way may be hearing this message
            return None if run.spec.cancel_wish is not None else Signal(0, signal_id, by=by, cancel=text)

        await runs.change_run(run_id, wish)
        try:
            # The holder may have released the session before it could meet the wish.
            await _cancel_at_rest(runs, session, run_id, by, text)
        except (SessionBusyError, RunClaimedError):
            return  # its worker ends it, or the next one does
        except RunStateError:
            if (await runs.load_run(run_id)) is None:
                raise
            # it has met the wish, and ended


async def _cancel_at_rest(runs: StoredRunStore, session: StoredSession | None, run_id: str, by: str, text: str) -> None:
    """Cancel a run without a worker: reject its waiting calls and store its turn whole, under a lease."""
    if session is None:
        async with await runs.lease_run(run_id, ttl_s=LEASE_S, wait_s=0.0):
            saved, run = await _loaded_open(runs, run_id)
            after = give_up_run(text, run, 0)
            is_asked_first = run.progress.outgoing is not None and run.spec.owner.kind == "conversation"
            if is_asked_first or unsent_items(after):
                lacks = "has to be asked about a request of it" if is_asked_first else "lacks the outputs of its calls"
                raise RunStateError(
                    f"a server keeps the conversation of run {run_id!r}, and {lacks}",
                    "Give it up with Runner.cancel_run(...), and bring what that returns with the next run.",
                )
            await runs.record_run(save_of(after, saved))
        return
    async with await session.lease(ttl_s=LEASE_S, wait_s=0.0, holder=f"{by} cancels run {run_id}") as lease:
        saved, run = await _loaded_open(runs, run_id)
        before = give_up_run(text, run, await session.accepted(run_id))
        nested = await ended_nested(session.accepted, run.calls, run.spec.owner, partial(give_up_run, text))
        after, new = with_items(before, keeps_costs=True, nested=nested)
        await session.record(run=save_of(after, saved), lease=lease, **new.as_arguments())


async def _take_back(runs: StoredRunStore, session: StoredSession, run_id: str, text: str) -> bool:
    """End a waiting message that no run under way can hear, without the session's lease; return False for another run.

    The revision fences: of this step and a worker that begins the message, or a run that hears it first, one is
    refused. A message that may steer needs the lease: the run under way may be storing it.
    """
    saved, run = await _loaded_open(runs, run_id)
    said = run.spec.message
    if said is None or run.status != "ready" or run.has_done_something or said.get("when_busy", "steer") == "steer":
        return False
    try:
        await session.record(run=save_of(give_up_run(text, run, 0), saved))
    except RunClaimedError:
        return False  # a worker has begun it, or a run has heard it
    return True


async def _loaded_open(runs: StoredRunStore, run_id: str) -> tuple[SavedRun, Run]:
    """Load the run under the lease: the previous holder has saved for the last time."""
    saved = await load(runs, run_id)
    if is_call(saved):
        open_run(saved)  # raises
    run = decode_saved(saved)
    if run.is_closed:
        refuse_finished(run)
    return saved, run
