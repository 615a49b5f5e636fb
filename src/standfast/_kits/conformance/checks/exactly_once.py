"""B1 and B2: each item once, and nothing on top of what the caller has not seen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from itertools import combinations
from typing import Any

from standfast._kits.conformance.check_context import Lab, batch, close, message
from standfast._kits.conformance.faults import in_threads
from standfast._kits.conformance.processes import together
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import AppendGapError, ItemNotStorableError, SessionConflictError
from standfast._src.sessions.protocol import Head
from standfast._src.sessions.rules.saved_runs import NestedItems


@proves("B1")
async def a_repeated_append_stores_each_item_once(lab: Lab) -> None:
    session = lab.open()
    whole = [message("yes"), message("yes"), *batch("run", 6)]  # equal items are different ordinals
    steps = (
        (0, 1, "first"),
        (0, 1, "repeated"),
        (0, 5, "grown"),
        (3, 6, "overlapping"),
        (6, 8, "next"),
        (2, 4, "late"),
    )
    stored = 0
    for start, end, what in steps:
        head = await session.append(whole[start:end], writer="run", start=start)
        stored = max(stored, end)
        lab.same(head, await session.head(), f"a {what} append, by the head it returned")
        await lab.holds(session, whole[:stored], f"a {what} append of {start} to {end}")
        lab.same(await session.accepted("run"), stored, f"a {what} append, by the count")
    await lab.another(session).append(whole, writer="run", start=0)
    await lab.holds(session, whole, "another object repeated everything")
    lab.same(await session.written("run"), whole, "appends and repeats, by written()")


@proves("B1")
async def writers_do_not_disturb_each_other(lab: Lab) -> None:
    session, elsewhere = lab.open(), lab.open("another conversation")
    await session.append(batch("a", 4)[:2], writer="a", start=0)
    await session.append(batch("b", 3), writer="b", start=0)
    await session.add_items([message("plain")])
    await session.append(batch("a", 4), writer="a", start=0)
    wanted = [*batch("a", 4)[:2], *batch("b", 3), message("plain"), *batch("a", 4)[2:]]
    await lab.holds(session, wanted, "two writers and a plain write, the first writer twice")
    await session.append(batch("b", 3), writer="b", start=0)
    lab.same(await session.written("b"), batch("b", 3), "two writers, by written()")
    lab.same(await session.accepted("a"), 4, "two writers, by the count")
    lab.same(await session.accepted("nobody"), 0, "two writers, by the count of a third")
    lab.same(await elsewhere.accepted("a"), 0, "a writer's name in another session")
    await elsewhere.append(batch("a", 1), writer="a", start=0)
    await lab.holds(elsewhere, batch("a", 1), "the same writer's name in another session")


@proves("B1", "record")
async def what_runs_inside_another_left_is_stored_with_its_turn_or_not_at_all(lab: Lab) -> None:
    session = lab.open()
    inner, other, outer = batch("inner", 3), batch("other", 1), batch("outer", 3)
    left = [NestedItems("run/1", 0, inner[:2]), NestedItems("run/2", 0, other)]
    wanted = [*inner[:2], *other, *outer[:2]]
    for what in ("a turn and what runs inside it left", "its repeat"):
        await session.record(items=outer[:2], writer="run", start=0, nested=left)
        await lab.holds(session, wanted, what)
    counts = [await session.accepted(writer) for writer in ("run/1", "run/2", "run")]
    lab.same(counts, [2, 1, 2], "a turn and what runs inside it left, by the count of each writer")
    # Each of these is refused whole: neither the turn nor what fits of the rest may be there afterwards.
    new = NestedItems("run/3", 0, batch("new", 1))
    late = session.record(items=outer[2:], writer="run", start=2, nested=[new, NestedItems("run/1", 9, inner)])
    await lab.refuses(late, "a gap in what a run inside left", AppendGapError)
    changed = NestedItems("run/1", 0, batch("changed", 2))
    late = session.record(items=outer[2:], writer="run", start=2, nested=[new, changed])
    await lab.refuses(late, "another history of a run inside", SessionConflictError)
    late = session.record(items=batch("changed", 2), writer="run", start=0, nested=[new])
    await lab.refuses(late, "another history of the run around it", SessionConflictError)
    await lab.holds(session, wanted, "three that were refused")
    lab.same(await session.accepted("run/3"), 0, "three that were refused, by the count of a run inside")
    await session.record(items=outer, writer="run", start=0, nested=[NestedItems("run/1", 0, inner)])
    await lab.holds(session, [*wanted, inner[2], outer[2]], "both have grown since")
    await session.record(nested=[new])
    await lab.holds(session, [*wanted, inner[2], outer[2], *new.items], "a run inside that ends without a turn")


@proves("B1")
async def a_gap_is_refused(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("run", 2), writer="run", start=0)
    for start in (3, 100):
        await lab.refuses(session.append([message("x")], writer="run", start=start), f"start={start}", AppendGapError)
    await lab.refuses(session.append([message("x")], writer="new", start=1), "start=1 of a new writer", AppendGapError)
    await lab.holds(session, batch("run", 2), "refused gaps")
    lab.same(await session.accepted("new"), 0, "a refused gap, by the count")


@proves("B1")
async def another_item_under_the_same_number_is_refused(lab: Lab) -> None:
    session = lab.open()
    whole = batch("run", 3)
    await session.append(whole, writer="run", start=0)
    changed = [whole[0], message("another"), *whole[2:], message("new")]
    await lab.refuses(session.append(changed, writer="run", start=0), "a second history", SessionConflictError)
    await lab.refuses(session.append(changed[1:], writer="run", start=1), "a second history", SessionConflictError)
    await lab.holds(session, whole, "a second history under one name was refused")
    lab.same(await session.accepted("run"), 3, "a refused append, by the count")
    long = batch("long", 100)  # what was said long ago is remembered as well
    for start in range(0, 100, 20):
        await session.append(long[start : start + 20], writer="long", start=start)
    for place in (0, 31, 50, 99):
        again = session.append([message("another")], writer="long", start=place)
        await lab.refuses(again, f"another item under number {place} of 100", SessionConflictError)


@proves("B1")
async def given_digests_are_what_an_item_is_known_by(lab: Lab) -> None:
    session = lab.open()
    await session.append([message("cipher 1")], writer="run", start=0, digests=[b"d" * 16])
    await session.append([message("cipher 2")], writer="run", start=0, digests=[b"d" * 16])
    await lab.holds(session, [message("cipher 1")], "the same item encrypted twice, with one digest")
    again = session.append([message("cipher 1")], writer="run", start=0, digests=[b"e" * 16])
    await lab.refuses(again, "another digest", SessionConflictError)


@proves("B1")
async def an_append_is_all_or_nothing(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("run", 2), writer="run", start=0)
    wrong: list[Any] = [message("good"), {"content": object()}]
    await lab.refuses(session.append(wrong, writer="run", start=2), "an item that is not JSON", ItemNotStorableError)
    await lab.holds(session, batch("run", 2), "a refused append")
    lab.same(await session.accepted("run"), 2, "a refused append, by the count")


@proves("B1")
async def a_count_survives_pop_and_clear(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("run", 3), writer="run", start=0)
    await session.pop_item()
    lab.same(await session.accepted("run"), 3, "a pop, by the count")
    await session.append(batch("run", 3), writer="run", start=0)
    await lab.holds(session, batch("run", 3)[:2], "a late repeat of what was popped")
    await session.append([message("fourth")], writer="run", start=3)
    await lab.holds(session, [*batch("run", 3)[:2], message("fourth")], "the writer went on after a pop")
    await session.clear_session()
    lab.same(await session.accepted("run"), 4, "a clear, by the count")
    await session.clear_session()
    lab.same(await session.accepted("run"), 4, "a second clear, by the count")
    await session.append([*batch("run", 3), message("fourth")], writer="run", start=0)
    await lab.holds(session, [], "a late repeat of what was cleared")
    await session.append([message("fifth")], writer="run", start=4)
    await lab.holds(session, [message("fifth")], "the writer went on after a clear")


@proves("B1", "replace")
async def a_count_survives_replace_and_undo(lab: Lab) -> None:
    session = lab.open()
    whole = batch("run", 5)
    await session.append(whole[:3], writer="run", start=0)
    await session.replace([message("summary")], upto=await session.head())
    lab.same(await session.accepted("run"), 3, "a replace, by the count")
    lab.same(await session.written("run"), whole[:3], "items moved into a generation, by written()")
    await session.append(whole[:4], writer="run", start=0)
    await lab.holds(session, [message("summary"), whole[3]], "a repeat after a replace")
    await session.restore((await session.generations())[0].id)
    lab.same(await session.accepted("run"), 4, "undo, by the count")
    await session.append(whole, writer="run", start=0)
    await lab.holds(session, whole, "undo and a grown repeat")
    lab.same(await session.written("run"), whole, "undo and a grown repeat, by written()")


@proves("B1")
async def concurrent_repeats_store_each_item_once(lab: Lab) -> None:
    session = lab.open()
    whole = batch("tasks", 12)

    async def work(size: int) -> None:
        mine = lab.another(session)
        await mine.append(whole[:size], writer="tasks", start=0)
        await mine.append(whole, writer="tasks", start=0)

    await asyncio.gather(*(work(size) for size in range(1, 12, 2)))
    await lab.holds(session, whole, "six tasks appended the same items of one writer")

    def make_repeat() -> Callable[[], Coroutine[Any, Any, None]]:
        async def repeat() -> None:
            mine = lab.backend.open(session.session_id) if lab.backend.shared else session
            await mine.append(batch("threads", 12), writer="threads", start=0)
            if mine is not session:
                await close(mine)

        return repeat

    outcomes = await asyncio.to_thread(in_threads, [make_repeat() for _ in range(4)])
    failed = [outcome for outcome in outcomes if outcome is not None]
    lab.expect(not failed, f"a repeat in another thread raised {failed[:1]}")
    await lab.holds(session, whole + batch("threads", 12), "four threads appended the same items of one writer")


@proves("B1", "processes")
async def repeats_from_several_processes_store_each_item_once(lab: Lab) -> None:
    session = lab.open()
    with together(lab.backend, 4, "append_same", size=10) as children:
        for child in children:
            await asyncio.to_thread(child.rest)
    await lab.holds(session, batch("once", 10), "four processes appended the same items of one writer")


@proves("B2")
async def a_change_on_a_session_that_moved_is_refused_with_both_heads(lab: Lab) -> None:
    session = lab.open()
    empty = await session.head()
    lab.same(empty, Head(), "nothing was written, by the head")
    first = await session.append(batch("a", 2), writer="a", start=0, expect=empty)
    for stale in (empty, Head("elsewhere")):
        error: Any = await lab.refuses(
            session.append([message("x")], writer="b", start=0, expect=stale), "a stale head", SessionConflictError
        )
        lab.same((error.expected, error.actual), (stale, first), "a conflict, by the heads it names")
    await lab.holds(session, batch("a", 2), "a refused append")
    lab.same(await session.accepted("b"), 0, "a refused append, by the count")
    await session.append([message("x")], writer="b", start=0, expect=first)
    await lab.holds(session, [*batch("a", 2), message("x")], "an append on the right head")


@proves("B2")
async def a_repeat_that_brings_nothing_new_is_no_conflict(lab: Lab) -> None:
    session = lab.open()
    empty = await session.head()
    await session.append(batch("a", 3)[:2], writer="a", start=0, expect=empty)
    head = await session.append(batch("a", 3)[:2], writer="a", start=0, expect=empty)
    lab.same(head, await session.head(), "a repeat under its old expectation")
    grown = session.append(batch("a", 3), writer="a", start=0, expect=empty)
    await lab.refuses(grown, "a repeat that brings something new, under its old expectation", SessionConflictError)


@proves("B2")
async def of_several_changes_on_one_head_one_succeeds(lab: Lab) -> None:
    session = lab.open()
    for turn in range(5):
        head = await session.head()
        works = [
            lab.another(session).append(batch(f"{turn}.{n}", 2), writer=f"{turn}.{n}", start=0, expect=head)
            for n in range(6)
        ]
        outcomes = await asyncio.gather(*works, return_exceptions=True)
        won = [outcome for outcome in outcomes if isinstance(outcome, Head)]
        lost = [outcome for outcome in outcomes if isinstance(outcome, SessionConflictError)]
        lab.expect(len(won) == 1 and len(lost) == 5, f"of six changes on one head {len(won)} succeeded: {outcomes}")
        lab.same(len(await session.get_items()), 2 * turn + 2, "six changes on one head")


@proves("B2")
async def equal_heads_mean_equal_histories(lab: Lab) -> None:
    session = lab.open()
    seen: list[tuple[str, Any, Any]] = []

    async def note(what: str) -> None:
        seen.append((what, await session.head(), await session.get_items()))

    await note("nothing")
    await session.add_items([message("a")])
    await note("a plain write")
    await session.append([message("b"), message("c")], writer="run", start=0)
    await note("an append")
    await session.pop_item()
    await note("a pop")
    await session.add_items([message("d")])
    await note("a write of as many items as were popped")
    if lab.has(session, "rewind"):
        await session.append([message("e")], writer="other", start=0)
        await session.rewind(writer="other", to=0)
        await note("a rewind")
        await session.append([message("f")], writer="other", start=0)
        await note("another append as the same number")
    if lab.has(session, "replace"):
        middle = await session.head()
        await session.add_items([message("tail")])
        await note("a write before a replace")
        await session.replace([message("s")], upto=middle)
        await note("a replace that kept the tail")
        await session.restore((await session.generations())[0].id)
        await note("an undo")
        await session.replace([message("s")], upto=await session.head())
        await note("a replace of everything")
        await session.pop_item()
        await session.add_items([message("t")])
        await note("a pop and a write")
    await session.clear_session()
    await note("a clear")
    await session.add_items([message("z")])
    await note("a write after a clear")
    for (what, head, history), (what_2, head_2, history_2) in combinations(seen, 2):
        lab.expect(
            head != head_2 or history == history_2,
            f"the head {head} after {what} and after {what_2} is the same, and the histories are not",
        )
    lab.same(seen[0][1], seen[-2][1], "a clear, by the head of an empty session")


@proves("B2", "inject_record")
async def a_corrupt_record_moves_the_head(lab: Lab) -> None:
    session = lab.open()
    await session.add_items([message("a")])
    before = await session.head()
    lab.backend.inject_record(session.session_id, b"{broken")
    lab.expect(await session.head() != before, "a record was written by another program and the head did not move")
    await lab.refuses(
        session.append([message("b")], writer="run", start=0, expect=before), "a stale head", SessionConflictError
    )


@proves("B1")
async def an_argument_that_means_nothing_is_refused(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("history", 1), writer="run", start=0)
    for writer in ("", None, 7, b"run"):
        await lab.refuses(session.append([message(1)], writer=writer, start=0), f"an append by writer {writer!r}")
        await lab.refuses(session.accepted(writer), f"the count of writer {writer!r}")
        await lab.refuses(session.written(writer), f"the items of writer {writer!r}")
    for number in (True, "1", 1.0, None, -1):
        late = session.append([message(1)], writer="run", start=number)
        await lab.refuses(late, f"an append from number {number!r} on")
    for digests in ([], [b"one", b"two"]):
        late = session.append([message(1)], writer="run", start=1, digests=digests)
        await lab.refuses(late, f"one item with {len(digests)} digests")
    await lab.holds(session, batch("history", 1), "arguments that mean nothing")
    lab.same(await session.accepted("run"), 1, "arguments that mean nothing, by the count")
