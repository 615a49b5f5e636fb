"""B16 and B17: inspection of a whole store, read-only opening; saved runs read and decided without their agents."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from standfast._kits.conformance.check_context import AnySession, Lab, batch, message
from standfast._kits.conformance.registry import proves
from standfast._kits.operators.copy_sessions import copy_sessions
from standfast._kits.operators.store import store_of
from standfast._src.base.errors import (
    AlreadyDecidedError,
    ApprovalError,
    NotFoundError,
    RunStateError,
    SessionConflictError,
    StoreReadOnlyError,
)
from standfast._src.base.json_values import Item
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.codec import RunRecord
from standfast._src.runs.engine.events import ApprovalNeeded, Replied
from standfast._src.runs.engine.run import Call, Entry, Owner, Response, Run, begin
from standfast._src.runs.steps.reply_parsing import call_digest
from standfast._src.sessions.backends.memory.memory_session import InMemorySession, InMemoryStore


async def _fill_store(lab: Lab, count: int = 5) -> list[str]:
    """So many sessions, the newest last."""
    names = [f"{'guest' if number % 2 else 'staff'}-{number}" for number in range(count)]
    for number, name in enumerate(names):
        await lab.open(name).append(
            [message(f"Hello, this is {name}."), *batch(name, number)], writer=f"run {number}", start=0
        )
    return names


async def _all_pages(ask: Callable[..., Awaitable[Any]], part: str, **given: object) -> list[Any]:
    found: list[Any] = []
    after = None
    while True:
        page = await ask(after=after, **given)
        found += getattr(page, part)
        after = page.after
        if after is None:
            return found


@proves("B16", "list")
async def sessions_are_listed_with_what_a_person_wants_to_see(lab: Lab) -> None:
    names = await _fill_store(lab)
    store = lab.store()
    for limit in (1, 2, 50):
        found = await _all_pages(store.sessions, "sessions", limit=limit)
        lab.same([one.session_id for one in found], names[::-1], f"a listing in pages of {limit}")
    lab.same([one.item_count for one in found], [5, 4, 3, 2, 1], "a listing, by the item counts")
    lab.same(found[0].first_words, f"Hello, this is {names[-1]}.", "a listing, by the first words")
    bare = (await store.sessions(details=False)).sessions[0]
    lab.same((bare.item_count, bare.first_words), (None, None), "a listing without details")
    counts = await store.counts(items=True)
    lab.same((counts.sessions, counts.items), (5, 15), "counting")


@proves("B16", "list")
async def a_listing_is_filtered_by_prefix_and_by_time(lab: Lab) -> None:
    names = await _fill_store(lab)
    store = lab.store()
    guests = await _all_pages(store.sessions, "sessions", limit=1, prefix="guest-")
    lab.same([one.session_id for one in guests], ["guest-3", "guest-1"], "a listing by prefix, in pages of one")
    lab.same((await store.sessions(prefix="nobody")).sessions, [], "a listing by a prefix that nobody has")
    newest = (await store.sessions(limit=1)).sessions[0].updated_at
    since = await store.sessions(changed_since=newest)
    lab.same([one.session_id for one in since.sessions], names[-1:], "a listing since the newest change")
    later = datetime.now(UTC) + timedelta(days=1)
    lab.same((await store.sessions(changed_since=later)).sessions, [], "a listing since tomorrow")


@proves("B16", "search")
async def a_search_of_a_whole_store_misses_nothing_and_doubles_nothing(lab: Lab) -> None:
    names = await _fill_store(lab)
    store = lab.store()
    for limit in (1, 3, 50):
        hits = await _all_pages(lambda **given: store.search("HELLO", **given), "hits", limit=limit)
        lab.same([one.session_id for one in hits], names[::-1], f"a search of all sessions in pages of {limit}")
    await lab.refuses(store.search("hello", after="?"), "a search from nowhere", NotFoundError)


@proves("B16", "record")
async def what_all_sessions_cost_is_summed(lab: Lab) -> None:
    usage = {"requests": 1, "input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    for name in ("a", "b"):
        costs = (0, [{"turn": 1, "usage": usage, "model": "m"}])
        await lab.open(name).record(items=batch(name, 1), writer=name, start=0, costs=costs)
    await lab.open("c").add_items([message("for nothing")])
    found = await lab.store().usage()
    seen = (
        found.total.total_tokens,
        found.sessions,
        found.runs,
        {name: one.requests for name, one in found.by_model.items()},
    )
    lab.same(seen, (22, 2, 2, {"m": 2}), "two runs on two sessions, by what they cost")


async def _read(session: AnySession) -> dict[str, Any]:
    """Return a session's readable content, without parts specific to a store: ids of generations, cursors, times of
    rows.
    """
    generations = await session.generations()
    records = (await session.records()).records
    return {
        "the items": await session.get_items(),
        "who wrote them": [(one.writer, one.number, (one.replaces or "").partition("@")[0]) for one in records],
        "the generations": [(one.item_count, one.created_at) for one in generations],
        "their items": [await session.read_generation(one.id) for one in generations],
        "how much was written": [await session.accepted(writer) for writer in ("run 1", "run 2")],
        "what was written": await session.written("run 1"),
        "what it cost": await session.usage(),
        "where it came from": await session.origin(),
    }


@proves("B16", "replace")
async def a_session_that_was_copied_away_and_back_is_the_same(lab: Lab) -> None:
    usage = {"requests": 1, "input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    before, written = lab.open("before"), batch("of both", 41)
    await before.append(written[:40], writer="run 1", start=0)
    session = await before.fork("talk")
    await session.replace([message("in short")], upto=await session.head())
    costs = (0, [{"turn": 1, "usage": usage, "model": "m"}])
    await session.record(items=batch("more", 3), writer="run 2", start=0, costs=costs)
    await session.restore((await session.generations())[0].id)
    expected = await _read(session)
    store, memory = lab.store(), InMemoryStore()
    elsewhere = store_of(lambda session_id: InMemorySession(session_id, store=memory), "memory")
    away = await copy_sessions(store, elsewhere, ["talk"])
    lab.same(away.refused, [], "copying a session away")
    await session.clear_session()
    back = await copy_sessions(elsewhere, store, ["talk"])
    lab.same((back.refused, [one.outcome for one in back.copied]), ([], ["copied"]), "copying it back")
    found = await _read(lab.open("talk"))
    for what, value in expected.items():
        lab.same(found[what], value, f"a session that was copied away and back, by {what}")
    again = lab.open("talk")
    await again.append(written, writer="run 1", start=0)  # the first forty are known, one by one
    lab.same(await again.accepted("run 1"), 41, "a writer that goes on in a session that was copied")
    await lab.refuses(
        again.append([message("another")], writer="run 1", start=39), "a second history", SessionConflictError
    )


def _trace(folder: Path) -> dict[str, tuple[str, int]]:
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(file): (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mode) for file in files}


@proves("B16", "list")
async def a_store_that_is_only_read_refuses_every_change_and_leaves_no_trace(lab: Lab) -> None:
    names = await _fill_store(lab)
    await lab.close()  # at rest: a writer has files of its own open
    before = _trace(lab.backend.folder)
    store = lab.store(read_only=True)
    async with store:
        found = await store.sessions()
        lab.same([one.session_id for one in found.sessions], names[::-1], "a listing of a store that is only read")
        session = store.session(names[0])
        lab.same(len((await session.records()).records), 1, "the records of a store that is only read")
        changes: dict[str, Callable[[], Awaitable[Any]]] = {
            "an append": lambda: session.add_items([message("no")]),
            "a pop": session.pop_item,
            "a clear": session.clear_session,
            "a fork": lambda: session.fork("fork"),
            "a lease": lambda: session.lease(ttl_s=5, wait_s=0),
            "taking a lease away": lambda: store.unlock(names[0]),
            "a decision": lambda: store.decide("r", "c", True, by="a"),
            "pruning": lambda: store.prune_runs(keep=0),
        }
        for what, change in changes.items():
            await lab.refuses(change(), f"{what} in a store that is only read", StoreReadOnlyError)
        await session.close()
    if lab.backend.files:
        lab.same(_trace(lab.backend.folder), before, "looking into a file, by the files")
    await lab.holds(lab.open(names[0]), [message(f"Hello, this is {names[0]}.")], "looking into a store")


# --- runs ------------------------------------------------------------------------------------------------------------


def _call(call_id: str, amount: int) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "pay", "arguments": f'{{"amount": {amount}}}'}


def _build_paused_run(session_id: str, *amounts: int) -> Run:
    """Build a run whose model asked to pay, and that waits for a person; made of data alone."""
    run = begin(run_id="run", agent="clerk", input_items=[message("Pay.")], owner=Owner("session", session_id))
    items = [_call(f"c{number}", amount) for number, amount in enumerate(amounts)]
    calls = tuple(Call(item["call_id"], "pay", "tool", item["arguments"], call_digest(item)) for item in items)
    entries = tuple(Entry("tool_call_item", "clerk", item) for item in items)
    usage = {"requests": 1, "input_tokens": 3, "output_tokens": 1, "total_tokens": 4}
    run = advance(run, Replied(1, entries, calls, Response(tuple(items), usage)))
    for call in calls:
        run = advance(run, ApprovalNeeded(call.id))
    return run


async def _save(lab: Lab, *amounts: int) -> None:
    session = lab.open("talk")
    run = _build_paused_run("talk", *amounts)
    await session.append([message("Pay.")], writer="run", start=0)
    record = RunRecord(run)
    await session.run_store().save_run(
        "run",
        expect=0,
        head=record.head(),
        tails=record.tails({}),
        status=record.status,
        agent=record.agent,
        session_id="talk",
    )


@proves("B17", "records")
async def a_run_that_waits_is_seen_and_listed(lab: Lab) -> None:
    await _save(lab, 5)
    await lab.open("other").add_items([message("nothing waits")])
    store = lab.store()
    view = await store.run("run")
    seen = (view.status, view.session_id, view.agent, view.turns, view.usage.total_tokens)
    lab.same(seen, ("paused", "talk", "clerk", 1, 4), "a paused run, as data")
    lab.same([(one.call_id, one.tool, one.state) for one in view.calls], [("c0", "pay", "waiting")], "its calls")
    waiting = await store.sessions(waiting=True)
    lab.same([one.session_id for one in waiting.sessions], ["talk"], "the sessions in which something waits")
    lab.same([one.call.call_id for one in waiting.sessions[0].waiting], ["c0"], "what waits in a session")
    await lab.refuses(store.run("no such run"), "a run that is not there", NotFoundError)


@proves("B17", "records")
async def a_decision_says_who_and_when_and_makes_the_run_ready(lab: Lab) -> None:
    await _save(lab, 5, 6)
    store = lab.store()
    lab.same((await store.decide("run", "c0", True, by="ada")).status, "paused", "one of two decisions")
    view = await store.decide("run", "c1", False, by="bob", reason="no")
    lab.same(view.status, "ready", "the second of two decisions")
    decided = [one.decision for one in view.calls if one.decision is not None]
    seen = [(one.approved, one.by, one.message) for one in decided]
    lab.same(seen, [(True, "ada", None), (False, "bob", "no")], "two decisions")
    now = datetime.now(UTC)
    times = [one.at for one in decided]
    lab.expect(all(at is not None and abs(now - at) < timedelta(minutes=5) for at in times), "a decision has no time")
    lab.same([one.run_id for one in (await store.runs(status="ready")).runs], ["run"], "the runs that are ready")
    lab.same((await store.runs(status="paused")).runs, [], "the runs that wait, once all is decided")


@proves("B17", "records")
async def of_many_who_decide_one_is_heard_and_the_others_are_told(lab: Lab) -> None:
    await _save(lab, 5)
    stores = [lab.store() for _ in range(4)]
    people = [store.decide("run", "c0", place % 2 == 0, by=f"person {place}") for place, store in enumerate(stores)]
    outcomes = await asyncio.gather(*people, return_exceptions=True)
    told = [one for one in outcomes if isinstance(one, AlreadyDecidedError)]
    lab.expect(len(told) == 3, f"of four who decided {len(told)} were told: {outcomes}")
    decision = (await stores[0].run("run")).calls[0].decision
    if decision is None:
        lab.broken("after four who decided nothing is decided")
    lab.same({one.by for one in told}, {decision.by}, "four who decided, by whom the others were told of")
    winner = next(place for place, one in enumerate(outcomes) if not isinstance(one, BaseException))
    lab.same((decision.by, decision.approved), (f"person {winner}", winner % 2 == 0), "four who decided")


@proves("B17", "records")
async def what_does_not_wait_cannot_be_decided(lab: Lab) -> None:
    await _save(lab, 5)
    store = lab.store()
    other = store.decide("run", "c0", True, by="ada", arguments='{"amount": 6}')
    await lab.refuses(other, "a decision about other arguments", ApprovalError)
    await lab.refuses(store.decide("run", "c9", True, by="ada"), "a decision about no call", ApprovalError)
    await lab.refuses(store.decide("no run", "c0", True, by="ada"), "a decision about no run", NotFoundError)
    lab.same((await store.run("run")).status, "paused", "decisions that were refused")
    await lab.refuses(store.delete_run("run"), "deleting a run that waits", RunStateError)


@proves("B17", "records", "lease")
async def a_run_that_is_given_up_leaves_a_whole_turn(lab: Lab) -> None:
    await _save(lab, 5)
    store = lab.store()
    lab.same((await store.cancel("run", by="ada")).status, "cancelled", "giving a run up")
    items = await lab.open("talk").get_items()
    kinds = [item.get("type", "message") for item in items]
    lab.same(kinds, ["message", "function_call", "function_call_output"], "giving a run up, by the history")
    lab.same(await store.session("talk").holder(), None, "giving a run up, by who holds its session")
    await lab.refuses(store.decide("run", "c0", True, by="ada"), "a decision about a run that ended", RunStateError)
    costs = await lab.open("talk").usage()
    lab.same([one.total.total_tokens for one in costs], [4], "giving a run up, by what it cost")
