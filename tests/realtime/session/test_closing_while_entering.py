"""Closing a session while it is being entered, at every step and from any task: nothing stays acquired (E1, E3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import pytest
from realtime.session.helpers import PATIENCE_S, at, until

from standfast import InMemorySession, function_tool
from standfast._src.base.errors import CloseTimeoutError, RealtimeStateError
from standfast.realtime import (
    OpenAIRealtimeWebSocketModel,
    RealtimeAgent,
    RealtimeModel,
    RealtimeModelTurnStartedEvent,
    RealtimeRunner,
    RealtimeSession,
)
from standfast.testing import LoopbackRealtimeServer, no_leaks
from standfast.testing.realtime import Lose

CLOSED = "was closed while connecting"


class Line(RealtimeModel):
    """A transport that takes a few rounds of the loop to connect, and writes down what it is asked for."""

    def __init__(self, inside: Callable[[], Awaitable[None]] | None = None) -> None:
        self.listeners: list[Any] = []
        self.log: list[str] = []
        self.is_connected = False
        self._inside = inside

    async def connect(self, options: Any) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        if self._inside is not None:
            await self._inside()
        self.is_connected = True
        self.log.append("connect")
        for listener in tuple(self.listeners):
            await listener.on_event(RealtimeModelTurnStartedEvent())
        await asyncio.sleep(0)

    def add_listener(self, listener: Any) -> None:
        self.log.append("add")
        self.listeners.append(listener)

    def remove_listener(self, listener: Any) -> None:
        self.listeners.remove(listener)

    async def send_event(self, event: Any) -> None: ...

    async def close(self) -> None:
        self.log.append("close")
        await asyncio.sleep(0)
        self.is_connected = False


async def _slowly(context: Any, agent: Any) -> str:
    for _ in range(3):
        await asyncio.sleep(0)
    return "Talk."


async def _enabled(context: Any, agent: Any) -> bool:
    await asyncio.sleep(0)
    return True


@function_tool(is_enabled=_enabled)
def menu() -> str:
    """What there is to eat."""
    return "soup"


async def assert_released(store: InMemorySession | None) -> None:
    """The lease is free: another caller gets it without waiting."""
    if store is not None:
        lease = await store.lease(ttl_s=5, wait_s=0)
        await lease.release()


async def assert_refused(entering: asyncio.Future[Any]) -> None:
    with pytest.raises(RealtimeStateError, match=CLOSED):
        await asyncio.wait_for(entering, PATIENCE_S)


@pytest.mark.parametrize("has_store", [False, True], ids=["alone", "with a session"])
async def test_closing_at_every_step_of_the_entry_leaves_nothing(has_store: bool):
    """Each round of the loop is one place where the entry can stand; the rounds end where it is through."""
    store = InMemorySession("s") if has_store else None
    rounds, outcomes = 1, []  # before the first one it is not being entered yet
    while not outcomes or outcomes[-1] != "entered":
        model = Line()
        agent = RealtimeAgent(name="Desk", instructions=_slowly, tools=[menu])
        session = await RealtimeRunner(agent, model=model).run(session=store, run_id=f"call{rounds}")
        async with no_leaks():
            entering = asyncio.ensure_future(session.enter())
            for _ in range(rounds):
                await asyncio.sleep(0)
            is_through = entering.done()
            async with asyncio.timeout(PATIENCE_S):
                await session.close()
            if is_through:
                await entering
            else:
                await assert_refused(entering)
        outcomes.append("entered" if is_through else "refused")
        assert session.state == "closed"
        assert not model.listeners
        assert not model.is_connected
        assert model.log.count("close") == 1
        assert model.log[-1] == "close"
        await assert_released(store)
        rounds += 1
        assert rounds < 1_000
    assert rounds > 10  # it has closed at that many places


@pytest.mark.parametrize("has_store", [False, True], ids=["alone", "with a session"])
@pytest.mark.parametrize("where", ["instructions", "is_enabled", "connect", "task"])
async def test_closing_by_code_that_the_entry_runs_begins_the_closing_and_returns(where: str, has_store: bool):
    """E3: it would wait for itself; the caller of `enter` gets the error."""
    store = InMemorySession("s") if has_store else None
    returned: list[str] = []

    async def hang_up() -> None:
        await session.close()
        returned.append(session.state)

    async def instructions(context: Any, agent: Any) -> str:
        if where == "instructions":
            await hang_up()
        if where == "task":
            asyncio.ensure_future(session.close()).add_done_callback(lambda done: returned.append(session.state))
            await asyncio.Event().wait()
        return "Talk."

    async def is_enabled(context: Any, agent: Any) -> bool:
        if where == "is_enabled":
            await hang_up()
        return True

    tool = function_tool(lambda: "x", name_override="x", is_enabled=is_enabled)
    model = Line(inside=hang_up if where == "connect" else None)
    agent = RealtimeAgent(name="Desk", instructions=instructions, tools=[tool])
    async with no_leaks():
        session = await RealtimeRunner(agent, model=model).run(session=store)
        await assert_refused(asyncio.ensure_future(session.enter()))
        await until(lambda: bool(returned))
    assert returned == ["closed" if where == "task" else "closing"]
    assert session.state == "closed"
    assert not model.listeners
    assert not model.is_connected
    await assert_released(store)


async def test_closing_while_the_lease_is_held_by_another_takes_no_lease():
    """The closed call took the lease when it came free, and renewed it for good."""
    store = InMemorySession("s")
    held = await store.lease(ttl_s=30, wait_s=0)
    model = Line()
    session = await RealtimeRunner(RealtimeAgent(name="Desk"), model=model).run(session=store)
    async with no_leaks():
        entering = asyncio.ensure_future(session.enter())
        for _ in range(20):
            await asyncio.sleep(0)
        assert session.state == "entering"
        await asyncio.wait_for(session.close(), PATIENCE_S)
        await assert_refused(entering)
        await held.release()
        await assert_released(store)
    assert model.log == ["close"]


async def test_an_entry_that_does_not_let_itself_be_cancelled_is_named_and_what_it_acquires_is_released():
    """A transport that swallows the cancellation connects after `close` has returned: it is closed once more."""
    go_on = asyncio.Event()

    async def stubborn() -> None:
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()

    model, store = Line(inside=stubborn), InMemorySession("s")
    config: Any = {"close_timeout_s": 0.05}
    session = await RealtimeRunner(RealtimeAgent(name="Desk"), model=model, config=config).run(session=store)
    async with no_leaks():
        entering = asyncio.ensure_future(session.enter())
        await until(lambda: "add" in model.log)
        with pytest.raises(CloseTimeoutError, match="the entry"):
            await session.close()
        assert session.state == "closed"
        await assert_released(store)
        go_on.set()
        await assert_refused(entering)
    assert model.log == ["add", "close", "connect", "close"]
    assert not model.is_connected


async def test_cancelling_the_caller_of_a_closed_entry_is_a_cancellation():
    """Both at once: a caller that is cancelled gets what it was sent."""
    model = Line()
    session = await RealtimeRunner(RealtimeAgent(name="Desk", instructions=_slowly), model=model).run()
    async with no_leaks():
        entering = asyncio.ensure_future(session.enter())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(session.close())
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await closing
    assert not model.is_connected


# --- a real websocket ------------------------------------------------------------------------------------------------


class Slow:
    """A way to the server that stands still until it is opened: before the handshake, or after so many bytes of it."""

    def __init__(self, url: str) -> None:
        self._target = urlsplit(url)
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        self.url = ""

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Serve on a port of its own."""
        server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.url = self._target._replace(netloc=f"127.0.0.1:{server.sockets[0].getsockname()[1]}").geturl()
        try:
            yield
        finally:
            server.close()
            await server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reached.set()
        waiting = asyncio.ensure_future(self.opened.wait())
        request = await reader.read(65536)
        gone = asyncio.ensure_future(reader.read(65536))
        await asyncio.wait([waiting, gone], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not gone.done():
            there, onward = await asyncio.open_connection(self._target.hostname, self._target.port)
            onward.write(request)
            await asyncio.gather(self._pump(there, writer), self._pump(reader, onward, gone))
        writer.close()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, first: asyncio.Future[bytes] | None = None
    ) -> None:
        with suppress(ConnectionError):
            while data := await (first or source.read(65536)):
                first = None
                sink.write(data)
                await sink.drain()
        sink.close()


async def entering_at(url: str, **more: Any) -> tuple[RealtimeSession, asyncio.Future[Any]]:
    session = await RealtimeRunner(RealtimeAgent(name="Desk")).run(model_config={"url": url, "api_key": "k"}, **more)
    return session, asyncio.ensure_future(session.enter())


@pytest.mark.parametrize("has_store", [False, True], ids=["alone", "with a session"])
@pytest.mark.parametrize("stage", ["handshake", "settings"])
async def test_closing_while_a_websocket_is_being_opened_leaves_no_connection(stage: str, has_store: bool):
    """The websocket opened behind the closed session, with its reader and its keepalive, and its caller hung."""
    store = InMemorySession("s") if has_store else None
    async with LoopbackRealtimeServer(["Hello."]) as server, no_leaks():
        slow = Slow(server.url)
        async with slow.serving():
            server.fault(Lose(), on="session.updated")  # entering waits for it
            session, entering = await entering_at(slow.url, session=store)
            await asyncio.wait_for(slow.reached.wait(), PATIENCE_S)
            if stage == "settings":
                slow.opened.set()
                await server.until("session.update")
            assert session.state == "entering"
            await asyncio.wait_for(session.close(), PATIENCE_S)
            await assert_refused(entering)
            slow.opened.set()
            await until(lambda: server.connection_count == 0)
            assert session.state == "closed"
            await assert_released(store)


async def test_hanging_up_a_transport_that_is_connecting_leaves_no_connection():
    """The transport by itself: `close` from another task than the one that connects."""
    async with LoopbackRealtimeServer(["Hello."]) as server, no_leaks():
        slow = Slow(server.url)
        async with slow.serving():
            model = OpenAIRealtimeWebSocketModel()
            dialling = asyncio.ensure_future(model.connect({"url": slow.url, "api_key": "k"}))
            await asyncio.wait_for(slow.reached.wait(), PATIENCE_S)
            await model.close()
            slow.opened.set()
            with pytest.raises(RealtimeStateError, match="closed while connecting"):
                await asyncio.wait_for(dialling, PATIENCE_S)
            await until(lambda: server.connection_count == 0)
            await model.connect(at(server))  # it can be used again
            await model.close()
