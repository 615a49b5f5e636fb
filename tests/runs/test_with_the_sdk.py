"""Both directions with the real SDK: its sessions in our runner, ours in its runner, one file for both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import agents as sdk

import standfast
from standfast.testing import ScriptedModel, assistant_message, function_call

sdk.set_tracing_disabled(True)


def ours(text: str) -> standfast.Agent[Any]:
    @standfast.function_tool
    async def add(a: int, b: int) -> int:
        """Add."""
        return a + b

    call = function_call("add", {"a": 1, "b": 2}, call_id=f"call-{text}")
    return standfast.Agent(name="ours", model=ScriptedModel([[call], [assistant_message(text)]]), tools=[add])


def theirs(text: str) -> sdk.Agent[Any]:
    from agents.testing import ScriptedModel as TheirModel, assistant_message as their_message

    return sdk.Agent(name="theirs", model=TheirModel([[their_message(text)]]))


def texts(items: list[Any]) -> list[str]:
    return [str(item.get("type") or item.get("role")) for item in items]


OURS = ["user", "function_call", "function_call_output", "message"]
THEIRS = ["user", "message"]


async def test_our_runner_works_on_the_sdks_session(tmp_path: Path) -> None:
    session = sdk.SQLiteSession("s", tmp_path / "one.db")
    result = await standfast.Runner.run(ours("a"), "hi", session=session)  # type: ignore[arg-type]
    assert result.final_output == "a"
    assert texts(await session.get_items()) == OURS
    session.close()


async def test_the_sdks_limit_counts_in_our_runner(tmp_path: Path) -> None:
    session = sdk.SQLiteSession("s", tmp_path / "one.db", session_settings=sdk.SessionSettings(limit=2))
    await session.add_items([{"role": "user", "content": str(n)} for n in range(5)])
    agent = ours("a")
    await standfast.Runner.run(agent, "hi", session=session)  # type: ignore[arg-type]
    assert isinstance(agent.model, ScriptedModel)
    assert [item["content"] for item in agent.model.calls[0].input] == ["3", "4", "hi"]
    session.close()


async def test_the_sdks_runner_works_on_our_session(tmp_path: Path) -> None:
    session = standfast.SQLiteSession("s", tmp_path / "one.db")
    result = await sdk.Runner.run(theirs("b"), "hi", session=session)
    assert result.final_output == "b"
    assert texts(await session.get_items()) == THEIRS
    session.close()


async def test_both_runners_continue_one_conversation_in_one_file(tmp_path: Path) -> None:
    mine = standfast.SQLiteSession("s", tmp_path / "one.db")
    other = sdk.SQLiteSession("s", tmp_path / "one.db")
    await standfast.Runner.run(ours("a"), "one", session=mine)
    await sdk.Runner.run(theirs("b"), "two", session=other)
    await standfast.Runner.run(ours("c"), "three", session=mine)
    expected = [*OURS, *THEIRS, *OURS]
    assert texts(await mine.get_items()) == expected
    assert texts(await other.get_items()) == expected
    mine.close()
    other.close()
