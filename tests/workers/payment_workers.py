"""Starting, hearing and ending the worker processes of `office`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.helpers.children import DEADLINE_S, born, pipe
from tests.workers.payment_worker import run_office


class Office:
    """A worker process."""

    def __init__(self, engine: str, settings: dict[str, Any]) -> None:
        self._heard: list[str] = []
        self._line, told = pipe()
        self._child = born(run_office, engine, settings, told)
        told.close()  # or its end would never be heard

    def hears(self, line: str) -> None:
        """Wait until it has said this line."""
        while line not in self._heard:
            assert self._line.poll(DEADLINE_S), f"it never said {line!r}"
            try:
                self._heard.append(self._line.recv())
            except EOFError:
                raise AssertionError(f"it ended ({self.ended()}) and had not said {line!r}") from None

    def said(self) -> Iterator[str | None]:
        """What it has said since, without waiting; None at its end."""
        while self._line.poll():
            try:
                yield self._line.recv()
            except (EOFError, ConnectionResetError):
                yield None
                return

    def send(self, number: signal.Signals) -> None:
        assert self._child.pid is not None
        os.kill(self._child.pid, number)

    def ended(self) -> int | None:
        """Wait for its end: its exit code, or the negative number of the signal that ended it."""
        self._child.join(DEADLINE_S)
        return self._child.exitcode

    def remove(self) -> None:
        """SIGKILL, whatever it is at."""
        self._child.kill()
        self._child.join()
        self._line.close()


@contextmanager
def office(engine: str, settings: dict[str, Any], **more: Any) -> Iterator[Office]:
    """A worker process that has begun to work, and is gone at the end."""
    made = Office(engine, settings | more)
    try:
        made.hears("works")
        yield made
    finally:
        made.remove()
