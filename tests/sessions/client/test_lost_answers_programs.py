"""Programs over a network that breaks as a seed says: every operation, sealed or not, comes to what it does in peace.

One task does one thing after the other, with all the time it needs, while others on the same executor write to sessions
of their own: then nothing may tell the two apart. Several at once, with short deadlines and tasks that are cancelled,
may be told that an outcome is unknown; then nothing is doubled, and nothing is gone that was not popped.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import count
from typing import Any

import pytest

from standfast import EncryptedSession
from standfast._kits.conformance.check_context import message
from standfast._src.base.errors import (
    CallerError,
    NotFoundError,
    OutcomeUnknownError,
    RunClaimedError,
    SessionBusyError,
    SessionClosedError,
    SessionConflictError,
    StoreError,
)
from standfast._src.runs.engine.run_store import LogTail
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.client.borrowed_loop_executor import BorrowedLoopExecutor
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.inline_executor import InlineExecutor
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor
from standfast._src.sessions.protocol import Head, Position
from standfast._src.sessions.rules.saved_runs import RunSave
from standfast._src.sessions.storage import Count, Listing, run_program
from tests.sessions.client.test_lost_answers import AwaitedNetwork, BreakingNetwork, NetworkSession

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
KINDS = ["threads", "pipelined", "loop"]
TOGETHER = [["pipelined"], ["loop"], ["threads"], ["loop", "pipelined", "threads"]]
"""Executors on one store, as several processes have them."""


class Network(BreakingNetwork):
    """The breaking network, also for an executor that asks one thing at a time."""

    loses_answers = True

    def listing(self, kind: Any, *, after: str | None, limit: int, labels: Any) -> Any:
        return self._one(Listing(kind, after, limit, labels))

    def count(self, kind: Any) -> Any:
        return self._one(Count(kind))


def carrier_of(kind: str, network: Network) -> Any:
    if kind == "loop":
        return BorrowedLoopExecutor(AwaitedNetwork(network))
    return ThreadedExecutor(partial(_as_it_is, network), loses_answers=True, is_many=kind != "threads")


def _as_it_is(network: Any) -> Any:
    return network


def session_of(carrier: Executor, session_id: str = "talk", *, timeout_s: float = 60.0) -> NetworkSession:
    session = NetworkSession(session_id, carrier)
    session.timeout_s = timeout_s
    return session


def sealed(session: StoredSession) -> Any:
    return EncryptedSession(session.session_id, underlying_session=session, encryption_key="k" * 32)


# --- one after the other ---------------------------------------------------------------------------------------------


class Program:
    """What one task does with a session, and all that it is told."""

    def __init__(self, session: Any, dice: random.Random) -> None:
        self.session, self.dice, self.told = session, dice, list[Any]()
        self._runs, self._numbers, self._lease = session.run_store(), count(), None
        self._written: dict[str, list[Any]] = {"a": [], "b": []}
        self._revisions: dict[str, int] = {}

    async def run(self, steps: int) -> list[Any]:
        doing: list[Callable[[], Awaitable[Any]]] = [
            self.add, self.pop, self.append, self.append, self.rewind, self.replace, self.restore, self.fork,
            self.clear, self.lease, self.save, self.delete, self.record, self.record, self.prune, self.revoke,
        ]  # fmt: skip
        for _ in range(steps):
            do = self.dice.choice(doing)
            try:
                came = await do()
            except (SessionConflictError, NotFoundError, RunClaimedError, CallerError) as error:
                came = type(error)
            self.told.append((do.__name__, came, await self._seen()))
        return self.told

    async def _seen(self) -> Any:
        runs, _ = await self._runs.list_runs()
        return (
            [item["content"] for item in await self.session.get_items()],
            [item["content"] for item in await self.session.written("a")],
            sorted((run.run_id, run.status, run.revision) for run in runs),
        )

    def _new(self, begins: str, most: int) -> list[Any]:
        return [message(f"{begins} {next(self._numbers)}") for _ in range(self.dice.randint(1, most))]

    async def add(self) -> None:
        await self.session.add_items(self._new("plain", 3))

    async def pop(self) -> Any:
        return await self.session.pop_item()

    async def append(self) -> None:
        writer, new = self.dice.choice("ab"), self._new("turn", self.dice.choice([2, 40]))
        written = self._written[writer]
        start = len(written) - self.dice.randint(0, min(3, len(written)))  # with some that were stored before
        await self.session.append(written[start:] + new, writer=writer, start=start, lease=self._lease)
        written += new

    async def rewind(self) -> None:
        writer = self.dice.choice("ab")
        to = max(0, len(self._written[writer]) - self.dice.randint(0, 3))
        await self.session.rewind(writer=writer, to=to)
        del self._written[writer][to:]

    async def replace(self) -> None:
        head: Head = await self.session.head()
        await self.session.replace(self._new("summary", 2), upto=head, lease=self._lease)

    async def restore(self) -> Any:
        kept = await self.session.generations()
        if kept:
            await self.session.restore(self.dice.choice(kept).id)
        return [one.item_count for one in kept]

    async def fork(self) -> Any:
        made = await self.session.fork(f"fork {self.dice.randrange(3)}", at=self.dice.choice([None, Position(1)]))
        return [item["content"] for item in await made.get_items()]

    async def clear(self) -> Any:
        await self.session.clear_session()
        return await self.session.accepted("a"), await self.session.accepted("b"), await self.session.repair()

    async def lease(self) -> Any:
        if self._lease is None:
            self._lease = await self.session.lease(ttl_s=600, wait_s=30, renewed=False)
            return self._lease.number
        if self.dice.randrange(2):
            return await self._lease.renew()
        await self._lease.release()
        self._lease = None
        return None

    async def save(self) -> Any:
        run_id, head = self.dice.choice(["one", "two"]), b'{"n":%d}' % next(self._numbers)
        revision = await self._runs.save_run(
            run_id,
            expect=self._revisions.get(run_id, 0),
            head=head,
            tails={"log": LogTail(0, [head])},
            status=self.dice.choice(["running", "done"]),
            agent="agent",
            session_id=self.dice.choice([None, "talk"]),
        )
        self._revisions[run_id] = revision
        return revision

    async def delete(self) -> Any:
        run_id = self.dice.choice(["one", "two"])
        self._revisions.pop(run_id, None)
        return await self._runs.delete_run(run_id)

    async def prune(self) -> Any:
        pruned = await self._runs.prune_runs(keep=self.dice.randrange(3))
        self._revisions = {one: at for one, at in self._revisions.items() if await self._runs.load_run(one)}
        return pruned

    async def record(self) -> Any:
        new, written = self._new("turn", 2), self._written["a"]
        save = RunSave(f"run {next(self._numbers)}", 0, b"{}", {}, "done", "agent", "talk")
        releases, lease = self._lease is not None and self.dice.random() < 0.5, self._lease
        done = await self.session.record(
            items=new, writer="a", start=len(written), run=save, lease=lease, release=releases,
            detached=self.dice.random() < 0.5,
        )  # fmt: skip
        written += new
        self._lease = None if releases else lease
        return done.revision

    async def revoke(self) -> Any:
        self._lease = None
        return await self.session.revoke_lease()


async def writing_beside(session: NetworkSession, is_over: asyncio.Event) -> None:
    """Write to a session of its own, by the same executor, until told that it is over; nothing of it is lost."""
    added = 0
    while not is_over.is_set():
        await session.add_items([message(str(added))])
        added += 1
        await asyncio.sleep(0)
    assert await session.get_items() == [message(str(number)) for number in range(added)]


@pytest.mark.parametrize("is_sealed", [False, True], ids=["open", "sealed"])
@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("kind", KINDS)
async def test_what_a_program_is_told_does_not_depend_on_the_network(kind: str, seed: int, is_sealed: bool) -> None:
    calm = InMemoryStore()
    told = []
    network = Network(InMemoryStore(), seed)
    carrier = carrier_of(kind, network)
    is_over = asyncio.Event()
    beside = asyncio.create_task(writing_beside(session_of(carrier, "beside"), is_over))
    for one in (InlineExecutor(partial(run_program, calm), calm.lock), carrier):
        session = sealed(session_of(one)) if is_sealed else session_of(one)
        told.append(await Program(session, random.Random(seed)).run(25))
    is_over.set()
    await beside
    assert network.broken > 5
    for before, (calmly, now) in enumerate(zip(*told, strict=True)):
        assert now == calmly, (before, told[0][:before])
    if kind != "loop":
        carrier.close()


# --- at once ---------------------------------------------------------------------------------------------------------


class Tally:
    """What several tasks have done: for certain, perhaps, and not at all."""

    def __init__(self) -> None:
        self.stored: set[str] = set()
        self.unknown: set[str] = set()
        self.popped: list[str] = []
        self.unknown_pops = 0

    def note_unknown(self, words: list[str]) -> None:
        """An outcome is unknown: of what adds these, or of a pop."""
        self.unknown.update(words)
        self.unknown_pops += not words


async def given_up(doing: Coroutine[Any, Any, Any], dice: random.Random) -> Any:
    """The result, if it is there before whoever waits is cancelled."""
    task = asyncio.ensure_future(doing)
    for _ in range(dice.randrange(4)):
        await asyncio.sleep(dice.choice([0, 0.001]))
    task.cancel()
    return await task


async def worker(carrier: Executor, name: str, dice: random.Random, tally: Tally) -> None:
    patient, hasty = session_of(carrier), session_of(carrier, timeout_s=0.03)
    written = 0

    async def done(operation: Callable[[NetworkSession], Coroutine[Any, Any, Any]]) -> Any:
        match dice.randrange(3):
            case 0:
                return await operation(patient)
            case 1:
                return await operation(hasty)
            case _:
                return await given_up(operation(patient), dice)

    for number in range(16):
        words = [f"{name} {number} {place}" for place in range(2)]
        items, start = [message(word) for word in words], written

        def add(session: NetworkSession, items: list[Any] = items) -> Coroutine[Any, Any, Any]:
            return session.add_items(items)

        def append(session: NetworkSession, items: list[Any] = items, start: int = start) -> Coroutine[Any, Any, Any]:
            return session.append(items, writer=name, start=start)

        try:
            match number % 3:
                case 0:
                    await done(add)
                    tally.stored.update(words)
                case 1:
                    while not await is_done(partial(done, append)):
                        pass  # repeating is safe, whatever came of it
                    written += len(items)
                    tally.stored.update(words)
                case _:
                    taken = await done(NetworkSession.pop_item)
                    tally.popped += [] if taken is None else [taken["content"]]
        except OutcomeUnknownError:
            tally.note_unknown(words if number % 3 == 0 else [])
        except asyncio.CancelledError:
            tally.unknown.update(words)  # of an addition; what was popped is put back
        except StoreError:
            pass  # certainly not


async def is_done(operation: Callable[[], Awaitable[Any]]) -> bool:
    try:
        await operation()
    except (StoreError, asyncio.CancelledError):
        return False
    return True


@pytest.mark.parametrize("seed", range(2 * ROUNDS))
@pytest.mark.parametrize(
    "kinds", [["pipelined"], ["loop"], ["threads"], ["loop", "pipelined", "threads"]], ids="+".join
)
async def test_deadlines_and_cancellations_neither_lose_nor_double_anything(kinds: list[str], seed: int) -> None:
    dice, store, tally = random.Random(seed), InMemoryStore(), Tally()
    networks = [Network(store, dice.randrange(1000)) for _ in kinds]
    carriers = [carrier_of(kind, network) for kind, network in zip(kinds, networks, strict=True)]
    works = [worker(carriers[n % len(kinds)], f"w{n}", random.Random(dice.random()), tally) for n in range(6)]
    await asyncio.gather(*works)
    for network in networks:
        network.is_whole = True
    found = Counter[str]()
    for carrier in carriers:  # behind whatever each had still to put back
        found = Counter(item["content"] for item in await session_of(carrier).get_items())
    assert max(found.values(), default=1) == 1
    assert len(set(tally.popped)) == len(tally.popped)
    assert not set(tally.popped) & set(found)
    assert set(found) | set(tally.popped) <= tally.stored | tally.unknown
    assert len(tally.stored - set(found) - set(tally.popped)) <= tally.unknown_pops
    for kind, carrier in zip(kinds, carriers, strict=True):
        if kind != "loop":
            carrier.close()


# --- leases ----------------------------------------------------------------------------------------------------------


class OtherProcess(NetworkSession):
    """A session that knows nothing of those who wait over other executors."""

    def _store_key(self) -> Any:
        return id(self._carrier())


@pytest.mark.parametrize("seed", range(ROUNDS))
@pytest.mark.parametrize("kinds", [["pipelined"], ["loop", "pipelined"]], ids="+".join)
async def test_a_lease_has_one_holder_and_is_free_in_the_end(kinds: list[str], seed: int) -> None:
    dice, store = random.Random(seed), InMemoryStore()
    networks = [Network(store, dice.randrange(1000)) for _ in kinds]
    carriers = [carrier_of(kind, network) for kind, network in zip(kinds, networks, strict=True)]
    holding, numbers = list[str](), list[int]()

    async def holder(name: str, carrier: Executor, dice: random.Random) -> None:
        for turn in range(4):
            session = OtherProcess("talk", carrier)
            asking = session.lease(ttl_s=600, wait_s=dice.choice([0, 30]), renewed=False)
            try:
                lease = await (given_up(asking, dice) if dice.randrange(3) == 0 else asking)
            except (SessionBusyError, SessionClosedError, asyncio.CancelledError):
                continue
            holding.append(name)
            numbers.append(lease.number)
            assert holding == [name]
            await asyncio.sleep(0.001)
            holding.remove(name)
            if dice.randrange(2):
                await lease.release()
            else:
                await session.record(
                    items=[message(name)], writer=f"{name} {turn}", lease=lease, release=True, detached=True
                )

    await asyncio.gather(*(holder(f"h{n}", carriers[n % len(kinds)], random.Random(dice.random())) for n in range(4)))
    assert len(set(numbers)) == len(numbers) > 0
    for network in networks:
        network.is_whole = True
    await (await session_of(carriers[0]).lease(ttl_s=600, wait_s=30, renewed=False)).release()
    for kind, carrier in zip(kinds, carriers, strict=True):
        if kind != "loop":
            carrier.close()
