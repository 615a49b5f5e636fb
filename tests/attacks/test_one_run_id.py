"""One run id, two starts (C16, attacks 01 and 01b): one owner, and the other is told before anything of it runs.

A webhook is delivered twice, and two workers start the job under one id at one time, with every owner of the
conversation. One of them finishes it. The other gets `RunClaimedError`, or waits for the session and gets the result.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import lines, short
from helpers.processes import Child
from helpers.starters import JOB, paying_agent, resume, start

from standfast import InMemorySession, RunClaimedError, RunConfig, Runner, SQLiteSession
from standfast.testing import ScriptedModel, final, function_call
from standfast.testing.loopback import Asked, Gate, LoopbackServer, call

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
OWNERS = ("nobody", "session wait", "session reject", "session allow", "conversation_id", "a chain")
MAY_BE = {"session reject": {"SessionBusyError"}, "session wait": {"ok"}}
"""What the other may get beside `RunClaimedError`, while the first is at it."""
TOO_LATE = {"ok", "RunStateError", "SessionBusyError"}
"""What it may get beside that if it came when the first had finished: the result, or that it has ended."""
HISTORY = ["U(pay 5)", "C(c1)", "O(c1: done)", "A(done)"]


def rule(asked: Asked) -> Any:
    return "done" if asked.outputs else call("pay", {"cents": 5}, call_id="c1")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(rule) as running:
        yield running


def told_of(server: LoopbackServer, owner: str, path: Path) -> dict[str, Any]:
    told: dict[str, Any] = {"path": str(path), "owner": owner}
    if owner in ("conversation_id", "a chain"):
        told |= {"base_url": server.base_url, "owner_id": server.new_conversation()}
    return told


def check(
    path: Path, server: LoopbackServer, told: dict[str, Any], results: list[tuple[str, str]], may_be: set[str]
) -> None:
    """One effect, one owner, one history; of the others, each is told."""
    owner = told["owner"]
    assert lines(f"{path}.book") == ["c1"], f"{owner}: {results}"
    names = sorted(name for name, _ in results)
    assert "ok" in names, f"{owner}: nobody finished the job: {results}"
    others = [name for name, _ in results]
    others.remove("ok")
    assert set(others) <= {"RunClaimedError"} | may_be, f"{owner}: {results}"
    assert {text for name, text in results if name == "ok"} == {"done"}
    if owner.startswith("session"):
        assert short(_items(path)) == HISTORY
    if owner == "conversation_id":
        assert short(server.history(told["owner_id"])) == HISTORY
    if "base_url" in told:
        assert [short(request.input) for request in server.model_calls] == [["U(pay 5)"], ["O(c1: done)"]]


def _items(path: Path) -> list[Any]:
    session = SQLiteSession("s", path)
    try:
        return asyncio.run(session.get_items())
    finally:
        session.close()


@pytest.mark.parametrize("number", range(2 * ROUNDS))
@pytest.mark.parametrize("owner", OWNERS)
def test_two_processes_that_start_one_job_at_once_have_one_owner(
    owner: str, number: int, server: LoopbackServer, tmp_path: Path
) -> None:
    """C16: whoever is first; nothing depends on which."""
    path = tmp_path / "a.db"
    told = told_of(server, owner, path)
    with ExitStack() as stack:
        children = [stack.enter_context(Child(start, **told)) for _ in range(2)]
        for child in children:
            child.hear_until("ready")
        for child in children:
            child.say("go")
        results = [child.result() for child in children]
    check(path, server, told, results, TOO_LATE)


@pytest.mark.parametrize("owner", OWNERS)
def test_a_second_start_while_the_first_runs_its_tool_is_told_so(
    owner: str, server: LoopbackServer, tmp_path: Path
) -> None:
    """C16: told before anything of it runs; where it waits for the session, it gets the finished run's result."""
    path = tmp_path / "a.db"
    told = told_of(server, owner, path)
    with Child(start, stands=True, **told) as first, Child(start, **told) as second:
        first.hear_until("ready")
        second.hear_until("ready")
        first.say("go")
        first.hear_until("here")
        second.say("go")
        if owner == "session wait":
            first.say("go on")
            results = [first.result(), second.result()]
        else:
            told_second = second.result()
            first.say("go on")
            results = [first.result(), told_second]
    assert results[0] == ("ok", "done")
    check(path, server, told, results, MAY_BE.get(owner, set()))


@pytest.mark.parametrize("policy", ["wait", "allow"])
async def test_two_tasks_that_start_one_job_on_a_session_in_memory_have_one_owner(policy: Any, tmp_path: Path) -> None:
    """C16 inside one process."""
    session = InMemorySession("s")

    async def job() -> str:
        model = ScriptedModel([[function_call("pay", {"cents": 5}, call_id="c1")], final("done")])
        agent = paying_agent(str(tmp_path / "book"), model, None, stands=False)
        config = RunConfig(run_id=JOB, concurrency=policy)
        return str((await Runner.run(agent, "pay 5", session=session, run_config=config)).final_output)

    results = await asyncio.gather(job(), job(), return_exceptions=True)
    assert lines(tmp_path / "book") == ["c1"]
    assert "done" in results
    assert all(result == "done" or isinstance(result, RunClaimedError) for result in results)
    assert short(await session.get_items()) == HISTORY


@pytest.mark.parametrize("ends", ["killed", "cancelled"])
async def test_a_request_that_a_slow_server_still_works_on_is_not_sent_again(
    ends: str, server: LoopbackServer, tmp_path: Path
) -> None:
    """D5, attack 15: that it is not in the listing yet is no evidence that it was not taken."""
    path, gate = tmp_path / "a.db", Gate(before_commit=True)
    told = told_of(server, "conversation_id", path)
    server.fault(gate)
    with Child(start, **told) as worker:
        await asyncio.to_thread(worker.hear_until, "ready")
        worker.say("go")
        await gate.reached()
        worker.kill()
    with Child(resume, path=str(path), base_url=server.base_url) as other:
        if ends == "cancelled":  # the one that resumes is gone as well before the server has answered
            await asyncio.sleep(0)
            other.kill()
        else:
            name, text = await asyncio.to_thread(other.result)
            assert name in ("SendOutcomeUnknownError", "OutcomeUnknownError"), (name, text)
        gate.release()
    # The server commits it whether or not anybody listens; from then on the answer is there to be found.
    await _committed(server, told["owner_id"])
    with Child(resume, path=str(path), base_url=server.base_url) as third:
        assert await asyncio.to_thread(third.result) == ("ok", "done")
    users = [item for item in short(server.history(told["owner_id"])) if item.startswith("U(")]
    assert users == ["U(pay 5)"], "the input was sent again while the server still worked on it"
    assert lines(f"{path}.book") == ["c1"]


async def _committed(server: LoopbackServer, conversation: str) -> None:
    async with asyncio.timeout(60):
        while not server.history(conversation):
            await asyncio.sleep(0.01)
