"""A client that says exactly what a test wants said: frames out, frames in, nothing clever between."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from openai.types.realtime import RealtimeClientEvent, RealtimeServerEvent
from pydantic import TypeAdapter
from websockets.asyncio.client import ClientConnection, connect

from standfast.testing.realtime import LoopbackRealtimeServer
from standfast.testing.realtime.audio import silence

FROM_CLIENT: TypeAdapter[Any] = TypeAdapter(RealtimeClientEvent)
FROM_SERVER: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
KEY = {"Authorization": "Bearer key"}


def check_journal(server: LoopbackRealtimeServer) -> None:
    """Everything on the wire is what the provider's own types say it is."""
    for frame in server.frames():
        if isinstance(frame.body, dict) and not frame.faults:
            (FROM_SERVER if frame.direction == "sent" else FROM_CLIENT).validate_python(frame.body)


class Client:
    """One connection to a loopback server."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.seen: list[dict[str, Any]] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": kind, **fields}))

    async def receive(self) -> dict[str, Any]:
        event = json.loads(await asyncio.wait_for(self.socket.recv(), 30))
        self.seen.append(event)
        return event

    async def until(self, kind: str) -> dict[str, Any]:
        """Read up to the next event of that type."""
        while True:
            event = await self.receive()
            if event["type"] == kind:
                return event

    async def rest(self) -> list[str]:
        """Read to the end of the connection."""
        found = [event["type"] async for event in self]
        return found

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        from websockets.exceptions import ConnectionClosed

        try:
            while True:
                yield await self.receive()
        except ConnectionClosed:
            return

    async def update(self, **session: Any) -> dict[str, Any]:
        await self.send("session.update", session={"type": "realtime", **session})
        return await self.receive()

    async def type(self, text: str, **fields: Any) -> None:
        part = {"type": "input_text", "text": text}
        item = {"type": "message", "role": "user", "content": [part], **fields.pop("item", {})}
        await self.send("conversation.item.create", item=item, **fields)

    async def append(self, data: bytes) -> None:
        await self.send("input_audio_buffer.append", audio=base64.b64encode(data).decode())

    async def say(self, pcm: bytes, *, before_ms: int = 400, after_ms: int = 600) -> None:
        """Speech between silences, in frames of 100 ms as a microphone gives them."""
        data = silence(before_ms) + pcm + silence(after_ms)
        for start in range(0, len(data), 4_800):
            await self.append(data[start : start + 4_800])

    def kinds(self) -> list[str]:
        return [event["type"] for event in self.seen]


@asynccontextmanager
async def calling(server: LoopbackRealtimeServer, query: str = "?model=gpt-realtime-2.1") -> AsyncIterator[Client]:
    async with connect(server.url + query, additional_headers=KEY, max_size=None) as socket:
        yield Client(socket)


@asynccontextmanager
async def loopback(*arguments: Any, **named: Any) -> AsyncIterator[LoopbackRealtimeServer]:
    """A server whose journal is checked against the provider's types at the end."""
    async with LoopbackRealtimeServer(*arguments, **named) as server:
        yield server
    check_journal(server)
    assert not server.faults_waiting, "a fault was queued that nothing met"
