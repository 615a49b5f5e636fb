"""Workers of the service as processes of their own, forked from one that has everything imported.

Each is a whole uvicorn with the application of `examples/service`, on a port of its own. They die with the nursery, and
it with the test.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import traceback
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.helpers.children import import_path
from tests.helpers.processes import wait_until

PR_SET_PDEATHSIG = 1
GRACE_S = 20
"""How long uvicorn waits for open requests: they end when the worker stops, so this only ends what hangs."""


class Nursery:
    """Where workers come from."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.web_service.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": import_path()},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()

    def worker(self, folder: Path, settings: dict[str, Any]) -> ServiceProcess:
        """A new worker, which listens."""
        port = folder / f"port-{uuid.uuid4().hex}"
        told = {"folder": str(folder), "port": str(port), "settings": settings}
        return ServiceProcess(self, self.ask(told), int(wait_until(lambda: port.exists() and port.read_text())))

    def ask(self, told: object) -> int:
        """What the nursery answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


class ServiceProcess:
    """One worker."""

    def __init__(self, nursery: Nursery, pid: int, port: int) -> None:
        self._nursery, self.pid, self.address = nursery, pid, f"http://127.0.0.1:{port}"
        self._code: int | None = None

    def remove(self) -> None:
        """End it, if it has not ended."""
        if self._code is None:
            self.kill()

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        os.kill(self.pid, signal.SIGKILL)
        self.ended()

    def stop(self) -> None:
        """SIGTERM, as a deploy does."""
        os.kill(self.pid, signal.SIGTERM)

    def ended(self) -> int:
        """Wait for its end: its exit code, or the negative number of the signal that ended it."""
        if self._code is None:
            self._code = self._nursery.ask(self.pid)
        return self._code


# --- in the nursery --------------------------------------------------------------------------------------------------


def main() -> None:
    """Fork a worker for each line that describes one; wait for the end of one for each line that is a number."""
    import psycopg_pool  # noqa: F401 — imported here, so that no worker has to
    import service.app  # noqa: F401
    import uvicorn.loops.auto
    import uvicorn.protocols.http.auto  # noqa: F401

    import tests.web_service.payer  # noqa: F401

    for line in sys.stdin:
        told = json.loads(line)
        if isinstance(told, int):
            print(os.waitstatus_to_exitcode(os.waitpid(told, 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            try:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                os.close(0)
                serve(Path(told["folder"]), Path(told["port"]), told["settings"])
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        print(pid, flush=True)


def serve(folder: Path, port: Path, settings: dict[str, Any]) -> None:
    """What a worker does: uvicorn, with the service and an agent that stands where it is told."""
    import uvicorn
    from service.app import make_app
    from service.settings import Settings

    from tests.web_service.payer import payer

    app = make_app(Settings(**settings), payer(folder))
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=GRACE_S)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            made = port.with_suffix(".new")
            made.write_text(str(listening.getsockname()[1]))
            made.rename(port)

    Server(config).run([listening])


if __name__ == "__main__":
    main()
