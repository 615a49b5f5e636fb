"""Unfinished runs of the conversation: found, settled, shown or refused, never stepped over (C15).

The outermost run looks once, under its lease, before it reads history. A run with a certainly crashed worker is closed
from its data alone: none of its agents, tools or guardrails is needed. A run waiting for a person is left unchanged;
requests show its open turn behind the history, and nothing else ever does. Where nothing can be proved, runs are left
alone and reported.

Only a new message settles. A resumed run lets a run with a crashed worker finish first (`SiblingFirst`), or leaves it
open and shows it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from standfast._src.agents.run_config import Unfinished
from standfast._src.base.errors import RunClaimedError, StandfastError, UnfinishedRunError
from standfast._src.base.json_values import Item
from standfast._src.base.operational_events import emit
from standfast._src.realtime.machine.codec import is_call
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.codec import RunRecord, decode_saved, has_ended
from standfast._src.runs.engine.events import Claimed, SettledBy, Stopped
from standfast._src.runs.engine.request import open_turn
from standfast._src.runs.engine.run import Call, Owner, Run, evolve
from standfast._src.runs.engine.run_store import RunStore, RunSummary, SavedRun
from standfast._src.runs.loop.run_scope import RunScope, Seen, UnfinishedRun, Yielding, logger
from standfast._src.runs.persistence.pending_items import ended_nested, items_to_store, with_items
from standfast._src.runs.persistence.run_saver import RunSaver
from standfast._src.runs.persistence.session_lock import NewItems, SessionLock
from standfast._src.runs.persistence.unfinished_voice_calls import (
    FoundCall,
    calls_in,
    close_gone_call,
    read_call,
    unreadable,
)
from standfast._src.runs.steps.call_lookup import Question, questions_of, tell_begun
from standfast._src.runs.steps.reply_parsing import normal_json

OPEN = ("running", "paused", "ready")

AT_REST = ("failed", "cancelled")
# No worker runs such a run: settling it races only with a worker that resumes it, and the revision chooses one of them.


TAKEOVERS_MAX = 5
"""How many workers may lose a run before later runs stop letting it finish first.

A run whose tool ends its process would else end every worker that comes to its conversation, and block that for good.
"""


@dataclass(frozen=True, slots=True)
class Found:
    """An unfinished run."""

    run: Run
    revision: int
    is_gone: bool
    """True if it is certain that no worker runs it."""
    is_orphan: bool = False
    """True if the run around it will not continue it, so that no worker can."""
    own: Run | None = None
    """What its own record says, where `run` is what that of the run around it says."""

    @property
    def kept(self) -> Run:
        """Run of the record to be written: its own, not its parent's copy."""
        return self.own or self.run

    @property
    def remedy(self) -> str:
        """Advice for a caller refused because of this run."""
        inside = self.run.spec.inside
        if inside is not None:
            return (
                f"It is inside run {inside!r}: decide there and resume that one (Runner.load, Runner.run), or give it"
                " up with Runner.cancel_run."
            )
        return (
            "Decide about it and resume it (Runner.load, Runner.run), give it up with Runner.cancel_run, or choose"
            " RunConfig(unfinished='settle')."
        )

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self.run.spec.run_id

    @property
    def state(self) -> str:
        """State: paused, gone or running."""
        return "paused" if self.run.is_parked and not self.is_orphan else "gone" if self.is_gone else "running"

    @property
    def open_calls(self) -> tuple[Call, ...]:
        """The calls without an output."""
        return tuple(call for call in self.run.calls if call.state != "returned")

    def items_to_show(self) -> list[Item]:
        """Open turn of the run, for requests of other runs."""
        return open_turn(self.run)

    @property
    def is_stored_failure(self) -> bool:
        """Tell whether the run failed and the session has every call and output of it.

        The run's caller got the error, and a queue may deliver the job again. Reports of such runs would only grow.
        """
        return self.run.status == "failed" and not self.items_to_show()

    def questions(self) -> Iterator[Question]:
        """Waiting questions of the run."""
        return questions_of(self.run)


class SiblingFirst(Exception):
    """Signal to resume another run of the conversation before the run being opened (C15)."""

    def __init__(self, found: Found) -> None:
        super().__init__(found.run_id)
        self.found = found


def policy_for(given: Unfinished | None, *, is_resumed: bool) -> Unfinished:
    """Return the policy in force: a resumed run settles no other (C15)."""
    policy = given or "settle"
    return "resume" if is_resumed and policy == "settle" else policy


async def look_for_unfinished(scope: RunScope, own_id: str, *, is_resumed: bool, is_untouched: bool = False) -> None:
    """Find the unfinished runs of this run's session, apply the policy, and note the results in the scope.

    `is_untouched`: the run is resumed, but nothing of it has happened yet. Raises SiblingFirst, before anything of this
    run is written, if another run is to be resumed first.
    """
    # A run on its parent's session has no store of its own, and does not look: the outermost one there has.
    hold, store = scope.session, scope.store
    if hold is None or store is None:
        return
    policy = policy_for(scope.config.unfinished, is_resumed=is_resumed)
    if policy == "ignore":
        return
    found = await _load_unfinished(await _candidates(hold, own_id, store), store)
    if policy == "resume" and hold.lease is not None:
        first = await _first_of(found, own_id, store, scope.yielding, is_resumed=is_resumed, is_untouched=is_untouched)
        if first is not None:
            raise SiblingFirst(first)
    scope.seen = await _apply_policy(found, hold, own_id, store, policy)


async def settle_unfinished(hold: SessionLock, own_id: str, store: RunStore, policy: Unfinished) -> Seen:
    """Apply the policy to the unfinished runs and voice calls of a locked conversation."""
    if policy == "ignore":
        return Seen()
    return await _apply_policy(
        await _load_unfinished(await _candidates(hold, own_id, store), store), hold, own_id, store, policy
    )


async def _apply_policy(
    found: Sequence[Found | FoundCall], hold: SessionLock, own_id: str, store: RunStore, policy: Unfinished
) -> Seen:
    seen = Seen()
    if policy == "refuse":
        refuse(found)
    for one in found:
        state, done = one.state, "shown in requests" if one.state == "paused" else "left alone"
        # A voice call does not end by being settled (E14): no caller loses an answer by it.
        is_left = state == "gone" and policy == "resume" and isinstance(one, Found)
        if is_left:
            done = "left open, shown in requests"
        elif state == "gone":
            one, done = await _settle_gone(hold, own_id, one, store)
        if not (is_left and isinstance(one, Found) and one.is_stored_failure):
            note(seen, one.run_id, state, done)
        if is_left or one.state == "paused":
            await _store_input(hold, one)
            seen.open_turns += one.items_to_show()
            # Of two runs that ask the same, the older one is named.
            seen.questions = {same_question(asked): one.run_id for asked in one.questions()} | seen.questions
    return seen


async def _settle_gone(
    hold: SessionLock, own_id: str, one: Found | FoundCall, store: RunStore
) -> tuple[Found | FoundCall, str]:
    """Settle a crashed run or voice call; return it and a text for its outcome."""
    if isinstance(one, Found):
        one = await _settle(hold, own_id, one, store)
        if one.is_gone:
            emit("run_settled", run=one.run_id, by=own_id)
        return one, "settled: a call waits for a person" if one.run.paused else "settled"
    if one.is_torn:
        calls, owner = [each.call for each in one.talk.calls], Owner("session", one.talk.session_id)
        nested = await ended_nested(hold.accepted, calls, owner, partial(_settle_child, own_id))
        one = await close_gone_call(hold, build_settled_by(own_id, await hold.accepted(one.run_id)), nested, one, store)
    if not one.is_gone:
        return one, "left alone"
    emit("run_settled", run=one.run_id, by=own_id)
    waits = ": a call waits for a person" if one.state == "paused" else ""
    return one, f"settled{waits}; the voice call can be resumed"


def note(seen: Seen, run_id: str, found: str, done: str) -> None:
    """Report an unfinished run and its handling in the result and the log, without any content of the run."""
    seen.unfinished.append(UnfinishedRun(run_id, found, done))
    emit("run_unfinished", run=run_id, found=found, done=done)


def refuse(found: Sequence[Found | FoundCall]) -> None:
    """Raise UnfinishedRunError if any run was found, with its id, its calls and a remedy."""
    if not found:
        return
    emit("message_refused", session=_session_id_of(found[0]), reason=f"run {found[0].run_id} has not ended")
    one, more = found[0], f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    calls = ", ".join(f"{call.name} ({call.id})" for call in one.open_calls) or "none"
    kind = "run" if isinstance(one, Found) else "voice call"
    raise UnfinishedRunError(
        f"{kind} {one.run_id!r} of this conversation has not ended{more}: it is {one.state}, with open calls: {calls}",
        one.remedy,
    )


def _session_id_of(one: Found | FoundCall) -> str:
    return (one.run.spec.owner.id if isinstance(one, Found) else one.talk.session_id) or "-"


async def _store_input(hold: SessionLock, one: Found | FoundCall) -> None:
    """Store an unfinished run's input if its session lacks it: later input must not come before it (C15).

    Its worker crashed between saving the run and storing the input, or has stored no turn yet. The record is not
    touched: items are counted by writer, and a worker resuming the run asks the session for the count.
    """
    if isinstance(one, FoundCall) or not hold.counts_writers:
        return
    run, count = one.run, len(one.run.ledger)
    if run.spec.owner.kind != "session" or run.progress.verdict != "passed" or run.marks.stored >= count:
        return
    stored = await hold.accepted(one.run_id)
    if stored < count:
        await hold.store(NewItems(one.run_id, stored, items_to_store(run, stored, count)))


# --- which one is resumed first --------------------------------------------------------------------------------------


async def _first_of(
    found: Sequence[Found | FoundCall],
    own_id: str,
    store: RunStore,
    yielding: Yielding,
    *,
    is_resumed: bool,
    is_untouched: bool,
) -> Found | None:
    """Return the run to be resumed first, or None.

    Every worker decides alike, from the stored data: a run with a crashed worker is before a decided one, an older run
    before a younger one. Two runs therefore never let each other go first. A run without any effect lets all others
    first, as a new message does, and no other run finds it: otherwise its input would come between the question and the
    answer of a younger run.
    """
    is_later = not is_resumed or is_untouched  # a message that a worker begins came last, like a new run
    able = [one for one in found if isinstance(one, Found) and may_go_first(one, yielding, is_resumed=not is_later)]
    if not able:
        return None
    session_id, known = able[0].run.spec.owner.id, {one.run_id for one in able}
    runs = await list_saved_runs(store, session_id, until=known | {own_id} if is_resumed else known)
    age = {run.run_id: age_of(run) for run in runs}
    own = next((run for run in runs if run.run_id == own_id), None)
    if is_resumed and not is_untouched and own is not None and own.status == "running":
        able = [one for one in able if one.run_id in age and age[one.run_id] < age_of(own)]
    return min(able, key=lambda one: (one.run.progress.is_ready, age.get(one.run_id, LAST)), default=None)


LAST = (datetime.max.replace(tzinfo=UTC), "")


def age_of(run: RunSummary) -> tuple[datetime, str]:
    """Return the sort key of a conversation's runs, oldest first. It never changes."""
    return run.created_at, run.run_id


def may_go_first(one: Found, yielding: Yielding, *, is_resumed: bool) -> bool:
    """Return True if a run of this state may finish first, according to its own record."""
    if one.is_orphan or one.run.spec.inside is not None or not yielding.may_let(one.run_id):
        return False  # a nested run is resumed by the run around it alone
    status = one.run.status
    if status == "ready":
        # Of two runs that were decided about, none is before the other. A new message came after both.
        return not is_resumed
    # A failed one is left alone, as by `Runner.recover`: its caller got the error.
    return status == "running" and one.is_gone and is_let_first(one.run)


def is_let_first(run: Run) -> bool:
    """Return True if the run may still go first after its next crash."""
    return run.spec.takeovers < TAKEOVERS_MAX


# --- finding ---------------------------------------------------------------------------------------------------------


async def _candidates(hold: SessionLock, own_id: str, store: RunStore) -> dict[str, bool]:
    """Return the session's possibly unfinished runs, oldest first; each with True if certainly no worker has it."""
    lease, session_id = hold.lease, hold.session_id
    told: Any = getattr(lease, "open_runs", None)
    if lease is None or told is None or not hold.is_beside(store):
        # No lease tells of them, so nothing is certain.
        runs = await list_saved_runs(store, session_id) if session_id is not None else []
        still_open = [run.run_id for run in reversed(runs) if run.status in OPEN]
        return {run_id: False for run_id in still_open if not is_own(run_id, own_id)}
    # Read in the step that took the lease: a worker with a lower number can save and store nothing any more.
    is_gone = {
        one.run_id: one.status in AT_REST or 0 < one.lease_number < lease.number
        for one in told
        if not is_own(one.run_id, own_id)
    }
    if len(is_gone) > 1:
        runs = await list_saved_runs(store, session_id, until=is_gone.keys())
        age = {run.run_id: place for place, run in enumerate(runs)}
        return dict(sorted(is_gone.items(), key=lambda one: -age.get(one[0], 0)))
    return is_gone


def is_own(run_id: str, own_id: str) -> bool:
    """Return True for the run itself and for its enclosing runs."""
    return run_id == own_id or own_id.startswith(f"{run_id}/")


async def list_saved_runs(
    store: RunStore, session_id: str | None = None, until: Set[str] | None = None
) -> list[RunSummary]:
    """Return saved runs, latest change first; with `until`, stop after the page with the last of these ids."""
    found: list[RunSummary] = []
    after: str | None = None
    while True:
        runs, after = await store.list_runs(session_id=session_id, after=after)
        found += runs
        if after is None or (until is not None and until <= {run.run_id for run in found}):
            return found


async def _load_unfinished(candidates: Mapping[str, bool], store: RunStore) -> list[Found | FoundCall]:
    found: list[Found | FoundCall] = []
    for run_id, is_gone in candidates.items():
        saved = await store.load_run(run_id)
        if saved is not None and is_call(saved):
            read: Found | FoundCall | None = read_call(saved, is_gone=is_gone)
        else:
            read = read_run(saved, is_gone=is_gone)
            if read is not None:
                read = await as_known_around(read, store)
        if read is not None:
            found.append(read)
    return found


async def as_known_around(found: Found, store: RunStore) -> Found:
    """Return an abandoned nested run in the version of its parent's record, if that record is in this store too.

    The parent's record is saved first: a kill between the two saves leaves the nested run's own record a step behind.
    If the parent's record does not contain the run any more, no worker can resume it. If the parent's record is in
    another store, nothing is known, and a waiting run is taken to wait.
    """
    run = found.run
    if run.spec.inside is None or not (found.is_gone or run.is_parked):
        return found
    outer = await store.load_run(run.spec.inside)
    if outer is None:
        known, is_orphan = None, run.spec.is_beside  # it was kept here, and was removed
    else:
        known = next((one for one in _runs_inside(outer) if one.spec.run_id == run.spec.run_id), None)
        is_orphan = known is None
    if is_orphan:
        return replace(found, is_gone=True, is_orphan=True)
    if known is None or not _is_behind(run, known):
        return found
    return replace(found, run=_drop_unrecorded_begins(known, run), own=run)


def _is_behind(own: Run, known: Run) -> bool:
    """Return True if the nested run's own record is not newer than its parent's copy, and from the same worker.

    A record of a waiting, stopped or since claimed run was saved by the run itself.
    """
    is_at_work = not (own.finished or own.is_parked) and own.progress.stop is None
    return is_at_work and own.progress.claim == known.progress.claim


def _drop_unrecorded_begins(known: Run, own: Run) -> Run:
    """Return the parent's copy without begun calls absent from the own record: both are saved before a call begins."""
    not_begun = {call.id for call in own.calls if call.state == "asked"}
    if known.turn is None or not any(call.state == "begun" and call.id in not_begun for call in known.calls):
        return known
    calls = tuple(
        evolve(call, state="asked") if call.state == "begun" and call.id in not_begun else call for call in known.calls
    )
    return evolve(known, turn=evolve(known.turn, calls=calls))


def _runs_inside(outer: SavedRun) -> Iterator[Run]:
    """The runs inside the open calls of a saved run or voice call, however deep."""
    if is_call(outer):
        yield from _iterate_nested(calls_in(outer))
    elif not has_ended(outer):
        run = decode_saved(outer)
        for child in _iterate_nested(run.calls):
            # One that a person has decided about, and no worker has taken, is to be taken with the run around it.
            yield evolve(child, progress=evolve(child.progress, is_ready=True)) if run.progress.is_ready else child


def _iterate_nested(calls: Sequence[Call]) -> Iterator[Run]:
    for call in calls:
        if call.child is not None and call.state != "returned":
            yield call.child
            yield from _iterate_nested(call.child.calls)


def read_run(saved: SavedRun | None, *, is_gone: bool) -> Found | None:
    """Return the run if it has not ended and has had an effect. An unreadable run is refused by name."""
    if saved is None or has_ended(saved) or is_call(saved):
        return None
    try:
        run = decode_saved(saved)
    except StandfastError as error:
        raise unreadable(f"run {saved.run_id!r}", error) from error
    if run.is_left_owing:
        return Found(run, saved.revision, is_gone=True)
    return None if run.is_closed or not run.has_done_something else Found(run, saved.revision, is_gone)


def same_question(asked: Question) -> tuple[str, str, str]:
    """Return the identity of a question, to avoid a second answer: agent, tool and arguments as JSON (C15)."""
    return asked.agent, asked.scope, str(normal_json(asked.call.arguments))


# --- settling --------------------------------------------------------------------------------------------------------


async def _settle(hold: SessionLock, by: str, one: Found, store: RunStore) -> Found:
    """Close the open calls of a crashed run and store them; a run taken by another worker meanwhile is unchanged."""
    run, run_id = one.run, one.run_id
    saver = RunSaver(store, RunRecord, hold=hold, revision=one.revision, saved=one.kept)
    settled = partial(_settle_child, by, is_orphan=one.is_orphan)
    nested = await ended_nested(hold.accepted, run.calls, run.spec.owner, settled)
    run = settled(run, await hold.accepted(run_id))
    after, new = with_items(run, keeps_costs=hold.keeps_costs, nested=nested)
    try:
        await saver.store_items(hold, new, run, after)
        await saver.save(after)
    except RunClaimedError:
        logger.warning("run %s was taken by another worker while it was being settled", run_id)
        return Found(one.run, one.revision, is_gone=False)
    tell_begun(one.run, f"run {by} has settled it and says so")
    return Found(after, saver.revision, is_gone=True)


def give_up_run(text: str, run: Run, stored: int) -> Run:
    """Return the run claimed from its worker and given up: open calls are closed with `text`."""
    claimed = advance(run, Claimed(uuid.uuid4().hex, stored=stored))
    return claimed if claimed.finished else advance(claimed, Stopped("abandoned", message=text))


def build_settled_by(by: str, stored: int, *, is_orphan: bool = False) -> SettledBy:
    """Return the event by which run `by` settles a crashed run.

    No call of an orphan is left waiting: after a decision, no worker could resume it.
    """
    return SettledBy(by, uuid.uuid4().hex, stored, is_orphan)


def _settle_child(by: str, child: Run, stored: int, *, is_orphan: bool = False) -> Run:
    return advance(child, build_settled_by(by, stored, is_orphan=is_orphan))
