"""What is left after a kill, for each combination that the contract names (C12), as docs/explanation/what-survives.md
says it. The combination with a run store, which promises most, has files of its own."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from typing import Any

import pytest

from standfast import RunConfig, Runner, RunState, SessionABC

from .payment_app import Desk, asks, kinds, outputs, pay, says
from .simulated_crash import RUN_ID, Died, Life, World

SCRIPT = [["look", "look"], ["look"], ["look", "look"]]
WHOLE_TURNS = [
    [],
    ["user", "call c0.0", "call c0.1", "output c0.0", "output c0.1"],
    ["call c1.0", "output c1.0"],
    ["call c2.0", "call c2.1", "output c2.0", "output c2.1"],
    ["assistant"],
]


def prefixes() -> list[list[str]]:
    """Every history that ends between two turns."""
    return [list(chain(*WHOLE_TURNS[: count + 1])) for count in range(len(WHOLE_TURNS))]


class PlainMortal(SessionABC):
    """Anybody's session, in a process that may die before and after each of its writes."""

    session_settings = None

    def __init__(self, life: Life) -> None:
        self.session_id, self.items, self.life = "plain", [], life  # type: str, list[Any], Life

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self.items) if limit is None else self.items[-limit:]

    async def add_items(self, items: list[Any]) -> None:
        self.life.step()
        self.items.extend(items)
        self.life.step()

    async def pop_item(self) -> Any:
        self.life.step()
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


@pytest.mark.clause("C12", backend="runs")
async def test_with_a_plain_session_the_turns_that_were_acknowledged_survive_whole():
    seen = set()
    for die_at in range(1, 100):
        life = Life(World(SCRIPT), die_at)
        session = PlainMortal(life)
        try:
            await Runner.run(life.agent, "go", session=session)
        except BaseException:
            assert life.over
        left = kinds(session.items)
        assert left in prefixes()
        seen.add(len(left))
        if not life.over:
            break
        stored = set(outputs(session.items))
        done = {key.partition(":")[2] for key, _ in life.world.done}
        assert stored <= done  # the torn turn is gone, though its tools may have run
    assert len(seen) == len(prefixes())


@pytest.mark.clause("C12", backend="runs")
async def test_under_the_callers_id_a_run_goes_on_behind_its_last_whole_turn_and_only_torn_calls_run_again():
    calm = World(SCRIPT)
    assert await calm.live() is not None
    history = await calm.session.get_items()
    for die_at in range(1, 100):
        world = World(SCRIPT)
        config = RunConfig(run_id=RUN_ID, save="never")
        life = Life(world, die_at)
        world.session.life = life
        try:
            await Runner.run(life.agent, "go", session=world.session, run_config=config)
        except Died:
            pass
        torn = await world.session.get_items()
        assert kinds(torn) in prefixes()
        if not life.over:
            break
        before = Counter(world.done)
        world.session.life = later = Life(world, None)
        result = await Runner.run(later.agent, "go", session=world.session, run_config=config)
        assert result.final_output == "finished"
        assert await world.session.get_items() == history
        again = Counter(world.done) - before
        for (key, _), times in Counter(world.done).items():
            settled = key.partition(":")[2] in outputs(torn)
            assert times == 1 if settled else times <= 2
        assert not any(key.partition(":")[2] in outputs(torn) for key, _ in again)
        assert await Runner.list_runs(session=world.session) == ([], None)
    assert die_at > 10


@pytest.mark.clause("C12", backend="runs")
async def test_without_a_session_nothing_survives_but_what_the_caller_carries_and_that_is_not_consumed():
    """The page says so: somebody has to remember, and here nobody does."""
    desk = Desk([asks(pay(5, "c1")), says("done"), says("done")])
    text = (await desk.run("hi")).to_state().to_string()
    for _ in range(2):
        state = await RunState.from_string(desk.agent, text)
        state.approve(state.get_interruptions()[0])
        assert (await desk.run(state)).final_output == "done"
    assert desk.done == [("pay", 5)] * 2
