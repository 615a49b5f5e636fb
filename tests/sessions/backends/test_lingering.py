"""An engine stays for some seconds after its last session object, and never where it must not (A19, A21)."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from standfast import InvalidSettingError, PostgresSession, RedisSession, SchemaTooNewError, SQLiteSession, open_store
from standfast._src.sessions.client.lingering import LINGERING
from standfast.extensions.memory import EncryptedSession, SQLAlchemySession
from tests.helpers.servers import drop_schema, postgres_url, redis_url

Make = Callable[..., Any]


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def becomes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does, in a time that only a hang takes."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    return condition()


def our_threads() -> set[threading.Thread]:
    names = ("standfast-writer", "standfast-reader", "standfast-carrier")
    return {one for one in threading.enumerate() if one.name in names}


def sockets() -> set[int]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            status = os.fstat(int(name))
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            found.add(status.st_ino)
    return found


def log_bytes(path: Path) -> int:
    """The size of the log beside a file."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def open_files() -> set[str]:
    """The paths of what this process has open."""
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        try:
            found.add(os.readlink(one))
        except OSError:
            continue
    return found


@pytest.fixture
def schema() -> Iterator[str]:
    name = f"linger_{uuid4().hex}"
    yield name
    LINGERING.end_all()
    drop_schema(postgres_url(), name)


@pytest.fixture(
    params=[
        "sqlite",
        "sealed",
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("sqlalchemy", marks=pytest.mark.postgres),
    ]
)
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Make a session object of one store, with these settings."""
    kind = request.param
    if kind in ("sqlite", "sealed"):
        path = tmp_path / "s.db"

        def sealed(**given: Any) -> Any:
            return EncryptedSession("s", SQLiteSession("s", path, **given), encryption_key="of the test")

        return sealed if kind == "sealed" else lambda **given: SQLiteSession("s", path, **given)
    if kind == "redis":
        prefix = uuid4().hex
        return lambda **given: RedisSession.from_url("s", url=redis_url(), key_prefix=prefix, **given)
    schema = request.getfixturevalue("schema")
    if kind == "postgres":
        return lambda **given: PostgresSession("s", url=postgres_url(), schema=schema, **given)
    url = postgres_url().replace("postgresql://", "postgresql+psycopg://")
    names = {"sessions_table": f"s_{schema}", "messages_table": f"m_{schema}"}
    return lambda **given: SQLAlchemySession.from_url("s", url=url, create_tables=True, **names, **given)


async def requests(make: Make, count: int, *, is_closed: bool, **given: Any) -> tuple[int, int]:
    """Serve some, each with a session object of its own; how many threads and sockets there were in all."""
    threads, found = set[int](), set[int]()
    before, had = our_threads(), sockets()
    for number in range(count):
        session = make(**given)
        await session.get_items(limit=1)
        await session.add_items([message(str(number))])
        threads |= {one.ident or 0 for one in our_threads() - before}
        found |= sockets() - had
        if is_closed:
            await session.close()
        del session
    return len(threads), len(found)


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "dropped"])
async def test_a_session_object_per_request_makes_no_new_engine(make: Make, is_closed: bool) -> None:
    threads, found = await requests(make, 12, is_closed=is_closed)
    assert 1 <= threads <= 5
    assert found <= 8  # a few connections of one engine, and the loop's look at one of them
    session = make()
    assert len(await session.get_items()) == 12
    await session.close()


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "dropped"])
async def test_without_lingering_it_ends_with_the_last_session(make: Make, is_closed: bool) -> None:
    before = our_threads()
    await requests(make, 2, is_closed=is_closed, linger_s=0)
    assert await asyncio.to_thread(becomes_true, lambda: not our_threads() - before)


async def test_an_engine_ends_by_itself_when_its_time_is_over(make: Make) -> None:
    before = our_threads()
    for is_closed in (True, False):
        await requests(make, 2, is_closed=is_closed, linger_s=0.2)
        assert await asyncio.to_thread(becomes_true, lambda: not our_threads() - before and not LINGERING.engines())


async def test_a_session_that_is_open_keeps_the_engine_that_others_leave(make: Make) -> None:
    kept = make(linger_s=0)
    await kept.add_items([message("1")])
    await requests(make, 2, is_closed=True, linger_s=0.1)
    LINGERING.end_all()
    assert our_threads()
    assert len(await kept.get_items()) == 3
    await kept.close()


async def test_a_linger_s_that_is_not_a_number_of_seconds_is_refused(make: Make) -> None:
    for bad in (-1, float("nan"), "5", True):
        with pytest.raises((InvalidSettingError, TypeError)):
            make(linger_s=bad)


# --- what ends it at once ---------------------------------------------------------------------------------------------


async def test_closing_the_store_ends_what_lingers_of_it(tmp_path: Path) -> None:
    path, before = tmp_path / "s.db", our_threads()
    async with open_store(path, create=True) as store:
        session = store.session("s")
        await session.add_items([message("1")])
        await session.close()
        assert str(path) in open_files()
    assert str(path) not in open_files()
    assert not our_threads() - before


@pytest.mark.redis
@pytest.mark.postgres
async def test_closing_a_store_on_a_server_ends_what_lingers_of_it() -> None:
    for url in (redis_url(), postgres_url()):
        before = our_threads()
        async with open_store(url) as store:
            await store.counts()
            assert our_threads() - before
        assert not our_threads() - before


async def test_all_that_lingers_can_be_ended_at_once_after_a_close(tmp_path: Path) -> None:
    """A19: the thread that wakes up for an engine does not hide it from a caller that ends all of them."""
    before = our_threads()
    for number in range(200):
        session = SQLiteSession("s", tmp_path / f"{number}.db")
        await session.get_items()
        session.close()
        LINGERING.end_all()
        assert not our_threads() - before


EXIT = """
    import asyncio, sys
    from standfast import SQLiteSession

    async def main():
        session = SQLiteSession("s", sys.argv[1], linger_s=3_600)
        await session.add_items([{"role": "user", "content": "hello"}])
        if sys.argv[2] == "closed":
            session.close()

    asyncio.run(main())
"""


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_a_process_does_not_wait_for_what_lingers(tmp_path: Path, how: str) -> None:
    path = tmp_path / "s.db"
    subprocess.run([sys.executable, "-c", textwrap.dedent(EXIT), path, how], check=True, timeout=120)
    assert path.exists()
    assert not path.with_name("s.db-wal").exists()


FORK = """
    import asyncio, os, sys, threading
    from standfast import SQLiteSession

    async def use(text):
        session = SQLiteSession("s", sys.argv[1])
        await session.add_items([{"role": "user", "content": text}])
        session.close()
        return len(await SQLiteSession("s", sys.argv[1]).get_items())

    asyncio.run(use("parent"))
    pid = os.fork()
    if not pid:
        alone = threading.active_count() == 1
        os._exit(10 * alone + asyncio.run(use("child")))
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(code, asyncio.run(use("parent again")), flush=True)
"""


def test_a_child_does_not_use_what_lingered_in_its_parent(tmp_path: Path) -> None:
    """Both go on, and see each other's writes."""
    command = [sys.executable, "-c", textwrap.dedent(FORK), str(tmp_path / "s.db")]
    done = subprocess.run(command, check=True, timeout=120, capture_output=True, text=True)
    assert done.stdout == "12 3\n", done.stderr


FINALIZED = """
    import sys, threading, time
    from standfast import SQLiteSession
    from standfast._src.sessions.client.lingering import LINGERING

    def opened(name):
        session = SQLiteSession("s", f"{sys.argv[1]}/{name}.db")
        session._engine()
        return session

    session, examined = opened("one"), threading.Event()

    class Engine:
        def has_lost_store(self):
            return False

        def prepare_for_end(self):  # what garbage collection does while the engines are examined
            examined.set()
            time.sleep(0.3)  # the other thread opens its session now
            session.close()

    LINGERING.use(Engine(), 3_600)
    examined.wait()
    opened("two").close()
    print("both are closed", flush=True)
"""


def test_a_session_that_garbage_collection_closes_while_engines_are_examined_stops_nobody(tmp_path: Path) -> None:
    """An object of the application may close its session in `__del__`, which runs in any thread (A19, A22)."""
    command = [sys.executable, "-c", textwrap.dedent(FINALIZED), str(tmp_path)]
    done = subprocess.run(command, check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout == "both are closed\n", done.stderr


# --- files ------------------------------------------------------------------------------------------------------------


async def fill(path: Path, text: str) -> None:
    session = SQLiteSession("s", path)
    await session.add_items([message(text)])
    await session.get_items()
    await session.close()


async def words(path: Path) -> list[Any]:
    session = SQLiteSession("s", path)
    try:
        return [item["content"] for item in await session.get_items()]
    finally:
        await session.close()


async def test_a_closed_file_may_be_copied_without_its_log(tmp_path: Path) -> None:
    """It is whole when `close` returns, though the engine stays (A19)."""
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    for number in range(3):
        await fill(path, str(number))
        assert str(path) in open_files()
        shutil.copyfile(path, copy)
        assert await words(copy) == [str(one) for one in range(number + 1)]
        copy.unlink()


async def test_a_file_that_is_closed_again_and_again_is_whole_after_a_pause(tmp_path: Path) -> None:
    """A checkpoint for each request would cost more than its turn."""
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    for number in range(20):
        session = SQLiteSession("s", path, linger_s=3_600)
        await session.add_items([message(str(number))])
        await session.close()
    assert await asyncio.to_thread(becomes_true, lambda: not log_bytes(path))
    assert str(path) in open_files()
    shutil.copyfile(path, copy)
    assert await words(copy) == [str(number) for number in range(20)]


async def test_a_backup_copied_over_a_closed_file_is_what_the_next_session_reads(tmp_path: Path) -> None:
    """SQLite does not notice, and would answer from its cache and fold its log into the copy."""
    path, backup = tmp_path / "s.db", tmp_path / "backup.db"
    await fill(backup, "of the backup")
    for number in range(3):
        await fill(path, str(number))
        await fill(path, "again")
        assert await asyncio.to_thread(becomes_true, lambda: not log_bytes(path))
        shutil.copyfile(backup, path)
        assert await words(path) == ["of the backup"]
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_dropped_file_is_soon_whole_without_its_log(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    session = SQLiteSession("s", path, linger_s=3_600)
    await session.add_items([message("1")])
    del session
    assert await asyncio.to_thread(becomes_true, lambda: not log_bytes(path))
    assert str(path) in open_files()


async def test_a_file_that_was_deleted_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    for number in range(3):
        await fill(path, str(number))
        path.unlink()
        assert await words(path) == []
        path.unlink()


async def test_a_file_that_was_replaced_is_the_new_one(tmp_path: Path) -> None:
    path, other = tmp_path / "s.db", tmp_path / "other.db"
    for number in range(3):
        await fill(other, f"other {number}")
        await fill(path, str(number))
        os.replace(other, path)
        assert (await words(path))[-1] == f"other {number}"


async def test_a_file_that_was_renamed_goes_on_under_its_new_name(tmp_path: Path) -> None:
    """Two connections of a process that know a file by two names share SQLite's index of the log, not the log."""
    names = [tmp_path / f"{number}.db" for number in range(4)]
    await fill(names[0], "0")
    for number, (old, new) in enumerate(pairwise(names)):
        os.rename(old, new)
        await fill(new, str(number + 1))
        assert becomes_true(lambda old=old: not any(one.startswith(str(old)) for one in open_files()))  # type: ignore[misc]
    with closing(sqlite3.connect(names[-1])) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert await words(names[-1]) == ["0", "1", "2", "3"]


async def test_connections_to_a_file_that_is_gone_are_closed_though_nobody_asks(tmp_path: Path) -> None:
    before = our_threads()
    path = tmp_path / "s.db"
    session = SQLiteSession("s", path, linger_s=3_600)
    await session.add_items([message("1")])
    await session.close()
    os.rename(path, tmp_path / "elsewhere.db")
    assert await asyncio.to_thread(becomes_true, lambda: not our_threads() - before)


async def test_a_layout_that_another_program_brings_meanwhile_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    await fill(path, "1")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE standfast_schema SET version = 99")
    with pytest.raises(SchemaTooNewError, match="99"):
        await words(path)


# --- bounds -----------------------------------------------------------------------------------------------------------


async def test_so_many_linger_and_the_oldest_ends_first(tmp_path: Path) -> None:
    """At most eight, whatever their time is (A21)."""
    paths = [tmp_path / f"{number}.db" for number in range(12)]
    for path in paths:
        session = SQLiteSession("s", path, linger_s=3_600)
        await session.add_items([message("1")])
        await session.close()
    assert len(LINGERING.engines()) == 8
    wanted = {str(path) for path in paths[-8:]}
    assert await asyncio.to_thread(becomes_true, lambda: open_files() & set(map(str, paths)) == wanted)


FILES = """
    import asyncio, json, os, shutil, sys, threading
    from standfast import SQLiteSession

    folder, count = sys.argv[1], int(sys.argv[2])

    async def main():
        first = SQLiteSession("s", f"{folder}/first.db", linger_s=3_600)
        await first.add_items([{"role": "user", "content": "hello"}])
        await first.close()
        highest = [0, 0]
        for number in range(count):
            path = f"{folder}/{number}.db"
            shutil.copyfile(f"{folder}/first.db", path)
            session = SQLiteSession("s", path, linger_s=3_600)
            assert len(await session.get_items()) == 1
            if number % 2:
                await session.close()
            del session
            if not number % 10:
                now = len(os.listdir("/proc/self/fd")), threading.active_count()
                highest = [max(one, other) for one, other in zip(highest, now)]
            os.unlink(f"{folder}/{number - 50}.db") if number >= 50 else None
        print(json.dumps(highest), flush=True)

    asyncio.run(main())
"""


@pytest.mark.parametrize("count", [300, 10_000])
def test_any_number_of_files_holds_a_constant_number_of_threads_and_descriptors(tmp_path: Path, count: int) -> None:
    """In a process of its own, where nothing else opens anything (A21)."""
    command = [sys.executable, "-c", textwrap.dedent(FILES), str(tmp_path), str(count)]
    done = subprocess.run(command, check=True, timeout=500, capture_output=True, text=True)
    descriptors, threads = map(int, done.stdout.strip("[]\n").split(","))
    # Eight that linger, and a few that are ending: a writer and a reader each, six descriptors.
    assert threads <= 2 * 16 + 4
    assert descriptors <= 6 * 16 + 16
