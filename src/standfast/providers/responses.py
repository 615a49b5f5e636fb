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

from standfast.ground.errors import ModelReplyError
from standfast.ground.jsonvalue import Item
from standfast.llm.interface import Model, ModelTracing
from standfast.llm.reply import reply_failed
from standfast.llm.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from standfast.llm.settings import ModelSettings
from standfast.llm.settlement import SendEvidence, Settled, find_sent, identifies_itself
from standfast.llm.wire_responses import input_param, request
from standfast.providers.advice import retry_advice
from standfast.providers.client import ClientHolder, ClientSource
from standfast.words.items import ModelResponse, to_json_item, to_plain
from standfast.words.usage import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

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


class OpenAIResponsesModel(Model):
    """A model of the Responses API. The client stays the caller's."""

    provider_name = "openai"  # what traces call it

    def __init__(
        self,
        model: str,
        openai_client: AsyncOpenAI | None = None,
        *,
        model_is_explicit: bool = True,
        clients: ClientSource | None = None,
    ) -> None:
        self.model = model
        self._model_is_explicit = model_is_explicit
        self._clients = ClientHolder(openai_client, clients)

    async def close(self) -> None:
        """Close what this model opened; a client that was given stays open."""
        await self._clients.aclose()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """What the service's headers say, and whether the request can have been taken."""
        return retry_advice(request)

    # --- asking --------------------------------------------------------------------------------------------------

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any | None,
        handoffs: list[Any],
        tracing: ModelTracing = ModelTracing.DISABLED,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: Any | None = None,
    ) -> ModelResponse:
        """The whole reply, or an error."""
        arguments = request(
            self._model_for(prompt),
            system_instructions,
            input,
            model_settings,
            tools,
            output_schema,
            handoffs,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            prompt=prompt,
        )
        client = self._clients.get(retries=_client_may_retry(model_settings, previous_response_id, conversation_id))
        try:
            response = await _create(client, arguments)
        except ValueError as error:  # a body that is not JSON; the library lets its parser's error through
            raise _malformed(error) from error
        check_whole(response)
        return model_response(response, keep_raw_usage=bool(model_settings.preserve_raw_usage))

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[Any],
        model_settings: ModelSettings,
        tools: list[Any],
        output_schema: Any | None,
        handoffs: list[Any],
        tracing: ModelTracing = ModelTracing.DISABLED,
        *,
        previous_response_id: str | None = None,
        conversation_id: str | None = None,
        prompt: Any | None = None,
    ) -> AsyncIterator[Any]:
        """The events of the reply. Ends after `response.completed`; every other end is an error."""
        arguments = request(
            self._model_for(prompt),
            system_instructions,
            input,
            model_settings,
            tools,
            output_schema,
            handoffs,
            previous_response_id=previous_response_id,
            conversation_id=conversation_id,
            prompt=prompt,
        )
        client = self._clients.get(retries=_client_may_retry(model_settings, previous_response_id, conversation_id))
        stream: Any = await _create(client, {**arguments, "stream": True})
        watch = _Watch(stream)
        try:
            async for event in watch.events():
                yield event
        finally:
            await stream.close()

    def _model_for(self, prompt: Any | None) -> str | None:
        # A prompt names a model of its own; the default of this process must not override it.
        return None if prompt is not None and not self._model_is_explicit else self.model

    # --- asking again what became of it ------------------------------------------------------------------------------

    async def settle(self, evidence: SendEvidence) -> Settled | None:
        """Find out whether the service took a request whose answer was lost; None if it cannot be known."""
        try:
            return await self._settle(evidence)
        except Exception as error:
            if not any(kind.__name__ == "APIError" for kind in type(error).__mro__):
                raise
            return None  # the service cannot be asked either

    async def _settle(self, evidence: SendEvidence) -> Settled | None:
        if evidence.response_id:
            found = await self._settle_response(evidence.response_id)
            # A response that is not there, or failed, may still have left its input in a conversation.
            if found is None or found.taken or not evidence.conversation_id:
                return found
        if evidence.conversation_id:
            return await self._settle_conversation(evidence, evidence.conversation_id)
        return None

    async def mark(self, conversation_id: str) -> str:
        """The id of the conversation's newest item; "" if it has none."""
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
                return Settled(taken=True)
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
        if not found.output or any(item.get("status") in _UNFINISHED for item in found.output):
            return Settled(taken=True)
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
        raise


def _note_remedy(error: Exception, arguments: dict[str, Any]) -> None:
    remedy = _remedy(error, arguments)
    if remedy is not None:  # a note, and not an error of ours: programs catch the library's by its type
        error.add_note(remedy)


def _remedy(error: Any, arguments: dict[str, Any]) -> str | None:
    """What to do about an owner that the server does not know; None for any other error."""
    if getattr(error, "code", None) == "previous_response_not_found":
        return (
            f"The server does not have response {arguments.get('previous_response_id')!r}: it was deleted, its time is "
            "over, or it was made with store=False. Go on from result.to_input_list() or a session, without the id."
        )
    if getattr(error, "status_code", None) == 404 and arguments.get("conversation"):
        return (
            f"The server does not have conversation {arguments['conversation']!r}. Make a new one with "
            "start_openai_conversations_session(), and copy_history() what you kept to it."
        )
    return None


class _Watch:
    """Follows one stream and knows at its end whether the reply was whole."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._output_begun = False
        self._response_id: str | None = None
        self._request_id = _request_id(stream)

    async def events(self) -> AsyncIterator[Any]:
        source = aiter(self._stream)
        while True:
            try:
                event = await anext(source)
            except StopAsyncIteration:
                raise self._error("cut", "the reply's stream ended before its last event") from None
            except Exception as error:
                raise self._broken(error) from error
            kind = getattr(event, "type", None)
            self._note(event, kind)
            if kind == "response.completed":
                check_whole(event.response)
            yield event
            if kind in _LAST_EVENTS:
                break
        if kind != "response.completed":
            raise self._refused(event, str(kind))
        await self._drain(source)

    def _note(self, event: Any, kind: str | None) -> None:
        response = getattr(event, "response", None)
        self._response_id = getattr(response, "id", None) or self._response_id
        if response is not None and self._request_id is not None and not getattr(response, "_request_id", None):
            response._request_id = self._request_id
        if kind not in _NO_OUTPUT_YET and kind not in _LAST_EVENTS:
            self._output_begun = True

    async def _drain(self, source: AsyncIterator[Any]) -> None:
        try:
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                async for _ in source:
                    pass
        except Exception:  # the reply is whole: what the connection says after it does not matter
            pass

    def _refused(self, event: Any, kind: str) -> ModelReplyError:
        response = getattr(event, "response", None)
        if response is not None:
            return not_whole(response, output_begun=self._output_begun, request_id=self._request_id)
        message, code = getattr(event, "message", None), getattr(event, "code", None)
        return self._error("failed", f"the service ended the reply with an error: {message or kind}", code=code)

    def _broken(self, error: Exception) -> ModelReplyError:
        if isinstance(getattr(error, "body", None), dict):  # the library raised an error that the stream carried
            return self._error("failed", f"the service ended the reply with an error: {error}", code=_code(error))
        if isinstance(error, ValueError):  # not JSON, or not UTF-8
            return self._error("malformed", f"the reply's stream does not parse: {error}")
        return self._error("cut", f"the reply's stream broke off: {error}")

    def _error(self, status: str, what: str, *, code: str | None = None) -> ModelReplyError:
        return ModelReplyError(
            what,
            "Nothing of it was accepted. Run again, or set a retry policy; a conversation that the server owns may "
            "have taken the request.",
            status=status,
            response_id=self._response_id,
            request_id=self._request_id,
            code=code,
            output_begun=self._output_begun,
        )


# --- what counts as a reply ------------------------------------------------------------------------------------------


def check_whole(response: Any) -> None:
    """Raise unless this is a response that completed."""
    if not isinstance(getattr(response, "output", None), list):
        raise _malformed(f"a {type(response).__name__} without output")
    # Compatible servers may leave the status out; what they sent was at least sent whole.
    if getattr(response, "status", None) not in ("completed", None):
        raise not_whole(response)


def not_whole(response: Any, *, output_begun: bool = False, request_id: str | None = None) -> ModelReplyError:
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
        "Nothing of it was accepted. Run again, or set a retry policy.",
        status="cut",
        response_id=response_id,
        request_id=request_id,
        output_begun=output_begun,
    )


def model_response(response: Any, *, keep_raw_usage: bool = False) -> ModelResponse:
    """A whole response as the runner knows it; the items stay the library's typed objects."""
    usage = getattr(response, "usage", None)
    return ModelResponse(
        output=list(response.output),
        usage=Usage.from_provider(usage),
        response_id=getattr(response, "id", None) or None,
        request_id=getattr(response, "_request_id", None),
        raw_usage=to_plain(usage) if keep_raw_usage and usage is not None else None,
    )


def _malformed(reason: object) -> ModelReplyError:
    return ModelReplyError(
        f"the service's reply does not parse: {reason}",
        "Check base_url: the server must speak the Responses API. With one that does, run again.",
        status="malformed",
    )


def _client_may_retry(settings: ModelSettings, previous_response_id: str | None, conversation_id: str | None) -> bool:
    return settings.retry is None and not previous_response_id and not conversation_id


def _request_id(stream: Any) -> str | None:
    headers = getattr(getattr(stream, "response", None), "headers", None)
    value = headers.get("x-request-id") if headers is not None else None
    return value if isinstance(value, str) else None


def _code(error: Any) -> str | None:
    code = getattr(error, "code", None)
    return code if isinstance(code, str) else None
