"""The same, killed before and after each commit of its store, and cancelled at every await: then whatever comes.

`STANDFAST_ATTACK_ROUNDS=50` kills at every place, with every continuation. A failure names its story.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.cancelling import WAYS, Way, cancelled_at, no_task_is_left
from helpers.counts import tried
from helpers.offices import PARENT, Clerk, Office
from helpers.processes import Child, Line
from helpers.trees import Death

from standfast import RunClaimedError, RunConfig, Runner, SQLiteSession, UnfinishedRunError
from standfast.testing import final
from standfast.testing.loopback import LoopbackServer, Status
from tests.runs.owners.child import loopback_client

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
PLACES = 50
"""A little more than the longest of these has commits."""

CONFIG: dict[str, Any] = {"lease_ttl_s": 120.0, "lease_wait_s": 60.0}
"""Leases that nobody renews while a story is played: a renewal is a commit, and places are counted by them."""

STORIES = ("start", "start and wait", "approve", "take over")
"""What the process is at that is killed. In the last, the agent tool finds what a run before it owes."""

AFTERWARDS: tuple[tuple[str, ...], ...] = (
    (),
    ("resume",),
    ("another",),
    ("cancel",),
    ("another", "resume"),
    ("message", "resume"),
    ("check", "resume"),
)
ANSWERS = ("ok", "died", "RunStateError", "NotFoundError")
"""What a process may hear: the run may have ended, or may never have been saved."""


async def step(
    line: Line, *, base_url: str, folder: str, conversation: str, what: str, at: int | None = None, before: bool = False
) -> int:
    """One process's part; killed at its commit number `at`. Gives how many commits it made."""
    death = Death(at, before=before)
    death.watch()
    async with loopback_client(base_url) as client:
        office = Office(conversation, client, Path(folder))
        match what:
            case "start":
                await office.say("pay look", **CONFIG)
            case "start and wait":
                await office.say("pay ask", **CONFIG)
            case "approve":
                await office.decide(**CONFIG)
            case "take over":
                await office.say("look", **CONFIG)
            case "resume":
                await Runner.resume(
                    office.outer(final("ok")), PARENT, session=office.session, run_config=RunConfig(**CONFIG)
                )
            case "cancel":
                await Runner.cancel_run(office.outer(), PARENT, session=office.session)
            case "message":
                await office.say("hello again", "later", **CONFIG)
            case "another":
                await office.say("hello", "another", SQLiteSession("another", office.path), **CONFIG)
        await office.session.close()
    return death.count


async def play(server: LoopbackServer, folder: Path, story: str, place: int, then: tuple[str, ...]) -> list[str]:
    """One story; what is wrong at its end."""
    server.rule = Clerk()
    told: dict[str, Any] = {
        "base_url": server.base_url,
        "folder": str(folder),
        "conversation": server.new_conversation(),
    }
    async with server.client(max_retries=0) as client:
        office = Office(told["conversation"], client, folder, server)
        if story == "approve":
            await office.say("pay ask", **CONFIG)
        elif story == "take over":
            server.fault(Status(429), skip=1)
            await office.say("pay look", "before", **CONFIG)
        killed = await _end_of(Child(step, what=story, at=1 + place // 2, before=place % 2 == 0, **told))
        tried["kills at a commit"] += killed[0] == "died"
        found = [] if killed[0] in ANSWERS else [f"{story}: {killed}"]
        for number, what in enumerate(then):
            if what == "check":
                found += await _wrongs(office, f"well {number}?", may_wait=True)
                continue
            heard = await _end_of(Child(step, what=what, **told))
            found += [] if heard[0] in ANSWERS else [f"{what}: {heard}"]
        if then == ("resume",):
            found += [f"its parent is told: {told}" for told in (await office.told())[-1:] if "failed" in told]
        found += await _wrongs(office, "well?")
        await office.session.close()
    return found


async def _end_of(child: Child) -> tuple[str, str]:
    with child:
        return await asyncio.to_thread(child.result)


async def _wrongs(office: Office, words: str, *, may_wait: bool = False) -> list[str]:
    """What is wrong once a message has come to the conversation; one that was refused has its remedy done first."""
    try:
        try:
            await office.check(words)
        except UnfinishedRunError:
            if may_wait:
                return []
            with suppress(RunClaimedError):  # the last state of one that was cut was still on its way
                await office.decide(**CONFIG)
            return await _wrongs(office, words)
    except Exception as error:
        return [f"{words} {type(error).__name__}: {error} {office.history()}"]
    return []


FEW: list[tuple[str, int, tuple[str, ...]]] = [
    # Its parent knows what it took over, and it has no record yet; it has one, and the other has not ended; that has.
    ("take over", 22, ("another", "resume")),
    ("take over", 22, ("resume",)),
    ("take over", 24, ("resume",)),
    ("take over", 24, ("another",)),
    ("take over", 26, ("another",)),
    # Its first request was answered and nobody knows; its parent does; it waits and its parent is about to.
    ("start", 22, ("another",)),
    ("start", 26, ("another",)),
    ("start and wait", 32, ("another",)),
    ("approve", 21, ("check", "resume")),
]
"""Those that are played by default: most are found wrong if one rule of the driver's is left out."""


def chosen() -> list[tuple[str, int, tuple[str, ...]]]:
    """The stories to play: what is killed, where, and what comes then."""
    if ROUNDS == 1:
        return FEW
    places = range(2 * min(ROUNDS, PLACES))
    return [(story, place, then) for story in STORIES for place in places for then in AFTERWARDS]


async def test_a_kill_at_any_commit_hides_and_doubles_nothing_on_the_server(tmp_path: Path) -> None:
    problems: dict[tuple[str, int, tuple[str, ...]], list[str]] = {}
    with LoopbackServer(Clerk()) as server:
        for number, (story, place, then) in enumerate(chosen()):
            folder = tmp_path / str(number)
            folder.mkdir()
            if found := await play(server, folder, story, place, then):
                problems[story, place, then] = found
    assert problems == {}


# --- cancelled -------------------------------------------------------------------------------------------------------


async def to_its_end(office: Office, words: str, streamed: bool) -> None:
    """A parent whose agent tool does what the words say; what waits is approved."""
    if streamed:
        office.helper = {"on_stream": lambda event: None}
    result = await office.say(words, lease_ttl_s=300.0)  # a lease that is kept is kept for longer than a test waits
    if result.interruptions:
        await office.decide(lease_ttl_s=300.0)


@pytest.mark.parametrize("way", WAYS if ROUNDS > 1 else ("once", "anyio"))
@pytest.mark.parametrize(("words", "streamed"), [("pay look", False), ("pay ask", True)])
async def test_cut_at_any_await_it_owes_nothing_that_is_forgotten(
    tmp_path: Path, words: str, streamed: bool, way: Way
) -> None:
    at, was_cut = 0 if ROUNDS > 1 else 5, True
    with LoopbackServer(Clerk()) as server:
        while was_cut:
            server.rule = Clerk()
            folder = tmp_path / str(at)
            folder.mkdir()
            async with server.client(max_retries=0) as client:
                office = Office(server.new_conversation(), client, folder, server)
                was_cut = await cancelled_at(partial(to_its_end, office, words, streamed), at, way)
                assert not await _wrongs(office, "well?"), f"cut {way} at await {at}"
                await no_task_is_left()
                await office.session.close()
            at += 1 if ROUNDS > 1 else 9
    assert at > 20  # it was cut in the middle, too
