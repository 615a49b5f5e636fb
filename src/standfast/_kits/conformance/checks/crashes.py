"""A5, A6, A23 and B1, B3 after a crash: children killed inside their writes, and full disks.

A round counts only if the kill landed inside a write: the child had said that it began and not that it was done. Where
in the write it lands is left to chance, spread over the time that a write takes here.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import Any

from standfast._kits.conformance.check_context import Lab, batch, torn
from standfast._kits.conformance.processes import Child, start
from standfast._kits.conformance.registry import proves
from standfast._src.sessions.protocol import Head

WARM_WRITES = 3
ATTEMPTS_PER_ROUND = 12
# The kill comes at a random moment of a stream of writes; when it fell between two of them, the round is repeated.


async def killed_inside(lab: Lab, begin: Callable[[int], Child], judge: Callable[[int, int], Awaitable[None]]) -> None:
    """Kill a child inside a write, round after round; `judge(round, n)` checks the effects of its write number n."""
    chance = random.Random(lab.backend.unique)
    landed = 0
    for attempt in range(lab.options.rounds * ATTEMPTS_PER_ROUND):
        number = await asyncio.to_thread(_one_kill, begin(attempt), chance)
        if number is None:
            continue
        await judge(attempt, number)
        landed += 1
        if landed == lab.options.rounds:
            return
    lab.broken(f"only {landed} of {lab.options.rounds} kills landed inside a write, so this proves too little")


def _one_kill(child: Child, chance: random.Random) -> int | None:
    """Kill the child; return the number of the write it was in, or None between two writes.

    The child writes without a pause, so that wherever the kill lands it is most likely inside a write, and as likely in
    its last microsecond as in its first: no timing from outside is fine enough to aim.
    """
    with child:
        assert child.next() == {"ready": True}
        child.go()
        started = time.perf_counter()
        for number in range(WARM_WRITES):
            assert child.next() == {"begin": number}
            assert child.next() == {"done": number}
        write_s = (time.perf_counter() - started) / WARM_WRITES
        time.sleep(chance.random() * min(2 * write_s, 0.2))
        child.kill()
        last_words = child.rest()
    last = last_words[-1] if last_words else {}
    return last.get("begin")


@proves("A23", "processes")
async def every_acknowledged_batch_survives_a_kill(lab: Lab) -> None:
    session = lab.open()
    acknowledged: list[str] = []

    def begin(attempt: int) -> Child:
        return start(lab.backend, "append_batches", name=f"round {attempt}", size=5, method="add_items", stream=True)

    async def judge(attempt: int, number: int) -> None:
        acknowledged.extend(f"round {attempt}-{n}" for n in range(number))
        history = await session.get_items()
        lab.expect(not (seen := torn(history)), f"after a kill inside write {number}: {seen}")
        there = {item["batch"] for item in history}
        lost = [name for name in acknowledged if name not in there]
        lab.expect(not lost, f"acknowledged batches are gone after a kill: {lost[:5]}")

    await killed_inside(lab, begin, judge)


@proves("A23", "watch_durability")
async def an_acknowledged_write_has_reached_the_disk(lab: Lab) -> None:
    with lab.backend.watch_durability() as complaints:
        session = lab.open()
        await session.add_items(batch("history", 2))
        await session.pop_item()
        await session.clear_session()
        await lab.close()
    lab.expect(not complaints, f"the store does not wait for the disk: {'; '.join(sorted(set(complaints)))}")


@proves("A5", "processes")
async def a_writer_killed_inside_a_batch_leaves_all_or_nothing_of_it(lab: Lab) -> None:
    session = lab.open()

    def begin(attempt: int) -> Child:
        return start(lab.backend, "append_batches", name=f"round {attempt}", size=150, method="add_items", stream=True)

    async def judge(attempt: int, number: int) -> None:
        history = await session.get_items()
        lab.expect(not (seen := torn(history)), f"after a kill inside write {number}: {seen}")
        await session.clear_session()  # reading must stay cheap, and the next writer finds a store that works

    await killed_inside(lab, begin, judge)


@proves("B1", "processes")
async def an_append_repeated_after_a_kill_stores_each_item_once(lab: Lab) -> None:
    session = lab.open()

    def begin(attempt: int) -> Child:
        return start(lab.backend, "append_batches", name=f"round {attempt}", size=20, method="append", stream=True)

    async def judge(attempt: int, number: int) -> None:
        writer = f"round {attempt}"
        whole = [item for n in range(number + 2) for item in batch(f"{writer}-{n}", 20)]  # it has grown meanwhile
        count = await session.accepted(writer)
        lab.expect(
            count in (20 * number, 20 * number + 20), f"after a kill inside append {number} its count is {count}"
        )
        await session.append(whole[20 * number :], writer=writer, start=20 * number)
        seen = [item for item in await session.get_items() if item["batch"].startswith(f"{writer}-")]
        lab.same(seen, whole, f"a kill inside append {number} and its repeat with a longer batch")
        lab.same(await session.accepted(writer), len(whole), "the repeat, by the count")
        await session.clear_session()

    await killed_inside(lab, begin, judge)


@proves("B3", "processes", "append")
async def a_process_killed_inside_a_replace_leaves_old_or_new(lab: Lab) -> None:
    session = lab.open()

    def begin(attempt: int) -> Child:
        return start(lab.backend, "replace_history", name=f"round {attempt}", size=60)

    async def judge(attempt: int, number: int) -> None:
        history = await session.get_items()
        lab.expect(not (seen := torn(history)), f"after a kill inside a replace: {seen}")
        names = {item["batch"] for item in history}
        old_or_new = ({f"round {attempt}-{number - 1}"}, {f"round {attempt}-{number}"})
        lab.expect(names in old_or_new, f"after a kill inside a replace the history is {sorted(names)}")
        kept = await session.generations()
        lab.expect(1 <= len(kept) <= 3, f"after a kill inside a replace there are {len(kept)} generations")
        lab.expect(not torn(await session.read_generation(kept[0].id)), "the newest generation is torn")
        lab.expect(await session.head() != Head(), "after a kill the head says that the session is empty")

    await killed_inside(lab, begin, judge)


@proves("A6", "processes", "files")
async def a_full_disk_refuses_whole_batches_and_harms_nothing(lab: Lab) -> None:
    with start(lab.backend, "run_out_of_space", earlier=30, size=60) as child:
        facts = await asyncio.to_thread(child.rest)
    stored = [fact["stored"] for fact in facts if "stored" in fact]
    refused: Any = next(fact for fact in facts if "refused" in fact)
    lab.expect(refused["refused"] > 0, "no file could grow, and yet 40 batches of 60 items were acknowledged")
    wanted = ["before"] * 30 + [f"full-{number}" for number in stored for _ in range(60)]
    full, after = (fact["items"] for fact in facts if "items" in fact)
    lab.same(full, wanted, f"the disk was full ({refused['said']})")
    lab.same(after, [*wanted, "after", "after"], "there was room again")
    history = await lab.open().get_items()
    lab.same([item["batch"] for item in history], after, "the process that filled the disk ended")
