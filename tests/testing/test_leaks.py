"""`no_leaks` finds what is left behind, and nothing else."""

from __future__ import annotations

import asyncio
import socket
import threading

import pytest

from standfast import InMemorySession
from standfast._kits.testing.leaks import LeakError, no_leaks


async def test_what_ends_in_time_is_no_leak():
    async with no_leaks():
        task = asyncio.create_task(asyncio.sleep(0.02))
        await asyncio.to_thread(lambda: None)
    assert task.done()


async def test_a_task_left_behind_is_found():
    with pytest.raises(LeakError, match="task left"):
        async with no_leaks(grace_s=0.02):
            task = asyncio.create_task(asyncio.Event().wait(), name="left")
    task.cancel()


async def test_a_thread_left_behind_is_found():
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name="left")
    with pytest.raises(LeakError, match="thread left"):
        async with no_leaks(grace_s=0.02):
            thread.start()
    go_on.set()
    thread.join()


async def test_a_socket_left_behind_is_found():
    with pytest.raises(LeakError, match="socket"):
        async with no_leaks(grace_s=0.02):
            left = socket.socket()
    left.close()


async def test_a_timer_left_behind_is_found():
    with pytest.raises(LeakError, match="timer"):
        async with no_leaks(grace_s=0.02):
            timer = asyncio.get_running_loop().call_later(1000, print)
    timer.cancel()


async def test_a_lease_left_behind_is_found_and_one_given_back_is_no_leak():
    """The thread that renews leases stays for a third of the last one's time, and nobody waits for that."""
    session = InMemorySession("held")
    with pytest.raises(LeakError, match="thread standfast-leases"):
        async with no_leaks(grace_s=0.02):
            lease = await session.lease(ttl_s=600, wait_s=0)
    async with no_leaks(grace_s=0.02):  # it was there before
        pass
    await lease.release()
    for _ in range(2):  # for the second, the thread of the first is still there
        async with no_leaks(grace_s=0.02), await session.lease(ttl_s=600, wait_s=0):
            pass


async def test_an_error_of_the_block_is_not_hidden():
    with pytest.raises(KeyError):
        async with no_leaks():
            raise KeyError("mine")
