"""Running a scenario in every way there is, and writing down everything a user could notice."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from standfast import Agent, InMemorySession, RunHooks, Runner, RunState, SessionABC, SQLiteSession
from standfast.testing import ScriptedModel

_numbers = itertools.count()


class SeedSession(SessionABC):
    """The plain in-memory session of the seed document, as it stands there."""

    def __init__(self, session_id: str):
        self.session_id = session_id
        self._store: list[Any] = []

    async def get_items(self, limit: int | None = None) -> list[Any]:
        if limit is None:
            return list(self._store)
        return self._store[-limit:]

    async def add_items(self, items: list[Any]) -> None:
        self._store.extend(items)

    async def pop_item(self) -> Any:
        return self._store.pop() if self._store else None

    async def clear_session(self) -> None:
        self._store.clear()

    async def close(self) -> None:
        pass


SESSIONS: dict[str, Callable[[Path], Any]] = {
    "none": lambda folder: None,
    "plain": lambda folder: SeedSession("s"),
    "memory": lambda folder: InMemorySession("s"),
    "sqlite": lambda folder: SQLiteSession("s", folder / f"{next(_numbers)}.db"),
}


class Noting(RunHooks[Any]):
    """Hooks that write their names down."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    async def on_agent_start(self, context: Any, agent: Any) -> None:
        self.log.append(f"agent_start {agent.name}")

    async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
        self.log.append(f"agent_end {agent.name} {output}")

    async def on_handoff(self, context: Any, from_agent: Any, to_agent: Any) -> None:
        self.log.append(f"handoff {from_agent.name} {to_agent.name}")

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        self.log.append(f"tool_start {tool.name} {context.tool_call_id}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        self.log.append(f"tool_end {tool.name} {result}")

    async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
        self.log.append(f"llm_start {agent.name} {len(input_items)}")

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.log.append(f"llm_end {agent.name}")


@dataclass
class World:
    """What a scenario is made of; `log` is for its own tools and guardrails."""

    agent: Agent[Any]
    models: list[ScriptedModel]
    input: Any = "hi"
    options: dict[str, Any] = field(default_factory=dict)
    log: list[Any] = field(default_factory=list)
    hooks: bool = True
    history: list[dict[str, Any]] = field(default_factory=list)
    decide: Callable[[RunState], None] | None = None
    """What a person does about interruptions; the run is then resumed, from its JSON."""


@dataclass
class Observed:
    """Everything that can be noticed about a run from outside."""

    output: Any
    error: str | None
    items: list[Any]
    sent: list[list[Any]]
    usage: dict[str, Any] | None
    interruptions: list[str]
    log: list[Any]
    hooks: list[str]
    agent: str | None
    run_data: list[Any] | None
    stored: list[Any] | None
    events: list[str] = field(default_factory=list, compare=False)
    replay: list[Any] | None = None


def as_items(items: list[Any]) -> list[Any]:
    """Run items as plain data."""
    return [(item.type, item.agent.name, _plain(item)) for item in items]


def _plain(item: Any) -> Any:
    if item.type == "tool_approval_item":
        return (item.tool_name, item.arguments, item.call_id)
    return item.to_input_item()


async def observe(make: Callable[[], World], *, streamed: bool, session: Any) -> Observed:
    """Run the scenario once and tell what was seen."""
    world = make()
    if session is not None and world.history:
        await session.add_items(world.history)
    hooks: list[str] = []
    options = dict(world.options)
    if world.hooks:
        options["hooks"] = Noting(hooks)
    given: Any = world.input
    result, error, events = None, None, []
    for attempt in range(4):
        result, error, seen = await _once(world.agent, given, streamed, session, options)
        events += seen
        if error is not None or result is None or not result.interruptions or world.decide is None:
            break
        text = result.to_state().to_string()
        given = await RunState.from_string(world.agent, text)
        world.decide(given)
        options.pop("context", None)
        assert attempt < 3, "the scenario never ends"
    details = getattr(error, "run_data", None)
    return Observed(
        output=result.final_output if result is not None else None,
        error=None if error is None else f"{type(error).__name__}: {error}",
        items=as_items(result.new_items) if result is not None else [],
        sent=[list(call.input) for model in world.models for call in model.calls],
        usage=result.context_wrapper.usage.to_json() if result is not None else None,
        interruptions=[item.call_id or "" for item in result.interruptions] if result is not None else [],
        log=world.log,
        hooks=hooks,
        agent=result.last_agent.name if result is not None else None,
        run_data=as_items(details.new_items) if details is not None else None,
        stored=await session.get_items() if session is not None else None,
        events=events,
        replay=result.to_input_list() if result is not None else None,
    )


async def _once(agent: Any, given: Any, streamed: bool, session: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    if not streamed:
        try:
            return await Runner.run(agent, given, session=session, **options), None, []
        except Exception as error:
            return None, error, []
    events: list[str] = []
    try:
        result = Runner.run_streamed(agent, given, session=session, **options)
        async for event in result.stream_events():
            if event.type != "raw_response_event":
                events.append(event.name if event.type == "run_item_stream_event" else event.type)
    except Exception as error:
        return None, error, events
    return result, None, events
