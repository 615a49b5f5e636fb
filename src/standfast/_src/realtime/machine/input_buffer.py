"""Bounded buffer of input audio that no server has understood yet, kept for sending again."""

from __future__ import annotations

TAIL_MS = 5_000
"""Length of the newest audio to repeat even without known speech: what a server has noticed is known late,
and more silence is harmless."""


class InputBuffer:
    """Input audio by its place in the call, counted in bytes from the first."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.end = 0
        self.dropped = 0
        """Bytes that were not understood and had to be forgotten."""
        self._pieces: list[tuple[int, bytes]] = []
        self._held = 0

    @property
    def start(self) -> int:
        """Position of the oldest kept audio."""
        return self._pieces[0][0] if self._pieces else self.end

    def append(self, data: bytes) -> int:
        """Keep audio and return its position. Past the bound the oldest audio is dropped."""
        place = self.end
        self._pieces.append((place, data))
        self.end += len(data)
        self._held += len(data)
        while self._held > self.bytes_max and len(self._pieces) > 1:
            _, oldest = self._pieces.pop(0)
            self._held -= len(oldest)
            self.dropped += len(oldest)
        return place

    def forget(self, before: int) -> None:
        """Drop all audio before a position."""
        count = 0
        for place, data in self._pieces:
            if place + len(data) > before:
                break
            count += 1
            self._held -= len(data)
        del self._pieces[:count]

    def has(self, start: int, end: int) -> bool:
        """Return whether all audio between two times is kept."""
        return self.start <= start and end <= self.end

    def take(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """Return the kept pieces of a range."""
        found = []
        for place, data in self._pieces:
            low, high = max(start, place), min(end, place + len(data))
            if low < high:
                found.append((low, data[low - place : high - place]))
        return found
