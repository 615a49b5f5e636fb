"""B7: one holder at a time; a holder without its lease writes nothing."""

from __future__ import annotations

import asyncio
import gc
import time
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import Lab, batch, message
from standfast._kits.conformance.processes import start, together
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import LeaseLostError, SessionBusyError

if TYPE_CHECKING:
    from standfast._src.sessions.protocol import CanLease


class Remembered:
    """The number of a lost lease: a holder that lapsed without noticing continues to write with it."""

    def __init__(self, number: int) -> None:
        self.number = number


async def take_unrenewed_lease(session: CanLease, ttl_s: float) -> Remembered:
    """Take a lease without renewal: a store may renew one for the life of its object, so the object is dropped."""
    lease = await session.lease(ttl_s=ttl_s, wait_s=0)
    number = lease.number
    del lease
    gc.collect()
    return Remembered(number)


@proves("B7")
async def a_session_has_one_holder_at_a_time(lab: Lab) -> None:
    session = lab.open()
    other = lab.another(session)
    first = await session.lease(ttl_s=60, wait_s=0)
    await lab.refuses(other.lease(ttl_s=60, wait_s=0.05), "a second lease", SessionBusyError)
    elsewhere = await lab.open("another conversation").lease(ttl_s=60, wait_s=0)
    await elsewhere.release()
    waiting = asyncio.ensure_future(other.lease(ttl_s=60, wait_s=30))
    await asyncio.sleep(0.05)
    lab.expect(not waiting.done(), "a second holder did not wait for the first")
    await first.release()
    second = await waiting
    lab.expect(second.number > first.number, f"lease {second.number} came after lease {first.number}")
    await first.release()  # again, and after another has it: nothing
    await lab.refuses(session.lease(ttl_s=60, wait_s=0), "a third lease after a late release", SessionBusyError)
    async with second:
        pass
    third = await session.lease(ttl_s=60, wait_s=0)
    await third.release()


@proves("B7", "append")
async def a_write_under_a_lost_lease_is_refused(lab: Lab) -> None:
    session = lab.open()
    other = lab.another(session)
    first = await take_unrenewed_lease(session, 0.05)
    await session.append([message(0)], writer="first", start=0, lease=first)
    second = await other.lease(ttl_s=60, wait_s=30)  # as soon as the first has expired
    late = session.append([message(1)], writer="first", start=1, lease=first)
    await lab.refuses(late, "an append under a lost lease", LeaseLostError)
    if lab.has(session, "replace"):
        late = session.replace([message("summary")], upto=await session.head(), lease=first)
        await lab.refuses(late, "a replace under a lost lease", LeaseLostError)
    await lab.holds(session, [message(0)], "writes under a lost lease")
    lab.same(await session.accepted("first"), 1, "writes under a lost lease, by the count")
    await other.append([message(2)], writer="second", start=0, lease=second)
    await second.renew()
    await session.add_items([message("plain")])  # writers without a lease are not blocked
    await session.append([message(3)], writer="third", start=0)
    wanted = [message(0), message(2), message("plain"), message(3)]
    await lab.holds(session, wanted, "writes with the newest lease and with none")
    await second.release()


@proves("B7", "append")
async def clearing_does_not_make_an_old_lease_valid_again(lab: Lab) -> None:
    session = lab.open()
    first = await take_unrenewed_lease(session, 0.02)
    second = await session.lease(ttl_s=60, wait_s=30)
    await session.clear_session()
    late = session.append([message(1)], writer="first", start=0, lease=first)
    await lab.refuses(late, "an append under a lease lost before a clear", LeaseLostError)
    await session.append([message(2)], writer="second", start=0, lease=second)
    await second.release()
    third = await session.lease(ttl_s=60, wait_s=30)
    lab.expect(third.number > second.number, f"after a clear lease {third.number} follows lease {second.number}")
    await third.release()


@proves("B7")
async def a_lease_that_nobody_renews_is_over_without_anybody_waiting(lab: Lab) -> None:
    session = lab.open()
    first = await take_unrenewed_lease(session, 0.05)
    await asyncio.sleep(0.3)
    second = await lab.another(session).lease(ttl_s=60, wait_s=0)
    lab.expect(second.number > first.number, f"lease {second.number} came after lease {first.number}")
    await second.release()


@proves("B7")
async def a_renewed_lease_does_not_expire(lab: Lab) -> None:
    session = lab.open()
    lease = await session.lease(ttl_s=2, wait_s=0)
    until = time.monotonic() + 3
    while time.monotonic() < until:
        await lease.renew()
        await lab.refuses(
            lab.another(session).lease(ttl_s=1, wait_s=0), "a lease while it is renewed", SessionBusyError
        )
        await asyncio.sleep(0.05)
    await lease.release()


@proves("B7", "expiring")
async def a_lease_is_held_though_the_history_expires(lab: Lab) -> None:
    session = lab.backend.expiring("expires", 1)
    lab.keep(session)
    first = await session.lease(ttl_s=60, wait_s=0)
    for time_of_day in ("first", "second"):  # what is written meanwhile must not bring the end of the lease nearer
        found: list[Any] = []
        while not found:  # a slow machine may take longer than the history lasts
            await session.add_items(batch(time_of_day, 2))
            if lab.has(session, "append"):
                await session.append(batch("writer", 1), writer="w", start=0)
            found = await session.get_items()
        if lab.has(session, "append"):  # counts end with the history, though the lease does not (B1, A20)
            lab.same(found[-1:], batch("writer", 1), f"the first item of a writer, in the {time_of_day} history")
        deadline = time.monotonic() + 30
        while await session.get_items():
            lab.expect(time.monotonic() < deadline, "a lease kept a history alive past its expiry of 1 s")
            await asyncio.sleep(0.1)
        await lab.refuses(
            session.lease(ttl_s=60, wait_s=0), f"a lease after the {time_of_day} history expired", SessionBusyError
        )
    await first.release()
    second = await session.lease(ttl_s=60, wait_s=0)
    lab.expect(second.number > first.number, f"lease {second.number} came after lease {first.number}")
    await second.release()


@proves("B7")
async def many_holders_take_turns(lab: Lab) -> None:
    session = lab.open()
    holding = 0
    numbers: list[int] = []

    async def hold() -> None:
        nonlocal holding
        for _ in range(3):
            async with await lab.another(session).lease(ttl_s=60, wait_s=60) as lease:
                holding += 1
                lab.expect(holding == 1, f"{holding} holders at once")
                numbers.append(lease.number)
                await asyncio.sleep(0)
                holding -= 1

    await asyncio.gather(*(hold() for _ in range(5)))
    lab.expect(numbers == sorted(set(numbers)), f"fifteen leases had the numbers {numbers}")


@proves("B7", "processes")
async def processes_take_turns(lab: Lab) -> None:
    facts: list[dict[str, int]] = []
    with together(lab.backend, 3, "take_turns", turns=6) as children:
        for child in children:
            facts += await asyncio.to_thread(child.rest)
    clashes = [fact["clash"] for fact in facts if "clash" in fact]
    lab.expect(not clashes, f"two processes held the lease at once, one with the number {clashes[:1]}")
    numbers = [fact["held"] for fact in facts]
    lab.expect(len(set(numbers)) == 18, f"18 leases of three processes had {len(set(numbers))} different numbers")


@proves("B7", "processes")
async def the_lease_of_a_process_that_was_killed_expires(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 1))
    with start(lab.backend, "hold_lease", ttl_s=2) as child:
        facts = await asyncio.to_thread(child.next)
        assert facts is not None
        await lab.refuses(session.lease(ttl_s=60, wait_s=0), "a lease that another process holds", SessionBusyError)
        child.kill()
        lease = await session.lease(ttl_s=60, wait_s=60)
    lab.expect(lease.number > facts["number"], f"lease {lease.number} came after lease {facts['number']}")
    await lease.release()
