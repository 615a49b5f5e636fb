"""Bound of a stored item: refused where it comes in, so that no turn waits for an item that is never stored (A6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    EncryptedSession,
    InMemorySession,
    InvalidSettingError,
    ItemNotStorableError,
    ModelBehaviorError,
    RunConfig,
    Runner,
    SessionSettings,
    SQLiteSession,
    function_tool,
)
from standfast.testing import ScriptedModel, assistant_message, function_call

BOUND = 2_000
SMALL = SessionSettings(max_item_bytes=BOUND)


def said(size: int) -> dict[str, Any]:
    """A message that has exactly so many bytes as JSON."""
    empty = len(b'{"role":"user","content":""}')
    return {"role": "user", "content": "x" * (size - empty)}


def session_of(kind: str, path: Path) -> Any:
    if kind == "memory":
        return InMemorySession("a", session_settings=SMALL)
    session = SQLiteSession("a", path / "talks.db", session_settings={"max_item_bytes": BOUND})
    return session if kind == "sqlite" else EncryptedSession("a", session, os.urandom(32))


@pytest.mark.parametrize("kind", ["memory", "sqlite", "sealed"])
async def test_an_item_above_the_bound_is_refused_and_one_at_the_bound_is_stored(kind: str, tmp_path: Path):
    session = session_of(kind, tmp_path)
    await session.add_items([said(BOUND)])
    for refused in (
        session.add_items([said(10), said(BOUND + 1)]),
        session.append([said(BOUND + 1)], writer="w", start=0),
        session.replace([said(BOUND + 1)], upto=await session.head()),
        session.send([said(BOUND + 1)], agent="Clerk"),
    ):
        with pytest.raises(ItemNotStorableError, match="2,001 bytes") as caught:
            await refused
        assert "max_item_bytes" in caught.value.remedy
    assert await session.get_items() == [said(BOUND)]
    assert await session.waiting_messages() == []
    await session.close()


async def test_a_session_without_the_setting_takes_64_mib():
    session = InMemorySession("a")
    with pytest.raises(ItemNotStorableError, match="at most 67,108,864"):
        await session.add_items([said(64 * 1024 * 1024 + 1)])
    await session.add_items([said(1024 * 1024)])


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "1"])
def test_what_is_no_number_of_bytes_is_refused(wrong: Any):
    with pytest.raises(InvalidSettingError, match="max_item_bytes"):
        SessionSettings(max_item_bytes=wrong)


def test_the_settings_are_those_of_the_sdk_where_nothing_else_is_set():
    assert SessionSettings(limit=2).to_dict() == {"limit": 2}
    assert SMALL.resolve({"limit": 3}).to_dict() == {"limit": 3, "max_item_bytes": BOUND}


async def test_a_run_refuses_a_larger_input_before_it_asks_a_model():
    model = ScriptedModel([[assistant_message("never")]])
    session = session_of("memory", Path())
    with pytest.raises(ItemNotStorableError, match="2,001 bytes"):
        await Runner.run(Agent(name="Clerk", model=model), [said(BOUND + 1)], session=session)
    assert not model.calls


@pytest.mark.parametrize("of_run", [False, True])
async def test_the_output_of_a_tool_that_ran_is_replaced_and_the_turn_is_stored(of_run: bool):
    ran = []

    @function_tool
    def read() -> str:
        """Read."""
        ran.append(1)
        return "x" * BOUND

    model = ScriptedModel([[function_call("read", {}, call_id="c1")], [assistant_message("Too long.")]])
    session = InMemorySession("a", session_settings=None if of_run else SMALL)
    config = RunConfig(session_settings=SMALL if of_run else SessionSettings(max_item_bytes=10**9))
    result = await Runner.run(
        Agent(name="Clerk", tools=[read], model=model), "Read.", session=session, run_config=config
    )
    assert (ran, result.final_output) == ([1], "Too long.")
    items = await session.get_items()
    assert "was not kept: at most 2,000 are" in items[-2]["output"]
    assert model.last_call.input[-1]["output"] == items[-2]["output"]


async def test_a_reply_above_the_bound_ends_the_run_before_any_of_its_calls_begins():
    ran = []

    @function_tool
    def write(text: str) -> str:
        """Write."""
        ran.append(text)
        return "written"

    model = ScriptedModel([[function_call("write", {"text": "x" * BOUND}, call_id="c1")]])
    session = session_of("memory", Path())
    with pytest.raises(ModelBehaviorError, match="cannot be stored") as caught:
        await Runner.run(Agent(name="Clerk", tools=[write], model=model), "Write.", session=session)
    assert "max_item_bytes" in caught.value.remedy
    assert ran == []
    model.extend([[assistant_message("Again.")]])
    assert (await Runner.run(Agent(name="Clerk", model=model), "Again?", session=session)).final_output == "Again."
