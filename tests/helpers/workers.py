"""A worker process: a run with two paying turns that stands still at a named place until it is told to go on.

The places are those that a program can see: before and in and after each request, and before, in and after each call
(before its effect, after its effect). Call ids carry the worker's name, so that a book tells who did what.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.ledger_oracle import done, write
from helpers.processes import Line

from standfast import Agent, RunConfig, RunHooks, Runner, ToolContext, function_tool
from standfast.testing import ModelStep, ScriptedModel, final, function_call
from tests.helpers.stores import opened

PLACES = (
    "agent start",
    "before request 1", "in request 1", "after request 1",
    "before call 1", "call 1 began", "call 1 paid", "after call 1",
    "call 2 began", "call 2 paid",
    "before request 2", "in request 2", "after request 2",
    "call 3 began", "call 3 paid", "after call 3",
    "before request 3", "in request 3", "after request 3",
    "agent end",
)  # fmt: skip
"""In the order in which a calm run passes them."""


class Standing(RunHooks[Any]):
    """Stands still at one place; the worker's tools and model pass theirs through `pass_by`, too."""

    def __init__(self, line: Line | None = None, at: str | None = None) -> None:
        self._line, self._at = line, at
        self._requests = 0

    async def pass_by(self, place: str) -> None:
        if self._line is not None and place == self._at:
            await self._line.stand(place)

    async def on_agent_start(self, *_: Any) -> None:
        await self.pass_by("agent start")

    async def on_agent_end(self, *_: Any) -> None:
        await self.pass_by("agent end")

    async def on_llm_start(self, *_: Any) -> None:
        self._requests += 1
        await self.pass_by(f"before request {self._requests}")

    async def on_llm_end(self, *_: Any) -> None:
        await self.pass_by(f"after request {self._requests}")

    async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
        await self.pass_by(f"before call {number_of(context.tool_call_id)}")

    async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
        await self.pass_by(f"after call {number_of(context.tool_call_id)}")

    def asks(self, number: int, output: Any) -> ModelStep:
        async def respond(call: Any) -> Any:
            await self.pass_by(f"in request {number}")
            return output

        return ModelStep(responder=respond)


def number_of(call_id: str) -> str:
    return call_id.rsplit("-", 1)[1]


def payer(book: str, who: str, standing: Standing | None = None, **tool: Any) -> Agent[Any]:
    """Pays twice at once, then once more, then is done."""
    standing = standing or Standing()

    @function_tool(**tool)
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        number = number_of(ctx.tool_call_id)
        await standing.pass_by(f"call {number} began")
        write(book, ctx.tool_call_id)
        await standing.pass_by(f"call {number} paid")
        return done(ctx.tool_call_id)

    replies = [
        [function_call("pay", {}, call_id=f"{who}-1"), function_call("pay", {}, call_id=f"{who}-2")],
        [function_call("pay", {}, call_id=f"{who}-3")],
        final(f"{who} is done"),
    ]
    steps = [standing.asks(number, output) for number, output in enumerate(replies, 1)]
    return Agent(name="A", model=ScriptedModel(steps), tools=[pay])


async def work(
    line: Line,
    *,
    path: str,
    who: str,
    at: str | None = None,
    config: Mapping[str, Any] | None = None,
    tool: Mapping[str, Any] | None = None,
    streamed: bool = False,
    where: str | None = None,
) -> str:
    """Run the payer on session "s" of this file, or of another store, under the run id `who`."""
    standing = Standing(line, at)
    agent = payer(f"{path}.book", who, standing, **(tool or {}))
    session = opened(where or f"sqlite {path}")
    settings = RunConfig(**{"run_id": who, **(config or {})})
    line.say("starting")
    if streamed:
        result = Runner.run_streamed(agent, f"pay, says {who}", session=session, hooks=standing, run_config=settings)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)
    whole = await Runner.run(agent, f"pay, says {who}", session=session, hooks=standing, run_config=settings)
    return str(whole.final_output)


def calm_history(who: str) -> list[str]:
    """What a run that nobody disturbs leaves, in the words of `books.short`."""
    return [
        f"U(pay, says {who})",
        f"C({who}-1)", f"C({who}-2)", f"O({who}-1: done)", f"O({who}-2: done)",
        f"C({who}-3)", f"O({who}-3: done)",
        f"A({who} is done)",
    ]  # fmt: skip
