"""An agent tool on a `conversation_id`: whatever becomes of the run around it, the server's conversation can go on.

The server refuses every request as long as a call it made has no output (the loopback provider does, too). So the
nested run has a record of its own, by which the next run on that conversation, nested or not, finds it: what it owes
goes first. C15, D2, D5 and D11, for each conversation.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.books import Item, done, lines, outputs, short, write, wrongs
from openai import AsyncOpenAI

from standfast import (
    Agent,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolContext,
    function_tool,
    open_store,
)
from standfast.testing import ScriptedModel, final, function_call
from standfast.testing.loopback import Asked, LoopbackServer, Status, call

PARENT, INNER = "r1", "r1/o1"


class Clerk:
    """The model of the inner agents: it makes the calls that a message names, and then says that all is done."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def __call__(self, asked: Asked) -> Any:
        if asked.outputs:
            return "all done"
        named = [word for word in asked.last_text.split() if word in ("pay", "look", "ask", "hang")]
        return [call(name, {}, call_id=f"c{next(self._numbers)}") for name in named] or f"re {asked.last_text}"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(Clerk()) as started:
        yield started
        assert started.faults_waiting == 0, "a fault was prepared that no request met"


@pytest.fixture
async def client(server: LoopbackServer) -> AsyncIterator[AsyncOpenAI]:
    async with server.client(max_retries=0) as made:
        yield made


def tools_of(book: Path, hangs: asyncio.Event | None = None) -> list[Any]:
    """What the inner agent can do; each writes into the book that it did."""

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    @function_tool
    async def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    @function_tool(needs_approval=True)
    async def ask(ctx: ToolContext[Any]) -> str:
        """Pay if a person agrees."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    @function_tool
    async def hang(ctx: ToolContext[Any]) -> str:
        """Begin, and never end."""
        write(book, ctx.tool_call_id)
        if hangs is not None:
            hangs.set()
        await asyncio.sleep(600)
        return done(ctx.tool_call_id)

    return [pay, look, ask, hang]


class Office:
    """Parents on sessions of one store, whose agent tool is on one conversation of the server's."""

    def __init__(self, server: LoopbackServer, client: AsyncOpenAI, folder: Path) -> None:
        self.server, self.client = server, client
        self.book, self.path = folder / "book", folder / "s.db"
        self.conversation = server.new_conversation()
        self.session = SQLiteSession("s", self.path)
        self.hangs = asyncio.Event()
        self.helper: dict[str, Any] = {}
        self.inner: dict[str, Any] = {}

    @property
    def store(self) -> Any:
        return self.session.run_store()

    def clerk(self) -> Agent[Any]:
        model = OpenAIResponsesModel("m", self.client)
        return Agent(name="clerk", model=model, tools=tools_of(self.book, self.hangs), **self.inner)

    def outer(self, *replies: Any, tools: Any = ()) -> Agent[Any]:
        helper = self.clerk().as_tool("helper", "Help.", conversation_id=self.conversation, **self.helper)
        return Agent(name="outer", model=ScriptedModel(replies), tools=[helper, *tools])

    async def say(self, words: str, run_id: str = PARENT, session: Any = None, **config: Any) -> Any:
        """A run of a parent that hands these words to the agent tool, and then says what it gave."""
        agent = self.outer([function_call("helper", {"input": words}, call_id="o1")], final("ok"))
        settings = RunConfig(run_id=run_id, **config)
        return await Runner.run(agent, words, session=session or self.session, run_config=settings)

    async def told(self, session: Any = None) -> list[Any]:
        """What the call of the agent tool gave, each time."""
        return outputs(await (session or self.session).get_items()).get("o1", [])

    def history(self) -> list[str]:
        return short(self.server.history(self.conversation))

    async def check(self) -> list[Item]:
        """Whatever was done is told to the conversation, once, which takes another message; nothing is left open."""
        agent: Agent[Any] = Agent(name="next", model=OpenAIResponsesModel("m", self.client))
        config = RunConfig(run_store=self.store)
        result = await Runner.run(agent, "well?", conversation_id=self.conversation, run_config=config)
        assert result.final_output == "re well?"
        seen = self.server.history(self.conversation)
        assert wrongs(lines(self.book), seen) == []
        assert await self.store.open_on_conversation(self.conversation) == []
        return seen


@pytest.fixture
async def office(server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path) -> AsyncIterator[Office]:
    made = Office(server, client, tmp_path)
    yield made
    await made.session.close()


async def cut(office: Office) -> None:
    """Whoever waits for the parent goes away, while a call inside the agent tool hangs and another has returned."""
    run = asyncio.create_task(office.say("pay hang"))
    await asyncio.wait_for(office.hangs.wait(), 60)
    run.cancel()
    await asyncio.wait([run])


async def fail(office: Office) -> None:
    """The server is away when the agent tool sends what it did; the parent is told and goes on."""
    office.server.fault(Status(429), skip=1)
    assert (await office.say("pay look")).final_output == "ok"
    assert "failed" in (await office.told())[0]


async def run_out(office: Office) -> None:
    """No turn is left for the agent tool."""
    office.helper = {"max_turns": 1}
    await office.say("pay look")
    office.helper = {}


async def stop_at_a_tool(office: Office) -> None:
    """The agent tool ends with what a tool of it gave, which its server never hears."""
    office.inner = {"tool_use_behavior": "stop_on_first_tool"}
    await office.say("pay look")
    assert await office.told() == [done("c1")]
    office.inner = {}


async def give_up(office: Office) -> None:
    """It waits for a person, and its parent is given up."""
    await office.say("pay ask")
    await Runner.cancel_run(office.outer(), PARENT, session=office.session)


async def be_given_up(office: Office) -> None:
    """The same by an operator."""
    await office.say("pay ask")
    async with open_store(office.path) as store:
        await store.cancel(PARENT, by="ada")


async def be_removed(office: Office) -> None:
    """Its parent is given up, and then removed: nobody can ask it any more."""
    await give_up(office)
    assert await Runner.delete_run(PARENT, session=office.session)


async def be_given_up_alone(office: Office) -> None:
    """It is given up by its own id, and nobody hands over what that gave."""
    await office.say("pay ask")
    owed = await Runner.cancel_run(office.clerk(), INNER, run_store=office.store)
    assert short(owed) == ["O(c1: done)", "O(c2: not run)"]


WAYS = [cut, fail, run_out, stop_at_a_tool, give_up, be_given_up, be_removed, be_given_up_alone]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_what_it_did_goes_first_when_it_is_called_again(office: Office, way: Any) -> None:
    await way(office)
    before = lines(office.book)
    assert before
    other = SQLiteSession("another", office.path)
    result = await office.say("hello", "r2", session=other)
    assert result.final_output == "ok"
    assert await office.told(other) == ["re hello"]
    await other.close()
    first = next(one for one in office.server.model_calls if short(one.input)[-1] == "U(hello)")
    assert [word[:2] for word in short(first.input)] == ["O(", "O(", "U("]
    await office.check()
    assert lines(office.book) == before


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_what_it_did_goes_first_in_a_run_of_its_conversation_itself(office: Office, way: Any) -> None:
    await way(office)
    before = lines(office.book)
    await office.check()
    assert lines(office.book) == before
    assert (await office.say("hello", "r2")).final_output == "ok"


async def test_the_same_run_may_call_it_again(office: Office) -> None:
    """A model that reads that a tool failed tries again, in the same run."""
    office.server.fault(Status(429), skip=1)
    calls = [[function_call("helper", {"input": words}, call_id=f"o{n}")] for n, words in ((1, "pay"), (2, "hello"))]
    result = await Runner.run(office.outer(*calls, final("ok")), "go", session=office.session)
    assert outputs(await office.session.get_items())["o2"] == ["re hello"]
    assert result.final_output == "ok"
    assert office.history() == ["U(pay)", "C(c1)", "O(c1: done)", "U(hello)", "A(re hello)"]
    await office.check()
