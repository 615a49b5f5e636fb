"""A hook, a guardrail or instructions that start a run on their own run's session are told at once (C13).

Their run has the session until it ends, and waits for them: they waited for `lease_wait_s`, ten minutes for example.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    AgentHooks,
    GuardrailFunctionOutput,
    RunConfig,
    RunHooks,
    Runner,
    SessionBusyError,
    SQLiteSession,
    function_tool,
    input_guardrail,
    output_guardrail,
)
from standfast.testing import ScriptedModel, final, function_call

WAITS = RunConfig(lease_wait_s=3_000)


class Starter:
    """Starts a run wherever it is asked to, and keeps what it was told."""

    def __init__(self, session: Any) -> None:
        self.session, self.told = session, list[str]()

    async def start(self) -> None:
        with pytest.raises(SessionBusyError) as refused:
            await Runner.run(answering(), "x", session=self.session, run_config=WAITS)
        self.told.append(str(refused.value))

    async def judge(self, context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await self.start()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    async def instruct(self, context: Any, agent: Any) -> str:
        await self.start()
        return "Be kind."


def answering(**given: Any) -> Agent[Any]:
    return Agent(name="a", model=ScriptedModel([final("done")]), **given)


def hooks(start: Callable[[], Awaitable[None]], name: str, kind: Callable[[], Any] = RunHooks) -> Any:
    found = kind()

    async def hook(*_: Any) -> None:
        await start()

    setattr(found, name, hook)
    return found


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    "place",
    [
        "on_agent_start",
        "on_llm_start",
        "on_llm_end",
        "on_agent_end",
        "input guardrail",
        "output guardrail",
        "instructions",
    ],
)
async def test_who_would_wait_for_its_own_run_is_told_so(place: str, streamed: bool, tmp_path: Path) -> None:
    session = SQLiteSession("s", tmp_path / "s.db")
    starter, given = Starter(session), dict[str, Any]()
    match place:
        case "input guardrail":
            agent = answering(input_guardrails=[input_guardrail(starter.judge)])
        case "output guardrail":
            agent = answering(output_guardrails=[output_guardrail(starter.judge)])
        case "instructions":
            agent = answering(instructions=starter.instruct)
        case _:
            agent, given = answering(), {"hooks": hooks(starter.start, place)}
    async with asyncio.timeout(200):
        if streamed:
            result: Any = Runner.run_streamed(agent, "go", session=session, **given)
            async for _ in result.stream_events():
                pass
        else:
            result = await Runner.run(agent, "go", session=session, **given)
    assert result.final_output == "done"
    assert ["wait for itself" in text for text in starter.told] == [True]
    session.close()


async def test_a_guardrail_may_run_an_agent_on_another_session(tmp_path: Path) -> None:
    session, other = SQLiteSession("s", tmp_path / "s.db"), SQLiteSession("other", tmp_path / "s.db")

    async def judge(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        result = await Runner.run(answering(), "is it fine?", session=other)
        return GuardrailFunctionOutput(output_info=result.final_output, tripwire_triggered=False)

    result = await Runner.run(answering(input_guardrails=[input_guardrail(judge)]), "go", session=session)
    assert [one.output.output_info for one in result.input_guardrail_results] == ["done"]
    session.close()
    other.close()


@function_tool
def look_up() -> str:
    """Look it up."""
    return "found"


@pytest.mark.parametrize(
    "place",
    ["two input guardrails", "two output guardrails", "hooks of run and agent", "enabled tools", "session callback"],
)
async def test_those_who_are_asked_side_by_side_are_told_so_too(place: str, tmp_path: Path) -> None:
    """The runtime asks them in tasks of its own, and waits for these: no task of the application's waits its turn."""
    session = SQLiteSession("s", tmp_path / "s.db")
    starter, given = Starter(session), dict[str, Any]()

    async def is_enabled(context: Any, agent: Any) -> bool:
        await starter.start()
        return True

    async def show(history: list[Any], new: list[Any]) -> list[Any]:
        await starter.start()
        return [*history, *new]

    agent = answering()
    match place:
        case "two input guardrails":
            agent = answering(input_guardrails=[input_guardrail(starter.judge)] * 2)
        case "two output guardrails":
            agent = answering(output_guardrails=[output_guardrail(starter.judge)] * 2)
        case "hooks of run and agent":
            agent = answering(hooks=hooks(starter.start, "on_llm_start", AgentHooks))
            given = {"hooks": hooks(starter.start, "on_llm_start")}
        case "enabled tools":
            model = ScriptedModel([[function_call("look_up", {}, call_id="1")], final("done")])
            agent = Agent(name="a", model=model, tools=[replace(look_up, is_enabled=is_enabled)])
        case _:
            given = {"run_config": RunConfig(session_input_callback=show)}
    async with asyncio.timeout(200):
        result = await Runner.run(agent, "go", session=session, **given)
    assert result.final_output == "done"
    assert starter.told
    assert all("wait for itself" in text for text in starter.told)
    session.close()


@pytest.mark.parametrize("place", ["on_agent_start", "on_llm_start", "on_llm_end", "on_agent_end"])
async def test_what_a_hook_leaves_behind_in_the_background_waits_its_turn(place: str, tmp_path: Path) -> None:
    """The hook is over when the model is asked, and does not wait for that run: it is not refused (C13)."""
    session = SQLiteSession("s", tmp_path / "s.db")
    left: list[Any] = []

    async def leave() -> None:
        left.append(Runner.run_streamed(answering(), "later", session=session))

    class Thoughtful(ScriptedModel):
        async def get_response(self, *args: Any, **kwargs: Any) -> Any:
            for _ in range(20):  # so often the run that was left behind has its turn in the loop meanwhile
                await asyncio.sleep(0)
            return await super().get_response(*args, **kwargs)

    agent = Agent(name="a", model=Thoughtful([final("done")]))
    await Runner.run(agent, "go", session=session, hooks=hooks(leave, place))
    async for _ in left[0].stream_events():
        pass
    assert left[0].final_output == "done"
    assert [item["content"] for item in await session.get_items() if item.get("role") == "user"] == ["go", "later"]
    session.close()
