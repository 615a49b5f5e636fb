"""A small store for tests of the command line, on any backend, and the agent whose run waits in it."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from standfast import Agent, RunConfig, Runner, function_tool
from standfast._src.sessions.client.lingering import LINGERING
from standfast.testing import ScriptedModel, assistant_message, final, function_call

EVIL = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe <script>window.pwned=1</script>"


def message(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def clerk(*replies: Any) -> Any:
    """An agent that pays, if a person agrees, and writes into the file $BOOK that it did."""

    @function_tool(needs_approval=True)
    async def pay(amount: int, to: str) -> str:
        """Pay."""
        with open(os.environ["BOOK"], "a") as book:
            book.write(f"{amount} to {to}\n")
        return f"paid {amount} to {to}"

    @function_tool
    async def trains(to: str) -> str:
        """Trains."""
        return f"to {to} at ten"

    return Agent(name="Clerk", tools=[pay, trains], model=ScriptedModel(replies))


def ready_clerk() -> Any:
    """The agent as a worker has it that only has the end of the run before it."""
    return clerk(final("Paid."))


async def fill(make: Callable[[str], Any]) -> None:
    """Three sessions: one whose run waits for a decision, one that was compacted, and one to fork."""
    invoice = make("invoice-7")
    asks = clerk(
        [function_call("trains", {"to": "Porto"}, call_id="call-0")],
        [function_call("pay", {"amount": 120, "to": "ACME"}, call_id="call-1")],
    )
    run = RunConfig(run_id="run-7f04b")
    await Runner.run(asks, "Please pay the invoice.", session=invoice, run_config=run)
    await invoice.close()

    done = make("done-1")
    hello = clerk([assistant_message("Hello \x1b[31mAda\x1b[0m.")])
    await Runner.run(hello, "Hello.", session=done, run_config=RunConfig(run_id="run-1done"))
    await done.close()

    evil = make("evil")
    await evil.add_items([message(EVIL), message("two\nlines", "assistant")])
    await evil.replace([message("a summary")], upto=await evil.head())
    await evil.add_items([message(EVIL)])
    await evil.close()


def filled(make: Callable[[str], Any]) -> None:
    asyncio.run(fill(make))
    LINGERING.end_all()  # a file at rest


def trace(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every file of a folder: its contents, its mode, and when it was changed."""
    return {
        file.name: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mode, file.stat().st_mtime_ns)
        for file in sorted(folder.iterdir())
    }


READING: dict[str, list[str]] = {
    "sessions ls": ["sessions", "ls", "STORE"],
    "sessions ls --all": ["sessions", "ls", "STORE", "--all", "--brief"],
    "sessions ls --waiting": ["sessions", "ls", "STORE", "--waiting"],
    "sessions show": ["sessions", "show", "STORE", "SESSION"],
    "sessions tail": ["sessions", "tail", "STORE", "SESSION", "--for", "0.3"],
    "sessions search": ["sessions", "search", "STORE", "hello"],
    "sessions stats": ["sessions", "stats", "STORE"],
    "sessions undo --list": ["sessions", "undo", "STORE", "SESSION", "--list"],
    "runs ls": ["runs", "ls", "STORE"],
    "runs show": ["runs", "show", "STORE", "RUN"],
    "runs result": ["runs", "result", "STORE", "RUN"],
}


def words(name: str, store: str, session: str = "done-1", run: str = "run-1done") -> list[str]:
    """The command line of a reading command."""
    return [{"STORE": store, "SESSION": session, "RUN": run}.get(word, word) for word in READING[name]]
