"""Checks of a saved run before its resume. All are done before anything of the run happens.

A payload is untrusted text until it has been checked: its agents must be present, its calls must be the model's own, a
decision must be about the call that was shown (its id, its tool and its arguments), and the tools still to run must
exist. If a run store knows the run, its version counts: a run that has advanced since it was loaded, or with calls that
differ from the saved ones, is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import digest_shown_arguments
from standfast._src.base.errors import ApprovalError, NotFoundError, RunClaimedError, RunStateError, StandfastError
from standfast._src.base.json_values import Item
from standfast._src.realtime.machine.codec import decode_saved as decode_call, is_call
from standfast._src.runs.engine.advance import refuse_settled
from standfast._src.runs.engine.codec import ENDED, decode_saved, ending_of, has_ended
from standfast._src.runs.engine.run import Call, Decision, Run
from standfast._src.runs.engine.run_store import RunStore, SavedRun
from standfast._src.runs.loop.agent_graph import AgentGraph
from standfast._src.runs.loop.run_scope import RunScope
from standfast._src.runs.steps.call_lookup import calls_within, missing_tool, scope_of_call, tool_of
from standfast._src.runs.steps.reply_parsing import arguments_text, behind_name, call_digest

_TEXTS = ("type", "role", "id", "call_id", "name", "namespace", "server_label", "approval_request_id")
"""The fields that an item is known by. Everything else in it is the provider's business."""


def check_saved(run: Run, graph: AgentGraph) -> None:
    """Raise RunStateError if an agent of the run is missing, or if a call or a decision was changed."""
    for one in _items(run):
        if not all(one.get(name) is None or isinstance(one[name], str) for name in _TEXTS):
            raise RunStateError("it holds an item whose type or id is no text", "Pass the payload unchanged.")
    turn = run.turn
    if turn is not None and not turn.complete:
        graph.refuse_uncertain(turn.agent)
    # Every agent, not only the one whose turn it is: items are shown with theirs, and a handoff may lead back.
    for key in agents_of(run):
        graph.agent(key)
    if turn is None:
        return
    for call in turn.calls:
        item = turn.item_of(call)
        _check_call(call, item)
        if call.decision is not None:
            _check_decision(call, call.decision, item, turn.agent)
        if call.child is not None and (inner := graph.inside(turn.agent, call.name)) is not None:
            check_saved(call.child, inner)


def _items(run: Run) -> Iterator[Item]:
    yield from (entry.item for entry in run.ledger)
    yield from run.progress.staged
    yield from (entry.item for entry in run.progress.compacted)
    for view in run.views:
        yield from view.base or ()
    for entry in run.turn.reply if run.turn is not None else ():
        yield entry.item
    for call in run.calls:
        yield from (entry.item for entry in call.outputs)
        yield from call.base or ()


def agents_of(run: Run) -> set[str]:
    """The names of every agent the run speaks of, nested runs aside."""
    found = {run.spec.agent, run.progress.agent, *(entry.agent for entry in run.ledger)}
    for entry in run.ledger:
        extra = entry.extra or {}
        found |= {extra[name] for name in ("source_agent", "target_agent") if isinstance(extra.get(name), str)}
    turn = run.turn
    if turn is not None:
        found |= {turn.agent, *(call.target for call in turn.calls if call.target is not None)}
    return found


def _check_call(call: Call, item: Item) -> None:
    same = (str(item.get("name", "")), arguments_text(item)) == (call.name, call.arguments)
    if not same or call.digest != call_digest(item):
        raise RunStateError(
            f"call {call.id!r} was changed: its tool or its arguments are not those the model asked for",
            "Pass the payload unchanged; to run something else, reject the call and say so to the model.",
        )


def _check_decision(call: Call, decision: Decision, item: Item, agent: str) -> None:
    # Bound to what was shown: an approval must not let another call run, even if a program edits the state in between.
    about = (decision.call_id, decision.scope, decision.arguments_digest)
    same_agent = decision.agent is None or decision.agent == agent  # None: saved before it was kept
    if not same_agent or about != (call.id, scope_of_call(call, item), digest_shown_arguments(call)):
        raise ApprovalError(
            f"the decision about call {call.id!r} was made for another agent or tool, other arguments or another call",
            "Show the call as it is now to whoever decides, and ask again.",
        )


# --- tools -----------------------------------------------------------------------------------------------------------


async def check_tools(scope: RunScope, run: Run, graph: AgentGraph | None = None) -> tuple[str, ...]:
    """Raise if a tool, an agent, a server or a handoff still to be used is missing or has changed (C16).

    The check comes before any call of the turn: found later, the other calls would have run for nothing. Returns the
    calls with missing tools if the settings say to report them to the model.
    """
    turn, gone = run.turn, []
    if turn is None:
        return ()
    graph = graph or scope.graph
    agent = graph.agent(turn.agent)
    for call in turn.calls:
        if call.state == "returned" or call.kind not in ("tool", "agent", "handoff"):
            continue
        if call.decision is not None and not call.decision.approved:
            continue  # it will not run
        if call.kind == "handoff":
            target = (await scope.agents.current(agent)).handoffs_by_name.get(call.name)
            if target is None:
                raise _another(agent, call, "it is gone")
            _check_behind(agent, call, behind_name(target))
            continue
        tool = tool_of(await scope.agents.tools(agent), turn.item_of(call), call.name)
        if tool is not None:
            _check_behind(agent, call, behind_name(tool))
        elif scope.config.tool_not_found_behavior != "return_error_to_model":
            raise missing_tool(agent, call)
        elif call.state == "asked":
            gone.append(call.id)
        if call.child is not None and (inner := graph.inside(turn.agent, call.name)) is not None:
            await check_tools(scope, call.child, inner)
    return tuple(gone)


def _check_behind(agent: Agent[Any], call: Call, now: str) -> None:
    # Not its code or description: a release must not lose the approvals that wait.
    if call.behind is not None and call.behind != now:
        raise _another(agent, call, f"it was {call.behind!r} and is {now!r}")


def _another(agent: Agent[Any], call: Call, why: str) -> ApprovalError:
    return ApprovalError(
        f"what call {call.id!r} asked for is not what agent {agent.name!r} has under the name {call.name!r} now: {why}",
        "Resume with the agents and tools that were shown when it was approved, or reject the call.",
    )


# --- against the store -----------------------------------------------------------------------------------------------


async def check_unclaimed(run: Run, store: RunStore | None, revision: int) -> str | None:
    """Raise if the store shows that the saved run was claimed, removed or changed; else return its saved status.

    This only reads (C12). A run absent from the store has no status there.
    """
    run_id = run.spec.run_id
    # Revision 0: this state was never saved. If the store knows better, the answer to a save was lost.
    if not revision:
        if store is not None and await store.load_run(run_id) is not None:
            raise RunClaimedError(
                f"run {run_id!r} was saved, and this state does not know it: the answer to a save was lost",
                "Resume it by its id, with Runner.resume(agent, run_id, ...).",
            )
        return None
    if store is None:
        raise RunStateError(
            f"run {run_id!r} is kept in a run store and was given none, so that nobody could tell who else resumes it",
            "Resume it with the session or the RunConfig(run_store=...) it was saved with.",
        )
    saved = await store.load_run(run_id)
    if saved is None:
        raise NotFoundError(
            f"run {run_id!r} is not in this run store", "Pass the store it was saved in; one that was removed is gone."
        )
    if has_ended(saved):
        ending = ending_of(saved) or {}
        refuse_settled(run_id, ending.get("settled_by"), ending.get("moved_to"))
    if saved.revision != revision:
        raise RunClaimedError(
            f"run {run_id!r} was resumed by another worker, or somebody decided about it, since it was loaded"
            f" (revision {saved.revision}, not {revision})",
            "Load it again, and resume it only if it still waits or is ready.",
        )
    # The revision is the same, so the calls must be: a state that was changed by hand would run something else.
    known = decode_saved(saved)
    kept = {(*path, call.id): call.digest for path, _, call in calls_within(known)}
    for path, _, call in calls_within(run):
        if kept.get((*path, call.id), call.digest) != call.digest:
            raise RunStateError(
                f"call {call.id!r} was changed since run {run_id!r} was saved", "Resume the run as it was saved."
            )
    return known.status


def refuse_to_delete(saved: SavedRun, cancel: str) -> None:
    """Raise if this saved run or voice call has not ended: its effects and open questions would be forgotten (C15).

    `cancel` names the way to give a run up, in the words of the caller's own users.
    """
    try:
        if is_call(saved):
            status = decode_call(saved).status
            is_open, remedy = status not in ENDED, "Hang up, or decide what waits with RealtimeRunner.resume(...)"
        else:
            run = decode_saved(saved)
            status, is_open = run.status, not run.is_closed
            remedy = f"Resume it, or give it up with {cancel}"
    except StandfastError:
        return  # only its end is kept; or no worker can resume or cancel it either, and this is how to be rid of it
    if is_open:
        raise RunStateError(
            f"run {saved.run_id!r} has not ended ({status}), and what it did or waits for would be forgotten",
            f"{remedy}; then delete it.",
        )
