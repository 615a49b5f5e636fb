"""What a run costs its store: durable commits, counted in the statements that SQLite is given (C12)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, RunConfig, Runner, SQLiteSession, function_tool
from standfast.testing import ScriptedModel, final, function_call


class Commits:
    """Counts the commits that are synced; those of leases and tickets are not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        connect = sqlite3.connect

        def connected(*given: Any, **named: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*given, **named)
            connection.set_trace_callback(self._counter())
            return connection

        monkeypatch.setattr(sqlite3, "connect", connected)

    def _counter(self) -> Callable[[str], None]:
        is_synced, writes = True, False

        def heard(statement: str) -> None:
            nonlocal is_synced, writes
            if "synchronous" in statement:
                is_synced = "NORMAL" not in statement
            elif statement.startswith("BEGIN"):
                writes = "IMMEDIATE" in statement
            elif statement == "COMMIT" and is_synced and writes:
                self.count += 1

        return heard


@function_tool
async def weather() -> str:
    """Tell the weather."""
    return "sun"


def agent(calls: int = 1) -> Agent[Any]:
    asked = [function_call("weather", {}, call_id=f"c{number}") for number in range(calls)]
    return Agent(name="A", tools=[weather], model=ScriptedModel([asked, final("done")]))


@pytest.mark.parametrize("run_id", [None, "mine"])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("calls", "most"), [(1, 4), (20, 5)])
async def test_a_run_of_two_turns_with_tools_costs_four_durable_commits_at_most(
    calls: int, most: int, streamed: bool, run_id: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The calls begin, turn 1 with the run, turn 2 with its end and the lease; with a name, that it was taken.

    However many calls a turn has, those that begin together are saved together, and so are those that return together
    before the last.
    """
    commits = Commits(monkeypatch)
    session = SQLiteSession("s", tmp_path / "a.db")
    await session.get_items()  # the file is made, and its tables
    before = commits.count
    config = RunConfig(run_id=run_id)
    if streamed:
        result: Any = Runner.run_streamed(agent(calls), "hi", session=session, run_config=config)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent(calls), "hi", session=session, run_config=config)
    assert result.final_output == "done"
    assert len(await session.get_items()) == 2 + 2 * calls
    session.close()
    assert 1 <= commits.count - before <= most
