"""The attacks of several processes, on Redis and PostgreSQL: at random from a seed, stopped, killed, started twice.

"client" is Redis over a client that belongs to the loop: nothing renews or stores for it but that loop. The rule is
that of tests/helpers/ledger_oracle.py; `STANDFAST_ATTACK_ROUNDS=100` plays that many times as many stories.
"""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.actors import act
from helpers.ledger_oracle import asked_next, lines, outputs, says_unknown, short, wrongs
from helpers.processes import Child
from helpers.starters import start
from helpers.workers import PLACES, calm_history, work

from standfast import Agent, Runner, StandfastError
from tests.helpers.stores import SERVERS, looked_at, place

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
SEALED, CLIENT = (pytest.param(kind, marks=pytest.mark.redis) for kind in ("sealed", "client"))


@pytest.mark.parametrize("kind", [*SERVERS, CLIENT, SEALED])
def test_whatever_two_processes_do_on_a_server_nothing_is_lost_doubled_or_forgotten(kind: str, tmp_path: Path) -> None:
    """C8, C14, C15, C16, B7. A failure names its seed."""
    problems: dict[int, list[str]] = {}
    for seed in range(1, 1 + 2 * ROUNDS):
        if found := _play(place(kind, tmp_path), tmp_path / f"{seed}", seed):
            problems[seed] = found
    assert problems == {}


def _play(where: str, path: Path, seed: int) -> list[str]:
    may_die = seed % 3 == 0
    with ExitStack() as stack:
        told: dict[str, Any] = {"path": str(path), "seed": seed, "acts": 8, "may_die": may_die, "where": where}
        children = [stack.enter_context(Child(act, who=f"{name}{seed}", **told)) for name in "ab"]
        for child in children:
            child.hear_until("ready")
        for child in children:
            child.say("go")
        results: list[tuple[str, Any]] = [child.result() for child in children]
    fine = {"ok", "died"} if may_die else {"ok"}
    found = [f"{name}: {value}" for name, value in results if name not in fine or (name == "ok" and value)]
    return found + asyncio.run(_told(where, lines(f"{path}.book")))


async def _told(where: str, book: list[str]) -> list[str]:
    session = looked_at(where)
    found = wrongs(book, await asked_next(session, lease_wait_s=60.0))
    for run in (await Runner.list_runs(session=session, status="paused"))[0]:
        with suppress(StandfastError):
            await Runner.cancel_run(Agent(name="A"), run.run_id, session=session)
    found += [f"stored: {wrong}" for wrong in wrongs(book, await session.get_items())]
    await session.close()
    return found


@pytest.mark.parametrize("kind", [*SERVERS, CLIENT])
def test_a_worker_stopped_past_its_lease_on_a_server_hides_and_repeats_nothing(kind: str, tmp_path: Path) -> None:
    """B7, C13, C15: stopped until a second has taken over and finished; then it wakes up."""
    places = PLACES if ROUNDS > 1 else ("in request 1", "call 1 began", "call 2 paid", "after call 3")
    problems: dict[str, Any] = {}
    with ExitStack() as stack:
        first: dict[str, tuple[Child, str, Path]] = {}
        for at in places:
            where, path = place(kind, tmp_path), tmp_path / at
            child = stack.enter_context(_worker(where, path, "first", ttl_s=2.0, at=at))
            child.hear_until("here")
            child.send_signal(signal.SIGSTOP)
            first[at] = child, where, path
        for at, (child, where, path) in first.items():
            with _worker(where, path, "second", ttl_s=60.0) as second:
                said = second.result()
            before = lines(f"{path}.book")
            child.say("go on")
            child.send_signal(signal.SIGCONT)
            woke = child.result()
            found = [] if said == ("ok", "second is done") else [f"the second said {said}"]
            if woke[0] not in ("LeaseLostError", "RunClaimedError", "ok" if at == "agent end" else ""):
                found.append(f"the first said {woke}")
            if more := asyncio.run(_after_waking(where, lines(f"{path}.book"), before)):
                found += more
            if found:
                problems[at] = found
    assert problems == {}


def _worker(where: str, path: Path, who: str, *, ttl_s: float, at: str | None = None) -> Child:
    config = {"lease_ttl_s": ttl_s, "lease_wait_s": 60.0}
    return Child(work, path=str(path), who=who, at=at, config=config, where=where)


async def _after_waking(where: str, book: list[str], before: list[str]) -> list[str]:
    session = looked_at(where)
    found = wrongs(book, await asked_next(session))
    items = await session.get_items()
    await session.close()
    begun = {call_id for call_id, told in outputs(items).items() if all(map(says_unknown, told))}
    if late := set(book[len(before) :]) - begun:
        found.append(f"{sorted(late)} began without a lease")
    history, whole = short(items), calm_history("second")
    if not any(history[start : start + len(whole)] == whole for start in range(len(history))):
        found.append(f"the second's turns are not whole and in order: {history}")
    return found


@pytest.mark.parametrize("kind", [*SERVERS, CLIENT])
@pytest.mark.parametrize("owner", ["nobody", "session wait", "session allow"])
def test_two_processes_that_start_one_job_on_a_server_have_one_owner(kind: str, owner: str, tmp_path: Path) -> None:
    """C16: one effect and one history; the other gets the result, or is told."""
    where, path = place(kind, tmp_path), tmp_path / "job"
    with ExitStack() as stack:
        told: dict[str, Any] = {"path": str(path), "owner": owner, "where": where}
        children = [stack.enter_context(Child(start, **told)) for _ in range(2)]
        for child in children:
            child.hear_until("ready")
        for child in children:
            child.say("go")
        results = [child.result() for child in children]
    assert lines(f"{path}.book") == ["c1"], results
    names = [name for name, _ in results]
    assert "ok" in names
    assert set(names) <= {"ok", "RunClaimedError", "RunStateError"}
    if owner != "nobody":
        assert short(asyncio.run(_items(where))) == ["U(pay 5)", "C(c1)", "O(c1: done)", "A(done)"]


async def _items(where: str) -> list[Any]:
    session = looked_at(where)
    items: list[Any] = await session.get_items()
    await session.close()
    return items
