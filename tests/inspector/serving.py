"""The inspector as a process of its own, and a store for it to show."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any, NamedTuple

from standfast import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    open_store,
    retry_policies,
)
from standfast._kits.inspector.server import bind_socket, rules_for, serve
from standfast.testing import ModelStep, ScriptedModel, final, function_call
from tests.helpers.children import import_path

EVIL_ID = "evil/<script>window.pwned=1</script>\"'\n"
EVIL = "<script>window.pwned=1</script><img src=x onerror=window.pwned=1>\u202e\x1b[2J"


class Answer(NamedTuple):
    """What the server answered."""

    status: int
    body: str
    headers: dict[str, str]

    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


class Served:
    """A server that runs, and the way to ask it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.token = address.rpartition("token=")[2]
        self.host = address.split("/")[2]

    def ask(
        self, path: str, *, method: str = "GET", body: str | None = None, token: bool = True, **headers: str
    ) -> Answer:
        """One request; headers are given with underscores."""
        connection = http.client.HTTPConnection(*self.host.split(":"), timeout=60)  # type: ignore[arg-type]
        sent = {"Authorization": f"Bearer {self.token}"} if token else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body, sent)
            found = connection.getresponse()
            text = found.read().decode()
            return Answer(found.status, text, {name.lower(): value for name, value in found.getheaders()})
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        """One request that changes something, as the page sends it."""
        sent = {"Content_Type": "application/json", "X_Standfast": "1", **headers}
        return self.ask(path, method="POST", body=json.dumps(body), **sent)


@contextmanager
def inspector(store: Path | str, *options: str) -> Iterator[Served]:
    """`standfast inspect`, on a free port, until the block ends."""
    command = [sys.executable, "-m", "standfast", "inspect", str(store), "--port", "0", *options]
    environment = {**os.environ, "PYTHONPATH": import_path()}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        yield Served(process.stdout.readline().strip())
        process.terminate()
        assert process.wait(60) in (0, 130, -15), "it did not end in order"
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@contextmanager
def inspector_here(store: Path, who: str) -> Iterator[Served]:
    """The same application in a thread of this process, which may write: a server of its own for each test."""
    ready, told = threading.Event(), Queue[str]()
    loop = asyncio.new_event_loop()

    async def work() -> None:
        sock = bind_socket("127.0.0.1", 0)
        rules = rules_for("127.0.0.1", sock.getsockname()[1], write=True)
        async with open_store(store) as opened:
            task = asyncio.ensure_future(serve(opened, rules, sock, who=who, ready=ready.set))
            told.put(f"http://127.0.0.1:{sock.getsockname()[1]}/#token={rules.token}")
            while not stopping.is_set():
                await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        sock.close()

    stopping = threading.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(work()))
    thread.start()
    try:
        assert ready.wait(60)
        yield Served(told.get())
    finally:
        stopping.set()
        thread.join(60)
        loop.close()
    assert not thread.is_alive()


@function_tool(needs_approval=True)
async def pay(amount: int, to: str) -> str:
    """Pay an invoice."""
    return f"paid {amount} to {to}"


@function_tool
async def trains(to: str) -> str:
    """Look trains up."""
    return f"to {to} at nine"


def clerk(*replies: Any) -> Agent[None]:
    """An agent that looks trains up, and pays if it may."""
    return Agent(name="Clerk", tools=[pay, trains], model=ScriptedModel(list(replies)))


async def fill(path: Path) -> None:
    """A store with a finished run, one that waits, a compaction, hostile words, and a long session."""
    session = SQLiteSession("invoice-7", path)
    away = ModelStep.raise_error(ConnectionResetError("cut"))
    asking = clerk([function_call("trains", {"to": "Porto"}, call_id="call-0")], away, final("The train goes at nine."))
    again = ModelRetrySettings(max_retries=1, policy=retry_policies.network_error(), backoff={"initial_delay": 0.0})
    asking.model_settings = ModelSettings(retry=again)
    await Runner.run(asking, "When is the train?", session=session, run_config=RunConfig(run_id="run-1"))
    paying = clerk([function_call("pay", {"amount": 120, "to": "ACME"}, call_id="call-1")])
    await Runner.run(paying, "Please pay the invoice.", session=session, run_config=RunConfig(run_id="run-7"))
    await session.close()
    evil = SQLiteSession(EVIL_ID, path)
    await evil.add_items([{"role": "user", "content": EVIL}])
    await evil.close()
    compacted = SQLiteSession("compacted", path)
    await compacted.add_items([{"role": "user", "content": f"Old words {n}"} for n in range(5)])
    await compacted.replace([{"role": "assistant", "content": "They spoke of old words."}], upto=await compacted.head())
    await compacted.add_items([{"role": "user", "content": "And now?"}])
    await compacted.close()
    long = SQLiteSession("long", path)
    for start in range(0, 300, 100):
        await long.add_items([{"role": "user", "content": f"Question {start + n}"} for n in range(100)])
    await long.close()
