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
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.helpers.children import import_path
from tests.helpers.processes import wait_until

PR_SET_PDEATHSIG = 1
GRACE_S = 20
"""How long uvicorn waits for open requests: they end when the worker stops, so this only ends what hangs."""


class Nursery:
    """Where workers come from: a process that runs `module`, which calls `bring_up`."""

    def __init__(self, module: str = __name__) -> None:
        self.cpu_s = 0.0
        """What the workers that have ended have used."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
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

    def worker(self, folder: Path, settings: dict[str, Any], port: int = 0) -> ServiceProcess:
        """A new worker, which listens: at this port, or at any."""
        said = folder / f"port-{uuid.uuid4().hex}"
        told = {"folder": str(folder), "said": str(said), "port": port, "settings": settings}
        pid = int(self.ask(told))
        return ServiceProcess(self, pid, int(wait_until(lambda: said.exists() and said.read_text())))

    def ask(self, told: object) -> Any:
        """What the nursery answers."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(told) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


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
            self._code, cpu_s = self._nursery.ask(self.pid)
            self._nursery.cpu_s += cpu_s
        assert self._code is not None
        return self._code


# --- in the nursery --------------------------------------------------------------------------------------------------

MakeApp = Callable[[Path, dict[str, Any]], Any]
"""Makes the application of a worker, from its folder and its settings."""


def bring_up(make_app: MakeApp) -> None:
    """Fork a worker for each line that describes one; wait for the end of one for each line that is a number."""
    for line in sys.stdin:
        told = json.loads(line)
        if isinstance(told, int):
            _, status, used = os.wait4(told, 0)
            print(json.dumps([os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            try:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                os.close(0)
                serve(make_app(Path(told["folder"]), told["settings"]), told["port"], Path(told["said"]))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        print(pid, flush=True)


def serve(app: Any, port: int, said: Path) -> None:
    """What a worker does: uvicorn. It says at which port as soon as it listens."""
    import uvicorn

    listening = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", lifespan="on", timeout_graceful_shutdown=GRACE_S)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            made = said.with_suffix(".new")
            made.write_text(str(listening.getsockname()[1]))
            made.rename(said)

    Server(config).run([listening])


def main() -> None:
    """The nursery of the tests: the service, with an agent that stands where it is told."""
    import psycopg_pool  # noqa: F401 — imported here, so that no worker has to
    import uvicorn.loops.auto
    import uvicorn.protocols.http.auto  # noqa: F401
    from service.app import make_app
    from service.settings import Settings

    import standfast._src.runs.recovery.watch
    import standfast._src.sessions.backends.postgres.postgres_session
    import standfast._src.sessions.backends.sqlite.sqlite_session  # noqa: F401
    from tests.web_service.payer import payer

    bring_up(lambda folder, settings: make_app(Settings(**{"open": True, **settings}), payer(folder)))


if __name__ == "__main__":
    main()
