"""Every scenario, streamed and not, with every kind of session: what a user can notice is the same (C11)."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.helpers import stores

from .observing import SESSIONS, observe
from .scenarios import SCENARIOS


@pytest.mark.clause("C11", backend="runs")
@pytest.mark.parametrize("name", SCENARIOS)
async def test_streamed_and_not_and_every_session_agree(name: str, tmp_path: Path) -> None:
    make = SCENARIOS[name]
    seen = {}
    for kind, session in SESSIONS.items():
        for streamed in (False, True):
            seen[kind, streamed] = await observe(make, streamed=streamed, session=session(tmp_path))
    for kind in SESSIONS:
        assert seen[kind, True] == seen[kind, False], f"streamed and not differ on {kind}"
    stored = seen["sqlite", False].stored
    assert seen["memory", False].stored == stored
    assert seen["plain", False].stored == stored
    if not make().history:
        alone = dataclasses.replace(seen["none", False], stored=stored)
        for kind in ("plain", "memory", "sqlite"):
            assert seen[kind, False] == alone, f"a session ({kind}) changes what a run does"
    for kind in SESSIONS:
        assert seen[kind, True].events == seen["none", True].events


SEALED = pytest.param("sealed", marks=pytest.mark.redis)


@pytest.mark.clause("C11", backend="runs")
@pytest.mark.parametrize("kind", [*stores.SERVERS, SEALED, "sqlalchemy"])
async def test_a_run_on_any_other_store_is_the_one_in_memory(kind: str, tmp_path: Path) -> None:
    """All scenarios in one store, each in a conversation of its own; every third on the last two."""
    where, different = stores.place(kind, tmp_path), []
    scenarios = list(SCENARIOS.items())[:: 3 if kind in ("sealed", "sqlalchemy") else 1]
    for number, (name, make) in enumerate(scenarios):
        streamed = number % 2 == 1
        in_memory = await observe(make, streamed=streamed, session=SESSIONS["memory"](tmp_path))
        session = stores.opened(where, f"s{number}")
        if await observe(make, streamed=streamed, session=session) != in_memory:
            different.append(name)
        await session.close()
    assert different == []
