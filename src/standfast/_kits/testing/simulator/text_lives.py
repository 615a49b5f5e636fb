"""A simulated program: a few runs in one conversation, under all possible faults.

The person behind the program knows little: which input is being worked on, and, in the process where it happened, the
error or the paused state. In a new process they know only the run's id. From there every documented way to continue is
tried, chosen by chance: running again under the same id, resuming by id, resuming the state of an error or of a pause
(through JSON or not), streamed or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from standfast._kits.testing.simulator.loop import Crashed, VirtualLoop, run, virtualize
from standfast._kits.testing.simulator.parts import SimulatedPlainSession, SimulatedSession, simulate_agent
from standfast._kits.testing.simulator.scripts import remove_salt
from standfast._kits.testing.simulator.world import Died, Faults, Process, World
from standfast._src.agents.run_config import RunConfig
from standfast._src.base.errors import GuardrailTripped, MaxTurnsExceeded, NotFoundError, RunStateError, StoreError
from standfast._src.base.json_values import Item
from standfast._src.runs.api.run_state import RunState
from standfast._src.runs.api.runner import Runner
from standfast._src.runs.loop.agent_graph import AgentGraph
from standfast._src.sessions.backends.memory.memory_session import InMemorySession

if TYPE_CHECKING:
    from standfast._src.agents.agent import Agent
    from standfast._src.items.items import RunItem
    from standfast._src.runs.loop.result import RunResultBase
    from standfast._src.runs.loop.streamed_result import RunResultStreaming
    from standfast._src.sessions.protocol import Session

Kind = Literal["saved", "adopted", "plain"]
"""Storage of the conversation: a session with a run store, one without (runs are found again by their items), or a
foreign session."""

T = TypeVar("T")

SESSION_ID = "conversation"
ATTEMPT_COUNT_MAX = 60
# A run that is left in peace needs one attempt, and one for each pause; whatever still fails after so many, fails.

LEASE_TTL_S = 10.0
LEASE_WAIT_S = 400.0

TROUBLE = (StoreError, ConnectionError, TimeoutError, asyncio.CancelledError)
"""External failures that a program must expect; after each of them it must be possible to continue."""


class Unrecovered(Exception):
    """A run did not end although no fault was left, or ended in an unexplained way."""


@dataclass
class Outcome:
    """Outcome of a run."""

    run_id: str
    error: str | None = None
    output: Any = None
    items: list[Item] = field(default_factory=list)
    agent: str | None = None
    tokens: int = 0
    tokens_told: int = 0
    torn: bool = False
    """Only its end is known."""
    troubled: bool = False
    """A fault occurred, so that a turn may have been cut short."""


@dataclass
class Wish:
    """Task of a program, across crashes: these runs, with agents that `factory` builds in any process."""

    factory: Callable[[World], Any]
    inputs: list[Any]
    decide: Callable[[Any], None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "saved"


class Journey:
    """Execution of a task in a world."""

    def __init__(self, seed: int, wish: Wish, faults: Faults | None) -> None:
        self.wish = wish
        self.world = World(seed, faults)
        self.outcomes: list[Outcome] = []
        self.unknown: set[str] = set()
        """Calls about which a person had to decide without knowing whether they had run."""
        self.steps = 0
        self._attempts = 0
        self._tried = self._troubled = False
        self._known: Any = None
        self.process: Process | None = None
        """The one that works on the input now; None before the first."""
        self._handover = asyncio.Event()
        self._under_way: Any = None
        self._lives: list[Process] = []
        self._crash = 0.0 if faults is None or wish.kind == "plain" else faults.crash

    @property
    def at(self) -> int:
        """Number of the current input."""
        return len(self.outcomes)

    def travel(self, *, steps_hint: int = 0) -> Journey:
        """Live to the end; `steps_hint` is how long a calm life takes."""
        world = self.world
        with virtualize(world.clock, world.chance):
            while self.at < len(self.wish.inputs):
                loop = VirtualLoop(world.clock, world.chance if world.faults is not None else None)
                loop.set_exception_handler(self._unheard)
                self._handover = asyncio.Event()
                if world.faults is not None and world.strikes(self._crash, "crashes"):
                    loop.crash_at = world.chance.randrange(max(20, int(steps_hint * 1.2)))
                if world.faults is not None and steps_hint:
                    self._plan_trouble(loop, world.faults, steps_hint)
                self._lives = []
                try:
                    run(loop, self._supervise(loop))
                except Crashed:
                    world.note(0, "crash")
                finally:
                    self.steps += loop.step_count
                    self._end(loop)
                world.clock.advance(world.chance.choice((0.0, 1.0, LEASE_TTL_S * 2)) if world.faults else 0.0)
        return self

    # --- trouble -----------------------------------------------------------------------------------------------------

    def _plan_trouble(self, loop: VirtualLoop, faults: Faults, steps: int) -> None:
        world = self.world
        if world.strikes(faults.cancel, "cancellations"):
            how = world.chance.choice(("task", "inside", "immediate", "after_turn"))
            loop.at_step[world.chance.randrange(1, steps + 20)] = lambda: self._cancel(how)
        if self.wish.kind == "saved" and world.strikes(faults.freeze, "frozen processes"):
            loop.at_step[world.chance.randrange(1, steps + 20)] = self._freeze

    def _cancel(self, how: str) -> None:
        target = self._under_way
        if target is None:
            return
        watcher, result = target
        self._troubled = True
        self.world.note(0, f"cancel ({how})")
        if result is None or how == "task":
            watcher.cancel()
        elif how == "inside":
            result.run_loop_task.cancel()
        else:
            result.cancel(how)

    def _freeze(self) -> None:
        process = self.process
        if process is not None:
            process.frozen_until = self.world.clock.now + self.world.chance.choice((1.0, 15.0, 60.0))
            self.world.note(process.number, "freezes")
            self._handover.set()

    def _unheard(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Died):
            self.world.require(False, f"nobody heard of {context.get('message')}: {error!r}")

    def _end(self, loop: VirtualLoop) -> None:
        self._troubled = True
        for process in self._lives:
            process.alive = False
        loop.bury()
        self._known = self._under_way = None

    # --- processes ---------------------------------------------------------------------------------------------------

    async def _supervise(self, loop: VirtualLoop) -> None:
        """Run a process and, while it is suspended, a second one that takes over."""
        tasks: list[asyncio.Task[None]] = []
        while self.at < len(self.wish.inputs):
            self.process = self.world.process()
            self._lives.append(self.process)
            self._known = None
            tasks.append(loop.create_task(self._live(self.process)))
            waiting = loop.create_task(self._handover.wait())
            await asyncio.wait([tasks[-1], waiting], return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            self._handover.clear()
            if tasks[-1].done():
                tasks[-1].result()
        await asyncio.gather(*tasks)  # a process that stood still goes on; what it does must not matter any more

    async def _live(self, process: Process) -> None:
        agent = simulate_agent(process, self.wish.factory(self.world), remove_salt)
        while self.at < len(self.wish.inputs) and process is self.process:
            number = self.at
            self._attempts += 1
            if self._attempts > ATTEMPT_COUNT_MAX:
                raise Unrecovered(f"run {number} did not end in {ATTEMPT_COUNT_MAX} attempts")
            ended = await self._attempt(process, agent, number)
            if ended is not None and process is self.process:
                process.note(f"run {number} ended: {ended.error or ended.output!r}")
                ended.troubled = self._troubled
                self.outcomes.append(ended)
                self._attempts, self._known = 0, None
                self._tried = self._troubled = False

    async def _attempt(self, process: Process, agent: Agent[Any], number: int) -> Outcome | None:
        """Try to bring a run to its end; return None to try again."""
        run_id, quiet = f"run-{number}", self.world.trouble_left <= 0
        session = self._session(process)
        try:
            result = await self._go(process, agent, session, number, run_id)
        except (GuardrailTripped, MaxTurnsExceeded) as error:
            return Outcome(run_id, error=type(error).__name__, items=_inputs_of(error.run_data.new_items))
        except (NotFoundError, RunStateError) as error:
            process.note(f"cannot be resumed: {type(error).__name__}")
            if process.way == "run" or self.wish.kind == "plain":
                # Not even by running it again: it has ended, and who saw it end is not there any more.
                return Outcome(run_id, torn=True)
            self._tried, self._known = False, None
            return None
        except TROUBLE as error:
            process.note(f"trouble: {type(error).__name__}")
            self._troubled = True
            if quiet and self._attempts > ATTEMPT_COUNT_MAX // 2:
                raise Unrecovered(f"run {number} fails though nothing goes wrong: {error!r}") from error
            state = getattr(error, "run_state", None) or process.held
            if process is self.process:
                self._tried, self._known = True, state
            if self.wish.kind == "plain" and state is not None and state.status == "done":
                return Outcome(run_id, torn=True)  # it was stopped after its last step; its result is unavailable
            await asyncio.sleep(1.0)
            return None
        finally:
            self._under_way = None
        if process is not self.process:
            return None
        state = result.to_state()
        self._tried = True
        if state.status == "done":
            return self._build_outcome(run_id, result)
        self._known = await self._decide(process, agent, state, result)
        return None

    def _build_outcome(self, run_id: str, result: RunResultBase[Any]) -> Outcome:
        usage = result.context_wrapper.usage
        told = sum(response.usage.total_tokens for response in result.raw_responses)
        items = _inputs_of(result.new_items)
        return Outcome(run_id, None, result.final_output, items, result.last_agent.name, usage.total_tokens, told)

    async def _decide(
        self, process: Process, agent: Agent[Any], state: RunState[Any], result: RunResultBase[Any]
    ) -> RunState[Any]:
        """Return the state to continue with, after a person's decisions."""
        waiting = result.interruptions
        if self.world.chance.random() < 0.5:
            state = await RunState.from_string(agent, state.to_string())
        if waiting and self.wish.decide is not None:
            # A question about a call of unknown outcome may be decided in any way.
            asking = _asking_when_unknown(agent)
            self.unknown |= {remove_salt(item.call_id or "") for item in waiting if item.tool_name in asking}
            self.wish.decide(state)
        elif waiting:
            raise Unrecovered(f"run {self.at} waits for a person; give simulate(decide=...) to say what they do")
        return state

    # --- ways on -----------------------------------------------------------------------------------------------------

    def _session(self, process: Process) -> Session:
        if self.wish.kind == "plain":
            return self._plain_of(process)
        return SimulatedSession(process, SESSION_ID)

    def _plain_of(self, process: Process) -> Session:
        # What the adapter knows of a plain session it knows of the object: a program keeps it.
        session = getattr(process, "plain_session", None)
        if session is None:
            session = SimulatedPlainSession(process, SESSION_ID)
            process.plain_session = session  # type: ignore[attr-defined]  # kept beside the process it belongs to
        return session

    async def _go(
        self, process: Process, agent: Agent[Any], session: Session, number: int, run_id: str
    ) -> RunResultBase[Any]:
        chance = self.world.chance
        given: Any = self.wish.inputs[number]
        way = "run"
        if self._tried:
            ways = {"saved": ["run", "resume"], "adopted": ["run"], "plain": []}[self.wish.kind]
            if self._known is not None:
                ways = [*ways, "state"]
            way = chance.choice(ways or ["run"])
        process.way = way
        streamed = chance.random() < 0.5
        config = self._config(run_id if way == "run" else None)
        process.note(f"{way} {run_id}{' streamed' if streamed else ''}")
        if way == "resume":
            if not streamed:
                return await self._await_under_way(Runner.resume(agent, run_id, session=session, run_config=config))
            given = await Runner.load(agent, run_id, session=session)
        elif way == "state":
            given = self._known
        process.held = given if way == "state" else None
        self._known = None
        options = dict(self.wish.options)
        if not streamed:
            return await self._await_under_way(Runner.run(agent, given, session=session, run_config=config, **options))
        result = Runner.run_streamed(agent, given, session=session, run_config=config, **options)
        try:
            return await self._await_under_way(_to_the_end(result), result)
        except asyncio.CancelledError as error:
            if result.run_loop_task is not None:
                await asyncio.wait([result.run_loop_task])  # it stores what its tools did before it lets go
            if not hasattr(error, "run_state"):
                error.run_state = result.to_state()  # type: ignore[attr-defined]  # as other errors carry it
            raise

    async def _await_under_way(self, work: Awaitable[T], result: RunResultStreaming | None = None) -> T:
        task = asyncio.ensure_future(work)
        self._under_way = (task, result)
        try:
            return await task
        finally:
            if not task.done():
                task.cancel()

    def _config(self, run_id: str | None) -> RunConfig:
        return RunConfig(
            run_id=run_id,
            save="never" if self.wish.kind == "adopted" else "auto",
            lease_ttl_s=LEASE_TTL_S,
            lease_wait_s=LEASE_WAIT_S,
            tracing_disabled=True,
        )

    # --- afterwards --------------------------------------------------------------------------------------------------

    def history(self) -> list[Item]:
        """Return the session's items at the end."""
        if self.wish.kind == "plain":
            return list(self.world.plain.get(SESSION_ID, ()))
        items: list[Item] = _now(InMemorySession(SESSION_ID, store=self.world.store).get_items())
        return items

    def written(self, run_id: str) -> list[Item]:
        """Return the session's items of a run, if it can tell."""
        items: list[Item] = _now(InMemorySession(SESSION_ID, store=self.world.store).written(run_id))
        return items


async def _to_the_end(result: RunResultStreaming) -> RunResultStreaming:
    async for _ in result.stream_events():
        pass
    return result


def _now(work: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("it waits")


def _asking_when_unknown(agent: Agent[Any]) -> set[str]:
    """Return the names of the tools with a question to a person for calls of unknown outcome."""
    return {tool.name for one in AgentGraph(agent).agents() for tool in one.tools if _asks(tool)}


def _asks(tool: object) -> bool:
    return getattr(tool, "on_unknown", None) == "ask"


def _inputs_of(items: Iterable[RunItem]) -> list[Item]:
    return [item.to_input_item() for item in items if item.type != "tool_approval_item"]
