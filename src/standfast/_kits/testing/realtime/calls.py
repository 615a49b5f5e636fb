"""A call with media outside the websocket: a telephone line or a browser's WebRTC, to which connections attach.

Its conversation outlives the connections: events without an attached connection happen, and are not repeated. The
methods are the caller's side: they speak, press keys, listen and hang up.
"""

from __future__ import annotations

from collections.abc import Callable

from standfast._kits.testing.realtime.connection import Hub
from standfast._kits.testing.realtime.conversation import Conversation
from standfast._kits.testing.realtime.jobs import Playing


class LoopbackCall:
    """A call in progress, made by `server.call()`."""

    def __init__(self, hub: Hub, call_id: str, inside: Callable[[Callable[[], None]], None]) -> None:
        self.hub, self.id, self._inside = hub, call_id, inside
        self.over = False
        """True after hanging up: no connection can attach any more."""

    @property
    def conversation(self) -> Conversation:
        """The call's conversation. Look at it when nothing moves, or in `server.inside`."""
        return self.hub.conversation

    def speak(self, audio: bytes) -> None:
        """The caller says something: audio in the session's input format (PCM of 24 kHz unless it was changed)."""

        def hear() -> None:
            self.conversation.hear(audio)
            self.hub.wake()

        self._inside(hear)

    def press(self, key: str) -> None:
        """The caller presses a key of the telephone."""
        received_at = round(self.conversation.now())
        self._inside(
            lambda: self.conversation.tell("input_audio_buffer.dtmf_event_received", event=key, received_at=received_at)
        )

    def played(self, ms: int) -> None:
        """Set the played milliseconds of the current audio; without this call, all of it counts as played."""

        def note() -> None:
            for job in self.conversation.jobs:
                if isinstance(job, Playing):
                    job.played_ms = ms

        self._inside(note)

    def hang_up(self) -> None:
        """Hang up by the caller: every connection is closed, and no new one can attach."""

        def end() -> None:
            self.over = True
            for connection in list(self.hub.connections):
                connection.close(1000, "")

        self._inside(end)
