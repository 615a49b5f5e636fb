"""Nothing fails at import where Python has no `fork`, no `fcntl` and no `/proc`, as on Windows and macOS.

The systems themselves are not tested; `docs/how-to/move-from-openai-agents.md` says so. Here a child process of this
system does without what they do not have.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import standfast

PREAMBLE = """
import importlib, os, signal, sys
# Other people's packages, and Python's own, go by the name of the system: they are loaded as they are here.
for name in {packages!r}:
    importlib.import_module(name)
processes = "fork forkpty getuid geteuid getpgid killpg register_at_fork setsid sched_getaffinity"
for name in processes.split():
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGKILL", "SIGSTOP", "SIGCONT", "SIGHUP", "SIGUSR1"):
    if hasattr(signal, name):
        delattr(signal, name)
for name in ("fcntl", "resource", "termios", "pwd", "grp", "pty"):
    sys.modules[name] = None
real = os.path.exists
os.path.exists = lambda path: False if str(path).startswith("/proc") else real(path)
"""
PACKAGES = (
    "asyncio", "multiprocessing", "subprocess", "threading", "tempfile", "mcp", "openai", "redis.asyncio", "psycopg",
    "websockets", "sqlalchemy", "cryptography", "pytest", "hypothesis", "starlette", "uvicorn", "opentelemetry.sdk",
)  # fmt: skip


def in_a_child(program: str) -> str:
    source = PREAMBLE.format(packages=PACKAGES) + textwrap.dedent(program)
    ended = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.strip()


def test_every_module_can_be_imported():
    root = Path(standfast.__file__).parent
    names = []
    for file in sorted(root.rglob("*.py")):
        parts = file.relative_to(root.parent).with_suffix("").parts
        # The kit's own crash tests kill child processes, which is what the other systems do differently.
        if "__main__" not in parts and "conformance" not in parts and "simulator" not in parts:
            names.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    program = f"""
        import importlib
        for name in {names!r}:
            importlib.import_module(name)
        print(len({names!r}))
    """
    assert int(in_a_child(program)) > 300


def test_a_run_in_a_session_works(tmp_path: Path):
    program = f"""
        from standfast import Agent, InMemorySession, Runner, SQLiteSession, function_tool
        from standfast.testing import ScriptedModel, final, function_call

        @function_tool
        def add(a: int, b: int) -> int:
            return a + b

        for session in (InMemorySession("s"), SQLiteSession("s", {str(tmp_path / "talks.db")!r})):
            steps = [[function_call("add", {{"a": 1, "b": 2}}, call_id="c1")], final("3")]
            agent = Agent(name="A", tools=[add], model=ScriptedModel(steps))
            print(Runner.run_sync(agent, "Go", session=session).final_output)
            session.close()
    """
    assert in_a_child(program).split() == ["3", "3"]
