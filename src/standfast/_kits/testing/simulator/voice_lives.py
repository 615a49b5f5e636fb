"""Simulated voice calls by seed: lost connections, crashed processes, failing stores, interruptions.

Everything is the real thing except the service, the store and time. The invariants at the end: no tool ran twice or
after its rejection, no acknowledged message is lost or doubled, no speech is stored twice, calls have their outputs,
and the service's conversation and the session are equal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from standfast._kits.testing.loopback.answers import Rule
from standfast._kits.testing.realtime.answering import Answering, Habits
from standfast._kits.testing.realtime.audio import BYTES_PER_MS, silence
from standfast._kits.testing.realtime.speech import tones
from standfast._kits.testing.script import assistant_message
from standfast._kits.testing.scripted_model import ScriptedModel
from standfast._kits.testing.simulator.line import Service, SimulatedLine
from standfast._kits.testing.simulator.loop import Crashed, VirtualLoop, run, virtualize
from standfast._kits.testing.simulator.parts import SimulatedSession, simulated_tools
from standfast._kits.testing.simulator.text_lives import ATTEMPT_COUNT_MAX, Unrecovered
from standfast._kits.testing.simulator.world import Died, Faults, Process, World, invalid
from standfast._src.agents.agent import Agent
from standfast._src.agents.run_config import RunConfig
from standfast._src.base.errors import (
    ConnectionLostError,
    NotFoundError,
    RealtimeStateError,
    RunClaimedError,
    StoreError,
)
from standfast._src.base.json_values import Item
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.machine.voice_call import SPEECH
from standfast._src.realtime.runner import RealtimeRunner
from standfast._src.runs.api.runner import Runner
from standfast._src.sessions.backends.memory.memory_session import InMemorySession

if TYPE_CHECKING:
    from standfast._src.realtime.session.voice_session import RealtimeSession

SESSION_ID = "caller"
PIECE_MS = 100
REST_S = 15.0
"""Seconds of a quiet moment: longer than anything a session waits for by itself."""

ROUNDS_MAX = 40
EXCUSED = {
    "conversation_already_has_active_response",
    "response_cancel_not_active",
    "item_create_duplicate_item_id",
}
"""Refusals of a service that its client could not avoid."""


OUTSIDE = (StoreError, ConnectionError, TimeoutError, ConnectionLostError, RealtimeStateError, RunClaimedError)
"""External failures that a program must expect; after each of them it must be possible to continue."""


@dataclass(frozen=True, slots=True)
class Act:
    """Something a caller does: says or types words, interrupts, or waits for an answer."""

    kind: Literal["say", "type", "interrupt", "wait"]
    words: str = ""


@dataclass(frozen=True, slots=True)
class CallPlan:
    """Plan of a call: the agent, the model's rule, the caller's actions, and the decisions."""

    agent: Callable[[World], RealtimeAgent[Any]]
    rule: Rule
    acts: Sequence[Act]
    decide: Callable[[World, Any], bool]
    settings: Any = None


class CallLife:
    """Simulation of a call in a world."""

    def __init__(self, seed: int, plan: CallPlan, faults: Faults | None) -> None:
        self.plan, self.world = plan, World(seed, faults)
        chance = self.world.chance
        habits = Habits()
        if faults is not None:
            habits = Habits(
                names_refused_response=chance.random() < 0.5,
                echoes_metadata=chance.random() < 0.8,
                transcribes=chance.choice(("at once", "after the reply")),
            )
        self.service = Service(Answering(plan.rule, habits=habits))
        self.steps = self.lives = self.written = 0
        self.acknowledged: list[str] = []
        self.attempted: list[str] = []
        self.said: list[str] = []
        self.refused: set[str] = set()
        """Ids of calls that a person has rejected."""
        self._at = self._attempts = self._number = 0
        self._over = False

    def travel(self, *, steps_hint: int = 0) -> CallLife:
        """Live to the end; `steps_hint` is how long a calm life takes."""
        world = self.world
        with virtualize(world.clock, world.chance):
            while not self._over:
                self.lives += 1
                loop = VirtualLoop(world.clock, world.chance if world.faults is not None else None)
                loop.set_exception_handler(self._unheard)
                if world.faults is not None and world.strikes(world.faults.crash, "crashes"):
                    loop.crash_at = world.chance.randrange(max(50, int(steps_hint * 1.2)))
                process = world.process()
                try:
                    run(loop, self._live(process))
                except Crashed:
                    world.note(process.number, "crash")
                finally:
                    self.steps += loop.step_count
                    process.alive = False
                    loop.bury()
                world.clock.advance(world.chance.choice((0.0, 1.0, 20.0)) if world.faults else 0.0)
        return self

    def _unheard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Died):
            self.world.require(False, f"nobody heard of {context.get('message')}: {error!r}")

    # --- one process -------------------------------------------------------------------------------------------------

    async def _live(self, process: Process) -> None:
        """Call, or continue the call; repeat after an external failure."""
        while not self._over:
            self._attempts += 1
            if self._attempts > ATTEMPT_COUNT_MAX:
                raise Unrecovered(f"the call did not end in {ATTEMPT_COUNT_MAX} attempts")
            before = set(asyncio.all_tasks())
            try:
                await self._write(process)
                await self._talk(process)
            except NotFoundError as error:
                # It was closed, which hangs up: to continue, the caller calls again, on the same session.
                process.note(f"hung up: {error}")
                self._number += 1
            except OUTSIDE as error:
                process.note(f"trouble: {type(error).__name__}: {error}")
                await asyncio.sleep(1.0)
            await asyncio.sleep(0)
            if not process.alive:
                return  # it is being buried
            left = {task for task in asyncio.all_tasks() - before if not task.done()}
            self.world.require(not left, f"tasks are left after the call was closed: {left}")

    async def _write(self, process: Process) -> None:
        """Sometimes run a text message on the session of a call that lost its worker, before its takeover (C15)."""
        world = self.world
        if self.lives < 2 or world.faults is None or not world.strikes(0.4, "text runs between"):
            return
        self.written += 1
        words = f"x{self.written}"
        self.attempted.append(words)
        agent: Agent[Any] = Agent(name="Writer", model=ScriptedModel([[assistant_message(f"re {words}")]]))
        config = RunConfig(lease_ttl_s=5.0, lease_wait_s=400.0, tracing_disabled=True, run_id=f"text-{words}")
        await Runner.run(agent, words, session=SimulatedSession(process, SESSION_ID), run_config=config)
        self.acknowledged.append(words)

    async def _talk(self, process: Process) -> None:
        agent = simulated_tools(process, self.plan.agent(self.world))
        config: Any = {"lease_ttl_s": 5.0, "lease_wait_s": 400.0, "tracing_disabled": True}
        config["reconnect"] = {"enabled": True, "max_attempts": 50}
        runner = RealtimeRunner(agent, model=SimulatedLine(process, self.service), config=config)
        options: Any = {"initial_model_settings": self.plan.settings or {}}
        session = SimulatedSession(process, SESSION_ID)
        live = await runner.run(model_config=options, session=session, run_id=f"call-{self._number}")
        try:
            await live.enter()
            reading = asyncio.get_running_loop().create_task(self._read(live))
            try:
                while self._at < len(self.plan.acts):
                    act = self.plan.acts[self._at]
                    self._at += 1
                    await self._attempt(process, live, self._act(live, act))
                    await self._attempt(process, live, self._decide(live))
                await self._rest(process, live)
            finally:
                reading.cancel()
                await asyncio.wait([reading])
        finally:
            await live.close()
        self._over = True

    async def _attempt(self, process: Process, live: RealtimeSession, doing: Coroutine[Any, Any, None]) -> None:
        """Do something that a store may refuse: after a refusal the caller keeps talking."""
        try:
            await doing
        except OUTSIDE as error:
            process.note(f"refused: {type(error).__name__}: {error}")
            if live.state not in ("open", "reconnecting"):
                raise

    async def _read(self, live: RealtimeSession) -> None:
        async for _ in live:
            pass

    async def _act(self, live: RealtimeSession, act: Act) -> None:
        match act.kind:
            case "say":
                self.said.append(act.words)
                self.service.answering.ears.learn(act.words, tones(act.words))
                data = tones(act.words) + silence(800)
                for start in range(0, len(data), PIECE_MS * BYTES_PER_MS):
                    await live.send_audio(data[start : start + PIECE_MS * BYTES_PER_MS])
                    await asyncio.sleep(PIECE_MS / 1000)
            case "type":
                self.attempted.append(act.words)
                await live.send_message(act.words)
                self.acknowledged.append(act.words)
            case "interrupt":
                await live.interrupt()
            case "wait":
                await asyncio.sleep(5.0)

    async def _decide(self, live: RealtimeSession) -> None:
        """Decide about waiting calls. A rejection is final, whatever became of it."""
        for waiting in list(live.pending_approvals):
            if waiting.call_id in self.refused or not self.plan.decide(self.world, waiting):
                self.refused.add(waiting.call_id)
                await live.reject_tool_call(waiting.call_id)
            else:
                await live.approve_tool_call(waiting.call_id)

    async def _rest(self, process: Process, live: RealtimeSession) -> None:
        """Wait for the end of all work under way; then service and session must be equal."""
        told: tuple[Any, Any] = ((), ())
        quiet = 0
        for _ in range(ROUNDS_MAX):
            await asyncio.sleep(REST_S)
            process.check_alive()  # the state of a dead process does not matter
            told = self._server_says(), messages(self.items())
            at_rest = not live.pending_approvals and not self.service.busy and live.state == "open"
            quiet = quiet + 1 if at_rest and told[0] == told[1] else 0
            if quiet == 2:
                return
            await self._attempt(process, live, self._decide(live))
        if live.state == "closed":
            raise ConnectionLostError("the session has ended", "Call again.")
        waits = [one.call_id for one in live.pending_approvals]
        self.world.require(False, f"no rest: {live.state}, waits {waits}\n  service {told[0]}\n  session {told[1]}")

    # --- afterwards --------------------------------------------------------------------------------------------------

    def items(self) -> list[Item]:
        """Return the session's items."""
        work = InMemorySession(SESSION_ID, store=self.world.store).get_items()
        try:
            work.send(None)
        except StopIteration as stop:
            found: list[Item] = stop.value
            return found
        raise AssertionError("an in-memory session waits")

    def _server_says(self) -> list[tuple[str, str]]:
        known = {words for _, words in messages(self.items())}
        said = [(role, words) for role, words in self.service.conversations[-1].said() if role != "system"]
        return [(role, words if words in known or role != "user" else SPEECH) for role, words in said]

    def _is_unanswered(self, items: Sequence[Item]) -> bool:
        """Return whether the caller's last words got no answer.

        False if the caller interrupted after them, or a worker crashed: the audio of a crashed worker was not heard.
        """
        done = [act for act in self.plan.acts if act.kind != "wait"]
        if not done or done[-1].kind == "interrupt" or self.world.happened["crashes"]:
            return False
        told = messages(items)
        places = [place for place, (role, words) in enumerate(told) if (role, words) == ("user", done[-1].words)]
        return bool(places) and all(role != "assistant" for role, _ in told[places[-1] :])

    def problems(self) -> list[str]:
        """Return all broken promises."""
        items, broken = self.items(), list(self.world.broken)
        users = [words for role, words in messages(items) if role == "user"]
        broken += [
            f"{text!r} is there {users.count(text)} times" for text in self.acknowledged if users.count(text) != 1
        ]
        broken += [f"{text!r} is there twice" for text in {*self.attempted, *self.said} if users.count(text) > 1]
        if self.world.faults is None:
            broken += [f"{words!r} was said and is not there" for words in self.said if words not in users]
        broken += [f"{name} ran {count} times" for name, count in self.world.executed.items() if count > 1]
        answered = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
        for name in self.world.executed:
            call_id = name.rpartition(":")[2]
            if call_id not in answered:
                broken.append(f"{name} ran, and the history does not know")
            if call_id in self.refused:
                broken.append(f"{name} ran after it was rejected")
        problem = invalid(items)
        if problem is not None:
            broken.append(f"the history is not valid: {problem}")
        if self._is_unanswered(items):
            broken.append("the last words were never answered")
        unexcused = set(self.service.refused) - EXCUSED
        if unexcused:
            broken.append(f"the service refused: {sorted(unexcused)}")
        return broken


def messages(items: Sequence[Item]) -> list[tuple[str, str]]:
    """Role and words of every message."""
    found = []
    for item in items:
        if item.get("type", "message") != "message":
            continue
        content = item["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        found.append((item["role"], " ".join(str(part.get("text") or "") for part in parts).strip()))
    return found
