"""Run the simulator on generated agents: `python -m standfast.testing.simulator 1000`, `--seed 17` for
a single seed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from standfast._kits.testing.simulator.simulate import Report, SimulationFailed, replay, simulate_generated


def main(arguments: Sequence[str]) -> int:
    """Run the simulator on generated conversations; return the exit code."""
    parser = argparse.ArgumentParser(prog="standfast.testing.simulator", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("count", type=int, nargs="?", default=1000, help="how many seeds (default: %(default)s)")
    parser.add_argument("--voice", action="store_true", help="voice calls instead of text runs")
    parser.add_argument("--overlap", action="store_true", help="messages that overlap on one session")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="only this seed, with everything that happens")
    asked = parser.parse_args(arguments)
    seeds = range(asked.start, asked.start + asked.count) if asked.seed is None else [asked.seed]
    began = time.monotonic()
    again, lives = _kind_of_lives(asked)
    try:
        if asked.seed is not None:
            sys.stdout.write("\n".join(again(asked.seed)) + "\n")
        report = lives(seeds)
    except SimulationFailed as failure:
        tail = "\n".join(failure.trace[-60:])
        sys.stdout.write(
            f"{tail}\n\n{failure}\n  python -m standfast.testing.simulator"
            f"{' --voice' if asked.voice else ' --overlap' if asked.overlap else ''} --seed {failure.seed}\n"
        )
        return 1
    sys.stdout.write(f"{report} ({time.monotonic() - began:.1f} s)\n")
    return 0


def _kind_of_lives(asked: argparse.Namespace) -> tuple[Callable[[int], list[str]], Callable[[Iterable[int]], Report]]:
    """Return the functions that replay a seed, and that run many."""
    if asked.voice:
        from standfast._kits.testing.simulator import voice  # here: it needs more than text does

        return voice.replay_call, voice.simulate_generated_calls
    if asked.overlap:
        from standfast._kits.testing.simulator import overlap

        return overlap.replay_overlap, overlap.simulate_overlaps
    return replay, simulate_generated


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
