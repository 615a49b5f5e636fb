"""A worker in a process of its own: has a call, says what happens in it, and dies when it is told to.

python worker.py <url> <database> <run id> <log> <message> [speaks]
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path
from typing import Any

from standfast import SQLiteSession, function_tool
from standfast._src.base.errors import LeaseLostError, RunClaimedError
from standfast.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession

DETECTION = {"type": "server_vad", "interrupt_response": True, "create_response": True, "silence_duration_ms": 200}


def agent_of(log: Path, *, slow: bool) -> RealtimeAgent[Any]:
    """The agent both workers have; a slow one's tools never end."""

    def did(what: str) -> None:
        with log.open("a") as file:
            file.write(what + "\n")

    @function_tool
    async def pay(amount: int) -> str:
        did(f"paid {amount}")
        if slow:
            await asyncio.Event().wait()
        return f"paid {amount}"

    @function_tool(on_unknown="ask")
    async def wire(amount: int) -> str:
        did(f"wired {amount}")
        if slow:
            await asyncio.Event().wait()
        return f"wired {amount}"

    @function_tool(needs_approval=True)
    async def book(seats: int) -> str:
        did(f"booked {seats}")
        return f"booked {seats}"

    return RealtimeAgent(name="voice", instructions="Talk.", tools=[pay, wire, book])


def runner_of(agent: RealtimeAgent[Any]) -> RealtimeRunner:
    """A runner whose leases last as long as a test can wait for."""
    config: Any = {"model_settings": {"turn_detection": DETECTION}, "lease_ttl_s": 0.5, "lease_wait_s": 20.0}
    return RealtimeRunner(agent, config=config)


async def obey(session: RealtimeSession) -> None:
    """Send what is written to this process as messages, until the call ends."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        with contextlib.suppress(RunClaimedError, LeaseLostError):  # whoever reads the call is told
            await session.send_message(line.decode().strip())


async def speak(session: RealtimeSession) -> None:
    """Send silence as a microphone does, and say so, until the call ends."""
    while True:
        await asyncio.sleep(0.02)
        await session.send_audio(bytes(960))
        print("spoke", flush=True)


async def main(url: str, database: str, run_id: str, log: str, message: str, speaks: str = "") -> None:
    """Have the call, and report what happens until somebody ends this process."""
    store = SQLiteSession("caller", database)
    runner = runner_of(agent_of(Path(log), slow=True))
    options: Any = {"url": url, "api_key": "secret"}
    session = await runner.run(model_config=options, session=store, run_id=run_id)
    await session.enter()
    print("entered", flush=True)
    await session.send_message(message)
    print("acknowledged", flush=True)
    doing = [asyncio.create_task(obey(session))]
    if speaks:
        doing.append(asyncio.create_task(speak(session)))
    try:
        async for event in session:
            if event.type != "raw_model_event":
                print(event.type, flush=True)
            if event.type == "tool_approval_required":
                await session.settled()
                print("resting", flush=True)  # nothing is being written now
    except Exception as error:
        print(f"ended {type(error).__name__}", flush=True)
        return
    finally:
        for task in doing:
            task.cancel()
    print("ended", flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:7]))
