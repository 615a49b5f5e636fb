"""A process that has imported what tests import from elsewhere, and forks a child for each command that it reads.

Importing pytest, Hypothesis and the clients of models and stores takes ten times as long as importing standfast. Only
the child imports standfast, so each child runs the source as it is on the disk then. `tools/mutants.py` starts one per
copy of the project: it writes a JSON line `{"command": [...], "output": path}`, and reads the child's process id and,
when the child has ended, its exit code.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import sys

IMPORTED = (
    "pytest", "_pytest.assertion.rewrite", "pytest_asyncio.plugin", "pytest_timeout", "xdist.plugin", "hypothesis",
    "_hypothesis_pytestplugin", "msgspec", "pydantic", "openai", "openai.types.responses", "agents", "agents.realtime",
    "agents.extensions.memory", "redis", "redis.asyncio", "sqlalchemy.ext.asyncio", "psycopg", "asyncpg", "mcp",
    "cryptography.fernet", "httpx", "websockets", "multiprocessing.forkserver", "tomllib",
)  # fmt: skip


def main() -> None:
    """Import, then fork for each line until there is none."""
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    assert not any(name.partition(".")[0] == "standfast" for name in sys.modules), "a child would run an old source"
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if not pid:
            _run(asked["command"], asked["output"])
        _say(pid)
        _say(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _say(number: int) -> None:
    print(number, flush=True)


def _run(command: list[str], output: str) -> None:
    """Run `-m module arguments…` as this process, and end it."""
    code = 1
    try:
        os.setsid()
        with open(output, "wb") as file, open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
