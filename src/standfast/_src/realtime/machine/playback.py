"""Heard duration of each reply: from a tracker, else from a clock that starts when a reader takes the audio (E8).

Playback is sequential: later audio is played later, and a report about an item means that all earlier items were heard.
Times are arguments; there is no clock here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Track:
    """Playback state of an item."""

    taken_ms: float = 0.0
    """Milliseconds taken by a reader."""
    missing_ms: float = 0.0
    """Milliseconds dropped before any reader took them."""
    segments: list[tuple[float, float]] = field(default_factory=list)
    """Played stretches: (start, length in ms)."""
    reported_ms: float | None = None


class Playback:
    """Timeline of the audio played in this process."""

    def __init__(self) -> None:
        self._last: Track | None = None
        self._tracks: dict[str, Track] = {}
        self._free_at = 0.0
        self.bytes_per_ms = 48
        self.taken: dict[str, int] = {}
        """Bytes taken by readers after `since` was called, in order: put on the timeline at the next query.

        While something is being played, what is taken is played behind it, whenever that was: so a stretch of audio
        costs one place on the timeline. The reader that adds the first entry gives the moment by `since`, arranges
        a query at `placed_until`, and may leave the rest to `collect`.
        """
        self.collect: Callable[[], None] = lambda: None
        """Called before what was taken is put on the timeline."""
        self._taken_at = 0.0
        self.tracked = False
        """True if a tracker reports the playback; then the clock is not used."""

    @property
    def tracks(self) -> dict[str, Track]:
        """Items in playback, or waiting for it."""
        if self.taken:
            self._place()
        return self._tracks

    @property
    def placed_until(self) -> float:
        """Return the time at which the whole timeline will have been played."""
        return self._free_at

    def since(self, now: float) -> None:
        """Set the time at which readers took the audio in `taken`."""
        self._taken_at = now

    def _place(self) -> None:
        self.collect()
        taken, self.taken = self.taken, {}
        for item_id, size in taken.items():
            self.take(item_id, size / self.bytes_per_ms, self._taken_at)

    def take(self, item_id: str, ms: float, now: float) -> None:
        """Add audio taken by a reader to the timeline."""
        track = self.tracks.get(item_id)
        if track is None:
            track = self._tracks[item_id] = Track()
        track.taken_ms += ms
        free_at = self._free_at
        if now < free_at and track is self._last:  # it goes on without a pause
            first, length = track.segments[-1]
            track.segments[-1] = (first, length + ms)
            self._free_at = free_at + ms / 1000
            return
        start = max(now, free_at)
        track.segments.append((start, ms))
        self._last, self._free_at = track, start + ms / 1000

    def miss(self, item_id: str, ms: float) -> None:
        """Record dropped audio of an item, never to be heard."""
        self.tracks.setdefault(item_id, Track()).missing_ms += ms

    def report(self, state: Mapping[str, Any], received: Mapping[str, float]) -> None:
        """Apply a tracker's report: all earlier items were heard to their end."""
        item_id, elapsed = state.get("current_item_id"), state.get("elapsed_ms")
        if item_id is None or elapsed is None:
            return
        self.tracked = True
        if item_id not in self.tracks and item_id not in received:
            return
        order = list(received)
        before = order[: order.index(item_id)] if item_id in order else []
        for earlier in before:
            track = self.tracks.setdefault(earlier, Track())
            track.reported_ms = max(track.reported_ms or 0.0, received[earlier])
        track = self.tracks.setdefault(item_id, Track())
        track.reported_ms = max(track.reported_ms or 0.0, float(elapsed))

    def heard_ms(self, item_id: str, now: float) -> int:
        """Return the heard milliseconds of an item."""
        track = self.tracks.get(item_id)
        if track is None:
            return 0
        if self.tracked:
            return int(track.reported_ms or 0.0)
        heard = 0.0
        for start, length in track.segments:
            heard += min(max((now - start) * 1000, 0.0), length)
        return round(heard)

    def ends_at(self, item_id: str) -> float | None:
        """Return the time at which the taken audio of an item will have been played; None if unknown."""
        track = self.tracks.get(item_id)
        if track is None or self.tracked or not track.segments:
            return None
        start, length = track.segments[-1]
        return start + length / 1000

    def is_over(self, item_id: str, total_ms: float, now: float) -> bool:
        """Return whether an item of a given length was taken or dropped completely, and played."""
        track = self.tracks.get(item_id)
        if track is None or self.tracked:
            return False
        end = self.ends_at(item_id)
        if track.taken_ms + track.missing_ms < total_ms - 1:
            return False
        return end is None or now >= end

    def stop(self, item_id: str, now: float) -> None:
        """Stop an item; the next one can begin."""
        if self.tracks.pop(item_id, None) is self._last:
            self._last = None
        self._free_at = min(self._free_at, now)

    def forget(self, item_id: str) -> None:
        """Drop an item's track."""
        self.tracks.pop(item_id, None)
