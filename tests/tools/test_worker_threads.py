"""Threads for sync tools: reused when idle, never waited for at exit, none lost in a fork."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import textwrap
import threading

import pytest

from standfast._src.tools import worker_threads
from standfast._src.tools.worker_threads import run_in_thread


async def test_an_idle_thread_is_used_again():
    first = await run_in_thread(threading.current_thread)
    second = await run_in_thread(threading.current_thread)
    assert first is second
    assert first.daemon


async def test_calls_at_one_time_get_a_thread_each():
    """A pool with a limit would make this wait for ever."""
    everyone = threading.Barrier(40)
    seen = await asyncio.gather(*(run_in_thread(everyone.wait, 60) for _ in range(40)))
    assert sorted(seen) == list(range(40))


async def test_what_the_function_raises_reaches_the_caller():
    def fail() -> None:
        raise KeyError("k")

    def stop() -> None:
        raise StopIteration

    with pytest.raises(KeyError):
        await run_in_thread(fail)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await run_in_thread(stop)
    assert await run_in_thread(lambda a, b=0: (a, b), 1, b=2) == (1, 2)


async def test_an_idle_thread_keeps_no_objects_of_its_callers():
    import gc
    import weakref

    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)
    await run_in_thread(lambda it: None, thing)
    del thing
    for _ in range(100):
        gc.collect()
        if gone() is None:
            break
        await asyncio.sleep(0.01)
    assert gone() is None


def test_a_result_for_a_loop_that_is_gone_is_dropped():
    released, ended = threading.Event(), threading.Event()

    def stuck() -> str:
        released.wait(60)
        ended.set()
        return "late"

    async def leave() -> None:
        run_in_thread(stuck).cancel()

    asyncio.run(leave())
    released.set()
    assert ended.wait(60)


async def test_a_thread_nobody_needs_ends(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker_threads, "IDLE_S_MAX", 0.01)
    thread = await run_in_thread(threading.current_thread)
    await asyncio.to_thread(thread.join, 60)
    assert not thread.is_alive()
    # The one that rested last is used first: if the dead one were still taken for idle, nobody would do this.
    assert await asyncio.wait_for(run_in_thread(lambda: "again"), 60) == "again"


def run_python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, env=os.environ
    )


def test_a_tool_that_never_returns_does_not_keep_the_program_from_ending():
    ended = run_python(
        """
        import asyncio, threading
        from standfast._src.tools.worker_threads import run_in_thread

        async def main():
            started = threading.Event()
            def stuck():
                started.set()
                threading.Event().wait()
            task = asyncio.ensure_future(run_in_thread(stuck))
            while not started.is_set():
                await asyncio.sleep(0.001)
            task.cancel()
            print("left", flush=True)

        asyncio.run(main())
        """
    )
    assert (ended.returncode, ended.stdout) == (0, "left\n"), ended.stderr


def test_after_a_fork_the_child_starts_threads_of_its_own():
    ended = run_python(
        """
        import asyncio, os
        from standfast._src.tools.worker_threads import run_in_thread

        async def call():
            return await run_in_thread(lambda: "ran")

        assert asyncio.run(call()) == "ran"
        child = os.fork()
        if child == 0:
            os._exit(0 if asyncio.run(asyncio.wait_for(call(), 30)) == "ran" else 1)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status))
        """
    )
    assert ended.stdout == "0\n", ended.stderr
