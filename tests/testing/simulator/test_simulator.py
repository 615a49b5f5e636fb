"""Lives of generated agents, by seed; that a seed replays; that a broken promise is noticed; and the loop itself."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
import uuid
from typing import Any

import pytest

import standfast._src.runs.loop.saving_loop
import standfast._src.runs.persistence.run_saver
from standfast import Agent, CallerError, function_tool
from standfast._kits.testing.simulator.__main__ import main
from standfast._kits.testing.simulator.loop import Clock, Crashed, Stuck, VirtualLoop, run, virtualize
from standfast._kits.testing.simulator.parts import SimulatedSession
from standfast.testing import AnsweringModel, ModelCall, ScriptedModel, function_call
from standfast.testing.simulator.simulate import Faults, SimulationFailed, replay, simulate, simulate_generated
from tests.mistakes.planting import planted
from tests.mistakes.registry import named

SEEDS = int(os.environ.get("STANDFAST_SIM_SEEDS", "320"))
"""How many lives the suite runs through; `./dev sim N` and `./dev test --deep simulator` run more."""
SLICES = 8


@pytest.mark.clause("C5", "C8", "C12", backend="runs")
@pytest.mark.parametrize("part", range(SLICES))
def test_whatever_goes_wrong_the_history_is_that_of_the_calm_run(part: int) -> None:
    report = simulate_generated(range(part * SEEDS // SLICES, (part + 1) * SEEDS // SLICES))
    if SEEDS >= 200:
        assert report.happened["crashes"]
        assert report.happened["store faults"]
        assert report.happened["cancellations"]


# --- replay ----------------------------------------------------------------------------------------------------------


def test_a_seed_replays_exactly() -> None:
    first, second = simulate_generated(range(12)), simulate_generated(range(12))
    assert first.digests == second.digests
    assert len(set(first.digests.values())) == 12


def test_a_seed_replays_in_another_process_with_other_hashes() -> None:
    """A failure on one machine is looked at on another: nothing may hang on the hash seed or on addresses."""
    script = (
        "from standfast.testing.simulator.simulate import simulate_generated;"
        "print(sorted(simulate_generated(range(20, 27)).digests.items()))"
    )
    told = set()
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        told.add(subprocess.check_output([sys.executable, "-c", script], env=environment, text=True))
    told.add(f"{sorted(simulate_generated(range(20, 27)).digests.items())}\n")
    assert len(told) == 1


def test_one_seed_can_be_told_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert any("model is asked" in line for line in replay(0))
    assert main(["--seed", "0"]) == 0
    assert "model is asked" in capsys.readouterr().out
    assert main(["5", "--start", "40"]) == 0
    assert capsys.readouterr().out.startswith("5 seeds")


# --- teeth -----------------------------------------------------------------------------------------------------------


def _dies(seeds: range, faults: Faults | None = None) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as caught:
        simulate_generated(seeds, faults=faults)
    return caught.value


def test_a_driver_that_does_not_save_what_begins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standfast._src.runs.loop.saving_loop, "ALWAYS_SAVED", ())
    failure = _dies(range(120))
    assert "times and must not be repeated" in str(failure)


def test_an_append_that_is_not_exactly_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append, record = SimulatedSession.append, SimulatedSession.record

    async def forgetful(self: Any, items: Any, *, writer: str, start: int, **named: Any) -> Any:
        return await append(self, items, writer=f"{writer} {uuid.uuid4()}", start=0, **named)

    def forgetful_step(self: Any, *, writer: str = "", start: int = 0, **named: Any) -> Any:
        return record(self, writer=writer and f"{writer} {uuid.uuid4()}", start=0, **named)

    monkeypatch.setattr(SimulatedSession, "append", forgetful)
    monkeypatch.setattr(SimulatedSession, "record", forgetful_step)
    _dies(range(120))


def test_a_failure_says_its_seed_and_the_seed_fails_again(capsys: pytest.CaptureFixture[str]) -> None:
    """What a person does with a failure: take the seed from its message, and look at that life alone."""
    with planted(named("engine/outputs-join-in-reverse")):
        failure = _dies(range(60))
        assert f"seed {failure.seed}" in str(failure)
        again = _dies(range(failure.seed, failure.seed + 1))
        assert again.problems == failure.problems
        assert again.trace == failure.trace
        assert main(["1", "--start", str(failure.seed)]) == 1
    assert f"--seed {failure.seed}" in capsys.readouterr().out


# --- one's own agents ------------------------------------------------------------------------------------------------


def _buyer(*, hangs: bool = False, counts: list[str] | None = None) -> Agent[Any]:
    @function_tool
    async def buy(what: str) -> str:
        """Buy something."""
        if hangs:
            await asyncio.get_running_loop().create_future()
        if counts is not None:
            counts.append(what)
        return f"bought {what}"

    def answer(call: ModelCall) -> Any:
        bought = any(item.get("type") == "function_call_output" for item in call.input)
        return "Here you are." if bought else function_call("buy", {"what": "bread"}, call_id="c1")

    return Agent(name="Buyer", tools=[buy], model=AnsweringModel(answer))


def test_ones_own_agent_is_simulated() -> None:
    report = simulate(_buyer, ["Bread, please."], seeds=range(25))
    assert report.seeds == report.runs == 25
    assert report.happened["crashes"]


def test_an_agent_that_hangs_is_said_to_hang() -> None:
    with pytest.raises(SimulationFailed, match="Stuck"):
        simulate(lambda: _buyer(hangs=True), ["Bread, please."], seeds=[1])


def test_a_model_that_keeps_its_place_is_refused() -> None:
    def make() -> Agent[Any]:
        return Agent(name="Scripted", model=ScriptedModel([["hi"]]))

    with pytest.raises(CallerError, match="AnsweringModel"):
        simulate(make, ["hi"], seeds=[1])


def test_an_agent_without_a_model_is_refused() -> None:
    with pytest.raises(CallerError, match="asks no provider"):
        simulate(lambda: Agent(name="Real", model="some-model"), ["hi"], seeds=[1])


async def test_a_simulation_inside_a_loop_is_refused() -> None:
    with pytest.raises(CallerError, match="plain function"):
        simulate(_buyer, ["hi"], seeds=[1])


def test_without_faults_every_life_is_calm() -> None:
    calm = Faults(store=0, model=0, crash=0, freeze=0, cancel=0)
    assert not simulate(_buyer, ["hi"], seeds=range(3), faults=calm).happened


# --- the loop --------------------------------------------------------------------------------------------------------


def _run(work: Any, clock: Clock | None = None, chance: random.Random | None = None) -> Any:
    loop = VirtualLoop(clock or Clock(), chance)
    try:
        return run(loop, work)
    finally:
        loop.bury()


async def _sleeping(seconds: float) -> float:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.sleep(seconds)
    return loop.time() - began


def test_waiting_takes_no_time() -> None:
    began = time.monotonic()
    asleep = _run(_sleeping(86_400 * 30))
    assert asleep == 86_400 * 30
    assert time.monotonic() - began < 60


def test_chance_decides_the_order_and_a_seed_repeats_it() -> None:
    def order(seed: int) -> list[int]:
        told: list[int] = []

        async def say(number: int) -> None:
            told.append(number)

        async def all_of_them() -> None:
            await asyncio.gather(*(say(number) for number in range(6)))

        _run(all_of_them(), chance=random.Random(seed))
        return told

    orders = {tuple(order(seed)) for seed in range(20)}
    assert len(orders) > 10
    assert all(order(seed) == order(seed) for seed in range(5))


def test_a_program_that_waits_for_nothing_is_stuck() -> None:
    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        _run(wait())


def test_a_crash_comes_between_two_steps_and_what_is_left_is_ended() -> None:
    seen: list[str] = []

    async def work() -> None:
        try:
            for number in range(100):
                seen.append(f"step {number}")
                await asyncio.sleep(1)
        finally:
            seen.append("ended")

    loop = VirtualLoop(Clock())
    loop.crash_at = 5
    with pytest.raises(Crashed):
        run(loop, work())
    assert 0 < len(seen) < 10
    assert "ended" not in seen
    loop.bury()
    assert seen[-1] == "ended"
    assert loop.is_closed()


def test_time_chance_and_ids_are_virtual_inside_and_real_again_after() -> None:
    before = (time.time, time.monotonic, time.sleep, uuid.uuid4)
    state = random.getstate()
    told = []
    for _ in range(2):
        clock = Clock()
        with virtualize(clock, random.Random(7)):
            time.sleep(1000)
            told.append((time.time(), time.monotonic(), random.random(), uuid.uuid4()))
            elsewhere: list[float] = []
            thread = threading.Thread(target=lambda seen: seen.append(time.time()), args=(elsewhere,))
            thread.start()
            thread.join()
            assert abs(elsewhere[0] - before[0]()) < 3600  # other threads have their own affairs
    assert told[0] == told[1]
    assert (time.time, time.monotonic, time.sleep, uuid.uuid4) == before
    assert random.getstate() == state


def test_functions_for_threads_run_in_the_loop() -> None:
    async def where() -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        return await asyncio.to_thread(threading.get_ident), await loop.run_in_executor(None, threading.get_ident)

    assert _run(where()) == (threading.get_ident(), threading.get_ident())
