"""Workers that do jobs on one store, die at a step they are told, and take up what others have left.

A job is a number, said to the agent as its input; what the agent does is a function of the conversation, so that any
worker can go on with it: two calls at once, a payment that a person must approve, a helper agent that pays itself. Each
effect is one line in a book. A *step* is a place at which a worker may meet its fate: before and after each reply of a
model, and before, inside and after each tool.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

from helpers.ledger_oracle import done, write
from helpers.processes import Line

from standfast import (
    Agent,
    LeaseLostError,
    RunClaimedError,
    RunConfig,
    RunHandedOverError,
    Runner,
    RunStateError,
    SessionBusyError,
    StoreError,
    ToolContext,
    function_tool,
    handing_over_on,
)
from standfast.testing import AnsweringModel, assistant_message, function_call
from tests.helpers.stores import opened

TOLD = (LeaseLostError, RunClaimedError, RunHandedOverError, RunStateError, SessionBusyError)
"""What a worker that starts a job may be told: another has it, or has ended it, or this one stops."""

DELIVERIES_MAX = 100

CALLS = ("look", "count", "pay", "help")
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}


def is_in_a_session(job: int) -> bool:
    """Whether the job's conversation is in a session, or in its saved run only."""
    return job % 2 == 0


def run_id_of(job: int) -> str:
    return f"job-{job}"


def job_agent(book: str, step: Callable[[], None]) -> Any:
    """The agent: what it asks for next is said by what its conversation holds."""

    def tool(name: str, **more: Any) -> Any:
        async def act(context: ToolContext[Any]) -> str:
            step()
            await asyncio.sleep(0.005)
            write(book, context.tool_call_id)
            step()
            return done(context.tool_call_id)

        return function_tool(act, name_override=name, description_override=name, **more)

    def speaks(of: Callable[[str, int], Any]) -> AnsweringModel:
        async def answer(call: Any) -> Any:
            step()
            count = sum(1 for item in call.input if item.get("type") == "function_call_output")
            reply = of(str(call.input[0]["content"]), count)
            await asyncio.sleep(0.002)
            step()
            return reply

        return AnsweringModel(answer)

    def wants(name: str, job: str, **arguments: Any) -> Any:
        return function_call(name, arguments, call_id=f"{job}.{name}")

    def work(job: str, count: int) -> Any:
        return {
            0: [wants("look", job), wants("count", job)],
            2: [wants("pay", job)],
            3: [wants("help", job, input=job)],
            4: [assistant_message(f"finished {job}")],
        }[count]

    def help_with(job: str, count: int) -> Any:
        return [assistant_message(f"helped {job}")] if count else [wants("inner", job)]

    helper: Any = Agent(name="helper", model=speaks(help_with), tools=[tool("inner")])
    return Agent(
        name="worker",
        model=speaks(work),
        tools=[tool("look"), tool("count"), tool("pay", needs_approval=True), helper.as_tool("help", "Helps.")],
    )


class Fate:
    """Counts steps, and sends its own process a signal at one of them."""

    def __init__(self, line: Line, kind: str | None, at: int) -> None:
        self._line, self._kind, self._left = line, kind, at

    def __call__(self) -> None:
        self._left -= 1
        if self._kind is not None and self._left == 0:
            self._line.say(("fate", self._kind))
            os.kill(os.getpid(), SIGNALS[self._kind])


async def _failed(where: str, jobs: list[int]) -> list[int]:
    """Those of the jobs whose run has failed, because its store was down: their queue delivers them again."""
    session = opened(where, "-")
    try:
        failed, _ = await Runner.list_runs(run_store=session.run_store(), status="failed", limit=1000)
    except StoreError:
        return []
    finally:
        await session.close()
    known = {one.run_id for one in failed}
    return [job for job in jobs if run_id_of(job) in known]


async def worker(
    line: Line,
    *,
    where: str,
    book: str,
    jobs: list[int],
    kind: str | None,
    at: int,
    ttl_s: float,
    endures: bool = False,
) -> dict[str, int]:
    """Start these jobs, as a queue that delivers at least once would have it, and recover until told to leave.

    `endures`: that its store is down is no reason to end. What it was at is left to the next pass.
    """
    agent, counts = job_agent(book, Fate(line, kind, at)), {"passes": 0, "continued": 0, "store errors": 0}
    endured: tuple[type[Exception], ...] = (StoreError,) if endures else ()

    async def start(job: int) -> None:
        for _ in range(DELIVERIES_MAX):  # a queue delivers a job again that was told that its store is down
            session = opened(where, f"s{job}")
            config = RunConfig(
                run_id=run_id_of(job), run_store=session.run_store(), lease_ttl_s=ttl_s, lease_wait_s=5.0
            )
            try:
                await Runner.run(agent, str(job), session=session if is_in_a_session(job) else None, run_config=config)
                return
            except TOLD:
                return
            except endured:
                counts["store errors"] += 1
            finally:
                await session.close()
            await asyncio.sleep(0.1)

    async with handing_over_on(within_s=5.0) as stopping:
        starting = [asyncio.ensure_future(start(job)) for job in jobs]
        leaving = asyncio.ensure_future(line.told())
        while not stopping.is_set() and not leaving.done():
            report = await Runner.recover(
                agent, sessions=lambda name: opened(where, name), run_config=RunConfig(lease_ttl_s=ttl_s)
            )
            counts["passes"] += 1
            counts["continued"] += len(report.of("continued"))
            errors = [report.error, *(one.error for one in report.of("failed") + report.of("no_agent"))]
            for error in filter(None, errors):
                if not isinstance(error, endured):
                    raise error
                counts["store errors"] += 1
            if endures:
                starting += [asyncio.ensure_future(start(job)) for job in await _failed(where, jobs)]
            await asyncio.wait([leaving], timeout=0.05)
        leaving.cancel()
        await asyncio.gather(*starting)
    return counts
