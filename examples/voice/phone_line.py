"""Between a telephone carrier's media stream and a voice session.

The carrier sends and plays G.711 μ-law, and so does the model: nothing is converted. What the caller has heard is
known by marks: one goes out behind every piece of audio and comes back when that piece was played. On `clear` all
marks come back at once, which says that the rest was not heard; those are not counted.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from starlette.websockets import WebSocket, WebSocketDisconnect

from standfast.realtime import RealtimePlaybackTracker, RealtimeSession

BYTES_PER_MS = 8
Enter = Callable[..., Awaitable[RealtimeSession]]


class Played:
    """What is on its way to the caller's ear, and what has arrived there."""

    def __init__(self, tracker: RealtimePlaybackTracker) -> None:
        self._tracker = tracker
        self._sent: deque[tuple[str, str, float]] = deque()
        self._number = 0

    def send(self, item_id: str, audio: bytes) -> str:
        """Note a piece of audio; the name of the mark that goes behind it."""
        self._number += 1
        name = f"m{self._number}"
        self._sent.append((name, item_id, len(audio) / BYTES_PER_MS))
        return name

    def returned(self, name: str) -> None:
        """A mark came back: everything up to it was heard, unless it was cleared."""
        while self._sent and any(name == mark for mark, _, _ in self._sent):
            mark, item_id, ms = self._sent.popleft()
            self._tracker.on_play_ms(item_id, 0, ms)
            if mark == name:
                return

    def cleared(self) -> None:
        """What is on its way will not be heard: its marks, which will all come back, mean nothing now."""
        self._sent.clear()


async def carry_phone(websocket: WebSocket, enter: Enter) -> None:
    """Serve one stream of a carrier. A lost stream comes again with the same call id, and goes on with the call."""
    await websocket.accept()
    tracker = RealtimePlaybackTracker()
    played = Played(tracker)
    live: RealtimeSession | None = None
    telling: asyncio.Task[None] | None = None
    hung_up = False
    try:
        while True:
            message = json.loads(await websocket.receive_text())
            match message["event"]:
                case "start":
                    formats = {"input_audio_format": "g711_ulaw", "output_audio_format": "g711_ulaw"}
                    live = await enter(message["start"]["callSid"], tracker, **formats)
                    telling = asyncio.create_task(_tell(websocket, live, played, message["streamSid"]))
                case "media" if live is not None:
                    await live.send_audio(base64.b64decode(message["media"]["payload"]))
                case "mark":
                    played.returned(message["mark"]["name"])
                case "dtmf" if live is not None:
                    await _pressed(message["dtmf"]["digit"], live)
                case "stop":
                    hung_up = True
                    break
    except WebSocketDisconnect:
        pass  # the stream is lost, the call is not: the carrier dials again
    finally:
        if telling is not None:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        if live is not None:
            await live.close(hang_up=hung_up)
        if hung_up:
            with suppress(RuntimeError, WebSocketDisconnect):
                await websocket.close(1000)


async def _pressed(key: str, live: RealtimeSession) -> None:
    """Keys decide about what waits: 1 agrees, 2 refuses. Others are told to the model."""
    if key in "12":
        for waiting in list(live.pending_approvals)[:1]:
            await (live.approve_tool_call if key == "1" else live.reject_tool_call)(waiting.call_id)
    else:
        await live.send_message(f"(the caller pressed {key})")


async def _tell(websocket: WebSocket, live: RealtimeSession, played: Played, stream: str) -> None:
    """Send the caller what the agent says."""

    async def send(event: str, **fields: Any) -> None:
        await websocket.send_json({"event": event, "streamSid": stream, **fields})

    async for event in live:
        if event.type == "audio":
            audio = event.audio.data
            await send("media", media={"payload": base64.b64encode(audio).decode("ascii")})
            await send("mark", mark={"name": played.send(event.item_id, audio)})
        elif event.type == "audio_interrupted":
            played.cleared()
            await send("clear")
