"""Ids that cannot be written as UTF-8 are refused with a remedy wherever they enter, never by a UnicodeEncodeError."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    InMemoryRunStore,
    PostgresSession,
    RunConfig,
    Runner,
    SQLiteSession,
    StandfastError,
    function_tool,
)
from standfast.testing import ScriptedModel, final, function_call

HALF = "a\ud800b"
NUL = "a\0b"


def agent() -> Agent[Any]:
    return Agent(name="A", model=ScriptedModel([final("hi"), final("hi")]))


def payer(name: str = "A") -> Agent[Any]:
    """An agent whose run is saved: it calls a tool."""

    @function_tool
    async def pay() -> str:
        """Pay."""
        return "paid"

    return Agent(name=name, tools=[pay], model=ScriptedModel([[function_call("pay", {}, call_id="c")], final("hi")]))


async def refuses(doing: Any) -> None:
    with pytest.raises(StandfastError) as refused:
        async with asyncio.timeout(20):
            await doing
    assert refused.value.remedy
    assert "surrogates not allowed" not in str(refused.value)


async def test_a_run_id_that_no_store_can_hold_is_refused_before_anything_runs(session: Any) -> None:
    with pytest.raises(StandfastError, match="names no run"):
        RunConfig(run_id=HALF)
    runs = session.run_store()
    for doing in (
        Runner.resume(agent(), HALF, session=session),
        Runner.load(agent(), HALF, session=session),
        Runner.cancel_run(agent(), HALF, session=session),
        Runner.delete_run(HALF, session=session),
        runs.load_run(HALF),
        runs.delete_run(HALF),
        runs.lease_run(HALF, ttl_s=5, wait_s=0),
        runs.save_run(HALF, expect=0, head=b"1", tails={}, status="running", agent="A"),
        session.append([{"role": "user", "content": "x"}], writer=HALF, start=0),
    ):
        await refuses(doing)
    assert await session.get_items() == []


async def outcome(doing: Any) -> Any:
    """What it gave, or the remedy of its refusal; nothing else may be raised, and nothing may hang."""
    try:
        async with asyncio.timeout(20):
            return await doing
    except StandfastError as refused:
        return refused.remedy


async def test_a_listing_by_an_id_that_nothing_can_have_is_empty_or_refused(session: Any) -> None:
    runs = session.run_store()
    for filters in ({"session_id": HALF}, {"status": HALF}, {"session_id": NUL}):
        found = await outcome(runs.list_runs(**filters))
        assert found == ([], None) or "Unicode" in found


async def test_a_session_id_is_used_exactly_or_refused(session: Any) -> None:
    for odd in (HALF, NUL):
        fork = await outcome(session.fork(odd))
        if isinstance(fork, str):
            assert "Unicode" in fork
            continue
        await fork.add_items([{"role": "user", "content": "x"}])
        assert len(await fork.get_items()) == 1
        assert fork.session_id == odd


@pytest.mark.parametrize("odd", [NUL, "\x1b0", "é\U0001f600"], ids=["nul", "escape", "emoji"])
async def test_an_odd_run_id_names_one_run_or_is_refused_at_once(session: Any, odd: str) -> None:
    config = RunConfig(run_id=odd)
    found = await outcome(Runner.run(payer(), "x", session=session, run_config=config))
    if isinstance(found, str):
        assert isinstance(session, PostgresSession)
        assert odd == NUL
        assert "NUL" in found
    else:
        runs, _ = await Runner.list_runs(session=session)
        assert [run.run_id for run in runs] == [odd]


async def test_an_agent_may_have_any_name_that_the_store_can_hold(session: Any) -> None:
    for name in ("A\ud800", "A\0"):
        found = await outcome(Runner.run(payer(name), "x", session=session))
        if isinstance(found, str):
            assert isinstance(session, PostgresSession)
            assert "NUL" in found
        else:
            assert found.final_output == "hi"


async def test_a_servers_ids_and_a_path_are_checked_too(tmp_path: Path) -> None:
    config = RunConfig(run_store=InMemoryRunStore())
    await refuses(Runner.run(agent(), "x", conversation_id=HALF, run_config=config))
    await refuses(Runner.run(agent(), "x", previous_response_id=HALF))
    with pytest.raises(StandfastError):
        SQLiteSession("s", tmp_path / f"{HALF}.db")
