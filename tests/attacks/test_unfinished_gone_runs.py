"""A run whose worker is gone is settled by the next one (C15): killed at every place, then a message.

The settler has none of the dead run's code: its agent has no tools. What had begun is said to be unknown, what had
not is said not to have run, and a run that had done nothing is left alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import lines, short, wrongs
from helpers.processes import Child
from helpers.starters import start
from helpers.workers import PLACES, calm_history, payer, work

from standfast import Agent, OpenAIResponsesModel, RunConfig, Runner, SQLiteSession, StandfastError
from standfast.testing import ModelStep, ScriptedModel, final, function_call
from standfast.testing.loopback import Asked, LoopbackServer, call

TURN_1 = calm_history("job")[:5]
TURN_2 = calm_history("job")[5:7]
IN_DOUBT = {
    # While one call stands still, what the other has done meanwhile is not fixed; these are the places where it is.
    "call 3 began": [*TURN_1, "C(job-3)", "O(job-3: unknown)"],
    "call 3 paid": [*TURN_1, "C(job-3)", "O(job-3: unknown)"],
    "in request 2": TURN_1,
    "in request 3": [*TURN_1, *TURN_2],
}
NOTHING_DONE = ("agent start", "before request 1", "in request 1", "after request 1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.db"


@pytest.fixture
def session(path: Path) -> Iterator[SQLiteSession]:
    made = SQLiteSession("s", path)
    yield made
    made.close()


def kill(path: Path, at: str, **tool: Any) -> None:
    """A worker that is killed at this place of its run "job"."""
    # Where a dead process is not seen it is known by its lease: a short one, so that no test waits for the default.
    with Child(work, path=str(path), who="job", at=at, tool=tool, config={"lease_ttl_s": 2.0}) as child:
        child.hear_until("here")
        child.kill()


async def say(session: Any, words: str = "hello", **config: Any) -> tuple[Any, list[str]]:
    """A message by an agent without tools: its result, and what its model saw."""
    model = ScriptedModel([final(f"re {words}")])
    agent: Agent[Any] = Agent(name="Other", model=model)
    result = await Runner.run(agent, words, session=session, run_config=RunConfig(**config))
    assert model.first_call is not None
    seen: Any = model.first_call.input
    assert wrongs(lines(f"{session.db_path}.book"), seen) == []
    return result, short(seen)


@pytest.mark.parametrize("at", PLACES)
async def test_the_next_message_sees_what_a_killed_run_did(at: str, path: Path, session: SQLiteSession) -> None:
    """C15, C8: each turn whole, once, before the new message; and the session is not held by the dead."""
    kill(path, at)
    result, seen = await say(session, run_id="settler")
    if at in IN_DOUBT:
        assert seen == [*IN_DOUBT[at], "U(hello)"]
    assert short(await session.get_items()) == [*seen, "A(re hello)"]
    if at == "before call 1":
        return  # whether the other call of that turn had begun by then is not fixed
    if at in NOTHING_DONE:
        assert seen == ["U(hello)"]
        assert result.unfinished == ()
        return
    (found,) = result.unfinished
    assert found.run_id == "job"
    with pytest.raises(StandfastError, match="settler"):
        await Runner.resume(Agent(name="A"), "job", session=session)


async def test_running_again_under_the_id_of_a_settled_run_says_who_settled_it(
    path: Path, session: SQLiteSession
) -> None:
    """C15: resuming it, or running again under its id, says so; nothing runs."""
    kill(path, "call 1 paid")
    await say(session, run_id="settler")
    before = lines(f"{path}.book")
    agent = payer(f"{path}.book", "job")
    with pytest.raises(StandfastError, match="settler"):
        await Runner.run(agent, "pay, says job", session=session, run_config=RunConfig(run_id="job"))
    assert lines(f"{path}.book") == before


@pytest.mark.parametrize("at", ["in request 1", "call 3 paid"])
async def test_with_refuse_the_message_names_the_gone_run_and_nothing_runs(
    at: str, path: Path, session: SQLiteSession
) -> None:
    """C15: a run that has done nothing refuses nobody."""
    kill(path, at)
    before = short(await session.get_items())
    if at == "in request 1":
        await say(session, unfinished="refuse")
        return
    with pytest.raises(StandfastError, match="job"):
        await say(session, unfinished="refuse")
    assert short(await session.get_items()) == before


async def test_with_ignore_the_gone_run_is_left_and_can_be_resumed(path: Path, session: SQLiteSession) -> None:
    """C15, C12: nobody settled it, so a resume settles its begun call and goes on."""
    kill(path, "call 3 paid")
    agent: Agent[Any] = Agent(name="Other", model=ScriptedModel([final("re hello")]))
    await Runner.run(agent, "hello", session=session, run_config=RunConfig(unfinished="ignore"))
    assert short(await session.get_items()) == [*TURN_1, "U(hello)", "A(re hello)"]
    again = payer(f"{path}.book", "job")
    again.model = ScriptedModel([final("resumed")])
    await Runner.resume(again, "job", session=session)
    history = short(await session.get_items())
    assert history == [*TURN_1, "U(hello)", "A(re hello)", "C(job-3)", "O(job-3: unknown)", "A(resumed)"]
    assert lines(f"{path}.book").count("job-3") == 1


async def test_a_begun_call_whose_tool_says_ask_waits_for_a_person(path: Path, session: SQLiteSession) -> None:
    """C15: the record keeps the setting; the settler shows the call as waiting, and a person decides it later."""
    kill(path, "call 3 paid", on_unknown="ask")
    model = ScriptedModel([final("re hello")])
    result = await Runner.run(Agent(name="Other", model=model), "hello", session=session)
    assert model.first_call is not None
    seen: Any = model.first_call.input
    assert short(seen)[:5] == TURN_1
    assert [line[:7] for line in short(seen)[5:]] == ["C(job-3", "O(job-3", "U(hello"]
    assert short(await session.get_items()) == [*TURN_1, "U(hello)", "A(re hello)"]
    assert [run.run_id for run in result.unfinished] == ["job"]
    runs, _ = await Runner.list_runs(session=session, status="paused")
    assert [run.run_id for run in runs] == ["job"]


async def test_a_failed_request_does_not_brick_the_session(path: Path, session: SQLiteSession) -> None:
    """C15, C3: the provider failed after a turn was stored; the next message simply goes on behind it."""
    agent = payer(f"{path}.book", "job")
    agent.model = ScriptedModel([first_reply("job"), ModelStep(error=OSError("down"))])
    with pytest.raises(OSError, match="down"):
        await Runner.run(agent, "pay, says job", session=session, run_config=RunConfig(run_id="job"))
    result, seen = await say(session)
    assert seen == [*TURN_1, "U(hello)"]
    assert [run.run_id for run in result.unfinished] == ["job"]
    _, seen = await say(session, "again")
    assert seen == [*TURN_1, "U(hello)", "A(re hello)", "U(again)"]


def first_reply(who: str) -> list[Any]:
    return [function_call("pay", {}, call_id=f"{who}-1"), function_call("pay", {}, call_id=f"{who}-2")]


async def test_with_allow_a_running_run_is_left_alone_and_reported(path: Path, session: SQLiteSession) -> None:
    """C15: without a lease nothing is provable; the run goes on and ends as if nobody had been there."""
    with Child(work, path=str(path), who="job", at="call 3 paid", config={"concurrency": "allow"}) as child:
        await asyncio.to_thread(child.hear_until, "here")
        model = ScriptedModel([final("re hello")])
        agent: Agent[Any] = Agent(name="Other", model=model)
        result = await Runner.run(agent, "hello", session=session, run_config=RunConfig(concurrency="allow"))
        assert [run.run_id for run in result.unfinished] == ["job"]
        child.say("go on")
        assert await asyncio.to_thread(child.result) == ("ok", "job is done")
    assert sorted(short(await session.get_items())) == sorted([*calm_history("job"), "U(hello)", "A(re hello)"])


async def test_a_record_that_cannot_be_read_is_refused_by_name(path: Path, session: SQLiteSession) -> None:
    """C15: a saved run of a newer release is not stepped over, and not guessed at."""
    await session.get_items()
    store = session.run_store()
    await store.save_run(
        "strange", expect=0, head=b'{"version": 99999}', tails={}, status="running", agent="A", session_id="s"
    )
    with pytest.raises(StandfastError, match="strange"):
        await say(session)


def rule(asked: Asked) -> Any:
    if asked.last_text == "hello":
        return "re hello"
    return "done" if asked.outputs else call("pay", {"cents": 5}, call_id="c1")


@pytest.mark.parametrize("policy", ["settle", "refuse"])
async def test_on_a_servers_conversation_what_a_gone_run_owes_goes_first(
    policy: str, path: Path, session: SQLiteSession
) -> None:
    """C15: its call had begun, so its output is unknown; the server gets it before the new message, once."""
    with LoopbackServer(rule) as server:
        conversation = server.new_conversation()
        told = {"path": str(path), "owner": "conversation_id", "base_url": server.base_url, "owner_id": conversation}
        with Child(start, stands=True, **told) as worker:
            await asyncio.to_thread(worker.hear_until, "ready")
            worker.say("go")
            await asyncio.to_thread(worker.hear_until, "here")
            worker.kill()
        async with server.client(max_retries=0) as client:
            agent: Agent[Any] = Agent(name="Other", model=OpenAIResponsesModel("m", client))
            more = {} if policy == "settle" else {"unfinished": policy}
            config = RunConfig(run_store=session.run_store(), lease_wait_s=100.0, **more)

            async def message() -> Any:
                return await Runner.run(agent, "hello", conversation_id=conversation, run_config=config)

            if policy == "refuse":
                with pytest.raises(StandfastError, match="job"):
                    await message()
                assert short(server.history(conversation)) == ["U(pay 5)", "C(c1)"]
                return
            result = await message()
        assert [run.run_id for run in result.unfinished] == ["job"]
        assert short(server.model_calls[-1].input) == ["O(c1: unknown)", "U(hello)"]
        history = ["U(pay 5)", "C(c1)", "O(c1: unknown)", "U(hello)", "A(re hello)"]
        assert short(server.history(conversation)) == history
    assert lines(f"{path}.book") == ["c1"]
