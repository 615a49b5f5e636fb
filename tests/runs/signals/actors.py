"""Processes of `test_signals`: a worker of one run with four payments, and people who approve each as soon as it waits.

python -m tests.runs.signals.actors worker|NAME FOLDER
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from standfast import Agent, RunConfig, Runner, SQLiteSession, StandfastError, function_tool, open_store
from standfast._src.base.errors import AlreadyDecidedError
from standfast.testing import AnsweringModel, assistant_message, function_call

CONFIG = RunConfig(run_id="r", lease_ttl_s=1.0, lease_wait_s=5.0)


def note(folder: Path, name: str, text: str) -> None:
    handle = os.open(folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (text + "\n").encode())
    os.close(handle)


async def worker(folder: Path) -> None:
    def answer(call: object) -> object:
        if any(item.get("type") == "function_call_output" for item in call.input):  # type: ignore[attr-defined]
            return [assistant_message("done")]
        return [function_call("pay", {"number": n}, call_id=f"c{n}") for n in range(4)]

    @function_tool(needs_approval=True)
    async def pay(number: int) -> str:
        """Pay."""
        note(folder, "paid", str(number))
        await asyncio.sleep(0.15)
        return "paid"

    agent = Agent(name="clerk", model=AnsweringModel(answer), tools=[pay])
    session = SQLiteSession("s", folder / "talks.db")
    async with open_store(folder / "talks.db", create=True) as store:
        print("at work", flush=True)
        while True:
            with suppress(StandfastError):
                result = await Runner.run(agent, "Pay.", session=session, run_config=CONFIG)
                if result.final_output == "done":
                    return
            with suppress(LookupError):
                if (await store.run("r")).status == "done":
                    return
            await asyncio.sleep(0.02)


async def person(folder: Path, name: str) -> None:
    async with open_store(folder / "talks.db", create=True) as store:
        while True:
            with suppress(StandfastError):
                for call in (await store.run("r")).waiting:
                    with suppress(AlreadyDecidedError):
                        await store.decide("r", call.call_id, True, by=name)
                        note(folder, name, call.call_id)
            await asyncio.sleep(0.01)


if __name__ == "__main__":
    who, where = sys.argv[1], Path(sys.argv[2])
    asyncio.run(worker(where) if who == "worker" else person(where, who))
