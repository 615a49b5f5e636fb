"""Stores that a release wrote are read by every later one, and a rolling upgrade to the next layout loses nothing (D9).

The next layout is made up: `NEW_RELEASE` plants a version 3 of saved runs and tables, and a layout 2 of Redis, in a
child process. It works on one store with children of this release.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from standfast import InvalidSettingError, Runner, SQLiteSession
from standfast.testing import final
from tests.golden import stores
from tests.golden.stores import FOLDER, clerk, message
from tests.helpers import servers

EXPECTED = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
MARKS = {"redis": [pytest.mark.redis], "postgres": [pytest.mark.postgres]}


class GoldenStore(NamedTuple):
    """A copy of what a release wrote."""

    kind: str
    place: str

    def opened(self, session_id: str) -> Any:
        place: Any = Path(self.place) if self.kind == "sqlite" else self.place
        return getattr(stores, f"{self.kind}_opener")(place)(session_id)


@pytest.fixture(params=[pytest.param(kind, marks=MARKS.get(kind, [])) for kind in stores.KINDS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GoldenStore]:
    kind, name = request.param, f"g{uuid.uuid4().hex}"
    if kind == "sqlite":
        name = str(tmp_path / "store.db")
        shutil.copy(FOLDER / "store.sqlite02", name)
    else:
        dumped = json.loads((FOLDER / f"{kind}.json").read_text(encoding="utf-8"))
        getattr(stores, f"restore_{kind}")(dumped, name)
    yield GoldenStore(kind, name)
    if kind == "postgres":
        servers.drop_schema(servers.postgres_url(), name)


@pytest.mark.clause("D9", backend="runs")
async def test_a_store_of_release_02_reads_as_it_did(store: GoldenStore) -> None:
    assert json.loads(json.dumps(await stores.read(store.opened))) == EXPECTED[store.kind]


@pytest.mark.clause("D9", backend="runs")
async def test_a_store_of_release_02_is_written_on(store: GoldenStore) -> None:
    """Counts, repeats, an undo and a paused run go on where the release left them."""
    long, compacted, cleared = store.opened("long"), store.opened("compacted"), store.opened("cleared")
    head = await long.head()
    assert await long.append([message(f"long {number}") for number in range(100)], writer="run/long", start=0) == head
    await long.append([message("long 100")], writer="run/long", start=100)
    before = await compacted.get_items()
    await compacted.restore((await compacted.generations())[0].id)
    assert await compacted.get_items() != before
    await cleared.append([message("a"), message("b")], writer="run", start=0)  # below the count: a repeat
    assert await cleared.get_items() == [message("new")]
    desk, paid = store.opened("desk"), list[int]()
    state = await Runner.load(clerk([final("done")], paid), "paused", session=desk)
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(clerk([final("done")], paid), state, session=desk)
    assert (result.final_output, paid) == ("done", [3])


# --- a rolling upgrade ------------------------------------------------------------------------------------------------

OLD_RELEASE = """
import asyncio, json, sys
from tests.golden import stores
from pathlib import Path
from standfast import RunConfig, Runner
from standfast.testing import function_call

kind, place, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
opened = getattr(stores, f"{kind}_opener")(Path(place) if kind == "sqlite" else place)

async def main():
    session = opened("rolling")
    before = await session.get_items()
    await session.append([stores.message(f"worker {number}")], writer="rolling", start=number)
    for run_id in [one.run_id for one in (await session.run_store().list_runs())[0] if one.agent == "clerk"]:
        if not run_id.startswith("finished"):
            await Runner.load(stores.clerk([], []), run_id, session=opened("desk"))
    call = [[function_call("pay", {"amount": number}, call_id=f"c{number}")]]
    await Runner.run(
        stores.clerk(call, []), "pay", session=opened(f"desk {number}"), run_config=RunConfig(run_id=f"paused {number}")
    )
    print(json.dumps([item["content"] for item in before]))

asyncio.run(main())
"""

NEW_RELEASE = (
    """
from standfast._src.runs.engine import codec, upgrades
from standfast._src.sessions.backends.postgres import schema as postgres
from standfast._src.sessions.backends.redis import handshake as redis
from standfast._src.sessions.backends.sqlite import schema as sqlite

# The number alone is what an older release goes by.
upgrades.VERSION = codec.VERSION = 3
upgrades.STEPS[2] = lambda payload: payload
upgrades.STEPS_BACK[3] = lambda payload: payload
sqlite.VERSION = postgres.VERSION = 3
redis.LAYOUT = 2
sqlite.UPGRADES[2] = lambda db, tables: db.execute(f'CREATE TABLE "{tables.own("third")}" (id INTEGER)')
postgres.UPGRADES[2] = 'CREATE TABLE {own}third" (id INTEGER)'
"""
    + OLD_RELEASE
)


def work(release: str, store: GoldenStore, number: int, *, new_layouts: str = "") -> list[str]:
    """Let a worker of a release read, append as the next of all workers, and pause a run; give what it read."""
    environment = {**os.environ, "STANDFAST_NEW_LAYOUTS": new_layouts or "0"}
    if store.kind == "redis":
        environment[servers.REDIS_URL] = servers.redis_url()
    if store.kind == "postgres":
        environment[servers.POSTGRES_URL] = servers.postgres_url()
    command = [sys.executable, "-c", release, store.kind, store.place, str(number)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return list(json.loads(done.stdout))


def refusal(release: str, store: GoldenStore, number: int) -> str:
    with pytest.raises(AssertionError) as caught:
        work(release, store, number)
    return str(caught.value)


@pytest.mark.clause("D9", backend="runs")
def test_a_rolling_upgrade_loses_nothing_and_writes_nothing_new_until_told(store: GoldenStore) -> None:
    """Old and new workers take turns; then the operator allows the new layout, and an old worker is refused."""
    written: list[str] = []
    for number, release in enumerate((OLD_RELEASE, NEW_RELEASE, OLD_RELEASE, NEW_RELEASE, NEW_RELEASE)):
        told = "1" if number == 4 else ""
        assert work(release, store, number, new_layouts=told) == written
        written.append(f"worker {number}")
    assert "SchemaTooNewError" in refusal(OLD_RELEASE, store, 5)
    assert work(NEW_RELEASE, store, 5) == written  # a worker that was not told keeps reading the new layout


async def test_a_value_that_says_neither_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("STANDFAST_NEW_LAYOUTS", "yes")
    with pytest.raises(InvalidSettingError, match="STANDFAST_NEW_LAYOUTS='yes'"):
        await SQLiteSession("s", tmp_path / "new.db").get_items()
