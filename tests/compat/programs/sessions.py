"""Sessions: in a file, in memory, one's own; limits, corrections, callbacks."""

from __future__ import annotations

from typing import Any, ClassVar

from agents import Agent, RunConfig, Runner, Session, SessionSettings, SQLiteSession, function_tool
from agents.memory import Session as SameSession, SQLiteSession as SameSQLite
from agents.memory.session import SessionABC
from agents.testing import ScriptedModel, assistant_message, function_call


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def _agent(*steps: Any) -> Agent[Any]:
    return Agent(name="A", tools=[add], model=ScriptedModel(steps))


class ListSession:
    """A session that is one by its methods only."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = None
        self.items: list[Any] = []

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self.items if limit is None else self.items[-limit:])

    async def add_items(self, items: list[Any]) -> None:
        self.items.extend(items)

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


class DictSession(SessionABC):
    """A session by inheritance."""

    store: ClassVar[dict[str, list[Any]]] = {}

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = self.store.get(self.session_id, [])
        return list(items if limit is None else items[-limit:])

    async def add_items(self, items: list[Any]) -> None:
        self.store.setdefault(self.session_id, []).extend(items)

    async def pop_item(self) -> Any:
        return self.store[self.session_id].pop()

    async def clear_session(self) -> None:
        self.store.pop(self.session_id, None)


async def _two_turns(session: Any) -> Any:
    agent = _agent(
        [assistant_message("Hello.")],
        [function_call("add", {"a": 1, "b": 2}, call_id="c1")],
        [assistant_message("Three.")],
    )
    await Runner.run(agent, "Hi", session=session)
    result = await Runner.run(agent, "1 + 2?", session=session)
    return result, await session.get_items(), agent.model.last_call.input


async def example_a_file(folder):
    session = SQLiteSession("guest", folder / "history.db")
    seen = await _two_turns(session)
    session.close()
    again = SQLiteSession("guest", folder / "history.db")
    other = SQLiteSession("other", folder / "history.db")
    counts = len(await again.get_items()), len(await other.get_items())
    again.close()
    other.close()
    return seen, counts, isinstance(again, Session), SameSQLite is SQLiteSession, SameSession is Session


async def example_memory(folder):
    session = SQLiteSession("guest")
    seen = await _two_turns(session)
    session.close()
    return seen


async def example_ones_own_by_methods(folder):
    session = ListSession("mine")
    return await _two_turns(session), isinstance(session, Session)


async def example_ones_own_by_inheritance(folder):
    DictSession.store.clear()
    return await _two_turns(DictSession("mine"))


async def example_while_streaming(folder):
    session = SQLiteSession("guest", folder / "history.db")
    agent = _agent([function_call("add", {"a": 1, "b": 2}, call_id="c1")], [assistant_message("Three.")])
    result = Runner.run_streamed(agent, "1 + 2?", session=session)
    async for _ in result.stream_events():
        pass
    stored = await session.get_items()
    session.close()
    return stored


async def example_correcting_a_question(folder):
    session = SQLiteSession("guest", folder / "history.db")
    agent = _agent([assistant_message("Four.")], [assistant_message("Five.")])
    await Runner.run(agent, "2 + 2?", session=session)
    popped = [await session.pop_item(), await session.pop_item(), await session.pop_item()]
    await Runner.run(agent, "2 + 3?", session=session)
    left = await session.get_items()
    await session.clear_session()
    cleared = await session.get_items()
    session.close()
    return popped, left, cleared


async def example_limits(folder):
    session = SQLiteSession("guest", folder / "history.db", session_settings=SessionSettings(limit=2))
    await session.add_items([{"role": "user", "content": str(n)} for n in range(5)])
    agent = _agent([assistant_message("a")], [assistant_message("b")])
    await Runner.run(agent, "x", session=session)
    first = agent.model.last_call.input
    await Runner.run(agent, "y", session=session, run_config=RunConfig(session_settings=SessionSettings(limit=1)))
    second = agent.model.last_call.input
    explicit = await session.get_items(limit=3)
    session.close()
    return first, second, explicit


async def example_choosing_what_the_model_sees(folder):
    def newest(history: list[Any], new: list[Any]) -> list[Any]:
        return history[-1:] + new

    session = SQLiteSession("guest", folder / "history.db")
    await session.add_items([{"role": "user", "content": "old"}, {"role": "assistant", "content": "older"}])
    agent = _agent([assistant_message("ok")])
    config = RunConfig(session_input_callback=newest)
    await Runner.run(agent, [{"role": "user", "content": "new"}], session=session, run_config=config)
    stored = await session.get_items()
    session.close()
    return agent.model.last_call.input, stored


async def example_a_list_with_a_session(folder):
    session = SQLiteSession("guest", folder / "history.db")
    agent = _agent([assistant_message("ok")])
    await Runner.run(agent, [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], session=session)
    stored = await session.get_items()
    session.close()
    return stored


async def example_a_model_that_fails(folder):
    session = SQLiteSession("guest", folder / "history.db")
    agent = _agent(ValueError("down"), [assistant_message("ok")])
    try:
        await Runner.run(agent, "Hi", session=session)
    except ValueError:
        pass
    after_failure = await session.get_items()
    await Runner.run(agent, "Hi", session=session)
    stored = await session.get_items()
    session.close()
    return after_failure, stored
