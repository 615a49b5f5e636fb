"""Programs in namespaces of their own, where this machine and this user allow it: a real container's view.

Who is not root gets the variants that need none of it; here the same test has a further case.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent.parent
PID: tuple[str, ...] = ("unshare", "--pid", "--fork", "--mount-proc")
"""Processes of others cannot be seen: whether a worker lives is known only by its lease."""
TIME: tuple[str, ...] = ("unshare", "--time", "--boottime", "100000")
"""The start times of processes are other numbers than everybody else's."""


@functools.cache
def works(prefix: tuple[str, ...]) -> bool:
    """Whether this user may run a program behind this prefix."""
    if os.geteuid() != 0 or shutil.which(prefix[0]) is None:
        return False
    return subprocess.run([*prefix, "true"], capture_output=True, timeout=30, check=False).returncode == 0


def cases(*extra: tuple[str, ...]) -> list[tuple[str, ...]]:
    """No prefix, and each of these that works here."""
    return [(), *(prefix for prefix in extra if works(prefix))]


def name_of(prefix: Any) -> str:
    return " ".join(prefix[1:2]).lstrip("-") + " namespace" if prefix else "here"


def run_python(prefix: tuple[str, ...], program: str, *arguments: str, timeout_s: float = 60.0) -> str:
    """Run this program text behind the prefix to its end; what it printed. It dies with its parent."""
    done = subprocess.run(
        [*prefix, sys.executable, "-c", program, *arguments],
        capture_output=True, text=True, timeout=timeout_s, check=False, env=environment(),
    )  # fmt: skip
    return done.stdout.strip()


def environment() -> dict[str, str]:
    """So that a program of ours finds what this one found."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
