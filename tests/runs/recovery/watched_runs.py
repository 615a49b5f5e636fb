"""Runs whose every saved state is kept, and what watchers of any of them are told."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from standfast import Agent, InMemoryRunStore, LogTail, RunConfig, Runner, RunSummary, SavedRun, function_tool
from standfast._src.runs.engine.codec import decode_saved
from standfast._src.runs.recovery import run_updates  # by the module's name: mutants change what is in it
from standfast._src.runs.recovery.run_updates import RunSnapshot
from standfast.testing import AnsweringModel, assistant_message, function_call

UPDATES_MAX = 100
# More than such a run has to tell.


class Diary:
    """A run store of somebody's own, with the five methods and no more, that remembers each state it was given."""

    def __init__(self) -> None:
        self._kept = InMemoryRunStore()
        self.states: list[SavedRun] = []
        self.asked = 0

    async def load_run(self, run_id: str) -> SavedRun | None:
        self.asked += 1
        return await self._kept.load_run(run_id)

    async def save_run(
        self,
        run_id: str,
        *,
        expect: int,
        head: bytes,
        tails: Mapping[str, LogTail],
        status: str,
        agent: str,
        session_id: str | None = None,
    ) -> int:
        revision = await self._kept.save_run(
            run_id, expect=expect, head=head, tails=tails, status=status, agent=agent, session_id=session_id
        )
        saved = await self._kept.load_run(run_id)
        assert saved is not None
        self.states.append(saved)
        return revision

    async def list_runs(
        self, *, status: str | None = None, session_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> tuple[list[RunSummary], str | None]:
        return await self._kept.list_runs(status=status, session_id=session_id, after=after, limit=limit)

    async def delete_run(self, run_id: str) -> bool:
        return await self._kept.delete_run(run_id)

    async def prune_runs(self, *, older_than_s: float | None = None, keep: int | None = None) -> int:
        return await self._kept.prune_runs(older_than_s=older_than_s, keep=keep)


def busy_agent(ends_first: str = "b") -> Agent[Any]:
    """Two calls at once of which either may end first, one that a person decides about, a helper, a handoff."""
    other = asyncio.Event()

    @function_tool
    async def look(name: str) -> str:
        """Look."""
        if name == ends_first:
            other.set()
        else:
            await other.wait()
            await asyncio.sleep(0.01)
        return f"seen {name}"

    @function_tool(needs_approval=True)
    async def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    def answer(call: Any) -> Any:
        outputs = sum(1 for item in call.input if item.get("type") == "function_call_output")
        return [
            [
                assistant_message("I look at both."),
                function_call("look", {"name": "a"}, call_id="a"),
                function_call("look", {"name": "b"}, call_id="b"),
            ],
            [],
            [function_call("pay", {"cents": 5}, call_id="p"), function_call("look", {"name": "c"}, call_id="c")],
            [],
            [function_call("help", {"input": "help"}, call_id="h")],
            [function_call("transfer_to_closer", {}, call_id="t")],
        ][outputs]

    def helps(call: Any) -> Any:
        if call.input[-1].get("type") == "function_call_output":
            return [assistant_message("helped")]
        return [function_call("look", {"name": ends_first}, call_id="inner")]

    helper = Agent(name="helper", model=AnsweringModel(helps), tools=[look])
    closer = Agent(name="closer", model=AnsweringModel(lambda call: [assistant_message("all is done")]))
    tools: list[Any] = [look, pay, helper.as_tool("help", "Helps.")]
    return Agent(name="busy", model=AnsweringModel(answer), tools=tools, handoffs=[closer])


async def states_of(ends_first: str = "b", *, approve: bool = True) -> list[SavedRun]:
    """Every state that such a run was saved in."""
    diary, agent = Diary(), busy_agent(ends_first)
    config = RunConfig(run_store=diary, run_id="r")
    result = await Runner.run(agent, "begin", run_config=config)
    state = result.to_state()
    (question,) = state.get_interruptions()
    (state.approve if approve else state.reject)(question)
    await Runner.run(agent, state, run_config=config)
    return diary.states


def told_of(pictures: list[RunSnapshot], after: str | None = None) -> tuple[list[dict[str, Any]], list[str]]:
    """What a watcher is told who sees the run in these states and is cut off after each update; its cursor in each."""
    told, updates, cursors = run_updates.parse_cursor(after), [], []
    for now in pictures:
        while found := run_updates.updates_after(told, now):
            assert len(updates) < UPDATES_MAX, "it is told without end"
            update, then = found[0]
            updates.append(update.to_json())
            told = run_updates.parse_cursor(update.cursor)  # all that another process would know
            assert told == then
        cursors.append(told.cursor)
    return updates, cursors


def pictures_of(states: list[SavedRun]) -> list[RunSnapshot]:
    return [run_updates.snapshot_of(decode_saved(one)) for one in states]
