"""Parents on sessions of one store, whose agent tool is on one conversation of a server's.

The server is the loopback provider, which refuses every request as long as a call that it made has no output.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from pathlib import Path
from typing import Any

from helpers.ledger_oracle import Item, done, lines, outputs, short, write, wrongs
from openai import AsyncOpenAI

from standfast import Agent, OpenAIResponsesModel, RunConfig, Runner, SQLiteSession, ToolContext, function_tool
from standfast._src.runs.engine.codec import decode_saved
from standfast.testing import ScriptedModel, final, function_call
from standfast.testing.loopback import Asked, LoopbackServer, call

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

    def __init__(self, conversation: str, client: AsyncOpenAI, folder: Path, server: Any = None) -> None:
        self.conversation, self.client = conversation, client
        self.server: LoopbackServer = server
        """None in a process that is not the server's own."""
        self.book, self.path = folder / "book", folder / "s.db"
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
        """A run of a parent that hands these words to the agent tool, and then says that all is well."""
        agent = self.outer([function_call("helper", {"input": words}, call_id="o1")], final("ok"))
        settings = RunConfig(run_id=run_id, **config)
        return await Runner.run(agent, words, session=session or self.session, run_config=settings)

    async def decide(self, approve: bool = True, **config: Any) -> Any:
        """Go on with the parent once a person has decided."""
        agent = self.outer(final("ok"))
        state = await Runner.load(agent, PARENT, session=self.session)
        for item in state.get_interruptions():
            state.approve(item) if approve else state.reject(item)
        return await Runner.run(agent, state, session=self.session, run_config=RunConfig(**config))

    async def told(self, session: Any = None) -> list[Any]:
        """What the call of the agent tool gave, each time."""
        return outputs(await (session or self.session).get_items()).get("o1", [])

    def history(self) -> list[str]:
        return short(self.server.history(self.conversation))

    async def check(self, words: str = "well?") -> list[Item]:
        """Whatever was done is told to the conversation, once, which takes another message; nothing is left open."""
        agent: Agent[Any] = Agent(name="next", model=OpenAIResponsesModel("m", self.client))
        config = RunConfig(run_store=self.store, lease_wait_s=60.0)
        result = await Runner.run(agent, words, conversation_id=self.conversation, run_config=config)
        assert result.final_output == f"re {words}"
        seen = self.server.history(self.conversation)
        assert wrongs(lines(self.book), seen) == []
        said = Counter(word for word in short(seen) if word.startswith("U("))
        assert not said or max(said.values()) == 1, said
        left = [
            await self.store.load_run(run.run_id) for run in await self.store.open_on_conversation(self.conversation)
        ]
        assert [saved.run_id for saved in left if decode_saved(saved).marks.acknowledged] == []
        return seen
