"""One conversation with a run that waits for a person: `look` has run, `pay` waits. Sessions and the server's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.ledger_oracle import Item, done, lines, short, write
from openai import AsyncOpenAI

from standfast import (
    Agent,
    InMemoryRunStore,
    InMemorySession,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolContext,
    function_tool,
)
from standfast.testing import ScriptedModel, final, function_call, reasoning
from standfast.testing.loopback import Asked, LoopbackServer, call

JOB = "job"
OPEN = ["R", "C(c0)", "C(c1)", "O(c0: done)"]
"""The open turn of the paused run, up to what waits."""
WAITING = [*OPEN, "O(c1: not run)"]
PAID = [*OPEN, "O(c1: done)"]


def tools_of(book: Path) -> list[Any]:
    @function_tool
    async def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    @function_tool(needs_approval=True)
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    return [look, pay]


class SessionTalk:
    """The owner is a session of ours."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.book = folder / "book"
        self.session: Any = InMemorySession("s") if backend == "memory" else SQLiteSession("s", folder / "a.db")
        self._models: list[ScriptedModel] = []
        self.agent = self.speaker()

    def speaker(self, *replies: Any, tools: bool = True) -> Agent[Any]:
        """The agent with a model that replies so: a fresh one for every run, so that a refused run leaves nothing."""
        self._models.append(ScriptedModel(replies))
        return Agent(name="A", model=self._models[-1], tools=tools_of(self.book) if tools else [])

    async def pause(self) -> None:
        reply = [
            reasoning("hm", item_id="rs_1"),
            function_call("look", {}, call_id="c0"),
            function_call("pay", {}, call_id="c1"),
        ]
        result = await Runner.run(self.speaker(reply), "pay 5", session=self.session, run_config=RunConfig(run_id=JOB))
        assert len(result.interruptions) == 1

    async def say(self, words: str, **config: Any) -> Any:
        """A message of its own; the model only speaks, and its agent has no tools."""
        agent = self.speaker(final(f"re {words}"), tools=False)
        return await Runner.run(agent, words, session=self.session, run_config=RunConfig(**config))

    async def decide(self, approve: bool) -> Any:
        agent = self.speaker(final("that was it"))
        state = await Runner.load(agent, JOB, session=self.session)
        for item in state.get_interruptions():
            state.approve(item) if approve else state.reject(item)
        return await Runner.run(agent, state, session=self.session)

    async def cancel(self) -> list[Item]:
        return list(await Runner.cancel_run(self.agent, JOB, session=self.session))

    async def delete(self) -> Any:
        return await Runner.delete_run(JOB, session=self.session)

    async def history(self) -> list[str]:
        return short(await self.session.get_items())

    @property
    def requests(self) -> list[list[str]]:
        return [short(request.input) for model in self._models for request in model.calls]

    @property
    def effects(self) -> list[str]:
        return lines(self.book)

    async def close(self) -> None:
        await self.session.close()


class ServerTalk(SessionTalk):
    """The owner is a server's conversation; the runs are in a store of their own."""

    def __init__(self, folder: Path, server: LoopbackServer, client: AsyncOpenAI) -> None:
        self.book, self.server = folder / "book", server
        self.store, self.conversation = InMemoryRunStore(), server.new_conversation()
        model = OpenAIResponsesModel("m", client)
        self.agent = Agent(name="A", model=model, tools=tools_of(self.book))

    @staticmethod
    def rule(asked: Asked) -> Any:
        if asked.last_text == "pay 5" and not asked.outputs:
            return [call("look", {}, call_id="c0"), call("pay", {}, call_id="c1")]
        return "that was it" if asked.last_text == "pay 5" else f"re {asked.last_text}"

    async def _run(self, given: Any, **config: Any) -> Any:
        settings = RunConfig(run_store=self.store, **config)
        return await Runner.run(self.agent, given, conversation_id=self.conversation, run_config=settings)

    async def pause(self) -> None:
        assert len((await self._run("pay 5", run_id=JOB)).interruptions) == 1

    async def say(self, words: Any, **config: Any) -> Any:
        return await self._run(words, **config)

    async def decide(self, approve: bool) -> Any:
        state = await Runner.load(self.agent, JOB, run_store=self.store)
        for item in state.get_interruptions():
            state.approve(item) if approve else state.reject(item)
        return await Runner.run(self.agent, state, run_config=RunConfig(run_store=self.store))

    async def cancel(self) -> list[Item]:
        return list(await Runner.cancel_run(self.agent, JOB, run_store=self.store))

    async def delete(self) -> Any:
        return await Runner.delete_run(JOB, run_store=self.store)

    async def history(self) -> list[str]:
        return short(self.server.history(self.conversation))

    @property
    def requests(self) -> list[list[str]]:
        return [short(request.input) for request in self.server.model_calls]

    async def close(self) -> None:
        return None
