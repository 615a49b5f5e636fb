"""The websocket transport against the loopback server: connecting, frames, and every way a connection ends."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.http11 import Request, Response

from standfast._kits.testing.leaks import no_leaks
from standfast._src.base.errors import (
    ConnectionLostError,
    ConnectionRefusedByServerError,
    RealtimeStateError,
    UserError,
)
from standfast._src.realtime.machine.model_events import RealtimeModelToolCallEvent
from standfast._src.realtime.machine.model_inputs import (
    RealtimeModelSendAudio,
    RealtimeModelSendInterrupt,
    RealtimeModelSendRawMessage,
    RealtimeModelSendSessionUpdate,
    RealtimeModelSendToolOutput,
    RealtimeModelSendUserInput,
)
from standfast._src.realtime.machine.transport_interface import RealtimeModelListener
from standfast._src.realtime.transports import websocket
from standfast._src.realtime.transports.websocket import (
    OpenAIRealtimeSIPModel,
    OpenAIRealtimeWebSocketModel,
    TransportConfig,
    get_api_key,
)
from standfast.testing.loopback import call
from standfast.testing.realtime import Close, Cut, Instead, LoopbackRealtimeServer, Rejected
from tests.testing.realtime.talking import check_journal

ROOT = Path(__file__).resolve().parents[3]


class Listener(RealtimeModelListener):
    """Keeps what it is told, and waits."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self._changed = asyncio.Event()

    async def on_event(self, event: Any) -> None:
        self.heard.append(event)
        self._changed.set()

    def frames(self) -> list[str]:
        return [event.data["type"] for event in self.heard if event.type == "raw_server_event"]

    def statuses(self) -> list[str]:
        return [event.status for event in self.heard if event.type == "connection_status"]

    async def until(self, kind: str, count: int = 1) -> Any:
        """The event of that type (a frame's type counts too), once it was told."""
        async with asyncio.timeout(30):
            while True:
                found = [event for event in self.heard if kind in _names(event)]
                if len(found) >= count:
                    return found[count - 1]
                self._changed.clear()
                await self._changed.wait()


def _names(event: Any) -> tuple[str, ...]:
    frame = event.data["type"] if event.type == "raw_server_event" else ""
    return event.type, frame, getattr(event, "status", "")


@asynccontextmanager
async def connection(
    *answers: Any, kind: type[OpenAIRealtimeWebSocketModel] = OpenAIRealtimeWebSocketModel, **config: Any
) -> AsyncIterator[tuple[LoopbackRealtimeServer, OpenAIRealtimeWebSocketModel, Listener]]:
    async with no_leaks(), LoopbackRealtimeServer(list(answers)) as server:
        model, listener = kind(transport_config=TransportConfig(**config)), Listener()
        model.add_listener(listener)
        try:
            yield server, model, listener
        finally:
            await model.close()
    check_journal(server)


def options(server: LoopbackRealtimeServer, **more: Any) -> Any:
    return {"url": server.url, "api_key": "key", **more}


# --- connecting ------------------------------------------------------------------------------------------------------


async def test_connecting_opens_the_line_and_sends_the_settings():
    async with connection() as (server, model, listener):
        await model.connect(options(server, initial_model_settings={"instructions": "Be kind."}))
        await listener.until("session.updated")
        assert [frame["type"] for frame in server.received()] == ["session.update"]
        assert server.received()[0]["session"]["instructions"] == "Be kind."
        assert listener.statuses() == ["connecting", "connected"]
        assert listener.frames() == ["session.created", "session.updated"]


async def test_dialling_sends_nothing():
    async with connection() as (server, model, listener):
        await model.dial(options(server))
        await listener.until("session.created")
        await model.send_event(
            RealtimeModelSendRawMessage({"type": "response.cancel", "other_data": {"event_id": "e"}})
        )
        await listener.until("error")
        assert server.received() == [{"type": "response.cancel", "event_id": "e"}]


async def test_a_second_connection_is_refused_and_the_first_is_not_harmed():
    async with connection() as (server, model, listener):
        await model.connect(options(server))
        with pytest.raises(AssertionError, match="Already connected"):
            await model.connect(options(server))
        with pytest.raises(RealtimeStateError):
            await model.dial(options(server))
        await model.send_event(RealtimeModelSendRawMessage({"type": "input_audio_buffer.clear"}))
        await listener.until("input_audio_buffer.cleared")


async def test_a_connection_that_ended_can_be_made_again():
    async with connection() as (server, model, listener):
        await model.connect(options(server))
        await listener.until("session.updated")
        server.cut_all()
        await listener.until("disconnected")
        await model.connect(options(server))
        await listener.until("session.updated", 2)
        await model.close()
        await model.connect(options(server))
        await listener.until("session.updated", 3)


@pytest.mark.parametrize(
    ("config", "url"),
    [
        ({}, "wss://api.openai.com/v1/realtime?model=gpt-realtime-2.1"),
        (
            {"initial_model_settings": {"model_name": "a&b#c"}},
            "wss://api.openai.com/v1/realtime?model=a%26b%23c",
        ),
        ({"call_id": "abc&model=evil#x"}, "wss://api.openai.com/v1/realtime?call_id=abc%26model%3Devil%23x"),
        ({"url": "ws://somewhere/else?x=1"}, "ws://somewhere/else?x=1"),
    ],
)
async def test_the_address_is_built_safely(config: Any, url: str, monkeypatch: pytest.MonkeyPatch):
    dialled: list[str] = []

    async def nobody_is_there(url: str, **options: Any) -> None:
        dialled.append(url)
        raise OSError("no network")

    monkeypatch.setattr(websocket, "Handshake", nobody_is_there)
    with pytest.raises(OSError, match="no network"):
        await OpenAIRealtimeWebSocketModel().connect({**config, "api_key": "k"})
    assert dialled == [url]


async def test_a_model_for_a_call_in_progress_is_refused_before_any_io():
    with pytest.raises(UserError, match="Cannot specify both"):
        await OpenAIRealtimeWebSocketModel().connect(
            {"call_id": "c", "api_key": "k", "initial_model_settings": {"model_name": "m"}}
        )


async def test_a_key_is_a_text_a_function_or_in_the_environment(monkeypatch: pytest.MonkeyPatch):
    async def later() -> str:
        return "later"

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert [await get_api_key(key) for key in ("now", lambda: "called", later)] == ["now", "called", "later"]
    with pytest.raises(UserError, match="API key is required"):
        await OpenAIRealtimeWebSocketModel().connect({})
    monkeypatch.setenv("OPENAI_API_KEY", "from outside")
    assert await get_api_key(None) == "from outside"


async def test_headers_of_the_caller_are_sent_as_they_are_and_nothing_else(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "not this one")
    async with connection() as (server, model, _):
        with pytest.raises(ConnectionRefusedByServerError, match="401"):
            await model.connect({"url": server.url, "headers": {"x-other": "1"}})
        await model.connect({"url": server.url, "headers": {"Authorization": "Bearer mine"}})


async def test_a_refused_upgrade_says_what_the_server_said_and_what_to_do():
    async with connection() as (server, model, _):
        server.reject(Rejected(401, "Incorrect API key provided."))
        with pytest.raises(ConnectionRefusedByServerError) as refused:
            await model.connect(options(server))
        assert "Incorrect API key provided." in str(refused.value)
        assert "Check the API key" in refused.value.remedy
        await model.connect(options(server))


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_is_not_followed_so_no_key_reaches_another_host(status: int):
    """The library would send every header but three to the other server: `api-key` is not one of them."""
    reached: list[Any] = []

    async def listen(socket: ServerConnection) -> None:
        reached.append(socket.request)

    def redirect(socket: ServerConnection, request: Request) -> Response:
        answer = socket.respond(status, "elsewhere")
        answer.headers["Location"] = f"ws://{elsewhere}?token=secret"
        return answer

    async with serve(listen, "127.0.0.1", 0) as other, serve(listen, "127.0.0.1", 0, process_request=redirect) as one:
        elsewhere = f"127.0.0.1:{port_of(other)}/moved"
        model = OpenAIRealtimeWebSocketModel()
        url = f"ws://127.0.0.1:{port_of(one)}/v1/realtime"
        with pytest.raises(ConnectionRefusedByServerError, match=f"HTTP {status}") as refused:
            await model.connect({"url": url, "headers": {"api-key": "mine", "x-provider-key": "mine"}})
    assert reached == []
    assert elsewhere in str(refused.value)
    assert "secret" not in str(refused.value)
    assert "url" in refused.value.remedy


def port_of(server: Server) -> int:
    return int(next(iter(server.sockets)).getsockname()[1])


async def test_what_is_no_address_is_a_mistake_of_the_caller():
    with pytest.raises(UserError, match="is no address"):
        await OpenAIRealtimeWebSocketModel().connect({"url": "https://example.org/?key=secret", "api_key": "k"})


async def test_cancelling_while_connecting_leaves_nothing():
    async with connection() as (server, model, _):
        gate = asyncio.create_task(model.connect(options(server)))
        await asyncio.sleep(0)
        gate.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gate
        await model.close()
        await model.connect(options(server))


async def test_attaching_needs_a_call_and_leaves_its_settings_alone():
    async with connection(kind=OpenAIRealtimeSIPModel) as (server, model, listener):
        with pytest.raises(UserError, match="call_id"):
            await model.connect(options(server))
        phone = server.call()
        before = server.inside(lambda: phone.conversation.session)
        url = f"{server.url}?call_id={phone.id}"
        await model.connect(
            {"url": url, "api_key": "k", "call_id": phone.id, "initial_model_settings": {"instructions": "x"}}
        )
        updated = (await listener.until("session.updated")).data["session"]
        assert updated == {**before, "instructions": "x"}


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [1000, 1001, 1011, 4000])
async def test_the_end_is_told_with_its_code_whatever_it_is(code: int):
    """In `websockets` 1000 and 1001 end an iteration silently; the time limit comes with 1001."""
    async with connection() as (server, model, listener):
        server.fault(Close(code, "because", side="after"), on="session.updated")
        await model.connect(options(server))
        ended = await listener.until("disconnected")
        assert (ended.code, ended.reason) == (code, "because")
        assert listener.heard[-1] is ended, "nothing is told after it"


async def test_a_line_that_is_cut_is_told_as_1006():
    async with connection() as (server, model, listener):
        server.fault(Cut(), on="session.updated")
        await model.connect(options(server))
        assert (await listener.until("disconnected")).code == 1006


async def test_sending_on_a_line_that_is_gone_is_a_typed_error():
    async with connection() as (server, model, listener):
        with pytest.raises(AssertionError, match="Not connected"):
            await model.send_event(RealtimeModelSendInterrupt())
        await model.connect(options(server))
        server.close_all(1001)
        await listener.until("disconnected")
        with pytest.raises(ConnectionLostError) as lost:
            await model.send_event(RealtimeModelSendInterrupt())
        assert lost.value.code == 1001


async def test_hanging_up_tells_nothing_and_may_be_done_twice_at_once():
    async with connection("Hello") as (server, model, listener):
        await model.connect(options(server))
        await listener.until("session.updated")
        await asyncio.gather(model.close(), model.close())
        await model.close()
        assert "disconnected" not in listener.statuses()


async def test_a_listener_may_hang_up():
    async with connection() as (server, model, _):
        ended = asyncio.Event()

        class HangsUp(RealtimeModelListener):
            async def on_event(self, event: Any) -> None:
                if event.type == "raw_server_event":
                    await model.close()
                    ended.set()

        model.add_listener(HangsUp())
        await model.dial(options(server))
        await asyncio.wait_for(ended.wait(), 30)


# --- frames ----------------------------------------------------------------------------------------------------------


async def test_frames_are_told_as_they_came_and_then_what_they_mean():
    async with connection(call("book", {"seats": 2})) as (server, model, listener):
        await model.connect(options(server))
        await model.send_event(RealtimeModelSendUserInput("a table please"))
        made = await listener.until("function_call")
        assert (made.name, made.arguments) == ("book", '{"seats":2}')
        done = await listener.until("response.done")
        assert done.data == server.sent("response.done")[0]
        await listener.until("turn_ended")
        assert listener.heard.index(done) < listener.heard.index(await listener.until("turn_ended"))


async def test_every_kind_of_send_becomes_its_frames():
    async with connection("One", "Two") as (server, model, listener):
        await model.connect(options(server, initial_model_settings={"turn_detection": None}))
        await model.send_event(RealtimeModelSendAudio(bytes(9_600), commit=True))
        picture = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
        text = {"type": "input_text", "text": "look"}
        message: Any = {"type": "message", "role": "user", "content": [text, picture]}
        await model.send_event(RealtimeModelSendUserInput(message))
        await listener.until("response.done")
        await model.send_event(RealtimeModelSendInterrupt(response_id="resp_x"))
        await model.send_event(RealtimeModelSendInterrupt(playback_only=True))
        tool_call = RealtimeModelToolCallEvent("book", "call_x", "{}")
        await model.send_event(RealtimeModelSendToolOutput(tool_call, "ok", start_response=True))
        await model.send_event(RealtimeModelSendSessionUpdate({"instructions": "x"}))
        await listener.until("session.updated", 2)
        kinds = [frame["type"] for frame in server.received()]
        assert kinds == [
            "session.update",
            "input_audio_buffer.append",
            "input_audio_buffer.commit",
            "conversation.item.create",
            "response.create",
            "response.cancel",
            "conversation.item.create",
            "response.create",
            "session.update",
        ]
        assert server.received()[3]["item"]["content"] == [text, picture]


@pytest.mark.parametrize("text", ["this is no JSON", "[1, 2]", '{"type": "response.output_audio.delta"}'])
async def test_a_frame_that_cannot_be_read_is_an_event_and_the_call_goes_on(text: str):
    async with connection() as (server, model, listener):
        server.fault(Instead(text), on="session.updated")
        await model.connect(options(server))
        error = await listener.until("error")
        assert error.error["type"] == "invalid_frame"
        await model.send_event(RealtimeModelSendRawMessage({"type": "input_audio_buffer.clear"}))
        await listener.until("input_audio_buffer.cleared")


async def test_a_frame_of_a_newer_server_is_told_as_it_came_and_is_no_error():
    async with connection() as (server, model, listener):
        server.fault(Instead(json.dumps({"type": "response.smell.delta", "delta": "?"})), on="session.updated")
        await model.connect(options(server))
        await listener.until("response.smell.delta")
        assert "error" not in [event.type for event in listener.heard]


async def test_a_listener_that_fails_harms_nobody_else(caplog: pytest.LogCaptureFixture):
    class Fails(RealtimeModelListener):
        async def on_event(self, event: Any) -> None:
            raise RuntimeError("metrics are down")

    async with connection() as (server, model, listener):
        model.remove_listener(listener)
        model.add_listener(Fails())
        model.add_listener(listener)
        model.add_listener(listener)
        await model.connect(options(server))
        await listener.until("session.updated")
        assert listener.frames() == ["session.created", "session.updated"]
    assert "metrics are down" in caplog.text


async def test_a_frame_that_is_too_large_ends_the_connection_and_nothing_else():
    async with connection("a reply", max_size=2_000) as (server, model, listener):
        await model.dial(options(server))
        await listener.until("session.created")
        await model.send_event(RealtimeModelSendRawMessage({"type": "response.create"}))
        assert (await listener.until("disconnected")).code in (1006, 1009)


def test_the_release_of_websockets_is_the_one_that_was_asked_for():
    """`./dev websockets` tries others than the pinned one: what it says it tried, it tried."""
    pinned = re.search(r"^websockets==(\S+)", (ROOT / "requirements" / "dev.txt").read_text(), re.MULTILINE)
    assert pinned is not None
    wanted = os.environ.get("WEBSOCKETS") or pinned[1]
    assert f"{websockets.__version__}.".startswith(f"{wanted}.")
