"""The voice demo works for a stranger: a telephone call with an interruption, a killed worker and an approval."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_a_telephone_call_survives_the_death_of_its_worker():
    """The page's demo with a telephone in place of a browser: `./dev voice --phone`, in real time."""
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), environment.get("PYTHONPATH", "")])
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "voice" / "supervise.py"), "--phone"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    lines = ended.stdout.splitlines()
    assert "  user: A table for two please." in lines
    assert any(line.startswith("  assistant: Here is what I have: table five") for line in lines)
    assert any(line.startswith("  assistant: This house was built") and "guest" not in line for line in lines)
