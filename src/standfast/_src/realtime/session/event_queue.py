"""Bounded queue of a reader's unread events (E12).

Audio has its own bound: past it the oldest is dropped, counted, and reported at the gap. Raw events have their own
bound and are dropped silently, only counted. A newer history replaces a queued one. All other events are kept up to a
bound; past it this reader ends, after its queued events, without effect on other readers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from standfast._src.base.errors import SlowConsumerError
from standfast._src.realtime.session_events import (
    RealtimeAudio,
    RealtimeAudioDropped,
    RealtimeError,
    RealtimeHistoryUpdated,
    RealtimeRawModelEvent,
    RealtimeSessionEvent,
)

AUDIO_BYTES_MAX = 480_000
"""Ten seconds of 24 kHz pcm16."""
CONTROL_MAX = 10_000
"""More than the items of any history that is given to a new connection."""
RAW_MAX = 2_000
"""Bound of raw events, which are for debugging: a slow reader loses the oldest, and the call continues."""


class BoundedEventQueue:
    """Queue of a reader."""

    def __init__(
        self,
        *,
        audio_bytes_max: int = AUDIO_BYTES_MAX,
        control_max: int = CONTROL_MAX,
        raw_audio: bool = False,
        bytes_per_ms: Callable[[], int] = lambda: 48,
        dropped: Callable[[list[RealtimeAudio]], None] = lambda _: None,
        error_taken: Callable[[object], None] = lambda _: None,
    ) -> None:
        self._dropped, self._error_taken = dropped, error_taken
        self._bytes_per_ms = bytes_per_ms
        self._audio_bytes_max, self._control_max = audio_bytes_max, control_max
        self._raw_audio = raw_audio
        """True if audio is read twice, raw first: the raw event is then made at the time of reading."""
        self._queue: deque[RealtimeSessionEvent] = deque()
        self.audio_bytes = self.raw_bytes = self.raw_count = self.control_count = 0
        self.audio_dropped_bytes = self.raw_dropped = 0
        self.waiter: asyncio.Future[None] | None = None
        """Set while the reader waits; done at the next event, or by `wake`."""
        self._history: RealtimeHistoryUpdated | None = None
        self.over = False
        """True if this reader fell too far behind and gets no further event."""
        self.next_audio: RealtimeAudio | None = None
        """Audio whose raw event was just read: it comes next."""
        self.taken: RealtimeAudio | None = None
        """The last audio that was taken, of a stretch whose beginning the timeline knows."""

    # --- putting -----------------------------------------------------------------------------------------------------

    def put(self, event: RealtimeSessionEvent) -> None:
        """Queue an event other than audio and raw events."""
        if self.over:
            return
        if type(event) is RealtimeHistoryUpdated:
            if self._history is not None:
                self._history.history = event.history
                return
            # A copy of its own: a newer history takes this one's place for this reader alone.
            event = self._history = RealtimeHistoryUpdated(event.history, event.info)
        if self.control_count >= self._control_max:
            self.over = True
        else:
            self.control_count += 1
            self._queue.append(event)
        if self.waiter is not None:
            self.wake()

    def put_raw(self, event: RealtimeRawModelEvent, size: int) -> None:
        """Keep a raw event; past the bound the oldest are forgotten."""
        if self.over:
            return
        self._queue.append(event)
        self.raw_count += 1
        self.raw_bytes += size
        if self.raw_count > RAW_MAX or self.raw_bytes > self._audio_bytes_max:
            self._forget_raw()
        if self.waiter is not None:
            self.wake()

    def put_audio(self, event: RealtimeAudio, size: int) -> None:
        """Keep some audio; past the bound the oldest is dropped for it."""
        if self.over:
            return
        self._queue.append(event)
        waiting = self.audio_bytes = self.audio_bytes + size
        if self.waiter is not None:
            self.wake()
        if waiting > self._audio_bytes_max:
            self._drop_audio()

    def _forget_raw(self) -> None:
        """Drop the older half of the raw events in one pass, so that each event is visited only a few times."""
        keep, self.raw_bytes = self.raw_count // 2, 0
        drop = self.raw_count - keep
        kept: deque[RealtimeSessionEvent] = deque()
        for event in self._queue:
            if type(event) is RealtimeRawModelEvent:
                if drop:
                    drop -= 1
                    self.raw_dropped += 1
                    continue
                self.raw_bytes += raw_size(event.data)
            kept.append(event)
        self._queue, self.raw_count = kept, keep

    def _drop_audio(self) -> None:
        """Drop the oldest audio until half of the bound is free, leaving a report at each gap."""
        dropped: list[RealtimeAudio] = []
        kept: deque[RealtimeSessionEvent] = deque()
        report: RealtimeAudioDropped | None = None
        for event in self._queue:
            if type(event) is not RealtimeAudio or self.audio_bytes <= self._audio_bytes_max // 2:
                kept.append(event)
                continue
            size = len(event.audio.data)
            self.audio_bytes -= size
            self.audio_dropped_bytes += size
            dropped.append(event)
            if report is None or report.item_id != event.item_id:
                report = RealtimeAudioDropped(event.item_id, 0.0, event.info)
                kept.append(report)
            report.ms += size / self._bytes_per_ms()
        self._queue = kept
        self._dropped(dropped)

    def holds(self, event: RealtimeAudio) -> bool:
        """Return whether a piece of audio is still queued."""
        return not self.over and (event is self.next_audio or any(one is event for one in self._queue))

    def forget_audio(self, item_id: str | None) -> None:
        """Drop the queued audio of an interrupted item, or of all items."""
        if self.next_audio is not None and item_id in (None, self.next_audio.item_id):
            self.next_audio = None
        if not self.audio_bytes:
            return
        kept = [one for one in self._queue if type(one) is not RealtimeAudio or item_id not in (None, one.item_id)]
        if len(kept) != len(self._queue):
            self._queue = deque(kept)
            self.audio_bytes = sum(len(one.audio.data) for one in kept if type(one) is RealtimeAudio)

    # --- taking ------------------------------------------------------------------------------------------------------

    def get(self) -> RealtimeSessionEvent | None:
        """Return the next event or None. Raises SlowConsumerError after the last event of a reader that was
        too slow.
        """
        queue = self._queue
        if not queue:
            if self.over:
                raise SlowConsumerError(
                    f"this reader let more than {self._control_max} events wait and was ended",
                    "Read faster, or hand events to a task of your own; the session goes on, iterate it again.",
                )
            return None
        event = queue.popleft()
        if type(event) is RealtimeAudio:
            told = event.audio
            self.audio_bytes -= len(told.data)
            if self._raw_audio:
                self.next_audio = event
                return RealtimeRawModelEvent(told, event.info)
        elif type(event) is RealtimeRawModelEvent:
            self.raw_count -= 1
            self.raw_bytes -= raw_size(event.data)
        elif type(event) is not RealtimeAudioDropped:
            self.control_count -= 1
            if event is self._history:
                self._history = None
            elif type(event) is RealtimeError:
                self._error_taken(event.error)
        return event

    def wake(self) -> None:
        """Wake the waiting reader."""
        waiter, self.waiter = self.waiter, None  # once is enough for a burst
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def raw_size(event: object) -> int:
    """Count the bytes of audio in a raw event."""
    data = getattr(event, "data", None)
    if type(data) is bytes:
        return len(data)
    delta = data.get("delta") if type(data) is dict else None
    return len(delta) if type(delta) is str else 0
