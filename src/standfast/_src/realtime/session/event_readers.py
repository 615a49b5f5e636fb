"""Readers of a session: each gets every event, and ends with the session or when too far behind."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable

from standfast._src.realtime.session.call_scope import CallScope
from standfast._src.realtime.session.event_queue import BoundedEventQueue
from standfast._src.realtime.session_events import RealtimeAudio, RealtimeSessionEvent


class EventIterator:
    """A reader of a session: gets every event from its creation on, and ends with the session."""

    def __init__(
        self,
        scope: CallScope,
        outlet: BoundedEventQueue,
        *,
        is_over: Callable[[], bool],
        failure: Callable[[], BaseException | None],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._scope, self._outlet = scope, outlet
        self._is_over, self._failure, self._close = is_over, failure, close
        self._take = scope.take
        self._is_closed = False
        # A reader that leaves the loop early does not announce it: its queue must then be freed.
        weakref.finalize(self, scope.forget_outlet, outlet)

    def __aiter__(self) -> EventIterator:
        return self

    async def aclose(self) -> None:
        """Stop reading: no further event is kept for this reader. The session continues."""
        self._is_closed = True
        self._scope.forget_outlet(self._outlet)

    async def __anext__(self) -> RealtimeSessionEvent:
        if self._is_closed:
            raise StopAsyncIteration
        outlet = self._outlet
        audio = outlet.next_audio
        if audio is not None:  # its raw event was read just now
            outlet.next_audio = None
            before = outlet.taken
            outlet.taken = audio
            if before is None or before.item_id != audio.item_id:
                self._take(audio, before)
            return audio
        while True:
            event = outlet.get()
            if event is not None:
                if type(event) is RealtimeAudio:  # no raw events are wanted
                    before = outlet.taken
                    outlet.taken = event
                    if before is None or before.item_id != event.item_id:
                        self._take(event, before)
                return event
            if self._scope.may_be_over:
                await self._end_if_over()
            waiter = outlet.waiter = asyncio.get_running_loop().create_future()
            try:
                await waiter
            finally:
                if outlet.waiter is waiter:
                    outlet.waiter = None

    async def _end_if_over(self) -> None:
        """Raise the error that ended the call, or StopAsyncIteration if the session is over."""
        error = self._failure()
        if error is not None:
            await self._close()
            raise error
        if self._is_over() or self._scope.stream_ended:
            raise StopAsyncIteration
