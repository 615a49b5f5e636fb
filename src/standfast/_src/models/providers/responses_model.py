"""A model behind the Responses API, over the real `openai` client.

The converters are in `wire_responses`; this file sends, and is strict about what counts as a reply. A reply is whole
or it is an error: a response that failed or is incomplete, a stream that ends (however politely) before its last
event, and anything that does not parse raise `ModelReplyError` with the ids that were seen. A server that owns the
conversation can then be asked what became of the request: `settle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import ModelReplyError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import ModelResponse, to_json_item, to_plain
from standfast._src.items.usage import Usage
from standfast._src.models.interface import ModelRequest
from standfast._src.models.outcome_query import (
    SendEvidence,
    Settled,
    calls_in,
    find_sent,
    identifies_itself,
    is_answered,
)
from standfast._src.models.providers.client import ClientSource, note_address
from standfast._src.models.providers.event_stream import events_of
from standfast._src.models.providers.headers import _HEADERS_OVERRIDE, override_headers
from standfast._src.models.providers.openai_model import RUN_AGAIN, OpenAIModel, how_it_broke
from standfast._src.models.responses_format import WITHOUT_EFFECT, input_param, request as wire_request
from standfast._src.models.stream_assembly import reply_failed

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.responses import Response, ResponseStreamEvent

_NO_OUTPUT_YET = frozenset({"response.created", "response.in_progress", "response.queued"})
_LAST_EVENTS = frozenset({"response.completed", "response.failed", "response.incomplete", "error", "response.error"})
_UNFINISHED = frozenset({"incomplete", "in_progress"})
PAGE_ITEMS = 100
# The most the service gives in one page of a listing.
DRAIN_TIMEOUT_S = 1.0
# After the last event only the end of the HTTP message is left; reading it lets the connection be used again.
SETTLE_WAIT_S = 60.0
SETTLE_POLL_S = 0.5
# A response that is still being written is asked for again until it is done, for as long as one usually takes.


class OpenAIResponsesModel(OpenAIModel):
    """A model of the Responses API. The client stays the caller's."""

    api_name = "the Responses API"
    settings_without_effect = WITHOUT_EFFECT

    def __init__(
        self,
        model: str,
        openai_client: AsyncOpenAI | None = None,
        *,
        model_is_explicit: bool = True,
        clients: ClientSource | None = None,
    ) -> None:
        super().__init__(model, openai_client, clients=clients)
        self._model_is_explicit = model_is_explicit

    # --- asking --------------------------------------------------------------------------------------------------

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The whole reply, or an error."""
        arguments = wire_request(self._model_for(request.prompt), request)
        arguments = override_headers(arguments, _HEADERS_OVERRIDE)
        try:
            response = await _create(self._client_for(request), arguments)
        except ValueError as error:  # a body that is not JSON; the library lets its parser's error through
            raise self._build_malformed_error(error) from error
        if not isinstance(getattr(response, "output", None), list):
            raise self._build_malformed_error(f"{describe_type(response)} without output")
        check_whole(response)
        return model_response(response, keep_raw_usage=bool(request.model_settings.preserve_raw_usage))

    async def respond_streamed(self, request: ModelRequest) -> AsyncIterator[Any]:
        """The events of the reply. Ends after `response.completed`; every other end is an error."""
        arguments = wire_request(self._model_for(request.prompt), request)
        arguments = override_headers(arguments, _HEADERS_OVERRIDE)
        stream: Any = await _create(self._client_for(request), {**arguments, "stream": True})
        watch = _Watch(stream)
        try:
            async for event in watch.events():
                yield event
        finally:
            await maybe_await(stream.close())  # a wrapper of an instrumentation may close without a coroutine

    def _model_for(self, prompt: Any | None) -> str | None:
        # A prompt names a model of its own; the default of this process must not override it.
        return None if prompt is not None and not self._model_is_explicit else self.model

    # --- asking again what became of it ------------------------------------------------------------------------------

    async def settle(self, evidence: SendEvidence) -> Settled | None:
        """Find out whether the service took a request with a lost answer; return None if unknown."""
        try:
            return await self._ask_server(evidence)
        except Exception as error:
            if not any(kind.__name__ == "APIError" for kind in type(error).__mro__):
                raise
            return None  # the service cannot be asked either

    async def _ask_server(self, evidence: SendEvidence) -> Settled | None:
        if evidence.response_id:
            found = await self._settle_response(evidence.response_id)
            # A response that is not there, or failed, may still have left its input in a conversation.
            if found is None or found.taken or not evidence.conversation_id:
                return found
        if evidence.conversation_id:
            return await self._settle_conversation(evidence, evidence.conversation_id)
        return None

    async def mark(self, conversation_id: str) -> str:
        """Return the id of the conversation's newest item, or "" for an empty conversation."""
        client = self._clients.get(retries=True)
        try:
            page = await client.conversations.items.list(conversation_id, limit=1, order="desc")
        except Exception as error:
            _note_remedy(error, {"conversation": conversation_id})
            raise
        return str(page.data[0].id) if page.data else ""

    async def _settle_response(self, response_id: str) -> Settled | None:
        client = self._clients.get(retries=True)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SETTLE_WAIT_S
        while True:
            try:
                response = await client.responses.retrieve(response_id)
            except Exception as error:
                if getattr(error, "status_code", None) == 404:
                    return Settled(taken=False)
                raise
            if response.status == "completed":
                return Settled(taken=True, response=model_response(response))
            if response.status in ("failed", "cancelled"):
                return Settled(taken=False)
            if response.status == "incomplete":
                return Settled(taken=True, is_over=True, calls=calls_in(map(to_json_item, response.output)))
            if loop.time() >= deadline:
                return None
            await asyncio.sleep(SETTLE_POLL_S)

    async def _settle_conversation(self, evidence: SendEvidence, conversation_id: str) -> Settled | None:
        sent = input_param(list(evidence.input))
        listed = await self._items_after(conversation_id, evidence.after_item_id)
        found = find_sent(sent, listed)
        if found is None:
            return Settled(taken=False)
        if evidence.after_item_id is None and not identifies_itself(sent):
            return None  # equal words may have been said before: without a mark, likeness proves nothing
        calls = calls_in(found.output)
        if is_answered(calls, found.later):
            return None  # another request has continued from there: this is the reply to a request with equal words
        states = {item.get("status") for item in found.output}
        if not found.output or states & _UNFINISHED:
            is_over = "incomplete" in states and "in_progress" not in states
            return Settled(taken=True, is_over=is_over, calls=calls if is_over else ())
        return Settled(taken=True, response=ModelResponse(list(found.output), Usage(requests=1), None))

    async def _items_after(self, conversation_id: str, item_id: str | None) -> Sequence[Item]:
        client = self._clients.get(retries=True)
        query: dict[str, Any] = {"limit": PAGE_ITEMS, "order": "asc"} | ({"after": item_id} if item_id else {})
        pages = client.conversations.items.list(conversation_id, **query)
        return [to_json_item(item) async for item in pages]


async def _create(client: AsyncOpenAI, arguments: dict[str, Any]) -> Any:
    try:
        return await client.responses.create(**arguments)
    except Exception as error:
        _note_remedy(error, arguments)
        note_address(error, client)
        raise


def _note_remedy(error: Exception, arguments: dict[str, Any]) -> None:
    remedy = _remedy(error, arguments)
    if remedy is not None:  # a note, and not an error of ours: programs catch the library's by its type
        error.add_note(remedy)


def _remedy(error: Exception, arguments: dict[str, Any]) -> str | None:
    """Return the remedy for a conversation or response unknown to the server; None for any other error."""
    if getattr(error, "code", None) == "previous_response_not_found":
        return (
            f"The server does not have response {arguments.get('previous_response_id')!r}: it was deleted, its time is "
            "over, or it was made with store=False. Go on from result.to_input_list() or a session, without the id."
        )
    if getattr(error, "status_code", None) == 404 and arguments.get("conversation"):
        return (
            f"The server does not have conversation {arguments['conversation']!r}. Start a new "
            "one: start_openai_conversations_session(), or Runner.move_to_conversation() from a session with its items."
        )
    return None


class _Watch:
    """Reader of a stream that raises unless the reply is complete at its end."""

    def __init__(self, stream: AsyncStream[ResponseStreamEvent]) -> None:
        self._stream = stream
        self._output_begun = False
        self._response_id: str | None = None
        self._request_id = _request_id(stream)

    async def events(self) -> AsyncIterator[ResponseStreamEvent]:
        source = events_of(self._stream)
        while True:
            try:
                event = await anext(source)
            except StopAsyncIteration:
                raise self._error("cut", "the reply's stream ended before its last event") from None
            except Exception as error:
                status, what, code = how_it_broke(error)
                raise self._error(status, what, code=code) from error
            kind = getattr(event, "type", None)
            self._note(event, kind)
            if kind == "response.completed":
                response: Response | None = getattr(event, "response", None)
                if response is None or not isinstance(getattr(response, "output", None), list):
                    raise self._error("malformed", "the reply's last event has no output")
                check_whole(response)
            yield event
            if kind in _LAST_EVENTS:
                break
        if kind != "response.completed":
            raise self._build_end_error(event, str(kind))
        await self._drain(source)

    def _note(self, event: ResponseStreamEvent, kind: str | None) -> None:
        if kind not in _NO_OUTPUT_YET and kind not in _LAST_EVENTS:
            self._output_begun = True
            return
        response = getattr(event, "response", None)
        self._response_id = getattr(response, "id", None) or self._response_id
        if response is not None and self._request_id is not None and not getattr(response, "_request_id", None):
            response._request_id = self._request_id

    async def _drain(self, source: AsyncIterator[object]) -> None:
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                async for _ in source:
                    pass
        except Exception:  # the reply is whole: what the connection says after it does not matter
            pass

    def _build_end_error(self, event: ResponseStreamEvent, kind: str) -> ModelReplyError:
        response = getattr(event, "response", None)
        if response is not None:
            return not_whole(response, output_begun=self._output_begun, request_id=self._request_id)
        message, code = getattr(event, "message", None), getattr(event, "code", None)
        return self._error("failed", f"the service ended the reply with an error: {message or kind}", code=code)

    def _error(self, status: str, what: str, *, code: str | None = None) -> ModelReplyError:
        return ModelReplyError(
            what,
            f"{RUN_AGAIN} A conversation that the server owns may have taken the request.",
            status=status,
            response_id=self._response_id,
            request_id=self._request_id,
            code=code,
            output_begun=self._output_begun,
        )


# --- what counts as a reply ------------------------------------------------------------------------------------------


def check_whole(response: Response) -> None:
    """Raise unless the response is completed."""
    # Compatible servers may leave the status out; what they sent was at least sent whole.
    if getattr(response, "status", None) not in ("completed", None):
        raise not_whole(response)


def not_whole(response: Response, *, output_begun: bool = False, request_id: str | None = None) -> ModelReplyError:
    """The error for a response that failed, is incomplete, or has not ended."""
    status, response_id = str(response.status), getattr(response, "id", None) or None
    request_id = getattr(response, "_request_id", None) or request_id
    if status in ("failed", "incomplete"):
        error = getattr(response, "error", None)
        return reply_failed(
            response, status, error=error, response_id=response_id, request_id=request_id, output_begun=output_begun
        )
    return ModelReplyError(
        f"the model's response is {status}",
        RUN_AGAIN,
        status="cut",
        response_id=response_id,
        request_id=request_id,
        output_begun=output_begun,
    )


def model_response(response: Response, *, keep_raw_usage: bool = False) -> ModelResponse:
    """A whole response as the runner knows it; the items stay the library's typed objects."""
    usage = getattr(response, "usage", None)
    return ModelResponse(
        output=list(response.output),
        usage=Usage.from_provider(usage),
        response_id=getattr(response, "id", None) or None,
        request_id=getattr(response, "_request_id", None),
        raw_usage=to_plain(usage) if keep_raw_usage and usage is not None else None,
        model=getattr(response, "model", None),
    )


def _request_id(stream: AsyncStream[ResponseStreamEvent]) -> str | None:
    headers = getattr(getattr(stream, "response", None), "headers", None)
    value = headers.get("x-request-id") if headers is not None else None
    return value if isinstance(value, str) else None
