"""Model for the Chat Completions API, over the real `openai` client: for servers without the Responses API.

The converters are in `wire_chat`; this file sends. Replies come back as the items and events of the Responses API, so
that a run does not know the difference. The API keeps no conversation and its replies have no id to continue from:
the ids of a server-owned conversation are refused before anything is sent. As with Responses, a reply is whole or an
error; here the sign of the whole is a `finish_reason`.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, get_args
from uuid import uuid4

from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import ModelReplyError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import ModelResponse, to_plain
from standfast._src.items.usage import Usage
from standfast._src.models.chat_format import WITHOUT_EFFECT, assistant_items, request as wire_request
from standfast._src.models.chat_stream import ChatStream, Event
from standfast._src.models.interface import ModelRequest
from standfast._src.models.providers.client import note_address
from standfast._src.models.providers.headers import HEADERS_OVERRIDE, override_headers
from standfast._src.models.providers.openai_model import RUN_AGAIN, OpenAIModel, how_it_broke

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.types.chat import ChatCompletion
    from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage

ReplyItem: TypeAlias = "ResponseOutputMessage | ResponseFunctionToolCall"

_CUT_SHORT = {"length": "Raise max_tokens or ask for less.", "content_filter": "Change the input; it was filtered."}
OFFICIAL_HOST = "api.openai.com"


class OpenAIChatCompletionsModel(OpenAIModel):
    """A model of the Chat Completions API. The client stays the caller's."""

    api_name = "Chat Completions"
    settings_without_effect = WITHOUT_EFFECT

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """The whole reply, or an error."""
        client = self._client_for(request)
        arguments = override_headers(
            wire_request(self.model, request, newer_limits=_is_official(client)), HEADERS_OVERRIDE
        )
        try:
            completion: Any = await _create(client, arguments)
        except ValueError as error:  # a body that is not JSON; the library lets its parser's error through
            raise self._build_malformed_error(error) from error
        choices = getattr(completion, "choices", None)
        if not isinstance(choices, list) or not choices:
            raise self._build_malformed_error(f"{describe_type(completion)} without choices")
        return _model_response(completion, keep_raw_usage=bool(request.model_settings.preserve_raw_usage))

    async def respond_streamed(self, request: ModelRequest) -> AsyncIterator[Any]:
        """The reply as Responses events. Ends after `response.completed`; every other end is an error."""
        client = self._client_for(request)
        arguments = override_headers(
            wire_request(self.model, request, stream=True, newer_limits=_is_official(client)), HEADERS_OVERRIDE
        )
        stream: Any = await _create(client, {**arguments, "stream": True})
        assembly = ChatStream(new_call_id=_new_call_id)
        to_typed = _event_types()
        try:
            async for chunk in _chunks(stream, assembly):
                for event in assembly.feed(to_plain(chunk)):
                    yield to_typed(event)
            _check_finish(assembly.finish_reason, assembly.response_id, output_begun=assembly.output_begun)
            for event in assembly.finish():
                yield to_typed(event)
        finally:
            await maybe_await(stream.close())  # a wrapper of an instrumentation may close without a coroutine


async def _chunks(stream: AsyncIterable[object], assembly: ChatStream) -> AsyncIterator[object]:
    """Yield the stream's chunks. A break before the finish reason is an error, a later break only an end."""
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


async def _create(client: AsyncOpenAI, arguments: dict[str, Any]) -> Any:
    try:
        return await client.chat.completions.create(**arguments)
    except Exception as error:
        note_address(error, client)
        raise


def _model_response(completion: ChatCompletion, *, keep_raw_usage: bool) -> ModelResponse:
    choice = completion.choices[0]
    _check_finish(choice.finish_reason, completion.id)
    message = to_plain(choice.message)
    for call in message.get("tool_calls") or ():
        call["id"] = call.get("id") or _new_call_id()
    usage = getattr(completion, "usage", None)
    return ModelResponse(
        output=typed_items(assistant_items(message)),
        usage=Usage.from_provider(usage),
        response_id=None,  # a completion's id leads to no stored response: nothing can be continued from it
        request_id=getattr(completion, "_request_id", None),
        raw_usage=to_plain(usage) if keep_raw_usage and usage is not None else None,
        model=getattr(completion, "model", None),
    )


def _check_finish(reason: str | None, completion_id: str | None, *, output_begun: bool = False) -> None:
    if reason is None:
        raise ModelReplyError(
            "the reply's stream ended before its last event",
            RUN_AGAIN,
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
    status, what, code = how_it_broke(error)
    return ModelReplyError(
        what,
        RUN_AGAIN,
        status=status,
        response_id=assembly.response_id or None,
        code=code,
        output_begun=assembly.output_begun,
    )


def _is_official(client: AsyncOpenAI) -> bool:
    return OFFICIAL_HOST in str(getattr(client, "base_url", ""))


def _new_call_id() -> str:
    return f"call_{uuid4().hex}"


# --- typed objects, as the Responses adapter gives -------------------------------------------------------------------


def typed_items(items: list[Item]) -> list[ReplyItem]:
    """Convert items to the `openai` package's objects."""
    to_typed = _item_types()
    return [to_typed(item) for item in items]


@cache
def _item_types() -> Callable[[Item], ReplyItem]:
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputRefusal,
        ResponseOutputText as Text,
    )

    def to_typed(item: Item) -> ReplyItem:
        if item["type"] == "function_call":
            return ResponseFunctionToolCall(**item)
        parts = [
            ResponseOutputRefusal(**part) if part["type"] == "refusal" else Text(**part) for part in item["content"]
        ]
        # Without an id: the API gives none, and an invented one could be mistaken for the server's.
        return ResponseOutputMessage.model_construct(None, **{**item, "content": parts})

    return to_typed


@cache
def _event_types() -> Callable[[Event], Any]:
    from openai.types.responses import Response, ResponseStreamEvent

    item = _item_types()
    union = get_args(ResponseStreamEvent)[0]
    classes = {get_args(one.model_fields["type"].annotation)[0]: one for one in get_args(union)}

    def to_typed(event: Event) -> Any:
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

    return to_typed
