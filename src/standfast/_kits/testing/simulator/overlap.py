"""Simulation of overlapping messages: several runs of one session at the same time, in flight, paused or crashed.

Every message comes from a process of its own, which may be killed or suspended at any step. Its model requests the
calls of its script that it does not see answered yet, anywhere, so a call that is hidden from it is made again. One
rule is checked (C15): every effect of a tool is in the next model's input, once, with its output or with the statement
that its outcome is unknown; at the end, in the history too. With `unfinished="ignore"` only the end is checked.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from standfast._kits.testing.answering_model import AnsweringModel
from standfast._kits.testing.script import ModelCall, function_call
from standfast._kits.testing.simulator.loop import VirtualLoop, run, virtualize
from standfast._kits.testing.simulator.parts import SimulatedSession, simulate_agent
from standfast._kits.testing.simulator.simulate import Report, SimulationFailed, alone
from standfast._kits.testing.simulator.text_lives import LEASE_TTL_S, LEASE_WAIT_S, SESSION_ID
from standfast._kits.testing.simulator.world import Died, Faults, Process, World, invalid
from standfast._src.agents.agent import Agent
from standfast._src.agents.run_config import RunConfig
from standfast._src.base.errors import (
    LeaseLostError,
    RunClaimedError,
    RunStateError,
    SessionBusyError,
    StoreError,
    UnfinishedRunError,
)
from standfast._src.base.json_values import Item
from standfast._src.runs.api.runner import Runner
from standfast._src.sessions.backends.memory.memory_session import InMemorySession
from standfast._src.tools.function_tool import FunctionTool

if TYPE_CHECKING:
    from standfast._src.agents.context import RunContextWrapper
    from standfast._src.agents.tool_context import ToolContext
    from standfast._src.sessions.protocol import Session

__all__ = ["POLICIES", "replay_overlap", "simulate_overlaps"]

Policy = Literal["settle", "refuse", "ignore"]
POLICIES: tuple[Policy, ...] = ("settle", "settle", "refuse", "ignore")

T = TypeVar("T")

ATTEMPT_COUNT_MAX = 12
TROUBLE = (StoreError, ConnectionError, TimeoutError, LeaseLostError, SessionBusyError, RunClaimedError)
"""External failures that a sender must expect; it tries again under its run's id."""

_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a script; `asks` if it needs an approval."""

    id: str
    asks: bool


@dataclass(frozen=True, slots=True)
class Message:
    """A user's message: its time, and the calls of its model, turn by turn."""

    name: str
    after_s: float
    turns: tuple[tuple[Call, ...], ...]


def simulate_overlaps(seeds: Iterable[int], *, faults: Faults | None = None) -> Report:
    """Let messages overlap on one session, once for each seed; raises SimulationFailed at the first broken promise."""
    report = Report()
    with alone():
        for seed in seeds:
            life = Overlap(seed, faults or Faults())
            broken = life.broken()
            if broken:
                raise SimulationFailed(seed, broken, life.world.trace)
            report.seeds += 1
            report.runs += len(life.messages)
            report.happened += life.world.happened
            report.digests[seed] = life.world.digest
    return report


def replay_overlap(seed: int, *, faults: Faults | None = None) -> list[str]:
    """Return all events of a seed, one line each."""
    with alone():
        life = Overlap(seed, faults or Faults())
        life.broken()
    return life.world.trace


class Overlap:
    """A session with some messages, and their outcome."""

    def __init__(self, seed: int, faults: Faults) -> None:
        self.world = World(seed, faults)
        self.policy: Policy = POLICIES[seed % len(POLICIES)]
        self.messages = self._script()
        self.acts: list[str] = []
        """Every call that really began to act, in the order of the world."""

    def broken(self) -> list[str]:
        """Run the simulation to its end; return the broken promises."""
        world = self.world
        with virtualize(world.clock, world.chance):
            loop = VirtualLoop(world.clock, world.chance)
            loop.set_exception_handler(self._unheard)
            try:
                run(loop, self._live(loop))
            except Exception as error:
                world.require(False, f"{type(error).__name__}: {error}")
            finally:
                loop.bury()
        return world.broken

    def _script(self) -> list[Message]:
        chance = self.world.chance
        found = []
        for number in range(chance.choice((2, 3, 3, 4))):
            turns = tuple(
                tuple(
                    Call(f"m{number}.{turn}.{place}", asks=chance.random() < 0.3)
                    for place in range(chance.choice((1, 1, 2)))
                )
                for turn in range(chance.choice((0, 1, 1, 2)))
            )
            after_s = 0.0 if not number else chance.choice((0.0, 0.003, 0.02, 0.1, 1.0, LEASE_TTL_S + 1))
            found.append(Message(f"m{number}", after_s, turns))
        return found

    def _unheard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Died | asyncio.CancelledError):
            self.world.require(False, f"nobody heard of {context.get('message')}: {error!r}")

    # --- living ------------------------------------------------------------------------------------------------------

    async def _live(self, loop: VirtualLoop) -> None:
        world = self.world
        senders = [(world.process(), message) for message in self.messages]
        for process, _ in senders:
            self._plan_trouble(loop, process)
        await asyncio.gather(*(self._send(process, message) for process, message in senders))
        world.trouble_left = 0
        await self._settle_down()
        self._check_end()

    def _plan_trouble(self, loop: VirtualLoop, process: Process) -> None:
        world = self.world
        assert world.faults is not None
        if world.strikes(world.faults.crash, "crashes"):
            loop.at_step[world.chance.randrange(5, 400)] = lambda: self._kill(process)
        elif world.strikes(world.faults.freeze, "frozen processes"):
            loop.at_step[world.chance.randrange(5, 400)] = lambda: self._freeze(process)

    def _kill(self, process: Process) -> None:
        process.alive = False
        process.note("is killed")

    def _freeze(self, process: Process) -> None:
        process.frozen_until = self.world.clock.now + self.world.chance.choice((1.0, 15.0, 60.0))
        process.note("freezes")

    async def _send(self, process: Process, message: Message) -> None:
        """Send a message until it is answered or refused, or its sender has crashed."""
        await asyncio.sleep(message.after_s)
        try:
            for _ in range(ATTEMPT_COUNT_MAX):
                if await self._attempt(process, message):
                    return
                await asyncio.sleep(1.0)
        except Died:
            process.note("is dead")

    async def _attempt(self, process: Process, message: Message) -> bool:
        session = SimulatedSession(process, SESSION_ID)
        config = _config(message.name, self.policy)
        try:
            process.note(f"sends {message.name}")
            result = await Runner.run(self._agent(process, message), message.name, session=session, run_config=config)
        except UnfinishedRunError:
            self.world.require(self.policy == "refuse", f"{message.name} was refused though the policy is not to")
            self.world.happened["messages refused"] += 1
            return True
        except RunStateError as error:
            process.note(f"{message.name} is over: {error}")
            return True
        except TROUBLE as error:
            process.note(f"trouble: {type(error).__name__}")
            return False
        process.note(f"{message.name}: {'waits' if result.interruptions else 'answered'}")
        self.world.happened["messages paused" if result.interruptions else "messages answered"] += 1
        return True

    def _agent(self, process: Process, message: Message | None) -> Agent[Any]:
        """Build the agent of a message; None: an agent without calls."""

        async def act(context: ToolContext[Any], arguments: str) -> str:
            self.acts.append(context.tool_call_id)
            return f"did {context.tool_call_id}"

        asking = {call.id for message in self.messages for turn in message.turns for call in turn if call.asks}

        async def asks(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
            return call_id in asking

        tool = FunctionTool("act", "Act.", _PARAMETERS, act, needs_approval=asks)
        model = AnsweringModel(lambda asked: self._answer(process, message, asked))
        return simulate_agent(process, Agent(name="A", tools=[tool], model=model), str)

    def _answer(self, process: Process, message: Message | None, asked: ModelCall) -> str | list[Item]:
        seen: list[Item] = asked.input if isinstance(asked.input, list) else []
        # One that stood still may ask about a past that has gone on without it; what it is told is refused later.
        if self.policy != "ignore" and not process.frozen_until:
            self._check_sees_all(seen, f"the model of {message.name if message else 'the last message'}")
        answered = {item["call_id"] for item in seen if item.get("type") == "function_call_output"}
        for turn in message.turns if message is not None else ():
            missing = [call for call in turn if call.id not in answered]
            if missing:
                return [function_call("act", {}, call_id=call.id) for call in missing]
        return f"re {message.name}" if message is not None else "the end"

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _settle_down(self) -> None:
        """Decide all waiting calls and send further messages, until nothing is left open."""
        await asyncio.sleep(LEASE_TTL_S * 8)  # every suspended process has continued by now
        process = self.world.process()
        session = SimulatedSession(process, SESSION_ID)
        await self._decide_all(process, session)
        self.policy = "settle"
        for _ in range(len(self.messages) + 1):
            speaks = self._agent(process, None)
            result = await Runner.run(speaks, "last", session=session, run_config=_config(None, self.policy))
            if not result.unfinished:
                return
            # A run that was gone may have left a call that waits: settled, it is paused, and can be decided now.
            await self._decide_all(process, session)
        self.world.require(False, "something stays unfinished, however often it is decided")

    async def _decide_all(self, process: Process, session: Session) -> None:
        waiting, _ = await Runner.list_runs(session=session, status="paused")
        for message in self.messages:
            if message.name not in {one.run_id for one in waiting}:
                continue
            agent = self._agent(process, message)
            state = await Runner.load(agent, message.name, session=session)
            for item in state.get_interruptions():
                (state.approve if self.world.chance.random() < 0.7 else state.reject)(item)
            process.note(f"decides {message.name}")
            result = await Runner.run(agent, state, session=session, run_config=_config(None, "settle"))
            if result.interruptions:
                await Runner.cancel_run(agent, message.name, session=session)

    def _check_end(self) -> None:
        history = _now(InMemorySession(SESSION_ID, store=self.world.store).get_items())
        self._check_sees_all(history, "the history")
        problem = invalid(history)
        self.world.require(problem is None, f"the history is not valid: {problem}")
        for call_id, count in Counter(self.acts).items():
            self.world.require(count == 1, f"{call_id} ran {count} times")
        self.world.happened["effects"] += len(self.acts)

    def _check_sees_all(self, items: Sequence[Item], who: str) -> None:
        calls = Counter(item["call_id"] for item in items if item.get("type") == "function_call")
        outputs = Counter(item["call_id"] for item in items if item.get("type") == "function_call_output")
        for call_id in dict.fromkeys(self.acts):
            told = (calls[call_id], outputs[call_id])
            self.world.require(told == (1, 1), f"{call_id} has run, and {who} sees {told[0]} calls, {told[1]} outputs")


def _config(run_id: str | None, policy: Policy) -> RunConfig:
    return RunConfig(
        run_id=run_id,
        unfinished=policy,
        lease_ttl_s=LEASE_TTL_S,
        lease_wait_s=LEASE_WAIT_S,
        tracing_disabled=True,
    )


def _now(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("it waits")
