"""The agent of the checks of engines: it pays once for each word of a message, and its process meets a fate on order.

A message reads `run-id: pay ask pay/5`: calls in this order, where `ask` needs a person and `/5` makes the output 5 KB
long. Every effect is a line in a book, written in the moment in which it happens. A *fate* is a file that names a place
and holds a signal: the first process that comes by takes the file away and sends itself the signal, so each fate is met
once. Places are `<call>.model` (before the request that asks for the call), `<call>.before` and `<call>.after` (around
the effect), `<run>.answer.model`, and `<run>.end` (the run has ended, and the engine does not know).
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standfast._kits.testing.answering_model import AnsweringModel
from standfast._kits.testing.script import assistant_message, function_call
from standfast._src.agents.agent import Agent
from standfast._src.agents.tool_context import ToolContext
from standfast._src.base.json_values import Item
from standfast._src.tools.function_tool import function_tool

AGENT = "Payer"
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "term": signal.SIGTERM}
_UNKNOWN = re.compile(r"not known|unknown", re.IGNORECASE)

Tell = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Message:
    """Message of a check: run id, session, and wanted calls."""

    run_id: str
    session_id: str | None
    calls: tuple[str, ...]

    @property
    def text(self) -> str:
        """Input of the run."""
        return f"{self.run_id}: {' '.join(self.calls)}"

    @property
    def call_ids(self) -> list[str]:
        """Ids of the calls, in order."""
        return [f"{self.run_id}.{number}" for number in range(len(self.calls))]

    @property
    def places(self) -> list[str]:
        """Every place for a fate."""
        around = [f"{call_id}.{side}" for call_id in self.call_ids for side in ("model", "before", "after")]
        return [*around, f"{self.run_id}.answer.model", f"{self.run_id}.end"]


class Book:
    """Book of the effects of a check, and of the fates ahead of its workers."""

    def __init__(self, folder: Path) -> None:
        self._path, self._fates = folder / "book", folder / "fates"
        self._fates.mkdir(exist_ok=True)

    def write(self, call_id: str) -> None:
        """Append a line: the effect itself."""
        line = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(line, f"{call_id}\n".encode())
        finally:
            os.close(line)

    def lines(self) -> list[str]:
        """Return the effects so far, in order."""
        return self._path.read_text().split() if self._path.exists() else []

    def order(self, place: str, kind: str) -> None:
        """Order a fate: the first process at this place sends itself the signal kill, stop or term."""
        (self._fates / place).write_text(kind)

    def unmet(self) -> list[str]:
        """Return the places of unmet fates."""
        return sorted(path.name for path in self._fates.iterdir() if not path.name.endswith("!"))

    def meet(self, place: str, tell: Tell) -> None:
        """Meet the fate of a place, if ordered and unmet."""
        met = self._fates / f"{place}!"
        try:
            os.rename(self._fates / place, met)
        except FileNotFoundError:
            return
        kind = met.read_text()
        tell(fate=kind)
        os.kill(os.getpid(), SIGNALS[kind])


def output_of(call_id: str) -> str:
    """Return the output of a call after its effect."""
    return f"{call_id} done"


def fated_agent(book: Book, tell: Tell) -> Agent[Any]:
    """Build the agent of a worker, with the fates of this book."""

    async def pay(context: ToolContext[Any], kb: int = 0) -> str:
        call_id = context.tool_call_id
        book.meet(f"{call_id}.before", tell)
        await asyncio.sleep(0.01)
        book.write(call_id)
        book.meet(f"{call_id}.after", tell)
        await asyncio.sleep(0.01)
        return output_of(call_id) + " " * 1024 * kb

    async def answer(call: Any) -> list[Item]:
        place, reply = _reply(call.input)
        book.meet(f"{place}.model", tell)
        await asyncio.sleep(0.01)
        return [reply]

    tools = [
        function_tool(pay, name_override="pay", description_override="Pay."),
        function_tool(pay, name_override="ask", description_override="Pay, if allowed.", needs_approval=True),
    ]
    return Agent(name=AGENT, tools=list(tools), model=AnsweringModel(answer))


def _reply(seen: Sequence[Item]) -> tuple[str, Item]:
    """Return the next reply to a conversation, and the name of its place."""
    answered = {item["call_id"] for item in seen if item.get("type") == "function_call_output"}
    run_id = ""
    for item in seen:
        if item.get("role") != "user":
            continue
        run_id, _, words = str(item["content"]).partition(": ")
        for number, word in enumerate(words.split()):
            name, _, kb = word.partition("/")
            if f"{run_id}.{number}" not in answered:
                call_id = f"{run_id}.{number}"
                return call_id, function_call(name, {"kb": int(kb or 0)}, call_id=call_id)
    return f"{run_id}.answer", assistant_message(f"answered {run_id}")


def faults_of(message: Message, items: Sequence[Item], book: Sequence[str]) -> list[str]:
    """Return the violations of the rule in a history: every effect once, or said to be unknown."""
    times, found = Counter(book), []
    for call_id in message.call_ids:
        outputs = [
            str(item["output"]).strip()
            for item in items
            if item.get("type") == "function_call_output" and item["call_id"] == call_id
        ]
        if times[call_id] > 1:
            found.append(f"the effect of {call_id} happened {times[call_id]} times")
        elif len(outputs) != 1:
            found.append(f"{call_id} has {len(outputs)} outputs")
        elif outputs[0] == output_of(call_id):
            if times[call_id] != 1:
                found.append(f"{call_id} is told as done, and did not happen")
        elif not _UNKNOWN.search(outputs[0]):
            found.append(f"{call_id} happened {times[call_id]} times and is told as {outputs[0][:80]!r}")
    if not any(_says(item, f"answered {message.run_id}") for item in items):
        later = [item for item in items if _says(item, "answered ")]
        if not later:
            found.append(f"message {message.run_id} has no answer")
    if sum(1 for item in items if item.get("role") == "user" and item["content"] == message.text) != 1:
        found.append(f"message {message.run_id} is not in the history once")
    return found


def _says(item: Item, text: str) -> bool:
    return item.get("role") == "assistant" and text in str(item.get("content"))
