"""What a run costs, counted in calls of functions of this package: a count is the same on every machine.

`bench/bench_runs.py` measures time, on a quiet machine, now and then. Between two releases each of a hundred good
changes had added a few calls to every run, and nobody had seen it. Whoever meets a limit here looks at the list that
the failure prints, and either does what is new only where it is used, or raises the limit and says why.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import FrameType
from typing import Any

import standfast
from standfast import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, function_tool

HERE = str(Path(standfast.__file__).parent)
MESSAGE = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
CALL = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"page": 1}'}
DELTAS = 200


@function_tool
async def look(page: int) -> str:
    """Look."""
    return "seen"


class Plain(Model):
    """Says these items, one in each turn, and streams the last one in many pieces."""

    def __init__(self, *items: dict[str, Any]) -> None:
        self.items, self.turns = items, 0

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        self.turns += 1
        return ModelResponse([self.items[(self.turns - 1) % len(self.items)]], Usage(requests=1), None)

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        for _ in range(DELTAS):
            yield {"type": "response.output_text.delta", "delta": "word "}
        yield {"type": "response.completed", "response": {"id": "r", "output": [MESSAGE]}}


async def calls_of(work: Callable[[], Awaitable[object]]) -> Counter[str]:
    """How often each function of the package was entered; also when it goes on after an `await` that had to wait."""
    for _ in range(3):
        await work()  # what is made once is made now
    found: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(HERE):
            found[f"{frame.f_code.co_filename.removeprefix(HERE)} {frame.f_code.co_qualname}"] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        await work()
    finally:
        sys.setprofile(before)
    return found


def told(found: Counter[str]) -> str:
    return f"{found.total()} calls:\n" + "\n".join(f"{count} {name}" for name, count in found.most_common())


QUIET = RunConfig(tracing_disabled=True)


async def test_a_run_of_one_turn_costs_few_calls():
    agent = Agent(name="a", model=Plain(MESSAGE))
    found = await calls_of(lambda: Runner.run(agent, "hi", run_config=QUIET))
    assert found.total() <= 300, told(found)


async def test_a_turn_with_a_tool_costs_few_calls():
    agent = Agent(name="a", model=Plain(CALL, MESSAGE), tools=[look])
    found = await calls_of(lambda: Runner.run(agent, "hi", run_config=QUIET))
    # A tool says itself how it is called, run and answered (3 calls); sizes and limits are checked at each reply (8).
    assert found.total() <= 675, told(found)


async def test_what_a_run_knows_of_itself_is_computed_once(tmp_path: Path):
    """Questions about a state of the run are answered once for each state, and where it is saved once for the run."""
    session = SQLiteSession("s", tmp_path / "runs.db")
    agent = Agent(name="a", model=Plain(CALL, MESSAGE), tools=[look])

    async def watched() -> None:
        async for _ in Runner.run_streamed(agent, "hi", session=session, run_config=QUIET).stream_events():
            pass

    found = await calls_of(watched)
    await session.close()
    runs = "/_src/runs/"
    states = found[f"{runs}engine/advance.py advance"] + 1
    for answer in ("paused", "storable", "finished"):
        assert 0 < found[f"{runs}engine/run.py Run.{answer}"] <= states, told(found)
    asked = sum(found[f"{runs}engine/run.py Run.{name}"] for name in ("tripped", "paused", "calls", "finished"))
    assert asked <= 70, told(found)
    assert found[f"{runs}loop/run_scope.py RunScope.store"] == 1, told(found)
    assert found["/_src/sessions/client/stored_session.py StoredSession.run_store"] == 1, told(found)


async def test_a_delta_costs_four_calls():
    """It is wrapped, shown, fed to what puts the reply together, and taken by whoever watches."""
    agent = Agent(name="a", model=Plain(MESSAGE))

    async def watched() -> None:
        async for _ in Runner.run_streamed(agent, "hi", run_config=QUIET).stream_events():
            pass

    found = await calls_of(watched)
    often = {name: count for name, count in found.items() if count >= DELTAS}
    assert len(often) <= 3, told(found)  # what wraps it is a dataclass's own __init__, which has no file
    assert found.total() <= 3 * DELTAS + 360, told(found)
