"""Appends on Redis that the event loop sends itself, over the writing thread's connection (see
`_src.sessions.client.caller_loop_executor`).

What each test found wrong, or would: a write that nobody sends, an answer that nobody hands out, a loop that is reached
from another's thread, a lock that an interrupt leaves taken (A6, A13, A21, A22).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from standfast import OutcomeUnknownError, RedisSession, SessionClosedError
from standfast._kits.conformance.network import Proxy
from standfast._src.sessions.backends.redis import redis_session
from standfast._src.sessions.backends.redis.redis_session import READERS
from standfast._src.sessions.client import caller_loop_executor
from standfast.conformance import message
from tests.helpers import servers
from tests.helpers.interrupts import Interrupt

pytestmark = [pytest.mark.redis, pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")]

PATIENCE_S = 60.0
"""How long a test waits for what comes at once: a machine that is busy is not the defect."""

TASKS = Path("/proc/self/task")


@pytest.fixture
def session() -> Iterator[RedisSession]:
    yield (made := opened(servers.redis_url()))
    made.close().close()


def opened(url: str, **kwargs: Any) -> RedisSession:
    return RedisSession.from_url("c", url=url, key_prefix=uuid.uuid4().hex, **kwargs)


async def add(session: RedisSession, *words: str) -> None:
    await session.add_items([message(word) for word in words])


async def words(session: RedisSession) -> list[str]:
    return [str(item["content"]) for item in await session.get_items()]


async def warmed(session: RedisSession) -> None:
    """Have the connection opened, and the server greeted."""
    await add(session, "warm")
    await asyncio.sleep(0)


async def keep_company(session: RedisSession) -> None:
    """Write several at once, so that the next one is expected to have company and waits for it."""
    for turn in range(2):
        await asyncio.gather(*(add(session, f"company {turn} {place}") for place in range(3)))


def in_threads(*mains: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run each in an event loop and thread of its own, and raise what one of them raised or told its loop."""
    told: list[Any] = []

    def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        async def watched() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
            async with asyncio.timeout(PATIENCE_S):
                await main()

        try:
            asyncio.run(watched(), debug=True)  # then a loop says so if another thread uses it
        except BaseException as error:
            told.append(error)

    threads = [threading.Thread(target=run, args=(main,)) for main in mains]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert told == []
    assert not any(thread.is_alive() for thread in threads)


def carrier_threads() -> list[int]:
    return [int(one.native_id or 0) for one in threading.enumerate() if one.name == "standfast-carrier"]


def waits_of(thread: int) -> int:
    """How often a thread has gone to sleep."""
    lines = (TASKS / str(thread) / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


def asleep(threads: list[int]) -> list[int]:
    """The same, when they have all come to sleep."""
    before: list[int] = []
    while (found := [waits_of(thread) for thread in threads]) != before:
        before = found
        time.sleep(0.2)
    return found


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


# --- the plain way ----------------------------------------------------------------------------------------------------


def test_an_append_of_an_idle_session_wakes_no_thread(session: RedisSession) -> None:
    """That is what lending is for; also several at once, once it is known that they come so."""
    before = set(carrier_threads())

    async def main() -> None:
        await warmed(session)
        await keep_company(session)
        mine = [thread for thread in carrier_threads() if thread not in before]
        assert mine
        slept = asleep(mine)
        for number in range(20):
            await asyncio.gather(*(add(session, f"{number} {place}") for place in range(4)))
        for number in range(20):
            await session.append([message(f"run {number}")], writer="run", start=number)
        assert [waits_of(thread) for thread in mine] == slept

    asyncio.run(main())


async def test_what_one_loop_writes_is_there_in_the_order_it_was_asked_for(session: RedisSession) -> None:
    """Whether it goes alone, with others, or by the thread: the order is that of the calls."""
    await warmed(session)
    expected = ["warm"]
    for number in range(30):
        lease = await session.lease(ttl_s=60, wait_s=PATIENCE_S)
        doing: list[Any] = [asyncio.create_task(add(session, f"{number} add"))]
        if number % 3:
            doing += [asyncio.create_task(add(session, f"{number} more {place}")) for place in range(number % 4)]
        recorded = [message(f"{number} record")]
        doing.append(asyncio.create_task(session.append(recorded, writer="r", start=number, lease=lease)))
        await asyncio.sleep(0)
        lease.release_now()
        doing.append(asyncio.create_task(add(session, f"{number} popped")))
        doing.append(asyncio.create_task(session.pop_item()))
        done = await asyncio.gather(*doing)
        assert done[-1]["content"] == f"{number} popped"
        expected += [f"{number} add"]
        expected += [f"{number} more {place}" for place in range(number % 4 if number % 3 else 0)]
        expected += [f"{number} record"]
    assert await words(session) == expected


async def test_what_does_not_leave_whole_is_sent_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch larger than the kernel takes at once: no answer can come before somebody has sent the rest."""
    monkeypatch.setattr(caller_loop_executor, "PATIENCE_S_MAX", 3600.0)
    session = opened(servers.redis_url(), timeout_s=PATIENCE_S, redis_kwargs={"socket_timeout": 4 * 3600.0})
    await warmed(session)
    big = [message("x" * 1_000_000) for _ in range(24)]
    await session.add_items(big)
    assert len(await session.get_items()) == 25


async def test_answers_that_come_byte_by_byte_are_read_whole(session: RedisSession) -> None:
    at = urlsplit(servers.redis_url())
    proxy = Proxy((str(at.hostname), int(at.port or 6379)))
    slow = opened(f"redis://127.0.0.1:{proxy.port}/0")
    await warmed(slow)
    with proxy.faulty("drip"):
        for number in range(5):
            await asyncio.gather(*(add(slow, f"{number} {place}") for place in range(3)))
    assert sorted(await words(slow)) == sorted(["warm", *(f"{n} {place}" for n in range(5) for place in range(3))])
    proxy.close()


async def test_scripts_that_the_server_forgot_are_sent_again_by_the_thread(session: RedisSession) -> None:
    await warmed(session)
    with redis.Redis.from_url(servers.redis_url()) as other:
        for number in range(5):
            other.script_flush()
            await add(session, str(number))
    assert await words(session) == ["warm", "0", "1", "2", "3", "4"]


async def test_a_connection_that_the_server_closed_is_opened_again() -> None:
    """While nobody writes, and while an answer is awaited."""
    server = servers.RedisServer()
    session = opened(server.url)
    try:
        await warmed(session)
        with redis.Redis.from_url(server.url) as other:
            for number in range(10):
                writing = asyncio.create_task(add(session, str(number)))
                if number % 2:
                    await asyncio.sleep(0)
                other.client_kill_filter(_type="normal", skipme=True)
                await writing
        assert await words(session) == ["warm", *(str(number) for number in range(10))]
    finally:
        server.stop()


async def test_a_server_that_stands_still_keeps_nobody_longer_than_its_time() -> None:
    """Cancelled, a caller has control back at once; and what was cut is there once, or not at all."""
    at = urlsplit(servers.redis_url())
    proxy = Proxy((str(at.hostname), int(at.port or 6379)))
    session = opened(f"redis://127.0.0.1:{proxy.port}/0", timeout_s=1.0, redis_kwargs={"socket_timeout": 0.3})
    await warmed(session)
    with proxy.faulty("stall"):
        with pytest.raises(OutcomeUnknownError):
            await add(session, "late")
        left = asyncio.create_task(add(session, "left"))
        await asyncio.sleep(0.01)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
    patient = opened(servers.redis_url(), timeout_s=PATIENCE_S)
    patient.key_prefix = session.key_prefix
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            await add(session, "after")
            break
    found = await words(patient)
    assert found[0] == "warm"
    assert found[-1] == "after"
    assert len(found) == len(set(found)) or found.count("after") > 1  # an attempt of ours may have been done
    assert found.count("late") <= 1
    assert found.count("left") <= 1
    proxy.close()


async def test_storms_of_cancelled_writes_keep_no_other_from_being_sent(session: RedisSession) -> None:
    await warmed(session)
    kept = ["warm"]
    for storm in range(20):
        tasks = [asyncio.create_task(add(session, f"{storm} {place}")) for place in range(100)]
        for _ in range(storm % 4):
            await asyncio.sleep(0)
        for place, task in enumerate(tasks):
            if place % 10:
                task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        kept += [f"{storm} {place}" for place in range(0, 100, 10)]
        assert [ended[place] for place in range(0, 100, 10)] == [None] * 10
    found = await words(session)
    assert len(found) == len(set(found))
    assert set(kept) <= set(found)


# --- several loops ----------------------------------------------------------------------------------------------------


def test_what_another_loop_has_gathered_is_left_to_it(session: RedisSession) -> None:
    """The first loop's gathered write was passed on before it came to send it: what is gathered now is another's."""
    gathered, blocked, sent = threading.Event(), threading.Event(), threading.Event()

    async def first() -> None:
        await warmed(session)
        await keep_company(session)
        writing = asyncio.create_task(add(session, "A"))
        await asyncio.sleep(0)
        gathered.set()
        blocked.wait(PATIENCE_S)
        await writing
        sent.set()

    async def second() -> None:
        gathered.wait(PATIENCE_S)
        await add(session, "B")
        writing = asyncio.create_task(add(session, "C"))
        await asyncio.sleep(0)
        blocked.set()
        sent.wait(PATIENCE_S)
        await writing

    in_threads(first, second)
    assert asyncio.run(words(session))[-3:] == ["A", "B", "C"]


async def test_who_is_closed_out_while_their_loop_sends_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A19: another thread closes the executor, as the end of the process does, while a loop takes up what it has
    gathered. Behind the end nobody does it any more: the callers waited for their deadline."""
    carriers: list[caller_loop_executor.CallerLoopExecutor] = []

    class Known(caller_loop_executor.CallerLoopExecutor):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            carriers.append(self)

    monkeypatch.setattr(redis_session, "CallerLoopExecutor", Known)
    session = opened(
        urlsplit(servers.redis_url())._replace(path="/7").geturl(), timeout_s=5.0
    )  # a database, and so an executor, of its own
    await warmed(session)
    await keep_company(session)
    lend = caller_loop_executor.Lending.lend

    def closed_first(self: Any, requests: Any) -> bool:
        closing = threading.Thread(target=carriers[0].close)
        closing.start()
        closing.join()
        return lend(self, requests)

    monkeypatch.setattr(caller_loop_executor.Lending, "lend", closed_first)
    told = await asyncio.gather(*(add(session, f"late {place}") for place in range(4)), return_exceptions=True)
    assert [type(error) for error in told] == [SessionClosedError] * 4
    await session.close()


def test_what_the_thread_has_done_for_one_loop_is_not_handed_out_in_another(
    session: RedisSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread may stand still at any moment, also when it has just given its turn back."""

    class Slow:
        def __init__(self, turn: Any) -> None:
            self.turn, self.acquire = turn, turn.acquire

        def release(self) -> None:
            self.turn.release()
            if threading.current_thread().name == "standfast-carrier":
                paused.append(time.sleep(0.02))

        def __enter__(self) -> None:
            self.acquire()

        def __exit__(self, *_: object) -> None:
            self.release()

    class LendingSlowly(caller_loop_executor.Lending):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.turn = Slow(self.turn)  # type: ignore[assignment]  # no test can ask a scheduler for that

    paused: list[None] = []
    monkeypatch.setattr(caller_loop_executor, "Lending", LendingSlowly)
    asyncio.run(warmed(session))

    async def pops() -> None:
        for _ in range(20):
            await session.pop_item()

    async def adds() -> None:
        for number in range(100):
            await add(session, str(number))

    in_threads(pops, adds)
    assert paused


def test_loops_that_alternate_leave_no_descriptors_behind(session: RedisSession) -> None:
    """Each look of a loop at the connection has one of its own (A21)."""
    loops = [asyncio.new_event_loop() for _ in range(3)]

    async def both() -> None:  # the second is the thread's, and takes the first with it
        await asyncio.gather(add(session, "x"), session.pop_item())

    for loop in loops:
        loop.run_until_complete(warmed(session))
    before = descriptors()
    for number in range(60):
        loops[number % 3].run_until_complete(both() if number % 2 else add(session, "y"))
    assert descriptors() <= before + 2 * len(loops)  # one that looks, and one that has not heard yet that it need not
    for loop in loops:
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
    del loops, loop
    gc.collect()
    for _ in range(20):
        asyncio.run(add(session, "z"))
    assert descriptors() <= before


def test_loops_that_end_with_an_append_under_way_keep_nobody_waiting(session: RedisSession) -> None:
    """With and without a word to the task that waits (A22)."""
    asyncio.run(warmed(session))
    before = descriptors()
    kept = []
    for number in range(30):
        loop = asyncio.new_event_loop()
        task: Any = loop.create_task(add(session, f"under way {number}"))
        task._log_destroy_pending = False
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        if number % 2:
            kept.append(task)
        del loop, task
        asyncio.run(add(session, f"after {number}"))
    found = asyncio.run(words(session))
    assert [word for word in found if word.startswith("after")] == [f"after {number}" for number in range(30)]
    assert len(found) == len(set(found))
    kept.clear()
    gc.collect()
    asyncio.run(add(session, "last"))
    assert descriptors() <= before + READERS


def test_a_child_of_a_fork_takes_no_answer_of_its_parent(session: RedisSession) -> None:
    """Though it goes on with its parent's loop, whose selector both of them have."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(warmed(session))
    writing = loop.create_task(add(session, "parent"))
    loop.run_until_complete(asyncio.sleep(0))
    child = os.fork()
    if not child:
        try:
            loop.run_until_complete(asyncio.wait_for(add(session, "child"), PATIENCE_S))
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert status == 0
    loop.run_until_complete(asyncio.wait_for(writing, PATIENCE_S))
    for number in range(3):
        loop.run_until_complete(asyncio.wait_for(add(session, str(number)), PATIENCE_S))
    found = loop.run_until_complete(words(session))
    assert sorted(found) == ["0", "1", "2", "child", "parent", "warm"]
    loop.close()


def test_without_a_descriptor_to_spare_the_thread_does_it(session: RedisSession) -> None:
    asyncio.run(warmed(session))
    unraisable: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def main() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            await add(session, "none to spare")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    try:
        asyncio.run(main())
        gc.collect()
    finally:
        sys.unraisablehook = hook
    assert [one.exc_value for one in unraisable] == []
    assert asyncio.run(words(session)) == ["warm", "none to spare"]


# --- interrupted ------------------------------------------------------------------------------------------------------


class Collecting(asyncio.SelectorEventLoop):
    """A loop in which garbage is collected when something is to be called soon: making the handle may set that off."""

    collected: Callable[[], None] | None = None

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        made = super().call_soon(callback, *args, context=context)
        found = self.collected
        if found is not None and getattr(callback, "__name__", "") == "_send_gathered":
            self.collected = None
            found()
        return made


def test_what_is_posted_by_garbage_that_is_collected_leaves_nothing_unsent(session: RedisSession) -> None:
    loop = Collecting()

    async def main() -> None:
        await warmed(session)
        lease = await session.lease(ttl_s=600, wait_s=1)
        await keep_company(session)
        loop.collected = lease.release_now
        await asyncio.wait_for(add(session, "gathered"), PATIENCE_S / 6)
        assert loop.collected is None, "it was to be gathered"

    loop.run_until_complete(main())
    loop.close()


OURS = ("lending.py", "requests.py", "threads.py", "rounds.py", "link.py", "wire.py", "store.py", "exchange.py")

TRACED_WHOLE = pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="there the tracer shows too few places of one write; those of three at once are interrupted on every Python",
)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # interrupted between the call and the await
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("count", [pytest.param(1, marks=TRACED_WHOLE), 3])
def test_an_interrupt_at_any_moment_leaves_nothing_locked_lost_or_doubled(session: RedisSession, count: int) -> None:
    """Ctrl-C, or any signal whose handler raises: who was not interrupted has an outcome, and all goes on."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(warmed(session))
    acknowledged, number, is_raised = {"warm"}, 0, True

    async def settled(*names: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(add(session, name) for name in names))
        acknowledged.update(names)

    while is_raised:
        if count > 1:
            loop.run_until_complete(settled(*(f"company {number} {place}" for place in range(count))))
        names = [f"{number} {place}" for place in range(count)]
        tasks = [loop.create_task(add(session, name)) for name in names]
        waiting = loop.create_task(asyncio.wait(tasks))
        interrupt = Interrupt(number, OURS)
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            loop.run_until_complete(waiting)
        is_raised = interrupt.is_raised
        _, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=PATIENCE_S))
        assert not pending, f"nobody was told after interrupt {number}"
        acknowledged |= {name for name, task in zip(names, tasks, strict=True) if task.exception() is None}
        loop.run_until_complete(settled(f"after {number}"))
        number += 1
    assert number > 100
    found = loop.run_until_complete(words(session))
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    loop.close()


# --- the end of the process -------------------------------------------------------------------------------------------

LEFT_OPEN = """
import asyncio, sys
from standfast import RedisSession
from standfast._src.sessions.client import threaded_executor

threaded_executor.LAST_WAIT_S = 3600.0
session = RedisSession.from_url("c", url=sys.argv[1], key_prefix=sys.argv[2])
asyncio.run(session.add_items([{"role": "user", "content": "kept"}]))
"""


def test_a_process_ends_at_once_though_a_session_was_left_open() -> None:
    """Its threads were not told to end, and each end of a process waited for them as long as it may."""
    prefix = uuid.uuid4().hex
    subprocess.run([sys.executable, "-c", LEFT_OPEN, servers.redis_url(), prefix], check=True, timeout=PATIENCE_S)
    session = RedisSession.from_url("c", url=servers.redis_url(), key_prefix=prefix)
    assert asyncio.run(words(session)) == ["kept"]
