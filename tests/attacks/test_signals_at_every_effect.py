"""SIGINT and SIGTERM at every effect, and SIGSTOP past the lease at every effect with a second worker that takes over.

Checked against one rule: whatever a tool did is in the history that the next model sees, once, or said to be unknown.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import asked_next, lines, outputs, says_unknown, short, wrongs
from helpers.processes import Child, Line, exit_between_callbacks, stop_outside_writes
from helpers.workers import PLACES, calm_history, work

from standfast import Runner, SQLiteSession

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))


async def stopped_politely(line: Line, **told: Any) -> str:
    """A worker that SIGTERM ends as containers advise; Ctrl-C does what Python does."""
    exit_between_callbacks(signal.SIGTERM)
    return await work(line, **told)


SIGNALS: Mapping[str, tuple[signal.Signals, ...]] = {
    "SIGINT": (signal.SIGINT,),
    "SIGTERM": (signal.SIGTERM,),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
    "SIGTERM twice": (signal.SIGTERM, signal.SIGTERM),
    "SIGKILL": (signal.SIGKILL,),
}


def _ends(child: Child, numbers: str) -> bool:
    # The second Ctrl-C raises KeyboardInterrupt wherever Python is, and asyncio may lose a callback by that: then
    # nothing but a third one ends the program, whatever runs in it (see `exit_between_callbacks`).
    if numbers == "SIGINT twice" and not child.ends_within(20.0):
        child.send_signal(signal.SIGINT)
    return child.exit_code() is not None


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("numbers", SIGNALS)
def test_a_signal_at_any_place_hides_nothing(numbers: str, streamed: bool, tmp_path: Path) -> None:
    """C14, C15: the process ends, the session is free, and the next model sees what was done."""
    problems: dict[str, Any] = {}
    for number in range(ROUNDS):
        for at in PLACES[(streamed + number) % 2 :: 2] if ROUNDS == 1 else PLACES:
            path = tmp_path / f"{number} {at}.db"
            config = {"lease_ttl_s": 2.0}
            with Child(stopped_politely, path=str(path), who="w", at=at, config=config, streamed=streamed) as child:
                child.hear_until("here")
                for one in SIGNALS[numbers]:
                    child.send_signal(one)
                if not _ends(child, numbers):
                    problems[at] = "it hangs"
                    continue
            session = SQLiteSession("s", path)
            if found := wrongs(lines(f"{path}.book"), asyncio.run(asked_next(session))):
                problems[at] = found
            if numbers in ("SIGINT", "SIGTERM"):
                runs, _ = asyncio.run(Runner.list_runs(session=session, status="running"))
                if any(run.run_id == "w" for run in runs):
                    problems.setdefault(at, "the run is still said to be running")
            session.close()
    assert problems == {}


def test_a_worker_stopped_past_its_lease_at_any_place_hides_and_repeats_nothing(tmp_path: Path) -> None:
    """B7, C13, C15: stopped until a second has taken over and finished; then it wakes up.

    All places at once, since each has to wait for its lease to end.
    """
    problems: dict[str, Any] = {}
    for number in range(ROUNDS):
        with ExitStack() as stack:
            paths = {at: tmp_path / f"{number} {at}.db" for at in PLACES}
            firsts: dict[str, Child] = {}
            for at, path in paths.items():  # one after the other, so that none is starved out of its short lease
                firsts[at] = stack.enter_context(_worker(path, "first", at=at, ttl_s=2.0))
                firsts[at].hear_until("here")
                stop_outside_writes(firsts[at].pid, path)
            for at, path in paths.items():
                with _worker(path, "second", ttl_s=60.0) as second:
                    said = second.result()
                before = lines(f"{path}.book")
                firsts[at].say("go on")
                firsts[at].send_signal(signal.SIGCONT)
                woke = firsts[at].result()
                if found := _after_waking(at, path, said, woke, before):
                    problems[at] = found
    assert problems == {}


def _worker(path: Path, who: str, *, ttl_s: float, at: str | None = None) -> Child:
    return Child(work, path=str(path), who=who, at=at, config={"lease_ttl_s": ttl_s, "lease_wait_s": 60.0})


def _after_waking(at: str, path: Path, second: tuple[str, str], first: tuple[str, str], before: list[str]) -> list[str]:
    """What is wrong after the first has woken up and ended."""
    found = []
    if second != ("ok", "second is done"):
        found.append(f"the second said {second}")
    # At its very end it may have stored everything and given its lease back before it was stopped.
    if first[0] not in ("LeaseLostError", "RunClaimedError", "ok" if at == "agent end" else ""):
        found.append(f"the first said {first}")
    session = SQLiteSession("s", path)
    found += wrongs(lines(f"{path}.book"), asyncio.run(asked_next(session)))
    items = asyncio.run(session.get_items())
    session.close()
    # A call whose beginning was saved before it was stopped may still do its work, and the second has told it as
    # unknown; nothing else may begin. Calls 1 and 2 are one reply's: both may have begun where one of them stands.
    begun = {call_id for call_id, told in outputs(items).items() if all(map(says_unknown, told))}
    if late := set(lines(f"{path}.book")[len(before) :]) - begun:
        found.append(f"{sorted(late)} began without a lease")
    history = short(items)
    if not _holds(history, calm_history("second")):
        found.append(f"the second's turns are not whole and in order: {history}")
    return found


def _holds(history: list[str], part: list[str]) -> bool:
    """Whether `part` stands in `history` in one piece."""
    return any(history[start : start + len(part)] == part for start in range(len(history)))
