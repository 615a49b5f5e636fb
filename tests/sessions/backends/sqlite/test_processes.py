"""Processes that are killed, forked, or simply end; threads and loops that share a session (A21, A22, A23)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers import children

from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def start(program: str, *args: object) -> subprocess.Popen[str]:
    """A Python process of its own."""
    return children.program(program, *args)


WRITE_FOR_EVER = """
    import asyncio, os, sys
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

    async def one(path, name):
        session = SQLiteSession(name, path)
        number = await session.accepted("w")
        while True:
            batch = [{"n": number + n} for n in range(3)]
            await session.append(batch, writer="w", start=number)
            number += 3
            os.write(1, f"{name} {number}\\n".encode())  # at once: a kill must not tear what was acknowledged

    async def main(path):
        await asyncio.gather(*(one(path, f"s{n}") for n in range(4)))

    asyncio.run(main(sys.argv[1]))
"""


def test_what_was_acknowledged_survives_a_kill_and_what_was_torn_is_absent_whole(path: Path) -> None:
    """SIGKILL lands while four sessions write without a pause; each round goes on where the last one was killed."""
    acknowledged = {f"s{n}": 0 for n in range(4)}
    for round_number in range(6):
        process = start(WRITE_FOR_EVER, path)
        assert process.stdout is not None
        wanted = 20 + 7 * round_number
        with process.stdout:
            for line in process.stdout:
                if not line.endswith("\n"):
                    continue  # it was killed in the middle of saying so
                name, number = line.split()
                acknowledged[name] = int(number)
                wanted -= 1
                if not wanted:
                    os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            for name, count in acknowledged.items():
                rows = db.execute("SELECT message_data FROM agent_messages WHERE session_id = ? ORDER BY id", (name,))
                found = [json.loads(data)["n"] for (data,) in rows]
                assert found == list(range(len(found))), "something is missing, doubled or out of order"
                assert len(found) >= count
                assert len(found) % 3 == 0, "a batch was torn"


ADD_AND_END = """
    import asyncio, sys
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
    session = SQLiteSession("s", sys.argv[1])
    asyncio.run(session.add_items([{"role": "user", "content": "kept"}]))
    if sys.argv[2] == "pending":
        async def leave():
            asyncio.ensure_future(session.pop_item())
            await asyncio.sleep(0)
        asyncio.run(leave())
    print("end", flush=True)
"""


@pytest.mark.parametrize("how", ["plain", "pending"])
def test_a_process_that_ends_without_closing_leaves_a_whole_file(path: Path, how: str) -> None:
    process = start(ADD_AND_END, path, how)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "end\n")
    assert not Path(f"{path}-wal").exists(), "its connections were closed at exit"
    session = SQLiteSession("s", path)
    assert asyncio.run(session.get_items()) == [message("kept")]
    session.close()


FORKS = """
    import asyncio, os, sys
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

    path = sys.argv[1]
    session, memory = SQLiteSession("s", path), SQLiteSession("m")
    async def add(text, times=1):
        for n in range(times):
            await session.add_items([{"role": "user", "content": f"{text} {n}"}])
    asyncio.run(add("before"))
    asyncio.run(memory.add_items([{"a": 1}]))
    children = []
    for name in ("child a", "child b"):
        pid = os.fork()
        if not pid:
            asyncio.run(add(name, 20))
            asyncio.run(memory.add_items([{"b": 1}]))
            assert len(asyncio.run(memory.get_items())) == 2
            session.close()
            os._exit(0)
        children.append(pid)
    asyncio.run(add("parent", 20))
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    assert codes == [0, 0], codes
    assert len(asyncio.run(memory.get_items())) == 1
    asyncio.run(add("after"))
    print(len(asyncio.run(session.get_items())), flush=True)
"""


def test_after_a_fork_parent_and_children_each_write_through_connections_of_their_own(path: Path) -> None:
    process = start(FORKS, path)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "62\n")


LEAVE_A_CHILD = """
    import asyncio, os, sys, time
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

    path = sys.argv[1]
    session = SQLiteSession("s", path)
    async def add(text, times=1):
        for n in range(times):
            await session.add_items([{"role": "user", "content": f"{text} {n}"}])
    asyncio.run(add("parent", 5))
    parent = os.getpid()
    if os.fork():
        sys.exit(0)      # the parent's last connection is gone: it folds its log back and removes it
    asyncio.run(add("child", 5))
    while os.getppid() == parent:
        time.sleep(0.01)
    asyncio.run(add("orphan", 5))
    session.close()
    print("done", flush=True)
"""


def test_a_child_keeps_its_writes_when_the_parent_that_had_the_file_open_exits(path: Path) -> None:
    """Inherited connections would let the parent remove the log that the child writes to."""
    process = start(LEAVE_A_CHILD, path)
    out, _ = process.communicate(timeout=60)
    assert out == "done\n"
    session = SQLiteSession("s", path)
    found = [item["content"] for item in asyncio.run(session.get_items())]
    assert found == [f"{name} {n}" for name in ("parent", "child", "orphan") for n in range(5)]
    session.close()


INTERRUPTED_FORK = """
    import asyncio, os, signal, sys, threading
    from standfast import StoreUnavailableError
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
    from standfast._src.sessions.storage import ReadRequest, Name

    sys.unraisablehook = lambda _: None  # Python says there that a hook was interrupted
    session = SQLiteSession("s", sys.argv[1])
    entered, go_on = threading.Event(), threading.Event()

    def slow():
        yield ReadRequest(Name("session", "gate"), mark=False)
        entered.set()
        go_on.wait(60)

    async def add():
        await session.add_items([{"role": "user", "content": "kept"}])

    asyncio.run(add())
    writing = threading.Thread(target=lambda: asyncio.run(session.changed(slow)))
    writing.start()
    entered.wait(60)

    def interrupt(*_):
        raise KeyboardInterrupt

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    child = os.fork()
    if not child:
        try:
            asyncio.run(add())
        except StoreUnavailableError:
            os._exit(7)
        os._exit(0)
    go_on.set()
    writing.join(60)
    asyncio.run(add())
    elsewhere = threading.Thread(target=lambda: asyncio.run(add()))
    elsewhere.start()
    elsewhere.join(60)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, len(asyncio.run(session.get_items())), flush=True)
"""


def test_a_child_whose_fork_was_interrupted_while_a_commit_was_waited_for_does_not_open_the_file(path: Path) -> None:
    """Python forks though: the child opened the file beside its parent's connection, and waited in vain."""
    process = start(INTERRUPTED_FORK, path)
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "7 3\n")


def test_forking_in_the_middle_of_traffic_hurts_neither_side(path: Path) -> None:
    program = """
        import asyncio, os, sys, threading
        from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
        path, stop, counts = sys.argv[1], threading.Event(), [0, 0]

        def traffic(place):
            async def go():
                session = SQLiteSession(f"t{place}", path)
                while not stop.is_set():
                    await session.append([{"n": counts[place]}], writer="w", start=counts[place])
                    counts[place] += 1
                    await session.get_items(limit=3)
            asyncio.run(go())

        threads = [threading.Thread(target=traffic, args=(place,)) for place in range(2)]
        for thread in threads: thread.start()
        codes = []
        for number in range(10):
            pid = os.fork()
            if not pid:
                session = SQLiteSession("c", path)
                asyncio.run(session.add_items([{"child": number}]))
                session.close()
                os._exit(0)
            codes.append(os.waitpid(pid, 0)[1])
        stop.set()
        for thread in threads: thread.join()
        found = [len(asyncio.run(SQLiteSession(f"t{place}", path).get_items())) for place in range(2)]
        assert codes == [0] * 10, codes
        assert found == counts, (found, counts)
        print(len(asyncio.run(SQLiteSession("c", path).get_items())), flush=True)
    """
    process = start(program, path)
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, "10\n")


FORK_IN_A_COMMIT = """
    import asyncio, os, sys, threading
    from standfast._src.base.errors import StoreUnavailableError
    from standfast._src.sessions.backends.sqlite import file_engine
    from standfast._src.sessions.backends.sqlite.schema import Tables
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
    from standfast._src.sessions.storage import ReadRequest, Name

    file_engine.FORK_WAIT_S = 0.1
    session, inside, leave = SQLiteSession("s", sys.argv[1]), threading.Event(), threading.Event()

    def hang():
        yield ReadRequest(Name("session", "s"))
        inside.set()
        leave.wait(30)

    tables = Tables.of("agent_sessions", "agent_messages")
    asyncio.run(session.get_items())
    carrier = file_engine.FileExecutor(os.path.realpath(sys.argv[1]), tables)
    thread = threading.Thread(target=lambda: asyncio.run(carrier.carry(hang, 30)))
    thread.start()
    inside.wait(30)
    pid = os.fork()
    if not pid:
        for refused in (SQLiteSession("t", sys.argv[1]), session):  # one that was opened before the fork too
            try:
                asyncio.run(refused.get_items())
                os._exit(9)
            except StoreUnavailableError as error:
                if "fork" not in str(error):
                    os._exit(8)
        os._exit(7)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    leave.set()
    thread.join()
    asyncio.run(session.add_items([{"a": 1}]))
    print(code, len(asyncio.run(session.get_items())), flush=True)
"""


def test_a_child_forked_inside_a_hanging_commit_refuses_the_file_and_the_parent_goes_on(path: Path) -> None:
    process = start(FORK_IN_A_COMMIT, path)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, "7 1\n")


FIRST = """
    import asyncio, sys
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
    session = SQLiteSession("s", sys.argv[1])
    sys.stdin.readline()
    asyncio.run(session.add_items([{"who": sys.argv[2], "part": n} for n in range(3)]))
"""


def test_first_writers_of_many_processes_all_succeed(path: Path) -> None:
    commands = [[sys.executable, "-c", textwrap.dedent(FIRST), str(path), str(n)] for n in range(6)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in commands]
    for process in processes:
        process.communicate(b"go\n", timeout=60)
    assert [process.returncode for process in processes] == [0] * 6
    session = SQLiteSession("s", path)
    found = [(item["who"], item["part"]) for item in asyncio.run(session.get_items())]
    session.close()
    assert len(found) == 18
    assert [found[place : place + 3] for place in range(0, 18, 3)] == [
        [(found[place][0], part) for part in range(3)] for place in range(0, 18, 3)
    ]


# --- inside one process ------------------------------------------------------------------------------


def test_one_session_object_serves_two_loops_in_two_threads_and_another_loop_later(path: Path) -> None:
    session = SQLiteSession("s", path)

    async def add(place: int) -> None:
        for number in range(40):
            await session.append([message(f"{place}.{number}")], writer=str(place), start=number)

    threads = [threading.Thread(target=asyncio.run, args=(add(place),)) for place in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(asyncio.run(session.written(str(place)))) for place in range(2)] == [40, 40]
    assert len(asyncio.run(session.get_items())) == 80
    session.close()


def holdings() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()


TEN_THOUSAND = """
    import asyncio, gc, json, os, sys, threading, time
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

    def holdings():
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    async def use(sessions):
        for place in range(0, len(sessions), 250):
            await asyncio.gather(*(one.get_items(limit=1) for one in sessions[place : place + 250]))

    before = holdings()
    sessions = [SQLiteSession(f"s{number}", sys.argv[1]) for number in range(10_000)]
    asyncio.run(use(sessions))
    used = holdings()
    for session in sessions[:5_000]:
        session.close()
    del sessions, session  # the others are merely dropped
    gc.collect()
    deadline = time.monotonic() + 60
    while holdings() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    print(json.dumps([before, used, holdings()]), flush=True)
"""


def test_ten_thousand_session_objects_hold_what_one_holds(path: Path) -> None:
    """In a process of its own, where nothing else opens or closes anything."""
    process = start(TEN_THOUSAND, path)
    out, _ = process.communicate(timeout=240)
    assert process.returncode == 0
    before, used, after = json.loads(out)
    assert used[0] - before[0] <= 20
    assert used[1] - before[1] <= 6
    assert after == before


def test_memory_is_private_to_each_object_and_needs_no_thread() -> None:
    before = holdings()

    async def use() -> None:
        first, second = SQLiteSession("s"), SQLiteSession("s")
        await first.add_items([message("1")])
        assert await second.get_items() == []
        fork = await first.fork("copy")
        first.close()
        await fork.add_items([message("2")])
        assert await fork.get_items() == [message("1"), message("2")]
        assert holdings()[1] == before[1]
        fork.close()
        second.close()

    asyncio.run(use())
