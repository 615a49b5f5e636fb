"""Programs that end while a run is under way: their first tool has paid, their second hangs."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers.ledger_oracle import done, write
from helpers.processes import Line

from standfast import Agent, RunConfig, Runner, SQLiteSession, ToolContext, function_tool
from standfast.testing import ScriptedModel, final, function_call

HUNG = "c2"
STORED = ["U(go)", "C(c1)", "C(c2)", "O(c1: done)", "O(c2: unknown)"]
"""What such a run leaves: its turn, whole."""


class Hang:
    """An agent that calls `pay`, which pays, and `hang`, which begins and does not end."""

    def __init__(self, book: str | Path, *, blocks_s: float = 0.0) -> None:
        self.book, self._blocks_s = book, blocks_s
        self.hanging = asyncio.Event()
        self.keep: Any = None
        """A task that a test starts and leaves."""
        self._then: list[Callable[[], object]] = []

    def when_hanging(self, then: Callable[[], object]) -> None:
        """Call this once the first tool has paid and the second hangs."""
        self._then.append(then)

    def _hangs(self) -> None:
        self.hanging.set()
        for then in self._then:
            then()

    def agent(self) -> Agent[Any]:
        @function_tool
        async def pay(ctx: ToolContext[Any]) -> str:
            """Pay."""
            write(self.book, ctx.tool_call_id)
            self.paid.set()
            return done(ctx.tool_call_id)

        @function_tool
        async def hang(ctx: ToolContext[Any]) -> str:
            """Begin, and never end."""
            await self.paid.wait()
            write(self.book, ctx.tool_call_id)
            self._hangs()
            await asyncio.sleep(3600)
            return done(ctx.tool_call_id)

        @function_tool
        def block(ctx: ToolContext[Any]) -> str:
            """Block a thread for a while: nobody can cut that short."""
            write(self.book, ctx.tool_call_id)
            self._hangs()
            time.sleep(self._blocks_s)
            return done(ctx.tool_call_id)

        self.paid = asyncio.Event()
        second = "block" if self._blocks_s else "hang"
        reply = [function_call("pay", {}, call_id="c1"), function_call(second, {}, call_id=HUNG)]
        return Agent(name="A", model=ScriptedModel([reply, final("done")]), tools=[pay, hang, block])


def program_that_is_signalled(line: Line, *, path: str, program: str) -> None:
    """A program of the usual kind, whose SIGTERM raises SystemExit as containers advise."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    hang = Hang(f"{path}.book", blocks_s=1.0 if "blocking" in program else 0.0)
    # Said by a thread, when the loop is asleep: see `exit_between_callbacks`.
    hang.when_hanging(lambda: threading.Timer(0.2, line.say, ("hanging",)).start())
    session, config = SQLiteSession("s", path), RunConfig(run_id="r")
    if program.startswith("run_sync"):
        Runner.run_sync(hang.agent(), "go", session=session, run_config=config)
    elif program.startswith("asyncio.run"):
        asyncio.run(_run(hang, session, config))
    else:
        asyncio.run(_stream(hang, session, config))


async def _run(hang: Hang, session: Any, config: RunConfig) -> None:
    await Runner.run(hang.agent(), "go", session=session, run_config=config)


async def _stream(hang: Hang, session: Any, config: RunConfig) -> None:
    result = Runner.run_streamed(hang.agent(), "go", session=session, run_config=config)
    async for _ in result.stream_events():
        pass
