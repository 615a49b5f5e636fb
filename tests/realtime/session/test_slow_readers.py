"""A reader that stops costs its own events, and nobody else's (E12)."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest

from standfast import InMemorySession
from standfast._kits.testing.leaks import no_leaks
from standfast._src.base.errors import SlowConsumerError
from standfast.realtime import RealtimeAgent, RealtimeModelAudioEvent, RealtimeRunner
from standfast.testing.realtime import LoopbackRealtimeServer, ScriptedRealtimeModel
from standfast.testing.realtime.audio import silence

pytestmark = pytest.mark.clause("E12", backend="calls")


async def opened(server: LoopbackRealtimeServer, **config: Any) -> Any:
    runner = RealtimeRunner(RealtimeAgent(name="Desk"), config={"tracing_disabled": True, **config})
    return await (await runner.run(model_config={"url": server.url, "api_key": "key"})).enter()


async def test_audio_that_nobody_reads_is_dropped_oldest_first_counted_and_reported():
    """Thirty seconds of audio, a buffer of one: bounded, and who comes late hears the newest."""
    words = " ".join(f"word{number}" for number in range(300))
    limit = 48 * 1_000
    async with no_leaks(), LoopbackRealtimeServer([words], voice=lambda said: silence(30_000)) as server:
        session = await opened(server, audio_buffer_bytes=limit, raw_events=False)
        reader = aiter(session)
        await session.send_message("talk")
        await server.until("response.done", direction="sent")
        async with asyncio.timeout(30):
            # All but one buffer is gone: whatever still arrives while it is read, no more than that can be left.
            while session.stats["audio_dropped_bytes"] < 48 * 30_000 - limit:
                await asyncio.sleep(0.005)
        kinds, size = [], 0
        async with asyncio.timeout(30):
            while "agent_end" not in kinds:
                event = await anext(reader)
                kinds.append(event.type)
                if event.type == "audio":
                    size += len(event.audio.data)
        assert size <= limit
        assert "audio_dropped" in kinds
        await session.close()


async def test_what_was_dropped_is_told_in_the_time_of_its_format():
    """A telephone's audio is 8 bytes for a millisecond, not 48."""
    words = " ".join(f"word{number}" for number in range(60))
    async with no_leaks(), LoopbackRealtimeServer([words]) as server:
        settings: Any = {"audio": {"output": {"format": "g711_ulaw"}}}
        session = await opened(server, audio_buffer_bytes=8_000, raw_events=False, model_settings=settings)
        reader = aiter(session)
        await session.send_message("talk")
        await server.until("response.done", direction="sent")
        dropped_ms, kinds = 0.0, [""]
        async with asyncio.timeout(30):
            while not session.stats["audio_dropped_bytes"]:
                await asyncio.sleep(0.005)
            while kinds[-1] != "agent_end":
                event = await anext(reader)
                kinds.append(event.type)
                dropped_ms += event.ms if event.type == "audio_dropped" else 0.0
        assert dropped_ms == session.stats["audio_dropped_bytes"] / 8
        await session.close()


async def test_what_two_readers_have_both_dropped_does_not_hold_back_what_was_said_after_it():
    """Nobody will hear it: the reply settles without it, and so does what comes behind it (E14)."""
    memory = InMemorySession("two readers")
    async with no_leaks(), LoopbackRealtimeServer(["one two three four five six"], voice=second_per_word) as server:
        runner = RealtimeRunner(RealtimeAgent(name="Desk"), config={"audio_buffer_bytes": 48_000, "raw_events": False})
        session = await runner.run(model_config={"url": server.url, "api_key": "key"}, session=memory)
        async with asyncio.timeout(60), session:
            first, second = aiter(session), aiter(session)
            await session.send_message("count")
            await server.until("response.done", direction="sent")
            while session.stats["audio_dropped_bytes"] < 2 * 48 * 5_000:  # of six seconds, by each of them
                await asyncio.sleep(0.005)
            reading = [asyncio.ensure_future(_to_the_end(one)) for one in (first, second)]
            while len(stored := await memory.get_items()) < 2:  # the last second is heard as it is played
                await asyncio.sleep(0.01)
        await asyncio.gather(*reading)
    assert [item["role"] for item in stored] == ["user", "assistant"]


def second_per_word(said: str) -> bytes:
    return silence(1_000 * len(said.split()))


async def test_half_an_hour_with_a_reader_that_stopped_is_bounded_counted_and_nobody_elses_loss():
    """Thirty minutes of audio in pieces of 100 ms: one reader takes all of it, the other nothing."""
    model = ScriptedRealtimeModel()
    session = await RealtimeRunner(RealtimeAgent(name="Desk"), model=model).run()
    piece, per_item, items = bytes(4_800), 100, 180
    async with session:
        stopped, quick = aiter(session), aiter(session)
        heard = 0
        tracemalloc.start()
        for item in range(items):
            for _ in range(per_item):
                await session.on_event(RealtimeModelAudioEvent(piece, f"r{item}", f"i{item}", 0))
                while True:
                    event = await anext(quick)
                    if event.type == "audio":
                        heard += len(event.audio.data)
                        break
            if item == items // 10:
                early, _ = tracemalloc.get_traced_memory()
        late, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert heard == items * per_item * len(piece)
        assert session.stats["audio_dropped_bytes"] > 0.9 * heard
        assert late - early < 2_000_000, "what is held grows with the length of the call"
        assert type(await anext(stopped)) is not None  # it can still come back, and hears the newest
    assert session.state == "closed"


async def test_a_reader_that_falls_behind_ends_and_the_others_go_on():
    async with no_leaks(), LoopbackRealtimeServer(lambda asked: f"You said {asked.last_text}") as server:
        session = await opened(server, event_buffer_count=16, raw_events=False)
        stopped, ended = aiter(session), 0
        quick = aiter(session)
        for number in range(12):
            await session.send_message(f"number {number}")
            async with asyncio.timeout(30):
                while True:
                    event = await anext(quick)
                    if event.type == "agent_end":
                        ended += 1
                        break
        assert ended == 12
        with pytest.raises(SlowConsumerError):
            await asyncio.wait_for(_to_the_end(stopped), 30)
        assert session.state == "open"
        await session.close()


async def _to_the_end(events: Any) -> None:
    async for _ in events:
        pass


async def test_a_reader_that_closes_its_iterator_reads_no_more_and_the_session_goes_on():
    """`contextlib.aclosing(aiter(session))`, and programs for the SDK, whose iterator is a generator."""
    async with no_leaks(), LoopbackRealtimeServer(["Hello."]) as server:
        session = await opened(server, raw_events=False)
        left, stays = aiter(session), aiter(session)
        await left.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(left)
        await session.send_message("talk")
        async with asyncio.timeout(30):
            while (await anext(stays)).type != "agent_end":
                pass
        await left.aclose()  # once more changes nothing
        await session.close()
