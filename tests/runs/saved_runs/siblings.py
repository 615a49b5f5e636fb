"""Processes that are really killed while two runs of one session are unfinished."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from typing import Any

from standfast import Agent, RunConfig, Runner, SQLiteSession, ToolContext, function_tool
from standfast.testing import AnsweringModel, assistant_message, function_call
from tests.helpers.ledger_oracle import done, write
from tests.helpers.runs_apart import FileWithoutRuns

SESSION = "guest"


def _answer(call: Any) -> list[Any]:
    """Call what the last message names, once more after each call that came to nothing; then say what was read."""
    asked = max(place for place, item in enumerate(call.input) if item.get("role") == "user")
    last = str(call.input[-1].get("call_id", "")).partition(".")[0]
    tool = last or str(call.input[asked]["content"])
    answers = [item for item in call.input if str(item.get("call_id", "")).startswith(f"{tool}.")]
    outputs = [str(item["output"]) for item in answers if item.get("type") == "function_call_output"]
    if not outputs or (tool == "poison" and len(outputs) < 40):
        return [function_call(tool, {}, call_id=f"{tool}.{len(outputs)}")]
    return [assistant_message(f"{tool}: {outputs[-1]}")]


def clerk(book: str, *, dies: bool = False, stands: Any = None, name: str = "Clerk") -> Agent[Any]:
    """An agent that pays if a person agrees, looks, and has a tool that ends the process whenever it is called."""

    async def act(context: ToolContext[Any]) -> str:
        write(book, context.tool_call_id)
        if context.tool_name == "poison" or (dies and context.tool_name == "look"):
            os.kill(os.getpid(), signal.SIGKILL)
        if stands is not None:
            await stands(context.tool_call_id)
        return done(context.tool_call_id)

    tools = [
        function_tool(act, name_override="pay", description_override="Pay.", needs_approval=True),
        function_tool(act, name_override="look", description_override="Look."),
        function_tool(act, name_override="poison", description_override="Die."),
    ]
    return Agent(name=name, tools=tools, model=AnsweringModel(_answer))


async def start(agent: Agent[Any], path: str, text: str, **config: Any) -> Any:
    """A run whose id and input are this text."""
    session = (FileWithoutRuns if "run_store" in config else SQLiteSession)(SESSION, path)
    try:
        return await Runner.run(agent, text, session=session, run_config=RunConfig(run_id=text, **config))
    finally:
        await session.close()


def die_in(text: str, path: str, book: str, name: str = "Clerk") -> None:
    """Start a run and be killed in its call; what others have left is not this process's matter."""
    asyncio.run(start(clerk(book, dies=True, name=name), path, text, unfinished="ignore"))


def die_asking(text: str, path: str, book: str) -> None:
    """Start a run and be killed in its first request."""

    def die(call: Any) -> list[Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return []

    agent = clerk(book)
    agent.model = AnsweringModel(die)
    asyncio.run(start(agent, path, text))


def resume(run_id: str, path: str, book: str) -> None:
    async def go() -> None:
        session = SQLiteSession(SESSION, path)
        await Runner.resume(clerk(book), run_id, session=session)
        await session.close()

    asyncio.run(go())


def recover(_: str, path: str, book: str) -> None:
    asyncio.run(Runner.recover(clerk(book), sessions=lambda session_id: SQLiteSession(session_id, path)))


def pay_and_die_at(commit: int, path: str, runs: str, book: str) -> None:
    """Start a run that comes to wait for a person, and be killed right behind this commit of its stores."""
    connect, left = sqlite3.connect, [commit]

    class Mortal(sqlite3.Connection):
        def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
            found = super().execute(sql, *args)
            if sql == "COMMIT":
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)
            return found

    sqlite3.connect = lambda *args, **given: connect(*args, **{**given, "factory": Mortal})  # type: ignore[assignment]
    elsewhere: Any = {} if runs == path else {"run_store": SQLiteSession("-", runs).run_store()}
    asyncio.run(start(clerk(book), path, "pay", **elsewhere))
