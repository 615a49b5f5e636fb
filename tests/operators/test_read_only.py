"""Looking into a database file leaves no trace: no byte, no file, no mode changes, whoever made it and uses it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agents
import pytest

from standfast import SQLiteSession, Store, open_store
from standfast._src.base.errors import (
    NotADatabaseError,
    SchemaTooNewError,
    StoreNotFoundError,
    StoreReadOnlyError,
)
from tests.helpers.children import import_path

CHILD_ENVIRONMENT = {**os.environ, "PYTHONPATH": import_path()}


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def trace(folder: Path) -> dict[str, tuple[str, int, int]]:
    """Every file of a folder: its contents, its mode, and when it was changed."""
    return {
        file.name: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mode, file.stat().st_mtime_ns)
        for file in sorted(folder.iterdir())
    }


async def look_at_everything(store: Store) -> list[str]:
    """Ask every question there is; gives the ids of the sessions."""
    listing = await store.sessions(limit=100)
    await store.facts()
    await store.counts(items=True)
    await store.search("hello")
    await store.usage()
    await store.sessions(waiting=True)
    for run in (await store.runs()).runs:
        await store.run(run.run_id)
    for one in listing.sessions:
        session = store.session(one.session_id)
        await session.get_items()
        await session.records(limit=5)
        await session.head()
        await session.generations()
        await session.holder()
        await session.origin()
        await session.corrupt_records()
        await session.close()
    return [one.session_id for one in listing.sessions]


def looked_at(path: Path) -> list[str]:
    async def scenario() -> list[str]:
        async with open_store(path, read_only=True) as store:
            return await look_at_everything(store)

    return asyncio.run(scenario())


@pytest.fixture
def ours() -> Iterator[Path]:
    """A file of ours; not below pytest's folders, which whichever pytest starts next takes away from other users."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield _filled(Path(folder) / "talks.db")
        Path(folder).chmod(0o755)


def _filled(path: Path) -> Path:

    async def fill() -> None:
        for name in ("one", "two"):
            session = SQLiteSession(name, path, linger_s=0)
            await session.append([message(f"hello {name}"), message("again")], writer="run", start=0)
            await session.close()

    asyncio.run(fill())
    return path


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A file of the SDK's that standfast has never seen."""
    path = tmp_path / "sdk.db"

    async def fill() -> None:
        for name in ("one", "two"):
            session = agents.SQLiteSession(name, path)
            await session.add_items([{"role": "user", "content": f"hello {name}"}])
            session.close()

    asyncio.run(fill())
    return path


def test_a_file_at_rest_is_read_without_a_trace(ours: Path) -> None:
    (ours.parent / "talks.db-standfast-lock").unlink(missing_ok=True)
    before = trace(ours.parent)
    assert looked_at(ours) == ["two", "one"]
    assert trace(ours.parent) == before


def test_a_file_of_the_sdk_is_read_as_it_is(theirs: Path) -> None:
    before = trace(theirs.parent)
    assert looked_at(theirs) == ["two", "one"]
    assert trace(theirs.parent) == before

    async def scenario() -> None:
        async with open_store(theirs, read_only=True) as store:
            assert (await store.layout()).version == 0
            listing = await store.sessions()
            assert [(one.first_words, one.item_count) for one in listing.sessions] == [
                ("hello two", 1),
                ("hello one", 1),
            ]
            record = (await store.session("one").records()).records[0]
            assert (record.writer, record.number, record.item) == (None, None, message("hello one"))
            assert record.at is not None

    asyncio.run(scenario())
    assert trace(theirs.parent) == before


AS_NOBODY = """
    import asyncio, os, sys, tempfile
    from standfast import SQLiteSession, open_store

    async def look(path):
        async with open_store(path, read_only=True) as store:
            return [one.session_id for one in (await store.sessions()).sessions]

    async def once():
        with tempfile.TemporaryDirectory() as folder:
            session = SQLiteSession("a", f"{folder}/a.db")
            await session.add_items([{"role": "user", "content": "a"}])
            await session.close()
            await look(f"{folder}/a.db")

    asyncio.run(once())  # everything is imported now: the next user may not even read our source
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    try:
        print(asyncio.run(look(sys.argv[1])))
    except Exception as error:
        print(type(error).__name__, error)
"""


def as_nobody(path: Path) -> str:
    """What a user finds who may write nothing here: another one, where this is root."""
    made = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(AS_NOBODY), str(path)],
        capture_output=True,
        text=True,
        env=CHILD_ENVIRONMENT,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def open_the_way(path: Path) -> None:
    """Let everybody reach the folder of a test: each folder on the way, an open one may lie in a closed one."""
    for place in path.parents:
        if place.stat().st_mode & 0o055 != 0o055:
            place.chmod(place.stat().st_mode | 0o055)


@pytest.fixture
def readable(ours: Path) -> Iterator[Path]:
    """The file where everybody may read it and nobody may write: neither the file nor the folder."""
    open_the_way(ours)
    (ours.parent / "talks.db-standfast-lock").unlink(missing_ok=True)
    ours.chmod(0o444)
    ours.parent.chmod(0o555)
    yield ours
    ours.parent.chmod(0o755)


def test_a_file_and_folder_without_write_permission_are_read_by_another_user(readable: Path) -> None:
    before = trace(readable.parent)
    assert as_nobody(readable) == "['two', 'one']"
    assert trace(readable.parent) == before


def test_a_file_in_use_is_read_by_another_user_who_may_write_nothing(ours: Path) -> None:
    """The newest session is in the log only, which its writer has open."""
    open_the_way(ours)
    ours.chmod(0o644)

    async def scenario() -> None:
        writer = SQLiteSession("three", ours)
        await writer.add_items([message("in the log")])
        ours.parent.chmod(0o555)
        before = trace(ours.parent)
        assert as_nobody(ours) == "['three', 'two', 'one']"
        assert trace(ours.parent).keys() == before.keys()
        assert trace(ours.parent)["talks.db"] == before["talks.db"]
        assert trace(ours.parent)["talks.db-wal"] == before["talks.db-wal"]
        ours.parent.chmod(0o755)
        await writer.close()

    asyncio.run(scenario())


def test_beside_a_live_writer_its_log_is_read_and_nothing_is_left(ours: Path) -> None:
    async def scenario() -> None:
        writer = SQLiteSession("one", ours, linger_s=0)
        async with open_store(ours, read_only=True) as store:
            for number in range(20):
                await writer.add_items([message(f"number {number}")])
                seen = await store.session("one").get_items()
                assert seen[-1] == message(f"number {number}")
                listing = await store.sessions()
                assert listing.sessions[0].item_count == 3 + number
            names = {file.name for file in ours.parent.iterdir()}
            await writer.close()
            assert (await store.session("one").get_items())[-1] == message("number 19")
        assert {file.name for file in ours.parent.iterdir()} <= names - {"talks.db-wal", "talks.db-shm"}

    asyncio.run(scenario())


def test_a_log_that_a_killed_writer_left_is_read(ours: Path) -> None:
    """After kill -9 the newest items are in the log only."""
    code = f"""
        import asyncio, os, signal
        from standfast import SQLiteSession
        async def main():
            await SQLiteSession("one", {str(ours)!r}).add_items([{{"role": "user", "content": "last words"}}])
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(main())
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=CHILD_ENVIRONMENT, check=False)
    assert (ours.parent / "talks.db-wal").stat().st_size > 0
    (ours.parent / "talks.db-shm").unlink()  # as where the files were copied: nobody can use this log as it is
    before = trace(ours.parent)
    found = asyncio.run(_items(ours, "one"))
    assert found[-1] == message("last words")
    assert trace(ours.parent) == before


async def _items(path: Path, session_id: str) -> list[Any]:
    async with open_store(path, read_only=True) as store:
        return await store.session(session_id).get_items()


def test_a_journal_that_a_killed_program_left_is_rolled_back_in_a_copy(theirs: Path) -> None:
    """A database that is not in log mode, cut in the middle of a write: what is read is what was committed."""
    db = sqlite3.connect(theirs)
    db.execute("PRAGMA journal_mode=DELETE")
    db.close()
    code = f"""
        import os, signal, sqlite3
        db = sqlite3.connect({str(theirs)!r}, isolation_level=None)
        db.execute("PRAGMA cache_size=1")
        db.execute("BEGIN IMMEDIATE")
        for n in range(2000):
            db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('one', ?)", ("x" * 500,))
        db.execute("UPDATE agent_messages SET message_data = '{{}}'")
        os.kill(os.getpid(), signal.SIGKILL)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=CHILD_ENVIRONMENT, check=False)
    assert (theirs.parent / "sdk.db-journal").stat().st_size > 0
    before = trace(theirs.parent)
    assert asyncio.run(_items(theirs, "one")) == [message("hello one")]
    assert trace(theirs.parent) == before


def test_whatever_would_change_something_is_refused(ours: Path) -> None:
    (ours.parent / "talks.db-standfast-lock").unlink(missing_ok=True)
    before = trace(ours.parent)

    async def scenario() -> None:
        async with open_store(ours, read_only=True) as store:
            session = store.session("one")
            for change in (
                session.add_items([message("no")]),
                session.pop_item(),
                session.clear_session(),
                session.fork("three"),
                session.lease(ttl_s=1, wait_s=0),
                session.run_store().prune_runs(keep=0),
                store.unlock("one"),
                store.decide("r", "c", True, by="me"),
                store.prune_runs(keep=0),
            ):
                with pytest.raises(StoreReadOnlyError):
                    await change

    asyncio.run(scenario())
    assert trace(ours.parent) == before


def test_what_is_no_store_is_told_in_words(tmp_path: Path, ours: Path) -> None:
    def entered(path: Path) -> None:
        async def scenario() -> None:
            async with open_store(path, read_only=True):
                pass

        asyncio.run(scenario())

    with pytest.raises(StoreNotFoundError, match="no file"):
        entered(tmp_path / "none.db")
    with pytest.raises(StoreNotFoundError):
        open_store(tmp_path / "none.db")
    with pytest.raises(NotADatabaseError, match="folder"):
        entered(tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("This is no database, and it is long enough to be looked at. " * 50)
    with pytest.raises(NotADatabaseError, match="not an SQLite database"):
        entered(text)
    other = tmp_path / "other.db"
    db = sqlite3.connect(other)
    db.execute("CREATE TABLE things (a)")
    db.commit()
    db.close()
    with pytest.raises(NotADatabaseError, match="holds no conversations"):
        entered(other)
    db = sqlite3.connect(ours)
    db.execute("UPDATE standfast_schema SET version = 99")
    db.commit()
    db.close()
    with pytest.raises(SchemaTooNewError):
        entered(ours)
    assert not (tmp_path / "none.db").exists()


def test_a_file_that_may_not_be_read_is_told_in_words(ours: Path) -> None:
    open_the_way(ours)
    ours.chmod(0)
    said = as_nobody(ours)
    assert said.startswith("StoreUnavailableError")
    assert "may not be read by this user" in said
