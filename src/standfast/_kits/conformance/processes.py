"""Child processes for checks: forked from a small server process, watched over a pipe, killed for real."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from standfast._kits.conformance.fork_server import LENGTH

ENDING_S = 10.0
# How long a job that has nothing more to do may take to end.


class Staged(Protocol):
    """Description of a store or an engine, as the kit gives it to a check."""

    folder: Path
    unique: str

    def child_state(self) -> dict[str, Any]:
        """Return attributes that a copy in a child process needs."""


class Child:
    """A process doing a job. Leaving its `with` block ends it."""

    def __init__(self, pid: int, report: int, go: int) -> None:
        self.pid = pid
        self._report, self._go = report, go
        self._unread = b""
        self._ended = False

    def next(self, timeout_s: float = 60) -> dict[str, Any] | None:
        """Return the next report, or None after the end of the process. Raises TimeoutError, and errors of the
        child.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread and not self._ended:
            ready, _, _ = select.select([self._report], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError(f"child process {self.pid} said nothing for {timeout_s} s")
            data = os.read(self._report, 65536)
            self._unread += data
            self._ended = not data
        if self._ended and b"\n" not in self._unread:
            return None
        line, _, self._unread = self._unread.partition(b"\n")
        facts: dict[str, Any] = json.loads(line)
        if "error" in facts:
            raise RuntimeError(f"in a child process: {facts['error']}\n{facts['trace']}")
        return facts

    def read_reports(self) -> Iterator[dict[str, Any] | None]:
        """Yield the unread reports without waiting; None at the end of the process."""
        while True:
            try:
                facts = self.next(0.0)
            except TimeoutError:
                return
            yield facts
            if facts is None:
                return

    def rest(self) -> list[dict[str, Any]]:
        """Return all remaining reports, after the end of the process."""
        return list(iter(self.next, None))

    def go(self) -> None:
        """Let the job continue."""
        os.write(self._go, b"g")

    def kill(self) -> None:
        """SIGKILL: no handler, no clean-up, no farewell."""
        os.kill(self.pid, signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._go)  # a job waiting for it ends by itself
        # One that was left by an error may be a job that reports for as long as it lives: it is not waited for.
        patience_s = ENDING_S if error is None else 0.0
        deadline = time.monotonic() + patience_s
        while not self._ended:
            ready, _, _ = select.select([self._report], [], [], max(0.0, deadline - time.monotonic()))
            if ready:
                self._ended = not os.read(self._report, 65536)
            if not self._ended and time.monotonic() >= deadline:
                with contextlib.suppress(ProcessLookupError):
                    self.kill()
                deadline = time.monotonic() + ENDING_S
        os.close(self._report)


class ForkServer:
    """The process from which the children of a test process are forked."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "standfast._kits.conformance.fork_server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            )
        self._sock = ours

    def start(self, backend: Staged, job: str, **parameters: object) -> Child:
        """A new process doing that job of `child_jobs`, or of `module:function`, on the backend's store."""
        report, their_report = os.pipe()
        their_go, go = os.pipe()
        order = pickle.dumps({**_description(backend), "job": job, "with": parameters})
        socket.send_fds(self._sock, [LENGTH.pack(len(order))], [their_report, their_go])
        self._sock.sendall(order)
        os.close(their_report)
        os.close(their_go)
        answer = self._sock.recv(LENGTH.size)
        if len(answer) < LENGTH.size:
            raise RuntimeError("the fork server has ended; its standard error says why")
        return Child(LENGTH.unpack(answer)[0], report, go)

    def close(self) -> None:
        """End the process: it stops when its socket closes."""
        self._sock.close()
        self._process.wait()


def _description(backend: Staged) -> dict[str, Any]:
    kind = type(backend)
    module = sys.modules[kind.__module__]
    # What setup() made belongs to the parent; the author says with child_state() what of it a child must have.
    plain = {name: value for name, value in vars(backend).items() if isinstance(value, str | int | float | bool)}
    return {
        "module": kind.__module__,
        "file": getattr(module, "__file__", None),
        "class": kind.__qualname__,
        "state": {**plain, **backend.child_state()},
        "folder": str(backend.folder),
        "unique": backend.unique,
    }


_fork_server: ForkServer | None = None
_fork_server_pid = 0


def start(backend: Staged, job: str, **parameters: object) -> Child:
    """A new process doing that job of `child_jobs`, or of `module:function`, on the backend's store."""
    global _fork_server, _fork_server_pid
    if _fork_server is None or _fork_server_pid != os.getpid():
        _fork_server, _fork_server_pid = ForkServer(), os.getpid()
    return _fork_server.start(backend, job, **parameters)


@contextmanager
def together(backend: Staged, count: int, job: str, **parameters: object) -> Iterator[list[Child]]:
    """Start several processes, all ready before the first may begin; each gets its `number`."""
    children = [start(backend, job, number=number, **parameters) for number in range(count)]
    try:
        for child in children:
            assert child.next() == {"ready": True}
        for child in children:
            child.go()
        yield children
    finally:
        for child in children:
            child.__exit__(None, None, None)


def end() -> None:
    """End the fork server of this process, if any."""
    global _fork_server
    if _fork_server is not None and _fork_server_pid == os.getpid():
        _fork_server.close()
    _fork_server = None


atexit.register(end)
