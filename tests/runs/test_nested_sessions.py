"""A nested run with a session of its own: what it stored, its parent knows, whenever the process dies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, InMemorySession, RunConfig, Runner, SQLiteSession
from standfast._src.runs.engine.run_store import LogTail
from standfast._src.sessions.backends.memory.memory_runs import InMemoryRunStore
from standfast._src.sessions.client.session_wrapper import SessionWrapper
from standfast.testing import ScriptedModel, assistant_message, function_call

from .observing import as_items


class Stalls(InMemorySession):
    """Stores the nested run's answer and never says so."""

    stored = False

    async def append(self, items: Any, **named: Any) -> Any:
        head = await super().append(items, **named)
        if not self.stored and any(item.get("role") == "assistant" for item in items):
            self.stored = True
            await asyncio.sleep(3600)
        return head


def family(session: Any, *, fresh: bool) -> Agent[Any]:
    answer = [assistant_message("inner says two")]
    inner = Agent(name="Inner", model=ScriptedModel([answer] if fresh else []))
    call = [function_call("ask", {"input": "count"}, call_id="o1")]
    steps = [call, [assistant_message("outer says two")]] if fresh else [[assistant_message("outer says two")]]
    return Agent(name="Outer", model=ScriptedModel(steps), tools=[inner.as_tool("ask", "Ask.", session=session)])


async def copy_of(store: InMemoryRunStore, run_id: str) -> InMemoryRunStore:
    saved = await store.load_run(run_id)
    assert saved is not None
    other = InMemoryRunStore()
    for revision in range(saved.revision):
        await other.save_run(
            run_id,
            expect=revision,
            head=saved.head if revision == saved.revision - 1 else b"%d" % revision,
            tails={name: LogTail(0, list(records)) for name, records in saved.logs.items()},
            status="running",
            agent="Outer",
        )
    return other


async def test_a_nested_answer_that_was_stored_is_not_asked_for_again() -> None:
    """Killed after the nested run's last append: the resumed parent must know that the nested run has its answer."""
    session, store = Stalls("inner"), InMemoryRunStore()
    config = RunConfig(run_id="r", run_store=store, concurrency="allow")  # a dead process would hold no lease
    task = asyncio.create_task(Runner.run(family(session, fresh=True), "go", run_config=config))
    while not session.stored:
        await asyncio.sleep(0.01)
    left = await copy_of(store, "r")  # what a killed process would have left behind
    result = await Runner.resume(family(session, fresh=False), "r", run_store=left, run_config=config, takeover=True)
    assert result.final_output == "outer says two"
    assert [item["content"] for item in await session.get_items() if item.get("role") == "user"] == ["count"]
    outputs = [item for kind, _, item in as_items(result.new_items) if kind == "tool_call_output_item"]
    assert [item["output"] for item in outputs] == ["inner says two"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def memory_twice(folder: Path) -> tuple[Any, Any]:
    first = InMemorySession("s")
    return first, InMemorySession("s", store=first.store)


def spelt_differently(folder: Path) -> tuple[Any, Any]:
    return SQLiteSession("s", folder / "db"), SQLiteSession("s", str(folder / "." / "db"))


def wrapped(folder: Path) -> tuple[Any, Any]:
    first = SQLiteSession("s", folder / "db")
    return SessionWrapper(first), SQLiteSession("s", folder / "db")


@pytest.mark.clause("C13", backend="runs")
@pytest.mark.parametrize("two", [memory_twice, spelt_differently, wrapped], ids=lambda function: function.__name__)
async def test_a_nested_run_on_its_parents_conversation_uses_its_lease(
    two: Callable[[Path], tuple[Any, Any]], tmp_path: Path
):
    """Through another object it used to wait for its own parent, and be told that another run had the session."""
    outer, inner = two(tmp_path)
    config = RunConfig(lease_wait_s=0.5)
    result = await Runner.run(family(inner, fresh=True), "hi", session=outer, run_config=config)
    assert result.final_output == "outer says two"
    for session in (outer, inner):
        close = getattr(session, "close", None)
        if close is not None:
            await close()
