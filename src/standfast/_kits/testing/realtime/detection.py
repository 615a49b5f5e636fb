"""Voice detection by loudness: the beginning and the end of speech.

A plain machine: audio goes in, in pieces of any size, and `Started` and `Stopped` come out, with the service's times:
counted over all audio so far, the padding before and the silence after included. The size of the pieces makes no
difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from standfast._kits.testing.realtime.audio import BYTES_PER_MS, level

WINDOW_MS = 10
WINDOW_BYTES = WINDOW_MS * BYTES_PER_MS
# At the service's default threshold (0.5) a window counts as voice from this level on: some 37 dB below full scale.
LEVEL_AT_HALF = 450.0
# So much voice in a row begins speech: a click is shorter.
ONSET_MS = 30
# How much silence ends a turn where detection is "semantic": there is nobody here who understands the words.
SEMANTIC_SILENCE_MS = {"low": 800, "medium": 500, "auto": 500, "high": 300}


@dataclass(frozen=True, slots=True)
class Started:
    """Start of speech, at `at_ms` (the padding is before that)."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """End of speech; `at_ms` is the end of the silence behind it."""

    at_ms: int


class Detector:
    """Detector of speech in one input buffer."""

    def __init__(self) -> None:
        self.heard_ms = 0
        """How much audio was looked at, since the beginning."""
        self.speaking = False
        self._pending = b""
        self._voice_ms = self._silence_ms = 0

    def feed(self, pcm: bytes, settings: Mapping[str, Any]) -> Iterator[Started | Stopped]:
        """Look at more audio, and tell what was noticed, in order. Fewer than 10 ms wait for more."""
        padding_ms = int(settings.get("prefix_padding_ms") or 300)
        silence_ms = silence_duration_ms(settings)
        loud = LEVEL_AT_HALF * 2 * float(settings.get("threshold") or 0.5)
        data = self._pending + pcm
        whole = len(data) - len(data) % WINDOW_BYTES
        self._pending = data[whole:]
        for start in range(0, whole, WINDOW_BYTES):
            self.heard_ms += WINDOW_MS
            if level(data[start : start + WINDOW_BYTES]) >= loud:
                self._voice_ms, self._silence_ms = self._voice_ms + WINDOW_MS, 0
            else:
                self._voice_ms, self._silence_ms = 0, self._silence_ms + WINDOW_MS
            if not self.speaking and self._voice_ms >= ONSET_MS:
                self.speaking = True
                yield Started(max(0, self.heard_ms - self._voice_ms - padding_ms))
            elif self.speaking and self._silence_ms >= silence_ms:
                self.speaking = False
                yield Stopped(self.heard_ms)

    def forget(self) -> None:
        """Start again with the next piece, as after a commit or a clear; the count of audio continues."""
        self.speaking, self._voice_ms, self._silence_ms = False, 0, 0


def silence_duration_ms(settings: Mapping[str, Any]) -> int:
    """Return the duration of silence that ends a turn."""
    if settings.get("type") == "semantic_vad":
        return SEMANTIC_SILENCE_MS[str(settings.get("eagerness") or "auto")]
    return int(settings.get("silence_duration_ms") or 500)
