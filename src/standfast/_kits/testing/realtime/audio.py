"""Audio of the realtime protocol: lengths, levels, tones and rate conversion, with the standard library only.

`Format` implements a session's `{"type": "audio/pcm"}`. Everything inside the loopback server is PCM of 24 kHz, 16
bits, one channel ("pcm" below); a format converts on the way in and out.
"""

from __future__ import annotations

import math
import sys
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from operator import mul

from standfast._kits.testing.realtime import g711

__all__ = [
    "BYTES_PER_MS",
    "FORMATS",
    "Format",
    "PCM",
    "PCMA",
    "PCMU",
    "RATE_HZ",
    "TONE_PEAK",
    "as_pcm",
    "faster",
    "format_of",
    "level",
    "silence",
    "slower",
    "tone",
]

RATE_HZ = 24_000
BYTES_PER_MS = RATE_HZ * 2 // 1000
# How loud generated tones are, of 32,767: clearly speech for a voice detector, and no clipping when mixed.
TONE_PEAK = 8_000


@dataclass(frozen=True, slots=True)
class Format:
    """One of the three audio formats of a session."""

    type: str
    bytes_per_ms: int
    silence: int

    def to_pcm(self, data: bytes) -> bytes:
        """This format's bytes as PCM of 24 kHz."""
        if self.type == "audio/pcmu":
            return faster(g711.decode_ulaw(data))
        if self.type == "audio/pcma":
            return faster(g711.decode_alaw(data))
        return data

    def from_pcm(self, pcm: bytes) -> bytes:
        """Convert PCM of 24 kHz to this format."""
        if self.type == "audio/pcmu":
            return g711.encode_ulaw(slower(pcm))
        if self.type == "audio/pcma":
            return g711.encode_alaw(slower(pcm))
        return pcm

    def ms(self, data: bytes) -> int:
        """Return the duration of audio in whole milliseconds."""
        return len(data) // self.bytes_per_ms


PCM = Format("audio/pcm", BYTES_PER_MS, 0)
PCMU = Format("audio/pcmu", g711.RATE_HZ // 1000, g711.ULAW_SILENCE)
PCMA = Format("audio/pcma", g711.RATE_HZ // 1000, g711.ALAW_SILENCE)
FORMATS = {one.type: one for one in (PCM, PCMU, PCMA)}


def format_of(settings: Mapping[str, object] | None) -> Format:
    """Return the format named by a session's `format` object; PCM without a name."""
    return FORMATS[str((settings or {}).get("type", "audio/pcm"))]


def silence(ms: int) -> bytes:
    """Nothing to be heard, for so long."""
    return bytes(ms * BYTES_PER_MS)


def tone(ms: int, hz: float = 440.0, *, peak: int = TONE_PEAK) -> bytes:
    """A sine tone."""
    count = ms * RATE_HZ // 1000
    turn = 2 * math.pi * hz / RATE_HZ
    return as_pcm(array("h", (round(peak * math.sin(turn * place)) for place in range(count))))


def level(pcm: bytes) -> float:
    """The root mean square of the samples: 0 for silence, some thousand for speech."""
    samples = _samples(pcm)
    return math.sqrt(sum(map(mul, samples, samples)) / len(samples)) if samples else 0.0


def slower(pcm: bytes) -> bytes:
    """Convert 24 kHz to 8 kHz: each sample is the mean of three, which also removes most higher frequencies."""
    samples = _samples(pcm)
    whole = len(samples) - len(samples) % 3
    threes = zip(samples[0:whole:3], samples[1:whole:3], samples[2:whole:3], strict=True)
    return as_pcm(array("h", (sum(three) // 3 for three in threes)))


def faster(pcm: bytes) -> bytes:
    """8 kHz made 24 kHz: two samples on the straight line between each pair."""
    samples = _samples(pcm)
    made = array("h", bytes(6 * len(samples)))
    following = samples[1:] + samples[-1:]
    made[0::3] = samples
    made[1::3] = array("h", ((2 * here + there) // 3 for here, there in zip(samples, following, strict=True)))
    made[2::3] = array("h", ((here + 2 * there) // 3 for here, there in zip(samples, following, strict=True)))
    return as_pcm(made)


def _samples(pcm: bytes) -> array[int]:
    samples = array("h", pcm[: len(pcm) - len(pcm) % 2])
    if sys.byteorder == "big":  # pragma: no cover — no such machine here
        samples.byteswap()
    return samples


def as_pcm(samples: array[int]) -> bytes:
    """Samples as the bytes that go over the wire: 16 bits, little-endian."""
    if sys.byteorder == "big":  # pragma: no cover — no such machine here
        samples.byteswap()
    return samples.tobytes()
