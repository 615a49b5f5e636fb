"""A run that waits for a person is never silently stepped over (C15): paused, then three messages, then decided.

For each owner and each policy: every request that the model saw, the history, and what the tools did, compared with
the table of the contract. The program that this prevents: the model does not see that a payment waits, asks for it
again, both are approved, and it is paid twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import short
from helpers.waiting_conversation import JOB, OPEN, PAID, WAITING, ServerTalk, SessionTalk

from standfast import Agent, RunConfig, Runner, SessionSettings, StandfastError
from standfast.testing import ScriptedModel, final, function_call
from standfast.testing.loopback import LoopbackServer

MESSAGES = ("m1", "m2", "m3")
DECISIONS = ("approved", "rejected", "cancelled", "deleted", "cleared")
DEFAULT = "default"
"""No setting at all: what everybody gets."""

both_sessions = pytest.mark.parametrize("backend", ["memory", "sqlite"])


@pytest.fixture
async def talk(backend: str, tmp_path: Path) -> AsyncIterator[SessionTalk]:
    made = SessionTalk(tmp_path, backend)
    yield made
    await made.close()


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[ServerTalk]:
    with LoopbackServer(ServerTalk.rule) as server:
        async with server.client(max_retries=0) as client:
            yield ServerTalk(tmp_path, server, client)


def policy_of(name: str) -> dict[str, Any]:
    return {} if name == DEFAULT else {"unfinished": name}


def said(*messages: str) -> list[str]:
    return [line for words in messages for line in (f"U({words})", f"A(re {words})")]


def check_reported(result: Any, what: str = "paused") -> None:
    """`result.unfinished`: one record, which run, what was found and what was done."""
    assert isinstance(result.unfinished, tuple)
    (record,) = result.unfinished
    assert record.run_id == JOB
    assert what in str(record.found)
    assert record.done


async def decide(talk: SessionTalk, decision: str) -> list[str]:
    """Do what a person decided; what it adds to the history."""
    match decision:
        case "approved":
            await talk.decide(approve=True)
            return [*PAID, "A(that was it)"]
        case "rejected":
            await talk.decide(approve=False)
            return [*WAITING, "A(that was it)"]
        case "cancelled":
            await talk.cancel()
            return WAITING
        case "deleted":
            with pytest.raises(StandfastError, match=JOB):
                await talk.delete()
            return []
    await talk.session.clear_session()
    return []


@both_sessions
@pytest.mark.parametrize("decision", DECISIONS)
@pytest.mark.parametrize("policy", [DEFAULT, "settle", "ignore"])
async def test_three_messages_over_a_paused_run_and_then_a_decision(
    policy: str, decision: str, backend: str, talk: SessionTalk
) -> None:
    """C15, D7: shown in every request behind the history, never stored, and appended once when it is decided."""
    await talk.pause()
    history = ["U(pay 5)"]
    assert await talk.history() == history
    shown = [] if policy == "ignore" else WAITING
    for words in MESSAGES:
        result = await talk.say(words, **policy_of(policy))
        assert talk.requests[-1] == [*history, *shown, f"U({words})"]
        history += said(words)
        assert await talk.history() == history
        assert short(result.to_input_list())[-1] == f"A(re {words})"
        assert not any("(c1" in line for line in short(result.to_input_list()))
        if policy != "ignore":
            check_reported(result)
    assert talk.effects == ["c0"]
    requests_before = len(talk.requests)
    added = await decide(talk, decision)
    if decision in ("approved", "rejected"):
        assert talk.requests[requests_before:] == [[*history, *added[:-1]]]
    else:
        assert len(talk.requests) == requests_before
    history = [] if decision == "cleared" else [*history, *added]
    assert await talk.history() == history
    assert talk.effects == (["c0", "c1"] if decision == "approved" else ["c0"])

    result = await talk.say("m4", **policy_of(policy))
    still = shown if decision == "deleted" else []
    assert talk.requests[-1] == [*history, *still, "U(m4)"]
    assert await talk.history() == [*history, *said("m4")]
    if decision != "deleted":
        assert result.unfinished == ()
    if decision == "cleared":
        with pytest.raises(StandfastError):
            await talk.decide(approve=True)
        assert talk.effects == ["c0"], "what was cleared away cannot be approved any more"


@both_sessions
@pytest.mark.parametrize("decision", DECISIONS)
async def test_with_refuse_no_message_runs_until_the_paused_run_is_decided(
    decision: str, backend: str, talk: SessionTalk
) -> None:
    """C15: the error names the run, the call and what to do; nothing runs and nothing is stored."""
    await talk.pause()
    asked = len(talk.requests)
    for words in MESSAGES:
        with pytest.raises(StandfastError, match=JOB) as refused:
            await talk.say(words, unfinished="refuse")
        assert "pay" in str(refused.value)
        assert refused.value.remedy
    assert len(talk.requests) == asked
    assert await talk.history() == ["U(pay 5)"]
    added = await decide(talk, decision)
    if decision == "deleted":
        with pytest.raises(StandfastError, match=JOB):
            await talk.say("m4", unfinished="refuse")
        return
    await talk.say("m4", unfinished="refuse")
    start = [] if decision == "cleared" else ["U(pay 5)"]
    assert await talk.history() == [*start, *added, *said("m4")]


@pytest.mark.parametrize("decision", ["approved", "rejected", "cancelled", "deleted"])
@pytest.mark.parametrize("policy", [DEFAULT, "settle", "refuse"])
async def test_on_a_servers_conversation_a_waiting_call_refuses_every_message(
    policy: str, decision: str, served: ServerTalk
) -> None:
    """C15: any text that is sent would be the call's output, so nothing is sent; decided, the talk goes on."""
    await served.pause()
    assert len(served.requests) == 1
    for words in MESSAGES:
        with pytest.raises(StandfastError, match=JOB):
            await served.say(words, **policy_of(policy))
    assert len(served.requests) == 1
    open_turn = ["C(c0)", "C(c1)"]
    assert await served.history() == ["U(pay 5)", *open_turn]
    if decision == "deleted":
        with pytest.raises(StandfastError, match=JOB):
            await served.delete()
        assert served.effects == ["c0"]
        return
    if decision == "cancelled":
        owed = await served.cancel()
        await served.say([*owed, {"role": "user", "content": "m4"}], **policy_of(policy))
        outputs = ["O(c0: done)", "O(c1: not run)"]
    else:
        await served.decide(approve=decision == "approved")
        await served.say("m4", **policy_of(policy))
        outputs = ["O(c0: done)", "O(c1: done)" if decision == "approved" else "O(c1: not run)", "A(that was it)"]
    assert await served.history() == ["U(pay 5)", *open_turn, *outputs, *said("m4")]
    assert served.effects == (["c0", "c1"] if decision == "approved" else ["c0"])


async def test_ignore_on_a_servers_conversation_leaves_the_judgement_to_the_server(served: ServerTalk) -> None:
    """C15: the server refuses a message over an unanswered call; the paused run can still be decided."""
    await served.pause()
    with pytest.raises(Exception, match=r"c0|c1|call"):
        await served.say("m1", unfinished="ignore")
    await served.decide(approve=True)
    assert served.effects == ["c0", "c1"]


async def test_a_caller_who_replays_is_not_asked_about_unfinished_runs() -> None:
    """C15: replay and chains have no conversation that a store could know; nothing is found and nothing refused."""
    agent: Agent[Any] = Agent(name="A", model=ScriptedModel([final("a")]))
    result = await Runner.run(agent, "hi", run_config=RunConfig(unfinished="refuse"))
    assert result.unfinished == ()


@both_sessions
async def test_a_limit_or_a_callback_does_not_hide_the_open_turn(backend: str, talk: SessionTalk) -> None:
    """C15: behind the history and before the new input, whatever the limit; a session callback gets it with history."""
    await talk.pause()
    await talk.say("m1", session_settings=SessionSettings(limit=0))
    assert talk.requests[-1] == [*WAITING, "U(m1)"]
    got: list[list[str]] = []

    def callback(history: list[Any], new: list[Any]) -> list[Any]:
        got.append(short(history))
        return [*history, *new]

    await talk.say("m2", session_input_callback=callback)
    assert got == [["U(pay 5)", *said("m1"), *WAITING]]
    assert talk.requests[-1] == ["U(pay 5)", *said("m1"), *WAITING, "U(m2)"]
    assert await talk.history() == ["U(pay 5)", *said("m1", "m2")]


@both_sessions
async def test_the_same_question_asked_again_names_the_one_that_waits(backend: str, talk: SessionTalk) -> None:
    """C15: a new question equal in agent, tool and arguments to one that waits names it, so that nobody pays twice."""
    await talk.pause()
    agent = talk.speaker([function_call("pay", {}, call_id="c9")])
    again = await Runner.run(agent, "did you pay?", session=talk.session)
    (question,) = again.interruptions
    told = [repr(getattr(question, name)) for name in dir(question) if not name.startswith("_")]
    assert any(JOB in value for value in told), "the question does not say that another like it waits"
    assert talk.requests[-1] == ["U(pay 5)", *WAITING, "U(did you pay?)"]
    assert talk.effects == ["c0"]


@both_sessions
async def test_two_paused_runs_are_shown_oldest_first_and_decided_in_any_order(backend: str, talk: SessionTalk) -> None:
    """C15, D7: each is appended behind what was said meanwhile, with its real output, once."""
    await talk.pause()
    agent = talk.speaker([function_call("pay", {}, call_id="c9")], final("six"))
    second = await Runner.run(agent, "and 6", session=talk.session, run_config=RunConfig(run_id="second"))
    await talk.say("m1")
    open_second = ["C(c9)", "O(c9: not run)"]
    assert talk.requests[-1] == ["U(pay 5)", "U(and 6)", *WAITING, *open_second, "U(m1)"]
    state = second.to_state()
    for item in state.get_interruptions():
        state.approve(item)
    await Runner.run(agent, state, session=talk.session)
    await talk.decide(approve=True)
    assert await talk.history() == [
        "U(pay 5)", "U(and 6)", *said("m1"), "C(c9)", "O(c9: done)", "A(six)", *OPEN, "O(c1: done)", "A(that was it)",
    ]  # fmt: skip
    assert sorted(talk.effects) == ["c0", "c1", "c9"]
