"""A run can be saved at any moment: what is read back is equal, and wants the same to happen next."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, InMemorySession, ModelSettings, Runner, RunState, function_tool
from standfast._src.runs.engine.codec import decode_run, decode_saved, encode_head, encode_run, encode_tails
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.run import Run
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.runs.loop.loop import Loop
from standfast.testing import ScriptedModel, function_call, handoff_call, reasoning
from tests.runs.observing import SESSIONS, observe
from tests.runs.scenarios import SCENARIOS

from .payment_app import Desk, asks, kinds, look, pay, says


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """Every run that any driver held, after each event; it is only looked at."""
    seen: list[Run] = []
    record = Loop.record

    async def noting(self: Loop, *args: Any, **kwargs: Any) -> None:
        await record(self, *args, **kwargs)
        seen.append(self.run)

    monkeypatch.setattr(Loop, "record", noting)
    return seen


def assert_saved_is_the_run(run: Run) -> None:
    payload = json.loads(json.dumps(encode_run(run)))
    for again in (
        decode_run(payload),
        decode_saved(SavedRun("x", 1, encode_head(run), {n: t.records for n, t in encode_tails(run, {}).items()})),
    ):
        assert again == run
        assert due(again) == due(run)
        assert again.status == run.status


@pytest.mark.clause("D7", backend="runs")
@pytest.mark.parametrize("name", SCENARIOS)
async def test_at_every_step_of_every_kind_of_run_the_saved_state_is_the_run(
    name: str, runs: list[Run], tmp_path: Path
):
    await observe(SCENARIOS[name], streamed=False, session=SESSIONS["memory"](tmp_path))
    for run in runs:
        assert_saved_is_the_run(run)


async def long_conversation(**options: Any) -> tuple[Any, list[Any], list[Any]]:
    """Forty turns: calls, thoughts, an inner agent, handoffs there and back, an approval now and then."""
    inner = Desk([step for n in range(4) for step in (asks(look("in", f"i{n}")), says("helped"))])

    @function_tool
    async def note(text: str) -> str:
        """Note."""
        return f"noted {text}"

    front: Any = Agent(name="front", tools=[note, inner.agent.as_tool("clerk", "The clerk.")])
    desk = Desk([], handoffs=[front])
    back = desk.agent
    back.name = "back"
    front.handoffs = [back]
    steps: list[Any] = []
    there = True
    for n in range(40):
        if n % 10 == 9:
            to = "transfer_to_back" if there else "transfer_to_front"
            steps.append(asks(handoff_call(to, call_id=f"h{n}")))
            there = not there
        elif there and n % 10 == 4:
            steps.append(asks(function_call("clerk", {"input": "help"}, call_id=f"o{n}")))
        elif there:
            thought = reasoning("hm", item_id=f"t{n}")
            steps.append(asks(thought, function_call("note", {"text": str(n)}, call_id=f"n{n}")))
        elif n % 10 == 2:
            steps.append(asks(pay(n, f"p{n}"), look("sky", f"l{n}")))
        else:
            steps.append(asks(look("sea", f"l{n}"), look("sky", f"m{n}")))
    steps.append(says("at last"))
    front.model = back.model = model = ScriptedModel(steps)
    front.model_settings = back.model_settings = ModelSettings(tool_choice="auto")
    states: list[Any] = []
    result = await Runner.run(front, "hi", max_turns=99, **options)
    while result.interruptions:
        text = result.to_state().to_string()
        states.append(json.loads(text))
        state = await RunState.from_string(front, text)
        for item in state.get_interruptions():
            state.approve(item)
        result = await Runner.run(front, state, **options)
    return result, states, [list(call.input) for call in model.calls]


@pytest.mark.clause("D7", backend="runs")
@pytest.mark.parametrize("kind", ["replay", "session"])
async def test_a_long_conversation_saved_at_every_step_decodes_to_equal_runs(kind: str, runs: list[Run]):
    session = InMemorySession("s") if kind == "session" else None
    result, states, sent = await long_conversation(**({"session": session} if session is not None else {}))
    assert result.final_output == "at last"
    assert len(states) == 2
    assert len(sent) == 41
    assert len(runs) > 150
    for run in runs:
        assert_saved_is_the_run(run)
    for earlier, later in itertools.pairwise(sent):
        assert later[: len(earlier)] == earlier  # every request begins with the one before it
    if session is not None:
        assert kinds(await session.get_items()) == kinds([*sent[-1], {"role": "assistant"}])
