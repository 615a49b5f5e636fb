"""Child processes of tests, in three ways, all of which can be killed for real.

`program` starts Python text of its own. `born` starts a function in a process forked from one that has imported
everything: a test of a death should not pay for a birth. `Forker` does the same for hundreds of workers at a time,
which kill themselves at the step they are told.

However a test run was started (`nohup`, a background job of a shell), a child hears Ctrl-C: a process inherits that
SIGINT is ignored, and Python then installs no handler for it.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import select
import signal
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Sequence
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

DEADLINE_S = 300.0
"""Generous: it only ends a child that hangs."""


def hear_ctrl_c() -> None:
    """For `preexec_fn`: let the child hear Ctrl-C, whatever this process was started with."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def import_path() -> str:
    """The PYTHONPATH under which a child imports what this process imports."""
    return os.pathsep.join(path for path in sys.path if path)


# --- Python text -----------------------------------------------------------------------------------------------------


def program(
    source: str, *args: object, folder: Path | None = None, flags: Sequence[str] = (), errors: bool = False
) -> subprocess.Popen[str]:
    """Start this Python text. Its standard output can be read, and its standard error too, if `errors` says so."""
    return subprocess.Popen(
        [sys.executable, *flags, "-c", textwrap.dedent(source), *map(str, args)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if errors else None,
        text=True,
        env={**os.environ, "PYTHONPATH": import_path()},
        preexec_fn=hear_ctrl_c,
    )


def wait_for(child: subprocess.Popen[str], line: str) -> None:
    """Wait until the child says this line, which must be the next one."""
    assert child.stdout is not None
    ready, _, _ = select.select([child.stdout], [], [], DEADLINE_S)
    assert ready, "the child did not get there"
    said = child.stdout.readline().strip()
    assert said == line, f"{said!r}, {child.communicate(timeout=DEADLINE_S)}"


# --- a function in a process of its own ------------------------------------------------------------------------------


PRELOADED = (
    "helpers.crashing_runs",
    "helpers.killing",
    "helpers.workers",
    "hypothesis.stateful",
    "tools.mcp.helpers",
    "tests.runs.owners.child",
    "openai.resources.responses.responses",
    "psycopg_pool",
    "pytest",
    "sqlalchemy.dialects.sqlite.aiosqlite",
    "standfast._src.sessions.backends.postgres.postgres_session",
    "standfast._src.sessions.backends.redis.redis_session",
    "standfast._src.sessions.backends.sqlalchemy.sqlalchemy_session",
    "standfast._src.sessions.backends.sqlite.sqlite_session",
    "standfast._src.runs.api.runner",
    "standfast._kits.testing.simulator.world",
    "standfast.workers.dbos_workflows",
    "standfast.workers.procrastinate_queue",
)
"""What children of any test import. One list: whoever is first in a process of pytest's starts the server for all, and
a module that it lacks is imported again by each child."""


@functools.cache
def nursery() -> ForkServerContext:
    """The fork server, with everything imported that its children need: a birth then costs milliseconds.

    It is a process of its own that knows only the environment's path, so it is started with ours in there.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = import_path()
    try:
        forkserver.ensure_running()
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
    return context


def born(work: Callable[..., Any], *args: Any) -> BaseProcess:
    """A process that does this work, forked from one that has imported what it needs."""
    child = nursery().Process(target=work, args=args, daemon=True)
    child.start()
    return child


def pipe() -> tuple[Connection, Connection]:
    """A line from a child: the end to listen at, and the end to give to the child."""
    return nursery().Pipe(duplex=False)


def killed(child: BaseProcess) -> None:
    """SIGKILL: no handler, no clean-up, no farewell."""
    child.kill()
    child.join()
    child.close()


def ended(child: BaseProcess, kill_after_s: float | None = None) -> bool:
    """Wait for the child's end, or kill it after so long; whether it was killed. A child must not fail or hang."""
    child.join(DEADLINE_S if kill_after_s is None else kill_after_s)
    if child.is_alive():
        assert kill_after_s is not None, "the program hangs"
        child.kill()
        child.join()
    code = child.exitcode
    child.close()
    assert code in (0, -signal.SIGKILL), f"the program failed ({code}); its standard error says why"
    return code != 0


# --- hundreds of workers ---------------------------------------------------------------------------------------------


class Forker:
    """A process that has everything loaded and no threads: workers are forked from it, so that hundreds cost little.

    `module`, run as a program, calls `serve`.
    """

    def __init__(self, module: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": import_path()},
        )

    def run(self, jobs: Sequence[dict[str, Any]]) -> list[tuple[int, int]]:
        """Do these jobs at the same time, each in a process of its own: their process ids and exit codes."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(jobs)) + "\n")
        self._process.stdin.flush()
        ended = json.loads(self._process.stdout.readline())
        return [(pid, os.waitstatus_to_exitcode(status)) for pid, status in ended]

    def close(self) -> None:
        """End it: it stops when its input does."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def serve(work: Callable[[dict[str, Any]], None]) -> None:
    """Fork a worker for each job of each line, and tell how they ended."""
    for line in sys.stdin:
        pids = [_fork(work, job) for job in json.loads(line)]
        print(json.dumps([os.waitpid(pid, 0) for pid in pids]), flush=True)


def _fork(work: Callable[[dict[str, Any]], None], job: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work(job)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return pid
