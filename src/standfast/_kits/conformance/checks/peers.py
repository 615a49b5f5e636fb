"""B10: part B holds while the OpenAI Agents SDK writes to the same store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from standfast._kits.conformance.check_context import Lab, batch, close, message
from standfast._kits.conformance.faults import in_threads
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import SessionConflictError


@proves("B10", "peer")
async def each_reads_what_the_other_wrote(lab: Lab) -> None:
    theirs, ours = _both(lab)
    await theirs.add_items(batch("theirs", 2))
    await ours.add_items(batch("ours", 2))
    await ours.append(batch("run", 2), writer="run", start=0)
    await theirs.add_items(batch("theirs again", 1))
    wanted = [*batch("theirs", 2), *batch("ours", 2), *batch("run", 2), *batch("theirs again", 1)]
    await lab.holds(ours, wanted, "both wrote, by ours")
    await lab.holds(theirs, wanted, "both wrote, by theirs")
    lab.same(await theirs.get_items(limit=3), wanted[-3:], "both wrote, by theirs, limit=3")
    lab.same(await theirs.pop_item(), wanted[-1], "their pop of their item")
    lab.same(await theirs.pop_item(), wanted[-2], "their pop of our item")
    lab.same(await ours.pop_item(), wanted[-3], "our pop of our item")
    await lab.holds(ours, wanted[:-3], "pops of both, by ours")
    lab.same(await ours.accepted("run"), 2, "their pop of our item, by the count")
    await ours.append(batch("run", 2), writer="run", start=0)
    await lab.holds(ours, wanted[:-3], "a late repeat of what they popped")
    await theirs.clear_session()
    await lab.holds(ours, [], "their clear, by ours")
    await ours.append([message("next")], writer="run", start=2)
    await lab.holds(theirs, [message("next")], "writing after their clear")


@proves("B10", "peer")
async def what_they_write_and_pop_moves_the_head(lab: Lab) -> None:
    theirs, ours = _both(lab)
    await ours.append(batch("run", 2), writer="run", start=0)
    heads = [await ours.head()]

    async def expect_head_moved(what: str) -> None:
        head = await ours.head()
        lab.expect(head != heads[-1], f"{what} did not move the head")
        late = ours.append([message("late")], writer="late", start=0, expect=heads[-1])
        await lab.refuses(late, f"an append that has not seen {what}", SessionConflictError)
        heads.append(head)

    await theirs.add_items([message("theirs")])
    await expect_head_moved("their write")
    await theirs.pop_item()
    lab.same(await ours.head(), heads[0], "their pop of their own item, by the head")
    await theirs.pop_item()
    await theirs.add_items([message("in its place")])
    await expect_head_moved("their pop and write of as many items")
    await theirs.clear_session()
    await expect_head_moved("their clear")


@proves("B10", "peer", "rewind")
async def what_they_wrote_is_never_rewound(lab: Lab) -> None:
    theirs, ours = _both(lab)
    await ours.append(batch("run", 3), writer="run", start=0)
    await theirs.add_items([message("theirs")])
    await lab.refuses(ours.rewind(writer="run", to=1), "a rewind with their item behind it", SessionConflictError)
    await lab.holds(ours, [*batch("run", 3), message("theirs")], "a refused rewind")
    await theirs.pop_item()
    await theirs.pop_item()  # ours, by them
    await ours.rewind(writer="run", to=1)
    await lab.holds(theirs, batch("run", 3)[:1], "a rewind after their pops, by theirs")
    lab.same(await ours.accepted("run"), 1, "a rewind after their pops, by the count")


@proves("B10", "peer", "replace")
async def they_read_the_replaced_history_and_no_generations(lab: Lab) -> None:
    theirs, ours = _both(lab)
    await theirs.add_items(batch("theirs", 3))
    upto = await ours.head()
    await theirs.add_items([message("since")])
    await ours.replace([message("summary")], upto=upto)
    await lab.holds(theirs, [message("summary"), message("since")], "a replace, by theirs")
    upto = await ours.head()
    await theirs.pop_item()
    await lab.refuses(ours.replace([message("x")], upto=upto), "a replace after their pop", SessionConflictError)
    await theirs.add_items([message("later")])
    await ours.restore((await ours.generations())[0].id)
    wanted = [*batch("theirs", 3), message("later")]
    await lab.holds(theirs, wanted, "an undo after their pop and write, by theirs")
    await lab.holds(ours, wanted, "an undo after their pop and write, by ours")
    lab.same(await theirs.pop_item(), message("later"), "their pop after an undo")
    await theirs.clear_session()
    await ours.add_items([message("new")])
    await lab.holds(ours, [message("new")], "writing after their clear of a session with generations")


@proves("B10", "peer", "fork", "page")
async def forks_and_pages_include_what_they_wrote(lab: Lab) -> None:
    theirs, ours = _both(lab)
    await theirs.add_items(batch("theirs", 3))
    await ours.append(batch("run", 2), writer="run", start=0)
    await theirs.add_items([message("last")])
    wanted = [*batch("theirs", 3), *batch("run", 2), message("last")]
    await ours.fork("fork")
    fork = lab.backend.peer("fork")
    lab.keep(fork)
    await lab.holds(fork, wanted, "a fork, by theirs")
    page = await ours.page(limit=4)
    await theirs.add_items([message("meanwhile")])
    lab.same((await ours.page(before=page.before, limit=4)).items, wanted[:2], "a page with their write in between")


@proves("B10", "peer")
async def both_write_at_once_and_nothing_is_lost(lab: Lab) -> None:
    theirs, ours = _both(lab)
    await ours.append(batch("run", 1), writer="run", start=0)

    def their_work(number: int) -> Callable[[], Coroutine[Any, Any, None]]:
        async def work() -> None:
            mine = lab.backend.peer("conversation")
            try:
                for turn in range(6):
                    await mine.add_items([message(f"theirs {number} {turn}")])
            finally:
                await close(mine)

        return work

    async def our_work(name: str) -> None:
        mine = lab.open()
        for turn in range(10):
            await mine.append([message(f"{name} {turn}")], writer=name, start=turn)
            await mine.append([message(f"{name} {turn}")], writer=name, start=turn)

    threads = asyncio.to_thread(in_threads, [their_work(number) for number in range(2)])
    outcomes, *_ = await asyncio.gather(threads, our_work("a"), our_work("b"))
    failed = [outcome for outcome in outcomes if outcome is not None]
    lab.expect(not failed, f"their write beside ours raised {failed[:1]}")
    texts = sorted(item["content"] for item in (await ours.get_items())[1:])
    wanted = [f"theirs {n} {t}" for n in range(2) for t in range(6)] + [f"{n} {t}" for n in "ab" for t in range(10)]
    lab.same(texts, sorted(wanted), "both wrote at once")
    await ours.append(batch("last", 1), writer="last", start=0)  # what they wrote at the same time gets its order now
    await lab.holds(theirs, await ours.get_items(), "both wrote at once, by theirs")


def _both(lab: Lab) -> tuple[Any, Any]:
    theirs = lab.backend.peer("conversation")
    lab.keep(theirs)
    return theirs, lab.open()
