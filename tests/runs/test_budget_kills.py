"""F10 over processes that are killed: what the provider's own books say is within the limit (`--budget-kills N`)."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path

import pytest

from standfast import open_store
from tests.helpers import servers
from tests.helpers.budget_actor import BUDGET, EXCESS, paid


def url_of(kind: str, folder: Path) -> str:
    made = {
        "sqlite": lambda: f"sqlite:///{folder / 'store.db'}",
        "redis": lambda: f"{servers.redis_url()}?key_prefix={uuid.uuid4().hex}",
        "postgres": lambda: f"{servers.postgres_url()}?schema=b{uuid.uuid4().hex[:8]}",
    }
    return made[kind]()


class Spenders:
    """Processes that spend from one budget."""

    def __init__(self, folder: Path, url: str, limit: str, seed: int) -> None:
        self.folder, self.url, self.limit = folder, url, limit
        self.rng = random.Random(seed)
        self.alive: dict[str, subprocess.Popen[bytes]] = {}
        self.said: list[str] = []

    def begin(self, name: str) -> None:
        words = [name, str(self.rng.getrandbits(32)), str(self.folder), self.url, self.limit]
        command = [sys.executable, "-m", "tests.helpers.budget_actor", *words]
        self.alive[name] = process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0)
        assert process.stdout is not None
        assert process.stdout.readline() == b"at work\n"

    def kill(self, name: str) -> None:
        with self.alive.pop(name) as process:
            process.kill()

    def wait(self, name: str) -> None:
        with self.alive.pop(name) as process:
            out, _ = process.communicate(timeout=300)
            self.said += out.decode().split("\n")[:1]


def spend(folder: Path, url: str, limit: str, *, processes: int, kills: int) -> list[str]:
    """Let processes spend, kill some of them again and again, and wait until nothing is left."""
    spenders, names = Spenders(folder, url, limit, kills), [f"p{number}" for number in range(processes)]
    try:
        for name in names:
            spenders.begin(name)
        for _ in range(kills):
            name = spenders.rng.choice(names)
            try:
                spenders.alive[name].wait(spenders.rng.uniform(0.01, 0.3))
            except subprocess.TimeoutExpired:
                pass
            spenders.kill(name)
            spenders.begin(name)
        for name in names:
            spenders.wait(name)
    finally:
        for name in tuple(spenders.alive):
            spenders.kill(name)
    return spenders.said


async def totals(url: str) -> tuple[Decimal, Decimal, Decimal]:
    async with open_store(url) as store:
        view = await store.budget(BUDGET)
        return Decimal(view.used), Decimal(view.unknown), sum(map(Decimal, view.held.values()), Decimal(0))


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_what_processes_pay_together_equals_the_budget_and_stays_within_it(kind: str, tmp_path: Path) -> None:
    """Clause F10: without a crash the budget is the provider's own books, to the last digit."""
    limit, url = "1.50", url_of(kind, tmp_path)
    said = spend(tmp_path, url, limit, processes=3, kills=0)
    assert said == ["nothing left"] * 3
    used, unknown, held = asyncio.run(totals(url))
    books = Decimal(sum(paid(tmp_path))) / 1000
    assert (used, unknown, held) == (books, 0, 0)
    assert books <= Decimal(limit) + 3 * Decimal(EXCESS) / 1000
    assert books > Decimal(limit) - 3 * Decimal("0.055"), "it is spent until the next estimate does not fit"


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_no_kill_makes_a_request_free(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Clause F10: paid is within the limit and what replies under way exceed their estimates; what died is counted."""
    kills: int = request.config.getoption("--budget-kills")
    processes, url = min(16, max(3, kills // 2)), url_of(kind, tmp_path)
    limit = f"{2 + kills * 0.3:.2f}"
    said = spend(tmp_path, url, limit, processes=processes, kills=kills)
    assert said == ["nothing left"] * processes
    used, unknown, held = asyncio.run(totals(url))
    books, excess = Decimal(sum(paid(tmp_path))) / 1000, Decimal(EXCESS) / 1000
    assert books <= Decimal(limit) + (processes + kills) * excess
    assert used <= Decimal(limit) + processes * excess
    # A reply that died with its process is counted as its estimate, which it may have exceeded.
    assert books <= used + kills * excess
    # What arrived and was saved is exact: only replies that died with their processes are missing.
    assert books - kills * Decimal("0.055") <= used - unknown - held <= books
