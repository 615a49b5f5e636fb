"""Items of a run that its session or server has not received yet.

A nested run stores its own turns while it is running. If it is not (it waits, or was to be entered again), it cannot
store its items when the outer run ends: then they are stored with the outer run's, in the same step.

A run that ends owing items to the server reports that, and hands them over (D11): the server of a conversation refuses
every later request as long as a call it made has no output. A run that ends with unsent outputs (no turn was left, a
tool's result was the final output, it was cancelled) therefore lists them: the next run on that conversation has to
send them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence

from standfast._src.base.errors import StandfastError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.operational_events import emit
from standfast._src.items.history import output_key, sanitise_for_store
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.events import Appended, Stopped
from standfast._src.runs.engine.reply_costs import collect_unbilled_costs
from standfast._src.runs.engine.request import ordinals_to_send
from standfast._src.runs.engine.run import Call, Owner, Run
from standfast._src.runs.persistence.session_lock import NewItems, logger
from standfast._src.sessions.rules.saved_runs import NestedItems


def items_to_store(run: Run, start: int, end: int) -> list[Item]:
    """Return items of the run in the form for its session."""
    items = [sanitise_for_store(entry.item) for entry in run.ledger[start:end]]
    return [item for item in items if item is not None]


def with_items(run: Run, *, keeps_costs: bool, nested: Sequence[NestedItems] = ()) -> tuple[Run, NewItems]:
    """Return the run after its pending items are stored, and the items of that step."""
    start, end = run.marks.stored, max(run.marks.stored, run.storable)
    # What a nested run costs is its parent's to keep: each reply once.
    costs = collect_unbilled_costs(run) if keeps_costs and run.spec.inside is None else None
    after = advance(run, Appended(end, len(run.responses) if costs is not None else 0))
    return after, NewItems(run.spec.run_id, start, items_to_store(run, start, end), costs, nested)


def not_yet_stored(runs: Iterable[Run]) -> list[NestedItems]:
    """Return the items of these runs that the session lacks, as far as known."""
    found = []
    for run in runs:
        start, end = run.marks.stored, run.storable
        items = items_to_store(run, start, end) if start < end else []
        if items:
            found.append(NestedItems(run.spec.run_id, start, items))
    return found


def open_nested(calls: Sequence[Call], owner: Owner, but: Collection[str] = ()) -> Iterator[Run]:
    """Yield the open nested runs of these calls on the same conversation, the innermost first.

    `but`: ids of runs that have stored, or are storing, their own items and those of their nested runs.
    """
    for call in calls:
        child = call.child
        # One apart has a session of the same id elsewhere, and a record of its own there.
        if child is None or child.spec.run_id in but or child.spec.is_apart:
            continue
        yield from open_nested(child.calls, owner, but)
        if child.spec.owner == owner and not child.is_closed:
            yield child


def cut_nested(run: Run, but: Collection[str] = ()) -> list[NestedItems]:
    """Return the items to store of the nested runs of a run that is cut now: they end with it, and their turns are
    whole.
    """
    ends = (
        child if child.finished else advance(child, Stopped("immediate"))
        for child in open_nested(run.calls, run.spec.owner, but)
    )
    return not_yet_stored(ends)


async def ended_nested(
    accepted: Callable[[str], Awaitable[int]], calls: Sequence[Call], owner: Owner, end: Callable[[Run, int], Run]
) -> list[NestedItems]:
    """Return the items to store of the nested runs of a run without a worker.

    `end` ends a nested run; it gets the number of its items in the session.
    """
    ends = []
    for child in open_nested(calls, owner):
        stored = await accepted(child.spec.run_id)
        # More than this knows of: its own process has closed it, and was gone before the run around it was saved.
        if stored <= len(child.ledger):
            ends.append(end(child, stored))
    return not_yet_stored(ends)


# --- what a server has not got ---------------------------------------------------------------------------------------

UNSENT_REMEDY = (
    "Give them to the next run of that conversation, before its own input: Runner.run(agent, owed + [new input])."
)


def unsent_items(run: Run) -> list[Item]:
    """Return copies of the items that the server of the conversation lacks."""
    owner, outgoing = run.spec.owner, run.progress.outgoing
    if not owner.is_server:
        return []
    # A conversation may have taken a request whose answer was lost. Behind a response such a request hangs by itself.
    under_way = outgoing.sent if outgoing is not None and owner.kind == "conversation" else ()
    return [copy_json(run.ledger[ordinal].item) for ordinal in ordinals_to_send(run) if ordinal not in under_way]


def unsent_note(run: Run) -> str:
    """Return the note about unsent items for a run's last message; empty without any."""
    items = unsent_items(run)
    return f"; the server has not got {len(items)} items of it ({_kinds(items)})" if items else ""


def note_if_unsent(error: StandfastError, run: Run) -> None:
    """Add a note to an error without one, if a server waits for unsent outputs (D11)."""
    remedy = getattr(error, "remedy", "")  # an error of the user's own may not have called ours
    if "owed_items" not in remedy and any(output_key(item) for item in unsent_items(run)):
        said = f"Run {run.spec.run_id} has stopped{unsent_note(run)}"
        error.add_note(f"{said}. {UNSENT_REMEDY} They are error.run_data.owed_items.")


def warn_if_unsent(run: Run) -> None:
    """Log unsent items if no error is raised; and report a cut request of unknown outcome."""
    if run.progress.outgoing is not None and run.spec.owner.kind == "conversation":
        emit("outcome_unknown", what="a request", run=run.spec.run_id, done="the run has stopped; resumed, it asks")
    if run.finished and (items := unsent_items(run)):
        logger.warning(
            "run %s ended without sending %d items (%s), which are its result's `owed_items`. %s",
            run.spec.run_id,
            len(items),
            _kinds(items),
            UNSENT_REMEDY,
        )


def _kinds(items: list[Item]) -> str:
    return ", ".join(dict.fromkeys(str(item.get("type") or "message") for item in items))
