"""Seeded voice calls: `simulate_call` for your own agent, `simulate_generated_calls` for `./dev sim --voice N`.

A generated call has wishes in what is said and typed (`book:3`); the model makes one call for each that it finds
unserved, however often it is asked, and the tools say which wish they served. So whatever was lost or repeated on the
way, each wish must have been served at most once, and every call must have its output.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from standfast._kits.testing.loopback.answers import Answer, Asked, Rule, call, text_of
from standfast._kits.testing.simulator.parts import CannotSimulate
from standfast._kits.testing.simulator.simulate import Report, SimulationFailed, alone
from standfast._kits.testing.simulator.text_lives import Unrecovered
from standfast._kits.testing.simulator.voice_lives import Act, CallLife, CallPlan
from standfast._kits.testing.simulator.world import Faults, World
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.tools.function_tool import function_tool

if TYPE_CHECKING:
    from standfast._src.base.json_values import Item

__all__ = ["Act", "replay_call", "simulate_call", "simulate_generated_calls"]

DETECTION = {"type": "server_vad", "silence_duration_ms": 300, "prefix_padding_ms": 100}


def simulate_call(
    agent_factory: Callable[[], RealtimeAgent[Any]],
    acts: Sequence[Act | str],
    model: Rule,
    *,
    seeds: Iterable[int] = range(50),
    faults: Faults | None = None,
    decide: Callable[[Any], bool] | None = None,
) -> Report:
    """Simulate a call with a voice agent once for each seed; raise SimulationFailed at the first broken promise.

    `acts` are the caller's actions; a text is spoken. `model` is a rule of the loopback server: it must answer from its
    input alone. `agent_factory` builds the agent for every process. `decide` gets a waiting call and returns an
    approval or a rejection; without it everything is approved.
    """
    done = [Act("say", act) if isinstance(act, str) else act for act in acts]
    settings = {"turn_detection": DETECTION}
    plan = CallPlan(
        lambda world: agent_factory(), model, done, lambda world, one: decide is None or decide(one), settings
    )
    report = Report()
    with alone():
        for seed in seeds:
            _run_seed(report, seed, plan, faults or Faults())
    return report


def simulate_generated_calls(seeds: Iterable[int], *, faults: Faults | None = None) -> Report:
    """Simulate generated calls, one for each seed."""
    report = Report()
    with alone():
        for seed in seeds:
            _run_seed(report, seed, generate_call(seed), faults or Faults())
    return report


def replay_call(seed: int, *, faults: Faults | None = None) -> list[str]:
    """Return all events of a generated call, one line each."""
    with alone():
        calm = CallLife(seed, generate_call(seed), None).travel()
        life = CallLife(seed, generate_call(seed), faults or Faults())
        try:
            life.travel(steps_hint=calm.steps)
        except Exception as error:
            life.world.note(0, f"{type(error).__name__}: {error}")
    return life.world.trace


def _run_seed(report: Report, seed: int, plan: CallPlan, faults: Faults) -> None:
    calm, life = CallLife(seed, plan, None), CallLife(seed, plan, faults)
    for one, when in ((calm, "even in the calm call, "), (life, "")):
        try:
            one.travel(steps_hint=calm.steps)
        except CannotSimulate:
            raise
        except (Unrecovered, Exception) as error:
            told = [*one.world.broken, f"{when}{type(error).__name__}: {error}"]
            raise SimulationFailed(seed, told, one.world.trace) from error
        broken = [f"{when}{problem}" for problem in one.problems()]
        if broken:
            raise SimulationFailed(seed, broken, one.world.trace)
    report.seeds += 1
    report.runs += life.lives
    report.happened += life.world.happened
    report.digests[seed] = life.world.digest


# --- generated calls -------------------------------------------------------------------------------------------------


def generate_call(seed: int) -> CallPlan:
    """Generate a call: spoken and typed messages, with wishes in them, and sometimes an interruption."""
    chance = random.Random(f"call {seed}")
    acts: list[Act] = []
    for number in range(chance.randrange(2, 6)):
        kind = chance.choice(("say", "say", "type"))
        words = [f"{kind[0]}{number}{letter}" for letter in "abc"[: chance.randrange(1, 3)]]
        if chance.random() < 0.6:
            words.append(f"{chance.choice(('book', 'pay', 'ask'))}:{number}")
        acts.append(Act("say" if kind == "say" else "type", " ".join(words)))
        if chance.random() < 0.3:
            acts.append(Act("interrupt"))
        if chance.random() < 0.7:
            acts.append(Act("wait"))
    detection = {**DETECTION, "interrupt_response": chance.random() < 0.8}
    return CallPlan(_agent, answer, acts, lambda world, one: world.chance.random() < 0.7, {"turn_detection": detection})


def answer(asked: Asked) -> Answer:
    """Answer like a sensible model: a call for each unserved wish, else a few words."""
    wanted = [
        word for item in asked.context if item.get("role") == "user" for word in text_of(item).split() if ":" in word
    ]
    made = {json.loads(item["arguments"])["wish"] for item in asked.context if _is_whole_call(item)}
    wishes = [wish for wish in dict.fromkeys(wanted) if wish not in made]
    if not wishes:
        return f"w{len(asked.context)} and so on"
    return [call(wish.partition(":")[0], {"wish": wish}) for wish in wishes[:3]]


def _is_whole_call(item: Item) -> bool:
    return bool(item.get("type") == "function_call" and item.get("status") != "incomplete")


def _agent(world: World) -> RealtimeAgent[Any]:
    def serve(wish: str) -> str:
        """Do what was asked for."""
        return f"did {wish}"

    tools = [function_tool(serve, name_override=name, needs_approval=name == "book") for name in ("book", "pay", "ask")]
    return RealtimeAgent(name="Desk", instructions="Serve wishes.", tools=list(tools))
