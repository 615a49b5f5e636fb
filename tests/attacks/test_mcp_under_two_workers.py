"""MCP servers that die inside a call while two workers want one session (C8, C12, C13, C15).

Each worker is a process with a server of its own. What the server did outside stands in its notes, with the key of the
call; whatever became of server and worker, it did it once, and the next model is told of it or that it is not known.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import asked_next, outputs, says_unknown
from helpers.processes import Child, Line, wait_until
from tools.mcp.helpers import bare, calls, lines

from standfast import Agent, RunConfig, Runner
from standfast.testing import ScriptedModel, final
from tests.helpers.stores import SHARED, looked_at, opened, place

LEASE: dict[str, Any] = {"lease_ttl_s": 3.0, "lease_wait_s": 60.0}


async def serve(line: Line, *, where: str, notes: str, who: str, tool: str, resumes: str | None = None) -> Any:
    """One message, or a run of another worker to go on with, by an agent whose tools an MCP server has."""
    async with bare("fine", Path(notes)) as server:
        replies = [final(f"{who} is done")] if resumes else [calls(tool, f"{who}-1"), final(f"{who} is done")]
        agent = Agent(name="clerk", model=ScriptedModel(replies), mcp_servers=[server])
        await server.list_tools()
        line.say("ready")
        await line.told()
        session = opened(where)
        if resumes is not None:
            result = await Runner.resume(agent, resumes, session=session, run_config=RunConfig(**LEASE))
        else:
            config = RunConfig(run_id=who, **LEASE)
            result = await Runner.run(agent, f"{who} asks", session=session, run_config=config)
        return result.final_output


def servers_of(process_id: int) -> list[int]:
    """The servers that a worker has started, without those that watch over them: processes that started none."""
    threads = Path(f"/proc/{process_id}/task").iterdir()  # a process belongs to the thread that has started it
    started = [int(one) for thread in threads for one in (thread / "children").read_text().split()]
    return [server for one in started for server in (servers_of(one) or [one])]


@contextmanager
def at_work(where: str, notes: Path, who: str, tool: str, **told: Any) -> Iterator[Child]:
    """A worker that has been told to go, and its server, both of which end with this."""
    with Child(serve, where=where, notes=str(notes), who=who, tool=tool, **told) as child:
        child.hear_until("ready")
        servers = servers_of(child.pid)
        assert servers, "nothing to kill"
        try:
            child.say("go")
            yield child
        finally:
            for one in servers:  # one that hangs does not notice that its worker is gone
                with suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)


def told(where: str) -> dict[str, list[Any]]:
    """What the next model is told of each call."""

    async def ask() -> list[Any]:
        session = looked_at(where)
        try:
            return await asked_next(session, **LEASE)
        finally:
            await session.close()

    seen = asyncio.run(ask())
    calls_seen = Counter(item["call_id"] for item in seen if item.get("type") == "function_call")
    assert set(calls_seen.values()) == {1}, f"a call is there more than once: {calls_seen}"
    found = outputs(seen)
    assert set(found) == set(calls_seen), f"a call without its output: {calls_seen} and {found}"
    return found


def effects(notes: Path) -> list[str]:
    """What the servers did; a call that was done twice has its key there twice."""
    found = lines(notes)
    assert len(found) == len(set(found)), f"done twice: {found}"
    return [line.split()[0] for line in found]


@pytest.mark.parametrize("kind", SHARED)
def test_a_server_that_dies_in_a_call_does_not_hide_it_from_the_worker_that_waits(kind: str, tmp_path: Path) -> None:
    where, notes = place(kind, tmp_path), tmp_path / "notes"
    with at_work(where, notes, "first", "die") as first, at_work(where, notes, "second", "look") as second:
        assert [first.result(), second.result()] == [("ok", "first is done"), ("ok", "second is done")]
    found = told(where)
    assert "seen by" in str(found["second-1"])
    assert "seen by" not in str(found["first-1"])
    assert sorted(effects(notes)) == ["die", "look"]


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("goes_on", ["a message", "the run"])
def test_a_worker_killed_while_its_server_works_is_told_as_unknown_by_the_other(
    kind: str, goes_on: str, tmp_path: Path
) -> None:
    where, notes = place(kind, tmp_path), tmp_path / "notes"
    with at_work(where, notes, "first", "hang") as first:
        wait_until(lambda: lines(notes))
        first.kill()
        more = {"resumes": "first"} if goes_on == "the run" else {}
        with at_work(where, notes, "second", "look", **more) as second:
            assert second.result() == ("ok", "second is done")
        found = told(where)
    assert all(map(says_unknown, found["first-1"]))
    assert effects(notes) == ["hang", "look"][: 1 if goes_on == "the run" else 2]


def test_a_server_killed_from_outside_in_the_call_of_one_worker_leaves_the_other_alone(tmp_path: Path) -> None:
    where, notes = place("sqlite", tmp_path), tmp_path / "notes"
    with at_work(where, notes, "first", "hang") as first:
        wait_until(lambda: lines(notes))
        with at_work(where, notes, "second", "look") as second:
            for one in servers_of(first.pid):
                os.kill(one, signal.SIGKILL)
            assert [first.result(), second.result()] == [("ok", "first is done"), ("ok", "second is done")]
    found = told(where)
    assert "seen by" not in str(found["first-1"])
    assert "seen by" in str(found["second-1"])
    assert effects(notes) == ["hang", "look"]  # not repeated, though nobody knows what came of it


def test_both_die_a_worker_and_its_server_at_one_moment(tmp_path: Path) -> None:
    where, notes = place("sqlite", tmp_path), tmp_path / "notes"
    with at_work(where, notes, "first", "hang") as first, at_work(where, notes, "second", "hang") as second:
        wait_until(lambda: lines(notes))  # one of them has the session, and waits for its server
        for child in (first, second):
            for one in [*servers_of(child.pid), child.pid]:
                os.kill(one, signal.SIGKILL)
        assert [first.result()[0], second.result()[0]] == ["died", "died"]
    found = told(where)
    assert len(effects(notes)) == len(found) == 1
    assert all(map(says_unknown, next(iter(found.values()))))
