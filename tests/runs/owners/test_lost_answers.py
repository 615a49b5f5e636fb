"""Answers that were lost on the way (D5): settled by asking the server, or said to be unknown; never sent blindly."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from openai import APIConnectionError, APIError, AsyncOpenAI

from standfast import (
    ModelRetrySettings,
    ModelSettings,
    RunHooks,
    Runner,
    RunState,
    SendOutcomeUnknownError,
    UserError,
)
from standfast._src.base.errors import ModelTimeoutError, RunStateError, StandfastError
from standfast.testing.loopback import (
    Cut,
    Drop,
    ErrorEvent,
    Failed,
    Gate,
    Incomplete,
    LoopbackServer,
    Script,
    Status,
    call,
    conversation_locked,
)
from tests.runs.owners.stories import CHAINS, CONVERSATION, GIVEN, expected, whole
from tests.runs.owners.world import APPROVE, NO_RETRY, RETRY, World, both_modes

pytestmark = pytest.mark.clause("D5", backend="runs")

TOOL_TURN = [call("look", call_id="c1"), "ok"]
POLICIES = {"no policy": NO_RETRY, "retry": RETRY, "approve": APPROVE}
turns = pytest.mark.parametrize("turn", [0, 1], ids=["first request", "tool turn"])
policies = pytest.mark.parametrize("policy", POLICIES)

# The request was taken, and nothing (or not all) of the reply arrives.
TAKEN = [
    Drop(committed=True),
    Status(500, committed=True),
    Status(502, committed=True),
    Status(503, committed=True, retry_after_s=0.001),
    Status(504, committed=True),
    Cut(after_bytes=30),
    Cut(after_bytes=400),
    Cut(after_events=2),
    Cut(after_events=4),
    Cut(after_events=4, clean=True),
    ErrorEvent(after_events=3, committed=True),
]
# The same seen from this side, but the server has nothing.
NOT_TAKEN = [
    Drop(committed=False),
    Status(500),
    Status(502),
    Cut(after_bytes=30, committed=False),
    Cut(after_events=2, committed=False),
    Failed(),
]


# --- a conversation: it can be listed --------------------------------------------------------------------------------


@policies
@both_modes
@turns
@pytest.mark.parametrize("fault", TAKEN, ids=str)
async def test_a_conversations_lost_answer_is_found_and_not_asked_for_again(
    fault: Any, turn: int, streamed: bool, policy: str, server: LoopbackServer, client: AsyncOpenAI
):
    """(b): what the server lists behind the last item known before is the answer, also where a replay was approved."""
    world = World(server, client, CONVERSATION, streamed, settings=POLICIES[policy])
    server.rule = Script(TOOL_TURN)
    server.fault(fault, skip=turn)
    await world.say("hi")
    assert world.last.final_output == "ok"
    assert world.received() == expected(CONVERSATION, "tool turn")
    world.assert_agreement(whole("tool turn"))


@both_modes
@turns
@pytest.mark.parametrize("fault", NOT_TAKEN, ids=str)
async def test_what_a_conversation_does_not_have_may_be_sent_again(
    fault: Any, turn: int, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, CONVERSATION, streamed, settings=RETRY)
    server.rule = Script([*TOOL_TURN[:turn], *([TOOL_TURN[turn]] if committed_late(fault) else []), *TOOL_TURN[turn:]])
    server.fault(fault, skip=turn)
    await world.say("hi")
    sent = expected(CONVERSATION, "tool turn")
    assert world.received() == [*sent[: turn + 1], *sent[turn:]]
    world.assert_agreement(whole("tool turn"))


def committed_late(fault: Any) -> bool:
    """Whether the script's answer is used up although the request is not taken."""
    return isinstance(fault, Cut | Failed)


@both_modes
@turns
@pytest.mark.parametrize("fault", NOT_TAKEN, ids=str)
async def test_without_a_policy_it_is_an_error_and_resuming_sends_it_once(
    fault: Any, turn: int, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, CONVERSATION, streamed, settings=NO_RETRY)
    server.rule = Script([*TOOL_TURN[:turn], *([TOOL_TURN[turn]] if committed_late(fault) else []), *TOOL_TURN[turn:]])
    server.fault(fault, skip=turn)
    with pytest.raises((APIError, StandfastError)) as caught:
        await world.say("hi")
    assert not isinstance(caught.value, SendOutcomeUnknownError)
    assert any("is not known: resume it" in note for note in caught.value.__notes__)
    state = await RunState.from_string(world.agent, caught.value.run_state.to_string())  # type: ignore[union-attr]
    await world.resume(state)
    sent = expected(CONVERSATION, "tool turn")
    assert world.received() == [*sent[: turn + 1], *sent[turn:]]
    world.assert_agreement(whole("tool turn"))


@both_modes
@pytest.mark.parametrize("strategy", [CONVERSATION, *CHAINS])
async def test_a_policy_that_fails_does_not_hide_that_the_outcome_is_unknown(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    def decide(context: Any) -> Any:
        return "perhaps"

    settings = ModelSettings(retry=ModelRetrySettings(max_retries=1, policy=decide))
    world = World(server, client, strategy, streamed, settings=settings)
    server.fault(Drop(committed=False), skip=1)
    await world.say("hi")
    with pytest.raises(UserError, match="retry policy returned a str") as caught:
        await world.say("again")
    assert any("is not known: resume it" in note for note in caught.value.__notes__)


async def test_an_equal_message_before_is_not_taken_for_ours(server: LoopbackServer, client: AsyncOpenAI):
    """Two people may both say "yes", and so may one: what counts is the place, not the likeness."""
    world = World(server, client, CONVERSATION, streamed=False)
    await world.say("yes")
    server.fault(Drop(committed=False))
    await world.say("yes")
    assert world.received() == ["U(yes) [conv]"] * 3
    world.assert_agreement(["U(yes)", "A"] * 2)


@both_modes
async def test_an_answer_that_arrives_late_is_waited_for_and_not_doubled(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """A slow request is not listed yet, and holds the lock. Sent again blindly it would be there twice."""
    settings = replace(RETRY, timeout=0.3)
    world = World(server, client, CONVERSATION, streamed, settings=settings)
    gate = Gate()
    server.fault(gate)
    running = asyncio.ensure_future(world.say("hi"))
    await gate.reached()
    while len(server.model_calls) < 2:  # the first timed out, and the second was refused: the lock is the first's
        await asyncio.sleep(0.01)
        assert not running.done()
    gate.release()
    await running
    assert world.last.final_output == "You said: hi"
    assert [one.error_code for one in server.model_calls[1:]] == ["conversation_locked"] * (len(server.model_calls) - 1)
    world.assert_agreement(["U(hi)", "A"])


@both_modes
async def test_an_answer_that_arrives_after_the_run_gave_up_is_found_when_it_is_resumed(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """Not listed when it was asked for, and there an hour later: that it was not taken was true only then."""
    world = World(server, client, CONVERSATION, streamed, settings=ModelSettings(timeout=0.3))
    gate = Gate()
    server.fault(gate)
    with pytest.raises(ModelTimeoutError) as caught:
        await world.say("hi")
    gate.release()
    while not server.model_calls[0].committed:
        await asyncio.sleep(0.01)
    state = await RunState.from_string(world.agent, caught.value.run_state.to_string())  # type: ignore[attr-defined]
    await world.resume(state)
    assert world.received() == ["U(hi) [conv]"]
    world.assert_agreement(["U(hi)", "A"])


@both_modes
async def test_an_answer_that_arrives_while_it_is_being_sent_again_is_found_before(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """It was looked for, and was not there; then the application's own code took its time. So it is looked for again,
    behind the place that was known before the first request, not behind the newest item there is by now."""
    world = World(server, client, CONVERSATION, streamed, settings=ModelSettings(timeout=0.3))
    gate = Gate()
    server.fault(gate)
    with pytest.raises(ModelTimeoutError) as caught:
        await world.say("hi")

    class Slow(RunHooks[Any]):
        async def on_llm_start(self, *_: Any) -> None:
            gate.release()
            while not server.model_calls[0].committed:
                await asyncio.sleep(0.01)

    await world.resume(caught.value.run_state, hooks=Slow())  # type: ignore[attr-defined]
    assert world.received() == ["U(hi) [conv]"]
    world.assert_agreement(["U(hi)", "A"])


@both_modes
async def test_a_timeout_of_a_request_that_was_taken_is_settled(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, CONVERSATION, streamed, settings=ModelSettings(timeout=0.3))
    gate = Gate(before_commit=False)
    server.fault(gate)
    await world.say("hi")
    gate.release()
    assert world.last.final_output == "You said: hi"
    world.assert_agreement(["U(hi)", "A"])


@both_modes
async def test_a_lock_that_stays_may_be_our_own_and_resuming_finds_out(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("standfast._src.models.retry.LOCKED_RETRIES_MAX", 1)
    world = World(server, client, CONVERSATION, streamed, settings=replace(RETRY, timeout=0.3))
    gate = Gate()
    server.fault(gate)
    with pytest.raises(SendOutcomeUnknownError, match="operating on this conversation") as caught:
        await world.say("hi")
    gate.release()
    while not server.model_calls[0].committed:
        await asyncio.sleep(0.01)
    sends = len(server.model_calls)
    await world.resume(caught.value.run_state)  # type: ignore[attr-defined]
    assert len(server.model_calls) == sends
    world.assert_agreement(["U(hi)", "A"])


@pytest.mark.clause("D5", backend="runs")
@both_modes
async def test_a_locked_conversation_is_waited_for_without_a_policy(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
):
    """(a): it was refused, so it was not taken. Another's lock is not asked about: their "hi" is not ours."""
    monkeypatch.setattr("standfast._src.runs.steps.send_request.asyncio.sleep", _no_time)
    world = World(server, client, CONVERSATION, streamed, settings=NO_RETRY)
    server.fault(conversation_locked(), times=3)
    await world.say("hi")
    assert world.received() == ["U(hi) [conv]"] * 4
    world.assert_agreement(["U(hi)", "A"])
    assert len([one for one in server.requests if one.method == "GET"]) == 1  # the mark, and no other listing


async def _no_time(_seconds: float) -> None:
    return None


@both_modes
async def test_a_conversation_that_cannot_be_asked_ends_unknown_and_is_settled_later(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """The error says what is unknown and how to go on; the state it carries asks first, also as text elsewhere."""
    world = World(server, client, CONVERSATION, streamed, settings=NO_RETRY)
    server.fault(Drop(committed=True))
    server.fault(Status(500), on="/items", skip=1)  # the first listing is the mark
    with pytest.raises(SendOutcomeUnknownError, match="not known") as caught:
        await world.say("hi")
    assert str(world.conversation) in str(caught.value)
    assert "run_state" in caught.value.remedy
    assert isinstance(caught.value.__cause__, APIConnectionError)
    state = await RunState.from_string(world.agent, caught.value.run_state.to_string())  # type: ignore[attr-defined]
    await world.resume(state)
    assert world.received() == ["U(hi) [conv]"]
    world.assert_agreement(["U(hi)", "A"])


@both_modes
@pytest.mark.parametrize("fault", [Drop(committed=True), Drop(committed=False)], ids=str)
async def test_an_unknown_outcome_stays_unknown_until_the_server_can_be_asked(
    fault: Any, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, CONVERSATION, streamed, settings=RETRY)
    server.fault(fault)
    server.fault(Status(500), on="/items", skip=1, times=2)
    with pytest.raises(SendOutcomeUnknownError) as caught:
        await world.say("hi")
    with pytest.raises(SendOutcomeUnknownError) as again:
        await world.resume(caught.value.run_state)  # type: ignore[attr-defined]
    assert len(server.model_calls) == 1
    await world.resume(again.value.run_state)  # type: ignore[attr-defined]
    world.assert_agreement(["U(hi)", "A"])


@both_modes
async def test_where_nobody_can_tell_an_approved_replay_may_double_a_turn_and_that_was_the_decision(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """(c): the last resort, after the server was asked in vain. The run goes on from the answer it got."""
    world = World(server, client, CONVERSATION, streamed, settings=APPROVE)
    server.fault(Drop(committed=True))
    server.fault(Status(500), on="/items", skip=1)
    await world.say("hi")
    assert world.received() == ["U(hi) [conv]"] * 2
    world.assert_agreement(["U(hi)", "A"] * 2)


async def test_what_is_in_the_conversation_without_a_whole_reply_is_said_so(
    server: LoopbackServer, client: AsyncOpenAI
):
    """Taken for certain, so that not even an approved replay sends it again."""
    world = World(server, client, CONVERSATION, streamed=False, settings=APPROVE)
    server.fault(Incomplete())
    with pytest.raises(StandfastError, match="incomplete") as caught:
        await world.say("hi")
    assert any("has taken the request" in note for note in caught.value.__notes__)
    with pytest.raises(SendOutcomeUnknownError, match="no whole reply") as again:
        await world.resume(caught.value.run_state)  # type: ignore[union-attr]
    for said in (caught.value, again.value):
        assert not any("not known" in note for note in getattr(said, "__notes__", ()))
    assert len(server.model_calls) == 1


async def test_a_state_whose_request_names_items_that_are_not_there_is_refused(
    server: LoopbackServer, client: AsyncOpenAI
):
    """Nothing is asked or sent for it."""
    world = World(server, client, CONVERSATION, streamed=False, settings=NO_RETRY)
    server.fault(Drop(committed=True))
    server.fault(Status(500), on="/items", skip=1)
    with pytest.raises(SendOutcomeUnknownError) as caught:
        await world.say("hi")
    payload = json.loads(caught.value.run_state.to_string())  # type: ignore[attr-defined]
    found = [one for one in _inside(payload) if isinstance(one, dict) and one.get("sent") == [0]]
    assert len(found) == 1
    found[0]["sent"] = [7]
    with pytest.raises(RunStateError, match="outside the ledger"):
        await RunState.from_json(world.agent, payload)


def _inside(value: Any) -> list[Any]:
    """A value of JSON and everything in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(found for one in inner for found in _inside(one))]


async def test_a_mark_that_could_not_be_fetched_costs_certainty_and_not_the_run(
    server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, CONVERSATION, streamed=False)
    server.rule = Script([*TOOL_TURN])
    server.fault(Status(500), on="/items")
    await world.say("hi")
    world.assert_agreement(whole("tool turn"))
    server.rule = Script(["again"])
    server.fault(Status(500), on="/items")
    server.fault(Drop(committed=True))
    with pytest.raises(SendOutcomeUnknownError):
        await world.say("hi")


async def test_a_nested_run_does_not_move_the_mark(server: LoopbackServer, client: AsyncOpenAI):
    """The last reply of all was the inner agent's, in no conversation at all."""
    world = World(server, client, CONVERSATION, streamed=False)
    world.agent.tools = [world.other.as_tool("ask_other", "Ask the other.")]
    server.rule = Script([call("ask_other", {"input": "?"}, call_id="c1"), "inner", "ok"])
    server.fault(Drop(committed=True), skip=2)
    await world.say("hi")
    assert world.last.final_output == "ok"
    assert len(server.model_calls) == 3
    world.assert_agreement(["U(hi)", "C1", "O1", "A"])


# --- a chain: nothing can be listed behind a response ----------------------------------------------------------------

chains = pytest.mark.parametrize("strategy", CHAINS)


def stateful_turn(strategy: str) -> int:
    """The first request that continues something: an automatic chain begins with one that does not."""
    return 1 if strategy not in (GIVEN, f"{GIVEN} + auto") else 0


@both_modes
@chains
@pytest.mark.parametrize(
    "fault", [Drop(True), Drop(False), Status(502, committed=True), Status(502), Cut(after_bytes=30)], ids=str
)
@pytest.mark.parametrize("policy", ["no policy", "retry"])
async def test_a_chains_lost_answer_is_said_to_be_unknown(
    policy: str, fault: Any, strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed, settings=POLICIES[policy])
    await world.begin()
    turn = stateful_turn(strategy)
    server.rule = Script(TOOL_TURN)
    server.fault(fault, skip=turn)
    with pytest.raises(SendOutcomeUnknownError, match="approve_unsafe_replay") as caught:
        await world.say("hi")
    sent = expected(strategy, "tool turn")[: turn + 1]
    assert world.received() == sent
    with pytest.raises(SendOutcomeUnknownError):  # asked again, it cannot be known any better
        await world.resume(caught.value.run_state)  # type: ignore[attr-defined]
    assert world.received() == sent


@both_modes
@chains
@pytest.mark.parametrize("fault", [Drop(True), Drop(False), Status(502, committed=True)], ids=str)
async def test_an_approved_replay_of_a_chain_goes_on_from_its_own_branch(
    fault: Any, strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """(c): the policy takes the risk. Behind a response both branches stand; the run's own has each turn once."""
    world = World(server, client, strategy, streamed, settings=APPROVE)
    await world.begin()
    turn = stateful_turn(strategy)
    taken = getattr(fault, "committed", False)
    server.rule = Script([*TOOL_TURN[:turn], *([TOOL_TURN[turn]] if taken else []), *TOOL_TURN[turn:]])
    server.fault(fault, skip=turn)
    await world.say("hi")
    assert len(world.received()) == 3
    world.assert_agreement(whole("tool turn"))


@both_modes
@chains
async def test_a_chain_that_ended_unknown_is_resumed_with_approval(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """The way on that the error names is one that works."""
    world = World(server, client, strategy, streamed, settings=NO_RETRY)
    await world.begin()
    turn = stateful_turn(strategy)
    server.rule = Script([*TOOL_TURN[: turn + 1], *TOOL_TURN[turn:]])
    server.fault(Drop(committed=True), skip=turn)
    with pytest.raises(SendOutcomeUnknownError) as caught:
        await world.say("hi")
    state = await RunState.from_string(world.agent, caught.value.run_state.to_string())  # type: ignore[attr-defined]
    world.agent.model_settings = APPROVE
    await world.resume(state)
    assert world.last.final_output == "ok"
    world.assert_agreement(whole("tool turn"))


@chains
@policies
@pytest.mark.parametrize("fault", [Cut(after_events=1), Cut(after_events=5), Cut(after_events=3, clean=True)], ids=str)
async def test_a_chains_answer_that_was_seen_to_begin_is_retrieved(
    fault: Any, policy: str, strategy: str, server: LoopbackServer, client: AsyncOpenAI
):
    """A stream names its response first: by that name the rest of it can be asked for."""
    world = World(server, client, strategy, streamed=True, settings=POLICIES[policy])
    await world.begin()
    server.rule = Script(TOOL_TURN)
    server.fault(fault, skip=stateful_turn(strategy))
    await world.say("hi")
    assert world.received() == expected(strategy, "tool turn")
    world.assert_agreement(whole("tool turn"))


@chains
async def test_a_stream_that_began_and_came_to_nothing_may_be_asked_for_again(
    strategy: str, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed=True, settings=RETRY)
    await world.begin()
    turn = stateful_turn(strategy)
    server.rule = Script([*TOOL_TURN[: turn + 1], *TOOL_TURN[turn:]])
    server.fault(Cut(after_events=2, committed=False), skip=turn)
    await world.say("hi")
    sent = expected(strategy, "tool turn")
    assert [line.split(" [")[0] for line in world.received()] == [
        line.split(" [")[0] for line in [*sent[: turn + 1], *sent[turn:]]
    ]
    world.assert_agreement(whole("tool turn"))


async def test_the_name_of_a_cut_answer_is_not_taken_for_that_of_the_next(server: LoopbackServer, client: AsyncOpenAI):
    """The first attempt came to nothing, which is known by its name; of the second nothing is known."""
    world = World(server, client, GIVEN, streamed=True, settings=RETRY)
    await world.begin()
    server.fault(Cut(after_events=2, committed=False))
    server.fault(Drop(committed=True))
    with pytest.raises(SendOutcomeUnknownError):
        await world.say("hi")
    assert len(world.received()) == 2


@chains
async def test_the_name_of_a_cut_answer_is_kept_with_the_run(
    strategy: str, server: LoopbackServer, client: AsyncOpenAI
):
    """Neither now nor by another process would there be another way to ask for it."""
    world = World(server, client, strategy, streamed=True, settings=NO_RETRY)
    await world.begin()
    server.rule = Script(TOOL_TURN)
    server.fault(Cut(after_events=3), skip=stateful_turn(strategy))
    server.fault(Status(500), on=lambda one: one.method == "GET" and "/responses/" in one.path)
    with pytest.raises(SendOutcomeUnknownError) as caught:
        await world.say("hi")
    state = await RunState.from_string(world.agent, caught.value.run_state.to_string())  # type: ignore[attr-defined]
    await world.resume(state)
    assert world.received() == expected(strategy, "tool turn")
    world.assert_agreement(whole("tool turn"))


@both_modes
@pytest.mark.parametrize("fault", [Drop(True), Status(502, committed=True), Cut(after_bytes=30)], ids=str)
async def test_the_first_request_of_an_automatic_chain_adds_to_nothing_and_may_be_repeated(
    fault: Any, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "auto_previous_response_id", streamed, settings=RETRY)
    server.rule = Script([TOOL_TURN[0], *TOOL_TURN])
    server.fault(fault)
    await world.say("hi")
    assert [line.split(" [")[0] for line in world.received()] == ["U(hi)", "U(hi)", "O1"]
    world.assert_agreement(whole("tool turn"))


# --- a stop in the middle of a request -------------------------------------------------------------------------------


async def test_a_run_that_was_cancelled_in_the_middle_of_a_request_settles_it_first(
    server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, CONVERSATION, streamed=False)
    server.rule = Script(TOOL_TURN)
    gate = Gate(before_commit=False)
    server.fault(gate, skip=1)
    result = Runner.run_streamed(world.agent, "hi", conversation_id=world.conversation)
    watching = asyncio.ensure_future(watched(result))
    await gate.reached()
    result.cancel()
    await watching
    gate.release()
    await world.resume(result.to_state())
    assert world.received() == expected(CONVERSATION, "tool turn")
    world.assert_agreement(whole("tool turn"))


async def watched(result: Any) -> None:
    async for _ in result.stream_events():
        pass
