"""A process that does what occurs to it on one session: messages, answers, resumes, cancellations, deletions.

What occurs to it follows from its seed; what comes of it depends on the other process. Every error of ours is an
answer; any other is reported.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
from typing import Any

from helpers.cancelling import cut_soon
from helpers.ledger_oracle import done, write
from helpers.processes import Line

from standfast import Agent, RunConfig, Runner, StandfastError, ToolContext, function_tool
from standfast.testing import AnsweringModel, function_call
from tests.helpers.stores import opened

CONFIG: dict[str, Any] = {"lease_ttl_s": 3.0, "lease_wait_s": 60.0}


class Actor:
    """One process's share of a story."""

    def __init__(self, path: str, who: str, seed: int, *, may_die: bool, where: str | None = None) -> None:
        self.book, self.who, self.may_die = f"{path}.book", who, may_die
        self.chance = random.Random(f"{seed} {who}")
        self.session = opened(where or f"sqlite {path}")
        self.numbers = itertools.count()
        self.told: list[str] = []
        """What went wrong that is not an answer."""

    def agent(self) -> Agent[Any]:
        """It pays, or asks whether it may, once or twice a turn, and soon has enough."""

        @function_tool
        async def pay(ctx: ToolContext[Any]) -> str:
            """Pay."""
            return await self.effect(ctx)

        @function_tool(needs_approval=True)
        async def ask(ctx: ToolContext[Any]) -> str:
            """Pay, if a person says so."""
            return await self.effect(ctx)

        return Agent(name="A", model=AnsweringModel(self.answer), tools=[pay, ask])

    async def effect(self, ctx: ToolContext[Any]) -> str:
        await asyncio.sleep(self.chance.random() * 0.004)
        write(self.book, ctx.tool_call_id)
        if self.may_die and self.chance.random() < 0.05:
            os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.sleep(self.chance.random() * 0.004)
        return done(ctx.tool_call_id)

    async def answer(self, call: Any) -> Any:
        await asyncio.sleep(self.chance.random() * 0.004)
        if self.chance.random() < 0.45:
            return "enough"
        names = self.chance.choices(["pay", "ask"], [3, 1], k=self.chance.randint(1, 2))
        return [function_call(name, {}, call_id=f"{self.who}-{next(self.numbers)}") for name in names]

    async def act(self) -> None:
        """One thing that occurs to it."""
        what = self.chance.choice(
            ["message", "message", "cut message", "decide", "decide", "resume", "cancel", "delete"]
        )
        try:
            await getattr(self, what.replace(" ", "_"))()
        except StandfastError:
            pass  # an answer: busy, taken, ended, not there
        except Exception as error:
            self.told.append(f"{what}: {type(error).__name__}: {error}")

    async def message(self) -> None:
        agent, words = self.agent(), f"{self.who} says {next(self.numbers)}"
        if self.chance.random() < 0.5:
            await Runner.run(agent, words, session=self.session, run_config=RunConfig(**CONFIG))
            return
        result = Runner.run_streamed(agent, words, session=self.session, run_config=RunConfig(**CONFIG))
        async for _ in result.stream_events():
            pass

    async def cut_message(self) -> None:
        """A message whose caller goes away, once or again and again."""
        await cut_soon(self.message(), self.chance, 0.03)

    async def some_run(self, *statuses: str) -> str | None:
        runs = [run for run in (await Runner.list_runs(session=self.session))[0] if run.status in statuses]
        return self.chance.choice(runs).run_id if runs else None

    async def decide(self) -> None:
        if (run_id := await self.some_run("paused")) is None:
            return
        agent = self.agent()
        state = await Runner.load(agent, run_id, session=self.session)
        for item in state.get_interruptions():
            state.approve(item) if self.chance.random() < 0.6 else state.reject(item)
        await Runner.run(agent, state, session=self.session, run_config=RunConfig(**CONFIG))

    async def resume(self) -> None:
        if (run_id := await self.some_run("running", "paused", "failed", "cancelled")) is not None:
            await Runner.resume(self.agent(), run_id, session=self.session, run_config=RunConfig(**CONFIG))

    async def cancel(self) -> None:
        if (run_id := await self.some_run("running", "paused")) is not None:
            await Runner.cancel_run(self.agent(), run_id, session=self.session)

    async def delete(self) -> None:
        if (run_id := await self.some_run("running", "paused", "done", "failed", "cancelled")) is not None:
            await Runner.delete_run(run_id, session=self.session)


async def act(
    line: Line, *, path: str, who: str, seed: int, acts: int, may_die: bool, where: str | None = None
) -> list[str]:
    """Do so many things; what went wrong that is not an answer of ours."""
    actor = Actor(path, who, seed, may_die=may_die, where=where)
    await actor.session.get_items()
    line.say("ready")
    await line.told()
    for _ in range(acts):
        await actor.act()
    return actor.told
