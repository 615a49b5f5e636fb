"""Speech for tests and demos: a voice that makes audio of words, and ears that recognize known words.

`tones` is a voice without requirements: each word is a tone of its own pitch, so that the same words always sound the
same. This is not speech recognition: `Ears` remember learned audio, and find it again byte by byte, in any of the three
formats. `examples/voice/real_speech.py` has a voice that speaks real words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from zlib import crc32

from standfast._kits.testing.realtime.audio import FORMATS, Format, silence, tone

Voice = Callable[[str], bytes]
"""From words to PCM of 24 kHz. Deterministic, so that ears can be taught without hearing it first."""

MS_PER_CHAR = 20
# Three times as fast as people speak: enough for a voice detector, and less to send.
GAP_MS = 10
# A tone needs this long to be speech for the voice detector, however short the word is.
WORD_MS_MIN = 60
KNOWN_MAX = 4_096


@lru_cache(maxsize=1024)
def tones(words: str) -> bytes:
    """Return words as tones: one for each word, of its own pitch, with a short gap after it."""
    return b"".join(tone(_word_ms(word), _pitch(word)) + silence(GAP_MS) for word in words.split())


def _word_ms(word: str) -> int:
    # A multiple of ten, so that a tone is whole windows of the detector and whole samples at 8 kHz.
    return max(WORD_MS_MIN, len(word) * MS_PER_CHAR // 10 * 10)


def _pitch(word: str) -> float:
    # 200 to 1,000 Hz, in steps that no two words of a test share by accident: CRC-32 tells them apart.
    return 200.0 + crc32(word.encode()) % 800_000 / 1000


def pieces(words: str) -> list[str]:
    """Words with the space before each, as transcripts arrive: joined they are the words again."""
    return re.findall(r"\s*\S+\s*$|\s*\S+", words)


class Ears:
    """Ears that know clips of audio by heart, and find their words in a longer recording."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, bytes]] = {}

    def learn(self, words: str, pcm: bytes) -> None:
        """Learn the sound of words. The silence around them does not matter."""
        clip = _without_silence(pcm)
        if not clip:
            return
        while len(self._known) >= KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._known[words] = {name: one.from_pcm(clip) for name, one in FORMATS.items()}

    def hear(self, data: bytes, kind: Format) -> str:
        """Return the known words in this audio, in order; empty if there are none."""
        found: list[tuple[int, int, str]] = []
        for words, clips in self._known.items():
            clip = clips[kind.type]
            place = data.find(clip)
            while place >= 0:
                found.append((place, place + len(clip), words))
                place = data.find(clip, place + len(clip))
        # What is heard as a part of something longer ("book" in "book a table") is not heard twice.
        whole = [
            one
            for one in found
            if not any(one != other and other[0] <= one[0] and one[1] <= other[1] for other in found)
        ]
        return " ".join(words for _, _, words in sorted(whole))


def _without_silence(pcm: bytes) -> bytes:
    """Return the audio from its first sound to its last, in whole milliseconds from the first one on."""
    first = len(pcm) - len(pcm.lstrip(b"\0"))
    start = first - first % 48
    return pcm[start : len(pcm.rstrip(b"\0")) + 1]
