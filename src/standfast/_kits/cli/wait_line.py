"""Line on a terminal with the reason and the time of a command's wait.

A thread draws it: a waiting command may hold its event loop, in a library or in SQLite. Any other output to the
terminal removes the line first (`clear`); it comes back after a moment without output.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

SILENT_S = 0.7
# What is over in a moment shows nothing, and a person is told within a second.

TICK_S = 0.15


class WaitLine:
    """One line at the end of a terminal, written over while a command waits."""

    def __init__(self, what: str, stream: TextIO) -> None:
        self.what = what
        self._stream = stream
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self._is_shown, self._is_paused = False, False
        self._since = monotonic()
        self._thread = threading.Thread(target=self._tick, name="standfast-wait-line", daemon=True)

    def start(self) -> None:
        """Begin to draw."""
        self._thread.start()

    def stop(self) -> None:
        """Take the line away for good."""
        self._stopped.set()
        self._thread.join()
        self.clear()

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Draw nothing while a person is asked."""
        with self._lock:
            self.clear()
            self._is_paused = True
        try:
            yield
        finally:
            with self._lock:
                self._is_paused, self._since = False, monotonic()

    def clear(self) -> None:
        """Take the line away before something else is written."""
        with self._lock:
            self._since = monotonic()
            if self._is_shown:
                self._write("\r\x1b[2K")
                self._is_shown = False

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_S):
            with self._lock:
                waited = monotonic() - self._since
                if waited >= SILENT_S and not self._is_paused:
                    self._write(f"\r\x1b[2K{self.what}: {waited:.0f} s")
                    self._is_shown = True

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):  # the terminal has gone: the command says so where it matters
            self._stopped.set()
