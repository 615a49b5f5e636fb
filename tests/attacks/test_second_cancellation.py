"""A second cancellation changes nothing: what a tool did is stored, the lease given back (attacks 02, 02b, 02c, 21).

The ends of programs, not of functions: `asyncio.run` that returns, a timeout around a stream, Ctrl-C and SIGTERM,
anyio's repeated cancellation. The first tool has paid, the second hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from helpers.crashing_runs import HUNG, STORED, Hang, program_that_is_signalled
from helpers.ledger_oracle import asked_next, done, lines, says_unknown, short, wrongs
from helpers.processes import Child, eventually

from standfast import OpenAIResponsesCompactionSession, RunConfig, Runner, SQLiteSession

HOLDS = RunConfig(lease_ttl_s=300.0)


async def whole(hang: Hang, session: Any) -> None:
    await Runner.run(hang.agent(), "go", session=session, run_config=HOLDS)


async def streamed(hang: Hang, session: Any) -> None:
    result = Runner.run_streamed(hang.agent(), "go", session=session, run_config=HOLDS)
    async for _ in result.stream_events():
        pass


Mode = Callable[[Hang, Any], Awaitable[None]]


async def by_a_timeout(mode: Mode, hang: Hang, session: Any) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(None) as limit:
            hang.when_hanging(lambda: limit.reschedule(0))
            await mode(hang, session)


async def by_anyio(mode: Mode, hang: Hang, session: Any) -> None:
    with anyio.CancelScope() as scope:
        hang.when_hanging(scope.cancel)
        await mode(hang, session)


async def by_two_cancellations(mode: Mode, hang: Hang, session: Any) -> None:
    task = asyncio.ensure_future(mode(hang, session))
    await hang.hanging.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def by_the_end_of_the_program(mode: Mode, hang: Hang, session: Any) -> None:
    """The main coroutine ends while a task still runs: `asyncio.run` cancels it, and whatever it started, together."""
    hang.keep = asyncio.ensure_future(mode(hang, session))
    await hang.hanging.wait()


WAYS = {
    "asyncio.timeout": by_a_timeout,
    "anyio": by_anyio,
    "two cancellations": by_two_cancellations,
    "the end of asyncio.run": by_the_end_of_the_program,
}


@pytest.mark.parametrize("loop_goes_on", [False, True], ids=["the loop ends", "the loop goes on"])
@pytest.mark.parametrize("mode", [whole, streamed])
@pytest.mark.parametrize("way", WAYS)
def test_a_paid_turn_is_stored_and_the_next_run_starts_at_once(
    way: str, mode: Mode, loop_goes_on: bool, tmp_path: Path
) -> None:
    """C8, C11, C14: stored whole, the cut call as unknown, in both modes, whether or not the loop lives on."""
    session = SQLiteSession("s", tmp_path / "a.db")
    hang = Hang(tmp_path / "book")

    async def main() -> None:
        hang.hanging = asyncio.Event()
        await WAYS[way](mode, hang, session)
        if loop_goes_on and way != "the end of asyncio.run":
            await eventually(session.get_items, 10.0)  # a stream's run has a task of its own, which closes it

    asyncio.run(main())
    assert short(asyncio.run(session.get_items())) == STORED
    assert wrongs(lines(hang.book), asyncio.run(asked_next(session))) == []
    session.close()


@pytest.mark.parametrize("leaves", [False, True], ids=["and read on", "and left by break"])
def test_a_stream_that_was_told_to_cancel_is_stored_though_the_program_ends(leaves: bool, tmp_path: Path) -> None:
    """C11, C14: `result.cancel()` is the documented way to stop a stream; the end of the program comes right behind."""
    session = SQLiteSession("s", tmp_path / "a.db")
    hang = Hang(tmp_path / "book")

    async def main() -> None:
        hang.hanging = asyncio.Event()
        result = Runner.run_streamed(hang.agent(), "go", session=session, run_config=HOLDS)
        async for event in result.stream_events():
            if event.type == "run_item_stream_event" and event.name == "tool_called":
                await hang.hanging.wait()
                result.cancel()
                if leaves:
                    break

    asyncio.run(main())
    assert short(asyncio.run(session.get_items())) == STORED
    session.close()


async def test_a_caller_gets_control_back_at_the_second_cancellation_though_the_store_stalls(tmp_path: Path) -> None:
    """A13, C14: what closes a run no longer needs the loop; the second cancellation does not wait for it."""
    session = SQLiteSession("s", tmp_path / "a.db", timeout_s=60.0)
    hang = Hang(tmp_path / "book")
    hang.hanging = asyncio.Event()
    task = asyncio.create_task(whole(hang, session))
    await hang.hanging.wait()
    other = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    ended, _ = await asyncio.wait([task], timeout=20)
    other.execute("ROLLBACK")
    other.close()
    assert ended, "the second cancellation waited for the store"
    with pytest.raises(asyncio.CancelledError):
        await task
    assert short(await session.get_items()) == STORED
    assert wrongs(lines(hang.book), await asked_next(session)) == []
    session.close()


PROGRAMS = ["asyncio.run", "run_sync", "streamed", "asyncio.run, blocking tool", "run_sync, blocking tool"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_told_to_stop_stores_what_its_tool_has_paid(
    program: str, number: signal.Signals, tmp_path: Path
) -> None:
    """C14, attack 21: SIGTERM that raises SystemExit, and Ctrl-C, in the middle of the second tool."""
    path = tmp_path / "a.db"
    with Child(program_that_is_signalled, path=str(path), program=program) as child:
        child.hear_until("hanging")
        child.send_signal(number)
        assert child.exit_code() is not None, "it hangs"
    session = SQLiteSession("s", path)
    stored = asyncio.run(session.get_items())
    assert short(stored)[:4] == STORED[:4]
    # A thread cannot be cut: its call may have been waited for, or be said to be unknown.
    last = stored[4]["output"]
    assert says_unknown(last) or ("blocking" in program and last == done(HUNG))
    runs, _ = asyncio.run(Runner.list_runs(session=session))
    assert [run.status for run in runs] != ["running"]
    assert wrongs(lines(f"{path}.book"), asyncio.run(asked_next(session))) == []
    session.close()


def test_a_child_of_multiprocessing_stores_it_though_the_store_is_busy_while_it_ends(tmp_path: Path) -> None:
    """C14: such a process never runs `atexit`. It must wait all the same for what closes its run."""
    path = tmp_path / "a.db"
    with Child(program_that_is_signalled, path=str(path), program="streamed") as child:
        child.hear_until("hanging")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        child.send_signal(signal.SIGINT)
        child.ends_within(1.0)  # time enough to be gone, for one that does not wait
        other.execute("ROLLBACK")
        other.close()
        assert child.exit_code() is not None, "it hangs"
    session = SQLiteSession("s", path)
    assert short(asyncio.run(session.get_items()))[:4] == STORED[:4]
    session.close()


async def test_a_session_that_compacts_itself_stores_it_and_python_warns_of_nothing(
    tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """What closes the run is submitted through the wrapper, and nobody waits for it."""
    hang, path = Hang(str(tmp_path / "book")), tmp_path / "s.db"
    session = OpenAIResponsesCompactionSession("s", SQLiteSession("s", path), should_trigger_compaction=lambda _: False)
    await by_two_cancellations(whole, hang, session)
    gc.collect()
    seen = await asked_next(session)
    assert wrongs(lines(tmp_path / "book"), seen) == []
    assert [str(one.message) for one in recwarn if "never awaited" in str(one.message)] == []
    await session.close()
