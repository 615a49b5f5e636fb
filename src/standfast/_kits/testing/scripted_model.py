"""A model that plays a script: for tests of agents, without a provider and without a mock.

Each call takes the next step, in order, streaming or not, and is recorded as it was. The same script gives the same
reply in both modes: what is streamed is generated from what would have been returned, or the other way round. Nothing
here needs a provider's library; its typed objects are accepted where plain items are.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import aclosing
from typing import Any

from standfast._kits.testing.script import (
    ModelCall,
    ModelScriptItem,
    ModelStep,
    UnconsumedModelSteps,
    UnexpectedModelCall,
    coerce_step,
)
from standfast._kits.testing.stream import StreamPiece, stream_of
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import StreamCutError
from standfast._src.items.items import ModelResponse, read, to_plain
from standfast._src.items.usage import Usage
from standfast._src.models.interface import ModelRequest
from standfast._src.models.providers.request_model import RequestModel
from standfast._src.models.retry import ModelRetryAdvice, ModelRetryAdviceRequest
from standfast._src.models.stream_assembly import QUIET_EVENTS, StreamAssembler


class ScriptedModel(RequestModel):
    """Plays `steps` in order, one for each call, and records the calls.

    A step is a `ModelStep`, its dict form, a `ModelResponse`, a list of output items, or an exception. Steps without a
    usage cost `default_usage` (one request, no tokens). `record_calls=False` keeps no copies of what was sent, for
    measuring. `emit_traces` is part of the SDK's signature; runs trace their model calls themselves.
    """

    def __init__(
        self,
        steps: Iterable[ModelScriptItem] = (),
        *,
        emit_traces: bool = False,
        default_usage: Usage | None = None,
        chunk_chars: int | None = None,
        record_calls: bool = True,
    ) -> None:
        self.emit_traces = emit_traces
        self._default_usage = default_usage
        self._chunk_chars = chunk_chars
        self._record_calls = record_calls
        self._steps: deque[ModelStep] = deque()
        self._calls: list[ModelCall] = []
        self._called = 0
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._advice: list[tuple[Exception, ModelRetryAdvice]] = []
        self.extend(steps)

    # --- the script --------------------------------------------------------------------------------------------------

    def enqueue(self, step: ModelScriptItem) -> None:
        """Add a step at the end."""
        self._steps.append(coerce_step(step, 0))

    def extend(self, steps: Iterable[ModelScriptItem]) -> None:
        """Add steps at the end: all of them, or none if any is invalid."""
        self._steps.extend([coerce_step(step, place) for place, step in enumerate(steps)])

    def set_default_usage(self, usage: Usage | None) -> None:
        """Set the usage of steps without their own; None: one request, no tokens."""
        self._default_usage = usage

    @property
    def remaining_steps(self) -> int:
        """Number of unplayed steps."""
        return len(self._steps)

    def assert_complete(self) -> None:
        """Raise UnconsumedModelSteps unless the script was played to its end."""
        if self._steps:
            raise UnconsumedModelSteps(
                f"{len(self._steps)} scripted model step(s) were not consumed", remaining_steps=len(self._steps)
            )

    # --- what was asked ----------------------------------------------------------------------------------------------

    @property
    def calls(self) -> tuple[ModelCall, ...]:
        """All calls so far, each in its state on arrival."""
        return tuple(self._calls)

    @property
    def first_call(self) -> ModelCall | None:
        """The first call, or None."""
        return self._calls[0] if self._calls else None

    @property
    def last_call(self) -> ModelCall | None:
        """The latest call, or None."""
        return self._calls[-1] if self._calls else None

    async def wait_for_call(self, count: int = 1) -> None:
        """Wait until the model has been called `count` times: for tests that must not depend on the clock."""
        if self._called < count:
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append((count, waiter))
            await waiter

    # --- the model ---------------------------------------------------------------------------------------------------

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """Return the advice of the step that failed with this very error."""
        return next((advice for error, advice in self._advice if error is request.error), None)

    async def respond(self, request: ModelRequest) -> ModelResponse:
        """Play the next step and return its whole reply."""
        call = self._record_call(request, streamed=False)
        preserve_raw_usage = bool(request.model_settings.preserve_raw_usage)
        step = await self._next_step(call)
        if step.cut_after is not None or (step.stream_events and not step.output):
            # The reply is whatever the stream would have told, its breaking off included: both modes agree.
            reply = StreamAssembler()
            async with aclosing(self._events(step, call)) as events:
                async for event in events:
                    reply.feed(event)
            return reply.result(preserve_raw_usage=preserve_raw_usage)
        if step.error is not None:
            raise step.error
        raw_usage = step.raw_usage if preserve_raw_usage else None
        return ModelResponse(list(step.output), self._usage(step), step.response_id, step.request_id, raw_usage)

    async def respond_streamed(self, request: ModelRequest) -> AsyncIterator[Any]:
        """Play the next step as a stream."""
        call = self._record_call(request, streamed=True)
        step = await self._next_step(call)
        if step.stream_events is None and step.cut_after is None and step.error is None:
            for piece in self._stream_step(step):
                yield piece
            return
        async with aclosing(self._events(step, call)) as events:
            async for event in events:
                yield event

    # --- playing a step ----------------------------------------------------------------------------------------------

    def _record_call(self, request: ModelRequest, *, streamed: bool) -> ModelCall:
        record, settings = self._record_calls, request.model_settings
        call = ModelCall(
            request.system_instructions,
            to_plain(request.input) if record else request.input,
            dataclasses.replace(settings) if record else settings,
            list(request.tools),
            request.output_schema,
            list(request.handoffs),
            request.tracing,
            request.previous_response_id,
            request.conversation_id,
            to_plain(request.prompt) if record else request.prompt,
            streamed,
        )
        if record:
            self._calls.append(call)
        self._called += 1
        for count, waiter in self._waiters:
            if count <= self._called and not waiter.done():
                waiter.set_result(None)
        return call

    async def _next_step(self, call: ModelCall) -> ModelStep:
        """Return the step for a call, computed if necessary, after its delay."""
        index = self._called - 1
        if not self._steps:
            mode = "streaming" if call.streamed else "non-streaming"
            raise UnexpectedModelCall(
                f"unexpected {mode} model call #{index + 1}: no scripted steps remain", call=call, call_index=index
            )
        step = self._steps.popleft()
        if step.delay_s:
            await asyncio.sleep(step.delay_s)
        while step.responder is not None:
            answer: Any = step.responder(call)
            step = coerce_step(await maybe_await(answer), index)
            if step.delay_s:
                await asyncio.sleep(step.delay_s)
        if step.hangs:
            await asyncio.get_running_loop().create_future()
        if step.error is not None and step.retry_advice is not None:
            self._remember(step.error, step.retry_advice)
        return step

    async def _events(self, step: ModelStep, call: ModelCall) -> AsyncGenerator[Any, None]:
        """Yield the events of a step, up to its cut."""
        if step.error is not None and step.cut_after is None:
            raise step.error
        count, output_begun, complete = 0, False, False
        async with aclosing(self._whole_stream(step, call)) as events:
            async for event in events:
                if step.cut_after is not None and count >= step.cut_after:
                    break
                count += 1
                kind = read(event, "type")
                output_begun = output_begun or kind not in QUIET_EVENTS
                complete = complete or kind == "response.completed"
                yield event
        if step.cut_after is None or complete:
            return
        error = step.error or StreamCutError("the scripted stream was cut", "That is what the step asked for.")
        if step.retry_advice is None:  # a caller that does not stream cannot see how far the reply had come
            self._remember(error, ModelRetryAdvice(response_started=output_begun))
        if step.error is not None or not call.streamed:
            raise error

    async def _whole_stream(self, step: ModelStep, call: ModelCall) -> AsyncGenerator[Any, None]:
        events: Any = self._stream_step(step) if step.stream_events is None else step.stream_events
        made = events(call) if callable(events) else events
        made = await maybe_await(made)
        if isinstance(made, AsyncIterable):
            async for event in made:
                yield event
        else:
            for event in made:
                yield event

    def _stream_step(self, step: ModelStep) -> Iterator[StreamPiece]:
        return stream_of(
            step.output,
            usage=step.raw_usage if step.usage is None and step.raw_usage else self._usage(step),
            response_id=step.response_id,
            request_id=step.request_id,
            chunk_chars=step.chunk_chars or self._chunk_chars,
        )

    def _usage(self, step: ModelStep) -> Usage:
        usage = next((found for found in (step.usage, step.raw_usage) if found is not None), self._default_usage)
        return Usage(requests=1) if usage is None else Usage.from_provider(usage).copy()

    def _remember(self, error: Exception, advice: ModelRetryAdvice) -> None:
        self._advice = [(other, said) for other, said in self._advice if other is not error] + [(error, advice)]


def text_of(call: ModelCall) -> str:
    """Join all texts of a call's input, one per line: for a responder that answers from its input."""
    if isinstance(call.input, str):
        return call.input
    lines: list[str] = []
    for item in call.input:
        content = read(item, "content")
        parts = [{"text": content}] if isinstance(content, str) else content or ()
        lines += [text for part in parts if isinstance(text := read(part, "text"), str)]
    return "\n".join(lines)
