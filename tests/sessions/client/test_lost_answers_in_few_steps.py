"""What a lost answer did once: each defect that a breaking network has found, in the fewest steps that show it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from standfast._kits.conformance.check_context import message
from standfast._src.base.errors import (
    LeaseLostError,
    OutcomeUnknownError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.client.arguments import batch_of
from standfast._src.sessions.client.borrowed_loop_executor import BorrowedLoopExecutor
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor
from standfast._src.sessions.rules import append as writer_rules, leases
from standfast._src.sessions.rules.history import value_of
from standfast._src.sessions.rules.leases import Asker, Fence, lease_state_in
from standfast._src.sessions.rules.saved_runs import Recording, RunSave, record
from standfast._src.sessions.storage import (
    Answer,
    Ask,
    Count,
    KeyUpdate,
    Listing,
    Name,
    Plan,
    ReadAnswer,
    ReadRequest,
    Refused,
    Rows,
    run_program,
)
from tests.sessions.client.test_lost_answers import AwaitedNetwork, BreakingNetwork, NetworkSession

HERE = Name("session", "talk")
KINDS = ["threads", "pipelined", "loop"]

LOST = OutcomeUnknownError("the answer was lost", "Try again.")
AWAY = StoreUnavailableError("nobody answers", "Try again.")
BUSY = StoreTimeoutError("somebody has its lock", "Try again.")
FULL = StoreFullError("there is no room", "Make some.")

Says = Callable[[Sequence[Ask], bool], Exception | None]
"""Given what is asked, and whether a step is among it: an error to answer all of it with, or None."""


class Network(BreakingNetwork):
    """A connection that does what a function says; an answer that is lost is one of something that was done."""

    loses_answers = True

    def __init__(self, store: InMemoryStore) -> None:
        super().__init__(store, 0)
        self.store = store
        self.says: Says = lambda questions, is_step: None
        self.then: Callable[[], object] = lambda: None
        """Called when a step was done and its answer is lost."""

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """The answers, or an error for each."""
        is_step = any(not isinstance(question, ReadRequest | Listing | Count) for question in questions)
        error = self.says(questions, is_step)
        if error is not None and error is not LOST:
            return [error] * len(questions)
        answers = [self._asked(question) for question in questions]
        if error is LOST:
            self.then()
            return [error] * len(questions)
        return list(answers)

    def listing(self, kind: Any, *, after: str | None, limit: int, labels: Any) -> Any:
        return self._one(Listing(kind, after, limit, labels))

    def count(self, kind: Any) -> Any:
        return self._one(Count(kind))

    def meanwhile(self, plan: Plan[Any]) -> Any:
        """What somebody else does, who has no trouble with the network."""
        with self.store.lock:
            return run_program(self.store, plan)

    def loses_one_step(self) -> None:
        """The next step is done and its answer lost; from then on all is well."""
        steps: list[bool] = []

        def says(questions: Sequence[Ask], is_step: bool) -> Exception | None:
            steps.extend([True] * is_step)
            return LOST if is_step and len(steps) == 1 else None

        self.says = says

    def loses_one_step_and_then(self, error: Exception, *, also_looks: bool = True) -> None:
        """The next step is done and its answer lost; then it answers so, to every step or to everything."""
        steps: list[bool] = []

        def says(questions: Sequence[Ask], is_step: bool) -> Exception | None:
            if not steps:
                steps.extend([True] * is_step)
                return LOST if is_step else None
            return error if is_step or also_looks else None

        self.says = says

    def is_well(self) -> None:
        self.says = lambda questions, is_step: None


class Session(NetworkSession):
    def __init__(self, network: Network, kind: str = "pipelined", *, timeout_s: float = 60.0) -> None:
        if kind == "loop":
            carrier: Any = BorrowedLoopExecutor(AwaitedNetwork(network))
        else:
            carrier = ThreadedExecutor(partial(_as_it_is, network), loses_answers=True, is_many=kind != "threads")
        super().__init__("talk", carrier)
        self.timeout_s = timeout_s

    def end(self) -> None:
        if isinstance(self.given, ThreadedExecutor):
            self.given.close()


def _as_it_is(network: Any) -> Any:
    return network


async def words(session: Session) -> list[str]:
    return [item["content"] for item in await session.get_items()]


def append(text: str, start: int) -> Plan[Any]:
    return writer_rules.append(HERE, batch_of([message(text)], "run", start, None, None))


def taken_by_another() -> Plan[Any]:
    return leases.acquire(HERE, Asker(600.0, "another", "", "", ()), None, lambda process: False)


# --- repeats ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_rewind_is_not_repeated_on_what_its_writer_has_written_since(kind: str) -> None:
    network = Network(InMemoryStore())
    session = Session(network, kind)
    await session.append([message("a"), message("b")], writer="run", start=0)
    network.loses_one_step()
    network.then = lambda: network.meanwhile(append("c", 1))
    await session.rewind(writer="run", to=1)
    assert await words(session) == ["a", "c"]
    session.end()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lease_is_not_taken_away_from_whoever_got_it_by_that(kind: str) -> None:
    network = Network(InMemoryStore())
    session = Session(network, kind)
    await session.lease(ttl_s=600, wait_s=0, renewed=False)
    network.loses_one_step()
    network.then = lambda: network.meanwhile(taken_by_another())
    assert await session.revoke_lease() == 2
    held = lease_state_in(network.store.look(ReadRequest(HERE, cells=("lease",))))
    assert (held.nonce, held.number) == ("another", 3)
    session.end()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_record_that_gave_its_lease_back_is_known_though_another_has_it(kind: str) -> None:
    network = Network(InMemoryStore())
    session = Session(network, kind)
    lease = await session.lease(ttl_s=600, wait_s=0, renewed=False)
    network.loses_one_step()
    network.then = lambda: network.meanwhile(taken_by_another())
    save = RunSave("run", 0, b"{}", {}, "done", "agent", "talk")
    done = await session.record(items=[message("a")], writer="run", run=save, lease=lease, release=True)
    assert (done.revision, await words(session)) == (1, ["a"])
    with pytest.raises(LeaseLostError):  # one that was not done is refused as ever
        await session.append([message("a"), message("b")], writer="run", start=0, lease=lease)
    await session.append([message("a")], writer="run", start=0, lease=lease)
    session.end()


async def test_every_ended_run_is_pruned_and_counted_whoever_saved_it() -> None:
    store = InMemoryStore()
    other, session = Session(Network(store)), Session(Network(store))
    for number, one in enumerate((other, session, other, session)):
        await one.run_store().save_run(f"run {number}", expect=0, head=b"{}", tails={}, status="done", agent="a")
    assert await session.run_store().prune_runs(keep=1) == 3
    assert [run.run_id for run in (await other.run_store().list_runs())[0]] == ["run 3"]
    other.end()
    session.end()


# --- errors that are true --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [AWAY, BUSY], ids=["away", "busy"])
@pytest.mark.parametrize("kind", KINDS)
async def test_what_may_have_been_done_is_never_said_to_be_undone(kind: str, error: Exception) -> None:
    """Its first answer was lost; that the store could not be asked again says nothing about it (A6)."""
    network = Network(InMemoryStore())
    session = Session(network, kind, timeout_s=0.3)
    network.loses_one_step_and_then(error)
    with pytest.raises(OutcomeUnknownError):
        await session.add_items([message("a")])
    network.is_well()
    assert await words(session) == ["a"]
    session.end()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_store_that_is_full_by_now_is_looked_at(kind: str) -> None:
    network = Network(InMemoryStore())
    session = Session(network, kind)
    network.loses_one_step_and_then(FULL, also_looks=False)
    await session.add_items([message("a")])
    with pytest.raises(StoreFullError):
        await session.add_items([message("b")])
    assert await words(session) == ["a"]
    session.end()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_pop_whose_answer_was_lost_is_not_withdrawn_while_the_store_is_busy(kind: str) -> None:
    network = Network(InMemoryStore())
    session = Session(network, kind)
    await session.add_items([message("a")])
    loop, is_busy = asyncio.get_running_loop(), asyncio.Event()
    network.loses_one_step_and_then(BUSY)
    losing = network.says

    def says(questions: Sequence[Ask], is_step: bool) -> Exception | None:
        said = losing(questions, is_step)
        if said is BUSY:
            loop.call_soon_threadsafe(is_busy.set)
        return said

    network.says = says
    popping = asyncio.create_task(session.pop_item())
    await is_busy.wait()
    popping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await popping
    network.is_well()
    assert await words(session) == ["a"]
    session.end()


# --- what nobody waits for -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
async def test_a_lease_whose_answer_was_lost_for_good_is_given_back(kind: str) -> None:
    network = Network(InMemoryStore())
    session = Session(network, kind, timeout_s=0.5)
    network.loses_one_step_and_then(AWAY)
    with pytest.raises(OutcomeUnknownError):
        await session.lease(ttl_s=600, wait_s=0, renewed=False)
    network.is_well()
    session.timeout_s = 60
    await (await session.lease(ttl_s=600, wait_s=30, renewed=False)).release()
    session.end()


@pytest.mark.parametrize("kind", ["pipelined", "loop"])
async def test_a_lease_that_comes_when_its_session_was_closed_is_given_back(kind: str) -> None:
    """What gives it back must not be done before it was taken: its answer is lost, and it is asked for again."""
    network = Network(InMemoryStore())
    session = Session(network, kind)
    loop, has_left, rounds = asyncio.get_running_loop(), asyncio.Event(), 0

    def says(questions: Sequence[Ask], is_step: bool) -> Exception | None:
        nonlocal rounds
        rounds += 1
        if is_step and rounds < 8:
            loop.call_soon_threadsafe(has_left.set)
            return AWAY
        return None

    network.says = says
    leasing = asyncio.create_task(session.lease(ttl_s=600, wait_s=0, renewed=False))
    await has_left.wait()
    session.close()
    await asyncio.gather(leasing, return_exceptions=True)
    network.is_well()
    other = Session(network)
    await (await other.lease(ttl_s=600, wait_s=30, renewed=False)).release()
    session.end()
    other.end()


async def test_a_carrier_that_ends_puts_back_first_what_was_popped_for_nobody() -> None:
    network = Network(InMemoryStore())
    session = Session(network)
    await session.add_items([message("a")])
    has_left, go_on = threading.Event(), threading.Event()

    def says(questions: Sequence[Ask], is_step: bool) -> Exception | None:
        if not is_step or has_left.is_set():
            return None
        has_left.set()
        go_on.wait(60)
        return AWAY

    network.says = says
    popping = asyncio.create_task(session.pop_item())
    await asyncio.to_thread(has_left.wait, 60)
    popping.cancel()
    await asyncio.gather(popping, return_exceptions=True)
    carrier: Any = session.given
    carrier.close(0)  # while the pop is under way
    go_on.set()
    carrier.close(60)
    assert len(network.store.look(ReadRequest(HERE, rows=(Rows(),))).rows[0]) == 1


@pytest.mark.parametrize("again", [False, True])
async def test_a_popped_item_is_not_put_back_when_its_writer_was_taken_back(again: bool) -> None:
    network = Network(InMemoryStore())
    session = Session(network)
    await session.append([message("a"), message("b")], writer="run", start=0)
    network.loses_one_step()
    popping: list[asyncio.Task[Any]] = []
    loop = asyncio.get_running_loop()

    def then() -> None:
        asyncio.run_coroutine_threadsafe(cancelled(), loop).result(60)
        network.meanwhile(writer_rules.rewind(HERE, "run", 1, None, None))
        if again:
            network.meanwhile(append("c", 1))

    async def cancelled() -> None:
        popping[0].cancel()
        await asyncio.gather(*popping, return_exceptions=True)

    network.then = then
    popping.append(asyncio.create_task(session.pop_item()))
    with pytest.raises(asyncio.CancelledError):
        await popping[0]
    assert await words(session) == (["a", "c"] if again else ["a"])
    session.end()


# --- in the loop of a client -----------------------------------------------------------------------------------------


async def popped_for_nobody(network: Network, session: Session) -> None:
    """An item is popped, and whoever asked is gone when the answer comes."""
    await session.add_items([message("a")])
    popping = asyncio.create_task(session.pop_item())

    def says(questions: Sequence[Ask], is_step: bool) -> Exception | None:
        if is_step:
            popping.cancel()
        return None

    network.says = says
    await asyncio.gather(popping, return_exceptions=True)


async def test_what_cannot_be_undone_does_not_stop_what_comes_behind_it(caplog: pytest.LogCaptureFixture) -> None:
    network = Network(InMemoryStore())
    session = Session(network, "loop")
    await popped_for_nobody(network, session)
    network.says = lambda questions, is_step: FULL if is_step else None
    assert await asyncio.wait_for(words(session), 30) == []
    assert "cannot be undone" in caplog.text
    network.is_well()


async def test_a_store_that_is_away_is_not_asked_without_a_pause() -> None:
    network = Network(InMemoryStore())
    session = Session(network, "loop", timeout_s=0.05)
    await popped_for_nobody(network, session)
    asked = 0

    def says(questions: Sequence[Ask], is_step: bool) -> Exception | None:
        nonlocal asked
        asked += 1
        return AWAY

    network.says = says
    await asyncio.sleep(0.3)
    assert asked < 50  # it was some ten thousand
    network.is_well()
    session.timeout_s = 60
    assert await words(session) == ["a"]


@pytest.mark.parametrize("kind", ["pipelined", "loop"])
@pytest.mark.parametrize("seen_at", [HERE, Name("session", "elsewhere")])
@pytest.mark.parametrize("named", [(), ("x/1",)])
async def test_what_was_guessed_is_a_condition_of_the_step_though_its_rule_does_not_name_it(
    kind: str, seen_at: Name, named: tuple[str, ...]
) -> None:
    """A look at cells is answered from what was known of them; here another process has written one since."""
    network = Network(InMemoryStore())
    session = Session(network, kind)

    def copied() -> Plan[bytes | None]:
        sight = yield ReadRequest(seen_at, cells=("x/1", "x/2"), mark=False)
        assert isinstance(sight, ReadAnswer)
        conditions = {cell: value_of(sight, cell) for cell in named}
        got = yield [KeyUpdate(HERE, cells=conditions, put={"x/3": value_of(sight, "x/2") or b"nothing"})]
        return (yield from copied()) if isinstance(got, Refused) else value_of(sight, "x/2")

    def put(value: bytes) -> Plan[Answer]:
        return (yield [KeyUpdate(seen_at, put={"x/2": value})])

    assert await session.changed(copied) is None
    network.meanwhile(put(b"of another"))
    assert await session.changed(copied) == b"of another"
    network.meanwhile(put(b"once more"))
    assert await session.changed(copied) == b"once more"
    session.end()


def test_what_has_left_is_undone_before_the_loop_ends() -> None:
    """The end of `asyncio.run` cancels whatever serves the client, and whoever waits for it."""
    network = Network(InMemoryStore())

    class Slow(AwaitedNetwork):
        async def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
            answers = network.ask_many(questions)
            if any(change.drop for step in questions if isinstance(step, list) for change in step):
                has_left.set()
                await asyncio.sleep(0.05)
            return answers

    async def main() -> asyncio.Task[Any]:
        carrier: Executor = BorrowedLoopExecutor(Slow(network))
        session = NetworkSession("talk", carrier)
        await session.add_items([message("a")])
        popping = asyncio.create_task(session.pop_item())
        await has_left.wait()
        return popping

    has_left = asyncio.Event()
    assert asyncio.run(main()).cancelled()
    assert len(network.store.look(ReadRequest(HERE, rows=(Rows(),))).rows[0]) == 1


# --- processes and what stays ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["threads", "pipelined"])
def test_a_child_never_writes_in_a_lane_of_its_parent(kind: str) -> None:
    """Its first write would hide what the parent wrote there, and the parent would do that again."""
    session = Session(Network(InMemoryStore()), kind)
    mine = session.given.lane
    assert mine is not None
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, str(session.given.lane).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    found = os.read(reading, 1000).decode()
    os.close(reading)
    os.close(writing)
    assert found
    assert found not in (mine, "None")
    session.end()


async def test_a_clear_leaves_nothing_of_an_item_that_was_popped() -> None:
    """A pop knows its own echo by a note that outlives a clear: what it took must not be in it (A12)."""
    store = InMemoryStore()
    network = Network(store)
    session, other = Session(network), Session(Network(store))
    await session.add_items([message("a secret")])
    network.loses_one_step()
    network.then = lambda: asyncio.run_coroutine_threadsafe(other.clear_session(), loop).result(60)
    loop = asyncio.get_running_loop()
    assert await session.pop_item() == message("a secret")  # it was popped before the session was cleared
    cells = store.look(ReadRequest(HERE, prefixes=("",))).cells
    assert [cell for cell in cells if cell.startswith("l/")]
    assert not [cell for cell, found in cells.items() if b"secret" in found.value]
    session.end()
    other.end()


def test_a_fence_of_a_lease_that_was_lost_is_refused_as_ever() -> None:
    network = Network(InMemoryStore())
    network.meanwhile(taken_by_another())
    batch = batch_of([message("a")], "run", 0, None, None)
    with pytest.raises(LeaseLostError):
        network.meanwhile(record(Recording(HERE, [batch], None, Fence(0, "one"))))
