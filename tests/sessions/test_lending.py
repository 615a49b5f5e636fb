"""What an event loop sends itself, when the loop is blocked, closed or late, or the carrier ends meanwhile."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest

from standfast.backends.memory.session import InMemoryStore
from standfast.carrying.lending import LendingCarrier
from standfast.carrying.threads import ThreadCarrier
from standfast.conformance.check_context import message
from standfast.ground.errors import OutcomeUnknownError
from standfast.sessions.port import Answer, Ask, ask
from standfast.testing.leaks import no_leaks
from tests.sessions.test_lost_answers import LentNetwork, NetworkSession


class HeldNetwork:
    """A store whose answers to what a loop sent are held back until they are let go."""

    loses_answers = True

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self._pair: tuple[socket.socket, socket.socket] | None = None
        self.is_holding = False
        self.answer_s = 30.0
        self.sent_count = self.late_count = 0
        self.interrupts: list[BaseException] = []
        """Raised in the loop when something has left."""
        self.by: list[str] = []
        """The names of the threads that brought something to its end."""

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        with self.store.lock:
            return [ask(self.store, question) for question in questions]

    def look(self, look: Any) -> Any:
        return self.ask_many([look])[0]

    def commit(self, step: Any) -> Any:
        return self.ask_many([step])[0]

    def sent(self, questions: Sequence[Ask]) -> Held:
        self.sent_count += 1
        if self.interrupts:
            self.let_go()
            self.ask_many(questions)
            raise self.interrupts.pop()
        if not self.is_holding:
            self.let_go()
        return Held(self, self.ask_many(questions))

    def let_go(self) -> None:
        self._pair = self._pair or socket.socketpair()
        self._pair[1].send(b"!")

    @property
    def connection(self) -> socket.socket:
        self._pair = self._pair or socket.socketpair()
        return self._pair[0]

    def close(self) -> None:
        """Close the connection; it is opened again when it is needed."""
        for end in self._pair or ():
            end.close()
        self._pair = None


class Held:
    """What a loop has sent."""

    def __init__(self, network: HeldNetwork, answers: list[Answer | Exception]) -> None:
        self.connection, self.answer_s = network.connection, network.answer_s
        self._network, self._answers = network, answers

    def arrived(self) -> list[Answer | Exception] | None:
        return self._ended()

    def awaited(self, *, is_overdue: bool) -> list[Answer | Exception]:
        if is_overdue:
            self._network.late_count += 1
            raise OutcomeUnknownError("late", "Try again.")
        return self._ended()

    def _ended(self) -> list[Answer | Exception]:
        assert self.connection.recv(1) == b"!"
        self._network.by.append(threading.current_thread().name)
        return self._answers


@pytest.fixture
def network() -> HeldNetwork:
    return HeldNetwork()


@pytest.fixture
def carrier(network: HeldNetwork) -> Iterator[LendingCarrier]:
    made = LendingCarrier(partial(lambda made: made, network), loses_answers=True)
    yield made
    made.close()


async def opened(network: HeldNetwork, carrier: LendingCarrier) -> NetworkSession:
    """A session whose store the thread has opened, and that this loop asks by itself now."""
    warm, session = NetworkSession("warm", carrier), NetworkSession("talk", carrier)
    while not network.sent_count:
        await warm.add_items([message("warm")])
    await session.add_items([message("first")])
    network.sent_count = 0
    network.by.clear()
    return session


async def until(is_true: Any) -> None:
    while not is_true():
        await asyncio.sleep(0.001)


async def test_what_a_loop_asks_for_is_sent_by_it_and_together(network: HeldNetwork, carrier: LendingCarrier) -> None:
    session = await opened(network, carrier)
    for sent_count in (2, 3):  # the first time one goes alone: nobody knew that there would be more
        await asyncio.gather(*(session.add_items([message(str(number))]) for number in range(8)))
        assert network.sent_count == sent_count
    assert network.by == [threading.current_thread().name] * 3
    assert len(await session.get_items()) == 17


async def test_what_comes_while_an_answer_is_awaited_goes_with_the_next(
    network: HeldNetwork, carrier: LendingCarrier
) -> None:
    session = await opened(network, carrier)
    network.is_holding = True
    adding = [asyncio.create_task(session.add_items([message("held")]))]
    await until(lambda: network.sent_count == 1)
    adding += [asyncio.create_task(session.add_items([message(str(number))])) for number in range(5)]
    await asyncio.sleep(0.01)
    network.is_holding = False
    network.let_go()
    await asyncio.gather(*adding)
    assert network.sent_count == 2
    assert [item["content"] for item in await session.get_items()] == ["first", "held", "0", "1", "2", "3", "4"]


async def test_a_loop_that_is_blocked_holds_up_nobody_else(network: HeldNetwork, carrier: LendingCarrier) -> None:
    """Another thread writes while this one does nothing at all: it must not wait for it (A22, B7)."""
    session = await opened(network, carrier)
    network.is_holding = True
    adding = asyncio.create_task(session.add_items([message("blocked")]))
    await until(lambda: network.sent_count == 1)
    network.let_go()
    other = NetworkSession("talk", carrier)
    writing = threading.Thread(target=lambda: asyncio.run(other.add_items([message("from another thread")])))
    writing.start()
    writing.join(60)  # and meanwhile this loop is blocked
    assert not writing.is_alive()
    await adding
    assert network.by == ["standfast-carrier"]
    assert [item["content"] for item in await session.get_items()] == ["first", "blocked", "from another thread"]


def test_a_loop_that_was_closed_leaves_to_the_thread_what_it_sent(
    network: HeldNetwork, carrier: LendingCarrier
) -> None:
    session = asyncio.run(opened(network, carrier))
    adding = session.add_items([message("sent")])

    async def send() -> None:
        adding.send(None)  # what a task does; one that is dropped would complain in the log, in another test perhaps
        await until(lambda: network.sent_count == 1)

    network.is_holding = True
    loop = asyncio.new_event_loop()
    loop.run_until_complete(send())
    loop.close()  # without a word to its tasks
    network.is_holding = False
    network.let_go()
    asyncio.run(session.add_items([message("after")]))
    assert [item["content"] for item in asyncio.run(session.get_items())] == ["first", "sent", "after"]
    asyncio.run(opened(network, carrier))  # the new loop asks by itself again
    adding.close()


async def test_an_answer_that_is_late_is_given_up_and_asked_for_again(
    network: HeldNetwork, carrier: LendingCarrier
) -> None:
    session = await opened(network, carrier)
    network.is_holding, network.answer_s = True, 0.02
    await session.add_items([message("late")])
    assert network.late_count == 1
    assert [item["content"] for item in await session.get_items()] == ["first", "late"]


async def test_a_carrier_that_ends_brings_what_was_sent_and_asked_for_to_its_end(network: HeldNetwork) -> None:
    carrier = LendingCarrier(partial(lambda made: made, network), loses_answers=True)
    session = await opened(network, carrier)
    network.is_holding = True
    adding = [asyncio.create_task(session.add_items([message("sent")]))]
    await until(lambda: network.sent_count == 1)
    adding += [asyncio.create_task(session.add_items([message("asked")]))]
    await asyncio.sleep(0)
    network.let_go()
    carrier.close()
    await asyncio.gather(*adding)
    again = NetworkSession("talk", ThreadCarrier(lambda: network.store))
    assert [item["content"] for item in await again.get_items()] == ["first", "sent", "asked"]


async def test_a_cancelled_write_that_was_sent_is_not_overtaken(network: HeldNetwork, carrier: LendingCarrier) -> None:
    session = await opened(network, carrier)
    network.is_holding = True
    adding = asyncio.create_task(session.add_items([message("cancelled")]))
    await until(lambda: network.sent_count == 1)
    adding.cancel()
    began = time.monotonic()
    with pytest.raises(asyncio.CancelledError):
        await adding
    assert time.monotonic() - began < 20  # at once: nobody has let the answer go
    following = asyncio.create_task(session.add_items([message("next")]))
    reading = asyncio.create_task(session.get_items())
    await asyncio.sleep(0.01)
    assert not following.done()
    assert not reading.done()
    network.is_holding = False
    network.let_go()
    await following
    assert message("cancelled") in await reading
    assert [item["content"] for item in await session.get_items()] == ["first", "cancelled", "next"]


async def test_nothing_stays_with_the_loop_when_the_carrier_ends(network: HeldNetwork) -> None:
    async with no_leaks():
        carrier = LendingCarrier(partial(lambda made: made, network), loses_answers=True)
        session = await opened(network, carrier)
        await session.add_items([message("second")])
        assert network.sent_count == 1
        carrier.close()
        session.close()


@pytest.mark.parametrize("seed", range(6))
async def test_appends_that_break_after_a_loop_has_sent_them_are_stored_once(seed: int) -> None:
    """Some answers are lost, some come in pieces, some of it cannot be sent by the loop at all (A6, A8, B1)."""
    network = LentNetwork(InMemoryStore(), seed)
    carrier = LendingCarrier(partial(lambda made: made, network), loses_answers=True)
    session = NetworkSession("talk", carrier)

    async def write(name: str) -> None:
        for number in range(0, 40, 2):
            batch = [message(f"{name} {number + place}") for place in range(2)]
            await (session.add_items(batch) if name == "plain" else session.append(batch, writer=name, start=number))
            await asyncio.sleep(0.001)

    await asyncio.gather(*(write(name) for name in ("plain", "one", "two")))
    network.is_whole = True
    found = [str(item["content"]) for item in await session.get_items()]
    for name in ("plain", "one", "two"):
        assert [word for word in found if word.startswith(name)] == [f"{name} {number}" for number in range(40)]
    assert network.broken > 5
    assert network.sent_count > 5
    carrier.close()


async def test_a_number_that_the_carrier_has_closed_can_be_watched_for_another_file(network: HeldNetwork) -> None:
    """A loop that still had it among its files would refuse it, and break a connection of somebody else's."""
    carrier = LendingCarrier(partial(lambda made: made, network), loses_answers=True)
    await opened(network, carrier)
    carrier.close()
    await asyncio.sleep(0.01)  # the loop is told to forget it
    loop, pairs, told = asyncio.get_running_loop(), [socket.socketpair() for _ in range(8)], list[int]()
    for number, (here, there) in enumerate(pairs):  # these have the lowest numbers that are free
        loop.add_reader(here, lambda number=number, here=here: (told.append(number), here.recv(1)))
        there.send(b"!")
    await until(lambda: len(told) == 8)
    for here, there in pairs:
        loop.remove_reader(here)
        here.close()
        there.close()


async def test_a_program_that_is_interrupted_while_it_sends_takes_no_answer_for_another(
    network: HeldNetwork, carrier: LendingCarrier
) -> None:
    """Ctrl-C comes at any line: what had left is answered on a connection that nobody uses any more."""
    session, before = await opened(network, carrier), network.connection
    network.interrupts.append(SystemExit("interrupted"))
    with pytest.raises(SystemExit):
        await session.add_items([message("interrupted")])
    for number in range(3):
        await session.append([message(str(number))], writer="w", start=number)
    assert network.connection is not before
    assert [item["content"] for item in await session.get_items()] == ["first", "interrupted", "0", "1", "2"]
