"""The whole suite as pytest collected it, before a tier was chosen: what the tests about the tiers look at."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.clauses import clauses_of
from tests.helpers.tiers import tier_of

ROOT = Path(__file__).resolve().parents[2]
WRITTEN_TO = "STANDFAST_COLLECTED"
"""A file that a pytest which collects the whole suite writes it to."""

SERVERS = ("redis", "postgres", "mariadb", "pgbouncer")


@dataclass(frozen=True, slots=True)
class Collected:
    """A test of the suite: its tier, the clauses that it proves, the servers it needs."""

    test_id: str
    clauses: frozenset[str]
    servers: frozenset[str]

    @classmethod
    def of(cls, item: pytest.Item) -> Collected:
        """Describe a test that pytest has collected."""
        needed = frozenset(name for name in SERVERS if item.get_closest_marker(name))
        return cls(item.nodeid, clauses_of(item), needed)

    @property
    def tier(self) -> str:
        """The first tier that includes it."""
        return tier_of(self.test_id)

    @property
    def suite(self) -> str:
        """The class that it is in, such as `TestRedis`; empty for a function of a module."""
        parts = self.test_id.split("::")
        return parts[1] if len(parts) > 2 else ""


COLLECTED = pytest.StashKey[list[Collected]]()


def keep(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the whole suite for the tests about it; a run of named files keeps nothing."""
    if not whole_suite(config):
        return
    found = config.stash[COLLECTED] = [Collected.of(item) for item in items]
    if WRITTEN_TO in os.environ:
        rows = [[test.test_id, sorted(test.clauses), sorted(test.servers)] for test in found]
        Path(os.environ[WRITTEN_TO]).write_text(json.dumps(rows), encoding="utf-8")


def collect_all(file: Path) -> list[Collected]:
    """Collect the whole suite in a pytest of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "tests"]
    ran = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, WRITTEN_TO: str(file)}, check=False
    )
    assert ran.returncode == 0, ran.stdout[-4000:]
    rows = json.loads(file.read_text(encoding="utf-8"))
    return [Collected(test_id, frozenset(clauses), frozenset(servers)) for test_id, clauses, servers in rows]


def whole_suite(config: pytest.Config) -> bool:
    """Return whether this run collects every test, rather than files that were named."""
    named = [arg.rstrip("/") for arg in config.args]
    return named in (["tests"], [str(config.rootpath / "tests")])
