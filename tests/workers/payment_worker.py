"""A worker of a queue as a process of its own, with an agent that pays, stops where it is told, and can be killed.

What the tools do is written into a book (tests/helpers/ledger_oracle.py); what the process comes to is said over a line
to
whoever started it (`offices`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from standfast import Agent, RunConfig, ToolContext, function_tool
from standfast.testing import AnsweringModel, assistant_message, function_call
from tests.helpers.jobs import SIGNALS, job_agent
from tests.helpers.ledger_oracle import done, write

QUEUE = "jobs"
HEARTBEAT_S = 0.2
DEAD_AFTER_S = 3.0
"""Fifteen heartbeats: a worker on a busy machine is not taken for dead, and if it were, nothing would be done twice."""
LEASE_S = 2.0


_line: Connection | None = None


def say(words: str) -> None:
    if _line is not None:
        _line.send(words)


def payer(book: str, *, die: str = "", stand: str = "", sleep: str = "") -> Agent[Any]:
    """An agent that pays once for each call that its input names, then says what came of it.

    The input is a text of call ids; one that begins with "ask" needs a person. `die` names the call in which the
    process kills itself, after the effect; `stand` the call in which it stands for good; `sleep` the one in which it
    waits until it was stopped and woken.
    """

    async def pay(context: ToolContext[Any]) -> str:
        call_id = context.tool_call_id
        slept = asyncio.create_task(_slept()) if call_id == sleep else None
        await asyncio.sleep(0)  # it listens from here on
        write(book, call_id)
        say(f"paid {call_id}")
        if call_id == die:
            os.kill(os.getpid(), signal.SIGKILL)
        if call_id == stand:
            await asyncio.sleep(600)
        if slept is not None:
            await slept
            say(f"woke {call_id}")
        return done(call_id)

    tools = [
        function_tool(pay, name_override="pay", description_override="Pay."),
        function_tool(pay, name_override="ask", description_override="Pay, if allowed.", needs_approval=True),
    ]
    return Agent(name="Payer", tools=tools, model=AnsweringModel(_answer))


def agent_of(settings: dict[str, Any]) -> Agent[Any]:
    """The agent that a worker is told to have: one that pays, or that of `helpers.jobs`, which meets its fate."""
    if "fate" in settings:
        kind, at = settings["fate"]
        agent: Agent[Any] = job_agent(settings["book"], _Fate(kind, at))
        return agent
    return payer(
        settings["book"], die=settings.get("die", ""), stand=settings.get("stand", ""), sleep=settings.get("sleep", "")
    )


class _Fate:
    """Counts steps, and sends its own process a signal at one of them."""

    def __init__(self, kind: str | None, at: int) -> None:
        self._kind, self._left = kind, at

    def __call__(self) -> None:
        self._left -= 1
        if self._kind is not None and self._left == 0:
            say(self._kind)
            os.kill(os.getpid(), SIGNALS[self._kind])


async def _slept() -> None:
    """Wait until this process, stopped with SIGSTOP, is woken with SIGCONT."""
    woken = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGCONT, woken.set)
    await woken.wait()


def _answer(call: Any) -> list[Any]:
    asked = max(place for place, item in enumerate(call.input) if item.get("role") == "user")
    wanted = str(call.input[asked]["content"]).split()
    answered = [item for item in call.input[asked:] if item.get("type") == "function_call_output"]
    if len(answered) < len(wanted):
        call_id = wanted[len(answered)]
        return [function_call("ask" if call_id.startswith("ask") else "pay", {}, call_id=call_id)]
    return [assistant_message("; ".join(str(item["output"]) for item in answered))]


def config() -> RunConfig:
    return RunConfig(lease_ttl_s=LEASE_S, lease_wait_s=30)


def queue_of(settings: dict[str, Any]) -> Any:
    from procrastinate import App, PsycopgConnector

    from standfast.workers.procrastinate_queue import RunQueue

    url, schema = settings["url"], settings["schema"]
    connector = PsycopgConnector(conninfo=url, kwargs={"options": f"-c search_path={schema}"}, min_size=1)
    agent = agent_of(settings)
    return RunQueue(
        App(connector=connector), [agent], f"{url}?schema={schema}", queue=QUEUE, run_config=config(),
        heartbeat_s_max=DEAD_AFTER_S, tend=settings.get("cron"),
    )  # fmt: skip


async def procrastinate(settings: dict[str, Any]) -> None:
    """Work until told to stop, and tend all the while: the cron of tests has no minutes to wait."""
    queue = queue_of(settings)

    async def tend() -> None:
        while True:
            with contextlib.suppress(*_endured(settings)):
                await queue.tend()
            await asyncio.sleep(HEARTBEAT_S)

    async with queue.app.open_async():
        say("works")
        tending = asyncio.create_task(tend()) if settings.get("tend") else None
        await queue.work(
            within_s=settings.get("within_s", 8.0), concurrency=2, update_heartbeat_interval=HEARTBEAT_S,
            fetch_job_polling_interval=HEARTBEAT_S, abort_job_polling_interval=HEARTBEAT_S,
        )  # fmt: skip
        if tending is not None:
            tending.cancel()
    say("stopped")


def _endured(settings: dict[str, Any]) -> tuple[type[Exception], ...]:
    """What a pass may raise because the server is being started again: the next one does its work."""
    return (Exception,) if settings.get("endures") else ()


def workflows_of(settings: dict[str, Any]) -> Any:
    """The workflows of DBOS, launched, in this process."""
    from dbos import DBOS

    from standfast.workers.dbos_workflows import RunWorkflows

    url, schema = settings["url"], settings["schema"]
    DBOS(
        config={
            "name": "office",
            "system_database_url": settings.get("system", url),
            "dbos_system_schema": f"{schema}_dbos",
            "executor_id": settings["executor"],
            "application_version": "1",
            "log_level": "ERROR",
            "notification_listener_polling_interval_sec": HEARTBEAT_S,
        }
    )
    agent = agent_of(settings)
    made = RunWorkflows(
        [agent],
        settings.get("store", f"{url}?schema={schema}"),
        queue=QUEUE,
        run_config=config(),
        tend=settings.get("cron"),
        polling_s=HEARTBEAT_S,
    )
    if not settings.get("works", True):
        DBOS.listen_queues([])
    DBOS.launch()
    return made


async def dbos(settings: dict[str, Any]) -> None:
    """Work until told to stop, and tend all the while if asked to."""
    made = workflows_of(settings)
    await made.start()
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    say("works")
    while not stop.is_set():
        if settings.get("tend"):
            with contextlib.suppress(*_endured(settings)):
                await made.tend()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), HEARTBEAT_S)
    await made.stop(within_s=settings.get("within_s", 8.0))
    say("stopped")


ENGINES: dict[str, Callable[[dict[str, Any]], Any]] = {"procrastinate": procrastinate, "dbos": dbos}


def run_office(engine: str, settings: dict[str, Any], line: Connection) -> None:
    """What a worker process does."""
    global _line
    _line = line
    asyncio.run(ENGINES[engine](settings))
