"""Unfinished runs of a server's conversation: the items they owe go first in the next request (C15, D5).

The server refuses every request as long as a call that it made has no output. So if anything kept a run from sending
one (a kill, a cancellation, a failure, an end inside the call of a run that continued without it), the next run on that
conversation, nested or not, sends it. While a run there waits for a person, the next one is refused: any text that is
sent would be the waiting call's output.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from standfast._src.base.errors import RunClaimedError, StandfastError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.operational_events import emit
from standfast._src.items.history import Key, call_key, output_key
from standfast._src.items.items import ModelResponse, to_input_json
from standfast._src.items.usage import Usage
from standfast._src.models.outcome_query import Settled
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.append_log import Log
from standfast._src.runs.engine.codec import RunRecord, conversation_of, decode_saved, has_ended, settler_of
from standfast._src.runs.engine.events import NotTaken
from standfast._src.runs.engine.request import ordinals_to_send
from standfast._src.runs.engine.run import Entry, Run, evolve
from standfast._src.runs.engine.run_store import RunStore, RunSummary, SavedRun
from standfast._src.runs.loop.run_scope import RunScope, logger
from standfast._src.runs.persistence.lost_answers import ask_server, not_sent, unknown_outcome
from standfast._src.runs.persistence.run_saver import RunSaver
from standfast._src.runs.persistence.unfinished_runs import (
    AT_REST,
    Found,
    SiblingFirst,
    age_of,
    as_known_around,
    build_settled_by,
    is_own,
    list_saved_runs,
    may_go_first,
    note,
    policy_for,
    read_run,
    refuse,
)
from standfast._src.runs.steps.call_lookup import tell_begun
from standfast._src.runs.steps.reply_parsing import Reply


async def settle_on_server(
    scope: RunScope, fresh: Run, *, is_resumed: bool
) -> tuple[Run, list[Callable[[], Awaitable[None]]]]:
    """Return the new run with the items owed by crashed runs before its own input, and functions that end those runs.

    A waiting call refuses the run. The caller ends the crashed runs once the new run is saved: after a crash in
    between, they still owe the items.
    """
    store, run_id = scope.store, fresh.spec.run_id
    found = await find_on_server(scope, fresh, is_resumed=is_resumed)
    if store is None or not found:
        return fresh, []
    given = {output_key(entry.item) for entry in fresh.ledger} - {None}
    owed: list[Entry] = []
    ends: list[Callable[[], Awaitable[None]]] = []
    settles = policy_for(scope.config.unfinished, is_resumed=is_resumed) == "settle"
    for one in found:
        if not one.is_gone or (_is_left_open(one) and not settles):
            note(scope.seen, one.run_id, one.state, "left alone")
            continue
        run = await _with_lost_answer(scope, one, found)
        if run is None:
            continue  # the outcome of its first request is unknown: unchanged, it says so when run again (D5)
        if not (run.has_done_something or run.is_left_owing or one.is_orphan):
            # The server has not taken the request that had left: it has done nothing, and can be run again.
            scope.when_accepted += (partial(_forget_request, one, run, store),)
            continue
        tell_begun(one.run, f"run {run_id} has settled it and says so")
        run = advance(run, build_settled_by(run_id, 0, is_orphan=one.is_orphan))
        if run.paused:
            refuse([Found(run, one.revision, is_gone=True)])
        for entry in await _owed_entries(run, store):
            # A caller may bring what an error handed over; and of two lost requests with equal words one has the reply.
            if (answered := output_key(entry.item)) is None or answered not in given:
                given.add(answered)
                owed.append(Entry("input", fresh.spec.agent, copy_json(entry.item), {"owed_by": one.run_id}))
        ends.append(partial(RunSaver(store, RunRecord, revision=one.revision, saved=one.kept).save, run))
        note(scope.seen, one.run_id, "gone", "settled")
    if owed:
        spec = evolve(fresh.spec.with_context("took_over"), input_count=fresh.spec.input_count + len(owed))
        fresh = evolve(fresh, spec=spec, ledger=Log([*owed, *fresh.ledger]))
    return fresh, ends


async def find_on_server(scope: RunScope, run: Run, *, is_resumed: bool) -> list[Found]:
    """Return the unfinished runs of the conversation with a server; raise if one of them waits, or by the policy.

    Raises SiblingFirst if one of them is to be resumed before this one. One that cannot be, and has not ended, refuses
    a run that settles none: the server takes no request as long as a call of it is open.
    """
    store, policy = scope.store, policy_for(scope.config.unfinished, is_resumed=is_resumed)
    if run.spec.owner.kind != "conversation" or store is None or policy == "ignore":
        return []
    found = await _find_unfinished_on_server(scope, run, store, waits=policy != "refuse", is_resumed=is_resumed)
    refuse(found if policy == "refuse" else [one for one in found if one.state == "paused"])
    # A request that has left carries what it carries: nothing that is done first would change it.
    if policy == "resume" and run.progress.outgoing is None and not scope.arguments.is_let_first:
        left = [one for one in found if _is_left_open(one)]
        first = next((one for one in left if may_go_first(one, scope.yielding, is_resumed=is_resumed)), None)
        if first is not None:
            raise SiblingFirst(first)
        refuse(left)
    return found


def _is_left_open(one: Found) -> bool:
    """Return whether the run lost its worker and can be resumed: only a new message closes it."""
    return one.is_gone and not (one.run.finished or one.is_orphan)


async def _owed_entries(run: Run, store: RunStore) -> list[Entry]:
    """Return the entries that a settled run owes its server."""
    entries = [run.ledger[ordinal] for ordinal in ordinals_to_send(run)]
    if run.marks.acknowledged:
        return entries
    # Nothing of it has reached the server. Its own input is its caller's to send again; what it took over is not.
    return [entry for entry in entries if await _is_taken(_source(entry), run.spec.run_id, store)]


async def _is_taken(source: str | None, by: str, store: RunStore) -> bool:
    """Return whether run `by` has ended the run from which it took an item: otherwise that run still has it, or
    continued.
    """
    if source is None:
        return False
    saved = await store.load_run(source)
    return saved is None or settler_of(saved) == by


def _source(entry: Entry) -> str | None:
    """Return the source run of a taken-over item, else None."""
    source = (entry.extra or {}).get("owed_by")
    return source if isinstance(source, str) else None


def given_input_of(run: Run) -> list[Item]:
    """Return a run's original input, without items taken over from crashed runs."""
    return [entry.item for entry in run.ledger[: run.spec.input_count] if _source(entry) is None]


# --- a run that took something over is gone on with ------------------------------------------------------------------


async def end_superseded_runs(scope: RunScope, run: Run) -> None:
    """End the runs with owed items taken over by this run before a crash; the debt is then this run's.

    Raises RunClaimedError if another run has settled one of them meanwhile, and so has sent the items.
    """
    store = scope.store
    if store is None or not run.spec.took_over or run.marks.acknowledged or run.turn is not None:
        return
    sources = [_source(entry) for entry in run.ledger[: run.spec.input_count]]
    for run_id in dict.fromkeys(source for source in sources if source is not None):
        saved = await store.load_run(run_id)
        if saved is None or settler_of(saved) == run.spec.run_id:
            continue
        gone = decode_saved(saved)
        if gone.is_closed and not gone.is_left_owing:
            error = RunClaimedError(
                f"run {run.spec.run_id!r} was to send what run {run_id!r} owed, and that is no longer owed",
                "Start a new run on that conversation.",
            )
            error.state_is_behind = True
            raise error
        ended = advance(gone, build_settled_by(run.spec.run_id, 0, is_orphan=True))
        await RunSaver(store, RunRecord, revision=saved.revision, saved=gone).save(ended)


def is_over(saved: SavedRun) -> bool:
    """Return whether a nested run's own record shows an end by another process."""
    if has_ended(saved) or conversation_of(saved.head) is None:
        return has_ended(saved)
    run = decode_saved(saved)
    stop = run.progress.stop
    return run.progress.settled_by is not None or (run.finished and stop is not None and stop.mode == "abandoned")


# --- finding ---------------------------------------------------------------------------------------------------------


async def _find_unfinished_on_server(
    scope: RunScope, fresh: Run, store: RunStore, *, waits: bool, is_resumed: bool
) -> list[Found]:
    """The unfinished runs of the server's conversation, oldest first.

    `waits`: for the workers of those that run. A run that is resumed waits for older ones only: its own worker has a
    lease on it, and two that were to wait for each other's would wait in a circle.
    """
    owner, found = fresh.spec.owner, []
    runs = await _list_on_server(str(owner.id), store)
    own = next((run for run in runs if run.run_id == fresh.spec.run_id), None)
    for summary in runs:
        if is_own(summary.run_id, fresh.spec.run_id):
            continue
        one = read_run(await store.load_run(summary.run_id), is_gone=summary.status in AT_REST)
        if one is None or one.run.spec.owner != owner:
            continue
        is_before = not is_resumed or own is None or age_of(summary) < age_of(own)
        if waits and one.state == "running":
            one = await _after_its_worker(scope, one, store, may_wait=is_before)
        if one is not None:
            found.append(await as_known_around(one, store))
    return found


async def _list_on_server(conversation_id: str, store: RunStore) -> list[RunSummary]:
    """List the runs that may be open on the conversation, oldest first; a store that cannot tell lists all it has."""
    find: Any = getattr(store, "open_on_conversation", None)
    if find is not None:
        found: list[RunSummary] = await find(conversation_id)
        return found
    # One that ended inside a call may owe something; its id is made of its parent's and its call's.
    runs = [run for run in await list_saved_runs(store) if run.session_id is None]
    may_be_open = [run for run in runs if run.status != "done" or "/" in run.run_id]
    return sorted(may_be_open, key=lambda one: one.updated_at)


async def _after_its_worker(scope: RunScope, one: Found, store: RunStore, *, may_wait: bool) -> Found | None:
    """Wait until the run has no worker, by its lease; return the run, or None if the run has ended."""
    lease_run: Any = getattr(store, "lease_run", None)
    if lease_run is None:
        return one
    config, run_id = scope.config, one.run_id
    wait_s = config.lease_wait_s if config.concurrency == "wait" and may_wait else 0.0
    try:
        lease = await lease_run(run_id, ttl_s=config.lease_ttl_s, wait_s=wait_s)
    except RunClaimedError:
        return one
    # Released at once: the revision fences the crashed worker, and no worker resumes unseen what is being settled.
    await lease.release()
    if lease.number < 2:
        return one  # it was saved without a lease: nothing is certain
    return read_run(await store.load_run(run_id), is_gone=True)


# --- a request that had left -----------------------------------------------------------------------------------------


async def _with_lost_answer(scope: RunScope, one: Found, all_found: Sequence[Found]) -> Run | None:
    """Return the crashed run with the outcome of its sent request: the server is asked, nothing is sent again (D5).

    None if the outcome of a first request is unknown: there is no evidence whether the run has done anything.
    """
    run = one.run
    if run.progress.outgoing is None:
        return run
    found = await _ask_server_about(scope, run, [other.run for other in all_found if other is not one])
    known = _with_answer(run, found)
    if known is not None:
        return known
    if _is_first(run):
        return advance(run, NotTaken()) if one.is_orphan else None  # an orphan cannot be run again
    error = unknown_outcome(run, found)
    error.add_note(
        f"That request is run {run.spec.run_id!r}'s, which has not ended. Start this one again later; or give that"
        " one up first: Runner.cancel_run."
    )
    raise error


async def with_answer_if_told(scope: RunScope, run: Run) -> Run:
    """Do the same for a run that is cancelled: the calls of a lost answer are closed with it, and owed.

    An outcome that the server cannot tell stays unknown, and does not prevent the cancellation.
    """
    if run.progress.outgoing is None or run.spec.owner.kind != "conversation":
        return run
    try:
        store = scope.store
        others = (
            [] if store is None else await _find_unfinished_on_server(scope, run, store, waits=False, is_resumed=False)
        )
        return _with_answer(run, await _ask_server_about(scope, run, [other.run for other in others])) or run
    except Exception as error:
        emit("outcome_unknown", what="a request", run=run.spec.run_id, done="the run is given up")
        logger.warning("the server could not be asked about run %s: %s", run.spec.run_id, type(error).__name__)
        return run


async def _ask_server_about(scope: RunScope, run: Run, others: Sequence[Run]) -> Settled | None:
    """Return the server's answer about a sent request; None if it cannot tell.

    A reply whose calls another open run there (`others`) knows belongs to that run: it has sent equal words.
    """
    # Only the agent's model is needed: its instructions may want a context that is not available here.
    found = await ask_server(run, scope.agents.model_of(scope.graph.start))
    if found is None or not _is_first(run):
        return found
    output = found.response.output if found.response is not None else found.calls
    asked = {call_key(to_input_json(item)) for item in output} - {None}
    return None if any(asked & _calls_known_to(other) for other in others) else found


def _is_first(run: Run) -> bool:
    return not (run.marks.acknowledged or run.spec.took_over)


def _with_answer(run: Run, found: Settled | None) -> Run | None:
    """Return the run after the server's answer about its request; None without an answer."""
    if found is None:
        return None
    if not found.taken:
        return advance(run, NotTaken())
    response = found.response
    if found.is_over:
        # It was cut short, and nothing of it can be gone on from; but its calls stand there, and want their outputs.
        response = ModelResponse(list(found.calls), Usage(), None)
    if response is None:
        return None
    reply = Reply(run.progress.agent).take(response.output)
    usage = Usage.from_provider(response.usage)
    return advance(run, reply.event(run.progress.turns + 1, response, usage, not_sent(run)))


def _calls_known_to(run: Run) -> set[Key | None]:
    """Return the keys of the run's calls made by its server."""
    replies = (*run.ledger[run.spec.input_count :], *(run.turn.reply if run.turn is not None else ()))
    return {call_key(entry.item) for entry in replies}


async def _forget_request(one: Found, run: Run, store: RunStore) -> None:
    """Save that a first request was not taken, by the server's answer: the server has taken a later run's request
    since.

    Not before that: a slow request could still arrive, and make calls without an answer.
    """
    try:
        await RunSaver(store, RunRecord, revision=one.revision, saved=one.kept).save(run)
    except StandfastError as error:  # another worker has resumed it, or the store is away: then the next run asks again
        logger.debug("that the request of run %s came to nothing was not saved: %s", one.run_id, error)
