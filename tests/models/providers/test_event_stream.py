"""The events of a stream are the client's own objects, though most of them are made here."""

from __future__ import annotations

import asyncio
import json
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import openai
import pytest
from hypothesis import given, settings, strategies as st
from openai import AsyncOpenAI, AsyncStream
from openai.types.responses import ResponseStreamEvent

from standfast import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner
from standfast._src.models.providers import event_stream
from standfast._src.models.providers.event_stream import Blocks, events_of
from standfast.testing.loopback import LoopbackServer

Event = dict[str, Any]


def delta(number: int = 0, **more: Any) -> Event:
    """A delta as the service sends it, with a field that the client does not know."""
    return {
        "type": "response.output_text.delta",
        "content_index": 0,
        "delta": f"word {number}",
        "item_id": "msg_1",
        "logprobs": [],
        "output_index": 0,
        "sequence_number": number,
        "obfuscation": "x" * number,
        **more,
    }


def response(status: str) -> Event:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "new_field": {"a": [1, 2.5]},
    }


def plain_deltas() -> Iterator[Event]:
    """One delta of each kind that the client knows."""
    for variant in typing.get_args(typing.get_args(ResponseStreamEvent)[0]):
        fields = variant.model_fields
        kind = typing.get_args(fields["type"].annotation)[0]
        if kind.endswith(".delta"):
            made: Event = {"type": kind}
            for name, field in fields.items():
                if name != "type":
                    made[name] = 3 if field.annotation is int else [] if name == "logprobs" else "text"
            yield made


ODD: list[Event] = [
    delta(logprobs=[{"token": "a", "logprob": -0.5, "top_logprobs": []}]),
    delta(delta=None),
    delta(delta=5),
    delta(content_index="0"),
    delta(content_index=True),
    delta(sequence_number=2**70),
    delta(sequence_number=1.0),
    delta(more={"nested": [1, None]}),
    delta(logprobs=None),
    delta(item_id="\ud83d"),
    delta(delta="😀\n\u2028\r"),
    {"type": "response.output_text.delta"},
    {"type": "response.output_text.delta", "delta": "no more"},
    {"type": "response.brand_new.delta", "delta": "unknown", "why": 1},
    {"type": "response.brand_new", "delta": {"a": 1}},
    {"type": None, "delta": "x"},
    {"delta": "without a type"},
    {"type": "response.completed", "response": response("completed"), "sequence_number": 9},
    {"type": "response.created", "response": response("in_progress"), "sequence_number": 0},
]
"""Deltas with other values than the example had, and events that are no deltas."""


def wire(events: list[Event], *, newline: str = "\n", done: bool = False) -> bytes:
    text = "".join(f"event: {one.get('type')}\n: a comment\ndata: {json.dumps(one)}\n\n" for one in events)
    text += "data: [DONE]\n\n" if done else ""
    return text.replace("\n", newline).encode()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(serve: Handler) -> AsyncIterator[str]:
    """The URL of a server on this machine."""
    writers: list[asyncio.StreamWriter] = []

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            await serve(reader, writer)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()
        for writer in writers:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


async def take_request(reader: asyncio.StreamReader) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]))


@asynccontextmanager
async def serving(body: bytes, size: int = 1_000, *, cut: bool = False) -> AsyncIterator[AsyncOpenAI]:
    """The real client, of a server that answers every request with this stream in pieces of that size."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await take_request(reader)
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            for start in range(0, len(body), size):
                part = body[start : start + size]
                writer.write(b"%x\r\n%b\r\n" % (len(part), part))
            if cut:
                return writer.close()
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    async with listening(serve) as url, AsyncOpenAI(api_key="k", base_url=url, max_retries=0) as client:
        yield client


async def streamed(client: AsyncOpenAI) -> Any:
    return await client.responses.create(model="m", input="x", stream=True)


async def read(events: AsyncIterator[Any]) -> list[Any]:
    """The events until the end, and the error that ended them."""
    found: list[Any] = []
    try:
        async for event in events:
            found.append(event)
    except Exception as error:
        said = "" if isinstance(error, UnicodeError) else str(error)  # at which byte differs: of the line, of its data
        found.append((type(error), said, getattr(error, "body", None)))
    return found


def look(event: Any) -> object:
    """All that a program can see of an event, the order of its keys included."""
    if not isinstance(event, openai.BaseModel):
        return repr(event)
    return (
        type(event),
        repr(event),
        list(vars(event).items()).__repr__(),
        repr(event.model_extra),
        event.model_fields_set,
        event.model_dump(warnings=False),
        event.model_dump(exclude_unset=True, warnings=False),
        dumped(event),
        event.__pydantic_private__,
    )


def dumped(event: Any) -> str:
    try:
        return str(event.model_dump_json(warnings=False))
    except Exception as error:  # a half of a surrogate pair is no JSON
        return type(error).__name__


async def both(body: bytes, size: int = 1_000, *, cut: bool = False) -> tuple[list[Any], list[Any]]:
    """What the client reads, and what this module reads."""
    async with serving(body, size, cut=cut) as client:
        theirs = await read(aiter(await streamed(client)))
        stream = await streamed(client)
        assert event_stream._is_plain(stream), "the client's stream is not what this module knows: it is read slowly"
        return theirs, await read(events_of(stream))


@pytest.fixture(autouse=True)
def nothing_learned() -> Iterator[None]:
    event_stream._makers.clear()
    yield
    event_stream._makers.clear()


async def test_every_kind_of_delta_is_the_clients_object() -> None:
    kinds = list(plain_deltas())
    assert len(kinds) > 8
    theirs, ours = await both(wire(kinds * 3))
    assert [look(one) for one in ours] == [look(one) for one in theirs]
    assert len(ours) == 3 * len(kinds)


@pytest.mark.parametrize("first", [0, 7], ids=["after a usual delta", "after an odd one"])
async def test_deltas_with_other_values_and_unknown_events_are_the_clients_objects(first: int) -> None:
    """A shape that was learned from one delta must not be forced on another."""
    events = [ODD[first] if first else delta(1), delta(2), *ODD, delta(3), *ODD, delta(4)]
    theirs, ours = await both(wire(events))
    assert [look(one) for one in ours] == [look(one) for one in theirs]
    assert len(ours) == len(events)


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
async def test_how_the_network_cuts_a_stream_does_not_change_it(newline: str, size: int) -> None:
    events = [delta(number) for number in range(5)] + [ODD[-2]]
    theirs, ours = await both(wire(events, newline=newline, done=True), size)
    assert [look(one) for one in ours] == [look(one) for one in theirs]
    assert len(ours) == len(events)


async def test_nearly_all_deltas_are_made_without_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is what this module is for."""
    seen: list[object] = []
    validate = openai._models.validate_type
    monkeypatch.setattr(openai._models, "validate_type", lambda **given: seen.append(given) or validate(**given))
    async with serving(wire([delta(number) for number in range(200)])) as client:
        events = await read(events_of(await streamed(client)))
    assert len(events) == 200
    assert len(seen) == 1


async def test_events_are_objects_of_their_own() -> None:
    async with serving(wire([delta(1), delta(1), delta(1)])) as client:
        events = await read(events_of(await streamed(client)))
    events[1].delta, events[1].new = "changed", "kept"
    events[1].logprobs.append("mine")
    assert (events[2].delta, events[2].logprobs, events[1].new) == ("word 1", [], "kept")
    assert events[1].model_copy(deep=True) == events[1] != events[2]


@pytest.mark.parametrize(
    "last",
    [
        b'data: {"error": {"message": "no", "code": "server_error"}}\n\n',
        b'data: {"type": "response.output_text.delta", "error": {"message": 5}}\n\n',
        b'data: {"error": "words"}\n\n',
        b"data: {half\n\n",
        b"data: \xff\n\n",
        b"data: [1, 2]\n\n",
        b'data: {"type": "response.output_text.delta", "delta": "without its blank line"}\n',
        b"",
    ],
)
@pytest.mark.parametrize("cut", [False, True], ids=["ended", "cut"])
async def test_a_stream_that_breaks_raises_what_the_client_raises(last: bytes, cut: bool) -> None:
    theirs, ours = await both(wire([delta(1), delta(2)]) + last, cut=cut)
    assert [look(one) for one in ours] == [look(one) for one in theirs]


async def test_a_server_that_says_nothing_more_is_the_clients_timeout() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n" + wire([delta(1)]))
        await reader.read()

    async with listening(serve) as url, AsyncOpenAI(api_key="k", base_url=url, max_retries=0, timeout=0.5) as client:
        *_, (kind, _, _) = await read(events_of(await streamed(client)))
        assert kind is openai.APITimeoutError


# --- patched and wrapped clients -------------------------------------------------------------------------------------


class Wrapped:
    """What Langfuse and OpenTelemetry return instead of a stream."""

    def __init__(self, stream: Any, seen: list[Any]) -> None:
        self._stream, self._seen = stream, seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __aiter__(self) -> Any:
        return self

    async def __anext__(self) -> Any:
        self._seen.append(event := await anext(self._stream))
        return event


def replace_iterator(stream: Any, seen: list[Any]) -> Any:
    """As Sentry does."""

    async def tapped(source: Any) -> AsyncIterator[Any]:
        async for event in source:
            seen.append(event)
            yield event

    stream._iterator = tapped(stream._iterator)
    return stream


def subclass(stream: Any, seen: list[Any]) -> Any:
    class Mine(AsyncStream):  # type: ignore[type-arg]
        async def __anext__(self) -> Any:
            seen.append(event := await super().__anext__())
            return event

        def __aiter__(self) -> Any:
            return self

    stream.__class__ = Mine
    return stream


def change_client(stream: Any, seen: list[Any]) -> Any:
    process = stream._client._process_response_data

    def mine(**given: Any) -> Any:
        seen.append(event := process(**given))
        return event

    stream._client._process_response_data = mine
    return stream


def change_decoder(stream: Any, seen: list[Any]) -> Any:
    class Decoder(type(stream._decoder)):  # type: ignore[misc]
        def decode(self, line: str) -> Any:
            if (event := super().decode(line)) is not None:
                seen.append(event)
            return event

    stream._decoder.__class__ = Decoder
    return stream


@pytest.mark.parametrize("change", [Wrapped, replace_iterator, subclass, change_client, change_decoder])
async def test_a_changed_client_keeps_its_own_reader(change: Callable[[Any, list[Any]], Any]) -> None:
    """What others observe, they go on to observe."""
    seen: list[Any] = []
    async with serving(wire([delta(1), delta(2), delta(3)])) as client:
        events = await read(events_of(change(await streamed(client), seen)))
    assert [event.sequence_number for event in events] == [1, 2, 3]
    assert len(seen) == 3


@pytest.mark.parametrize("name", ["__anext__", "__aiter__", "__stream__", "_iter_events"])
async def test_a_patched_class_keeps_its_own_reader(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    own = getattr(AsyncStream, name)
    used: list[str] = []
    monkeypatch.setattr(AsyncStream, name, lambda *given: used.append(name) or own(*given))
    async with serving(wire([delta(1)])) as client:
        stream = await streamed(client)
        assert not event_stream._is_plain(stream)
        assert len(await read(events_of(stream))) == 1


async def test_a_stream_that_somebody_began_to_read_goes_on() -> None:
    async with serving(wire([delta(1), delta(2), delta(3)])) as client:
        stream = await streamed(client)
        assert (await anext(stream)).sequence_number == 1
        assert [event.sequence_number for event in await read(events_of(stream))] == [2, 3]


async def test_a_client_that_validates_strictly_goes_on_to() -> None:
    async with serving(wire([delta(1), delta(2), delta(delta=None)])) as client:
        strict = AsyncOpenAI(api_key="k", base_url=client.base_url, _strict_response_validation=True)
        *events, (kind, _, _) = await read(events_of(await streamed(strict)))
        assert len(events) == 2
        assert kind is openai.APIResponseValidationError
        await strict.close()


# --- blocks ----------------------------------------------------------------------------------------------------------


@given(st.lists(st.sampled_from(["data: a", "data:b", "data: ", ": c", "event: x", "", "id: 1"])), st.data())
@settings(max_examples=200)
def test_any_cut_gives_the_same_data(lines: list[str], data: Any) -> None:
    newline = data.draw(st.sampled_from(["\n", "\r\n", "\r"]))
    body = newline.join([*lines, "", ""]).encode()
    whole = list(Blocks().feed(body))
    blocks, found, rest = Blocks(), [], body
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        found += blocks.feed(rest[:size])
        rest = rest[size:]
    assert found == whole


class ClosedWithoutCoroutine(Wrapped):
    """OpenTelemetry's wrapper of a chat stream closes without a coroutine."""

    def close(self) -> None:
        self._seen.append("closed")


@pytest.mark.parametrize("kind", [OpenAIResponsesModel, OpenAIChatCompletionsModel])
async def test_a_wrapper_may_close_its_stream_without_a_coroutine(kind: Any) -> None:
    seen: list[Any] = []
    async with LoopbackServer(["hello"]) as server, server.client() as client:
        for api in (client.responses, client.chat.completions):
            api.create = returning_wrapped(api.create, seen)
        result = Runner.run_streamed(Agent(name="A", model=kind("any-model", client)), "hi")
        assert [event async for event in result.stream_events()]
        assert (result.final_output, seen[-1]) == ("hello", "closed")
        await seen[0].close()


def returning_wrapped(create: Callable[..., Awaitable[Any]], seen: list[Any]) -> Callable[..., Awaitable[Any]]:
    async def wrapped(*args: Any, **options: Any) -> Any:
        seen.append(stream := await create(*args, **options))
        return ClosedWithoutCoroutine(stream, seen)

    return wrapped
