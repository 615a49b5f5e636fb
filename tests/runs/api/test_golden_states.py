"""Saved states that a release wrote are read by every later one, for ever; others are refused by name (D9)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from standfast import InMemorySession, Runner, RunState, RunStateError
from standfast._src.runs.engine.upgrades import VERSION
from standfast.testing import ModelStep, assistant_message
from tests.golden.states import FOLDER, STATES, facts, graph

FILES = sorted(FOLDER.rglob("*.json"))
FOREIGN = sorted((FOLDER.parent / "foreign").glob("*.json"))


def answers(text: str) -> list[Any]:
    return [ModelStep(output=[assistant_message(text)], response_id="r9")] * 3


def owner_of(payload: dict[str, Any]) -> str:
    return str(payload["spec"]["owner"]["kind"])


def agent_for(payload: dict[str, Any]) -> Any:
    return _agent(owner_of(payload) in ("conversation", "chain"))


@cache  # making tools of functions is the slow part; a script may well be longer than needed
def _agent(server: bool) -> Any:
    return graph(answers("done") * 2000, inner=answers("helped") * 2000, after=answers("done") * 2000, server=server)


async def session_for(payload: dict[str, Any]) -> Any:
    """The session the state was saved beside, with what the run had stored in it; None if it had none."""
    if owner_of(payload) != "session":
        return None
    session = InMemorySession(payload["spec"]["owner"]["id"])
    items = [entry["item"] for entry in payload["ledger"][: payload["marks"]["stored"]]]
    await session.append(items, writer=payload["spec"]["run_id"], start=0)
    return session


def read(file: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    golden = json.loads(file.read_text(encoding="utf-8"))
    return golden["payload"], golden["finds"]


def test_there_is_a_golden_file_of_every_kind_of_state():
    """A new kind must be written (`python -m tests.golden.states`), and a written one must stay."""
    assert {file.stem for file in FOLDER.joinpath(f"v{VERSION}").glob("*.json")} == set(STATES)


@pytest.mark.clause("D9", backend="runs")
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
async def test_a_golden_state_is_read_finds_what_it_held_and_is_written_as_it_was(file: Path):
    payload, finds = read(file)
    text = json.dumps(payload)
    state = await RunState.from_string(agent_for(payload), text)
    assert json.loads(json.dumps(facts(state))) == finds
    again = json.loads(state.to_string())
    assert json.loads((await RunState.from_json(agent_for(payload), again)).to_string()) == again
    if payload["version"] == VERSION:
        # What came back of an object is a dict, and is saved as one.
        assert again.pop("saved_context")["value"] == payload.pop("saved_context")["value"]
        assert again == payload


@pytest.mark.clause("D9", backend="runs")
@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
async def test_a_golden_state_can_still_be_resumed_to_its_end(file: Path):
    payload, finds = read(file)
    agent = agent_for(payload)
    state = await RunState.from_json(agent, payload)
    session = await session_for(payload)
    if finds["status"] == "done":
        with pytest.raises(RunStateError, match="ended"):
            await Runner.run(agent, state, session=session)
        return
    if file.stem == "out_of_turns":
        with pytest.raises(Exception, match="turns"):
            await Runner.run(agent, state)
        return
    for item in state.get_interruptions():
        state.approve(item)
    result = await Runner.run(agent, state, session=session)
    assert result.final_output == "done"
    assert not result.interruptions


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.clause("D9", backend="runs")
@pytest.mark.parametrize("file", FOREIGN, ids=lambda file: file.stem)
async def test_another_programs_state_is_refused_by_name(file: Path):
    with pytest.raises(RunStateError, match="OpenAI Agents SDK") as caught:
        await RunState.from_string(graph(), file.read_text(encoding="utf-8"))
    assert "saved it" in caught.value.remedy


@pytest.mark.clause("D9", backend="runs")
@pytest.mark.parametrize("version", [VERSION + 1, 10**9, 0, -1, "1", 1.0, True, None, [1]])
async def test_a_version_that_is_newer_or_none_is_refused_by_name(version: Any):
    payload, _ = read(FILES[0])
    newer = isinstance(version, int) and not isinstance(version, bool) and version > VERSION
    with pytest.raises(RunStateError, match="newer standfast" if newer else "not a version"):
        await RunState.from_json(agent_for(payload), payload | {"version": version})
    del payload["version"]
    with pytest.raises(RunStateError, match="not a version"):
        await RunState.from_json(agent_for(payload), payload)


@pytest.mark.clause("D9", backend="runs")
@pytest.mark.parametrize("schema", ["standfast.session", "", None, 1])
async def test_another_schema_is_refused(schema: Any):
    payload, _ = read(FILES[0])
    with pytest.raises(RunStateError, match="not a standfast run"):
        await RunState.from_json(agent_for(payload), payload | {"schema": schema})
