"""Closing a call: from anywhere, twice, during anything, and nothing is left (E2, E3, E4)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from standfast import InMemorySession, function_tool
from standfast._kits.testing.leaks import no_leaks
from standfast._src.base.errors import CloseTimeoutError
from standfast.realtime import OpenAIRealtimeWebSocketModel, RealtimeAgent, RealtimeRunner, RealtimeSession
from standfast.testing.loopback import call
from standfast.testing.realtime import LoopbackRealtimeServer
from tests.realtime.session.parts import CONFIG, answer
from tests.runs.observing import SeedSession


async def opened(
    server: LoopbackRealtimeServer, *tools: Any, memory: Any = None, model: Any = None, **config: Any
) -> RealtimeSession:
    agent = RealtimeAgent(name="Desk", tools=list(tools))
    options: Any = {"url": server.url, "api_key": "key"}
    runner = RealtimeRunner(agent, model=model, config={**CONFIG, **config})
    return await (await runner.run(model_config=options, session=memory, run_id="call")).enter()


async def read(session: RealtimeSession) -> list[str]:
    return [event.type async for event in session]


async def test_closing_twice_at_once_and_from_another_task():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        session = await opened(server)
        await asyncio.gather(session.close(), asyncio.create_task(session.close()), session.close())
        await session.close()
        assert session.state == "closed"


async def test_entering_in_one_task_and_closing_in_another():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        session = await asyncio.create_task(opened(server))
        await asyncio.create_task(session.close())


async def test_readers_are_woken_and_read_what_was_queued():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        session = await opened(server)
        readers = [asyncio.create_task(read(session)) for _ in range(3)]
        watching = aiter(session)
        await asyncio.sleep(0)
        await session.send_message("hello")
        async with asyncio.timeout(30):
            while (await anext(watching)).type != "agent_end":
                pass
        await session.close()
        found = await asyncio.gather(*readers)
        assert all("agent_start" in kinds for kinds in found)


async def test_closing_while_somebody_speaks_and_while_a_reply_is_on_its_way():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        gate = server.hold("response.output_audio.delta", skip=1)
        session = await opened(server, memory=InMemorySession("m"))
        await session.send_message("hello")
        await gate.reached()
        await session.send_audio(server.speak("half a sen"))
        await session.close()


@pytest.mark.parametrize("where", ["tool", "iterating"])
async def test_closing_from_inside(where: str):
    ended = asyncio.Event()

    @function_tool
    async def hang_up() -> str:
        """Ends the call."""
        await session.close()
        ended.set()
        return "bye"

    async with no_leaks(), LoopbackRealtimeServer([call("hang_up"), "bye"]) as server:
        session = await opened(server, hang_up)
        await session.send_message("end it")
        if where == "iterating":
            async for event in session:
                if event.type == "agent_start":
                    await session.close()
        else:
            await asyncio.wait_for(ended.wait(), 30)
            await read(session)
        await session.close()
        assert session.state == "closed"


async def test_a_tool_that_is_running_is_cancelled_and_awaited():
    started, cleaned = asyncio.Event(), asyncio.Event()

    @function_tool
    async def slow() -> str:
        """Takes its time."""
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()
        return "never"

    async with no_leaks(), LoopbackRealtimeServer([call("slow")]) as server:
        session = await opened(server, slow)
        await session.send_message("go")
        await started.wait()
        await session.close()
        assert cleaned.is_set()


async def test_a_thread_that_cannot_be_stopped_is_named_and_reaches_nothing_any_more():
    started, go_on = threading.Event(), threading.Event()

    @function_tool
    def stubborn() -> str:
        """Cannot be stopped."""
        started.set()
        go_on.wait(60)
        return "too late"

    async with LoopbackRealtimeServer([call("stubborn"), "x"]) as server:
        session = await opened(server, stubborn, close_timeout_s=0.05)
        await session.send_message("go")
        await asyncio.to_thread(started.wait, 30)
        with pytest.raises(CloseTimeoutError, match="stubborn"):
            await session.close()
        sent = len(server.received())
        go_on.set()
        await asyncio.sleep(0.05)
        assert len(server.received()) == sent
        assert session.state == "closed"


class Unwilling(OpenAIRealtimeWebSocketModel):
    """A transport whose first close fails."""

    def __init__(self) -> None:
        super().__init__()
        self.closes = 0

    async def close(self) -> None:
        self.closes += 1
        await super().close()
        if self.closes == 1:
            raise OSError("the first close fails")


async def test_a_close_that_fails_ends_readers_tells_every_caller_and_may_be_tried_again():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        model = Unwilling()
        session = await opened(server, model=model)
        reader = asyncio.create_task(read(session))
        await asyncio.sleep(0)
        outcomes = await asyncio.gather(session.close(), session.close(), return_exceptions=True)
        assert [type(one) for one in outcomes] == [OSError, OSError]
        await asyncio.wait_for(reader, 30)
        await session.close()
        await session.close()
        assert model.closes == 2, "never repeated after it succeeded"
        assert session.state == "closed"


async def test_cancelling_one_who_waits_for_the_close_does_not_cancel_it():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        session = await opened(server)
        waiter = asyncio.create_task(session.close())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        await session.close()
        assert session.state == "closed"


async def test_an_error_in_the_block_is_not_replaced_and_the_call_is_closed():
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        session = await opened(server)
        await session.close()
        runner = RealtimeRunner(RealtimeAgent(name="Desk"))
        with pytest.raises(KeyError):
            async with await runner.run(model_config={"url": server.url, "api_key": "k"}) as other:
                raise KeyError("mine")
        assert other.state == "closed"


@pytest.mark.parametrize("memory", [None, SeedSession("p"), InMemorySession("m")], ids=["none", "plain", "record"])
async def test_pending_approvals_are_dropped_and_empty_unless_a_record_keeps_them(memory: Any):
    """E2: a call that no record keeps cannot be decided any more, so nothing may offer it for a decision."""

    @function_tool(needs_approval=True)
    def risky() -> str:
        """Needs a person."""
        return "done"

    async with no_leaks(), LoopbackRealtimeServer(lambda asked: call("risky") if not asked.outputs else "ok") as server:
        session = await opened(server, risky, memory=memory)
        reader = asyncio.create_task(read(session))
        await session.send_message("go")
        async with asyncio.timeout(30):
            while not session.pending_approvals:
                await asyncio.sleep(0.005)
        await session.close()
        kinds = await reader
        is_kept = isinstance(memory, InMemorySession)
        assert ("call_dropped" in kinds) == (not is_kept)
        assert bool(session.pending_approvals) == is_kept


class _Lease:
    """The lease of a session of another package, whose server is gone when it is given back."""

    def __init__(self, lease: Any) -> None:
        self._lease = lease

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lease, name)

    async def release(self) -> None:
        await self._lease.release()
        raise ConnectionResetError("the server has gone")


class _OtherPackage(InMemorySession):
    async def lease(self, *args: Any, **options: Any) -> Any:
        return _Lease(await super().lease(*args, **options))


async def test_a_session_that_fails_at_the_end_does_not_keep_the_connection_open():
    """E2: an error of the session, of any kind, is raised when everything else is released."""
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        session = await opened(server, memory=_OtherPackage("s"))
        with pytest.raises(ConnectionResetError):
            await session.close()
        assert session.state == "closed"
        async with asyncio.timeout(30):
            while server.connection_count:
                await asyncio.sleep(0.01)
