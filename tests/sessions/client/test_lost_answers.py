"""Answers of a store are lost at any moment, while several tasks write: nothing is lost or doubled (A6, A8).

The store is the one in memory; between it and the executors that go to servers stands a network that breaks as a seed
says: before anything of a round has arrived, behind any part of it, or when all is done and the answers are under way.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

import pytest

from standfast._kits.conformance.check_context import message
from standfast._src.base.errors import OutcomeUnknownError, StoreUnavailableError
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.client.borrowed_loop_executor import BorrowedLoopExecutor
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor
from standfast._src.sessions.storage import Answer, Ask, Count, Listing, ReadRequest, ask

ROUNDS, SEEDS = 20, 12


class BreakingNetwork:
    """A store behind a connection that breaks in some of its rounds."""

    def __init__(self, store: InMemoryStore, seed: int) -> None:
        self._store, self._random = store, random.Random(seed)
        self.broken = 0
        self.is_whole = False

    def reach(self) -> None:
        """There is nothing to connect to."""

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """The answers; or, where it breaks, an error for each, and a first part of them done."""
        if self.is_whole or self._random.random() < 0.7:
            return [self._asked(question) for question in questions]
        self.broken += 1
        arrived = self._random.randint(0, len(questions))
        for question in questions[:arrived]:
            self._asked(question)
        kind = OutcomeUnknownError if self._random.random() < 0.7 else StoreUnavailableError
        if kind is StoreUnavailableError and arrived:
            kind = OutcomeUnknownError
        return [kind("the connection broke", "Try again.") for _ in questions]

    def _asked(self, question: Ask) -> Answer:
        with self._store.lock:
            return ask(self._store, question)

    def look(self, look: Any) -> Any:
        """One question by itself, as readers and undoing ask."""
        return self._one(look)

    def commit(self, step: Any) -> Any:
        """The same for a step."""
        return self._one(step)

    def _one(self, question: Ask) -> Answer:
        (found,) = self.ask_many([question])
        if isinstance(found, Exception):
            raise found
        return found


class AwaitedNetwork:
    """The same, awaited."""

    def __init__(self, network: BreakingNetwork) -> None:
        self._network = network

    async def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        await asyncio.sleep(0)
        return self._network.ask_many(questions)


class NetworkSession(StoredSession):
    """A session over an executor that was handed in."""

    def __init__(self, session_id: str, carrier: Executor) -> None:
        super().__init__(session_id, timeout_s=60)
        self.given = carrier

    def _carrier(self) -> Executor:
        return self.given

    def _store_key(self) -> Hashable:
        return id(self.given)

    def _another(self, new_id: str) -> NetworkSession:
        return NetworkSession(new_id, self.given)


async def worker(session: NetworkSession, name: str, dice: random.Random) -> tuple[list[str], list[str]]:
    """Add, pop and give up popping, in the order the dice say; what was added and what was taken."""
    added, popped = [], []
    for number in range(ROUNDS):
        match dice.randrange(4):
            case 0 | 1:
                words = [f"{name} {number} {place}" for place in range(dice.randint(1, 2))]
                await session.add_items([message(word) for word in words])
                added += words
            case 2:
                taken = await session.pop_item()
                popped += [] if taken is None else [str(taken["content"])]
            case _:
                popping = asyncio.create_task(session.pop_item())
                for _ in range(dice.randrange(4)):
                    await asyncio.sleep(0 if dice.randrange(2) else 0.001)
                popping.cancel()
                try:
                    taken = await popping
                except asyncio.CancelledError:
                    continue
                popped += [] if taken is None else [str(taken["content"])]
    return added, popped


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", ["threads", "loop"])
async def test_lost_answers_neither_lose_nor_double_anything(kind: str, seed: int) -> None:
    store = InMemoryStore()
    network = BreakingNetwork(store, seed)
    carrier: Any = (
        ThreadedExecutor(partial(lambda made: made, network), loses_answers=True, is_many=True)
        if kind == "threads"
        else BorrowedLoopExecutor(AwaitedNetwork(network))
    )
    sessions = [NetworkSession("talk", carrier), NetworkSession("other", carrier)]
    dice = random.Random(seed)
    work = [worker(sessions[n % 5 == 4], f"w{n}", random.Random(dice.random())) for n in range(6)]
    done = await asyncio.gather(*work)
    network.is_whole = True
    assert network.broken > 10
    found = [str(item["content"]) for session in sessions for item in await session.get_items()]
    added, popped = ([word for pair in done for word in pair[place]] for place in (0, 1))
    assert Counter(found) + Counter(popped) == Counter(added)
    for session in sessions:
        await session.close()
    if kind == "threads":
        carrier.close()


class ScriptedNetwork(BreakingNetwork):
    """A connection that breaks behind those rounds that a function names, when all of each was done."""

    def __init__(self, store: InMemoryStore, is_lost: Callable[[Sequence[Ask]], bool], *, arrives: bool = True) -> None:
        super().__init__(store, 0)
        self.is_lost, self.arrives = is_lost, arrives

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """The answers, or an error for each."""
        is_lost = self.is_lost(questions)
        answers: list[Answer | Exception] = []
        if self.arrives or not is_lost:
            answers += [self._asked(question) for question in questions]
        return [OutcomeUnknownError("lost", "Try again.") for _ in questions] if is_lost else answers


def pushes(questions: Sequence[Ask], word: str) -> bool:
    """Whether a step among them adds an item that says this."""
    steps: list[Any] = [question for question in questions if not isinstance(question, ReadRequest | Listing | Count)]
    return any(word.encode() in data for step in steps for change in step for data, _ in change.push)


async def test_a_pop_is_undone_while_another_write_waits_for_its_lost_answer() -> None:
    popping: asyncio.Task[Any]
    lost: list[bool] = []

    def is_lost(questions: Sequence[Ask]) -> bool:
        if not pushes(questions, "late") or lost:
            return False
        lost.append(popping.cancel())  # its answer is there, and it has not taken it
        return True

    network = ScriptedNetwork(InMemoryStore(), is_lost)
    session = NetworkSession("talk", BorrowedLoopExecutor(AwaitedNetwork(network)))
    await session.add_items([message("early")])
    popping = asyncio.create_task(session.pop_item())
    await asyncio.sleep(0)
    adding = asyncio.create_task(session.add_items([message("late")]))
    await asyncio.gather(popping, adding, return_exceptions=True)
    assert lost == [True]
    assert popping.cancelled()
    assert await session.get_items() == [message("early"), message("late")]


@pytest.mark.parametrize("arrives", [True, False])
async def test_what_follows_a_cancelled_write_does_not_overtake_it(arrives: bool) -> None:
    """Its answer is lost, or itself: either way a reader sees what will stand (A13)."""
    loop, begun = asyncio.get_running_loop(), asyncio.Event()
    rounds = 0

    def is_lost(questions: Sequence[Ask]) -> bool:
        nonlocal rounds
        rounds += pushes(questions, "cancelled")
        if rounds:
            loop.call_soon_threadsafe(begun.set)
        return 0 < rounds <= 3 and pushes(questions, "cancelled")

    network = ScriptedNetwork(InMemoryStore(), is_lost, arrives=arrives)
    carrier = ThreadedExecutor(partial(lambda made: made, network), loses_answers=True, is_many=True, readers=2)
    session, other = NetworkSession("talk", carrier), NetworkSession("other", carrier)
    adding = asyncio.create_task(session.add_items([message("cancelled")]))
    await begun.wait()
    adding.cancel()
    await asyncio.gather(adding, return_exceptions=True)
    await other.get_items()  # of another session: it need not wait, and does not let others pass
    read = [await session.get_items() for _ in range(3)]
    assert read == [[message("cancelled")]] * 3
    carrier.close()
