"""Ctrl-C at every place of an operation on a file (A6, A13, A21).

What was found: a thread whose start was interrupted went on beside the one that the next request started, and both
wrote, in any order; and an item that a pop had brought was gone, if the interrupt came while its request was put away.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from standfast import SQLiteSession
from standfast.conformance import message
from tests.helpers.interrupts import Interrupt

OURS = (
    "commit_thread.py",
    "file_engine.py",
    "read_threads.py",
    "requests.py",
    "abandoned_writes.py",
    "thread_start.py",
)

PATIENCE_S = 60.0
"""How long a test waits for what comes at once: a machine that is busy is not the defect."""

PLACES_MIN = 8 if sys.version_info < (3, 12) else 1
"""Places at which each operation is interrupted at the least. Tracing of later Pythons tells of few of them."""

Operation = Callable[[SQLiteSession], Coroutine[Any, Any, Any]]


async def add(session: SQLiteSession) -> None:
    await asyncio.gather(*(session.add_items([message(f"new {place}")]) for place in range(3)))


async def append(session: SQLiteSession) -> None:
    await session.append([message("new 0")], writer="w", start=0)


async def pop(session: SQLiteSession) -> Any:
    return await session.pop_item()


async def read(session: SQLiteSession) -> Any:
    return await session.get_items()


async def words(session: SQLiteSession) -> list[str]:
    return [str(item["content"]) for item in await session.get_items()]


async def go_on(session: SQLiteSession) -> list[str]:
    """Write many at once, and give what is there then: several threads that wrote would not keep their order."""
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(session.add_items([message(f"after {place:02}")]) for place in range(30)))
        return await words(session)


def running() -> list[str]:
    """Our threads; without one that was put on Python's list and then not started."""
    return [one.name for one in threading.enumerate() if one.name.startswith("standfast-") and one.ident is not None]


def interrupted(session: SQLiteSession, operation: Operation, number: int) -> bool:
    """Interrupt an operation there; whether it was. Nothing is lost, doubled or kept from going on."""
    loop = asyncio.new_event_loop()
    task = loop.create_task(operation(session))
    interrupt = Interrupt(number, OURS)
    with contextlib.suppress(KeyboardInterrupt), interrupt:
        loop.run_until_complete(task)
    with contextlib.suppress(KeyboardInterrupt):  # once more, where it was raised in another task that this one awaits
        loop.run_until_complete(asyncio.wait([task], timeout=PATIENCE_S))
    assert task.done(), f"nobody was told after interrupt {number}"
    is_done = task.exception() is None
    found = loop.run_until_complete(go_on(session))
    assert [word for word in found if word.startswith("after")] == [f"after {place:02}" for place in range(30)]
    new = [word for word in found if word.startswith("new")]
    assert len(new) == len(set(new))
    if operation is pop:
        assert ("old 1" in found) is not is_done, f"after interrupt {number}"
    elif is_done and operation is not read:
        assert new == (["new 0"] if operation is append else ["new 0", "new 1", "new 2"])
    assert "old 0" in found
    assert running().count("standfast-writer") == 1, f"after interrupt {number}"
    loop.close()
    return interrupt.is_raised


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # interrupted between the call and the await
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("operation", [add, append, pop, read])
def test_an_interrupt_at_any_moment_leaves_nothing_locked_lost_or_doubled(
    operation: Operation, is_first: bool, tmp_path: Path
) -> None:
    """Also the first operation on a file, which starts its threads; and the file is let go of when all is closed."""
    number, is_raised = 0, True
    while is_raised:
        path = tmp_path / f"{number}.db"
        session = SQLiteSession("s", path, linger_s=0)
        asyncio.run(session.add_items([message("old 0"), message("old 1")]))
        if is_first:
            session.close()
            session = SQLiteSession("s", path, linger_s=0)
        is_raised = interrupted(session, operation, number)
        session.close()
        del session
        gc.collect()
        until = time.monotonic() + PATIENCE_S
        while {"standfast-writer", "standfast-reader"} & set(running()):
            assert time.monotonic() < until, f"threads are left behind after interrupt {number}"
            time.sleep(0.001)
        assert not path.with_name(f"{number}.db-wal").exists()
        number += 1
    assert number > PLACES_MIN
