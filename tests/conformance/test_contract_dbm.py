"""The contract on `examples/dbm_backend.py`, which was written from the page for authors of backends."""

from __future__ import annotations

import asyncio
import fcntl
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from standfast._src.sessions.storage import KeyUpdate, Name, Tag
from standfast.conformance import Backend, suite

EXAMPLE = Path(__file__).parents[2] / "examples" / "dbm_backend.py"


def _example() -> Any:
    found = importlib.util.spec_from_file_location("dbm_backend", EXAMPLE)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["dbm_backend"] = module
    found.loader.exec_module(module)
    return module


dbm_backend = _example()


class Dbm(Backend):
    name = "DbmSession (examples)"
    persistent = True
    closes_when_called = True
    not_applicable: Mapping[str, str] = {
        "A15": "a folder has no names to configure",
        "A20": "no expiry can be configured",
        "B10": "no other program writes this layout",
    }

    def open(self, session_id: str, **options: Any) -> Any:
        return dbm_backend.DbmSession(session_id, self.folder / "store", **options)

    def inject_record(self, session_id: str, data: bytes) -> None:
        store = dbm_backend.DbmStore(str(self.folder / "store"))
        store.commit([KeyUpdate(Name("session", session_id), push=[(data, Tag())], touch=True)])
        store.close()

    @contextmanager
    def stall(self) -> Iterator[None]:
        (self.folder / "store").mkdir(exist_ok=True)
        with open(self.folder / "store" / "lock", "ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


TestDbm = suite(Dbm())


def test_the_journal_is_folded_and_nothing_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dbm_backend, "FOLD_BYTES", 2_000)

    async def scenario() -> None:
        session = dbm_backend.DbmSession("a", tmp_path)
        for number in range(60):
            await session.append([{"n": number}], writer="w", start=number)
        await session.replace([{"summary": 1}], upto=await session.head())
        await session.restore((await session.generations())[0].id)
        assert await session.get_items() == [{"n": number} for number in range(60)]
        assert await session.written("w") == await session.get_items()
        session.close()

    asyncio.run(scenario())
    asyncio.run(scenario_again(tmp_path))
    assert int((tmp_path / "CURRENT").read_text()) > 3
    assert len(list(tmp_path.glob("base.*"))) == 1


async def scenario_again(folder: Path) -> None:
    session = dbm_backend.DbmSession("a", folder)
    assert len(await session.get_items()) == 60
    assert len(await session.generations()) == 2
    session.close()


def test_a_detached_record_is_done_though_its_task_is_cancelled_and_its_loop_closed(tmp_path: Path) -> None:
    session = dbm_backend.DbmSession("a", tmp_path)

    async def scenario() -> None:
        session.record(items=[{"n": 1}], writer="r", start=0, detached=True).close()  # never awaited
        waiting = asyncio.ensure_future(session.record(items=[{"n": 2}], writer="r", start=1, detached=True))
        waiting.cancel()

    asyncio.run(scenario())

    async def later() -> Any:
        return await dbm_backend.DbmSession("a", tmp_path).get_items()

    assert asyncio.run(later()) == [{"n": 1}, {"n": 2}]
