"""All transitions of a run.

`advance` is the only function that makes a new Run from an old one, and this file is the only place it happens. It
does not know who is listening, what a model is, or whether anyone is streaming; if you need one of those here, the
event is missing a field.
"""

from __future__ import annotations

from typing import Any

from standfast._src.base.errors import CallerError, RunStateError
from standfast._src.base.json_values import Item
from standfast._src.items.items import call_output_item
from standfast._src.items.texts_for_models import model_text
from standfast._src.runs.engine.append_log import Log
from standfast._src.runs.engine.decisions import attach_decisions, only_decisions, refuse_to_override
from standfast._src.runs.engine.events import (
    Appended,
    ApprovalNeeded,
    Begun,
    ChildMoved,
    Claimed,
    Compacted,
    Concluded,
    Decided,
    Event,
    HandedOver,
    Held,
    InputStaged,
    Judged,
    MessageHeard,
    Metered,
    NotTaken,
    Released,
    Replied,
    Returned,
    SettledBy,
    Signalled,
    Stopped,
    Tallied,
    ToolsGone,
)
from standfast._src.runs.engine.limits import plain_record
from standfast._src.runs.engine.run import (
    Call,
    Conclusion,
    Entry,
    Positions,
    Progress,
    Run,
    Spec,
    Stop,
    Turn,
    View,
    evolve,
)
from standfast._src.runs.engine.signals import is_answerable

_FEED_WHAT_WAS_DUE = "Feed a run only results of effects that due() asked for."


ATTEMPTS_MAX = 3
"""Number of attempts before the run of a message is left as failed."""


def advance(run: Run, event: Event) -> Run:
    """The run after `event`. Raises CallerError, and changes nothing, if the run was not waiting for it."""
    match event:
        case Appended(end, billed):
            billed = max(run.marks.billed, billed)
            return evolve(run, marks=evolve(run.marks, stored=max(run.marks.stored, end), billed=billed))
        case Begun(None, outgoing, after_item_id) if run.turn is None:
            return _progress(run, outgoing=outgoing, after_item_id=after_item_id)
        case Begun(call_id) if call_id is not None:
            return _change_call(run, call_id, ("asked",), state="begun")
        case NotTaken(None, after_item_id) if run.turn is None:
            return _progress(run, outgoing=None, after_item_id=after_item_id, doubt=False)
        case NotTaken(call_id) if call_id is not None:
            return _change_call(run, call_id, ("doubt",), state="asked")
        case Judged():
            return _apply_judged(run, event)
        case Replied() if run.turn is None and not run.finished and event.turn == run.progress.turns + 1:
            return _apply_replied(run, event)
        case ApprovalNeeded(call_id, reason, results):
            # A decision that was made before this question was an answer to another one.
            asked = {"reason": reason, "same_as_run": event.same_as_run, "values": event.values, "decision": None}
            run = _change_call(run, call_id, ("asked", "doubt"), state="waiting", **asked)
            return _with_results(run, results)
        case Decided(at_rest=at_rest):
            run = _apply_decided(run, event)
            return _progress(run, is_ready=True) if at_rest else run
        case Signalled() if not run.finished:
            return _apply_signal(run, event)
        case Returned():
            return _apply_returned(run, event)
        case ChildMoved(call_id, child):
            state = "waiting" if child.paused else "begun"
            return _change_call(run, call_id, ("asked", "begun", "waiting"), child=child, state=state)
        case Concluded(number, conclusion, judged) if not run.finished:
            return _apply_concluded(run, number, conclusion, judged)
        case Compacted(entries) if run.finished:
            return _progress(run, compacted=(*run.progress.compacted, *entries))
        case Claimed() if not run.is_closed:
            return _apply_claimed(run, event)
        case InputStaged(items) if not run.finished:
            staged = () if items is None else (*run.progress.staged, *items)
            return _progress(run, staged=staged)
        case HandedOver():
            return evolve(run, spec=run.spec.with_context("handed_over"))
        case Tallied(more):
            tally = plain_record(run.spec.tally.plus(more))
            return evolve(run, spec=run.spec.with_context("tally", tally))
        case Metered(changes):
            budgets = [one.add(*more) for one, more in zip(run.spec.budgets, changes, strict=True)]
            return evolve(run, spec=run.spec.with_budgets(budgets))
        case MessageHeard() if run.turn is None and not run.finished:
            return _apply_heard(run, event)
        case ToolsGone(call_ids):
            for call_id in call_ids:
                run = _change_call(run, call_id, ("asked",), kind="gone")
            return run
        case Stopped() if not run.finished:
            return _apply_stopped(run, event)
        case SettledBy() if not run.is_closed or run.is_left_owing:
            return _apply_settled(run, event)
        case Held() if not run.finished:
            return _apply_hold(run, event)
        case Released() if not run.finished:
            return _progress(_without_hold(run), is_ready=True)
        case _:
            name = type(event).__name__
            raise CallerError(f"{name} is not something run {run.spec.run_id!r} was waiting for", _FEED_WHAT_WAS_DUE)


# --- one event each --------------------------------------------------------------------------------------------------


def _apply_judged(run: Run, event: Judged) -> Run:
    run, verdict = _with_results(run, event.results), run.progress.verdict
    if event.stage == "input" and verdict in ("blocking", "parallel"):
        if event.tripped:
            # What the tripwire cut was speculative: no call of it has begun, and none of it is history (C6).
            return evolve(run, turn=None, progress=evolve(run.progress, verdict="tripped"))
        # Blocking guardrails come first; the parallel ones, if there are more, then run beside the model.
        after = "parallel" if verdict == "blocking" and event.more else "passed"
        return _progress(run, verdict=after)
    if event.stage == "staged" and run.progress.staged and run.turn is None:
        start = len(run.ledger)
        entries = [
            Entry("input_item", run.progress.agent, item, {"input_id": f"input-{start + number}"})
            for number, item in enumerate(run.progress.staged)
        ]
        run = evolve(run, ledger=run.ledger.appended(entries))
        return _progress(run, staged=(), verdict="tripped" if event.tripped else run.progress.verdict)
    if event.stage == "output" and run.turn is not None and run.turn.conclusion is not None:
        return _output_judged(run, run.turn, run.turn.conclusion, event)
    raise CallerError("no verdict was asked for", _FEED_WHAT_WAS_DUE)


def _apply_heard(run: Run, event: MessageHeard) -> Run:
    start = len(run.ledger)
    entries = [
        Entry(
            "input_item",
            run.progress.agent,
            item,
            {"input_id": f"input-{start + number}", "message_id": event.message_id},
        )
        for number, item in enumerate(event.items)
    ]
    run = evolve(run, spec=run.spec.with_context("heard", [*run.spec.heard, event.message_id]))
    if not entries:
        return run
    ledger = run.ledger.appended(entries)
    # Stored before the next request leaves: a crash in the request does not lose or repeat the message (F1).
    return evolve(run, ledger=ledger, marks=evolve(run.marks, ready=len(ledger)))


def _output_judged(run: Run, turn: Turn, conclusion: Conclusion, event: Judged) -> Run:
    if not event.tripped:
        return _join(run, turn)
    if not turn.calls:
        # The message is dropped; the input is kept, because it will not be sent again (C3).
        marks = evolve(run.marks, ready=len(run.ledger))
        return evolve(run, turn=None, marks=marks, progress=evolve(run.progress, ended=True, output=None))
    # A tool has run: its call must stay in history, so only what it said is withheld.
    calls = _withheld(turn, conclusion, event.withheld or model_text("output_withheld"))
    run = _join(run, evolve(turn, calls=calls, conclusion=Conclusion(final=True)))
    return _progress(run, output=None)


def _withheld(turn: Turn, conclusion: Conclusion, text: str) -> tuple[Call, ...]:
    """Return the turn's calls with `text` in place of the outputs used by the conclusion."""
    of_output = conclusion.calls or tuple(call.id for call in turn.calls)
    return tuple(_replace_output_text(call, text) if call.id in of_output else call for call in turn.calls)


def _replace_output_text(call: Call, text: str) -> Call:
    outputs = tuple(
        evolve(entry, item={**entry.item, "output": text}, extra=only_decisions(entry))
        if "output" in entry.item
        else entry
        for entry in call.outputs
    )
    return evolve(call, outputs=outputs)


def _apply_replied(run: Run, event: Replied) -> Run:
    owner, marks = run.spec.owner, run.marks
    response_id = event.response.response_id
    # On a response chain the mark belongs to the id: a reply without one moves neither (D4).
    acknowledged = owner.kind == "conversation" or (owner.kind == "chain" and response_id is not None)
    if response_id is not None and owner.kind == "chain":
        marks = evolve(marks, response_id=response_id)
    turn = Turn(
        event.turn, run.progress.agent, event.entries, event.calls, acknowledged, event.owed, event.is_unanswered
    )
    used = _used_with(run, run.progress.agent, event.used)
    progress = evolve(run.progress, turns=event.turn, used=used, outgoing=None, after_item_id=None, doubt=False)
    return evolve(run, turn=turn, marks=marks, progress=progress, responses=run.responses.appended((event.response,)))


def _apply_decided(run: Run, event: Decided) -> Run:
    decision = event.decision
    if event.path:
        call = run.call(event.path[0])
        if call is None or call.child is None:
            raise CallerError("there is no nested run at that path", "Decide about an interruption of this run.")
        child = advance(call.child, Decided(decision, event.path[1:]))
        # Two calls of one nested run may wait: the first decision wakes it, the second must still reach it. And one may
        # wait beside another that was at work when the process died: then its own call is still begun.
        state = "begun" if call.state == "begun" else "waiting" if child.paused else "asked"
        return _change_call(run, call.id, ("waiting", "asked", "begun"), child=child, state=state)
    if decision.sticky:
        run = evolve(run, decided=run.decided.appended((decision,)))
    if decision.call_id is None:
        return run
    call = run.call(decision.call_id)
    if call is None or call.state not in ("waiting", "asked") or (call.state == "asked" and call.decision is None):
        # An application may decide before it is asked; the decision waits for the call.
        return run if decision.sticky else evolve(run, decided=run.decided.appended((decision,)))
    refuse_to_override(run, call, decision)
    return _change_call(run, call.id, ("waiting", "asked"), decision=decision, state="asked")


def _apply_signal(run: Run, event: Signalled) -> Run:
    signal, was_parked = event.signal, run.is_parked
    if signal.number < run.spec.signals_taken:
        return run  # applied before
    run = evolve(run, spec=run.spec.with_context("signals", signal.number + 1))
    if signal.cancel is not None:
        run = evolve(run, spec=run.spec.with_context("cancel", {"by": signal.by, "text": signal.cancel}))
    elif signal.decision is not None and is_answerable(run, signal):
        run = _apply_decided(run, Decided(signal.decision, signal.path))
    else:
        return run
    return _progress(run, is_ready=True) if was_parked else run


def _apply_returned(run: Run, event: Returned) -> Run:
    if not event.entries:
        raise CallerError(f"call {event.call_id!r} returned without an output", "Give every call one output (C8).")
    call = run.call(event.call_id)
    run = _change_call(
        run,
        event.call_id,
        ("asked", "begun", "doubt"),
        state="returned",
        outputs=event.entries if call is None else attach_decisions(event.entries, run, call),
        target=event.target,
        base=event.base,
        child=None,
    )
    turn = run.turn
    assert turn is not None  # _change_call found the call in it
    run = _with_results(run, event.results)
    if event.used:
        run = _progress(run, used=_used_with(run, turn.agent, event.used))
    if event.responses:
        run = evolve(run, responses=run.responses.appended(event.responses))
    if turn.complete and any(call.target for call in turn.calls):
        return _join(run, turn)  # a handoff wins over whatever the turn's tools might have concluded
    return run


def _apply_concluded(run: Run, number: int, conclusion: Conclusion, judged: bool) -> Run:
    turn = run.turn
    if turn is None and number == run.progress.turns + 1 and conclusion.final:
        turn = Turn(number, run.progress.agent, ())  # max_turns was reached and a handler gave an output
    if turn is None or turn.number != number or not turn.complete or turn.conclusion is not None:
        raise CallerError("there is no complete turn to conclude", _FEED_WHAT_WAS_DUE)
    turn = evolve(turn, conclusion=conclusion)
    return evolve(run, turn=turn) if conclusion.final and not judged else _join(run, turn)


def _apply_claimed(run: Run, event: Claimed) -> Run:
    stop = run.progress.stop if run.finished else None  # a run that was given up stays so while it is being stored
    # A hand-over is not a loss: a deploy each hour must not look like a tool that ends its process.
    is_torn = run.status == "running" and run.has_done_something and not run.spec.was_handed_over
    spec = run.spec.with_context("takeovers", run.spec.takeovers + 1) if is_torn else run.spec
    spec = spec.with_context("handed_over", None) if spec.was_handed_over else spec
    if spec.message is not None and not run.has_done_something:
        spec = spec.with_context("attempts", spec.attempts + 1)
    known = evolve(run.progress, claim=event.claim, stop=stop, is_ready=False)
    progress = evolve(known, doubt=run.progress.outgoing is not None)
    # What the session holds now it holds in the history that is read again (D7): sent from the ledger too, it would be
    # sent twice. So the view begins behind it, also where the answer to an append was lost.
    marks = evolve(run.marks, stored=max(run.marks.stored, min(event.stored, len(run.ledger))))
    run, marks, spec = _without_unstored_messages(run, marks, spec)
    spec = _with_unknown_costs(spec)
    turn = run.turn
    if turn is not None:
        always = {call.name for call in turn.calls if call.decision is not None and call.decision.sticky}
        turn = evolve(turn, calls=tuple(_claimed_call(call, event.claim, always) for call in turn.calls))
    views = run.views
    if run.view.base is None and run.view.tail != marks.stored:
        views = views.appended((View(None, marks.stored),))
    return evolve(run, spec=spec, progress=progress, marks=marks, turn=turn, views=views)


def _with_unknown_costs(spec: Spec) -> Spec:
    """Count reservations of interrupted requests as spent, without a known outcome (F10)."""
    if not any(one.held for one in spec.budgets):
        return spec
    return spec.with_budgets([one.add(unknown=one.held, held=-one.held) for one in spec.budgets])


def _without_unstored_messages(run: Run, marks: Positions, spec: Spec) -> tuple[Run, Positions, Spec]:
    """Drop messages missing in the session: the inbox still has each, or a later run has heard each (F1)."""
    tail = run.ledger.since(marks.stored)
    dropped = {str(entry.extra["message_id"]) for entry in tail if entry.extra and "message_id" in entry.extra}
    if not dropped:
        return run, marks, spec
    own = [entry for entry in tail if not (entry.extra and "message_id" in entry.extra)]
    run = evolve(run, ledger=Log([*run.ledger[: marks.stored], *own]))
    spec = spec.with_context("heard", [one for one in spec.heard if one not in dropped])
    return run, evolve(marks, ready=min(marks.ready, len(run.ledger))), spec


def _claimed_call(call: Call, claim: str, always: set[str]) -> Call:
    child = call.child
    if child is not None and not child.finished:
        child = _apply_claimed(child, Claimed(claim))
    if call.state == "waiting" and call.reason == "approval" and child is None and call.name in always:
        return evolve(call, state="asked")  # a decision about all calls may cover this one: its execution checks that
    if call.state != "begun":
        return evolve(call, child=child)
    # A nested run knows itself how far it got; only a call without one is in doubt.
    if child is not None:
        return evolve(call, state="asked", child=child)
    # Whatever is decided about it, from now on it cannot be said that it did not run.
    return evolve(call, state="doubt", reason="unknown")


def _apply_stopped(run: Run, event: Stopped) -> Run:
    turn = run.turn
    if event.mode == "after_turn":
        upto = event.upto if turn is None else max(event.upto, turn.number)  # what has begun stays due
        earlier = run.progress.stop
        return run if earlier is not None and earlier.upto <= upto else _progress(run, stop=Stop("after_turn", upto))
    run = evolve(run, spec=_with_unknown_costs(run.spec)) if run.spec.context is not None else run
    if turn is not None and _stays_open(run, turn, event):
        return _progress(run, stop=Stop(event.mode, turn.number - 1))
    if turn is not None and _must_keep(run, turn, event):
        if event.mode == "abandoned":
            turn = _with_grants_withdrawn(run, turn, event.message or model_text("did_not_run"))
        calls = tuple(
            call if call.state == "returned" else with_not_completed(run, call, _last_word(call, event))
            for call in turn.calls
        )
        entries = turn.conclusion.entries if turn.conclusion is not None else ()
        run = _join(
            _charged_for_nested(run), evolve(turn, calls=calls, conclusion=Conclusion(final=False, entries=entries))
        )
    elif turn is not None:
        # Nothing of it has happened yet, so nothing of it is kept, and the turn is not charged.
        run = evolve(run, turn=None, progress=evolve(run.progress, turns=turn.number - 1))
    if event.mode == "abandoned":
        return _progress(run, ended=True, stop=Stop("abandoned", run.progress.turns))
    # A full limit is as full for the next worker: the message is listed as failed until the limit is raised.
    if event.mode in ("failed", "immediate") and not event.at_limit and _is_tried_again(run):
        return _progress(run, is_ready=True)
    return _progress(run, stop=Stop(event.mode, run.progress.turns))


def _is_tried_again(run: Run) -> bool:
    """Return True for an untouched message with attempts left: a worker begins the message again (F1)."""
    return run.spec.message is not None and not run.has_done_something and run.spec.attempts < ATTEMPTS_MAX


def _stays_open(run: Run, turn: Turn, event: Stopped) -> bool:
    """Return whether the reply in hand waits unchanged for a resume: none of it has happened yet."""
    if event.mode == "abandoned" or run.progress.verdict != "passed":
        return False
    if event.at_limit and (event.keeps_turn or not turn.ran):
        # Saved, as a paused run. A call cut half-way has an unknown outcome; a nested run missing from its call has had
        # no effect yet.
        return all(call.state not in ("begun", "doubt") or call.kind == "agent" for call in turn.calls)
    if turn.ran:
        return False
    # A server has the reply and was asked for nothing more: closed, the turn would leave it an empty request to answer.
    return event.keeps_turn or (run.spec.owner.is_server and turn.complete and turn.conclusion is None)


def _must_keep(run: Run, turn: Turn, event: Stopped) -> bool:
    if turn.ran or run.spec.owner.is_server:
        return True
    if run.progress.verdict != "passed":
        return False  # whatever ends the run, nothing of a turn is stored before the input verdict (C6)
    # An output guardrail that raised has given no verdict: the turn is kept (C6).
    return event.mode == "abandoned" or (event.mode == "failed" and turn.conclusion is not None)


def _last_word(call: Call, event: Stopped) -> str:
    """Return the output of an unfinished call. Only a call that has not begun certainly did not run."""
    return model_text("not_completed") if call.has_begun else event.message or model_text("did_not_run")


def _apply_hold(run: Run, event: Held) -> Run:
    turn = run.turn
    if turn is not None:
        turn = evolve(turn, calls=tuple(_hold_call(call, event) for call in turn.calls))
    # The decisions about its calls are enough where calls wait. Nothing else asks a person about a run without one.
    run = _progress(evolve(run, turn=turn, spec=run.spec.with_hold(None)), is_ready=False)
    return run if run.paused else evolve(run, spec=run.spec.with_hold(event.hold))


def _hold_call(call: Call, event: Held) -> Call:
    child = call.child
    if child is not None and not child.finished:
        return evolve(call, child=_apply_hold(child, event), state="waiting")
    if call.state == "returned" or call.kind in NO_EFFECT:
        return call
    # Also one that waited for an approval: a person may have given it after the store's state, and the call have run.
    return evolve(call, state="waiting", reason="unknown", decision=None, same_as_run=None)


NO_EFFECT = ("handoff", "ignored", "unknown", "gone", "repeated")
"""Kinds of calls that act upon nothing outside of the run."""


def _without_hold(run: Run) -> Run:
    """Lift an operator's hold from the run and its nested runs; calls that waited for nothing else may continue."""
    turn = run.turn
    if turn is not None:
        turn = evolve(turn, calls=tuple(_released_call(call) for call in turn.calls))
    return evolve(run, turn=turn, spec=run.spec.with_hold(None))


def _released_call(call: Call) -> Call:
    if call.child is None or call.state != "waiting":
        return call
    child = _without_hold(call.child)
    return evolve(call, child=child, state="waiting" if child.paused else "asked")


def _apply_settled(run: Run, event: SettledBy) -> Run:
    """Close the open parts of a crashed run; the result is paused if one of its calls waits for a person."""
    run = _apply_claimed(run, Claimed(event.claim, event.stored))
    turn = run.turn
    if run.finished:
        # It had come to its end: its last turn is still to be stored, or its server's conversation lacks some of it.
        return _progress(run, settled_by=event.run_id) if run.spec.owner.is_server else run
    run = _progress(run, staged=())  # no guardrail judged it, and this run's model gets no further request
    if turn is not None and run.progress.verdict != "passed":
        turn = None  # no call of it can have begun, and nothing of it is stored before the input verdict (C6)
    if turn is not None:
        turn = evolve(turn, calls=tuple(_settled_call(run, call, event) for call in turn.calls))
        if any(call.state == "waiting" for call in turn.calls):
            return evolve(run, turn=turn)
        turn = _with_grants_withdrawn(run, turn, model_text("did_not_run"))
        turn = _without_unjudged(run, turn)
    if turn is None:
        run = evolve(run, turn=None)
    else:
        run = _join(_charged_for_nested(run), turn)
    return _progress(run, ended=True, stop=Stop("abandoned", run.progress.turns), settled_by=event.run_id)


def _settled_call(run: Run, call: Call, event: SettledBy) -> Call:
    child = call.child
    if child is not None and not child.finished:
        child = _apply_settled(child, event)
        if child.paused:
            return evolve(call, state="waiting", child=child)
    if call.state == "returned" or (call.state == "waiting" and call.child is None and not event.is_orphan):
        return call
    if call.state == "doubt" and call.on_unknown == "ask" and not event.is_orphan:
        return evolve(call, state="waiting", reason="unknown")
    return with_not_completed(run, call, model_text("outcome_unknown" if call.has_begun else "did_not_run"))


def _without_unjudged(run: Run, turn: Turn) -> Turn | None:
    """Remove a final output that no output guardrail has passed (C6); None if nothing remains of the turn."""
    conclusion = turn.conclusion
    if run.spec.owner.is_server:
        return evolve(turn, conclusion=None)  # the server has it, whatever the verdict
    if not turn.calls:
        return None
    if conclusion is None or not conclusion.final:
        return turn
    return evolve(
        turn, calls=_withheld(turn, conclusion, model_text("output_withheld")), conclusion=Conclusion(final=False)
    )


# --- shared steps ----------------------------------------------------------------------------------------------------


def with_not_completed(run: Run, call: Call, message: str) -> Call:
    """Give a call an output that says it was not completed, so that the history stays valid for a provider (C8)."""
    item: dict[str, Any]
    if call.kind == "hosted":
        item = {"type": "mcp_approval_response", "approval_request_id": call.id, "approve": False, "reason": message}
        kind = "mcp_approval_response_item"
    else:
        assert run.turn is not None  # the call is one of its calls
        item = call_output_item(run.turn.item_of(call), message)
        kind = "tool_call_output_item"
    return evolve(call, state="returned", child=None, outputs=attach_decisions((Entry(kind, "", item),), run, call))


def _with_grants_withdrawn(run: Run, turn: Turn, message: str) -> Turn:
    """The open turn without approvals of a provider's own tools: stored, the next request would make them act."""
    calls = (with_not_completed(run, call, message) if call.is_granted else call for call in turn.calls)
    return evolve(turn, calls=tuple(calls))


def _join(run: Run, turn: Turn) -> Run:
    """Append the turn to the ledger as one piece: the reply, then the outputs in call order, whatever the clock did."""
    start = len(run.ledger)
    conclusion = turn.conclusion
    entries = [*turn.reply]
    for call in turn.calls:
        for entry in call.outputs:
            entries.append(entry if entry.agent else evolve(entry, agent=turn.agent))
    if conclusion is not None:
        entries += conclusion.entries
    ledger = run.ledger.appended(entries)
    marks: Positions = evolve(run.marks, ready=len(ledger))
    if turn.acknowledged:
        marks = evolve(marks, acknowledged=start + len(turn.reply), owed=turn.owed)
    progress: Progress = run.progress
    views = run.views
    for call in turn.calls:
        if call.target is not None:
            progress = evolve(progress, agent=call.target)
            if call.base is not None:
                views = views.appended((View(call.base, len(ledger)),))
    if conclusion is not None and conclusion.final:
        progress = evolve(progress, ended=True, output=conclusion.output)
    return evolve(run, turn=None, ledger=ledger, marks=marks, progress=progress, views=views)


def _charged_for_nested(run: Run) -> Run:
    """Add the replies of nested runs that end with the turn: they were paid for in any case."""
    nested = [evolve(one, hidden=True) for call in run.calls if call.child is not None for one in call.child.responses]
    return evolve(run, responses=run.responses.appended(nested)) if nested else run


def _progress(run: Run, **changes: Any) -> Run:
    return evolve(run, progress=evolve(run.progress, **changes))


def _used_with(run: Run, agent: str, names: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return the tools used so far and these, without repetition."""
    return tuple(dict.fromkeys((*run.progress.used, *((agent, name) for name in names))))


def _with_results(run: Run, results: tuple[Item, ...]) -> Run:
    return evolve(run, results=run.results.appended(results)) if results else run


def _change_call(run: Run, call_id: str, allowed: tuple[str, ...], **changes: Any) -> Run:
    turn = run.turn
    if turn is not None:
        for index, call in enumerate(turn.calls):
            if call.id == call_id and call.state in allowed:
                calls = (*turn.calls[:index], evolve(call, **changes), *turn.calls[index + 1 :])
                return evolve(run, turn=evolve(turn, calls=calls))
    raise CallerError(f"call {call_id!r} is not in a state that allows this", _FEED_WHAT_WAS_DUE)


def refuse_finished(run: Run) -> None:
    """Raise if the run has ended: it cannot be resumed (D7)."""
    if run.finished:
        refuse_settled(run.spec.run_id, run.progress.settled_by)
        raise RunStateError(
            f"run {run.spec.run_id!r} has ended and cannot be resumed",
            "Start a new turn: Runner.run(agent, result.to_input_list() + [new input]), or pass the same session.",
        )


def raise_for_hold(run: Run) -> None:
    """Raise if an operator keeps the run from acting (C15)."""
    if run.is_held:
        hold = run.spec.hold
        assert hold is not None
        raise RunStateError(
            f"run {run.spec.run_id!r} is held by {hold.by}: its store was restored, and may be behind what the run did",
            "Let it continue with `standfast runs approve STORE RUN` or Store.release(), or give it up.",
        )


def refuse_settled(run_id: str, settled_by: object, moved_to: object = None) -> None:
    """Raise if the run was settled by another run after a crash, or moved to another store: it cannot
    continue (C15).
    """
    if moved_to is not None:
        raise RunStateError(
            f"run {run_id!r} was moved to {moved_to}, and goes on there",
            "Resume it in that store; here its history ends.",
        )
    if settled_by is not None:
        raise RunStateError(
            f"run {run_id!r} was found without a worker and settled by run {settled_by!r}: what it had begun is said"
            " in the history to be of unknown outcome, and it has ended",
            "Read the history, and start a new run under another run_id for what is still to be done.",
        )
