"""A model behind the Chat Completions API, over the real `openai` client: for servers that speak nothing newer.

The converters are in `wire_chat`; this file sends. Replies come back as the items and events of the Responses API, so
that a run does not know the difference. The API keeps no conversation and its replies have no id to continue from:
the ids of a server-owned conversation are refused before anything is sent. As with Responses, a reply is whole or an
error; here the sign of the whole is a `finish_reason`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, get_args
from uuid import uuid4

from standfast.ground.errors import ModelReplyError
from standfast.llm.interface import Model, ModelTracing
from standfast.llm.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from standfast.llm.settings import ModelSettings
from standfast.llm.wire_chat import assistant_items, refuse_server_state, request
from standfast.llm.wire_chat_stream import ChatStream
from standfast.providers.advice import retry_advice
from standfast.providers.client import ClientHolder, ClientSource
from standfast.words.items import ModelResponse, to_plain
from standfast.words.usage import Usage

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_CUT_SHORT = {"length": "Raise max_tokens or ask for less.", "content_filter": "Change the input; it was filtered."}
OFFICIAL_HOST = "api.openai.com"


class OpenAIChatCompletionsModel(Model):
    """A model of the Chat Completions API. The client stays the caller's."""

    provider_name = "openai"  # what traces call it

    def __init__(
        self, model: str, openai_client: AsyncOpenAI | None = None, *, clients: ClientSource | None = None
    ) -> None:
        self.model = model
        self._clients = ClientHolder(openai_client, clients)

    async def close(self) -> None:
        """Close what this model opened; a client that was given stays open."""
        await self._clients.aclose()

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """What the service's headers say, and whether the request can have been taken."""
        return retry_advice(request)

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
        refuse_server_state(previous_response_id, conversation_id, prompt)
        client = self._clients.get(retries=model_settings.retry is None)
        arguments = request(
            self.model,
            system_instructions,
            input,
            model_settings,
            tools,
            output_schema,
            handoffs,
            newer_limits=_is_official(client),
        )
        try:
            completion: Any = await client.chat.completions.create(**arguments)
        except ValueError as error:  # a body that is not JSON; the library lets its parser's error through
            raise _malformed(error) from error
        return _model_response(completion, keep_raw_usage=bool(model_settings.preserve_raw_usage))

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
        """The reply as Responses events. Ends after `response.completed`; every other end is an error."""
        refuse_server_state(previous_response_id, conversation_id, prompt)
        client = self._clients.get(retries=model_settings.retry is None)
        arguments = request(
            self.model,
            system_instructions,
            input,
            model_settings,
            tools,
            output_schema,
            handoffs,
            stream=True,
            newer_limits=_is_official(client),
        )
        stream: Any = await client.chat.completions.create(**arguments, stream=True)
        assembly = ChatStream(new_call_id=_new_call_id)
        typed = _event_types()
        try:
            async for chunk in _chunks(stream, assembly):
                for event in assembly.feed(to_plain(chunk)):
                    yield typed(event)
            _check_finish(assembly.finish_reason, assembly.response_id, output_begun=assembly.output_begun)
            for event in assembly.finish():
                yield typed(event)
        finally:
            await stream.close()


async def _chunks(stream: Any, assembly: ChatStream) -> AsyncIterator[Any]:
    """The stream's chunks; an end before the finish reason is an error, one after it is only an end."""
    source = aiter(stream)
    while True:
        try:
            chunk = await anext(source)
        except StopAsyncIteration:
            return
        except Exception as error:
            if assembly.finish_reason is not None:
                return
            raise _broken(error, assembly) from error
        yield chunk


# --- what counts as a reply ------------------------------------------------------------------------------------------


def _model_response(completion: Any, *, keep_raw_usage: bool) -> ModelResponse:
    choices = getattr(completion, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise _malformed(f"a {type(completion).__name__} without choices")
    choice = choices[0]
    _check_finish(choice.finish_reason, completion.id)
    message = to_plain(choice.message)
    for call in message.get("tool_calls") or ():
        call["id"] = call.get("id") or _new_call_id()
    item = _item_types()
    usage = getattr(completion, "usage", None)
    return ModelResponse(
        output=[item(one) for one in assistant_items(message)],
        usage=Usage.from_provider(usage),
        response_id=None,  # a completion's id leads to no stored response: nothing can be continued from it
        request_id=getattr(completion, "_request_id", None),
        raw_usage=to_plain(usage) if keep_raw_usage and usage is not None else None,
    )


def _check_finish(reason: str | None, completion_id: str | None, *, output_begun: bool = False) -> None:
    if reason is None:
        raise ModelReplyError(
            "the reply's stream ended before its last event",
            "Nothing of it was accepted. Run again, or set a retry policy.",
            status="cut",
            response_id=completion_id or None,
            output_begun=output_begun,
        )
    if reason in _CUT_SHORT:
        raise ModelReplyError(
            f"the model's reply is incomplete: {reason}",
            _CUT_SHORT[reason],
            status="incomplete",
            response_id=completion_id or None,
            code=reason,
            output_begun=output_begun,
        )


def _broken(error: Exception, assembly: ChatStream) -> ModelReplyError:
    if isinstance(getattr(error, "body", None), Mapping):
        status, what = "failed", f"the service ended the reply with an error: {error}"
    elif isinstance(error, ValueError):
        status, what = "malformed", f"the reply's stream does not parse: {error}"
    else:
        status, what = "cut", f"the reply's stream broke off: {error}"
    code = getattr(error, "code", None)
    return ModelReplyError(
        what,
        "Nothing of it was accepted. Run again, or set a retry policy.",
        status=status,
        response_id=assembly.response_id or None,
        code=code if isinstance(code, str) else None,
        output_begun=assembly.output_begun,
    )


def _malformed(reason: object) -> ModelReplyError:
    return ModelReplyError(
        f"the service's reply does not parse: {reason}",
        "Check base_url: the server must speak Chat Completions. With one that does, run again.",
        status="malformed",
    )


def _is_official(client: Any) -> bool:
    return OFFICIAL_HOST in str(getattr(client, "base_url", ""))


def _new_call_id() -> str:
    return f"call_{uuid4().hex}"


# --- typed objects, as the Responses adapter gives -------------------------------------------------------------------


@cache
def _item_types() -> Any:
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputRefusal,
        ResponseOutputText as Text,
    )

    def typed(item: dict[str, Any]) -> Any:
        if item["type"] == "function_call":
            return ResponseFunctionToolCall(**item)
        parts = [
            ResponseOutputRefusal(**part) if part["type"] == "refusal" else Text(**part) for part in item["content"]
        ]
        # Without an id: the API gives none, and an invented one could be mistaken for the server's.
        return ResponseOutputMessage.model_construct(None, **{**item, "content": parts})

    return typed


@cache
def _event_types() -> Any:
    from openai.types.responses import Response, ResponseStreamEvent

    item = _item_types()
    union = get_args(ResponseStreamEvent)[0]
    classes = {get_args(one.model_fields["type"].annotation)[0]: one for one in get_args(union)}

    def typed(event: dict[str, Any]) -> Any:
        fields = dict(event)
        if "item" in fields:
            fields["item"] = item(fields["item"])
        if "response" in fields:
            response = dict(fields["response"])
            response["output"] = [item(one) for one in response["output"]]
            if "usage" in response:
                usage = Response.model_fields["usage"].annotation
                response["usage"] = next(one for one in get_args(usage) if one is not type(None))(**response["usage"])
            fields["response"] = Response.model_construct(None, **response)
        return classes[event["type"]].model_construct(None, **fields)

    return typed
