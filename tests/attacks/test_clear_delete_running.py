"""Deleting, clearing and cancelling never hide what a run under way did (C15, A12; attack 13), nor does a vanished
file (A6, A23; attack 04)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import asked_next, done, lines, short, write, wrongs
from helpers.processes import Child, Line

from standfast import (
    Agent,
    RunConfig,
    Runner,
    SQLiteSession,
    StandfastError,
    ToolContext,
    function_tool,
)
from standfast.testing import ScriptedModel, final, function_call
from tests.helpers.stores import BACKENDS, opened, place

every_session = pytest.mark.parametrize("backend", BACKENDS)


class Running:
    """A run "r" that stands in its tool, which has paid."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.book = folder / "book"
        self.session: Any = opened(place(backend, folder))
        self.paid, self.go_on = asyncio.Event(), asyncio.Event()

    def agent(self) -> Agent[Any]:
        @function_tool
        async def pay(ctx: ToolContext[Any]) -> str:
            """Pay."""
            write(self.book, ctx.tool_call_id)
            self.paid.set()
            await self.go_on.wait()
            return done(ctx.tool_call_id)

        model = ScriptedModel([[function_call("pay", {}, call_id="c1")], final("done")])
        return Agent(name="A", model=model, tools=[pay])

    async def start(self) -> asyncio.Task[Any]:
        config = RunConfig(run_id="r")
        task = asyncio.create_task(Runner.run(self.agent(), "go", session=self.session, run_config=config))
        await self.paid.wait()
        return task

    async def check(self) -> None:
        assert wrongs(lines(self.book), await asked_next(self.session)) == []


WHOLE = ["U(go)", "C(c1)", "O(c1: done)", "A(done)"]


@every_session
async def test_a_run_under_way_cannot_be_deleted(backend: str, tmp_path: Path) -> None:
    """C15, attack 13: a housekeeping job; the worker's next save must find its run, and what it paid is stored."""
    running = Running(tmp_path, backend)
    task = await running.start()
    with pytest.raises(StandfastError, match="'r'"):
        await Runner.delete_run("r", session=running.session)
    running.go_on.set()
    assert (await task).final_output == "done"
    assert short(await running.session.get_items()) == WHOLE
    await running.check()
    assert await Runner.delete_run("r", session=running.session), "it has ended now"


@every_session
async def test_pruning_takes_no_run_that_is_under_way(backend: str, tmp_path: Path) -> None:
    """C15: pruning removes ended runs only."""
    running = Running(tmp_path, backend)
    task = await running.start()
    await Runner.prune_runs(session=running.session, older_than_s=0.0, keep=0)
    running.go_on.set()
    assert (await task).final_output == "done"
    assert short(await running.session.get_items()) == WHOLE


@every_session
async def test_a_cleared_session_keeps_what_a_run_under_way_stores_later(backend: str, tmp_path: Path) -> None:
    """A12, C15: the run keeps its record, and its turn belongs to the new history."""
    running = Running(tmp_path, backend)
    await running.session.add_items([{"role": "user", "content": "old"}])
    task = await running.start()
    await running.session.clear_session()
    running.go_on.set()
    assert (await task).final_output == "done"
    assert short(await running.session.get_items()) == WHOLE
    await running.check()


@every_session
async def test_cancelling_a_run_that_another_worker_is_at_hides_nothing(backend: str, tmp_path: Path) -> None:
    """C15: whether the order is refused, waits, or stops the run: what was paid is there, or said to be unknown."""
    running = Running(tmp_path, backend)
    task = await running.start()
    cancelling = asyncio.create_task(Runner.cancel_run(running.agent(), "r", session=running.session))
    await asyncio.wait([cancelling], timeout=0.5)
    running.go_on.set()
    results = await asyncio.gather(task, cancelling, return_exceptions=True)
    assert all(not isinstance(result, BaseException) or isinstance(result, StandfastError) for result in results)
    await running.check()


@every_session
async def test_a_run_that_was_cleared_away_while_it_waited_is_not_carried_out(backend: str, tmp_path: Path) -> None:
    """A12: open turns of runs that nobody holds go with the history; an old approval finds nothing to approve."""
    book = tmp_path / "book"
    session: Any = opened(place(backend, tmp_path))

    @function_tool(needs_approval=True)
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    model = ScriptedModel([[function_call("pay", {}, call_id="c1")], final("done")])
    agent: Agent[Any] = Agent(name="A", model=model, tools=[pay])
    state = (await Runner.run(agent, "go", session=session)).to_state()
    await session.clear_session()
    for item in state.get_interruptions():
        state.approve(item)
    with pytest.raises(StandfastError):
        await Runner.run(agent, state, session=session)
    assert lines(book) == []
    assert await session.get_items() == []
    await session.close()


# --- a file that vanishes --------------------------------------------------------------------------------------------


async def writer_whose_files_vanish(line: Line, *, path: str, what: str) -> None:
    """Five items, then something happens to the files, then three more; says of each whether it was acknowledged."""
    session = SQLiteSession("s", path)

    async def add(number: int) -> str:
        try:
            await session.append([{"role": "user", "content": f"m{number}"}], writer="w", start=number)
        except StandfastError as error:
            return type(error).__name__
        return "acknowledged"

    for number in range(5):
        await add(number)
    if what == "the log is removed":
        os.remove(f"{path}-wal")
    elif what == "the log and its index are removed":
        os.remove(f"{path}-wal")
        os.remove(f"{path}-shm")
    elif what == "the database is emptied in place":
        os.truncate(path, 0)
    elif what == "the database is removed":
        os.remove(path)
    line.say(("told", [await add(number) for number in (5, 6, 7)]))
    await line.told()


VANISHING = (
    "nothing",
    "the database is removed",
    "the log is removed",
    "the log and its index are removed",
    "the database is emptied in place",
)


@pytest.mark.parametrize("what", VANISHING)
def test_what_is_acknowledged_over_vanished_files_is_there_after_a_kill(what: str, tmp_path: Path) -> None:
    """A6, A23, attack 04: noticed before the next acknowledgement; an error is fine, a lie is not."""
    path = tmp_path / "a.db"
    with Child(writer_whose_files_vanish, path=str(path), what=what) as child:
        _, told = child.hear_until("told")
        child.kill()
    acknowledged = [f"m{number}" for number, answer in zip((5, 6, 7), told, strict=True) if answer == "acknowledged"]
    if what == "nothing":
        assert len(acknowledged) == 3
    session = SQLiteSession("s", path)
    try:
        found = [item["content"] for item in asyncio.run(session.get_items())]
    except StandfastError:
        found = []
    finally:
        session.close()
    assert set(acknowledged) <= set(found), f"{what}: {told}, and after the kill there is {found}"
