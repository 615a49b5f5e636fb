"""A hook, a guardrail or instructions that start a run on their own run's session are told at once (C13).

Their run has the session until it ends, and waits for them: they waited for `lease_wait_s`, ten minutes for example.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    RunConfig,
    RunHooks,
    Runner,
    SessionBusyError,
    SQLiteSession,
    input_guardrail,
    output_guardrail,
)
from standfast.testing import ScriptedModel, final

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


def hooks(starter: Starter, name: str) -> RunHooks[Any]:
    found: Any = RunHooks()

    async def hook(*_: Any) -> None:
        await starter.start()

    setattr(found, name, hook)
    return found  # type: ignore[no-any-return]  # it is what was made above


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
            agent, given = answering(), {"hooks": hooks(starter, place)}
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
