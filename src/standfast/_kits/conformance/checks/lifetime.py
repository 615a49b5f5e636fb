"""A15, A19 to A22: names, closing, expiry, and resources of sessions."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import Lab, batch, close, message
from standfast._kits.conformance.faults import in_threads
from standfast._kits.conformance.processes import start
from standfast._kits.conformance.registry import proves

if TYPE_CHECKING:
    pass


@proves("A15", "names", "shared")
async def configured_names_apply_to_every_operation(lab: Lab) -> None:
    named, plain = lab.open(**lab.backend.names), lab.open()
    await named.add_items(batch("named", 4))
    await plain.add_items(batch("plain", 2))
    await lab.holds(named, batch("named", 4), "writing under configured and default names")
    await lab.holds(plain, batch("plain", 2), "writing under configured and default names")
    lab.same(await named.pop_item(), batch("named", 4)[3], "popping under configured names")
    if lab.has(named, "append", "replace", "rewind", "fork"):
        await named.append([message(1), message(2)], writer="run", start=0)
        await named.rewind(writer="run", to=1)
        lab.same(await plain.accepted("run"), 0, "an append under configured names, by the default ones")
        fork = await named.fork("fork")
        await lab.holds(fork, [*batch("named", 4)[:3], message(1)], "forking under configured names")
        await lab.holds(lab.open("fork"), [], "forking under configured names, by the default ones")
        await named.replace([message("summary")], upto=await named.head())
        lab.same(await plain.generations(), [], "replacing under configured names, by the default ones")
        lab.same(await named.count_sessions(), 2, "counting under configured names")
    await lab.holds(plain, batch("plain", 2), "every operation under configured names")
    await named.clear_session()
    await lab.holds(plain, batch("plain", 2), "clearing under configured names")
    await lab.holds(named, [], "clearing under configured names")


@proves("A15", "bad_names")
async def names_that_are_no_identifiers_are_refused(lab: Lab) -> None:
    for number, options in enumerate(lab.backend.bad_names):

        async def use(options: Mapping[str, Any] = options, number: int = number) -> object:
            session = lab.open(f"named {number}", **options)
            await session.add_items([message("hello")])
            return await session.get_items()

        await lab.refuses(use(), f"the names {dict(options)}", ValueError)
    session = lab.open()
    await session.add_items(batch("history", 2))
    await lab.holds(session, batch("history", 2), "refused names")


@proves("A19", "close")
async def closing_twice_is_allowed_and_use_after_it_says_so(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 2))
    other = lab.open("another conversation")
    await other.add_items(batch("theirs", 1))
    await close(session)
    result = session.close()
    if inspect.isawaitable(result):
        await result
    if _opens_something(session):
        await lab.refuses(session.get_items(), "get_items after close", RuntimeError)
        await lab.refuses(session.add_items([message("late")]), "add_items after close", RuntimeError)
        await lab.refuses(session.pop_item(), "pop_item after close", RuntimeError)
        await lab.refuses(session.clear_session(), "clear_session after close", RuntimeError)
    await lab.holds(other, batch("theirs", 1), "another session of the store was closed")
    if lab.backend.shared and (lab.backend.persistent or lab.backend.can("handed_in")):
        again = lab.open()
        await lab.holds(again, batch("history", 2), "closing and opening again")


def _opens_something(session: object) -> bool:
    """Return whether `close` is overridden: the base class's has nothing to release."""
    return "close" in vars(type(session)) or any(
        "close" in vars(kind) for kind in type(session).__mro__[1:] if kind.__name__ not in ("SessionABC", "object")
    )


@proves("A19", "closes_when_called")
def closing_takes_effect_when_called_without_a_loop(lab: Lab) -> None:
    session = lab.open()
    asyncio.run(session.add_items(batch("history", 1)))
    session.close()

    async def use() -> None:
        await lab.refuses(session.get_items(), "get_items after close() without await", RuntimeError)
        await session.close()  # and it may be awaited

    asyncio.run(use())
    unused = lab.open("never used")
    unused.close()


@proves("A19", "handed_in")
async def closing_leaves_alone_what_was_handed_in(lab: Lab) -> None:
    session, still_works = lab.backend.handed_in("handed in")
    await session.add_items(batch("history", 2))
    await close(session)
    await still_works()


@proves("A20", "expiring")
async def an_expiry_is_renewed_by_changes_and_takes_everything(lab: Lab) -> None:
    session = lab.backend.expiring("expires", 2)
    await session.add_items(batch("first", 2))
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        await session.add_items(batch("more", 1))  # each change renews the first batch too
        await asyncio.sleep(0.2)
    lab.same((await session.get_items())[:2], batch("first", 2), "changes for longer than the expiry")
    deadline = time.monotonic() + 30
    while await session.get_items():  # reading does not renew it
        lab.expect(time.monotonic() < deadline, "reads kept a session alive past its expiry of 2 s")
        await asyncio.sleep(0.1)
    if lab.has(session, "times"):
        lab.same(await session.info(), None, "an expiry, by info()")
    await close(session)


@proves("A21", "import")
async def many_session_objects_hold_a_constant_number_of_descriptors_and_threads(lab: Lab) -> None:
    counts: list[dict[str, Any]] = []
    with start(lab.backend, "make_objects", count=lab.options.objects) as child:
        while (facts := await asyncio.to_thread(child.next, 120)) and "finished" not in facts:
            counts.append(facts)
            for kind in ("descriptors", "threads"):
                grown = facts[kind] - counts[0][kind]
                lab.expect(
                    grown <= 24,
                    f"{kind} grew from {counts[0][kind]} at {counts[0]['objects']} session objects "
                    f"to {facts[kind]} at {facts['objects']}",
                )
            child.go()
    lab.expect(bool(counts), "nothing was counted")
    lab.expect(counts[0]["descriptors"] < 120, f"200 session objects hold {counts[0]['descriptors']} descriptors")
    lab.expect(counts[0]["threads"] < 80, f"200 session objects hold {counts[0]['threads']} threads")


@proves("A22")
def a_session_works_in_one_event_loop_after_another(lab: Lab) -> None:
    session = lab.open()
    for number in range(3):
        asyncio.run(session.add_items([message(number)]))
        seen = asyncio.run(session.get_items())
        lab.same(seen, [message(n) for n in range(number + 1)], f"event loop {number + 1}")
    lab.same(asyncio.run(session.pop_item()), message(2), "a fourth event loop")


@proves("A22")
def a_loop_that_ends_in_the_middle_of_a_call_leaves_nothing_behind(lab: Lab) -> None:
    session = lab.open()
    asyncio.run(session.add_items(batch("first", 2)))

    async def abandon() -> None:
        begun = [asyncio.ensure_future(session.add_items(batch(f"abandoned {number}", 2))) for number in range(5)]
        reads = [asyncio.ensure_future(session.get_items()) for _ in begun]
        await asyncio.sleep(0)  # and asyncio.run cancels what is still under way
        del begun, reads

    for _ in range(5):
        asyncio.run(abandon())
        asyncio.run(asyncio.wait_for(session.add_items([message("next")]), lab.options.soon_s))
        lab.same(asyncio.run(session.get_items(limit=1)), [message("next")], "a loop ended in the middle of a call")


@proves("A22")
def a_session_object_works_in_several_threads_at_once(lab: Lab) -> None:
    session = lab.open()

    def make_worker(name: int) -> Callable[[], Coroutine[Any, Any, int]]:
        async def use() -> int:
            for turn in range(8):
                await session.add_items(batch(f"{name}.{turn}", 2))
                await session.get_items(limit=3)
            return 16

        return use

    outcomes = in_threads([make_worker(name) for name in range(5)])
    for outcome in outcomes:
        lab.expect(outcome == 16, f"one of five threads with the same session object ended with {outcome!r}")
    history = asyncio.run(session.get_items())
    lab.expect(len(history) == 80, f"five threads with the same session object left {len(history)} items of 80")


@proves("A22", "import")
async def after_a_fork_parent_and_child_go_on(lab: Lab) -> None:
    with start(lab.backend, "use_after_fork") as process:
        facts: dict[str, Any] = {}
        while fact := await asyncio.to_thread(process.next, 60):
            facts.update(fact)
    lab.expect("child_error" not in facts, f"the child of a fork failed with {facts.get('child_error')}")
    lab.same(facts.get("child"), ["before the fork", "from the child"], "a fork, by the child")
    wanted = ["before the fork", "from the child", "from the parent"]
    if not lab.backend.persistent:
        wanted.remove("from the child")  # its memory is its own
    lab.same(facts.get("parent"), wanted, "a fork, by the parent")
