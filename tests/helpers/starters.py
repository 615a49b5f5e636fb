"""Workers that start one job, "job", each thinking that it is the only one: the same run id, the same input."""

from __future__ import annotations

import asyncio
from typing import Any

from helpers.ledger_oracle import done, write
from helpers.processes import Line
from helpers.wrong_clock import set_ahead

from standfast import Agent, RunConfig, Runner, SQLiteSession, ToolContext, function_tool
from standfast.testing import AnsweringModel, function_call
from tests.helpers.stores import opened

JOB = "job"


def _answer(call: Any) -> Any:
    """Pay if the newest thing is the question; then say so. A function of what is asked, whoever asks."""
    last = call.input[-1] if isinstance(call.input, list) else call.input
    if isinstance(last, dict) and last.get("type") == "function_call_output":
        return "done"
    return function_call("pay", {"cents": 5}, call_id="c1")


def paying_agent(book: str, model: Any, line: Line | None, *, stands: bool) -> Agent[Any]:
    @function_tool
    async def pay(ctx: ToolContext[Any], cents: int) -> str:
        """Pay."""
        write(book, ctx.tool_call_id)
        if stands and line is not None:
            await line.stand("paid")
        else:
            await asyncio.sleep(0.05)  # long enough for the other to be beside it, and nothing depends on it
        return done(ctx.tool_call_id)

    return Agent(name="A", model=model, tools=[pay])


async def start(
    line: Line,
    *,
    path: str,
    owner: str,
    stands: bool = False,
    base_url: str = "",
    owner_id: str = "",
    where: str | None = None,
    ttl_s: float = 15.0,
) -> str:
    """Start the job on its owner as soon as the parent says so, and return its final output."""
    model: Any = AnsweringModel(_answer)
    if base_url:
        from standfast import OpenAIResponsesModel
        from tests.runs.owners.child import loopback_client

        model = OpenAIResponsesModel("m", loopback_client(base_url))
    agent = paying_agent(f"{path}.book", model, line, stands=stands)
    session = opened(where or f"sqlite {path}")
    await session.get_items()
    more: dict[str, Any] = {}
    config = RunConfig(run_id=JOB, run_store=session.run_store(), lease_ttl_s=ttl_s)
    if owner.startswith("session"):
        policy: Any = owner.partition(" ")[2]
        more, config = {"session": session}, RunConfig(run_id=JOB, concurrency=policy)
    elif owner == "conversation_id":
        more = {"conversation_id": owner_id}
    elif owner == "a chain":
        more = {"auto_previous_response_id": True}
    line.say("ready")
    await line.told()
    result = await Runner.run(agent, "pay 5", run_config=config, **more)
    return str(result.final_output)


async def resume(line: Line, *, path: str, base_url: str = "") -> str:
    """Resume the job from its store."""
    from standfast import OpenAIResponsesModel
    from tests.runs.owners.child import loopback_client

    model: Any = OpenAIResponsesModel("m", loopback_client(base_url)) if base_url else AnsweringModel(_answer)
    agent = paying_agent(f"{path}.book", model, line, stands=False)
    session = SQLiteSession("s", path)
    result = await Runner.resume(agent, JOB, run_store=session.run_store(), takeover=True)
    return str(result.final_output)


async def recover(line: Line, *, path: str, ahead_s: float = 0.0) -> str:
    """Make one pass over the job's store, by a clock that is wrong by so much; what became of the job, in a word."""
    set_ahead(ahead_s)
    agent = paying_agent(f"{path}.book", AnsweringModel(_answer), line, stands=False)
    report = await Runner.recover(agent, sessions=lambda name: SQLiteSession(name, path))
    return ", ".join(one.outcome for one in report.runs)
