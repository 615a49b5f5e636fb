"""Workers and senders of one conversation, each a process that is killed with SIGKILL at a random moment.

python -m tests.helpers.message_actors worker|sender NAME SEED FOLDER URL
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import uuid
from pathlib import Path
from typing import Any

from standfast import Agent, RunConfig, Runner, SessionBusyError, StandfastError, Store, function_tool, open_store
from standfast.testing import AnsweringModel, assistant_message, function_call
from tests.helpers.message_lives import calls_since_the_answer, faults

CALLS = 4
CONFIG = RunConfig(lease_ttl_s=2.0, lease_wait_s=1.0)


class Notes:
    """Lines in files that outlive the process that wrote them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, text: str) -> None:
        handle = os.open(self.folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, (text + "\n").encode())
        os.close(handle)

    def read(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def agent_of(notes: Notes, rng: random.Random) -> Agent[Any]:
    def answer(call: Any) -> Any:
        for fault in faults(call.input):
            notes.add("wrong", f"request: {fault}")
        count = calls_since_the_answer(call.input)
        if count < CALLS:
            return [function_call("work", {}, call_id=uuid.uuid4().hex[:8]) for _ in range(1 + count % 2)]
        return [assistant_message("heard")]

    async def work() -> str:
        """Work."""
        await asyncio.sleep(rng.random() * 0.004)
        return "done"

    return Agent("A", model=AnsweringModel(answer), tools=[function_tool(work)])


async def worker(store: Store, notes: Notes, rng: random.Random) -> None:
    agent = agent_of(notes, rng)
    while True:
        try:
            if rng.random() < 0.3:
                text, session = f"own-{uuid.uuid4().hex[:8]}", store.session("talk")
                await Runner.run(agent, text, session=session, run_config=CONFIG, max_turns=30)
            else:
                await Runner.recover(agent, sessions=store.session, run_config=CONFIG)
        except StandfastError:
            pass
        await asyncio.sleep(0.001)


async def sender(store: Store, notes: Notes, rng: random.Random, name: str) -> None:
    known = [int(one) for one in notes.read(f"acknowledged-{name}")]
    number = known[-1] + 1 if known else 0
    if known and rng.random() < 0.3:
        number -= 1  # it has forgotten that it was told
    while True:
        text = f"{name}-{number}"
        try:
            await store.send("talk", text, agent="A", message_id=text, max_turns=30)
        except SessionBusyError:  # more messages wait than a session takes
            await asyncio.sleep(0.1)
            continue
        notes.add(f"acknowledged-{name}", str(number))
        number += 1
        await asyncio.sleep(rng.random() * 0.2)


async def main(kind: str, name: str, seed: str, folder: str, url: str) -> None:
    rng, notes = random.Random(int(seed)), Notes(Path(folder))
    async with open_store(url, create=True) as store:
        await store.counts()
        print("at work", flush=True)
        await (worker(store, notes, rng) if kind == "worker" else sender(store, notes, rng, name))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
