"""A process that runs an agent until it is killed. It says "here" when it stands where it is to die: with a request of
its about to leave, or half answered. (With one in flight, the server knows where it stands.)
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from helpers import children
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from standfast import Agent, OpenAIResponsesModel, RunConfig, Runner, SQLiteSession, function_tool


@function_tool
def look(what: str = "") -> str:
    """Look at something."""
    return f"saw {what}"


class Mortal(OpenAIResponsesModel):
    """The real model, with a place to die in its request number `turn` (from 1): before it leaves, or in its answer."""

    def __init__(self, client: AsyncOpenAI, place: str, turn: int, line: Connection) -> None:
        super().__init__("m", client)
        self.place, self.left, self.line = place, turn, line

    async def die_here(self) -> None:
        self.line.send("here")
        await asyncio.Event().wait()

    async def get_response(self, *args: Any, **named: Any) -> Any:
        self.left -= 1
        if self.left == 0 and self.place == "before it leaves":
            await self.die_here()
        return await super().get_response(*args, **named)

    async def stream_response(self, *args: Any, **named: Any) -> AsyncIterator[Any]:
        self.left -= 1
        if self.left == 0 and self.place == "before it leaves":
            await self.die_here()
        async for event in super().stream_response(*args, **named):
            yield event
            if self.left == 0 and self.place == "in its answer":
                await self.die_here()


def loopback_client(base_url: str) -> AsyncOpenAI:
    http = DefaultAsyncHttpxClient(verify=False)
    return AsyncOpenAI(base_url=base_url, api_key="loopback", max_retries=0, http_client=http)


async def run_until_killed(told: dict[str, Any], line: Connection) -> None:
    model = Mortal(loopback_client(told["base_url"]), told["place"], told["turn"], line)
    agent = Agent(name="One", model=model, tools=[look])
    config = RunConfig(run_store=SQLiteSession("runs", told["db"]).run_store(), run_id="r")
    if told["streamed"]:
        result = Runner.run_streamed(agent, "hi", run_config=config, **told["owner"])
        async for _ in result.stream_events():
            pass
    else:
        await Runner.run(agent, "hi", run_config=config, **told["owner"])
    line.send("done")


def live(work: Callable[[dict[str, Any], Connection], Any], told: dict[str, Any], line: Connection) -> None:
    """What a child does with its life."""
    asyncio.run(work(told, line))


def born(work: Callable[[dict[str, Any], Connection], Any], told: dict[str, Any]) -> tuple[BaseProcess, Connection]:
    """A process that does this work, and what it says."""
    here, there = children.pipe()
    child = children.born(live, work, told, there)
    there.close()
    return child, here


def killed(child: BaseProcess, line: Connection) -> None:
    """Kill the child, and hang up."""
    children.killed(child)
    line.close()
