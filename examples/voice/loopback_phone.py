"""A telephone call as carriers hand it to a program: a media stream over a websocket, G.711 in frames of 20 ms.

The carrier calls the program's websocket and says `connected` and `start`; then it sends what the caller says as
`media`, keys as `dtmf`, and `stop` at the end. The program sends `media` to be played, `mark` to learn when everything
before it was played, and `clear` to drop what has not been. All marks come back on `clear`, at once: those were not
heard. If the stream is lost, the carrier opens another for the same call.

Time passes in steps of one frame: 20 ms are spoken and 20 ms are played in the same step. With `real_time` a task lets
it pass; without, `pass_time` and `say` do, and a test does not depend on the speed of the machine.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from standfast.testing.realtime.audio import PCMU

FRAME_MS = 20
FRAME_BYTES = FRAME_MS * PCMU.bytes_per_ms
SILENCE = bytes([PCMU.silence]) * FRAME_BYTES
REDIAL_S = 0.05
WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Mark:
    """Returned mark: `heard` is false for a mark returned early by `clear`."""

    name: str
    heard: bool


class LoopbackPhone:
    """A caller at the end of a carrier's line: `async with LoopbackPhone(url) as phone: await phone.say(pcm)`.

    `call_id` is the carrier's name for the call; it stays the same when the stream has to be opened again, which is
    tried `redials` times in a row.
    """

    def __init__(
        self,
        url: str,
        *,
        call_id: str = "CAloopback0001",
        real_time: bool = False,
        redials: int = 20,
        parameters: dict[str, str] | None = None,
    ) -> None:
        self.url, self.call_id, self.real_time, self._redials = url, call_id, real_time, redials
        self._parameters = parameters or {}
        self.heard = b""
        """What was really played in the caller's ear, μ-law."""
        self.marks: list[Mark] = []
        """The marks that were returned, in order."""
        self.streams = 0
        """How many streams the carrier has opened for this call."""
        self.cleared_ms = 0
        """How much audio was dropped before it was played, by `clear` or with a lost stream."""
        self.unsaid_ms = 0
        """How much the caller said while there was no stream."""
        self.over = False
        """Whether the call has ended: hung up on either side."""
        self._speech = b""
        self._playing: deque[bytes | str] = deque()
        self._socket: ClientConnection | None = None
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._sequence = self._chunk = self._now_ms = 0

    async def __aenter__(self) -> Self:
        """Call. Raises the connection's error if the first call is not answered."""
        await self._open()
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._listen())]
        if self.real_time:
            self._tasks.append(loop.create_task(self._tick_for_ever()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.hang_up()

    # --- what the caller does ----------------------------------------------------------------------------------------

    async def say(self, pcm: bytes) -> None:
        """Say something (PCM of 24 kHz). Returns when it has been said."""
        data = PCMU.from_pcm(pcm)
        self._speech += data + bytes([PCMU.silence]) * (-len(data) % FRAME_BYTES)
        if self.real_time:
            await self.until(lambda: not self._speech)
        else:
            while self._speech and not self.over:
                await self._tick()

    async def pass_time(self, ms: int) -> None:
        """Say nothing for so long, and listen."""
        for _ in range(0, ms, FRAME_MS):
            if self.real_time:
                await asyncio.sleep(FRAME_MS / 1000)
            elif not self.over:
                await self._tick()

    async def press(self, key: str) -> None:
        """Press a key."""
        await self._send("dtmf", dtmf={"track": "inbound_track", "digit": key})

    async def hang_up(self) -> None:
        """End the call. Doing so twice does nothing."""
        if not self.over:
            await self._send("stop", stop={"accountSid": "ACloopback", "callSid": self.call_id})
        self._end()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._socket is not None:
            await self._socket.close()

    @property
    def buffered_ms(self) -> int:
        """Duration of buffered audio."""
        return sum(PCMU.ms(one) for one in self._playing if isinstance(one, bytes))

    async def until(self, holds: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Wait until something holds; asked again whenever anything has happened on the line."""
        async with asyncio.timeout(timeout_s):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    # --- time --------------------------------------------------------------------------------------------------------

    async def _tick_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not self.over:
            due += FRAME_MS / 1000
            await asyncio.sleep(max(0.0, due - loop.time()))
            await self._tick()

    async def _tick(self) -> None:
        """Let 20 ms pass: a frame goes out, and as much is played."""
        if not self.real_time:  # virtual time stands still while there is no stream
            await self.until(lambda: self._socket is not None or self.over)
        frame, self._speech = self._speech[:FRAME_BYTES] or SILENCE, self._speech[FRAME_BYTES:]
        self._chunk += 1
        self._now_ms += FRAME_MS
        payload = base64.b64encode(frame).decode("ascii")
        media = {"track": "inbound", "chunk": str(self._chunk), "timestamp": str(self._now_ms), "payload": payload}
        if not await self._send("media", media=media) and frame != SILENCE:
            self.unsaid_ms += FRAME_MS
        await self._play(FRAME_BYTES)
        self._changed.set()

    async def _play(self, count: int) -> None:
        while self._playing and (count or isinstance(self._playing[0], str)):
            first = self._playing.popleft()
            if isinstance(first, str):
                await self._return(Mark(first, heard=True))
                continue
            self.heard += first[:count]
            if first[count:]:
                self._playing.appendleft(first[count:])
            count -= min(count, len(first))

    async def _return(self, mark: Mark) -> None:
        self.marks.append(mark)
        await self._send("mark", mark={"name": mark.name})

    # --- the stream --------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        socket = await connect(self.url)
        self.streams += 1
        self._sequence = self._chunk = 0
        await socket.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        self._socket = socket
        start = {
            "accountSid": "ACloopback",
            "callSid": self.call_id,
            "streamSid": self._stream_id,
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": self._parameters,
        }
        await self._send("start", start=start)
        self._changed.set()

    @property
    def _stream_id(self) -> str:
        return f"MZloopback{self.streams:04d}"

    async def _listen(self) -> None:
        """Follow the program's messages; open another stream after a loss; hang up after a proper close."""
        while not self.over:
            socket = self._socket
            assert socket is not None
            with suppress(ConnectionClosed):
                while True:
                    await self._obey(json.loads(await socket.recv()))
            self._socket = None
            if socket.close_code == 1000:
                return self._end()
            # What the carrier had of the program's audio went with the stream.
            self.cleared_ms += self.buffered_ms
            self._playing.clear()
            if not await self._redial():
                return self._end()

    async def _redial(self) -> bool:
        for _ in range(self._redials):
            with suppress(OSError, InvalidHandshake, ConnectionClosed):
                await self._open()
                return True
            await asyncio.sleep(REDIAL_S)
        return False

    async def _obey(self, message: dict[str, Any]) -> None:
        match message.get("event"):
            case "media":
                self._playing.append(base64.b64decode(message["media"]["payload"]))
            case "mark":
                # One with nothing before it has been reached already.
                self._playing.append(str(message["mark"]["name"]))
                await self._play(0)
            case "clear":
                self.cleared_ms += self.buffered_ms
                waiting, self._playing = self._playing, deque()
                for name in waiting:
                    if isinstance(name, str):
                        await self._return(Mark(name, heard=False))
        self._changed.set()

    async def _send(self, event: str, **fields: object) -> bool:
        """Send if there is a stream; whether it was."""
        socket = self._socket
        if socket is None:
            return False
        self._sequence += 1
        numbered = {"event": event, "sequenceNumber": str(self._sequence), "streamSid": self._stream_id, **fields}
        try:
            await socket.send(json.dumps(numbered))
        except ConnectionClosed:
            return False
        return True

    def _end(self) -> None:
        self.over = True
        self._changed.set()
