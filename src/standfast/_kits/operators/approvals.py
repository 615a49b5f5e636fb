"""Decide, cancel and unlock saved runs without their agents (B17).

A decision is saved under the run's revision, so that the second of two concurrent deciders is refused. It is bound to
the call, its tool, its arguments and its agent, as one made with the agents at hand is (C16): the worker that resumes
the run checks it against its own agents. Deciding does not continue the run: it is `ready` until a worker does.
"""

from __future__ import annotations

import time
from functools import partial

from standfast._kits.operators.run_view import load
from standfast._src.agents.approvals import arguments_digest, digest_shown_arguments
from standfast._src.base.errors import (
    InvalidSettingError,
    RunClaimedError,
    RunStateError,
)
from standfast._src.realtime.machine.codec import is_call
from standfast._src.runs.engine.advance import advance, refuse_finished
from standfast._src.runs.engine.codec import RunRecord, decode_saved
from standfast._src.runs.engine.decisions import already_decided
from standfast._src.runs.engine.events import Decided
from standfast._src.runs.engine.run import Call, Decision, Run
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.runs.persistence.pending_items import ended_nested, unsent_items, with_items
from standfast._src.runs.persistence.unfinished_runs import give_up_run
from standfast._src.runs.steps.call_lookup import question_shown
from standfast._src.sessions.client.stored_runs import StoredRunStore
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.rules.budgets import draws_of
from standfast._src.sessions.rules.saved_runs import RunSave

LEASE_S = 30.0
# Deciding is two round trips. An operator's process that dies between them blocks the run for no longer than this.

TRIES = 5
# Another's decision about another call of the run may come in between: then it is read and decided again.


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

    def is_as_shown(call: Call) -> bool:
        if arguments is None:
            return prepared_arguments is None or call.prepared_arguments == prepared_arguments
        return digest_shown_arguments(call) == arguments_digest(arguments, prepared_arguments)

    for attempt in range(TRIES):
        saved = await _load_run(runs, run_id)
        run = _require_parked(saved)
        path, call, scope, agent = question_shown(run, call_id, is_as_shown)
        if call.decision is not None:
            raise already_decided(run_id, call.id, call.decision)
        decision = Decision(
            approve, call.id, scope, False, reason, digest_shown_arguments(call), agent, by, time.time()
        )
        after = advance(run, Decided(decision, path, at_rest=True))
        try:
            await save_run(runs, after, saved)
        except RunClaimedError:
            if attempt == TRIES - 1:
                raise
            continue
        return


async def _load_run(runs: StoredRunStore, run_id: str) -> SavedRun:
    saved = await load(runs, run_id)
    if is_call(saved):
        raise RunStateError(
            f"{run_id!r} is a voice call, and whoever is in it decides",
            "Decide in the call: docs/how-to/approve-in-a-call.md.",
        )
    return saved


def _require_parked(saved: SavedRun) -> Run:
    """Return the run if no worker is at it; otherwise raise the reason against a decision."""
    run = decode_saved(saved)
    if run.is_closed:
        refuse_finished(run)
    if run.spec.inside is not None:
        raise RunStateError(
            f"run {saved.run_id!r} is inside run {run.spec.inside!r}, which alone can go on with it",
            f"Decide in run {run.spec.inside!r}, where the same call waits; or give this one up.",
        )
    if not run.is_parked:
        # Saved under its revision, a decision would take the run away from the worker that is at it.
        raise RunClaimedError(
            f"run {saved.run_id!r} does not wait for anybody ({run.status}): a worker is at it, or was",
            "Decide when it has paused; if its worker is gone, resume it first.",
        )
    return run


async def save_run(runs: StoredRunStore, run: Run, saved: SavedRun) -> None:
    """Save a run under its loaded revision."""
    save = _save_of(run, saved)
    await runs.save_run(
        save.run_id,
        expect=save.expect,
        head=save.head,
        tails=save.tails,
        status=save.status,
        agent=save.agent,
        session_id=save.session_id,
    )


def _save_of(run: Run, saved: SavedRun) -> RunSave:
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
    runs: StoredRunStore,
    session: StoredSession | None,
    run_id: str,
    *,
    by: str,
    reason: str | None = None,
    take: bool = False,
) -> None:
    """Cancel a saved run: reject the waiting calls and store its turn whole; see `Store.cancel`."""
    check_name(by)
    text = f"This call was not approved: {by} cancelled the run" + (f" ({reason})." if reason else ".")
    if session is not None and await _take_back(runs, session, run_id, text):
        return
    if session is None:
        async with await runs.lease_run(run_id, ttl_s=LEASE_S, wait_s=0.0, takeover=take):
            saved, run = await _loaded_open(runs, run_id)
            after = give_up_run(text, run, 0)
            is_asked_first = run.progress.outgoing is not None and run.spec.owner.kind == "conversation"
            if is_asked_first or unsent_items(after):
                lacks = "has to be asked about a request of it" if is_asked_first else "lacks the outputs of its calls"
                raise RunStateError(
                    f"a server keeps the conversation of run {run_id!r}, and {lacks}",
                    "Give it up with Runner.cancel_run(...), and bring what that returns with the next run.",
                )
            await save_run(runs, after, saved)
        return
    who, instead_of = f"{by} cancels run {run_id}", run_id if take else None
    async with await session.lease(ttl_s=LEASE_S, wait_s=0.0, holder=who, instead_of=instead_of) as lease:
        saved, run = await _loaded_open(runs, run_id)
        before = give_up_run(text, run, await session.accepted(run_id))
        nested = await ended_nested(session.accepted, run.calls, run.spec.owner, partial(give_up_run, text))
        after, new = with_items(before, keeps_costs=True, nested=nested)
        await session.record(run=_save_of(after, saved), lease=lease, **new.as_arguments())


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
        await session.record(run=_save_of(give_up_run(text, run, 0), saved))
    except RunClaimedError:
        return False  # a worker has begun it, or a run has heard it
    return True


async def _loaded_open(runs: StoredRunStore, run_id: str) -> tuple[SavedRun, Run]:
    """Load the run under the lease: the previous holder has saved for the last time."""
    saved = await _load_run(runs, run_id)
    run = decode_saved(saved)
    if run.is_closed:
        refuse_finished(run)
    return saved, run
