"""`LoopbackPhone` behaves as a carrier does: time, marks, `clear`, keys, lost streams."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from standfast._kits.testing.leaks import no_leaks
from standfast._kits.testing.realtime.speech import tones
from standfast.testing.realtime.audio import PCMU, silence
from tests.testing.realtime.voice_example import LoopbackPhone, Mark


class Program:
    """What a program at the other end sees and sends."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.socket: ServerConnection | None = None
        self._changed = asyncio.Event()

    async def serve(self, socket: ServerConnection) -> None:
        self.socket = socket
        async for message in socket:
            self.messages.append(json.loads(message))
            self._changed.set()

    def of(self, event: str) -> list[dict[str, Any]]:
        return [message for message in self.messages if message["event"] == event]

    async def until(self, event: str, count: int = 1) -> dict[str, Any]:
        async with asyncio.timeout(30):
            while len(self.of(event)) < count:
                self._changed.clear()
                await self._changed.wait()
        return self.of(event)[count - 1]

    async def send(self, event: str, **fields: Any) -> None:
        assert self.socket is not None
        await self.socket.send(json.dumps({"event": event, "streamSid": "MZ", **fields}))

    async def play(self, pcm: bytes) -> None:
        data = PCMU.from_pcm(pcm)
        for start in range(0, len(data), 160):
            await self.send("media", media={"payload": base64.b64encode(data[start : start + 160]).decode()})

    async def mark(self, name: str) -> None:
        await self.send("mark", mark={"name": name})


@asynccontextmanager
async def line(**options: Any) -> AsyncIterator[tuple[Program, LoopbackPhone]]:
    program = Program()
    async with no_leaks(), serve(program.serve, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        async with LoopbackPhone(f"ws://127.0.0.1:{port}/media", **options) as phone:
            yield program, phone


async def test_a_call_begins_as_carriers_begin_it():
    async with line(parameters={"customer": "7"}) as (program, phone):
        start = (await program.until("start"))["start"]
        assert program.messages[0]["event"] == "connected"
        assert start["callSid"] == phone.call_id
        assert start["mediaFormat"] == {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}
        assert start["customParameters"] == {"customer": "7"}


async def test_what_the_caller_says_arrives_in_frames_of_20_ms():
    async with line() as (program, phone):
        await phone.say(tones("hello"))
        await phone.pass_time(100)
        data = PCMU.from_pcm(tones("hello"))
        frames = -(-len(data) // 160)
        await program.until("media", frames + 5)
        payloads = [base64.b64decode(message["media"]["payload"]) for message in program.of("media")]
        assert {len(payload) for payload in payloads} == {160}
        assert b"".join(payloads).startswith(data)
        assert set(b"".join(payloads)[len(data) :]) == {0xFF}


async def test_marks_come_back_when_what_was_before_them_has_been_played():
    async with line() as (program, phone):
        await program.until("start")
        await program.play(tones("one"))
        await program.mark("first")
        await program.play(tones("two"))
        await program.mark("second")
        await phone.until(lambda: phone.buffered_ms == 2 * 70)
        assert not phone.marks
        await phone.pass_time(80)
        assert phone.marks == [Mark("first", heard=True)]
        await phone.pass_time(80)
        assert phone.marks == [Mark("first", heard=True), Mark("second", heard=True)]
        await program.until("mark", 2)
        assert phone.heard == PCMU.from_pcm(tones("one two"))


async def test_a_mark_with_nothing_before_it_comes_back_at_once():
    async with line() as (program, phone):
        await program.until("start")
        await program.mark("empty")
        assert (await program.until("mark"))["mark"]["name"] == "empty"
        assert phone.marks == [Mark("empty", heard=True)]


async def test_clear_drops_what_was_not_played_and_returns_all_marks_at_once():
    async with line() as (program, phone):
        await program.until("start")
        await program.play(tones("one"))
        await program.mark("first")
        await program.play(tones("two three"))
        await program.mark("second")
        await phone.until(lambda: phone.buffered_ms == 70 + 70 + 110)
        await phone.pass_time(100)
        await program.send("clear")
        await program.until("mark", 2)
        assert phone.marks == [Mark("first", heard=True), Mark("second", heard=False)]
        assert phone.cleared_ms == 250 - 100
        assert PCMU.ms(phone.heard) == 100


async def test_keys_and_the_end():
    async with line() as (program, phone):
        await phone.press("5")
        assert (await program.until("dtmf"))["dtmf"]["digit"] == "5"
        await phone.hang_up()
        assert (await program.until("stop"))["stop"]["callSid"] == phone.call_id
        assert phone.over


async def test_a_lost_stream_is_opened_again_for_the_same_call():
    async with line() as (program, phone):
        await program.until("start")
        await program.play(tones("never heard"))
        await program.mark("lost")
        await phone.until(lambda: phone.buffered_ms > 0)
        assert program.socket is not None
        program.socket.transport.abort()
        again = await program.until("start", 2)
        assert again["start"]["callSid"] == phone.call_id
        assert again["streamSid"] != program.of("start")[0]["streamSid"]
        assert phone.streams == 2
        assert not phone.marks
        assert phone.cleared_ms == PCMU.ms(PCMU.from_pcm(tones("never heard")))
        await phone.say(tones("hello"))
        await program.until("media")


async def test_a_program_that_closes_properly_ends_the_call():
    async with line() as (program, phone):
        await program.until("start")
        assert program.socket is not None
        await program.socket.close()
        await phone.until(lambda: phone.over)
        assert phone.streams == 1


async def test_in_real_time_it_plays_by_itself():
    async with line(real_time=True) as (program, phone):
        await program.until("start")
        await program.play(silence(40))
        await program.mark("end")
        await program.until("mark")
        await phone.say(tones("hi"))
        await program.until("media", 3)


async def test_nobody_answers():
    with pytest.raises(OSError):
        async with LoopbackPhone("ws://127.0.0.1:9/media"):
            pass
