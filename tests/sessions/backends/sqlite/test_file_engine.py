"""How the engine works: grouping, pages, plans, checkpoints, layouts. What it promises is tested elsewhere."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents.memory.sqlite_session import SQLiteSession as PeerSession

from standfast._src.base.errors import LeaseLostError, SessionBusyError, SessionConflictError
from standfast._src.sessions.backends.sqlite import database_file
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from tests.helpers.children import program
from tests.sessions.backends.sqlite.inside import Gate, carrier_to, connections, value

__all__ = ["connections"]


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


# --- connections ------------------------------------------------------------------------------


async def test_commits_are_synced_and_no_connection_checkpoints_by_itself(
    path: Path, connections: list[sqlite3.Connection]
) -> None:
    """SIGKILL does not prove a sync, so the setting is asserted (A23)."""
    session = SQLiteSession("s", path)
    async with await session.lease(ttl_s=5, wait_s=1):  # leases relax it for themselves
        await session.add_items([message("1")])
    await session.get_items()
    writer, reader = connections
    assert (value(writer, "synchronous"), value(writer, "journal_mode")) == (2, b"wal")
    assert (value(writer, "wal_autocheckpoint"), value(reader, "wal_autocheckpoint")) == (0, 0)
    assert value(reader, "query_only") == 1
    session.close()


async def test_one_engine_serves_every_object_on_a_file_whatever_its_path_is_called(
    path: Path, tmp_path: Path, connections: list[sqlite3.Connection]
) -> None:
    link = tmp_path / "link.db"
    link.symlink_to(path)
    sessions = [SQLiteSession("s", path), SQLiteSession("t", str(path)), SQLiteSession("s", link)]
    for session in sessions:
        await session.add_items([message("x")])
    assert len(connections) == 1
    assert sessions[0].conversation_key() == sessions[2].conversation_key() != sessions[1].conversation_key()
    assert len(await sessions[0].get_items()) == 2
    for session in sessions:
        session.close()
    assert not Path(f"{path}-wal").stat().st_size


async def test_a_path_is_a_path_whatever_characters_it_has(tmp_path: Path) -> None:
    for name in ("we?ird #1%20 é&mode=ro.db", "file:x.db", "100%.db", "'quo\"ted'.db"):
        session = SQLiteSession("s", tmp_path / name)
        await session.add_items([message(name)])
        assert await session.get_items() == [message(name)]
        session.close()
        assert (tmp_path / name).exists()


async def test_many_turns_at_once_share_commits_and_statements(
    path: Path, connections: list[sqlite3.Connection]
) -> None:
    """Counted where they are made: 320 turns of 64 sessions in far fewer transactions and statements."""
    sessions = [SQLiteSession(f"s{number}", path) for number in range(64)]
    for session in sessions:
        await session.append([message("first")], writer="run", start=0)
    statements: list[str] = []
    connections[0].set_trace_callback(statements.append)
    for number in range(5):
        turns = [session.append([message("x")], writer="run", start=1 + number) for session in sessions]
        await asyncio.gather(*turns)
    connections[0].set_trace_callback(None)
    assert statements.count("COMMIT") <= 64
    assert len(statements) <= 320
    for session in sessions:
        assert (await session.get_items())[-5:] == [message("x")] * 5
        session.close()


async def test_turns_of_one_session_that_share_a_commit_see_each_other_in_order(path: Path) -> None:
    """What goes in step are different sessions; the same one is one turn after the other (A10, B1)."""
    sessions = [SQLiteSession(f"s{number % 3}", path) for number in range(12)]
    with carrier_to(path) as carrier:
        gate = Gate()
        held = asyncio.create_task(carrier.carry(gate, 30))
        await asyncio.to_thread(gate.entered.wait, 30)
        turns = [
            asyncio.create_task(session.append([message(str(n // 3))], writer="run", start=n // 3))
            for n, session in enumerate(sessions)
        ]
        await asyncio.sleep(0)
        gate.go_on.set()
        await held
        heads = await asyncio.gather(*turns)
    assert len(set(heads)) == 12
    for session in sessions:
        assert await session.get_items() == [message(str(n)) for n in range(4)]
        session.close()


async def test_an_append_does_not_overtake_a_pop_that_shares_its_commit(path: Path) -> None:
    """An append that goes straight on needs no plan, and others do: each is done in its turn all the same (A10)."""
    session = SQLiteSession("s", path)
    await session.append([message("1")], writer="run", start=0)
    await session.append([message("2")], writer="run", start=1)
    with carrier_to(path) as carrier:
        gate = Gate()
        held = asyncio.create_task(carrier.carry(gate, 30))
        await asyncio.to_thread(gate.entered.wait, 30)
        turns = [
            asyncio.create_task(one)
            for one in (
                session.append([message("3")], writer="run", start=2),
                session.pop_item(),
                session.append([message("4")], writer="run", start=3),
                session.add_items([message("5")]),
                session.pop_item(),
                session.append([message("other")], writer="run", start=3),
                session.append([message("4"), message("6")], writer="run", start=3),
            )
        ]
        await asyncio.sleep(0)
        gate.go_on.set()
        await held
        done = await asyncio.gather(*turns, return_exceptions=True)
    assert (done[1], done[4]) == (message("3"), message("5"))
    assert isinstance(done[5], SessionConflictError)
    assert await session.get_items() == [message(text) for text in "1246"]
    assert await session.accepted("run") == 5
    session.close()


async def test_pairs_of_tables_in_one_file_do_not_meet(path: Path) -> None:
    names = [("agent_sessions", "agent_messages"), ("a", "b"), ("order", "select"), ("agent_sessions", "other")]
    sessions = [SQLiteSession("s", path, *pair) for pair in names]
    for number, session in enumerate(sessions):
        await session.append([message(str(number))], writer="run", start=0)
        await session.replace([message(f"sum {number}")], upto=await session.head())
    for number, session in enumerate(sessions):
        assert await session.get_items() == [message(f"sum {number}")]
        assert await session.accepted("run") == 1
    await sessions[2].clear_session()
    assert [len(await session.generations()) for session in sessions] == [1, 1, 0, 1]
    for session in sessions:
        session.close()


# --- the cost of what runs for every turn -------------------------------------------------------------------------


async def test_no_statement_of_a_turn_scans_a_table(path: Path, connections: list[sqlite3.Connection]) -> None:
    """Flat from 10 to 100,000 items means: every statement of append, pop, head, pages and listing searches by key."""
    session, peer = SQLiteSession("s", path), PeerSession("p", path)
    await session.append([message(str(n)) for n in range(40)], writer="run", start=0)
    await session.get_items(limit=1)
    statements: list[str] = []
    for db in connections:
        db.set_trace_callback(statements.append)
    await session.append([message("40")], writer="run", start=40, expect=await session.head())
    await session.append([message("0")], writer="run", start=0)
    await session.rewind(writer="run", to=40)
    await session.pop_item()
    await session.page(limit=3)
    await session.get_items(limit=5)
    await session.info()
    async with await session.lease(ttl_s=5, wait_s=1) as lease:
        await session.append([message("40")], writer="run", start=40, lease=lease)
    await session.run_store().save_run("r", expect=0, head=b"", tails={}, status="running", agent="A", session_id="s")
    await session.run_store().list_runs(session_id="s")
    await peer.add_items([message("foreign")])
    await session.list_sessions(limit=2)
    await session.add_items([message("41")])
    for db in connections:
        db.set_trace_callback(None)
    own = [one for one in statements if one.split()[0] in ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")]
    assert len(own) > 30
    for statement in own:
        with closing(sqlite3.connect(path)) as db:
            steps = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {statement}")]
        scans = [step for step in steps if step.startswith("SCAN")]
        assert not [step for step in scans if not _is_small(step)], (statement, steps)
    session.close()
    peer.close()


def _is_small(step: str) -> bool:
    return "CONSTANT" in step or step.split()[1] == "n" or "VALUES" in step


async def test_a_batch_larger_than_one_statement_is_whole_and_in_order(path: Path) -> None:
    session = SQLiteSession("s", path)
    batch = [message(str(number)) for number in range(1_000)]
    await session.append(batch, writer="run", start=0)
    await session.append(batch, writer="run", start=0)
    await session.append([*batch, message("more")], writer="run", start=0)
    assert await session.get_items() == [*batch, message("more")]
    assert await session.written("run") == [*batch, message("more")]
    with pytest.raises(SessionConflictError):
        await session.append([message("another")], writer="run", start=500)
    await session.rewind(writer="run", to=70)
    assert await session.get_items() == batch[:70]
    assert await session.append(batch[60:90], writer="run", start=60) == await session.head()
    assert await session.get_items() == batch[:90]
    session.close()


# --- checkpoints ------------------------------------------------------------------------------


def test_the_versions_with_the_reset_fault_are_known() -> None:
    assert database_file.has_reset_fault((3, 40, 1))
    assert database_file.has_reset_fault((3, 51, 2))
    assert database_file.has_reset_fault((3, 44, 5))
    assert database_file.has_reset_fault((3, 50, 6))
    for fixed in ((3, 51, 3), (3, 53, 0), (3, 50, 7), (3, 44, 6), (3, 6, 23)):
        assert not database_file.has_reset_fault(fixed)


async def test_the_log_is_folded_back_while_writing_goes_on(path: Path) -> None:
    session = SQLiteSession("s", path)
    for number in range(60):
        await session.add_items([message("x" * 4_000) for _ in range(50)])
        if number % 10 == 9:
            assert len(await session.get_items(limit=5)) == 5
    log_bytes = os.path.getsize(f"{path}-wal")
    assert log_bytes < 8_000_000, "twelve megabytes were written: without checkpoints the log would hold them all"
    session.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT count(*) FROM agent_messages").fetchone() == (3_000,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_checkpoint_waits_for_no_commit_and_no_commit_runs_beside_one(tmp_path: Path) -> None:
    """The rule that keeps the reset fault away: commits share the lock file, a checkpoint has it alone."""
    database = tmp_path / "s.db"
    database.touch()
    one, other = database_file.CheckpointLock(str(database)), database_file.CheckpointLock(str(database))
    if not database_file.has_reset_fault():
        one.share()
        with other.alone() as alone:
            assert alone, "a fixed SQLite needs no lock"
        return
    assert one.share()
    with other.alone() as alone:
        assert not alone
    assert other.share(), "commits of several processes go on together"
    one.unshare()
    other.unshare()
    with one.alone() as alone:
        assert alone
        assert not other.share()
    assert other.share()
    one.close()
    other.close()


CHECKPOINTING = """
    import asyncio, sys
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

    async def main(path, name):
        session = SQLiteSession(name, path)
        for number in range(60):
            await session.append([{"n": number, "x": "x" * 3000} for _ in range(20)], writer="w", start=number * 20)
        assert len(await session.get_items()) == 1200
        session.close()

    asyncio.run(main(*sys.argv[1:]))
"""


def test_processes_that_write_and_checkpoint_at_once_keep_the_file_whole(path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(CHECKPOINTING), str(path)]
    processes = [subprocess.Popen([*command, f"s{number}"]) for number in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("SELECT count(*) FROM agent_messages").fetchone() == (3_600,)


def test_opening_another_programs_file_warns_once_where_the_fault_matters(tmp_path: Path) -> None:
    """Once per process, so in one of its own: others of this process may have been told already."""
    for name in ("one.db", "two.db"):
        PeerSession("s", tmp_path / name).close()
    child = program(
        """
        import asyncio, logging, sys
        from standfast import SQLiteSession

        async def main():
            for name in ("own.db", "one.db", "two.db"):
                session = SQLiteSession("s", f"{sys.argv[1]}/{name}")
                await session.get_items()
                if name == "own.db":
                    await session.add_items([{"role": "user", "content": "x"}])
                session.close()

        logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
        asyncio.run(main())
        """,
        tmp_path,
    )
    said = child.communicate(timeout=120)[0].splitlines()
    assert child.returncode == 0
    assert len(said) == (1 if database_file.has_reset_fault() else 0), said
    assert all("one.db was made by another program" in line for line in said)


# --- layouts and leases ------------------------------------------------------------------------------


async def test_a_file_is_migrated_while_an_older_program_keeps_using_it(path: Path) -> None:
    peer = PeerSession("s", path)
    await peer.add_items([message("1")])
    session = SQLiteSession("s", path)
    await session.append([message("2")], writer="run", start=0)
    await peer.add_items([message("3")])
    assert await peer.pop_item() == message("3")
    assert [item["content"] for item in await session.get_items()] == ["1", "2"]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("SELECT tables, version FROM standfast_schema").fetchall() == [
            ("agent_sessions/agent_messages", 2)
        ]
        rows = db.execute("SELECT standfast_writer, standfast_ordinal FROM agent_messages ORDER BY id").fetchall()
    assert rows == [(None, None), ("run", 0)]
    peer.close()
    session.close()


async def test_giving_a_lease_up_wakes_a_waiter_of_this_process_and_fences_its_old_holder(path: Path) -> None:
    session, other = SQLiteSession("s", path), SQLiteSession("s", path)
    held = await session.lease(ttl_s=60, wait_s=0)
    with pytest.raises(SessionBusyError):
        await other.lease(ttl_s=60, wait_s=0.05)
    waiting = asyncio.create_task(other.lease(ttl_s=60, wait_s=60))
    await asyncio.sleep(0.05)
    await session.append([message("1")], writer="run", start=0, lease=held)
    await held.release()
    taken = await waiting
    assert taken.number == held.number + 1
    with pytest.raises(LeaseLostError):
        await session.append([message("2")], writer="run", start=1, lease=held)
    with pytest.raises(LeaseLostError):
        await session.replace([], upto=await session.head(), lease=held)
    with pytest.raises(LeaseLostError):
        await held.renew()
    await held.release()  # of a lost lease: nothing
    await taken.renew()
    await other.clear_session()
    with pytest.raises(SessionBusyError):
        await session.lease(ttl_s=60, wait_s=0)
    await taken.release()
    assert (await session.lease(ttl_s=60, wait_s=5)).number == taken.number + 1
    session.close()
    other.close()


async def test_update_time_moves_with_every_change_and_never_back(path: Path) -> None:
    session = SQLiteSession("s", path)
    await session.add_items([message("1")])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE agent_sessions SET updated_at = '2999-12-31 23:59:59.999999'")
    seen = [await session.info()]
    for _ in range(3):
        await session.add_items([message("2")])
        seen.append(await session.info())
    times = [info.updated_at for info in seen if info is not None]
    assert times == sorted(set(times))
    assert len(times) == 4
    session.close()
