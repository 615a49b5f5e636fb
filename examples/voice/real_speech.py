"""Real speech from the wheel `espeakng-loader`: eSpeak NG, its library and voices, without root and without a network.

Called through `ctypes`. The library has one state for the whole process, so one lock guards it. It speaks at 22,050 Hz,
which is made 24,000 by straight lines between samples: it is for tests and demos, not for a concert.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Callable
from functools import cache, lru_cache
from importlib import import_module
from importlib.util import find_spec
from threading import Lock
from typing import Any

from standfast.testing.realtime import tones
from standfast.testing.realtime.audio import RATE_HZ, as_pcm

PACKAGE = "espeakng_loader"
# Of espeak-ng's speak_lib.h: synthesise into a callback and return when done, text in UTF-8, positions in characters.
_SYNCHRONOUS, _CHARS_UTF8, _POS_CHARACTER, _OK = 2, 1, 1, 0
_RATE_PARAMETER = 1
WORDS_PER_MINUTE = 175

_LOCK = Lock()
_Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)


def installed() -> bool:
    """Return True if the wheel is installed."""
    return find_spec(PACKAGE) is not None


@lru_cache(maxsize=1024)
def espeak(words: str) -> bytes:
    """Words spoken by eSpeak NG, as PCM of 24 kHz.

    It never says the same thing twice in exactly the same way (its hiss is random), so what it said is kept: in one
    process the same words give the same bytes, and ears can know them.
    """
    with _LOCK:
        library, rate_hz = _library()
        heard = array("h")

        def take(samples: Any, count: int, _: object) -> int:
            if samples and count:
                heard.extend(samples[:count])
            return 0

        callback = _Callback(take)
        library.espeak_SetSynthCallback(callback)
        text = words.encode() + b"\0"
        library.espeak_Synth(text, len(text), 0, _POS_CHARACTER, 0, _CHARS_UTF8, None, None)
        library.espeak_Synchronize()
        _say_nothing(library)
    return as_pcm(_at_rate(heard, rate_hz))


def _say_nothing(library: ctypes.CDLL) -> None:
    # The callback above belongs to one call and is freed after it; the library must not keep it.
    library.espeak_SetSynthCallback(_silent())


@cache
def _silent() -> Callable[..., int]:
    return _Callback(lambda samples, count, events: 0)


@cache
def _library() -> tuple[Any, int]:
    """Return the library, initialised once in this process, and its sample rate."""
    loader = import_module(PACKAGE)  # by name: it has no types, and need not be there
    library = ctypes.CDLL(loader.get_library_path())
    library.espeak_SetSynthCallback.argtypes = [_Callback]
    library.espeak_Synth.argtypes = [
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_uint,
        ctypes.c_int,
        ctypes.c_uint,
        ctypes.c_uint,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    path = loader.get_data_path().encode()
    rate_hz = int(library.espeak_Initialize(_SYNCHRONOUS, 0, path, 0))
    if rate_hz <= 0 or library.espeak_SetVoiceByName(b"en") != _OK:
        raise RuntimeError(f"eSpeak NG could not be initialised with the voices in {path.decode()}")
    library.espeak_SetParameter(_RATE_PARAMETER, WORDS_PER_MINUTE, 0)
    return library, rate_hz


def _at_rate(samples: array[int], rate_hz: int) -> array[int]:
    """The samples at 24,000 Hz, each on the straight line between the two it lies between."""
    if not samples:
        return samples
    samples.append(samples[-1])
    made = array("h")
    for place in range((len(samples) - 1) * RATE_HZ // rate_hz):
        whole, part = divmod(place * rate_hz, RATE_HZ)
        made.append(samples[whole] + (samples[whole + 1] - samples[whole]) * part // RATE_HZ)
    return made


def spoken(words: str) -> bytes:
    """Return words in the best available voice: eSpeak NG if its wheel is installed, else tones."""
    return espeak(words) if installed() else tones(words)
