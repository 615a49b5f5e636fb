"""Starting, hearing and ending the worker processes of `office`."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.helpers.children import DEADLINE_S, import_path

PROGRAM = Path(__file__).with_name("office.py")


class Office:
    """A worker process."""

    def __init__(self, engine: str, settings: dict[str, Any]) -> None:
        self._said = b""
        root = str(Path(__file__).parents[2])
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.workers.office", engine, json.dumps(settings)],
            stdout=subprocess.PIPE,
            cwd=root,
            env={**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{import_path()}"},
        )

    def hears(self, line: str) -> None:
        """Wait until it says this line."""
        assert self._child.stdout is not None
        while f"{line}\n".encode() not in self._said:
            ready, _, _ = select.select([self._child.stdout], [], [], DEADLINE_S)
            assert ready, f"it never said {line!r}"
            said = os.read(self._child.stdout.fileno(), 65536)
            assert said, f"it ended ({self._child.wait()}) and had not said {line!r}"
            self._said += said

    def send(self, number: signal.Signals) -> None:
        self._child.send_signal(number)

    def ended(self) -> int:
        """Wait for its end: its exit code."""
        return self._child.wait(DEADLINE_S)

    def remove(self) -> None:
        """SIGKILL, whatever it is at."""
        self._child.kill()
        self._child.wait()
        assert self._child.stdout is not None
        self._child.stdout.close()


@contextmanager
def office(engine: str, settings: dict[str, Any], **more: Any) -> Iterator[Office]:
    """A worker process that has begun to work, and is gone at the end."""
    made = Office(engine, settings | more)
    try:
        made.hears("works")
        yield made
    finally:
        made.remove()
