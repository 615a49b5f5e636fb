"""Voice calls side by side with openai-agents: what a delta costs, with a transport that does nothing (`./dev bench`).

    python bench/bench_realtime.py

Every number is CPU time of this process, the best of three rounds, both libraries in one run. A reader takes every
event, as an application does.
"""

from __future__ import annotations

import asyncio
import base64
import gc
import importlib
import json
import time
import tracemalloc
from typing import Any

DELTAS = 10_000
AUDIO_DELTAS = 5_000
AUDIO = b"\0\1" * 2400  # 100 ms of pcm16
ROUNDS = 3


def library(name: str) -> Any:
    """`agents.realtime` or `standfast.realtime`."""
    return importlib.import_module(f"{name}.realtime")


def transport(realtime: Any) -> Any:
    """A transport that connects to nobody and sends nowhere."""

    class Nothing(realtime.RealtimeModel):
        def __init__(self) -> None:
            self.listener: Any = None

        async def connect(self, options: Any) -> None:
            pass

        def add_listener(self, listener: Any) -> None:
            self.listener = listener

        def remove_listener(self, listener: Any) -> None:
            pass

        async def send_event(self, event: Any) -> None:
            pass

        async def close(self) -> None:
            pass

    return Nothing()


class Count:
    """How many events of the measured kind were read."""

    read = 0


async def entered(realtime: Any, items: int, counted: str = "") -> tuple[Any, Count, asyncio.Task[None]]:
    """A session with so many items in its history, and somebody who reads it."""
    model = transport(realtime)
    session = await realtime.RealtimeRunner(realtime.RealtimeAgent(name="a"), model=model).run()
    await session.enter()

    count = Count()

    async def read() -> None:
        async for event in session:
            if event.type == counted:
                count.read += 1

    task = asyncio.ensure_future(read())
    for number in range(items):
        text = realtime.InputText(text=f"message {number}")
        item = realtime.UserMessageItem(item_id=f"u{number}", content=[text])
        await session.on_event(realtime.RealtimeModelItemUpdatedEvent(item))
        await asyncio.sleep(0)
    await asyncio.sleep(0.05)
    return session, count, task


async def transcript_deltas(name: str, items: int) -> float:
    """Microseconds of CPU for each transcript delta, its reader included."""
    realtime = library(name)
    session, count, task = await entered(realtime, items, "raw_model_event")
    before = count.read
    deltas = [realtime.RealtimeModelTranscriptDeltaEvent("i1", "word ", "r1") for _ in range(DELTAS)]
    gc.collect()
    start = time.process_time()
    for place, delta in enumerate(deltas):
        await session.on_event(delta)
        if place % 20 == 0:
            await asyncio.sleep(0)
    while count.read < before + DELTAS:
        await asyncio.sleep(0)
    spent = time.process_time() - start
    await session.close()
    await task
    return spent / DELTAS * 1e6


async def audio_deltas(name: str) -> float:
    """Microseconds of CPU for each audio delta, its reader included."""
    realtime = library(name)
    session, count, task = await entered(realtime, 10, "audio")
    deltas = [realtime.RealtimeModelAudioEvent(AUDIO, "r1", "i1", 0) for _ in range(AUDIO_DELTAS)]
    gc.collect()
    start = time.process_time()
    for place, delta in enumerate(deltas):
        await session.on_event(delta)
        if place % 20 == 0:
            await asyncio.sleep(0)
    while count.read < AUDIO_DELTAS:
        await asyncio.sleep(0)
    spent = time.process_time() - start
    await session.close()
    await task
    return spent / AUDIO_DELTAS * 1e6


class ScriptedSocket:
    """A websocket that says what it was given, at once, and takes whatever it is sent."""

    close_code, close_reason = 1000, ""

    def __init__(self, frames: list[str]) -> None:
        self._frames = iter(frames)
        self.ready = asyncio.Event()
        self.over = asyncio.Event()
        self._count = 0

    async def recv(self) -> str:
        if self._count:
            await self.ready.wait()
        self._count += 1
        if self._count % 20 == 0:
            await asyncio.sleep(0)
        frame = next(self._frames, None)
        if frame is None:
            await self.over.wait()
            raise asyncio.CancelledError
        return frame

    def __aiter__(self) -> ScriptedSocket:
        return self

    async def __anext__(self) -> str:
        return await self.recv()

    async def send(self, _: str) -> None:
        self.ready.set()  # the settings are confirmed after they were sent

    async def close(self) -> None:
        self.over.set()


def audio_frames() -> list[str]:
    """A reply of audio, as the service sends it."""
    session = {"type": "realtime", "object": "realtime.session", "id": "sess_1", "model": "gpt-realtime"}
    response = {"id": "r1", "object": "realtime.response", "status": "in_progress", "output": []}
    at = {"response_id": "r1", "item_id": "i1", "output_index": 0, "content_index": 0, "event_id": "e"}
    delta = base64.b64encode(AUDIO).decode()
    frames: list[dict[str, Any]] = [
        {"type": "session.created", "event_id": "e", "session": session},
        {"type": "session.updated", "event_id": "e", "session": session},
        {"type": "response.created", "event_id": "e", "response": response},
    ]
    item = {"id": "i1", "object": "realtime.item", "type": "message", "role": "assistant", "status": "in_progress"}
    frames.append({"type": "conversation.item.added", "event_id": "e", "item": {**item, "content": []}})
    frames += [{"type": "response.output_audio.delta", **at, "delta": delta}] * AUDIO_DELTAS
    return [json.dumps(frame) for frame in frames]


async def audio_frames_read(name: str) -> float:
    """Microseconds of CPU for each audio delta, from the text of its frame to its reader."""
    realtime = library(name)
    socket = ScriptedSocket(audio_frames())

    class Model(realtime.OpenAIRealtimeWebSocketModel):
        async def _create_websocket_connection(self, *_: Any, **__: Any) -> Any:
            return socket

        async def _open(self, *_: Any) -> Any:
            return socket

    runner = realtime.RealtimeRunner(realtime.RealtimeAgent(name="a"), model=Model())
    session = await runner.run(model_config={"api_key": "x"})
    gc.collect()
    start = time.process_time()
    await session.enter()
    read = 0
    async for event in session:
        if event.type == "audio":
            read += 1
            if read == AUDIO_DELTAS:
                break
    spent = time.process_time() - start
    await session.close()
    return spent / AUDIO_DELTAS * 1e6


async def stopped_reader(name: str, seconds: int = 120) -> float:
    """Megabytes that are held when nobody reads so many seconds of audio."""
    realtime = library(name)
    session, _, task = await entered(realtime, 0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    gc.collect()
    tracemalloc.start()
    for _ in range(seconds * 10):
        await session.on_event(realtime.RealtimeModelAudioEvent(bytes(4800), "r1", "i1", 0))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    await session.close()
    return held / 1e6


# --- ours alone, on real sockets ------------------------------------------------------------------------------------


async def restoring(items: int = 200) -> float:
    """Milliseconds from a lost connection to a new one that has the whole conversation."""
    from standfast import InMemorySession
    from standfast.realtime import RealtimeAgent, RealtimeRunner
    from standfast.testing import LoopbackRealtimeServer

    memory = InMemorySession("bench")
    await memory.add_items([{"role": "user", "content": f"message {number}"} for number in range(items)])
    config: Any = {"reconnect": {"enabled": True, "first_delay_s": 0.0}}
    async with LoopbackRealtimeServer([]) as server:
        runner = RealtimeRunner(RealtimeAgent(name="a"), config=config)
        session = await runner.run(model_config={"url": server.url, "api_key": "x"}, session=memory)
        async with session:
            while not session._scope.hands.exchange.link.seeded:  # type: ignore[union-attr]
                await asyncio.sleep(0.005)
            start = time.perf_counter()
            server.cut_all()
            async for event in session:
                if event.type == "reconnected":
                    return (time.perf_counter() - start) * 1e3
    raise AssertionError("it did not reconnect")


async def stopping() -> float:
    """Milliseconds from the end of the audio that holds speech, as it is sent, to `audio_interrupted`."""
    from standfast.realtime import RealtimeAgent, RealtimeRunner
    from standfast.testing import LoopbackRealtimeServer

    words = " ".join(f"word{number}" for number in range(200))
    settings: Any = {"model_settings": {"turn_detection": {"type": "server_vad", "interrupt_response": True}}}
    async with LoopbackRealtimeServer([words, "Yes?"]) as server:
        runner = RealtimeRunner(RealtimeAgent(name="a"), config=settings)
        session = await runner.run(model_config={"url": server.url, "api_key": "x"})
        async with session:
            await session.send_message("talk")
            start = 0.0
            async for event in session:
                if event.type == "audio_end":
                    await session.send_audio(server.speak("stop"))
                    start = time.perf_counter()
                if event.type == "audio_interrupted":
                    return (time.perf_counter() - start) * 1e3
    raise AssertionError("nothing was interrupted")


async def writes(turns: int = 5) -> float:
    """How many writes to the store a spoken turn costs: saves of the call and appends to the session."""
    from standfast import InMemorySession
    from standfast.realtime import RealtimeAgent, RealtimeRunner
    from standfast.testing import LoopbackRealtimeServer

    count = 0
    async with LoopbackRealtimeServer(["Yes."] * turns) as server:
        runner = RealtimeRunner(RealtimeAgent(name="a"))
        session = await runner.run(model_config={"url": server.url, "api_key": "x"}, session=InMemorySession("bench"))
        async with session:
            memory: Any = session._scope.memory
            for name in ("save", "append"):
                before = getattr(memory, name)

                async def counted(*arguments: Any, before: Any = before) -> None:
                    nonlocal count
                    count += 1
                    await before(*arguments)

                setattr(memory, name, counted)
            reading = asyncio.ensure_future(_drained(session))
            for _ in range(turns):
                await session.send_message("go on")
                await session.settled()
            spent = count
        await reading
    return spent / turns


async def _drained(session: Any) -> None:
    async for _ in session:
        pass


def best(work: Any) -> float:
    """The best of some rounds: noise only ever adds."""
    return min(asyncio.run(work()) for _ in range(ROUNDS))


def main() -> None:
    """Print the table."""
    names = ("agents", "standfast")
    rows: list[tuple[str, str, float, float]] = []
    for items in (10, 1_000):
        theirs, ours = (best(lambda name=name, items=items: transcript_deltas(name, items)) for name in names)
        rows.append((f"transcript delta, history of {items} items", "µs", theirs, ours))
    theirs, ours = (best(lambda name=name: audio_frames_read(name)) for name in names)
    rows.append(("audio delta of 100 ms, from its frame to its reader", "µs", theirs, ours))
    theirs, ours = (best(lambda name=name: audio_deltas(name)) for name in names)
    rows.append(("audio delta of 100 ms, from the transport's event", "µs", theirs, ours))
    theirs, ours = (asyncio.run(stopped_reader(name)) for name in names)
    rows.append(("memory held for a reader that stopped, 120 s of audio", "MB", theirs, ours))
    print(f"{'':56}{'openai-agents':>16}{'standfast':>12}{'ratio':>9}")
    for what, unit, theirs, ours in rows:
        print(f"{what:56}{theirs:>13.2f} {unit}{ours:>9.2f} {unit}{theirs / max(ours, 0.01):>8.1f}x")
    print(f"restoring 200 items on a new connection: {best(restoring):.0f} ms")
    print(f"from speech that was sent to audio_interrupted: {best(stopping):.1f} ms")
    print(f"writes to the store for a turn: {asyncio.run(writes()):.1f}")


if __name__ == "__main__":
    main()
