"""When a process that holds a lease is known to be gone: never by guessing (B7)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from standfast._src.base.errors import SessionBusyError
from standfast._src.sessions.backends.sqlite import process_liveness
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

NAME = (
    "from standfast._src.sessions.backends.sqlite import process_liveness; "
    "print(process_liveness.this_process(), flush=True); input()"
)


def test_a_process_is_gone_when_it_has_ended_and_not_before() -> None:
    program = [sys.executable, "-c", NAME]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        name = child.stdout.readline().strip()
        assert not process_liveness.is_gone(name)
        child.kill()
    assert process_liveness.is_gone(name)


def test_this_process_is_there_and_a_reused_number_is_another_process() -> None:
    mine = process_liveness.this_process()
    assert mine is not None
    assert not process_liveness.is_gone(mine)
    *same, start = mine.split(" ")
    assert process_liveness.is_gone(" ".join([*same, str(int(start) + 1)]))


@pytest.mark.parametrize("part", [0, 1, 2])
def test_another_boot_process_space_or_time_space_is_no_proof(part: int) -> None:
    """The file may be shared with another machine or container; in another time space start times are moved."""
    mine = process_liveness.this_process()
    assert mine is not None
    parts = mine.split(" ")
    parts[part], parts[4] = "another", "1"
    assert not process_liveness.is_gone(" ".join(parts))


@pytest.mark.parametrize("name", [None, "", "x", "a b c d", "a b c d e", "a b c -1 e"])
def test_a_name_that_says_nothing_is_no_proof(name: str | None) -> None:
    assert not process_liveness.is_gone(name)


HOLD = """
import asyncio, sys
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
async def main():
    await SQLiteSession("s", sys.argv[1]).lease(ttl_s=600, wait_s=1)
    print("held", flush=True)
    input()
asyncio.run(main())
"""


async def test_the_lease_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    program = [sys.executable, "-c", HOLD, str(path)]
    session = SQLiteSession("s", path)
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "held\n"
        with pytest.raises(SessionBusyError):
            await session.lease(ttl_s=5, wait_s=0.1)
        child.kill()
    lease = await session.lease(ttl_s=5, wait_s=60)
    assert lease.number == 2
    await lease.release()
    session.close()
