"""Start of a run: one function for each way in.

A fresh run, a run continued under its old id, a resumed run and an abandoned run differ only in the first `Run` of the
loop, and in the checks before it.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from standfast._src.base.errors import (
    OwnerError,
    RunClaimedError,
    RunStateError,
    SessionBusyError,
    SessionConflictError,
    UserError,
)
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.operational_events import emit
from standfast._src.items.items import ModelResponse, readable
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.advance import advance, raise_for_hold, refuse_finished, refuse_settled
from standfast._src.runs.engine.append_log import Log
from standfast._src.runs.engine.codec import RunRecord, decode_saved, ending_of, has_ended
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.events import Claimed, ToolsGone
from standfast._src.runs.engine.run import Response, Run, begin, evolve
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.runs.loop.conversation_owner import owner_on_resume
from standfast._src.runs.loop.initial_run import as_shown, under_limits
from standfast._src.runs.loop.run_scope import ResumedRun, RunScope, usage_of
from standfast._src.runs.persistence.heard_messages import hear_first, hears_at_once
from standfast._src.runs.persistence.recover_from_session import another_input, rebuild_from_items
from standfast._src.runs.persistence.resume_checks import check_saved, check_tools, check_unclaimed
from standfast._src.runs.persistence.run_saver import RunSaver
from standfast._src.runs.persistence.unfinished_on_server import (
    end_superseded_runs,
    find_on_server,
    given_input_of,
    is_over,
    settle_on_server,
    with_answer_if_told,
)
from standfast._src.runs.persistence.unfinished_runs import give_up_run, look_for_unfinished
from standfast._src.runs.steps.call_lookup import calls_within
from standfast._src.runs.steps.run_guardrails import restored_results
from standfast._src.runs.steps.turn_outcome import restored_output
from standfast._src.sessions.records import RequestCost
from standfast._src.sessions.rules.leases import OpenRun


@dataclass(frozen=True, slots=True)
class Opened:
    """Opened run, and the saver of the run."""

    run: Run
    saver: RunSaver[Run] | None = None


# --- a new run -------------------------------------------------------------------------------------------------------


async def open_new(scope: RunScope, fresh: Run) -> Opened:
    """Open a new run. A run with an id of its own may have been started before, and is then continued."""
    _refuse_other_store(scope)
    named = scope.config.run_id is not None
    if scope.session is None and not named and scope.store is None:
        return Opened(fresh)  # it is kept nowhere, so no worker can have left or begun anything of it
    if scope.session is not None:
        await scope.session.hold()
    # A retry right after a crash finds the lease of a dead worker: it waits until that has ended, or its holder has
    # given a sign of life, and only then is it told.
    wait_s = scope.config.lease_wait_s if scope.config.concurrency == "wait" else 0.0
    await _hold_run(scope, fresh.spec.run_id, wait_s=wait_s, until_alive=True)
    if named and (earlier := await _open_earlier(scope, fresh)) is not None:
        return earlier
    await look_for_unfinished(scope, fresh.spec.run_id, is_resumed=False)
    run, gone = await settle_on_server(scope, fresh, is_resumed=False)
    saver = _saver(scope, needed=named or bool(gone) or hears_at_once(scope))
    if gone and scope.arguments.moved is not None:
        await scope.arguments.moved(run)  # first: who goes on with a nested run goes by what its parent knows
    await _save_first(saver, run, gone)
    run = await hear_first(scope, run)  # saved before: whatever dies now, a worker resumes the run that heard them
    return Opened(await as_shown(scope, run), saver)


def _refuse_other_store(scope: RunScope) -> None:
    """Raise UserError if a new run would be saved apart from a session able to keep the run in the same step (C12).

    Nested runs inherit their settings, and are kept in another store only where that can be done in one step.
    """
    hold, given = scope.session, scope.config.run_store
    if hold is None or scope.config.save == "never" or scope.arguments.moved is not None:
        return
    if given is None or given == "auto" or hold.run_store() is None or hold.is_beside(given):
        return
    raise UserError(
        f"session {hold.session_id!r} keeps its runs itself, and RunConfig(run_store=...) names another store",
        "Leave run_store out. A run that was saved in the other store is resumed by Runner.resume(..., run_store=...).",
    )


async def _save_first(saver: RunSaver[Run] | None, run: Run, gone: Sequence[Callable[[], Awaitable[None]]]) -> None:
    """Save a run before its first effect, if necessary; then end the crashed runs with debts taken over by this run.

    Of two workers starting or taking a run, the second is refused here (C12, C16).
    """
    if saver is not None and saver.needed:
        await saver.save(run)
    for end_gone in gone:
        await end_gone()  # not before: killed in between, what they owe is still theirs


def _saver(
    scope: RunScope, *, revision: int = 0, needed: bool = False, saved: Run | None = None
) -> RunSaver[Run] | None:
    """Return the saver of the run, or None if the run is not saved."""
    if scope.store is None:
        return None
    return RunSaver(scope.store, RunRecord, hold=scope.session, revision=revision, needed=needed, saved=saved)


async def _hold_run(scope: RunScope, run_id: str, *, wait_s: float = 0.0, **how: bool) -> None:
    """Take a lease on the run itself, if the store can and no session's lease covers the run (C12, C16).

    Raises RunClaimedError while another worker has the run. `how`: see `run_leases.lease_run`.
    """
    lease: Any = getattr(scope.store, "lease_run", None)
    if lease is not None and not _is_covered(scope, run_id) and scope.run_lease is None:
        taken = await lease(run_id, ttl_s=scope.config.lease_ttl_s, wait_s=wait_s, **how)
        scope.run_lease = taken
        if before := getattr(taken, "taken_from", ""):
            emit("lease_taken_over", holder="a worker", what=f"run {run_id}", before=before)


def _is_covered(scope: RunScope, run_id: str) -> bool:
    """Return True if our own lease on the session rules out another worker at the run.

    A run last saved beside the lease (concurrency="allow") is not covered: its worker holds a lease on the run itself.
    """
    lease = scope.session.lease if scope.session is not None else None
    if lease is None:
        return False
    left: Sequence[OpenRun] = getattr(lease, "open_runs", ())
    return not any(one.run_id == run_id and one.status == "running" and not one.lease_number for one in left)


def _has_no_worker(scope: RunScope) -> bool:
    """Return True if certainly no other worker has the run, because we hold the lease covering it."""
    if scope.session is not None and scope.session.lease is not None:
        return True
    # The first lease ever says nothing: the worker that saved the run may have had none.
    return scope.run_lease is not None and scope.run_lease.number > 1


# --- the same id again -----------------------------------------------------------------------------------------------


async def _open_earlier(scope: RunScope, fresh: Run) -> Opened | None:
    """Open an earlier run of the same id from the saved state or, without a state, from the session's items (C12)."""
    run_id, session = fresh.spec.run_id, scope.session
    saved = await scope.store.load_run(run_id) if scope.store is not None else None
    if saved is not None and not has_ended(saved):
        return await _open_again(scope, fresh, decode_saved(saved), saved.revision)
    ending = ending_of(saved) if saved is not None else None
    if ending is not None:
        refuse_settled(run_id, ending.get("settled_by"), ending.get("moved_to"))
    count = await session.accepted(run_id) if session is not None else 0
    items = await session.written(run_id) if session is not None and count else []
    if not items:
        if count:
            # Its ordinals are used up: whatever this run would store under them would be taken for a repeat.
            raise SessionConflictError(
                f"run {run_id!r} has written to this session, and what it wrote cannot be told any more",
                "Resume it from its state, or start a new run under another run_id.",
            )
        if saved is not None:
            raise RunStateError(f"run {run_id!r} has ended", "Start the next run under another run_id.")
        return None
    run = await rebuild_from_items(scope, fresh, items, ending)
    if run.status == "cancelled":
        raise RunStateError(
            f"run {run_id!r} was given up and has ended",
            "Start the next run under another run_id; the history has what this one did.",
        )
    if not run.is_closed:
        await look_for_unfinished(scope, run_id, is_resumed=True)
    run = _with_costs(run, await _add_kept_usage(scope, run_id))
    return Opened(run, _saver(scope, revision=saved.revision if saved is not None else 0, needed=saved is None))


async def _open_again(scope: RunScope, fresh: Run, earlier: Run, revision: int) -> Opened:
    if [entry.item for entry in fresh.ledger] != given_input_of(earlier):
        raise another_input(fresh)
    owner_on_resume(earlier, scope.arguments.owner)
    check_saved(earlier, scope.graph)
    refuse_settled(earlier.spec.run_id, earlier.progress.settled_by)
    raise_for_hold(earlier)
    earlier = under_limits(earlier, scope.config)
    if earlier.is_closed or _only_waits(earlier):
        scope.wrapper.usage.add(usage_of(earlier))
        return await _look_at(scope, earlier, revision)
    # Where the store cannot lease, the revision decides between two workers: the one that saves first goes on.
    if earlier.status == "running" and scope.run_lease is not None and not _has_no_worker(scope):
        raise _marked_as_running(earlier)
    return await _claim(scope, earlier, revision, adds_usage=True)


def _marked_as_running(run: Run) -> RunClaimedError:
    # With a lease we would know that its holder is gone. Here no worker can tell.
    return RunClaimedError(
        f"run {run.spec.run_id!r} is marked as running, perhaps by another worker",
        "If that worker is gone, resume it with takeover=True; what it had begun is settled, not repeated.",
    )


# --- resumed ---------------------------------------------------------------------------------------------------------


async def open_resumed(scope: RunScope, resumed: ResumedRun) -> Opened:
    """Open a saved run to resume it. Every objection is found before any lease is taken."""
    run, status, is_nested = resumed.run, resumed.status, scope.arguments.moved is not None
    if run.is_closed:
        refuse_finished(run)
    if status is None:  # else the caller that loaded it, just now, has looked at all of this
        check_saved(run, scope.graph)
        # One that goes on inside another is as its parent's record says; what its session's store says is asked below.
        status = run.status if is_nested else await check_unclaimed(run, scope.store, resumed.revision)
    raise_for_hold(run)
    if _only_waits(run):
        return await _look_at(scope, run, resumed.revision)
    await _hold(scope, resumed)
    may_wait = scope.config.concurrency == "wait" and not (resumed.takeover or resumed.at_once)
    wait_s = scope.config.lease_wait_s if may_wait else 0.0
    try:
        await _hold_run(scope, run.spec.run_id, wait_s=0.0 if is_nested else wait_s, takeover=resumed.takeover)
    except RunClaimedError:
        if not is_nested:
            raise
        await _hold_run(scope, run.spec.run_id, takeover=True)  # the worker of the run around it may continue it
    if status == "running" and not (is_nested or _has_no_worker(scope) or resumed.takeover):
        raise _marked_as_running(run)
    return await _claim(scope, run, await _load_revision(scope, resumed))


def _only_waits(run: Run) -> bool:
    """Return True if a run waits for a person, with nothing to do before the decision."""
    return run.paused and not due(run) and run.spec.cancel_wish is None


async def _load_revision(scope: RunScope, resumed: ResumedRun) -> int:
    """Return the saved revision of a run, for a nested run from its own conversation's store; 0 if it is not saved.

    Raises RunClaimedError if a worker has ended a nested run there, after a crash unknown to its parent.
    """
    run = resumed.run
    if scope.arguments.moved is None:
        return resumed.revision
    saved = await scope.store.load_run(run.spec.run_id) if scope.store is not None else None
    if saved is None:
        return 0
    if not run.finished and is_over(saved):
        error = RunClaimedError(
            f"run {run.spec.run_id!r} was ended on its own conversation while the run around it was not at it",
            "Read that conversation: what it had begun is said there to be unknown.",
        )
        error.state_is_behind = True
        raise error
    return saved.revision


async def _hold(scope: RunScope, resumed: ResumedRun) -> None:
    try:
        if scope.session is not None:
            await scope.session.hold(at_once=resumed.at_once)
    except SessionBusyError:
        # The holder of the session may have it because it resumed this very run: then the error says that.
        await check_unclaimed(resumed.run, scope.store, resumed.revision)
        raise


async def _look_at(scope: RunScope, run: Run, revision: int) -> Opened:
    """Open an ended run, or a run without a decision, for reading: it is neither written nor consumed."""
    saver = _saver(scope, revision=revision, saved=run)
    if not run.is_closed:
        run = advance(run, Claimed(run.progress.claim or "", stored=await _stored_count(scope, run)))
    _restore(scope, run)
    if saver is not None:
        saver.take_for_saved(run)
    return Opened(run, saver)


async def _claim(scope: RunScope, run: Run, revision: int, *, adds_usage: bool = False) -> Opened:
    """Claim a saved run, once: of two workers trying, the second is refused before anything runs (C12).

    `adds_usage`: the earlier cost of the run is not in the caller's usage yet.
    """
    # A state of which nothing has happened is a new message in another form.
    is_resumed = revision > 0 or run.has_done_something or run.progress.turns > 0
    is_untouched = not run.has_done_something
    await look_for_unfinished(scope, run.spec.run_id, is_resumed=is_resumed, is_untouched=is_untouched)
    if run.spec.inside is not None and scope.arguments.moved is None:
        raise RunStateError(
            f"run {run.spec.run_id!r} is inside run {run.spec.inside!r}, which alone can go on with it",
            f"Resume run {run.spec.inside!r}; or give this one up with Runner.cancel_run.",
        )
    await end_superseded_runs(scope, run)
    status = run.status
    gone: list[Callable[[], Awaitable[None]]] = []
    if _had_no_reply(scope, run):  # other programs may have written to the conversation meanwhile
        if run.progress.outgoing is None:
            run, gone = await settle_on_server(scope, run, is_resumed=is_resumed)
        else:
            # What the request that had left carries cannot be added to.
            await find_on_server(scope, run, is_resumed=is_resumed)
    found = run
    run = advance(run, Claimed(uuid.uuid4().hex, stored=await _stored_count(scope, run)))
    if adds_usage:
        scope.wrapper.usage.add(usage_of(run))  # not before: a run that lets another go first comes here again
    _restore(scope, run)
    missing = await check_tools(scope, run)
    if missing:
        run = advance(run, ToolsGone(missing))
    # The whole run is written, not what is new: the state at hand may be ahead of what was saved.
    saver = _saver(scope, revision=revision, needed=revision > 0 or bool(gone))
    if saver is not None and revision > 0:
        scope.give_back_claim = partial(saver.give_back, _to_be_taken(found))
    await _save_first(saver, run, gone)
    run = await hear_first(scope, run)
    emit("run_resumed", run=run.spec.run_id, status=status)
    return Opened(run, saver)


def _had_no_reply(scope: RunScope, run: Run) -> bool:
    """Return True if the server has never replied to the run: the run then enters the conversation as a new run."""
    return scope.arguments.moved is None and not run.marks.acknowledged and run.turn is None


def _to_be_taken(run: Run) -> Run:
    """Return the run for its next worker: after a decision, and with nothing under way, its status is ready.

    A decided state of a program says that it continues, and after a crash this stays true.
    """
    calls = [call for _, _, call in calls_within(run) if call.child is None]
    is_decided = any(call.is_question for call in calls) and not any(call.state in ("begun", "doubt") for call in calls)
    return evolve(run, progress=evolve(run.progress, is_ready=True)) if run.status == "running" and is_decided else run


async def open_finished(scope: RunScope, saved: SavedRun) -> Opened:
    """Open an ended saved run for reading: nothing is written, nothing is claimed and nothing runs."""
    ending = ending_of(saved)
    if ending is None:
        run = decode_saved(saved)
        if not run.is_closed:
            raise RunStateError(
                f"run {saved.run_id!r} has not ended ({run.status})", "Resume it with Runner.resume, or wait for it."
            )
        scope.wrapper.usage.add(usage_of(run))
        return await _look_at(scope, run, saved.revision)
    refuse_settled(saved.run_id, ending.get("settled_by"), ending.get("moved_to"))
    if scope.session is None:
        raise UserError(
            f"run {saved.run_id!r} ended in a session, which has what it said", "Pass that session: session=..."
        )
    if not await scope.session.accepted(saved.run_id):
        raise OwnerError(
            f"run {saved.run_id!r} has stored nothing in session {scope.session.session_id!r}: it is another's",
            "Pass the session that it ran on; Runner.list_runs(...) tells its id.",
        )
    items = await scope.session.written(saved.run_id)
    await _add_kept_usage(scope, saved.run_id)
    count = ending.get("input_count")
    fresh = begin(
        run_id=saved.run_id,
        agent=scope.graph.key(scope.graph.start),
        input_items=items[: _count_leading_input(items) if count is None else count],
        owner=scope.arguments.owner,
        max_turns=ending.get("max_turns"),
        verdict="passed",
    )
    return Opened(await rebuild_from_items(scope, fresh, items, ending))


async def _add_kept_usage(scope: RunScope, run_id: str) -> Sequence[RequestCost]:
    """Count the earlier cost of the run into the run's usage, if the session has kept the cost (B15)."""
    assert scope.session is not None  # the caller has read the run from it
    for one in await scope.session.usage():
        if one.run_id == run_id:
            scope.wrapper.usage.add(one.total)
            return one.requests
    return ()


def _with_costs(run: Run, kept: Sequence[RequestCost]) -> Run:
    """Return the run with hidden replies for the kept costs; the content of these replies is in its ledger already.

    Costs are kept by number of reply: if replies were counted from the start again, new costs would replace old ones.
    """
    replies = [Response((), one.usage.to_json(), hidden=True, model=one.model, agent=one.agent) for one in kept]
    return evolve(run, responses=Log(replies), marks=evolve(run.marks, billed=len(replies)))


def _count_leading_input(items: list[Item]) -> int:
    """Return the number of items before the model's first item, for runs of 0.1, saved without that number."""
    said = [place for place, item in enumerate(items) if item.get("role") not in ("user", "system", "developer")]
    return said[0] if said else len(items)


async def open_abandoned(scope: RunScope, resumed: ResumedRun, message: str) -> Opened:
    """Open a saved run to give it up: open calls are closed with `message`.

    The run is not saved here: between this save and the store of its items, no worker could see that it is given up.
    """
    run = resumed.run
    if run.is_closed:
        refuse_finished(run)
    await _hold(scope, resumed)
    await _hold_run(scope, run.spec.run_id)
    revision = await _load_revision(scope, resumed)
    run = give_up_run(message, await with_answer_if_told(scope, run), await _stored_count(scope, run))
    return Opened(run, _saver(scope, revision=revision, needed=True))


async def _stored_count(scope: RunScope, run: Run) -> int:
    """Return the number of the run's items in its session, independent of the run's own record."""
    if scope.session is None:
        return 0
    held = await scope.session.stored_count(run.spec.run_id, run.marks.stored)
    if held > len(run.ledger):
        error = RunClaimedError(
            f"run {run.spec.run_id!r} has gone on since this state of it was taken: its session holds {held} of its"
            f" items, and the state knows {len(run.ledger)}",
            "Resume its latest state, or by its id; what it has done since must not be done again.",
        )
        error.state_is_behind = True
        raise error
    return held


def _restore(scope: RunScope, run: Run) -> None:
    """Restore a saved run's knowledge in this process: decisions, replies, results of guardrails, input and output."""
    book = scope.wrapper.approvals
    known = {(one.call_id, one.scope, one.approved) for one in book.decisions()}
    for one in run.decided:
        if (one.call_id, one.scope, one.approved) not in known:
            book.record(one)
    book.drain()
    if run.progress.ended:
        scope.final_output = restored_output(scope, run)
    scope.responses = [
        ModelResponse(
            [readable(item) for item in one.items], Usage.from_json(one.usage), one.response_id, one.request_id
        )
        for one in run.responses
        if not one.hidden
    ]
    resumed = scope.arguments.resumed
    earlier = resumed.scope.results if resumed is not None and resumed.scope is not None else None
    scope.results = restored_results(scope, run, earlier)
    inputs = [entry.item for entry in run.ledger[: run.spec.input_count]]
    text = inputs[0].get("content") if run.spec.input_is_text and len(inputs) == 1 else None
    scope.given_input = text if isinstance(text, str) else [copy_json(item) for item in inputs]
    scope.shown_calls = {call.id for call in run.calls if call.state == "returned"}
