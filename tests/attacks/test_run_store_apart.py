"""A resumed run that is cut while it is taken, in a run store that is not its session's (C14, C15).

No lease tells there that its worker is gone. Said to be running, it would be left alone by every later run, and what
its first calls did would be hidden from the model for good.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.cancelling import WAYS, Way, cancelled_at, no_task_is_left
from helpers.ledger_oracle import asked_next, lines, wrongs
from helpers.processes import eventually
from helpers.waiting_conversation import tools_of

from standfast import Agent, InMemoryRunStore, RunConfig, Runner, SQLiteSession
from standfast.testing import ScriptedModel, final, function_call
from tests.helpers.runs_apart import FileWithoutRuns


def _agent(book: Path) -> Agent[Any]:
    calls = [function_call("look", {}, call_id="c1"), function_call("pay", {}, call_id="c2")]
    return Agent(name="A", tools=tools_of(book), model=ScriptedModel([calls, final("done")]))


async def _nothing_is_running(store: Any) -> bool:
    return not (await Runner.list_runs(run_store=store, status="running"))[0]


@pytest.mark.parametrize(("runs_in", "way"), [*(("memory", way) for way in WAYS), ("file", "once"), ("file", "anyio")])
async def test_a_run_that_is_cut_while_it_is_taken_does_not_hide_what_it_did(
    tmp_path: Path, runs_in: str, way: Way
) -> None:
    at, was_cut, seen = 0, True, set()
    while was_cut:
        book, session = tmp_path / f"{at}.book", FileWithoutRuns("s", tmp_path / f"{at}.db")
        anchor = SQLiteSession("-", tmp_path / f"{at}.runs")
        config = RunConfig(run_store=InMemoryRunStore() if runs_in == "memory" else anchor.run_store())
        agent = _agent(book)
        state = (await Runner.run(agent, "go", session=session, run_config=config)).to_state()
        state.approve(state.get_interruptions()[0])

        async def resume(agent: Any = agent, state: Any = state, session: Any = session, config: Any = config) -> None:
            await Runner.run(agent, state, session=session, run_config=config)

        was_cut = await cancelled_at(resume, at, way)
        await no_task_is_left()
        await eventually(partial(_nothing_is_running, config.run_store))  # given back though nobody waits for it
        found = wrongs(lines(book), await asked_next(session, run_store=config.run_store))
        assert not found, f"cut {way} at await {at}: {found}"
        runs, _ = await Runner.list_runs(run_store=config.run_store)
        seen |= {run.status for run in runs}
        session.close()
        anchor.close()
        at += 1
    assert seen >= {"cancelled", "done"}  # it was cut in the middle, too


async def test_a_run_store_that_is_gone_when_a_run_is_given_back_does_not_hide_why_it_was(tmp_path: Path) -> None:
    class Failing(FileWithoutRuns):
        """A session that fails where a run that has been taken looks at it, and takes the run store along."""

        is_failing = False

        async def get_items(self, limit: int | None = None) -> Any:
            if self.is_failing:
                (tmp_path / "runs").unlink()
                raise ZeroDivisionError("the first")
            return await super().get_items(limit)

    session, anchor = Failing("s", tmp_path / "items"), SQLiteSession("-", tmp_path / "runs")
    config = RunConfig(run_store=anchor.run_store())
    agent = _agent(tmp_path / "book")
    state = (await Runner.run(agent, "go", session=session, run_config=config)).to_state()
    state.approve(state.get_interruptions()[0])
    session.is_failing = True
    with pytest.raises(ZeroDivisionError, match="the first") as ended:
        await Runner.run(agent, state, session=session, run_config=config)
    assert any("the run was given back" in note for note in ended.value.__notes__)
    session.close()
    anchor.close()
