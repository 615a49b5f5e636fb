"""Runs that would wait for each other, each with a conversation that another wants: one of them is told at once (C13).

They waited until `lease_wait_s` was over, and then all of them failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import outputs

from standfast import Agent, InMemorySession, RunConfig, Runner, SQLiteSession, function_tool
from standfast.testing import ScriptedModel, final, function_call

Place = dict[str, Any]
WAITS = 3_000.0
"""Longer than any test may take: who waits for this waits in vain."""


class Plain:
    """A session of somebody's own."""

    def __init__(self, session_id: str) -> None:
        self.session_id, self.session_settings, self.items = session_id, None, list[Any]()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self.items if limit is None else self.items[-limit:])

    async def add_items(self, items: list[Any]) -> None:
        self.items += items

    async def pop_item(self) -> Any:
        return self.items.pop()

    async def clear_session(self) -> None:
        self.items.clear()


class Places:
    """Conversations of one kind; a session is another object each time, as in a service."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self.folder = kind, folder
        self.kept = {number: Plain(f"s{number}") for number in range(3)}
        self.memory = {number: InMemorySession(f"m{number}") for number in range(3)}
        self.opened: list[Any] = []

    def __call__(self, number: int) -> Place:
        match self.kind:
            case "sqlite":
                self.opened.append(SQLiteSession(f"s{number}", self.folder / "s.db"))
                return {"session": self.opened[-1]}
            case "memory":
                return {"session": self.memory[number]}
            case "plain":
                return {"session": self.kept[number]}
            case "mixed" if number:
                return {"session": self.memory[number]}
            case _:
                return {"conversation_id": f"conv_{number}"}

    def close(self) -> None:
        for one in self.opened:
            one.close()


@pytest.fixture(params=["conversation", "sqlite", "memory", "plain", "mixed"])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = Places(request.param, tmp_path)
    yield made
    made.close()


def everybody(count: int) -> Callable[[Any], Any]:
    """A filter of requests that lets them go when so many runs have come to their first: each has its conversation."""
    come = 0
    all_there = asyncio.Event()

    async def wait(data: Any) -> Any:
        nonlocal come
        come += 1
        if come >= count:
            all_there.set()
        await all_there.wait()
        return data.model_data

    return wait


def scripted(name: str, calls: str | None, **more: Any) -> Agent[Any]:
    first = [[function_call(calls, {"input": "go"}, call_id=f"{name}-{calls}")]] if calls else []
    return Agent(name=name, model=ScriptedModel([*first, final(f"{name} done")]), **more)


def leaf(place: Place, name: str) -> Any:
    return scripted("leaf", None).as_tool(name, "Help.", run_config=RunConfig(lease_wait_s=WAITS), **place)


@pytest.mark.parametrize("count", [2, 3])
async def test_agent_tools_that_call_each_others_in_one_turn(count: int, places: Places) -> None:
    """Each is on a conversation of its own, and wants the next one's. The last is told, and the others come to it."""
    config = RunConfig(lease_wait_s=WAITS, call_model_input_filter=everybody(count))
    tools, models = [], []
    for number in range(count):
        wanted = f"t{(number + 1) % count}"
        agent = scripted(f"a{number}", wanted, tools=[leaf(places((number + 1) % count), wanted)])
        models.append(agent.model)
        tools.append(agent.as_tool(f"t{number}", "Help.", run_config=config, **places(number)))
    calls = [function_call(f"t{number}", {"input": "go"}, call_id=f"c{number}") for number in range(count)]
    outer = Agent(name="outer", model=ScriptedModel([calls, final("all")]), tools=tools)
    async with asyncio.timeout(200):
        result = await Runner.run(outer, "go", session=InMemorySession("outer"))
    assert result.final_output == "all"
    told = outputs(result.to_input_list())
    assert told == {f"c{number}": [f"a{number} done"] for number in range(count)}
    inner = [one["output"] for model in models for one in model.last_call.input if "output" in one]  # type: ignore[union-attr,attr-defined]
    assert inner.count("leaf done") == count - 1
    (refused,) = [text for text in inner if text != "leaf done"]
    assert "wait for each other" in refused
    assert "conversations of their own" in refused


async def test_two_runs_whose_agent_tools_are_on_each_others_sessions(tmp_path: Path) -> None:
    """Two users' runs, in tasks of their own."""
    places = Places("sqlite", tmp_path)
    both = everybody(2)

    async def run(number: int) -> Any:
        other = 1 - number
        agent = scripted(f"a{number}", f"t{other}", tools=[leaf(places(other), f"t{other}")])
        config = RunConfig(lease_wait_s=WAITS, call_model_input_filter=both)
        return await Runner.run(agent, "go", run_config=config, **places(number))

    async with asyncio.timeout(200):
        results = await asyncio.gather(run(0), run(1))
    assert [one.final_output for one in results] == ["a0 done", "a1 done"]
    told = [text for one in results for texts in outputs(one.to_input_list()).values() for text in texts]
    assert told.count("leaf done") == 1
    assert sum("wait for each other" in text for text in told) == 1
    places.close()


async def test_a_run_that_nobody_waits_for_is_let_wait(tmp_path: Path) -> None:
    """A call starts a run on another's session in a task of its own, and ends: the other is not kept from going on."""
    places = Places("sqlite", tmp_path)
    both = everybody(2)
    left: list[asyncio.Task[Any]] = []
    config = RunConfig(lease_wait_s=WAITS, call_model_input_filter=both)

    @function_tool
    async def leave_behind() -> str:
        """Start a run, and do not wait for it."""
        other = RunConfig(lease_wait_s=WAITS)
        left.append(asyncio.create_task(Runner.run(scripted("b", None), "go", run_config=other, **places(1))))
        return "started"

    async def leaves() -> Any:
        agent: Agent[Any] = Agent(
            name="a",
            model=ScriptedModel([[function_call("leave_behind", {}, call_id="x")], final("a done")]),
            tools=[leave_behind],
        )
        return await Runner.run(agent, "go", run_config=config, **places(0))

    async def comes() -> Any:
        agent = scripted("c", "t0", tools=[leaf(places(0), "t0")])
        return await Runner.run(agent, "go", run_config=config, **places(1))

    async with asyncio.timeout(200):
        _, came = await asyncio.gather(leaves(), comes())
        assert outputs(came.to_input_list()) == {"c-t0": ["leaf done"]}
        assert (await left[0]).final_output == "b done"
    places.close()
