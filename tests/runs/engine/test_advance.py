"""Single steps of a run that deserve a sentence of their own: each was, or easily could be, wrong."""

from __future__ import annotations

import pytest
from runs.engine.schedule_world import answer, assert_provider_valid, call_item, said, user

from standfast._src.base.errors import CallerError, RunStateError
from standfast._src.base.json_values import Item
from standfast._src.items.texts_for_models import DEFAULT_TEXTS
from standfast._src.runs.engine.advance import advance, refuse_finished
from standfast._src.runs.engine.codec import decode_run, encode_run
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.events import (
    Append,
    Appended,
    ApprovalNeeded,
    Begun,
    CallModel,
    ChildMoved,
    Claimed,
    Conclude,
    Concluded,
    Decided,
    Event,
    InputStaged,
    Judge,
    Judged,
    NotTaken,
    Replied,
    Returned,
    RunCall,
    Settle,
    Stopped,
)
from standfast._src.runs.engine.request import ordinals_to_send, view_items
from standfast._src.runs.engine.run import (
    Call,
    Conclusion,
    Decision,
    Entry,
    Outgoing,
    Owner,
    Response,
    Run,
    Verdict,
    begin,
)

SENT = Begun(None, Outgoing("1/model", (0,)))


def started(kind: str = "session", verdict: Verdict = "passed", max_turns: int | None = 10) -> Run:
    owner = Owner(kind, None if kind == "replay" else "somewhere")
    return begin(
        run_id="run", agent="agent", input_items=[user("yes")], owner=owner, verdict=verdict, max_turns=max_turns
    )


def delta(run: Run) -> list[Item]:
    """What the server of a conversation is still to be sent."""
    return [run.ledger[ordinal].item for ordinal in ordinals_to_send(run)]


def call(call_id: str, kind: str = "tool", name: str = "pay") -> Call:
    return Call(call_id, name, kind, "{}", "digest")


def replied(turn: int, *calls: Call, response_id: str | None = None, owed: tuple[int, ...] = ()) -> Replied:
    items = [call_item(one) for one in calls] or [said("done")]
    entries = tuple(Entry("tool_call_item" if calls else "message_output_item", "agent", item) for item in items)
    return Replied(turn, entries, calls, Response(tuple(items), {}, response_id), owed)


def returned(one: Call, text: str = "ok") -> Returned:
    return Returned(one.id, (answer(one, text),))


def after(run: Run, *events: Event) -> Run:
    for event in events:
        run = advance(run, event)
        assert decode_run(encode_run(run)) == run
    return run


def stored_text(run: Run) -> list[object]:
    return [entry.item.get("output") or entry.item.get("content") for entry in run.ledger]


A, B, C = call("a"), call("b"), call("c")


# --- begun, doubt, claim ----------------------------------------------------------------------------------------------


def test_a_begun_call_is_settled_and_not_repeated_after_a_claim():
    run = after(started(), replied(1, A), Begun("a"), Claimed("me"))
    assert due(run) == (Settle(1, "a"),)
    assert due(after(run, NotTaken("a"))) == (RunCall(1, "a"),)


def test_a_request_that_left_is_settled_and_not_repeated_after_a_claim():
    run = after(started("conversation"), SENT, Claimed("me"))
    assert due(run) == (Settle(1),)
    assert due(after(run, NotTaken())) == (CallModel(1),)
    assert due(after(run, replied(1))) == (Conclude(1),)


def test_a_claim_reaches_what_had_begun_in_a_nested_run():
    """A call that has a child run is not in doubt: its child is claimed instead, and knows what it had begun."""
    child = after(started("replay"), replied(1, B), Begun("b"))
    helper = call("a", "agent")
    run = after(started(), replied(1, helper), ChildMoved("a", child), Claimed("me"))
    assert due(run) == (RunCall(1, "a"),)
    found = run.call("a")
    assert found is not None
    assert found.child is not None
    assert due(found.child) == (Settle(1, "b"),)


def test_a_claim_leaves_a_nested_run_that_has_ended_as_it_is():
    child = after(started("replay"), replied(1), Concluded(1, Conclusion(True, "x"), judged=True))
    run = after(started(), replied(1, call("a", "agent")), ChildMoved("a", child), Claimed("me"))
    assert due(run) == (RunCall(1, "a"),)


def test_what_the_session_holds_is_not_sent_a_second_time_after_a_lost_acknowledgement():
    """C5, D7: the append reached the session, its answer was lost, and the history is read again."""
    run = after(started(), replied(1, A), Begun("a"), returned(A), Concluded(1, Conclusion(False)))
    assert due(run) == (Append(0, 3), CallModel(2))
    held = [entry.item for entry in run.ledger]
    resumed = after(run, Claimed("me", stored=3))
    assert due(resumed) == (CallModel(2),)
    assert view_items(resumed, [user("before"), *held]) == [user("before"), *held]


def test_what_the_session_does_not_hold_is_sent_from_the_ledger():
    run = after(started(), replied(1, A), Begun("a"), returned(A), Concluded(1, Conclusion(False)), Claimed("me"))
    assert due(run) == (Append(0, 3), CallModel(2))
    assert view_items(run, [user("before")]) == [user("before"), *(entry.item for entry in run.ledger)]


def test_a_finished_run_can_be_claimed_as_long_as_its_session_lacks_something_of_it():
    """A kill between the end and the last append must leave something to resume; after that there is nothing (D7)."""
    run = after(started(), replied(1), Concluded(1, Conclusion(True, "done")), Judged("output"))
    assert (due(run), run.status) == ((Append(0, 2),), "running")
    run = after(run, Claimed("me", stored=0))
    assert due(run) == (Append(0, 2),)
    run = after(run, Appended(2))
    assert (due(run), run.status) == ((), "done")
    with pytest.raises(CallerError):
        advance(run, Claimed("me"))
    with pytest.raises(RunStateError, match="Start a new turn"):
        refuse_finished(run)


# --- decisions --------------------------------------------------------------------------------------------------------


def test_two_decisions_reach_two_calls_of_one_nested_run():
    """The first decision wakes the nested run; the second must still get there."""
    child = after(started("replay"), replied(1, B, C), ApprovalNeeded("b"), ApprovalNeeded("c"))
    run = after(started(), replied(1, call("a", "agent")), ChildMoved("a", child))
    assert run.paused
    run = after(run, Decided(Decision(True, "b"), ("a",)), Decided(Decision(False, "c"), ("a",)))
    assert due(run) == (RunCall(1, "a"),)
    found = run.call("a")
    assert found is not None
    assert found.child is not None
    assert [one.decision and one.decision.approved for one in found.child.turn.calls] == [True, False]


def test_a_decision_reaches_a_nested_run_in_which_another_call_was_at_work():
    """The process died meanwhile: the run is not paused, and its question is one all the same."""
    child = after(started("replay"), replied(1, B, C), Begun("b"), ApprovalNeeded("c"))
    run = after(started(), replied(1, call("a", "agent")), Begun("a"), ChildMoved("a", child))
    assert not run.paused
    run = after(run, Decided(Decision(True, "c"), ("a",)), Claimed("me"))
    found = run.call("a")
    assert found is not None
    assert found.child is not None
    assert [(one.id, one.state) for one in found.child.turn.calls] == [("b", "doubt"), ("c", "asked")]


def test_a_decision_reaches_a_nested_run_inside_a_nested_run():
    inner = after(started("replay"), replied(1, C), ApprovalNeeded("c"))
    middle = after(started("replay"), replied(1, call("b", "agent")), ChildMoved("b", inner))
    run = after(started(), replied(1, call("a", "agent")), ChildMoved("a", middle))
    assert run.paused
    run = after(run, Decided(Decision(True, "c"), ("a", "b")))
    assert not run.paused
    with pytest.raises(CallerError, match="no nested run"):
        advance(run, Decided(Decision(True, "c"), ("a", "c")))


def test_a_decision_made_before_it_is_asked_for_waits_for_the_call():
    run = after(started(), replied(1, A), Decided(Decision(True, "a")))
    assert [decision.call_id for decision in run.decided] == ["a"]
    assert due(run) == (RunCall(1, "a"),)


def test_a_sticky_decision_wakes_the_other_waiting_calls_of_its_tool():
    """On resume, whoever runs them finds the decision that covers them, or asks again."""
    other = call("c", name="look")
    run = after(started("replay"), replied(1, A, B, other), *(ApprovalNeeded(one) for one in "abc"))
    run = after(run, Decided(Decision(True, "a", "pay", sticky=True)))
    assert [one.id for one in run.waiting] == ["b", "c"]
    assert due(after(run, Claimed("me"))) == (RunCall(1, "a"), RunCall(1, "b"))


def test_the_last_decision_about_a_call_that_has_not_begun_wins():
    run = after(
        started(), replied(1, A), ApprovalNeeded("a"), Decided(Decision(True, "a")), Decided(Decision(False, "a"))
    )
    found = run.call("a")
    assert found is not None
    assert found.decision == Decision(False, "a")


# --- pauses -----------------------------------------------------------------------------------------------------------


def test_a_pause_stores_the_input_alone_and_keeps_the_open_turn_out_of_history():
    run = after(started(), replied(1, A), ApprovalNeeded("a"))
    assert run.paused
    assert due(run) == (Append(0, 1),)


def test_a_handoff_beside_a_waiting_call_neither_runs_nor_hides_the_pause():
    """C3: a turn is stored whole, so its handoff waits for the outputs of its other calls."""
    run = after(started("replay"), replied(1, A, call("h", "handoff")), ApprovalNeeded("a"))
    assert run.paused
    assert due(run) == ()
    run = after(run, Decided(Decision(True, "a")))
    assert due(run) == (RunCall(1, "a"),)
    run = after(run, Begun("a"), returned(A))
    assert due(run) == (RunCall(1, "h"),)


def test_a_handoff_in_doubt_is_settled():
    run = after(started("replay"), replied(1, call("h", "handoff")), Begun("h"), Claimed("me"))
    assert due(run) == (Settle(1, "h"),)
    assert not run.paused


def test_outputs_join_in_call_order_after_a_pause_too():
    run = after(
        started(),
        replied(1, A, B, C),
        ApprovalNeeded("a"),
        Begun("c"),
        returned(C, "third"),
        Begun("b"),
        returned(B, "second"),
        Decided(Decision(True, "a")),
        Begun("a"),
        returned(A, "first"),
        Concluded(1, Conclusion(False)),
    )
    assert stored_text(run)[-3:] == ["first", "second", "third"]


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_no_call_begins_while_a_parallel_verdict_is_open_though_the_reply_is_there():
    run = after(started(verdict="parallel"), replied(1, A))
    assert due(run) == (Judge("input", 1),)
    assert due(after(run, Judged("input"))) == (RunCall(1, "a"),)


def test_an_input_trip_drops_the_reply_and_leaves_exactly_the_input():
    run = after(started(verdict="parallel"), replied(1, A), Judged("input", tripped=True))
    assert due(run) == (Append(0, 1),)
    assert due(after(run, Appended(1))) == ()


def test_nothing_of_a_turn_is_stored_when_the_run_ends_before_the_input_verdict():
    """C6: whatever ends it. A guardrail that raised has given no verdict."""
    for mode in ("immediate", "failed", "abandoned"):
        run = after(started(verdict="parallel"), replied(1, A), Stopped(mode))
        assert len(run.ledger) == 1
        assert due(run) == ()


def test_an_output_guardrail_that_raised_leaves_the_turn_stored():
    run = after(started(), replied(1), Concluded(1, Conclusion(True, "done")), Stopped("failed"))
    assert due(run) == (Append(0, 2),)


def test_what_a_handler_added_is_stored_too_when_an_output_guardrail_raised():
    entry = Entry("message_output_item", "agent", said("gave up"))
    run = after(started(max_turns=0), Concluded(1, Conclusion(True, "gave up", (entry,))), Stopped("failed"))
    assert due(run) == (Append(0, 2),)


# --- stops ------------------------------------------------------------------------------------------------------------


def test_an_immediate_stop_answers_what_is_open_and_keeps_what_had_returned():
    run = after(started(), replied(1, A, B), Begun("a"), Begun("b"), returned(B), Stopped("immediate"))
    assert stored_text(run) == ["yes", None, None, DEFAULT_TEXTS.not_completed, "ok"]
    assert due(run) == (Append(0, 5),)
    assert_provider_valid([entry.item for entry in run.ledger])


@pytest.mark.parametrize("mode", ["immediate", "failed"])
def test_a_stop_keeps_a_turn_in_which_something_may_have_run_before_a_crash(mode):
    """C8: also while a person is asked what became of it, and when it may be run again but was not yet."""
    crashed = after(started(), replied(1, A), Begun("a"), Claimed("me"))
    asked = after(crashed, ApprovalNeeded("a", "unknown"))
    decided = after(asked, Decided(Decision(True, "a")))
    again = after(crashed, NotTaken("a"))
    for run in (crashed, asked, decided, again):
        stopped = after(run, Stopped(mode, message="it did not run"))
        assert stored_text(stopped)[-1] == DEFAULT_TEXTS.not_completed


def test_a_stop_keeps_a_turn_whose_nested_run_waits_and_counts_what_it_used():
    """The nested run may have run tools of its own, and its replies were paid for."""
    child = after(started("replay"), replied(1, B), ApprovalNeeded("b"))
    run = after(started(), replied(1, call("a", "agent")), ChildMoved("a", child), Stopped("immediate"))
    assert stored_text(run)[-1] == DEFAULT_TEXTS.not_completed
    assert [response.hidden for response in run.responses] == [False, True]


def test_a_run_is_not_called_cancelled_while_its_last_turn_goes_on():
    """A listing that says so would let it be pruned while somebody is asked about it."""
    run = after(started("replay"), replied(1, A), Stopped("after_turn", 1))
    assert run.status == "running"
    run = after(run, ApprovalNeeded("a"))
    assert run.status == "paused"
    run = after(run, Decided(Decision(False, "a")), returned(A, "no"), Concluded(1, Conclusion(False)))
    assert run.status == "cancelled"


def test_a_stop_before_any_tool_ran_drops_the_turn_and_does_not_charge_it():
    run = after(started(), replied(1, A), Stopped("immediate"))
    assert (len(run.ledger), run.progress.turns, due(run)) == (1, 0, ())
    assert due(after(run, Claimed("me"))) == (CallModel(1),)


def test_an_end_after_the_turn_lets_what_has_begun_finish():
    run = after(started("replay"), replied(1, A), Begun("a"), Stopped("after_turn", 0))
    assert due(run) == (RunCall(1, "a"),)
    run = after(run, returned(A), Concluded(1, Conclusion(False)))
    assert due(run) == ()
    assert due(after(run, Claimed("me"))) == (CallModel(2),)


def test_an_end_after_the_turn_does_not_undo_an_end_at_once():
    run = after(started("replay"), Stopped("immediate"), Stopped("after_turn", 3))
    assert due(run) == ()


def test_a_stop_keeps_what_the_server_has_and_owes_it_the_outputs():
    """D2, D11: the server knows the calls, so their outputs are still offered, though none of them ran."""
    run = after(started("conversation"), SENT, replied(1, A), Stopped("immediate"))
    assert delta(run) == [{"type": "function_call_output", "call_id": "a", "output": DEFAULT_TEXTS.did_not_run}]
    assert due(after(run, Claimed("me"))) == (CallModel(2),)


def test_abandoning_a_paused_run_rejects_what_is_open_and_stores_the_turn_whole():
    """C8."""
    run = after(started(), replied(1, A, call("m", "hosted")), ApprovalNeeded("a"), ApprovalNeeded("m"), Appended(1))
    run = after(run, Stopped("abandoned", message="nobody answered"))
    assert run.finished
    assert due(run) == (Append(1, 5),)
    assert_provider_valid([entry.item for entry in run.ledger])
    assert run.ledger[3].item["output"] == "nobody answered"


# --- the end ----------------------------------------------------------------------------------------------------------


def test_an_output_that_a_handler_gave_when_no_turn_was_left_can_be_saved_while_it_is_judged():
    """No turn is charged without a model call (D7), so the open turn is one behind the count."""
    entry = Entry("message_output_item", "agent", said("gave up"))
    run = after(started(max_turns=0), Concluded(1, Conclusion(True, "gave up", (entry,))))
    assert due(run) == (Judge("output", 1),)
    ended = after(run, Judged("output"))
    assert (ended.progress.turns, due(ended)) == (0, (Append(0, 2),))
    tripped = after(run, Judged("output", tripped=True))
    assert due(tripped) == (Append(0, 1),)


def test_staged_input_is_judged_and_sent_before_the_next_request():
    run = after(started("replay"), replied(1, A), ApprovalNeeded("a"), InputStaged((user("and"),)))
    run = after(run, Decided(Decision(False, "a")), returned(A, "no"), Concluded(1, Conclusion(False)))
    assert due(run) == (Judge("staged", 2),)
    assert due(after(run, InputStaged(None))) == (CallModel(2),)
    run = after(run, Judged("staged"))
    assert due(run) == (CallModel(2),)
    assert view_items(run)[-1] == user("and")


# --- a conversation that a server owns --------------------------------------------------------------------------------


def test_a_reply_without_an_id_moves_nothing_on_a_chain():
    """D4: the next request carries what was sent and that reply again."""
    run = after(started("chain"), SENT, replied(1, A), Begun("a"), returned(A))
    run = after(run, Concluded(1, Conclusion(False)))
    assert (run.marks.response_id, ordinals_to_send(run)) == ("somewhere", (0, 1, 2))


def test_a_reply_with_an_id_moves_the_chain_and_its_mark():
    run = after(
        started("chain"),
        SENT,
        replied(1, A, response_id="r1"),
        Begun("a"),
        returned(A),
    )
    run = after(run, Concluded(1, Conclusion(False)))
    assert (run.marks.response_id, ordinals_to_send(run)) == ("r1", (2,))


def test_what_a_filter_left_out_is_offered_again():
    """D3."""
    run = after(
        started("conversation"), Begun(None, Outgoing("1/model")), replied(1, A, owed=(0,)), Begun("a"), returned(A)
    )
    run = after(run, Concluded(1, Conclusion(False)))
    assert delta(run) == [user("yes"), answer(A, "ok").item]


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        Begun("a"),
        NotTaken("a"),
        Judged("output"),
        Judged("staged"),
        Replied(2, (), (), Response((), {})),
        ApprovalNeeded("a"),
        Decided(Decision(True, "x"), ("a",)),
        returned(A),
        ChildMoved("a", started()),
        Concluded(1, Conclusion(False)),
        Concluded(2, Conclusion(True)),
    ],
    ids=lambda event: type(event).__name__,
)
def test_what_a_run_was_not_waiting_for_is_refused(event: Event):
    with pytest.raises(CallerError):
        advance(started(), event)


def test_a_call_is_not_begun_twice_nor_returned_twice():
    run = after(started(), replied(1, A, B), Begun("a"))
    with pytest.raises(CallerError):
        advance(run, Begun("a"))
    run = after(run, returned(A))
    with pytest.raises(CallerError):
        advance(run, returned(A))


def test_a_call_does_not_return_without_an_output():
    """C8: a call whose turn is appended has an output; and a run that could not be read again must not be saved."""
    with pytest.raises(CallerError, match="output"):
        advance(after(started(), replied(1, A), Begun("a")), Returned("a", ()))


def test_a_reply_that_an_observer_failed_over_waits_for_whoever_resumes():
    """Nothing of it has happened, and it was paid for: closed, it would be asked for again."""
    for owner in ("replay", "session", "conversation", "chain"):
        run = after(started(owner), replied(1, A), Stopped("failed", keeps_turn=True))
        assert (due(run), run.status, len(run.ledger)) == ((), "failed", 1)
        assert due(after(run, Claimed("me"))) == (RunCall(1, "a"),)


def test_a_handoff_that_had_begun_in_a_kept_reply_is_in_doubt_and_not_begun_again():
    """Its callback may have run: found by a generated schedule, after an observer had failed beside it."""
    run = after(started("replay"), replied(1, call("h", "handoff")), Begun("h"), Stopped("failed", keeps_turn=True))
    assert (due(run), run.status) == ((), "failed")
    assert due(after(run, Claimed("me"))) == (Settle(1, "h"),)


def test_a_server_is_not_asked_again_for_a_reply_that_it_gave():
    """The turn was closed without its conclusion, and an empty request followed."""
    for stopped in (Stopped("failed"), Stopped("immediate")):
        run = after(started("conversation"), SENT, replied(1), stopped)
        assert due(run) == ()
        assert due(after(run, Claimed("me"))) == (Conclude(1),)


def test_a_turn_whose_tools_ran_joins_whatever_failed():
    run = after(started(), replied(1, A), Begun("a"), returned(A), Stopped("failed", keeps_turn=True))
    assert run.turn is None
    assert len(run.ledger) == 3
