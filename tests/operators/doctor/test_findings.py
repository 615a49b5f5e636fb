"""Every kind of finding of the doctor's table, found where it is, and looking changes nothing (A14, C8)."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import agents
import msgspec
import pytest

from standfast import (
    Agent,
    EncryptedSession,
    Finding,
    InMemorySession,
    NotFoundError,
    RunConfig,
    Runner,
    SQLiteSession,
    Store,
    examine_store,
    function_tool,
    open_store,
    repair_store,
)
from standfast._kits.operators.doctor import database_file
from standfast._kits.operators.doctor.findings import KINDS
from standfast._kits.operators.store import store_of
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.backends.sqlite import database_file as files, schema
from standfast._src.sessions.client.lingering import LINGERING
from standfast._src.sessions.rules.history import LEASE, commit
from standfast._src.sessions.rules.leases import LeaseState
from standfast._src.sessions.rules.record_repair import whole
from standfast._src.sessions.storage import Done, KeyUpdate, Name, ReadAnswer, ReadRequest, Tag, run_program
from standfast.testing import ScriptedModel, final, function_call
from tests.operators.doctor.world import answer, call, later, output, reasoning, user
from tests.operators.test_read_only import CHILD_ENVIRONMENT, trace

NOTES = {"old_sqlite", "unsafe_sqlite"}
"""What depends on the machine's SQLite."""


async def found_in(store: Store, **options: Any) -> list[Finding]:
    return [one async for one in examine_store(store, **options) if one.kind not in NOTES]


async def kinds_in(path: Path, **options: Any) -> list[str]:
    async with open_store(path, read_only=True) as store:
        return [one.kind for one in await found_in(store, **options)]


def sql(path: Path, *statements: str) -> None:
    db = sqlite3.connect(path, isolation_level=None)
    for statement in statements:
        db.execute(statement)
    db.close()


async def filled(path: Path, items: list[dict[str, Any]], session_id: str = "guest") -> Path:
    session = SQLiteSession(session_id, path)
    await session.add_items(items)
    await session.close()
    return path


HEALTHY = [user("hello"), reasoning(1), call(1), output(1), answer(1), user("yes"), user("yes")]

# --- how each kind comes about, in a file ----------------------------------------------------------------------------

Case = Callable[[Path], Awaitable[dict[str, Any]]]
CASES: dict[str, Case] = {}


def case(kind: str) -> Callable[[Case], Case]:
    def entered(made: Case) -> Case:
        CASES[kind] = made
        return made

    return entered


@case("call_without_output")
async def _call(path: Path) -> dict[str, Any]:
    await filled(path, [*HEALTHY, call(2), user("still there?")])
    return {}


@case("output_without_call")
async def _output(path: Path) -> dict[str, Any]:
    await filled(path, [*HEALTHY, output(2), answer(2)])
    return {}


@case("cut_reasoning")
async def _reasoning(path: Path) -> dict[str, Any]:
    await filled(path, [*HEALTHY, reasoning(2)])
    return {}


@case("second_copy")
async def _copy(path: Path) -> dict[str, Any]:
    await filled(path, [*HEALTHY, answer(1)])
    return {}


@case("corrupt_record")
async def _corrupt(path: Path) -> dict[str, Any]:
    await filled(path, HEALTHY)
    sql(path, "UPDATE agent_messages SET message_data = '{\"role\": ' WHERE id = 7")
    return {}


@case("sealed_session")
async def _sealed(path: Path) -> dict[str, Any]:
    session = EncryptedSession("guest", SQLiteSession("guest", path), "a secret of some length")
    await session.add_items([call(1)])
    await session.close()
    return {}


@case("stuck_lease")
async def _lease(path: Path) -> dict[str, Any]:
    await filled(path, HEALTHY)
    session = SQLiteSession("guest", path)
    await session.lease(ttl_s=86_400, wait_s=0, renewed=False)
    return {"clock": later, "keep": session}


@case("numbers_went_back")
async def _put_back(path: Path) -> dict[str, Any]:
    """A run was saved under the second lease of its session, and the store knows of one."""
    session = SQLiteSession("guest", path)
    async with await session.lease(ttl_s=60, wait_s=0):
        pass
    await session.close()
    await paused(path)
    lowered = msgspec.json.encode(LeaseState(1))
    session = SQLiteSession("guest", path)

    def put_back() -> Any:
        yield from commit([KeyUpdate(Name("session", "guest"), put={LEASE: lowered})])

    await session.changed(put_back)
    await session.close()
    return {}


@function_tool(needs_approval=True)
async def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"


async def paused(path: Path) -> None:
    agent = Agent(name="Clerk", tools=[pay], model=ScriptedModel([[function_call("pay", {"amount": 1}, call_id="c")]]))
    session = SQLiteSession("guest", path)
    await Runner.run(agent, "Pay.", session=session, run_config=RunConfig(run_id="run-1"))
    await session.close()


@case("waiting_approval")
async def _waiting(path: Path) -> dict[str, Any]:
    await paused(path)
    return {"clock": lambda: time.time() + 9 * 86_400}


@case("untaken_run")
async def _ready(path: Path) -> dict[str, Any]:
    await paused(path)
    async with open_store(path) as store:
        await store.decide("run-1", "c", True, by="ada")
    return {"clock": later}


KILLED = """
import asyncio, os, sys
from standfast import Agent, RunConfig, Runner, SQLiteSession, function_tool
from standfast.testing import ScriptedModel, function_call

@function_tool
async def never() -> str:
    "Never come back."
    os._exit(0)

agent = Agent(name="Clerk", tools=[never], model=ScriptedModel([[function_call("never", {}, call_id="c")]]))
session = SQLiteSession("guest", sys.argv[1])
asyncio.run(Runner.run(agent, "Go.", session=session, run_config=RunConfig(run_id="run-1")))
"""


def killed(path: Path) -> None:
    """A worker that dies in the middle of a call."""
    subprocess.run([sys.executable, "-c", KILLED, str(path)], env=CHILD_ENVIRONMENT, check=True, timeout=120)


@case("unreadable_run")
async def _unreadable(path: Path) -> dict[str, Any]:
    await paused(path)
    cells = "agent_messages_standfast_cells"
    (name,) = {"head"}
    db = sqlite3.connect(path, isolation_level=None)
    db.text_factory = bytes
    (value,) = db.execute(f"SELECT value FROM {cells} WHERE owner = 'rrun-1' AND name = ?", (name,)).fetchone()
    db.execute(f"UPDATE {cells} SET value = ? WHERE owner = 'rrun-1' AND name = ?", (value[:-20], name))
    db.close()
    return {}


@case("lost_run")
async def _lost(path: Path) -> dict[str, Any]:
    await paused(path)
    sql(
        path,
        "DELETE FROM agent_messages_standfast_cells WHERE owner = 'rrun-1'",
        "DELETE FROM agent_messages_standfast_runs",
    )
    return {}


@case("damaged_cell")
async def _cell(path: Path) -> dict[str, Any]:
    await filled(path, HEALTHY)
    values = "'sguest', 'lease', standfast_epoch, x'ff00' FROM agent_sessions"
    sql(path, f"INSERT INTO agent_messages_standfast_cells (owner, name, epoch, value) SELECT {values}")
    return {}


@case("damaged_labels")
async def _labels(path: Path) -> dict[str, Any]:
    await paused(path)
    sql(path, "UPDATE agent_messages_standfast_runs SET labels = '[1]'")
    return {}


@case("run_without_session")
async def _gone(path: Path) -> dict[str, Any]:
    agent = Agent(name="Clerk", model=ScriptedModel([final("Hello.")]))
    session = SQLiteSession("guest", path)
    await Runner.run(agent, "Hello?", session=session, run_config=RunConfig(run_id="run-1"))
    await session.close()
    sql(path, "DELETE FROM agent_messages", "DELETE FROM agent_sessions")
    return {}


@case("clock_back")
async def _back(path: Path) -> dict[str, Any]:
    await filled(path, HEALTHY)
    sql(path, "UPDATE agent_messages SET created_at = '2020-01-01 00:00:00' WHERE id = 3")
    return {}


@case("clock_ahead")
async def _ahead(path: Path) -> dict[str, Any]:
    await filled(path, HEALTHY)
    sql(path, "UPDATE agent_sessions SET updated_at = '2199-01-01 00:00:00.000000'")
    return {}


@case("rows_without_session")
async def _stray(path: Path) -> dict[str, Any]:
    await filled(path, HEALTHY)
    await filled(path, HEALTHY, "other")
    sql(path, "DELETE FROM agent_sessions WHERE session_id = 'other'")
    return {}


@case("rows_without_generation")
async def _archived(path: Path) -> dict[str, Any]:
    session = SQLiteSession("guest", await filled(path, HEALTHY))
    await session.replace([user("summary")], upto=await session.head())
    await session.close()
    sql(path, "UPDATE agent_messages_standfast_archive SET generation = 77")
    return {}


@case("foreign_layout")
async def _foreign(path: Path) -> dict[str, Any]:
    session = agents.SQLiteSession("guest", path)
    await session.add_items([{"role": "user", "content": "hello"}])
    session.close()
    return {}


@case("long_log")
async def _log(path: Path) -> dict[str, Any]:
    await filled(path, HEALTHY)
    LINGERING.end_all()  # a connection that ends removes its log
    with open(f"{path}-wal", "wb") as file:
        file.truncate(database_file.LOG_BYTES_MAX + 1)  # a hole: nothing is written
    return {}


@case("damaged_file")
async def _damaged(path: Path) -> dict[str, Any]:
    await filled(path, [user("x" * 500) for _ in range(200)])
    with open(path, "r+b") as file:  # the last page is one of messages
        file.seek(-4096, os.SEEK_END)
        file.write(b"\x55" * 4096)
    return {}


FOUND_OTHERWISE = {
    "worker_gone": "test_a_run_whose_worker_is_gone_is_found_with_the_call_that_had_begun",
    "open_call": "test_a_run_whose_worker_is_gone_is_found_with_the_call_that_had_begun",
    "unopened_record": "test_a_sealed_record_that_does_not_open_is_told_and_not_repaired",
    "older_layout": "test_an_older_layout_is_a_finding",
    "newer_layout": "test_a_newer_layout_is_a_finding_and_not_an_error",
    "damaged_layout": "test_a_layout_that_was_damaged_is_a_finding_and_not_an_error",
    "unsafe_sqlite": "test_an_sqlite_with_the_reset_fault_is_told_by_who_else_writes",
    "old_sqlite": "test_an_sqlite_with_the_reset_fault_is_told_by_who_else_writes",
    "network_file_system": "test_a_network_file_system_is_known_by_the_table_of_mounts",
    "foreign_owner": "test_a_file_of_another_owner_beside_the_database_is_found",
}


def test_every_kind_of_the_table_has_a_case() -> None:
    assert {*CASES, *FOUND_OTHERWISE} == set(KINDS)
    for name in FOUND_OTHERWISE.values():
        assert name in globals()


def test_the_reference_has_the_table_as_it_is() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "doctor.md").read_text(encoding="utf-8")
    rows = {line for line in page.splitlines() if line.startswith("| `")}
    told = {
        f"| `{name}` | {kind.level} | {'✓' if kind.repairable else ''} | {kind.what} | {kind.effect} | {kind.remedy} |"
        for name, kind in KINDS.items()
    }
    assert rows == told


@pytest.mark.parametrize("kind", CASES)
async def test_it_is_found_and_looking_changes_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_file, "LOG_BYTES_MAX", 1 << 20)  # a log that is read is copied: not sixty megabytes
    path = tmp_path / "talks.db"
    options = await CASES[kind](path)
    kept = options.pop("keep", None)
    LINGERING.end_all()
    before = trace(tmp_path)
    found = await kinds_in(path, **options)
    assert set(found) == {kind}
    after = trace(tmp_path)
    if kind == "stuck_lease":  # another connection of this process has it open, with its log and shared memory
        before.pop(f"{path.name}-shm"), after.pop(f"{path.name}-shm")
    assert after == before
    if kept is not None:
        await kept.close()


async def test_a_healthy_store_has_nothing_to_find(tmp_path: Path) -> None:
    path = await filled(tmp_path / "talks.db", HEALTHY)
    agent = Agent(name="Clerk", model=ScriptedModel([final("Hello.")]))
    session = SQLiteSession("other", path)
    await Runner.run(agent, "Hello?", session=session, run_config=RunConfig(run_id="run-1"))
    await session.replace([user("summary")], upto=await session.head())
    await session.fork("third")
    await session.close()
    async with open_store(path, read_only=True) as store:
        examination = examine_store(store, clock=later)
        assert [one async for one in examination if one.kind not in NOTES] == []
        assert (examination.sessions, examination.items, examination.runs) == (3, 9, 1)


async def test_only_the_sessions_that_are_named_are_examined(tmp_path: Path) -> None:
    path = await filled(tmp_path / "talks.db", [call(1)])
    await filled(path, [call(2)], "other")
    async with open_store(path, read_only=True) as store:
        assert [one.session_id for one in await found_in(store, sessions=["other"])] == ["other"]
        with pytest.raises(NotFoundError):
            await found_in(store, sessions=["nobody"])


async def test_a_finding_says_what_where_its_effect_and_what_to_do(tmp_path: Path) -> None:
    path = await filled(tmp_path / "talks.db", [*HEALTHY, call(2)])
    async with open_store(path, read_only=True) as store:
        (one,) = await found_in(store)
    assert (one.where, one.index) == ("session 'guest', record 7", 7)
    assert one.what == "a call without an output (book call_2)"
    assert one.effect == KINDS[one.kind].effect
    assert one.remedy == KINDS[one.kind].remedy
    assert one.repairable


# --- those that need more than a file --------------------------------------------------------------------------------


async def test_a_run_whose_worker_is_gone_is_found_with_the_call_that_had_begun(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    killed(path)
    assert await kinds_in(path, clock=later) == ["worker_gone", "open_call"]


async def test_a_run_that_is_held_has_a_worker(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    killed(path)
    session = SQLiteSession("guest", path)
    async with await session.lease(ttl_s=3_000, wait_s=60):
        assert await kinds_in(path, clock=lambda: time.time() + 2_000) == []
    await session.close()


async def test_a_sealed_record_that_does_not_open_is_told_and_not_repaired(tmp_path: Path) -> None:

    memory = InMemoryStore()

    def sealed(session_id: str) -> EncryptedSession:
        return EncryptedSession(session_id, InMemorySession(session_id, store=memory), "a secret of some length")

    session = sealed("guest")
    await session.add_items([user("hello"), call(1)])
    memory.inject_record("guest", b'{"role":"user","content":"never sealed"}')
    store = store_of(sealed, "memory")
    assert [one.kind for one in await found_in(store)] == ["unopened_record", "call_without_output"]
    before = await session.corrupt_records()
    await repair_store(store, tmp_path / "undo", clock=later)
    assert await session.get_items() == [user("hello")]
    assert [one.data for one in await session.corrupt_records()] == [one.data for one in before]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE standfast_schema SET version = 'two'",
        "ALTER TABLE agent_sessions RENAME TO a; CREATE VIEW agent_sessions AS SELECT * FROM a",
        "DROP TABLE agent_messages_standfast_cells",
    ],
)
async def test_a_layout_that_was_damaged_is_a_finding_and_not_an_error(statement: str, tmp_path: Path) -> None:
    path = await filled(tmp_path / "talks.db", HEALTHY)
    sql(path, *statement.split("; "))
    store = open_store(path, read_only=True)
    assert "damaged_layout" in {one.kind for one in await found_in(store)}
    await store.close()


async def test_a_newer_layout_is_a_finding_and_not_an_error(tmp_path: Path) -> None:
    path = await filled(tmp_path / "talks.db", HEALTHY)
    sql(path, "UPDATE standfast_schema SET version = 99")
    store = open_store(path, read_only=True)
    assert [one.kind for one in await found_in(store)] == ["newer_layout"]
    await store.close()


async def test_an_older_layout_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = await filled(tmp_path / "talks.db", HEALTHY)
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)
    store = open_store(path, read_only=True)
    assert [one.kind for one in await found_in(store)] == ["older_layout"]
    await store.close()


async def test_an_sqlite_with_the_reset_fault_is_told_by_who_else_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def of(path: Path) -> set[str]:
        async with open_store(path, read_only=True) as store:
            return {one.kind async for one in examine_store(store)} & NOTES

    ours = await filled(tmp_path / "ours.db", HEALTHY)
    theirs = tmp_path / "theirs.db"
    await _foreign(theirs)
    for has_fault, told in ((True, [{"old_sqlite"}, {"unsafe_sqlite"}]), (False, [set(), set()])):
        monkeypatch.setattr(database_file, "has_reset_fault", lambda has_fault=has_fault: has_fault)
        assert [await of(ours), await of(theirs)] == told
    assert files.has_reset_fault((3, 40, 1))
    assert not files.has_reset_fault((3, 51, 3))


MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:41 / /srv rw,relatime shared:2 - nfs4 server:/srv rw
41 40 8:2 / /srv/local rw,relatime shared:3 - xfs /dev/sdb rw
42 22 0:50 / /home/a\\040b rw shared:4 - fuse.sshfs host:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/talks.db", "ext4"),
        ("/srv/talks.db", "nfs4"),
        ("/srvx/talks.db", "ext4"),
        ("/srv/local/talks.db", "xfs"),
        ("/home/a b/talks.db", "fuse.sshfs"),
    ],
)
def test_a_network_file_system_is_known_by_the_table_of_mounts(path: str, kind: str, tmp_path: Path) -> None:
    assert database_file.file_system_of(path, MOUNTS) == kind
    database = tmp_path / "talks.db"
    database.touch()
    here = f"1 1 0:1 / {tmp_path} rw - nfs server:/ rw\n"
    assert [one.kind for one in database_file.examine_surroundings(str(database), here)] == ["network_file_system"]
    assert list(database_file.examine_surroundings(str(database), "nonsense\n")) == []


def test_a_file_of_another_owner_beside_the_database_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only root can give a file away, so what the system says of it is made up where this user is not root."""
    database, lock = tmp_path / "talks.db", tmp_path / "talks.db-standfast-lock"
    database.touch()
    lock.touch()
    assert [one.kind for one in database_file.examine_surroundings(str(database), "")] == []
    if os.geteuid() == 0:
        os.chown(lock, 12_345, -1)
    else:
        real = os.stat

        def stat(path: Any, **options: Any) -> os.stat_result:
            found = real(path, **options)
            return os.stat_result((*found[:4], 12_345, *found[5:])) if str(path) == str(lock) else found

        monkeypatch.setattr(database_file.os, "stat", stat)
    (one,) = database_file.examine_surroundings(str(database), "")
    assert (one.kind, "12345" in one.what, "standfast-lock" in one.what) == ("foreign_owner", True, True)


# --- any store -------------------------------------------------------------------------------------------------------


@pytest.fixture
async def memory() -> AsyncIterator[Store]:
    kept = InMemoryStore()
    async with store_of(lambda session_id: InMemorySession(session_id, store=kept), "memory") as store:
        yield store


async def test_what_needs_no_file_is_found_in_memory_too(memory: Store) -> None:
    session = memory.session("guest")
    rows = [b"{", json.dumps(call(1)).encode(), json.dumps(output(9)).encode()]

    def pushed() -> Any:
        yield from commit([KeyUpdate(Name("session", "guest"), push=[(row, Tag()) for row in rows], touch=True)])

    await session.changed(pushed)
    await session.lease(ttl_s=86_400, wait_s=0, renewed=False)
    found = [(one.kind, one.index) for one in await found_in(memory, clock=later)]
    assert found == [
        ("corrupt_record", 0),
        ("call_without_output", 1),
        ("output_without_call", 2),
        ("stuck_lease", None),
    ]


# --- long sessions ---------------------------------------------------------------------------------------------------


class Pages(InMemoryStore):
    """Memory that notes how many rows each read gives, and lets a test do something before one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[int] = []
        self.before: dict[int, Callable[[], None]] = {}

    def session(self, session_id: str) -> InMemorySession:
        return InMemorySession(session_id, store=self)

    def look(self, look: ReadRequest) -> ReadAnswer:
        self.before.pop(len(self.given), lambda: None)()
        found = super().look(look)
        self.given.append(sum(map(len, found.rows)))
        return found


async def _fill(store: Pages) -> None:
    """A call without an output far behind the first step of 20,000 rows."""
    session = store.session("a")
    items = [user("x")] * 45_000
    items[30_000] = call(1)
    await session.append(items, writer="w", start=0)
    store.given.clear()


async def test_a_long_session_is_read_in_pages() -> None:
    """One of 1,000,000 items took longer than a store may take for an answer, and ended the whole examination."""
    store = Pages()
    await _fill(store)
    await store.session("b").add_items([user("y")])
    for wanted in (None, ["a"]):
        store.given.clear()
        examination = examine_store(store_of(store.session, "memory"), sessions=wanted)
        found = [one async for one in examination if one.kind not in NOTES]
        assert [(one.kind, one.session_id, one.index) for one in found] == [("call_without_output", "a", 30_000)]
        assert (examination.sessions, examination.items) == ((2, 45_001) if wanted is None else (1, 45_000))
        assert max(store.given) <= 20_001


async def test_a_long_session_that_changes_while_it_is_read_is_read_again() -> None:
    """The call is answered between two pages: no page of before is judged beside one of after."""
    store = Pages()
    await _fill(store)

    def repair() -> None:
        sight = run_program(store, whole(Name("session", "a")))
        ref = sight.rows[0][30_000].ref
        assert isinstance(run_program(store, commit((KeyUpdate(Name("session", "a"), drop=(ref,)),))), Done)

    store.before[4] = repair
    assert await found_in(store_of(store.session, "memory"), sessions=["a"]) == []
    assert not store.before


async def test_a_call_far_inside_a_long_session_is_taken_out(tmp_path: Path) -> None:
    store = Pages()
    await _fill(store)
    report = await repair_store(store_of(store.session, "memory"), tmp_path / "undo", sessions=["a"], clock=later)
    assert [(one.session_id, one.state, one.records) for one in report.repairs] == [("a", "repaired", 1)]
    assert await found_in(store_of(store.session, "memory")) == []
