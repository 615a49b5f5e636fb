"""The loopback realtime server: a real websocket server on 127.0.0.1 for the realtime protocol.

`conversation` has the service's behaviour, without a network; this file has the sockets, the journal and the faults. It
needs the `websockets` library and nothing else; it runs in a thread of its own (`_kits.testing.serving`), so that it
continues when the loop under test is blocked, cancelled or closed.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.http11 import Request, Response

from standfast._kits.testing.loopback.answers import Answer, Rule, Script, as_rule
from standfast._kits.testing.loopback.faults import Gate
from standfast._kits.testing.realtime.answering import Answering, Habits
from standfast._kits.testing.realtime.calls import LoopbackCall
from standfast._kits.testing.realtime.connection import CLOSE_TIMEOUT_S, FRAME_BYTES_MAX, Connection, Hub, Serving
from standfast._kits.testing.realtime.conversation import SESSION_LIMIT_S, Conversation
from standfast._kits.testing.realtime.faults import Fault, FramePlan, Holds, Rejected
from standfast._kits.testing.realtime.journal import WAIT_S, Direction, Frame, Journal, Match
from standfast._kits.testing.realtime.speech import Ears, Voice, tones
from standfast._kits.testing.serving import ServedInThread
from standfast._src.base.extras import needed_by
from standfast._src.base.json_values import Item, copy_json

if TYPE_CHECKING:
    from openai import AsyncOpenAI

PATH = "/v1/realtime"
MODEL = "gpt-realtime-2.1"


class LoopbackRealtimeServer(ServedInThread):
    """A realtime service for tests and demos: `async with LoopbackRealtimeServer(["Hello!"]) as server: ...`.

    `answers` are those of `LoopbackServer`: a sequence of answers, a `Script`, or a rule (a function from `Asked` to an
    answer); without any it echoes. One answer is used up for each response. Constructing it does nothing.
    """

    def __init__(
        self,
        answers: Rule | Script | Sequence[Answer] | None = None,
        *,
        voice: Voice = tones,
        habits: Habits | None = None,
        pace: float = 0.0,
        limit_s: float = SESSION_LIMIT_S,
    ) -> None:
        super().__init__("standfast-realtime-loopback")
        self.answering = Answering(as_rule(answers), voice, habits=habits or Habits())
        self.journal = Journal()
        self.conversations: list[Conversation] = []
        """Every conversation there was, in the order they began. Look at them when nothing moves, or in `inside`."""
        self.calls: dict[str, LoopbackCall] = {}
        self._serving = Serving(self.answering, self.journal, FramePlan(), Holds(), pace)
        self._limit_s = limit_s
        self._rejections: list[Rejected] = []

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[int]:
        """Take connections until the block is left."""
        async with serve(
            self._serve_connection,
            "127.0.0.1",
            0,
            process_request=self._look,
            compression=None,
            ping_interval=None,
            max_size=FRAME_BYTES_MAX,
            close_timeout=CLOSE_TIMEOUT_S,
        ) as server:
            try:
                yield next(iter(server.sockets)).getsockname()[1]
            finally:
                for connection in list(self._serving.connections):
                    connection.abort()
                for hub in self._serving.hubs:
                    await hub.end()

    # --- what tests use ----------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Address without a model, for a transport with a `url` setting."""
        return f"ws://127.0.0.1:{self.port()}{PATH}"

    def client(self, **options: Any) -> AsyncOpenAI:
        """Make a real `AsyncOpenAI` whose `realtime.connect(model=...)` connects here; the caller closes it."""
        with needed_by("LoopbackRealtimeServer.client"):
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient
        # Loading certificates takes longer than most tests, and there is no TLS here.
        http = options.pop("http_client", None) or DefaultAsyncHttpxClient(verify=False)
        base_url = f"http://127.0.0.1:{self.port()}/v1"
        return AsyncOpenAI(**{"base_url": base_url, "api_key": "loopback", "http_client": http, **options})

    @property
    def ears(self) -> Ears:
        """Speech recognition of the server: teach it the words of the test."""
        return self.answering.ears

    def speak(self, words: str) -> bytes:
        """Return words as speech in the server's voice (PCM, 24 kHz), and teach them to its ears."""
        pcm = self.answering.voice(words)
        self.ears.learn(words, pcm)
        return pcm

    def hear_as(self, *transcripts: str | None) -> None:
        """Set the transcripts of the next utterances, regardless of the audio; None cannot be transcribed."""
        self.answering.transcripts.extend(transcripts)

    def frames(self, wanted: Match = "any", direction: Direction | None = None) -> list[Frame]:
        """Return the matching frames so far, in both directions or one."""
        return self.journal.find(wanted, direction)

    def received(self, wanted: Match = "any") -> list[Any]:
        """Return the events received from clients so far."""
        return [frame.body for frame in self.frames(wanted, "received")]

    def sent(self, wanted: Match = "any") -> list[Any]:
        """Return the events sent to clients so far."""
        return [frame.body for frame in self.frames(wanted, "sent")]

    async def until(
        self, wanted: Match, *, direction: Direction = "received", count: int = 1, timeout_s: float = WAIT_S
    ) -> Any:
        """Wait until the server has received (or sent) `count` matching frames; return the last one's event."""
        return (await self.journal.until(wanted, direction, count, timeout_s)).body

    def fault(
        self, *faults: Fault, on: Match = "any", direction: Direction = "sent", skip: int = 0, times: int = 1
    ) -> None:
        """Queue faults for the next matching frame (after `skip` of them, `times` times)."""
        self._serving.plan.add(faults, on=on, direction=direction, skip=skip, times=times)

    @property
    def faults_waiting(self) -> int:
        """Number of unused faults; a test that ends with some did not test its intention."""
        return self._serving.plan.waiting + len(self._rejections)

    def hold(self, kind: str, *, skip: int = 0, about: str = "") -> Gate:
        """Hold the service before its next event of a type (after `skip` of them), until the gate is released.

        Only the job of the event waits: while a reply is held, the server still listens and answers. With `about`, only
        a reply to these words (or a transcript of them) counts.
        """
        return self._serving.holds.add(kind, skip, about)

    def reject(self, rejected: Rejected | int, *, times: int = 1) -> None:
        """Answer the next attempts to connect with an HTTP status; `times=0`: from now on take all of them again."""
        if not times:
            self._rejections.clear()
        one = Rejected(rejected) if isinstance(rejected, int) else rejected
        self._rejections.extend([one] * times)

    def close_all(self, code: int = 1001, reason: str = "") -> None:
        """Close every connection properly, like a server that shuts down."""
        self._each(lambda connection: connection.close(code, reason))

    def cut_all(self) -> None:
        """Cut every connection without a word."""
        self._each(lambda connection: connection.cut())

    def expire(self) -> None:
        """Let the time limit be reached now, on every connection: an error and a close with 1001."""
        minutes = round(self._limit_s / 60)
        self._each(lambda connection: connection.expire(minutes))

    def _each(self, act: Callable[[Connection], None]) -> None:
        def all_of_them() -> None:
            for connection in list(self._serving.connections):
                act(connection)

        self.inside(all_of_them)

    def fail_response(self, status: str = "failed", reason: str = "") -> None:
        """End the response under way as "failed" or "incomplete" at its end."""

        def fail() -> None:
            for conversation in self.conversations:
                if conversation.active is not None:
                    given: Any = (status, reason or {"incomplete": "max_output_tokens"}.get(status, "server_error"))
                    conversation.active.fails = given

        self.inside(fail)

    def call(self, model: str = MODEL) -> LoopbackCall:
        """Start a phone or WebRTC call: connections attach to it by its id and may come and go."""
        call_id = f"rtc_loopback{len(self.calls) + 1:04d}"
        hub = self.inside(lambda: self._open(model, attached=True))
        self.calls[call_id] = LoopbackCall(hub, call_id, self.inside)
        return self.calls[call_id]

    def items(self, conversation: int = -1) -> list[Item]:
        """Return the stored items of a conversation, by default the newest."""
        found = self.inside(lambda: [copy_json(held.item) for held in self.conversations[conversation].items])
        return list(found)

    def said(self, conversation: int = -1) -> list[tuple[str, str]]:
        """Role and words of every message of a conversation, as far as they were heard."""
        return self.inside(lambda: list(self.conversations[conversation].said()))

    @property
    def refused(self) -> list[str]:
        """Codes of all refusals, of all conversations."""
        return self.inside(lambda: [code for one in self.conversations for code in one.refused])

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self._serving.connections)

    # --- connecting --------------------------------------------------------------------------------------------------

    async def _look(self, connection: ServerConnection, request: Request) -> Response | None:
        """Refuse an upgrade like the service, or on behalf of a test."""
        if self._rejections:
            return _response(self._rejections.pop(0))
        parts = urlsplit(request.path)
        query = parse_qs(parts.query)
        if parts.path.rstrip("/") != PATH:
            return _response(Rejected(404, f"Invalid URL (GET {parts.path})"))
        if not request.headers.get("Authorization", "").startswith("Bearer "):
            message = "Missing bearer or basic authentication in header"
            return _response(Rejected(401, message, code="missing_authentication"))
        call_id = query.get("call_id", [None])[0]
        call = self.calls.get(call_id or "")
        if call_id is not None and (call is None or call.over):
            return _response(Rejected(404, f"No session found for call_id: {call_id}", code="call_id_not_found"))
        return None

    async def _serve_connection(self, socket: ServerConnection) -> None:
        assert socket.request is not None
        query = parse_qs(urlsplit(socket.request.path).query)
        call_id = query.get("call_id", [None])[0]
        if call_id is not None:
            hub = self.calls[call_id].hub
        else:
            hub = self._open(query.get("model", [MODEL])[0], attached=False)
        await Connection(self._serving, socket, hub).serve()

    def _open(self, model: str, *, attached: bool) -> Hub:
        """Begin a conversation, in the server's loop."""
        hub = Hub(self._serving)
        name = str(len(self.conversations) + 1)
        conversation = Conversation(
            self.answering, hub.tell, name=name, model=model, attached=attached, limit_s=self._limit_s
        )
        hub.begin(conversation)
        self.conversations.append(conversation)
        return hub


def _response(rejected: Rejected) -> Response:
    error = {"message": rejected.message, "type": "invalid_request_error", "code": rejected.code, "param": None}
    body = json.dumps({"error": error}).encode()
    headers = Headers({"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"})
    if rejected.retry_after_s is not None:
        headers["Retry-After"] = f"{rejected.retry_after_s:g}"
    return Response(rejected.status, HTTPStatus(rejected.status).phrase, headers, body)
