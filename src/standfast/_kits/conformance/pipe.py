"""Pipes between a child process and its test, one in each direction."""

from __future__ import annotations

import json
import os


class JobPipe:
    """A job's ends of its pipes: one JSON value a line to the test, and the signal to continue back."""

    def __init__(self, report: int, go: int) -> None:
        self._report, self._go = report, go

    def tell(self, **facts: object) -> None:
        """Report facts; they have left this process at the return."""
        os.write(self._report, json.dumps(facts).encode() + b"\n")

    def wait(self) -> bool:
        """Wait for the signal to continue; return False if the test has ended or wants an end."""
        return os.read(self._go, 1) != b""
