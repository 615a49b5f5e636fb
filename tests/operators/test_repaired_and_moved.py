"""A store that was repaired can be moved, and one in the middle of a move repaired: their marks do not meet."""

from __future__ import annotations

import importlib
import pkgutil
import time
from pathlib import Path
from typing import Any

from standfast import (
    Agent,
    RunConfig,
    Runner,
    SQLiteSession,
    copy_sessions,
    examine_store,
    export_session,
    function_tool,
    import_session,
    open_store,
    repair_store,
    undo_repair,
)
from standfast._kits.operators import copy_sessions as moving
from standfast._src import sessions as rooms
from standfast.testing import ScriptedModel, function_call

ORPHAN: dict[str, Any] = {"type": "function_call", "call_id": "c1", "name": "look_up", "arguments": "{}"}
HELLO = {"role": "user", "content": "hello"}


def later() -> float:
    return time.time() + 3600


@function_tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def with_a_waiting_run(path: Path) -> None:
    """A session with a call that nobody answered, and a run that waits for a person."""
    agent = Agent(name="Clerk", tools=[pay], model=ScriptedModel([[function_call("pay", {"amount": 1}, call_id="p1")]]))
    session = SQLiteSession("guest", path)
    await session.add_items([HELLO, ORPHAN])
    await Runner.run(agent, "Pay.", session=session, run_config=RunConfig(run_id="run-1"))
    await session.close()


async def items_of(path: Path) -> list[Any]:
    session = SQLiteSession("guest", path)
    try:
        return await session.get_items()
    finally:
        await session.close()


async def test_a_repaired_session_is_copied_exported_and_moved_and_its_repair_undone(tmp_path: Path) -> None:
    source = tmp_path / "a.db"
    await with_a_waiting_run(source)
    before = await items_of(source)
    async with open_store(source) as store:
        assert (await repair_store(store, tmp_path / "undo", clock=later)).of("repaired")
    repaired = await items_of(source)
    assert ORPHAN not in repaired

    await copy_sessions(source, tmp_path / "copy.db")
    assert await items_of(tmp_path / "copy.db") == repaired
    async with open_store(source, read_only=True) as store, open_store(tmp_path / "file.db", create=True) as other:
        await export_session(store, "guest", tmp_path / "guest.jsonl")
        await import_session(other, tmp_path / "guest.jsonl")
    assert await items_of(tmp_path / "file.db") == repaired
    moved = await copy_sessions(source, tmp_path / "moved.db", move=True)
    assert [one.moved for one in moved.copied] == [("run-1",)]

    await undo_repair(tmp_path / "undo", source)
    assert await items_of(source) == before


async def test_a_session_whose_move_broke_off_is_examined_and_repaired_and_its_move_goes_on(
    tmp_path: Path, monkeypatch: Any
) -> None:
    source, target = tmp_path / "a.db", tmp_path / "b.db"
    await with_a_waiting_run(source)

    async def dies(*given: Any) -> None:
        raise KeyboardInterrupt  # between closing the run at the source and forgetting it there

    monkeypatch.setattr(moving, "reported", dies)
    try:
        await copy_sessions(source, target, move=True)
    except KeyboardInterrupt:
        pass
    monkeypatch.undo()
    async with open_store(source) as store:
        kinds = [one.kind async for one in examine_store(store, clock=later)]
        assert "orphaned_call" in kinds or "call_without_output" in kinds, kinds
        assert (await repair_store(store, tmp_path / "undo", clock=later)).of("repaired")
    again = await copy_sessions(source, target, move=True)
    assert not again.refused
    async with open_store(target) as store:
        assert [one.status for one in (await store.runs()).runs] == ["paused"]


def test_every_cell_of_a_session_has_a_name_of_its_own() -> None:
    """What two rules keep in one cell, or below one beginning, each takes for its own."""
    found: dict[str, str] = {}
    for module in pkgutil.walk_packages(rooms.__path__, f"{rooms.__name__}."):
        if module.name.startswith(f"{rooms.__name__}.rules"):
            loaded = importlib.import_module(module.name)
        else:
            continue
        for name, value in vars(loaded).items():
            if name.isupper() and isinstance(value, str) and value.endswith("/"):
                assert found.setdefault(value, name) == name, f"{value!r} is {found[value]} and {name}"
    assert {"r/", "w/", "u/"} <= found.keys()
