"""A run as server-sent events, for whoever watches it, at whichever worker.

What is saved has an id: a client that was cut off sends the last one it got as `Last-Event-ID`, to any worker, and goes
on behind it, with nothing left out and nothing twice. The words of a reply have none. They are shown while this worker
is at the run, and are gone when they are missed: the whole message is among the events that follow.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from service.worker import Worker
from standfast import CallerError, Runner, StandfastError

KEEP_ALIVE_S = 15.0
"""How often a line goes out when there is nothing to say: proxies close what is silent."""
WAITING_MAX = 1000
"""Beyond this many lines that a slow reader has not taken, words are dropped."""


def event(kind: str, data: object, cursor: str | None = None) -> str:
    """One event, as it goes over the line."""
    return (f"id: {cursor}\n" if cursor else "") + f"event: {kind}\ndata: {json.dumps(data)}\n\n"


async def stream(worker: Worker, run_id: str, conversation: str, after: str | None) -> AsyncIterator[str]:
    """The events of a run behind that cursor, until it has ended or this worker stops."""
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def hear(words: dict[str, Any]) -> None:
        if lines.qsize() < WAITING_MAX:
            lines.put_nowait(event("words", words))

    async def read() -> None:
        session = worker.store.session(conversation)
        try:
            async with aclosing(Runner.watch(run_id, session=session, after=after)) as updates:
                async for update in updates:
                    told = update.to_json()
                    lines.put_nowait(event(told.pop("type"), told, told.pop("cursor")))
        except StandfastError as error:
            # A cursor that is none, or another run's, is refused again, however often it comes.
            again = not isinstance(error, CallerError)
            lines.put_nowait(event("trouble", {"what": error.what, "remedy": error.remedy, "again": again}))
        finally:
            await session.close()

    ends: list[asyncio.Task[Any]] = [asyncio.create_task(read()), asyncio.create_task(worker.stopping.wait())]
    for task in ends:
        task.add_done_callback(lambda _: lines.put_nowait(None))
    try:
        with worker.listening(run_id, hear):
            yield "retry: 500\n\n"
            while True:
                try:
                    line = await asyncio.wait_for(lines.get(), KEEP_ALIVE_S)
                except TimeoutError:
                    yield ":\n\n"
                    continue
                if line is None:
                    return
                yield line
    finally:
        for task in ends:
            task.cancel()
        await asyncio.gather(*ends, return_exceptions=True)
