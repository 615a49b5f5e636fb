"""G.711, the audio of telephones: 8,000 samples a second, one byte each, μ-law or A-law.

Written out because Python 3.13 removed `audioop`. Decoding is a table of 256 values; encoding is a table over all
65,536 samples, made once at its first use, so that a 20 ms frame costs a few microseconds.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from functools import cache

RATE_HZ = 8_000
ULAW_SILENCE, ALAW_SILENCE = 0xFF, 0xD5

# μ-law works on 14 bits. It adds a bias to the magnitude before it looks for the segment, so that the first segment is
# not a special case; 8,158 is the largest magnitude that has a segment then.
_ULAW_BIAS, _ULAW_MAX = 33, 8_158


def encode_ulaw(pcm: bytes) -> bytes:
    """16-bit little-endian samples as μ-law, one byte for each."""
    return _encode(pcm, _ulaw_bytes())


def decode_ulaw(data: bytes) -> bytes:
    """μ-law bytes as 16-bit little-endian samples."""
    return _decode(data, _ulaw_samples())


def encode_alaw(pcm: bytes) -> bytes:
    """16-bit little-endian samples as A-law, one byte for each."""
    return _encode(pcm, _alaw_bytes())


def decode_alaw(data: bytes) -> bytes:
    """A-law bytes as 16-bit little-endian samples."""
    return _decode(data, _alaw_samples())


# --- one value ------------------------------------------------------------------------------------------------------


def _ulaw_byte(sample: int) -> int:
    magnitude = min(abs(sample >> 2), _ULAW_MAX) + _ULAW_BIAS
    segment = magnitude.bit_length() - 6
    step = magnitude >> (segment + 1) & 0x0F
    return ~((0x80 if sample < 0 else 0) | segment << 4 | step) & 0xFF


def _ulaw_sample(byte: int) -> int:
    byte = ~byte & 0xFF
    bias = _ULAW_BIAS << 2
    magnitude = (((byte & 0x0F) << 3) + bias << (byte >> 4 & 0x07)) - bias
    return -magnitude if byte & 0x80 else magnitude


def _alaw_byte(sample: int) -> int:
    # A-law works on 13 bits; a negative value is stored as its complement, so that -1 is the smallest of them.
    magnitude = (sample if sample >= 0 else ~sample) >> 3
    segment = max(0, magnitude.bit_length() - 5)
    step = magnitude >> max(segment, 1) & 0x0F
    return (segment << 4 | step) ^ (0xD5 if sample >= 0 else 0x55)


def _alaw_sample(byte: int) -> int:
    byte ^= 0x55
    segment = byte >> 4 & 0x07
    magnitude = (byte & 0x0F) << 4
    magnitude = magnitude + 8 if segment == 0 else magnitude + 0x108 << segment - 1
    return magnitude if byte & 0x80 else -magnitude


# --- tables ---------------------------------------------------------------------------------------------------------


@cache
def _ulaw_bytes() -> bytes:
    return _all_samples(_ulaw_byte)


@cache
def _alaw_bytes() -> bytes:
    return _all_samples(_alaw_byte)


@cache
def _ulaw_samples() -> tuple[int, ...]:
    return tuple(_ulaw_sample(byte) for byte in range(256))


@cache
def _alaw_samples() -> tuple[int, ...]:
    return tuple(_alaw_sample(byte) for byte in range(256))


def _all_samples(coded: Callable[[int], int]) -> bytes:
    """The byte of every sample, in the order of the samples read as unsigned numbers."""
    return bytes(coded(value if value < 0x8000 else value - 0x10000) for value in range(0x10000))


def _encode(pcm: bytes, table: bytes) -> bytes:
    samples = array("H", pcm)
    if sys.byteorder == "big":  # pragma: no cover — no such machine here
        samples.byteswap()
    return bytes(map(table.__getitem__, samples))


def _decode(data: bytes, table: tuple[int, ...]) -> bytes:
    samples = array("h", map(table.__getitem__, data))
    if sys.byteorder == "big":  # pragma: no cover — no such machine here
        samples.byteswap()
    return samples.tobytes()
