"""The loopback realtime server on a real socket: what goes wrong goes wrong on cue, and everything is written down."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from standfast._kits.testing.leaks import no_leaks
from standfast._kits.testing.loopback.faults import Gate
from standfast.testing.loopback import Script, call
from standfast.testing.realtime import (
    Close,
    Cut,
    Instead,
    LoopbackRealtimeServer,
    Lose,
    Refuse,
    Rejected,
    Slow,
    Stall,
)
from tests.testing.realtime.talking import KEY, calling, loopback


async def test_nothing_is_left_running():
    async with no_leaks():
        async with loopback(["Hello"]) as server, calling(server) as client:
            await client.send("response.create")
            await client.until("response.done")


async def test_a_server_stops_while_clients_talk_and_while_one_stands_at_a_gate():
    async with no_leaks():
        async with LoopbackRealtimeServer(["Hello there"]) as server:
            server.hold("response.output_audio.delta")
            server.fault(Stall(Gate()), on="conversation.item.create", direction="received")
            socket = await connect(server.url, additional_headers=KEY)
            await socket.send(json.dumps({"type": "response.create"}))
            await socket.send(json.dumps({"type": "conversation.item.create", "item": {}}))
            await server.until("conversation.item.create")
        first, *_ = [json.loads(message)["type"] async for message in _until_closed(socket)]
        assert first == "session.created"


async def test_the_journal_has_every_frame_both_ways():
    async with loopback(["Hello"]) as server, calling(server) as client:
        await client.type("hi")
        await client.send("response.create", event_id="mine")
        await client.until("rate_limits.updated")
        assert server.received() == [
            {
                "type": "conversation.item.create",
                "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            },
            {"type": "response.create", "event_id": "mine"},
        ]
        assert server.sent() == client.seen
        assert [frame.number for frame in server.frames(direction="sent")] == list(range(len(client.seen)))


# --- cut lines -------------------------------------------------------------------------------------------------------


async def test_a_line_cut_before_a_sent_frame_shows_everything_before_it():
    async with loopback(["Hello there"]) as server:
        server.fault(Cut(), on="response.output_audio.delta", skip=1)
        async with calling(server) as client:
            await client.send("response.create")
            await client.rest()
            assert client.kinds().count("response.output_audio.delta") == 1
            assert client.socket.close_code == 1006


async def test_a_line_cut_after_a_sent_frame_shows_that_frame():
    async with loopback(["Hello there"]) as server:
        server.fault(Cut(side="after"), on="response.output_audio.delta", skip=1)
        async with calling(server) as client:
            await client.send("response.create")
            await client.rest()
            assert client.kinds()[-1] == "response.output_audio.delta"
            assert client.kinds().count("response.output_audio.delta") == 2


@pytest.mark.parametrize(("side", "taken"), [("before", 0), ("after", 1)])
async def test_a_line_cut_at_a_received_frame_loses_the_frame_or_its_answer(side: Any, taken: int):
    async with loopback() as server:
        server.fault(Cut(side=side), on="conversation.item.create", direction="received")
        async with calling(server) as client:
            await client.type("is it there?")
            assert await client.rest() == ["session.created"]
        assert len(server.items()) == taken


async def test_every_frame_of_a_call_can_be_cut_before_and_after():
    """What the reconnection tests stand on: wherever the line is cut, the client has seen exactly what came before."""

    async def once(cut_at: int | None, side: Any) -> list[str]:
        async with loopback([call("book", {"seats": 2}), "Done"]) as server:
            if cut_at is not None:
                server.fault(Cut(side=side), skip=cut_at)
            async with calling(server) as client:
                with suppress(ConnectionClosed):  # the line may be dead before the first word
                    await client.send("response.create")
                async for event in client:
                    if event["type"] == "rate_limits.updated":
                        break
                return client.kinds()

    whole = await once(None, None)
    for place in range(len(whole)):
        assert await once(place, "before") == whole[:place]
        assert await once(place, "after") == whole[: place + 1]


async def test_a_call_goes_on_with_another_connection_after_a_cut():
    async with loopback(["Hello", "Again"]) as server:
        for number in range(2):
            async with calling(server) as client:
                await client.send("response.create")
                await client.until("response.output_audio.delta")
                if number == 0:
                    server.cut_all()
                    await client.rest()
                else:
                    await client.until("response.done")
        assert len(server.conversations) == 2
        ids = [{item["id"] for item in server.items(number)} for number in range(2)]
        assert not ids[0] & ids[1], "ids of two conversations are different"


# --- other faults ----------------------------------------------------------------------------------------------------


async def test_the_server_closes_with_any_code():
    async with loopback() as server:
        server.fault(Close(4_321, "because", side="after"), on="session.created")
        async with calling(server) as client:
            await client.rest()
            assert (client.socket.close_code, client.socket.close_reason) == (4_321, "because")
        async with calling(server) as client:
            await client.receive()
            server.close_all(1001, "going away")
            await client.rest()
            assert client.socket.close_code == 1001


async def test_the_time_limit_is_an_error_and_a_close_with_1001():
    async with loopback() as server, calling(server) as client:
        await client.receive()
        server.expire()
        event = await client.receive()
        assert event["error"]["code"] == "session_expired"
        assert event["error"]["message"] == "Your session hit the maximum duration of 60 minutes."
        await client.rest()
        assert client.socket.close_code == 1001


async def test_a_session_that_expires_by_itself():
    async with loopback(limit_s=0.0) as server, calling(server) as client:
        assert await client.rest() == ["session.created", "error"]
        assert client.socket.close_code == 1001


async def test_a_stalled_frame_holds_what_is_behind_it_and_the_reply_too():
    gate = Gate()
    async with loopback(["Hello there"]) as server, calling(server) as client:
        server.fault(Stall(gate), on="response.output_audio.delta", skip=1)
        await client.send("response.create")
        await gate.reached()
        await client.send("response.cancel")
        await server.until("response.cancel")
        gate.release()
        await client.until("response.done")
        assert client.seen[-1]["response"]["status"] == "cancelled"
        assert client.kinds().count("response.output_audio.delta") == 2


async def test_a_slow_frame_arrives_all_the_same():
    async with loopback(["Hello"]) as server, calling(server) as client:
        server.fault(Slow(0.01), on="response.output_audio.delta", times=2)
        await client.send("response.create")
        await client.until("response.done")


async def test_a_lost_frame_is_as_if_it_had_never_been():
    async with loopback() as server, calling(server) as client:
        await client.receive()
        server.fault(Lose(), on="conversation.item.create", direction="received")
        await client.type("lost")
        await client.type("kept")
        added = await client.until("conversation.item.added")
        assert added["item"]["content"][0]["text"] == "kept"
        assert len(server.items()) == 1


async def test_the_client_can_be_sent_anything():
    async with loopback() as server:
        server.fault(Instead("this is not JSON"), on="conversation.item.added")
        async with calling(server) as client:
            await client.receive()
            await client.type("hi")
            assert await client.socket.recv() == "this is not JSON"


async def test_any_frame_can_be_refused_in_any_words():
    async with loopback() as server, calling(server) as client:
        server.fault(Refuse("rate_limit_exceeded", "Slow down."), on="response.create", direction="received")
        await client.send("response.create", event_id="e1")
        error = (await client.until("error"))["error"]
        assert (error["code"], error["message"], error["event_id"]) == ("rate_limit_exceeded", "Slow down.", "e1")


async def test_what_a_client_sends_may_be_no_json():
    async with loopback() as server, calling(server) as client:
        await client.socket.send("{")
        assert (await client.until("error"))["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("status", ["failed", "incomplete"])
async def test_a_response_can_end_badly(status: str):
    async with loopback(["Hello"]) as server, calling(server) as client:
        gate = server.hold("response.done")
        await client.send("response.create")
        await gate.reached()
        server.fail_response(status)
        gate.release()
        done = await client.until("response.done")
        assert done["response"]["status"] == status


async def test_a_held_reply_does_not_hold_the_rest():
    async with loopback(Script(["Hello there"])) as server, calling(server) as client:
        gate = server.hold("response.output_audio.delta", skip=1)
        await client.send("response.create")
        await gate.reached()
        await client.type("while it is held")
        added = await client.until("conversation.item.done")
        assert added["item"]["role"] == "user"
        assert client.kinds().count("response.output_audio.delta") == 1
        gate.release()
        await client.until("response.done")


async def test_a_late_transcript_comes_when_it_is_let():
    async with loopback(["Yes"]) as server, calling(server) as client:
        await client.update(audio={"input": {"transcription": {"model": "whisper-1"}}})
        gate = server.hold("conversation.item.input_audio_transcription.completed")
        await client.say(server.speak("hello"))
        await client.until("response.done")
        await gate.reached()
        gate.release()
        completed = await client.until("conversation.item.input_audio_transcription.completed")
        assert completed["transcript"] == "hello"


# --- upgrades --------------------------------------------------------------------------------------------------------


async def test_an_upgrade_can_be_refused_with_any_status():
    async with loopback() as server:
        server.reject(Rejected(429, "Slow down.", code="rate_limit_exceeded", retry_after_s=3))
        with pytest.raises(InvalidStatus) as refused:
            await connect(server.url, additional_headers=KEY)
        response = refused.value.response
        assert response.status_code == 429
        assert response.headers["Retry-After"] == "3"
        assert json.loads(response.body)["error"]["code"] == "rate_limit_exceeded"
        async with calling(server) as client:
            assert (await client.receive())["type"] == "session.created"


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [("", {}, 401), ("?call_id=nobody", KEY, 404)],
)
async def test_an_upgrade_needs_a_key_and_a_call_that_exists(query: str, headers: dict[str, str], status: int):
    async with loopback() as server:
        with pytest.raises(InvalidStatus) as refused:
            await connect(server.url + query, additional_headers=headers)
        assert refused.value.response.status_code == status


# --- attached calls --------------------------------------------------------------------------------------------------


async def test_an_attached_call_outlives_its_connections_and_does_not_tell_what_was_missed():
    async with loopback(["First", "Second", "Third"]) as server:
        phone = server.call()
        async with calling(server, f"?call_id={phone.id}") as client:
            await client.receive()
            phone.speak(_said(server, "hello"))
            await client.until("output_audio_buffer.stopped")
        phone.speak(_said(server, "nobody is attached"))
        await _quiet(server)
        async with calling(server, f"?call_id={phone.id}") as client:
            assert (await client.receive())["type"] == "session.created"
            phone.press("5")
            event = await client.receive()
            assert (event["type"], event["event"]) == ("input_audio_buffer.dtmf_event_received", "5")
            phone.speak(_said(server, "now again"))
            await client.until("response.done")
            missed = [event for event in client.seen if "nobody" in json.dumps(event)]
            assert not missed
        assert [words for role, words in server.said() if role == "user"] == [
            "hello",
            "nobody is attached",
            "now again",
        ]
        phone.hang_up()
        with pytest.raises(InvalidStatus):
            await connect(f"{server.url}?call_id={phone.id}", additional_headers=KEY)


async def test_hanging_up_closes_the_connection_properly():
    async with loopback() as server:
        phone = server.call()
        async with calling(server, f"?call_id={phone.id}") as client:
            await client.receive()
            phone.hang_up()
            await client.rest()
            assert client.socket.close_code == 1000


async def _until_closed(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    with suppress(ConnectionClosed):
        while True:
            yield await socket.recv()


def _said(server: LoopbackRealtimeServer, words: str) -> bytes:
    from standfast.testing.realtime.audio import silence

    return silence(400) + server.speak(words) + silence(600)


async def _quiet(server: LoopbackRealtimeServer) -> None:
    """Wait until no conversation has work left; nobody is connected who could be asked."""
    async with asyncio.timeout(30):
        while server.inside(lambda: any(one.jobs for one in server.conversations)):
            await asyncio.sleep(0.005)
