"""What one reader of a session has not read yet: bounded, whatever the reader does (E12).

Audio has its own bound: past it the oldest is dropped, counted, and reported where it is missing. Raw events have
theirs and are dropped silently, only counted. A newer history replaces one that waits. Everything else is kept up to a
bound; past it this reader ends, after what waits, and nobody else notices.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from standfast.agents.realtime_events import (
    RealtimeAudio,
    RealtimeAudioDropped,
    RealtimeHistoryUpdated,
    RealtimeRawModelEvent,
    RealtimeSessionEvent,
)
from standfast.ground.errors import SlowConsumerError

AUDIO_BYTES_MAX = 480_000
"""Ten seconds of 24 kHz pcm16."""
CONTROL_MAX = 1_000
RAW_MAX = 2_000


class Outlet:
    """The queue of one reader. Three lanes, read in the order in which things were put."""

    def __init__(self, *, audio_bytes_max: int = AUDIO_BYTES_MAX, control_max: int = CONTROL_MAX) -> None:
        self._audio_bytes_max, self._control_max = audio_bytes_max, control_max
        self._audio: deque[tuple[int, RealtimeAudio, int]] = deque()
        self._raw: deque[tuple[int, RealtimeRawModelEvent]] = deque()
        self._control: deque[tuple[int, Any]] = deque()
        self._gaps: deque[list[Any]] = deque()
        """Reports of what was dropped: number of the first, event, bytes."""
        self._number = 0
        self.audio_bytes = self.audio_dropped_bytes = self.raw_dropped = 0
        self._waiter: asyncio.Future[None] | None = None
        self._history: RealtimeHistoryUpdated | None = None
        self.over = False
        """Whether this reader fell too far behind and gets nothing more."""

    def put(self, event: RealtimeSessionEvent) -> list[tuple[RealtimeAudio, int]]:
        """Keep an event; the audio that had to be dropped for it."""
        if self.over:
            return []
        self._number += 1
        dropped: list[tuple[RealtimeAudio, int]] = []
        if type(event) is RealtimeAudio:
            dropped = self._put_audio(event)
        elif type(event) is RealtimeRawModelEvent:
            self._raw.append((self._number, event))
            if len(self._raw) > RAW_MAX:
                self._raw.popleft()
                self.raw_dropped += 1
        elif type(event) is RealtimeHistoryUpdated and self._history is not None:
            self._history.history = event.history
        else:
            self._put_control(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        return dropped

    def _put_audio(self, event: RealtimeAudio) -> list[tuple[RealtimeAudio, int]]:
        size = len(event.audio.data)
        self._audio.append((self._number, event, size))
        self.audio_bytes += size
        dropped = []
        while self.audio_bytes > self._audio_bytes_max and len(self._audio) > 1:
            number, oldest, lost = self._audio.popleft()
            self.audio_bytes -= lost
            self.audio_dropped_bytes += lost
            dropped.append((oldest, lost))
            if self._gaps and self._gaps[-1][1].item_id == oldest.item_id:
                self._gaps[-1][2] += lost
            else:
                self._gaps.append([number, oldest, lost])
        return dropped

    def _put_control(self, event: Any) -> None:
        if len(self._control) >= self._control_max:
            self.over = True
            self._audio.clear()
            self.audio_bytes = 0
            return
        if type(event) is RealtimeHistoryUpdated:
            # A copy of its own: a newer history takes this one's place for this reader alone.
            event = RealtimeHistoryUpdated(event.history, event.info)
            self._history = event
        self._control.append((self._number, event))

    def drop_audio(self, item_id: str) -> None:
        """Forget the audio of an item that was interrupted: nobody wants to hear it any more."""
        kept = [one for one in self._audio if one[1].item_id != item_id]
        if len(kept) != len(self._audio):
            self.audio_bytes -= sum(one[2] for one in self._audio) - sum(one[2] for one in kept)
            self._audio = deque(kept)

    def get(self, ms_per_byte: float = 1 / 48) -> RealtimeSessionEvent | None:
        """The next event; None if there is none. Raises SlowConsumerError when this reader has read all it gets."""
        heads = [
            (lane[0][0], name)
            for name, lane in (("gap", self._gaps), ("audio", self._audio), ("raw", self._raw), ("more", self._control))
            if lane
        ]
        if not heads:
            if self.over:
                raise SlowConsumerError(
                    f"this reader let more than {self._control_max} events wait and was ended",
                    "Read faster, or hand events to a task of your own; the session goes on, iterate it again.",
                )
            return None
        _, name = min(heads)
        if name == "audio":
            _, audio, size = self._audio.popleft()
            self.audio_bytes -= size
            return audio
        if name == "raw":
            return self._raw.popleft()[1]
        if name == "gap":
            _, first, lost = self._gaps.popleft()
            return RealtimeAudioDropped(first.item_id, lost * ms_per_byte, first.info)
        event: RealtimeSessionEvent = self._control.popleft()[1]
        if event is self._history:
            self._history = None
        return event

    def wake(self) -> None:
        """Let whoever waits look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def wait(self) -> None:
        """Wait until something is put, or somebody wakes this reader."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None
