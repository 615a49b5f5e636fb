"""The loopback provider: a real HTTP server on 127.0.0.1 with the APIs of the OpenAI service.

It runs in a thread of its own (`_kits.testing.serving`). Every request takes the same way: journal it, meet its faults,
check it, prepare the reply, commit, send. `stop` (or the end of the `with` block) hangs up every connection and waits
for the thread; nothing is left running.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any

from standfast._kits.testing.loopback import conversations
from standfast._kits.testing.loopback.answers import Answer, Asked, Rule, Script, as_rule
from standfast._kits.testing.loopback.chat import ChatExchange
from standfast._kits.testing.loopback.checks import Refused
from standfast._kits.testing.loopback.exchanges import Exchange, compact, frames
from standfast._kits.testing.loopback.faults import (
    Cut,
    Drip,
    Drop,
    ErrorEvent,
    Fault,
    FaultPlan,
    Faults,
    Gate,
    Malformed,
    Matcher,
    Status,
)
from standfast._kits.testing.loopback.http11 import (
    HEAD_BYTES_MAX,
    HttpRequest,
    HungUp,
    Line,
    chunk,
    head,
    read_request,
    send_json,
    sse,
    to_json,
)
from standfast._kits.testing.loopback.journal import Received
from standfast._kits.testing.loopback.ledger import Ledger
from standfast._kits.testing.serving import ServedInThread
from standfast._src.base.extras import needed_by
from standfast._src.base.json_values import Item, copy_json

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI


class LoopbackServer(ServedInThread):
    """A provider for tests and tutorials: `with LoopbackServer(["Hello!"]) as server: ...`.

    `answers` is a sequence of answers (a `Script`), a `Script`, or a rule (a function from `Asked` to an answer);
    without any it echoes. Constructing it does nothing; entering starts it.
    """

    def __init__(self, answers: Rule | Script | Sequence[Answer] | None = None) -> None:
        super().__init__("standfast-loopback")
        self.rule: Rule = as_rule(answers)
        self._faults = FaultPlan()
        self._ledger = Ledger()
        self._lock = RLock()
        self._journal: list[Received] = []
        self._connections: set[asyncio.Task[None]] = set()
        self.connection_count = 0
        """Number of connections so far: a client that reuses them makes few."""

    # --- starting and stopping -----------------------------------------------------------------------------------

    @asynccontextmanager
    async def listen(self) -> AsyncIterator[int]:
        """Take connections until the block is left."""
        server = await asyncio.start_server(self._serve_connection, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            server.close()
            for task in list(self._connections):
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await server.wait_closed()

    # --- what tests use ------------------------------------------------------------------------------------------

    @property
    def base_url(self) -> str:
        """Address of the API, for a client's `base_url`."""
        return f"http://127.0.0.1:{self.port()}/v1"

    def client(self, **options: Any) -> AsyncOpenAI:
        """Make a real `AsyncOpenAI` for this server; the caller closes it."""
        with needed_by("LoopbackServer.client"):
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient
        # Loading certificates takes longer than most tests, and there is no TLS here.
        http = options.pop("http_client", None) or DefaultAsyncHttpxClient(verify=False)
        return AsyncOpenAI(**{"base_url": self.base_url, "api_key": "loopback", "http_client": http, **options})

    def sync_client(self, **options: Any) -> OpenAI:
        """Make a real `OpenAI` (the synchronous client) for this server; the caller closes it."""
        with needed_by("LoopbackServer.sync_client"):
            from openai import DefaultHttpxClient, OpenAI
        http = options.pop("http_client", None) or DefaultHttpxClient(verify=False)
        return OpenAI(**{"base_url": self.base_url, "api_key": "loopback", "http_client": http, **options})

    @property
    def requests(self) -> list[Received]:
        """All requests so far, in order of arrival."""
        return list(self._journal)

    @property
    def model_calls(self) -> list[Received]:
        """Requests to the model."""
        return [received for received in self.requests if received.is_model_call]

    def fault(self, *faults: Fault, on: Matcher = "model", skip: int = 0, times: int = 1) -> None:
        """Let something go wrong for the next matching request (after `skip` of them, `times` times).

        `on` is "model" (requests for a reply), "any", a part of the path, or a function of the request. Faults given
        together happen to the same request.
        """
        self._faults.add(faults, on=on, skip=skip, times=times)

    @property
    def faults_waiting(self) -> int:
        """Number of unused faults; a test that ends with some did not test its intention."""
        return self._faults.waiting

    def clear_faults(self) -> None:
        """Remove unused faults: for a test with an unknown number of requests."""
        self._faults.clear()

    def history(self, owner_id: str) -> list[Item]:
        """The server's idea of a history: of a conversation, or of the chain that ends in a response."""
        with self._lock:
            if owner_id in self._ledger.conversations:
                items = self._ledger.conversations[owner_id].items
            else:
                items = self._ledger.chain(owner_id)
            return [copy_json(item) for item in items]

    def new_conversation(self, items: Sequence[Item] = ()) -> str:
        """Create a conversation directly, without a request, and return its id."""
        with self._lock:
            return self._ledger.new_conversation(items).id

    def forget(self, response_id: str) -> None:
        """Lose a stored response, as the service does when its time is over."""
        with self._lock:
            del self._ledger.responses[response_id]

    # --- one connection ------------------------------------------------------------------------------------------

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self.connection_count += 1
        try:
            while (request := await read_request(reader)) is not None:
                await self._respond(request, writer)
        except (HungUp, ConnectionError):
            pass
        except asyncio.CancelledError:
            pass  # the server stops; asyncio would log a connection handler that ends cancelled
        finally:
            self._connections.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _respond(self, request: HttpRequest, writer: asyncio.StreamWriter) -> None:
        received = Received(request.method, request.path, request.query, request.headers, _parse_body(request.body))
        self._journal.append(received)
        faults = self._faults.take(received)
        received.faults = tuple(type(fault).__name__ for fault in faults.all)
        drip, cut = faults.find(Drip), faults.find(Cut)
        line = Line(
            writer,
            cut_at_byte=None if cut is None or cut.clean else cut.after_bytes,
            drip_bytes=None if drip is None else drip.piece_bytes,
            drip_delay_s=0.0 if drip is None else drip.delay_s,
        )
        try:
            await self._exchange(received, faults, line)
        except Refused as refused:
            received.error_code, received.error_message = refused.code, refused.message
            await self._answer(received, line, refused.status, refused.body(), refused.headers)

    async def _exchange(self, received: Received, faults: Faults, line: Line) -> None:
        _suffer(faults.loses_before_commit())
        with self._lock:
            exchange = self._begin(received, faults)
        try:
            gate = faults.find(Gate)
            if gate is not None and gate.before_commit:
                await gate.passed()
            if not faults.prevents_commit():
                with self._lock:
                    exchange.commit()
                received.committed = True
            if gate is not None and not gate.before_commit:
                await gate.passed()
            received.response_id = exchange.response.get("id")
        finally:
            with self._lock:
                exchange.end()
        _suffer(next((fault for fault in faults.all if isinstance(fault, Drop | Status)), None))
        if not (received.is_model_call and received.streamed):
            _suffer_unstreamed(faults)
        shown = exchange.shown(faults)
        if received.is_model_call and received.streamed:
            events = exchange.frames(shown) if isinstance(exchange, ChatExchange) else frames(shown)
            await _stream(received, line, events, faults)
        else:
            await self._answer_whole(received, line, shown, faults)

    def _begin(self, received: Received, faults: Faults) -> Exchange | ChatExchange | _Done:
        if received.is_model_call:
            kind = ChatExchange if received.path.endswith("/chat/completions") else Exchange
            return kind(self._ledger, self.rule, received.body, faults)
        return _Done(self._route(received))

    def _route(self, received: Received) -> Callable[[], Any]:
        """Return the action of a request about stored objects; nothing happens until it is called."""
        ledger, body, query = self._ledger, received.body, received.query
        parts = received.path.removeprefix("/openai").removeprefix("/v1/").split("/")
        match [received.method, *parts]:
            case ["POST", "responses", "compact"]:
                return lambda: compact(ledger, body)
            case ["GET", "responses", response_id]:
                return lambda: ledger.response(response_id).body
            case ["GET", "responses", response_id, "input_items"]:
                return lambda: conversations.page(ledger.response(response_id).input, query)
            case ["DELETE", "responses", response_id]:
                return lambda: _delete_response(ledger, response_id)
            case ["POST", "conversations"]:
                return lambda: conversations.create(ledger, body)
            case ["GET", "conversations", conversation_id]:
                return lambda: ledger.conversation(conversation_id).body()
            case ["POST", "conversations", conversation_id]:
                return lambda: conversations.update(ledger, conversation_id, body)
            case ["DELETE", "conversations", conversation_id]:
                return lambda: conversations.delete(ledger, conversation_id)
            case ["POST", "conversations", conversation_id, "items"]:
                return lambda: conversations.add_items(ledger, conversation_id, body)
            case ["GET", "conversations", conversation_id, "items"]:
                return lambda: conversations.page(ledger.conversation(conversation_id).items, query)
            case ["GET", "conversations", conversation_id, "items", item_id]:
                return lambda: conversations.item(ledger, conversation_id, item_id)
            case ["DELETE", "conversations", conversation_id, "items", item_id]:
                return lambda: conversations.delete_item(ledger, conversation_id, item_id)
        raise Refused(404, f"Invalid URL ({received.method} {received.path})")

    # --- sending -------------------------------------------------------------------------------------------------

    async def _answer(self, received: Received, line: Line, status: int, body: object, headers: dict[str, str]) -> None:
        received.status = status
        await send_json(line, status, body, {**_request_id(self, received), **headers})

    async def _answer_whole(self, received: Received, line: Line, body: object, faults: Faults) -> None:
        cut, malformed = faults.find(Cut), faults.find(Malformed)
        if malformed is not None:
            received.status = 200
            await _send_body(line, malformed.data.encode())
        elif cut is not None and cut.clean:
            received.status = 200
            await _send_body(line, to_json(body)[: cut.after_bytes])
        else:
            await self._answer(received, line, 200, body, {})


class _Done:
    """A request about stored objects: all its effects happen at its commit."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action = action
        self.response: dict[str, Any] = {}

    def commit(self) -> None:
        self.response = copy_json(self._action())

    def end(self) -> None:
        pass

    def shown(self, faults: Faults) -> dict[str, Any]:
        return self.response


def _suffer(fault: Fault | None) -> None:
    """Drop the line or answer with an error, if that is the fault."""
    if isinstance(fault, Drop):
        raise HungUp
    if isinstance(fault, Status):
        after = {} if fault.retry_after_s is None else {"retry-after": f"{fault.retry_after_s:g}"}
        raise Refused(fault.status, fault.message, code=fault.code, headers={**after, **fault.headers})


def _suffer_unstreamed(faults: Faults) -> None:
    """Apply stream faults to an unstreamed reply: none of it arrives, or an error does."""
    cut, broken = faults.find(Cut), faults.find(ErrorEvent)
    if cut is not None and cut.after_events is not None:
        raise HungUp
    if broken is not None:
        raise Refused(500, broken.message, code=broken.code)


async def _stream(received: Received, line: Line, events: list[bytes], faults: Faults) -> None:
    """Send the events as one chunked body, as far and as well as the faults allow."""
    cut, malformed, broken = faults.find(Cut), faults.find(Malformed), faults.find(ErrorEvent)
    if malformed is not None:
        events = [*events[: malformed.after_events], sse(malformed.data), *events[malformed.after_events + 1 :]]
    if broken is not None:
        error = {"type": "error", "code": broken.code, "message": broken.message, "param": None}
        number = {"sequence_number": broken.after_events}
        events = [*events[: broken.after_events], sse({**error, **number}, name="error")]
    if cut is not None and cut.after_events is not None:
        events = events[: cut.after_events]
    body = b"".join(events)
    if cut is not None and cut.clean and cut.after_bytes is not None:
        events = [body[: cut.after_bytes]]
    received.status = 200
    headers = {"content-type": "text/event-stream; charset=utf-8", "transfer-encoding": "chunked"}
    await line.send(head(200, {**headers, "x-request-id": f"req_{received.response_id}"}))
    for event in events:
        if event:
            await line.send(chunk(event))
    if cut is not None and not cut.clean and cut.after_events is not None:
        line.hang_up()
    await line.send(chunk(b""))


async def _send_body(line: Line, body: bytes) -> None:
    await line.send(head(200, {"content-type": "application/json", "content-length": str(len(body))}) + body)


def _request_id(server: LoopbackServer, received: Received) -> dict[str, str]:
    return {"x-request-id": f"req_{received.response_id or len(server._journal)}"}


def _delete_response(ledger: Ledger, response_id: str) -> dict[str, Any]:
    ledger.response(response_id)
    del ledger.responses[response_id]
    return {"id": response_id, "object": "response", "deleted": True}


def _parse_body(body: bytes) -> Any:
    if not body:
        return None
    try:
        return json.loads(body)
    except ValueError:
        return body.decode("utf-8", "replace")


__all__ = ["Asked", "LoopbackServer"]
