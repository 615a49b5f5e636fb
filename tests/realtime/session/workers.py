"""Workers in processes of their own, which tests kill or freeze, and the model that talks with them."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from realtime.session.helpers import PATIENCE_S

from standfast.testing import LoopbackRealtimeServer
from standfast.testing.loopback import Asked, call

WORKER = Path(__file__).with_name("worker.py")


@contextmanager
def nobody_else_writes(path: Path) -> Iterator[None]:
    """The database is busy meanwhile."""
    database = sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None)
    try:
        database.execute("BEGIN IMMEDIATE")
        yield
    finally:
        database.close()


class Worker:
    """A worker's process and what it said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []

    def freeze(self, path: Path | None = None) -> None:
        """Stop it where it is, as a machine does that swaps or is moved.

        With the path of its database, at a moment at which it does not write there: a process that is stopped inside a
        transaction of SQLite keeps everybody else out.
        """
        with nobody_else_writes(path) if path is not None else nullcontext():
            os.kill(self.process.pid, signal.SIGSTOP)
            os.waitpid(self.process.pid, os.WUNTRACED)  # a signal is on its way for a while

    def wake(self) -> None:
        """Let it go on as if nothing had happened."""
        os.kill(self.process.pid, signal.SIGCONT)

    async def until(self, word: str) -> None:
        """Read what it says until it says this."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while not self.said or not self.said[-1].startswith(word):
                line = await self.process.stdout.readline()
                assert line, f"the worker ended, and said {self.said}"
                self.said.append(line.decode().strip())

    async def say(self, words: str) -> None:
        """Let it send this message in its call."""
        assert self.process.stdin is not None
        self.process.stdin.write(words.encode() + b"\n")
        await self.process.stdin.drain()

    async def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def working(
    server: LoopbackRealtimeServer, path: Path, log: Path, message: str, *, speaks: bool = False
) -> AsyncIterator[Worker]:
    """A worker that has a call, and perhaps a microphone."""
    arguments = [str(WORKER), server.url, str(path), "call-1", str(log), message, *(["speaks"] if speaks else [])]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={**os.environ}
    )
    try:
        yield Worker(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def answer(asked: Asked) -> Any:
    """Does what was asked for once, however often it is asked, and says what it knows."""
    made = {item["name"] for item in asked.context if item.get("type") == "function_call"}
    given = [str(item["output"]) for item in asked.context if item.get("type") == "function_call_output"]
    wanted = " ".join(str(item.get("content")) for item in asked.context if item.get("role") == "user")
    for name, arguments in (("pay", {"amount": 3}), ("wire", {"amount": 4}), ("book", {"seats": 2})):
        if name in wanted and name not in made:
            return call(name, arguments)
    return f"So far: {'; '.join(given) or 'nothing'}."


def done(log: Path) -> list[str]:
    return log.read_text().split("\n")[:-1] if log.exists() else []
