"""What `import standfast` costs, beside `import agents` and an empty program: medians of fresh processes.

The target is at most 100 ms on top of a bare interpreter. What is imported is checked by a test; this shows the time.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

ROUNDS = 9
PROGRAMS = {
    "an empty program": "pass",
    "import standfast": "import standfast",
    "from standfast import SQLiteSession": "from standfast import SQLiteSession",
    "from standfast import Agent, Runner": "from standfast import Agent, Runner",
    "import agents (openai-agents)": "import agents",
}


def seconds(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - began


def main() -> None:
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(ROUNDS):  # taking turns, so that a busy moment of the machine touches all of them
        for name, program in PROGRAMS.items():
            times[name].append(seconds(program))
    bare = statistics.median(times["an empty program"])
    print("| program | ms | ms over an empty program |")
    print("|---|---:|---:|")
    for name, rounds in times.items():
        median = statistics.median(rounds)
        print(f"| `{name}` | {median * 1000:.0f} | {(median - bare) * 1000:.0f} |")


if __name__ == "__main__":
    main()
