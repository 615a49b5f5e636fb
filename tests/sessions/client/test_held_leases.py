"""B7 and C13 beyond the kit: renewal off the loop, clocks that are set, tickets, an operator, and open runs."""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from functools import partial
from typing import Any

import pytest

from standfast._src.base.errors import LeaseLostError, RunClaimedError, SessionBusyError
from standfast._src.sessions.backends.memory.memory_session import InMemorySession, InMemoryStore
from standfast._src.sessions.backends.memory.memory_storage import Stored
from standfast._src.sessions.client.held_leases import WAITERS_MAX, clock_s
from standfast._src.sessions.rules import leases
from standfast._src.sessions.rules.leases import Asker, Busy, Fence, Taken, UnchangedLease
from standfast._src.sessions.rules.saved_runs import RunSave
from standfast._src.sessions.storage import KeyUpdate, Name, ReadAnswer, ReadRequest, run_program

NAME = Name("session", "a")


class Clock(InMemoryStore):
    """Memory whose clock a test sets."""

    now = 1_000.0

    def look(self, look: ReadRequest) -> ReadAnswer:
        import msgspec

        return msgspec.structs.replace(super().look(look), now=self.now)


def acquire(
    store: InMemoryStore, nonce: str, *tickets: str, watch: UnchangedLease | None = None, ttl_s: float = 10.0
) -> Any:
    asker = Asker(ttl_s, nonce, nonce, "", tickets)
    return run_program(store, leases.acquire(NAME, asker, watch, lambda _: False))


# --- clocks ----------------------------------------------------------------------------------------------------------


def test_a_lease_ends_its_ttl_after_its_last_renewal() -> None:
    store = Clock()
    assert isinstance(acquire(store, "one"), Taken)
    store.now += 9
    assert isinstance(acquire(store, "two"), Busy)
    assert run_program(store, leases.renew(NAME, Fence(1, "one")))
    store.now += 9
    assert isinstance(acquire(store, "two"), Busy)
    store.now += 1
    assert acquire(store, "two") == Taken(2, (), taken_from="one")
    assert not run_program(store, leases.renew(NAME, Fence(1, "one")))


def test_a_clock_that_was_ahead_and_went_back_keeps_no_lease() -> None:
    store = Clock()
    store.now += 10_000_000
    assert isinstance(acquire(store, "one"), Taken)
    store.now -= 10_000_000
    assert acquire(store, "two") == Taken(2, (), taken_from="one")


def test_a_clock_that_stands_still_keeps_no_lease_from_one_who_watches() -> None:
    store = Clock()
    assert isinstance(acquire(store, "one"), Taken)
    assert isinstance(acquire(store, "two", watch=UnchangedLease(1, 0, 9.9)), Busy)
    assert isinstance(acquire(store, "two", watch=UnchangedLease(1, 1, 10.0)), Busy), "it watched another renewal"
    assert acquire(store, "two", watch=UnchangedLease(1, 0, 10.0)) == Taken(2, (), taken_from="one")


def test_a_number_that_a_store_has_forgotten_does_not_let_its_old_holder_write() -> None:
    """After an expiry numbers begin anew, and a lower one may be the newer."""

    async def scenario() -> None:
        store = InMemoryStore(ttl_s=0.05)
        session = InMemorySession("a", store=store)
        for _ in range(3):
            await (await session.lease(ttl_s=0.05, wait_s=0)).release()
        await session.add_items([{"role": "user", "content": "hello"}])
        old = await session.lease(ttl_s=0.05, wait_s=0, renewed=False)
        await asyncio.sleep(0.2)
        assert await session.get_items() == []
        new = await session.lease(ttl_s=60, wait_s=0)
        assert (old.number, new.number) == (4, 1)
        with pytest.raises(LeaseLostError):
            await session.append([{"role": "user", "content": "late"}], writer="old", start=0, lease=old)
        await session.append([{"role": "user", "content": "mine"}], writer="new", start=0, lease=new)
        assert len(await session.get_items()) == 1
        await new.release()

    asyncio.run(scenario())


def test_a_store_that_expires_forgets_a_lease_on_a_session_that_nobody_wrote_to() -> None:
    def kept() -> int:
        """How many names are kept in the stores of this process."""
        gc.collect()
        return sum(type(one) is Stored for one in gc.get_objects())

    async def scenario() -> int:
        store = InMemoryStore(ttl_s=0.02)
        before = kept()
        for number in range(50):
            await (await InMemorySession(f"s{number}", store=store).lease(ttl_s=0.02, wait_s=0)).release()
        await asyncio.sleep(0.1)
        store.count("session")
        return kept() - before

    assert asyncio.run(scenario()) == 0


# --- tickets ---------------------------------------------------------------------------------------------------------


def test_nobody_gets_the_lease_before_one_who_keeps_waiting() -> None:
    store = Clock()
    assert isinstance(acquire(store, "holder"), Taken)
    assert isinstance(acquire(store, "first", "t1"), Busy)
    assert isinstance(acquire(store, "second", "t2"), Busy)
    run_program(store, leases.release(NAME, Fence(1, "holder")))
    assert acquire(store, "second", "t2").is_ahead
    assert acquire(store, "hasty").is_ahead
    assert acquire(store, "first", "t1") == Taken(2, ())
    run_program(store, leases.release(NAME, Fence(2, "first")))
    assert acquire(store, "second", "t2") == Taken(3, ())


def test_a_ticket_lapses_with_its_waiter() -> None:
    store = Clock()
    assert isinstance(acquire(store, "holder", ttl_s=100), Taken)
    assert isinstance(acquire(store, "gone", "t1"), Busy)
    run_program(store, leases.release(NAME, Fence(1, "holder")))
    store.now += leases.TICKET_S + 0.1
    assert isinstance(acquire(store, "next", "t2"), Taken)


def test_many_who_wait_in_one_process_are_served_in_order_and_cost_what_one_costs() -> None:
    class Counting(InMemoryStore):
        commits = 0

        def commit(self, step: Any) -> Any:
            self.commits += any("lease" in change.put for change in step)
            return super().commit(step)

    async def scenario() -> tuple[list[int], int]:
        store = Counting()
        holder = await InMemorySession("a", store=store).lease(ttl_s=60, wait_s=0, renewed=False)
        served: list[int] = []

        async def wait(number: int) -> None:
            async with await InMemorySession("a", store=store).lease(ttl_s=60, wait_s=30):
                served.append(number)

        tasks = []
        for number in range(20):
            tasks.append(asyncio.create_task(wait(number)))
            await asyncio.sleep(0)
        await asyncio.sleep(0.1)
        before = store.commits
        await asyncio.sleep(0.5)
        polling = store.commits - before
        await holder.release()
        await asyncio.gather(*tasks)
        return served, polling

    served, polling = asyncio.run(scenario())
    assert served == list(range(20))
    assert polling <= 2


def test_a_cancelled_waiter_leaves_no_ticket() -> None:
    async def scenario() -> None:
        store = InMemoryStore()
        one, two = InMemorySession("a", store=store), InMemorySession("a", store=store)
        held = await one.lease(ttl_s=60, wait_s=0)
        waiting = asyncio.create_task(two.lease(ttl_s=60, wait_s=30))
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await held.release()
        await (await one.lease(ttl_s=60, wait_s=0)).release()

    asyncio.run(scenario())


# --- holding ---------------------------------------------------------------------------------------------------------


def test_a_held_lease_is_renewed_though_its_loop_is_blocked_and_lapses_when_it_is_forgotten() -> None:
    async def scenario() -> None:
        store = InMemoryStore()
        one, two = InMemorySession("a", store=store), InMemorySession("a", store=store)
        lease = await one.lease(ttl_s=0.3, wait_s=0)
        time.sleep(1.0)
        assert lease.is_held
        with pytest.raises(SessionBusyError):
            await two.lease(ttl_s=1, wait_s=0)
        del lease
        gc.collect()
        await (await two.lease(ttl_s=1, wait_s=30)).release()

    asyncio.run(scenario())


def test_a_lease_that_was_not_renewed_in_time_is_not_certainly_held() -> None:
    async def scenario() -> None:
        session = InMemorySession("a")
        lease = await session.lease(ttl_s=0.05, wait_s=0, renewed=False)
        assert lease.is_held
        await asyncio.sleep(0.1)
        assert not lease.is_held
        await lease.renew()  # nobody took it
        assert lease.is_held
        await lease.release()
        assert not lease.is_held

    asyncio.run(scenario())
    assert clock_s() > 0


def test_the_error_says_who_holds_it_and_since_when() -> None:
    async def scenario() -> None:
        session = InMemorySession("a")
        async with await session.lease(ttl_s=60, wait_s=0, holder="run 7"):
            with pytest.raises(SessionBusyError, match=r"held by .* \(run 7\) since \d{4}-\d\d-\d\dT"):
                await session.lease(ttl_s=60, wait_s=0)

    asyncio.run(scenario())


def test_closing_a_session_gives_its_leases_back() -> None:
    async def scenario() -> None:
        store = InMemoryStore()
        one = InMemorySession("a", store=store)
        lease = await one.lease(ttl_s=60, wait_s=0)
        one.close()
        assert not lease.is_held
        await (await InMemorySession("a", store=store).lease(ttl_s=60, wait_s=0)).release()

    asyncio.run(scenario())


def test_an_operator_takes_a_lease_away_by_raising_the_number() -> None:
    async def scenario() -> None:
        session = InMemorySession("a")
        lease = await session.lease(ttl_s=60, wait_s=0)
        assert await session.revoke_lease() == lease.number + 1
        with pytest.raises(LeaseLostError):
            await session.append([{"x": 1}], writer="w", start=0, lease=lease)
        with pytest.raises(LeaseLostError):
            await session.run_store().save_run(
                "r", expect=0, head=b"", tails={}, status="running", agent="a", session_id="a", lease=lease
            )
        await lease.release()
        await (await session.lease(ttl_s=60, wait_s=0)).release()

    asyncio.run(scenario())


# --- one step --------------------------------------------------------------------------------------------------------


def saving(expect: int, status: str = "running") -> RunSave:
    return RunSave("r", expect, b"head", {}, status, "agent", "a")


def test_a_record_appends_saves_and_gives_back_in_one_step() -> None:
    class Counting(InMemoryStore):
        steps: list[list[KeyUpdate]]

        def commit(self, step: Any) -> Any:
            self.steps.append(list(step))
            return super().commit(step)

    async def scenario() -> None:
        store = Counting()
        store.steps = []
        session = InMemorySession("a", store=store)
        lease = await session.lease(ttl_s=60, wait_s=0)
        store.steps.clear()
        done = await session.record(items=[{"n": 1}], writer="r", start=0, run=saving(0), lease=lease, release=True)
        assert (done.revision, done.head) == (1, await session.head())
        assert len(store.steps) == 1
        assert not lease.is_held
        again = await session.lease(ttl_s=60, wait_s=0)
        assert [(run.run_id, run.status, run.lease_number) for run in again.open_runs] == [("r", "running", 1)]
        with pytest.raises(RunClaimedError):
            await session.record(items=[{"n": 2}], writer="r", start=1, run=saving(5), lease=again)
        assert await session.get_items() == [{"n": 1}], "a refused save left its items"
        with pytest.raises(LeaseLostError):
            await session.record(items=[{"n": 2}], writer="r", start=1, run=saving(1), lease=lease)
        await session.record(items=[{"n": 2}], writer="r", start=1, run=saving(1, "done"), lease=again, release=True)
        last = await session.lease(ttl_s=60, wait_s=0)
        assert last.open_runs == ()

    asyncio.run(scenario())


def test_a_detached_record_is_done_though_nobody_awaits_it() -> None:
    session = InMemorySession("a")
    session.record(items=[{"n": 1}], writer="r", start=0, run=saving(0), detached=True)
    assert asyncio.run(session.get_items()) == [{"n": 1}]
    failing = session.record(items=[{"n": 1}], writer="r", start=7, detached=True)
    with pytest.raises(ValueError, match="starts at 7"):
        asyncio.run(partial(_awaited, failing)())


async def _awaited(waiting: Any) -> Any:
    return await waiting


# --- many who wait ---------------------------------------------------------------------------------------------------


async def _calls_per_waiter(waiters: int) -> float:
    """Let so many wait in vain for one lease; how many functions are called for each of them."""
    store, calls = InMemoryStore(), 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    async def wait() -> None:
        with pytest.raises(SessionBusyError):
            await InMemorySession("a", store=store).lease(ttl_s=60, wait_s=0.3)

    async with await InMemorySession("a", store=store).lease(ttl_s=60, wait_s=1):
        sys.setprofile(count)
        try:
            await asyncio.gather(*[wait() for _ in range(waiters)])
        finally:
            sys.setprofile(None)
    return calls / waiters


async def test_what_a_waiter_costs_does_not_grow_with_the_number_of_waiters() -> None:
    """B7: 3,000 who waited 3 s for one conversation were told after 18 to 31 s, and held up the others meanwhile."""
    few, many = await _calls_per_waiter(100), await _calls_per_waiter(800)
    assert many < 2 * few, (few, many)


async def test_one_more_than_may_wait_is_refused_at_once() -> None:
    """B7: 10,000 who waited for one conversation were told after a minute and a half, and the loop did nothing else."""
    store = InMemoryStore()

    async def wait(session_id: str = "a") -> None:
        async with await InMemorySession(session_id, store=store).lease(ttl_s=60, wait_s=60):
            pass

    async with await InMemorySession("a", store=store).lease(ttl_s=60, wait_s=1):
        waiting = [asyncio.create_task(wait()) for _ in range(WAITERS_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(SessionBusyError, match="wait for session 'a' already"):
            await wait()
        await wait("b")  # another conversation has a queue of its own
        waiting.pop().cancel()
        await asyncio.sleep(0)
        waiting.append(asyncio.create_task(wait()))
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)


async def test_those_who_leave_from_the_middle_of_a_queue_change_no_turn() -> None:
    store = InMemoryStore()
    held = await InMemorySession("a", store=store).lease(ttl_s=60, wait_s=1)
    order: list[int] = []

    async def wait(number: int) -> None:
        async with await InMemorySession("a", store=store).lease(ttl_s=60, wait_s=60):
            order.append(number)

    tasks = []
    for number in range(9):
        tasks.append(asyncio.create_task(wait(number)))
        await asyncio.sleep(0)
    for number in (0, 4, 5, 8):
        tasks[number].cancel()
    await asyncio.gather(*[tasks[number] for number in (0, 4, 5, 8)], return_exceptions=True)
    await held.release()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [1, 2, 3, 6, 7]
