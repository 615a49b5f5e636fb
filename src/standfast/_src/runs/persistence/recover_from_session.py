"""Recovery of an interrupted run from its session's items: the writer's items show its progress (C12).

Only whole turns are ever appended, so the session holds a prefix of whole turns. The run continues behind it: only the
tools of the interrupted turn can run again. A run whose last turn was an answer is finished, and is not continued.
"""

from __future__ import annotations

from typing import Any

from standfast._src.base.errors import RunStateError, SessionConflictError
from standfast._src.base.json_values import Item, encode_value
from standfast._src.items.history import ANSWERS, LOCAL_CALL_TYPES, LOCAL_OUTPUT_TYPES, PROVIDERS_OUTPUTS
from standfast._src.items.item_kinds import kind_of
from standfast._src.items.items import ItemHelpers
from standfast._src.items.texts_for_models import known_texts
from standfast._src.runs.engine.run import Call, Entry, Positions, Run, Stop, Turn, View, evolve
from standfast._src.runs.loop.run_scope import RunScope
from standfast._src.runs.steps.reply_parsing import arguments_text, call_digest
from standfast._src.runs.steps.turn_outcome import Final, final_from_text, final_from_tools, restored_output


async def rebuild_from_items(
    scope: RunScope, fresh: Run, items: list[Item], ending: dict[str, Any] | None = None
) -> Run:
    """Rebuild the run that wrote `items`, as far as possible; raise SessionConflictError if its input was different.

    `ending` is the saved ending of a run in a run store; without one, its last turn tells whether it ended.
    """
    count = fresh.spec.input_count
    given = [entry.item for entry in fresh.ledger]
    if [encode_value(item) for item in items[:count]] != [encode_value(item) for item in given]:
        raise another_input(fresh)
    entries = list(fresh.ledger)
    agent_key, turns, last = fresh.spec.agent, 0, []  # type: str, int, list[Entry]
    answering = True
    handoffs: dict[str, str] = {}  # the handoffs that were called, by call id
    for item in items[count:]:
        is_output = item.get("type") in ANSWERS
        # A turn is a reply and then its outputs: what comes behind an output begins the next one.
        if not is_output and answering:
            turns, last = turns + 1, []
        answering = is_output
        entry, agent_key = await _entry(scope, handoffs, agent_key, item)
        entries.append(entry)
        last.append(entry)
    ledger = fresh.ledger.appended(entries[count:])
    size = len(ledger)
    verdict = "passed" if turns else fresh.progress.verdict
    progress = evolve(fresh.progress, agent=agent_key, turns=turns, verdict=verdict)
    views = fresh.views.appended((View(None, size),))
    run = evolve(fresh, ledger=ledger, marks=Positions(stored=size, ready=size), views=views, progress=progress)
    # The store knows how it ended; without that, only the last turn can tell.
    if ending is not None and ending["status"] == "done":
        if ending.get("tripped"):
            raise RunStateError(
                f"run {fresh.spec.run_id!r} has ended: an output guardrail tripped",
                "Start the next run under another run_id; the history is as the tripwire left it.",
            )
        progress = evolve(run.progress, agent=ending["agent"], ended=True, output=ending["output"])
        run = evolve(run, progress=progress)
        scope.final_output = restored_output(scope, run)
        return run
    if ending is not None and ending["status"] == "cancelled":  # given up: it has no output, and does not go on
        stop = Stop("abandoned", turns)
        return evolve(run, progress=evolve(run.progress, agent=ending["agent"], ended=True, stop=stop))
    return await _end_if_final(scope, run, last)


def another_input(fresh: Run) -> SessionConflictError:
    """Build the error of a run started again under its id with different input."""
    return SessionConflictError(
        f"run {fresh.spec.run_id!r} was started with another input than it is given now",
        "Give the same input to continue it, or another run_id to start a new run.",
    )


async def _entry(scope: RunScope, called: dict[str, str], agent_key: str, item: Item) -> tuple[Entry, str]:
    kind = item.get("type")
    agent = scope.graph.agent(agent_key)
    if kind in LOCAL_CALL_TYPES:
        handoffs = (await scope.agents.current(agent)).handoffs_by_name
        is_handoff = kind == "function_call" and item.get("name") in handoffs
        if is_handoff:
            called[str(item.get("call_id"))] = str(item.get("name"))
        return Entry("handoff_call_item" if is_handoff else "tool_call_item", agent_key, item), agent_key
    if kind in LOCAL_OUTPUT_TYPES:
        name = called.get(str(item.get("call_id")))
        handoff = (await scope.agents.current(agent)).handoffs_by_name.get(name) if name else None
        # Only its own message says that it happened: a second handoff is ignored, a stopped one is not completed.
        if (
            handoff is not None
            and handoff.agent is not None
            and item.get("output") == handoff.get_transfer_message(handoff.agent)
        ):
            target = scope.graph.key(handoff.agent)
            extra = {"source_agent": agent_key, "target_agent": target}
            return Entry("handoff_output_item", agent_key, item, extra), target
        return Entry("tool_call_output_item", agent_key, item), agent_key
    return Entry(kind_of(item).name, agent_key, item), agent_key


async def _end_if_final(scope: RunScope, run: Run, last: list[Entry]) -> Run:
    """End the run if its last turn was a message without calls, or if its tools' results end a run."""
    found = await _find_final(scope, run, last) if last else None
    if found is None:
        return run
    scope.final_output = found[0]
    return evolve(run, progress=evolve(run.progress, ended=True, output=found[1].output))


async def _find_final(scope: RunScope, run: Run, last: list[Entry]) -> Final | None:
    # What a provider's own tools gave back stands in a reply, and is no answer of this program's.
    kinds = {entry.kind for entry in last if entry.item.get("type") not in PROVIDERS_OUTPUTS}
    if "tool_call_output_item" not in kinds and last[-1].kind == "message_output_item":
        # What a provider's own tools did may stand before it, in the same reply or in one of its own.
        return await final_from_text(scope, run, ItemHelpers.extract_text(last[-1].item))
    outputs = {entry.item.get("call_id"): entry for entry in last if entry.item.get("type") in LOCAL_OUTPUT_TYPES}
    calls = [entry for entry in last if entry.kind == "tool_call_item" and entry.item.get("type") in LOCAL_CALL_TYPES]
    if not calls or "handoff_output_item" in kinds or any(_cut_short(entry) for entry in outputs.values()):
        return None
    return await final_from_tools(scope, run, _turn_of(run, calls, outputs))


def _cut_short(entry: Entry) -> bool:
    return entry.item.get("output") in known_texts("not_completed", "did_not_run")


def _turn_of(run: Run, calls: list[Entry], outputs: dict[Any, Entry]) -> Turn:
    """Rebuild the turn of these calls and outputs."""
    made = []
    for entry in calls:
        call_id, name = str(entry.item.get("call_id")), str(entry.item.get("name", ""))
        output = outputs.get(call_id)
        if output is not None:
            arguments = arguments_text(entry.item)
            digest = call_digest(entry.item)
            made.append(Call(call_id, name, "tool", arguments, digest, state="returned", outputs=(output,)))
    return Turn(run.progress.turns, run.progress.agent, tuple(calls), tuple(made))
