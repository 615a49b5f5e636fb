"""The command line beside a bare query and an empty Python: ratios from one run on one machine.

Processor time of whole processes, the least of several, because a command is a process and the machine may be busy.
`standfast --help` is to stay under 3 empty Pythons. A listing of every session stands beside a program that asks SQLite
for the same rows and prints them. Run it with `./dev bench bench_cli`.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType

QUERY = """
import sqlite3, sys
db = sqlite3.connect(f"file:{sys.argv[1]}?mode=ro&immutable=1", uri=True)
statement = "SELECT session_id, updated_at, created_at FROM agent_sessions ORDER BY standfast_changed DESC"
rows = db.execute(statement).fetchall()
"""
PRINTED = QUERY + 'for row in rows: sys.stdout.write("\\t".join(row) + "\\n")\n'
# As the installed command does it.
STANDFAST = "import sys; from standfast._kits.cli.entry import main; sys.exit(main())"


def looking() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_looking", Path(__file__).with_name("bench_looking.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def spent_ms(program: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *program], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3


def main(sessions: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "large.db"
        asyncio.run(looking().filled(store, sessions, 1_000))
        programs = {
            "an empty Python": ["-c", "pass"],
            "standfast --help": ["-c", STANDFAST, "--help"],
            "python -m standfast --help": ["-m", "standfast", "--help"],
            "the bare query, rows fetched": ["-c", QUERY, str(store)],
            "the bare query, rows printed": ["-c", PRINTED, str(store)],
            "sessions ls --all --brief": ["-c", STANDFAST, "sessions", "ls", str(store), "--all", "--brief"],
            "sessions ls (50, with details)": ["-c", STANDFAST, "sessions", "ls", str(store)],
        }
        times: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(rounds):
            for name, program in programs.items():
                times[name].append(spent_ms(program))
    least = {name: min(taken) for name, taken in times.items()}
    empty, fetched, printed = (least[name] for name in list(programs) if name.startswith(("an empty", "the bare")))
    print(f"{sessions:,} sessions; processor time, least of {rounds}")
    print(f"{'program':34}{'ms':>8}{'x empty':>10}{'x query':>10}{'x printed':>11}")
    for name, taken in least.items():
        print(f"{name:34}{taken:>8.0f}{taken / empty:>10.2f}{taken / fetched:>10.2f}{taken / printed:>11.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    main(given.sessions, given.rounds)
