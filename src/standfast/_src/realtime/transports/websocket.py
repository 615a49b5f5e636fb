"""Websocket transport for OpenAI's realtime service: opens the connection, carries frames, and reports its end.

It decides nothing about the conversation: a session sends and receives frames through it. The path is short. `dial`
opens a socket and starts one reader; the reader notifies listeners of each raw frame, then of its meaning; the end of
the connection comes last. A failing listener and an unreadable frame harm no other listener. The state of a connection
is in `_Line`, so that none of it survives into the next.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import logging
import os
import re
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, NotRequired, Protocol, TypedDict
from urllib.parse import urlencode

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus, InvalidURI

from standfast._src.base.errors import (
    ConnectionLostError,
    ConnectionRefusedByServerError,
    RealtimeStateError,
    UserError,
)
from standfast._src.base.type_names import describe_type
from standfast._src.items.fields import make_typed
from standfast._src.realtime.machine.model_events import (
    RealtimeModelConnectionStatusEvent,
    RealtimeModelErrorEvent,
    RealtimeModelEvent,
    RealtimeModelRawServerEvent,
)
from standfast._src.realtime.machine.model_inputs import (
    RealtimeModelSendAudio,
    RealtimeModelSendEvent,
    RealtimeModelSendInterrupt,
    RealtimeModelSendRawMessage,
    RealtimeModelSendSessionUpdate,
    RealtimeModelSendToolOutput,
    RealtimeModelSendUserInput,
)
from standfast._src.realtime.machine.sdk_events import model_events
from standfast._src.realtime.machine.session_settings import RealtimeSessionModelSettings
from standfast._src.realtime.machine.transport_interface import (
    FrameTransport,
    RealtimeModelConfig,
    RealtimeModelListener,
)
from standfast._src.realtime.machine.wire_format import DEFAULT_MODEL, session_object, typed_content

__all__ = ["OpenAIRealtimeSIPModel", "OpenAIRealtimeWebSocketModel", "TransportConfig", "get_api_key"]

logger = logging.getLogger("standfast.realtime")

URL = "wss://api.openai.com/v1/realtime"
FRAME_BYTES_MAX = 8 * 1024 * 1024
# Audio comes in deltas of a few kilobytes; the largest frame is an item that was asked for with its audio.
PING_INTERVAL_S = PING_TIMEOUT_S = 5.0
# A caller notices silence after a few seconds. The library's 20 + 20 would have them talk to a dead line for forty.
CLOSE_TIMEOUT_S = 2.0
# How long the other side is waited for when we hang up; a server that is gone must not hold up the caller.


class TransportConfig(TypedDict):
    """Settings of the websocket. A missing setting keeps its default; None switches a limit off."""

    ping_interval: NotRequired[float | None]
    ping_timeout: NotRequired[float | None]
    handshake_timeout: NotRequired[float | None]
    max_size: NotRequired[int | None]


async def get_api_key(key: str | Callable[[], str | Awaitable[str]] | None) -> str | None:
    """Return the key: a given one, the result of a sync or async function, or OPENAI_API_KEY."""
    given: Any = key() if callable(key) else key
    if inspect.isawaitable(given):
        given = await given
    return given if given is not None else os.environ.get("OPENAI_API_KEY")


class OpenAIRealtimeWebSocketModel(FrameTransport):
    """A transport to a server of the Realtime protocol, with at most one connection."""

    def __init__(self, *, transport_config: TransportConfig | None = None) -> None:
        self._config: TransportConfig = transport_config or {}
        self._listeners: list[RealtimeModelListener] = []
        self._line: _Line | None = None
        self._dialling = self._hung_up = False

    # --- connecting --------------------------------------------------------------------------------------------------

    async def connect(self, options: RealtimeModelConfig) -> None:
        """Connect and send the settings. The server's events tell whether it accepts them."""
        settings = options.get("initial_model_settings") or {}
        if "url" in options:
            settings = {"model_name": None, **settings}  # type: ignore[typeddict-item]  # None: the address says it
        session = session_object(settings, attached="call_id" in options)  # a mistake in them is found before any I/O
        await self.dial(options)
        try:
            await self._send({"type": "session.update", "session": session})
        except BaseException:
            await self.close()
            raise

    async def dial(self, options: RealtimeModelConfig) -> None:
        """Connect and send nothing."""
        if self._dialling or (self._line is not None and not self._line.ended):
            raise _AlreadyConnected("Already connected", "Close this connection first, or use a model of its own.")
        self._dialling, self._hung_up = True, False
        try:
            url, headers = self._address(options), await self._headers(options)
            await self._tell(RealtimeModelConnectionStatusEvent("connecting"))
            socket = await self._open(url, headers)
            if self._hung_up:
                socket.transport.abort()
                await socket.wait_closed()
                raise RealtimeStateError("the connection was closed while connecting", "Connect again.")
            # Nothing waits between the socket and its reader: who is cancelled here has both or none.
            self._line = _Line(self, socket)
        finally:
            self._dialling = False

    def _address(self, options: RealtimeModelConfig) -> str:
        settings = options.get("initial_model_settings") or {}
        call_id, model = options.get("call_id"), settings.get("model_name")
        if call_id and model:
            raise UserError(
                "Cannot specify both `call_id` and `model_name`: a call that is in progress has its model",
                "Leave `model_name` out when attaching to a call.",
            )
        if "url" in options:
            return options["url"]
        # Encoded: an id or a name that holds `&` or `#` must not become another parameter.
        return f"{URL}?{urlencode({'call_id': call_id} if call_id else {'model': model or DEFAULT_MODEL})}"

    async def _headers(self, options: RealtimeModelConfig) -> dict[str, str]:
        if options.get("headers"):
            return dict(options["headers"])
        key = await get_api_key(options.get("api_key"))
        if not key:
            raise UserError(
                "API key is required but was not provided",
                "Give `api_key` (a text or a function) in the model config, set OPENAI_API_KEY, or give `headers`.",
            )
        return {"Authorization": f"Bearer {key}"}

    async def _open(self, url: str, headers: Mapping[str, str]) -> ClientConnection:
        config = self._config
        options: dict[str, Any] = {
            "ping_interval": config.get("ping_interval", PING_INTERVAL_S),
            "ping_timeout": config.get("ping_timeout", PING_TIMEOUT_S),
            "max_size": config.get("max_size", FRAME_BYTES_MAX),
        }
        if "handshake_timeout" in config:
            options["open_timeout"] = config["handshake_timeout"]
        try:
            return await Handshake(
                url,
                additional_headers=headers,
                user_agent_header="standfast",
                compression=None,  # audio does not compress, and trying costs more than sending
                close_timeout=CLOSE_TIMEOUT_S,
                **options,
            )
        except InvalidStatus as refused:
            raise _refused_error(refused) from refused
        except InvalidURI as wrong:
            raise UserError(
                f"{_place(url)!r} is no address of a websocket", "Give one that begins with ws:// or wss://."
            ) from wrong
        except InvalidHandshake as failed:
            raise ConnectionRefusedByServerError(
                f"the realtime server at {_place(url)} did not speak as a websocket does: {failed}",
                "Check its address.",
            ) from failed

    async def close(self) -> None:
        """Hang up. No listener is notified from then on; concurrent and repeated calls are harmless.

        A connection that another task is opening is closed by that task as soon as it is open.
        """
        self._hung_up = True
        line = self._line
        if line is not None:
            await line.close()
            if self._line is line:
                self._line = None

    # --- listeners ---------------------------------------------------------------------------------------------------

    def add_listener(self, listener: RealtimeModelListener) -> None:
        """Add a listener; adding it twice changes nothing."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def remove_listener(self, listener: RealtimeModelListener) -> None:
        """Remove a listener."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    async def _tell(self, event: RealtimeModelEvent) -> None:
        for listener in tuple(self._listeners):
            try:
                await listener.on_event(event)
            except Exception:
                # A failing listener (a metric, a log) must not end the call for the remaining ones.
                logger.exception("a listener of a realtime connection failed at %s", event.type)

    # --- sending -----------------------------------------------------------------------------------------------------

    async def send_event(self, event: RealtimeModelSendEvent) -> None:
        """Send an event as frames. A session sends raw frames; the other events are for use without a session."""
        match event:
            case RealtimeModelSendRawMessage(message):
                await self._send({"type": message["type"], **message.get("other_data", {})})
            case RealtimeModelSendAudio(audio, commit):
                append = {"type": "input_audio_buffer.append", "audio": b64encode(audio).decode("ascii")}
                # Sent together: audio of another task must not come between.
                await self._send(append, *([{"type": "input_audio_buffer.commit"}] if commit else []))
            case RealtimeModelSendUserInput(user_input):
                text, parts = typed_content(user_input)
                content = list(parts) or [{"type": "input_text", "text": text}]
                item = {"type": "message", "role": "user", "content": content}
                await self._send({"type": "conversation.item.create", "item": item}, {"type": "response.create"})
            case RealtimeModelSendToolOutput(call, output, start_response):
                item = {"type": "function_call_output", "call_id": call.call_id, "output": output}
                asks = [{"type": "response.create"}] if start_response else []
                await self._send({"type": "conversation.item.create", "item": item}, *asks)
            case RealtimeModelSendInterrupt():
                named = {} if event.response_id is None else {"response_id": event.response_id}
                if not event.playback_only:
                    await self._send({"type": "response.cancel", **named})
            case RealtimeModelSendSessionUpdate(settings):
                await self._send({"type": "session.update", "session": session_object(settings)})

    async def _send(self, *frames: Mapping[str, Any]) -> None:
        line = self._line
        if line is None:
            raise _NotConnected("Not connected", "Connect first: enter the session, or call connect().")
        await line.send(*frames)


class VoiceAgent(Protocol):
    """Agent of a voice call, as needed for its first settings: a `RealtimeAgent`."""

    async def get_session_settings(
        self, run_context: Any, *, base: Mapping[str, Any] | None = None, initial: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Resolve the settings of a call with this agent."""
        ...


class OpenAIRealtimeSIPModel(OpenAIRealtimeWebSocketModel):
    """Attachment to a telephone call accepted by the service, by its `call_id`."""

    @staticmethod
    async def build_initial_session_payload(
        agent: VoiceAgent,
        *,
        context: object = None,
        model_config: RealtimeModelConfig | None = None,
        run_config: Mapping[str, Any] | None = None,
        overrides: RealtimeSessionModelSettings | None = None,
    ) -> Any:
        """Build the first settings of a session with an agent: the body with which to accept an incoming call.

        Returns openai's `RealtimeSessionCreateRequest` if that package is loaded, else a record of the same fields.
        """
        config = run_config or {}
        initial = (model_config or {}).get("initial_model_settings") or {}
        base = {**(config.get("model_settings") or {}), **initial}
        settings = await agent.get_session_settings(context, base=base, initial={**initial, **(overrides or {})})
        if config.get("tracing_disabled"):
            settings["tracing"] = None
        module = "openai.types.realtime.realtime_session_create_request"
        return make_typed(module, "RealtimeSessionCreateRequest", session_object(settings))

    async def connect(self, options: RealtimeModelConfig) -> None:
        """Connect to the call and send the settings that were given; the rest stays as the call was set up."""
        _needs_call(options)
        await super().connect(options)

    async def dial(self, options: RealtimeModelConfig) -> None:
        """Connect to the call and send nothing."""
        _needs_call(options)
        await super().dial(options)


class _AlreadyConnected(RealtimeStateError, AssertionError):
    """Error that the SDK raises by an assertion, so it stays an AssertionError."""


class _NotConnected(RealtimeStateError, AssertionError):
    """Error that the SDK raises by an assertion, so it stays an AssertionError."""


class Handshake(connect):
    """The library's opening handshake, without redirects.

    A redirect would carry the caller's headers to another host, and the library leaves out only those it knows for
    credentials: not `api-key`, nor any other name that a provider has chosen.
    """

    def process_redirect(self, exc: Exception) -> Exception | str:
        """Return the error unchanged: a redirect is not followed."""
        return exc


_DECODER, _ENCODER = msgspec.json.Decoder(), msgspec.json.Encoder()


class _Line:
    """A connection: its socket and its reader."""

    def __init__(self, model: OpenAIRealtimeWebSocketModel, socket: ClientConnection) -> None:
        self._model, self._socket = model, socket
        self._closing = False
        self._order = asyncio.Lock()
        self._reading = asyncio.get_running_loop().create_task(self._read(), name="standfast-realtime-reader")

    @property
    def ended(self) -> bool:
        """True once the reader has ended."""
        return self._reading.done()

    async def send(self, *frames: Mapping[str, Any]) -> None:
        """Send frames one after the other, without frames of other tasks in between."""
        async with self._order:
            try:
                for frame in frames:
                    await self._socket.send(_ENCODER.encode(frame).decode())
            except ConnectionClosed as closed:
                raise _lost(closed) from closed

    async def _read(self) -> None:
        await self._model._tell(RealtimeModelConnectionStatusEvent("connected"))
        try:
            while not self._closing:
                await self._handle_message(await self._socket.recv())
        except ConnectionClosed:
            pass
        # 1000 and 1001 are ends like any other here: the time limit comes with 1001. Who closes it knows why.
        if not self._closing:
            code, reason = self._socket.close_code, self._socket.close_reason
            await self._model._tell(RealtimeModelConnectionStatusEvent("disconnected", code=code, reason=reason))

    async def _handle_message(self, message: str | bytes) -> None:
        try:
            frame = _DECODER.decode(message)
            if not isinstance(frame, dict):
                raise ValueError(f"a frame is an object, not {describe_type(frame)}")
            meanings = model_events(frame)
        except (msgspec.MsgspecError, ValueError, KeyError, TypeError, AttributeError) as error:
            return await self._model._tell(RealtimeModelErrorEvent({"type": "invalid_frame", "message": str(error)}))
        await self._model._tell(RealtimeModelRawServerEvent(frame))
        for event in meanings:
            if self._closing:
                return None
            await self._model._tell(event)
        return None

    async def close(self) -> None:
        """Hang up and wait for the reader, unless called by the reader itself."""
        self._closing = True
        with suppress(ConnectionClosed):
            await self._socket.close()
        if self._reading is not asyncio.current_task():
            # A listener that waits for something of ours would wait for ever; it is told by a cancellation.
            self._reading.cancel()
            await asyncio.wait([self._reading])


def _refused_error(refused: InvalidStatus) -> ConnectionRefusedByServerError:
    """Build the error for an HTTP status in place of a websocket."""
    status = refused.response.status_code
    said = ""
    with suppress(ValueError, KeyError, TypeError):
        said = f": {json.loads(refused.response.body or b'')['error']['message']}"
    target = refused.response.headers.get("Location") if 300 <= status < 400 else None
    if target is not None:
        said = f", a redirect to {_place(target)}, which is not followed: the key would be sent there"
    remedies = {
        401: "Check the API key.",
        403: "Check what the API key may do.",
        404: "Check the address, the model's name, or whether the call has ended.",
        429: "Wait, or raise the limits of the account.",
    }
    otherwise = "Try again; if it stays, look at the server's side."
    return ConnectionRefusedByServerError(
        f"the realtime server refused the connection with HTTP {status}{said}",
        "Give that address as `url` if the key may be sent there." if target else remedies.get(status, otherwise),
    )


def _lost(closed: ConnectionClosed) -> ConnectionLostError:
    lost = ConnectionLostError(
        f"the connection to the realtime server is gone ({closed})",
        "Connect again; a session does so by itself where reconnecting is on.",
    )
    lost.code = closed.rcvd.code if closed.rcvd is not None else 1006
    return lost


def _needs_call(options: RealtimeModelConfig) -> None:
    if not options.get("call_id"):
        raise UserError(
            "OpenAIRealtimeSIPModel needs the `call_id` of a call that was accepted",
            "Put it into the model config; it comes with the webhook about the incoming call.",
        )


def _place(url: str) -> str:
    """Return an address without parts that may be secret."""
    return re.split("[?#]", url, maxsplit=1)[0].rpartition("@")[2]
