"""A wall clock that is wrong, for this process only: SQLite's and Python's, without root and without other programs.

SQLite asks its virtual file system for the time; the function it asks is replaced here. Python's `time.time` and
`time.time_ns` are replaced too. Monotonic clocks are left alone: a wrong wall clock is what people really have.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import time
from typing import Any

_NOW = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))
_EPOCH_MS = 210866760000000
# Milliseconds from SQLite's day zero to 1970.


class _FileSystem(ctypes.Structure):
    """`sqlite3_vfs`, up to the function that tells the time."""

    _fields_ = [
        ("version", ctypes.c_int),
        ("file_bytes", ctypes.c_int),
        ("path_max", ctypes.c_int),
        ("next", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        *[(f"function_{number}", ctypes.c_void_p) for number in range(12)],
        ("now", _NOW),
    ]


_kept: list[Any] = []


def set_ahead(seconds: float) -> None:
    """From now on this process believes that it is so many seconds later. There is no way back: use a child."""
    real_time, real_ns = time.time, time.time_ns

    def now(_: Any, out: Any) -> int:
        out[0] = int((real_time() + seconds) * 1000) + _EPOCH_MS
        return 0

    library = ctypes.CDLL(_sqlite3.__file__)
    library.sqlite3_vfs_find.restype = ctypes.POINTER(_FileSystem)
    library.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
    _kept.append(_NOW(now))
    library.sqlite3_vfs_find(None).contents.now = _kept[-1]
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_ns() + int(seconds * 1e9)
