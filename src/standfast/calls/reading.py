"""Readers of a session: each sees every event, and ends with the session or when it falls too far behind."""

from __future__ import annotations

import weakref
from collections.abc import Awaitable, Callable

from standfast.agents.realtime_events import RealtimeAudio, RealtimeSessionEvent
from standfast.calls.outlet import Outlet
from standfast.calls.scope import CallScope


class EventIterator:
    """One reader of a session: sees every event from when it began, and ends with the session."""

    def __init__(
        self,
        scope: CallScope,
        outlet: Outlet,
        *,
        is_over: Callable[[], bool],
        failure: Callable[[], BaseException | None],
        close: Callable[[], Awaitable[None]],
    ) -> None:
        self._scope, self._outlet = scope, outlet
        self._is_over, self._failure, self._close = is_over, failure, close
        # Whoever leaves the loop early does not say so: then nothing must be kept for them.
        weakref.finalize(self, scope.forget_outlet, outlet)

    def __aiter__(self) -> EventIterator:
        return self

    async def __anext__(self) -> RealtimeSessionEvent:
        scope, outlet = self._scope, self._outlet
        audio = outlet.next_audio
        if audio is not None:  # its raw event was read just now
            outlet.next_audio = None
            scope.take(audio)
            return audio
        while True:
            event = outlet.get()
            if event is not None:
                if type(event) is RealtimeAudio:
                    scope.take(event)
                return event
            error = self._failure()
            if error is not None:
                await self._close()
                raise error
            if self._is_over() or scope.stream_ended:
                raise StopAsyncIteration
            await outlet.wait()
