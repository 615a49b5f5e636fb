"""Interface of a transport: connect, send, notify listeners. Names and signatures are the SDK's.

A transport with only these methods works: it requests replies and handles interruptions by itself, and a lost
connection ends the call, because a new one cannot be given the conversation. A `FrameTransport` carries the raw frames
of the Realtime protocol; then the session does all of that, the same for every transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Generator
from typing import Any, ClassVar, NotRequired, TypeAlias, TypedDict

from standfast._src.realtime.machine.model_events import RealtimeModelEvent
from standfast._src.realtime.machine.model_inputs import RealtimeModelSendEvent
from standfast._src.realtime.machine.session_settings import (
    RealtimeAudioFormat,
    RealtimeSessionModelSettings,
    calculate_audio_length_ms,
)

ApiKey: TypeAlias = "str | Callable[[], str | Awaitable[str]]"
"""A key, or a function that gives one."""


class RealtimePlaybackState(TypedDict):
    """Item in playback, and its progress."""

    current_item_id: str | None
    current_item_content_index: int | None
    elapsed_ms: float | None


class RealtimePlaybackTracker:
    """Receiver of the application's playback reports. Without a tracker, a session uses the clock."""

    def __init__(self) -> None:
        self._format: RealtimeAudioFormat | None = None
        self._item: tuple[str, int] | None = None
        self._elapsed_ms = 0.0
        self.on_change: Callable[[], None] | None = None
        """Called after every report; set by the session that uses this tracker."""

    def on_play_bytes(self, item_id: str, item_content_index: int, bytes: bytes) -> None:
        """Report played bytes of an item."""
        self.on_play_ms(item_id, item_content_index, calculate_audio_length_ms(self._format, bytes))

    def on_play_ms(self, item_id: str, item_content_index: int, ms: float) -> None:
        """So much more of the item has been played."""
        if self._item != (item_id, item_content_index):
            self._item, self._elapsed_ms = (item_id, item_content_index), ms
        else:
            self._elapsed_ms += ms
        if self.on_change is not None:
            self.on_change()

    def on_interrupted(self) -> None:
        """Playing has stopped."""
        self._item, self._elapsed_ms = None, 0.0

    def set_audio_format(self, format: RealtimeAudioFormat) -> None:
        """Set the format of the bytes; called by the session."""
        self._format = format

    def get_state(self) -> RealtimePlaybackState:
        """Return the current playback; all None while idle."""
        if self._item is None:
            return {"current_item_id": None, "current_item_content_index": None, "elapsed_ms": None}
        item_id, index = self._item
        return {"current_item_id": item_id, "current_item_content_index": index, "elapsed_ms": self._elapsed_ms}


class RealtimeModelListener(ABC):
    """Listener to the events of a transport."""

    @abstractmethod
    async def on_event(self, event: RealtimeModelEvent) -> None:
        """Something was received."""


class RealtimeModelConfig(TypedDict):
    """Settings of a connection."""

    api_key: NotRequired[ApiKey]
    url: NotRequired[str]
    headers: NotRequired[dict[str, str]]
    initial_model_settings: NotRequired[RealtimeSessionModelSettings]
    playback_tracker: NotRequired[RealtimePlaybackTracker]
    call_id: NotRequired[str]


class _No:
    """An awaitable False: this layer has no coroutines of its own."""

    def __await__(self) -> Generator[Any, None, bool]:
        return False
        yield


class RealtimeModel(ABC):
    """A transport: at most one connection to a model at a time."""

    restores: ClassVar[bool] = False
    """True if a session can send the conversation to a new connection: only with a `FrameTransport`."""

    @abstractmethod
    async def connect(self, options: RealtimeModelConfig) -> None:
        """Connect, apply `initial_model_settings`, and notify listeners of all received events from then on."""

    @abstractmethod
    def add_listener(self, listener: RealtimeModelListener) -> None:
        """Add a listener; adding it twice changes nothing."""

    @abstractmethod
    def remove_listener(self, listener: RealtimeModelListener) -> None:
        """Remove a listener."""

    @abstractmethod
    async def send_event(self, event: RealtimeModelSendEvent) -> None:
        """Send an event."""

    def send_event_if(self, event: RealtimeModelSendEvent, send_if: Callable[[], bool]) -> Awaitable[bool]:
        """Send an event if the predicate holds at the moment of sending; return whether it was sent.

        A transport that cannot decide at that moment sends nothing, which is what this default does.
        """
        return _No()

    @abstractmethod
    async def close(self) -> None:
        """End the connection."""


class FrameTransport(RealtimeModel):
    """A transport that carries the raw frames of the Realtime protocol.

    Every frame of the server is emitted as `RealtimeModelRawServerEvent`, before its interpretation; every
    `RealtimeModelSendRawMessage` is sent unchanged. The end of a connection is emitted as
    `RealtimeModelConnectionStatusEvent("disconnected")` with its code, and no event of it follows.
    """

    restores: ClassVar[bool] = True

    @abstractmethod
    async def dial(self, options: RealtimeModelConfig) -> None:
        """Connect and send nothing: the session does. May be called again after the connection has ended."""
