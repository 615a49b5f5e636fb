"""What the tests of MCP servers share: servers as child processes, and a look at which processes still live."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from standfast import Agent
from standfast.mcp import MCPServerSse, MCPServerStdio, MCPServerStreamableHttp
from standfast.testing import ScriptedModel, function_call

HERE = Path(__file__).parent
WAIT_S_MAX = 60.0
# Only ever waited out by a test that fails.


def office(notes: Path, **settings: Any) -> MCPServerStdio:
    """The server made with the official package, as a child process."""
    return started("office_server.py", "stdio", notes, **settings)


def bare(mode: str, notes: Path, **settings: Any) -> MCPServerStdio:
    """The server that misbehaves as it is told."""
    return started("bare_server.py", mode, notes, **settings)


def started(script: str, mode: str, notes: Path, **settings: Any) -> MCPServerStdio:
    settings = {"name": "office", "client_session_timeout_seconds": WAIT_S_MAX, **settings}
    return MCPServerStdio(
        {"command": sys.executable, "args": [str(HERE / script), mode], "env": {"OFFICE_NOTES": str(notes)}}, **settings
    )


def clerk(server: Any, *steps: Any, **options: Any) -> Agent[Any]:
    """An agent with this server, whose model says these steps."""
    return Agent(name="clerk", model=ScriptedModel(list(steps)), mcp_servers=[server], **options)


def calls(name: str, call_id: str = "c1") -> list[Any]:
    """A reply that calls this tool."""
    return [function_call(name, {}, call_id=call_id)]


def lines(notes: Path) -> list[str]:
    """What servers did outside."""
    return notes.read_text(encoding="utf-8").splitlines() if notes.exists() else []


async def first_line(notes: Path) -> str:
    """The first thing a server does outside, when it does."""
    deadline = time.monotonic() + WAIT_S_MAX
    while not lines(notes):
        assert time.monotonic() < deadline, "the server did nothing"
        await asyncio.sleep(0.01)
    return lines(notes)[0]


def alive(process_id: int) -> bool:
    """Whether a process runs; one that ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


async def gone(*process_ids: int) -> bool:
    """Whether these processes end, as they should."""
    deadline = time.monotonic() + 20
    while any(map(alive, process_ids)):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.01)
    return True


def children() -> set[int]:
    """The guardians of servers below this process: other tests' databases may be below it as well."""
    found: set[int] = set()
    for entry in os.listdir("/proc"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, ValueError):
            fields = Path(f"/proc/{int(entry)}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            is_below = int(fields[1]) == os.getpid() and fields[0] not in "ZX"
            if is_below and b"process_guard" in Path(f"/proc/{int(entry)}/cmdline").read_bytes():
                found.add(int(entry))
    return found


@contextlib.contextmanager
def a_port() -> Iterator[int]:
    """A port that is free at this moment."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
    yield port


class HttpOffice:
    """The official server over HTTP, in a process that can be killed and started again on the same port."""

    def __init__(self, kind: str, notes: Path, port: int) -> None:
        self.kind, self.notes, self.port = kind, notes, port
        self.process: subprocess.Popen[bytes] | None = None  # not asyncio's, which would be a thread of this loop's

    async def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "office_server.py"), self.kind, str(self.port)],
            env={**os.environ, "OFFICE_NOTES": str(self.notes)},
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + WAIT_S_MAX
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                assert time.monotonic() < deadline, "the server did not start"
                await asyncio.sleep(0.05)
                continue
            writer.close()
            await writer.wait_closed()
            return

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def client(self, **settings: Any) -> MCPServerSse | MCPServerStreamableHttp:
        settings = {"name": "office", "client_session_timeout_seconds": WAIT_S_MAX, **settings}
        if self.kind == "sse":
            return MCPServerSse({"url": f"http://127.0.0.1:{self.port}/sse"}, **settings)
        return MCPServerStreamableHttp({"url": f"http://127.0.0.1:{self.port}/mcp"}, **settings)


@contextlib.asynccontextmanager
async def http_office(kind: str, notes: Path) -> AsyncIterator[HttpOffice]:
    with a_port() as port:
        served = HttpOffice(kind, notes, port)
    try:
        await served.start()
        yield served
    finally:
        served.kill()


@contextlib.contextmanager
def faulty(notes: Path, mode: str = "", slow_s: float = 600.0) -> Iterator[int]:
    """The server over HTTP that fails as the name of a tool says; the port it listens at."""
    served = subprocess.Popen(
        [sys.executable, str(HERE / "faulty_server.py"), "0"],
        env={**os.environ, "OFFICE_NOTES": str(notes), "OFFICE_MODE": mode, "OFFICE_SLOW_S": str(slow_s)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert served.stdout is not None
        yield int(served.stdout.readline())
    finally:
        served.kill()
        served.communicate()


def reached(kind: str, port: int, **settings: Any) -> MCPServerSse | MCPServerStreamableHttp:
    """That server, for an agent. Retries are on: they may repeat nothing that was done."""
    settings = {
        "name": "office",
        "client_session_timeout_seconds": WAIT_S_MAX,
        "max_retry_attempts": 2,
        "retry_backoff_seconds_base": 0.0,
        **settings,
    }
    if kind == "sse":
        return MCPServerSse({"url": f"http://127.0.0.1:{port}/sse"}, **settings)
    return MCPServerStreamableHttp({"url": f"http://127.0.0.1:{port}/mcp"}, **settings)
