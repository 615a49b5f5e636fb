"""Stories at random at a desk with hosted tools that ask first: on a session and on a `conversation_id`.

Runs are started, decided, gone on with, given up, cut at any await; requests are refused, lost, cut short. In the
second test the processes that do it are killed. Then everything is brought to its end, and another message comes: the
provider (`helpers.hosted_desk`) has found nothing wrong in any request; what was done was allowed, once, and is told.

`STANDFAST_ATTACK_ROUNDS=100` plays that many of each; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from helpers.cancelling import WAYS, cancelled_at
from helpers.counts import tried
from helpers.hosted_desk import Provider, desk, some_plan, wrongs_of
from helpers.hosted_worker import Place, approves, step
from helpers.ledger_oracle import Item, lines
from helpers.processes import Child
from openai import APIError

from standfast import NotFoundError, Runner, RunStateError, StandfastError
from standfast.testing.loopback import (
    Cut,
    Drop,
    ErrorEvent,
    Failed,
    Fault,
    Incomplete,
    LoopbackServer,
    Status,
)
from tests.helpers.stores import SHARED, place

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
OF_THE_PROVIDER = (APIError,)
AWAITS = 60
"""A few more than most of these steps have."""

FAULTS: tuple[Fault, ...] = (
    Status(429), Status(500), Status(502, committed=True), Drop(committed=False), Drop(committed=True),
    Cut(after_bytes=600), ErrorEvent(), ErrorEvent(committed=True), Failed(), Incomplete(),
)  # fmt: skip


class Story:
    """What one seed does, in this process."""

    def __init__(self, server: LoopbackServer, client: Any, folder: Path, seed: int, where: str) -> None:
        self.chance, self.server, self.client = random.Random(f"hosted {seed}"), server, client
        conversation = server.new_conversation() if self.chance.random() < 0.5 else None
        self.told = {"folder": str(folder), "where": where, "conversation": conversation, "seed": seed}
        self.place, self.seed, self.conversation = Place(**self.told), seed, conversation
        self.provider = server.rule = Provider(self.place.book)
        self.plans: dict[str, str] = {}
        self.owed: list[Item] = []
        self.number = -1
        self.lost = 0
        """How many replies may not have come: behind each, the provider may act once more on what it was allowed."""
        self.wrong: list[str] = []

    # --- what happens ------------------------------------------------------------------------------------------------

    async def go(self) -> None:
        """Some steps, each with its accidents; one that met nobody is over with its step."""
        for number in range(self.chance.randint(2, 5)):
            self.number = number
            await self._attempt(self._next_step())
        self.number = -1

    def _next_step(self) -> Callable[[], Coroutine[Any, Any, Any]]:
        chance, streamed = self.chance, self.chance.random() < 0.5
        kind = chance.choices(["start", "resume", "again", "cancel"], [4, 4, 1, 1])[0]
        if kind == "start" or not self.plans or self.owed:
            run_id = f"r{len(self.plans)}"
            self.plans[run_id] = some_plan(chance)
            given = [*self.owed, {"role": "user", "content": f"{run_id} please"}] if self.owed else None
            self.owed = []
            return lambda: self.place.start(self.client, run_id, self.plans[run_id], streamed=streamed, given=given)
        run_id = chance.choice(list(self.plans))
        plan = self.plans[run_id]
        if kind == "cancel":
            return lambda: self._give_up(run_id)
        if kind == "again" and not self.conversation:
            return lambda: self.place.start(self.client, run_id, plan, streamed=streamed)
        return lambda: self.place.resume(self.client, run_id, plan, by_id=streamed)

    async def _give_up(self, run_id: str) -> None:
        agent = desk(self.client, self.place.book, run_id, self.plans[run_id])
        try:
            await Runner.cancel_run(agent, run_id, **self.place.kept)
        finally:
            if self.conversation:
                result = await asyncio.shield(Runner.result(agent, run_id, **self.place.kept))
                self.owed = result.owed_items

    async def _attempt(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        chance = self.chance
        if chance.random() < 0.3:
            self.lost += 1
            number = self.number
            now: Any = lambda received: received.is_model_call and self.number == number  # noqa: E731
            self.server.fault(chance.choice(FAULTS), on=now, skip=chance.randint(0, 2))
        try:
            if chance.random() < 0.25:
                self.lost += 1
                await cancelled_at(work, chance.randrange(AWAITS), chance.choice(WAYS))
            else:
                await work()
        except (StandfastError, *OF_THE_PROVIDER):
            tried["refused or failed"] += 1

    # --- and in the end ----------------------------------------------------------------------------------------------

    async def end(self) -> list[str]:
        """Bring every run to its end, then say something: what is wrong."""
        await self._deliver()
        for _ in range(3):
            for run_id in self.plans:
                await self._bring_to_its_end(run_id)
        await self._deliver()
        result = await self.place.start(self.client, "end", "", given="well?")
        assert result.final_output == "end is done"
        seen = self._seen()
        approved = {one for one in lines(self.place.book) if approves(self.seed, one)}
        self.wrong += wrongs_of(self.place.book, seen, approved, self.lost)
        said = Counter(str(item["content"]) for item in seen if item.get("role") == "user")
        self.wrong += [f"{words} was said {times} times" for words, times in said.items() if times > 1]
        await self.place.session.close()
        return self.wrong + self.provider.wrongs

    async def _deliver(self) -> None:
        """Bring what a run that was given up owes the server."""
        owed, self.owed = self.owed, []
        if owed:
            given = [*owed, {"role": "user", "content": "and now?"}]
            await self.place.start(self.client, f"owed{len(self.server.requests)}", "", given=given)

    async def _bring_to_its_end(self, run_id: str) -> None:
        for _ in range(5):
            try:
                result = await self.place.resume(self.client, run_id, self.plans[run_id])
            except (RunStateError, NotFoundError):
                return
            except (StandfastError, *OF_THE_PROVIDER):
                return  # another of them comes first
            if not result.interruptions:
                return

    def _seen(self) -> list[Item]:
        if self.conversation:
            return self.server.history(self.conversation)
        return list(self.server.model_calls[-1].body["input"])


async def played(folder: Path, seed: int, where: str) -> list[str]:
    """What is wrong at the end of this story."""
    tried["stories"] += 1
    with LoopbackServer() as server:
        async with server.client(max_retries=0) as client:
            story = Story(server, client, folder, seed, where)
            await story.go()
            return await story.end()


@pytest.mark.parametrize("kind", SHARED)
async def test_whatever_happens_to_a_run_its_hosted_tools_act_once_and_as_allowed(kind: str, tmp_path: Path) -> None:
    wrong: dict[int, list[str]] = {}
    for seed in range(ROUNDS * 4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if found := await played(folder, seed, place(kind, folder)):
            wrong[seed] = found
    assert wrong == {}


# --- killed ----------------------------------------------------------------------------------------------------------


async def played_by_processes(folder: Path, seed: int, where: str) -> list[str]:
    """The same, each step by one or two processes, of which most are killed while they are at it."""
    tried["stories"] += 1
    with LoopbackServer() as server:
        async with server.client(max_retries=0) as client:
            story = Story(server, client, folder, seed, where)
            for _ in range(story.chance.randint(1, 3)):
                steps = [_started(story) for _ in range(story.chance.choice([1, 1, 2]))]
                await asyncio.gather(*(_killed_or_ended(child, after_s) for child, after_s in steps))
            return await story.end()


def _started(story: Story) -> tuple[Child, float | None]:
    chance, told = story.chance, {"base_url": story.server.base_url, "place": story.told}
    story.lost += 1
    after_s = chance.random() * 0.2 if chance.random() < 0.7 else None
    if story.plans and chance.random() < 0.5:
        run_id = chance.choice(list(story.plans))
        return Child(step, what="resume", run_id=run_id, plan=story.plans[run_id], **told), after_s
    run_id = f"r{len(story.plans)}"
    plan = story.plans[run_id] = some_plan(chance)
    return Child(step, what="start", run_id=run_id, plan=plan, streamed=chance.random() < 0.5, **told), after_s


async def _killed_or_ended(child: Child, after_s: float | None) -> None:
    with child:
        await asyncio.to_thread(child.hear_until, "starting")
        if after_s is None:
            await asyncio.to_thread(child.result)
            return
        await asyncio.sleep(after_s)
        child.kill()


@pytest.mark.parametrize("kind", SHARED)
async def test_whoever_is_killed_hosted_tools_act_once_and_as_allowed(kind: str, tmp_path: Path) -> None:
    wrong: dict[int, list[str]] = {}
    for seed in range(ROUNDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        if found := await played_by_processes(folder, seed, place(kind, folder)):
            wrong[seed] = found
    assert wrong == {}
