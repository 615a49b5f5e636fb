"""How a child process talks with the test that started it: a pipe each way."""

from __future__ import annotations

import json
import os


class JobPipe:
    """A job's end of its pipes: one JSON value a line to the test, and the word to go on back."""

    def __init__(self, report: int, go: int) -> None:
        self._report, self._go = report, go

    def tell(self, **facts: object) -> None:
        """Report something; it has left this process when this returns."""
        os.write(self._report, json.dumps(facts).encode() + b"\n")

    def wait(self) -> bool:
        """Wait to be told to go on; False if the test has gone or wants an end."""
        return os.read(self._go, 1) != b""
