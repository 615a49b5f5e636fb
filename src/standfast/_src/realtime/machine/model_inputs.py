"""Messages from a session to a transport, with the SDK's names, fields and order of fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from standfast._src.realtime.machine.model_events import RealtimeModelToolCallEvent
from standfast._src.realtime.machine.session_settings import RealtimeSessionModelSettings


class RealtimeModelRawClientMessage(TypedDict):
    """A frame in the transport's own words."""

    type: str
    other_data: NotRequired[dict[str, Any]]


class RealtimeModelInputTextContent(TypedDict):
    """Typed text."""

    type: Literal["input_text"]
    text: str


class RealtimeModelInputImageContent(TypedDict, total=False):
    """A picture, by its address or as data."""

    type: Literal["input_image"]
    image_url: str
    detail: str


class RealtimeModelUserInputMessage(TypedDict):
    """A message of a user."""

    type: Literal["message"]
    role: Literal["user"]
    content: list[RealtimeModelInputTextContent | RealtimeModelInputImageContent]


RealtimeModelUserInput: TypeAlias = str | RealtimeModelUserInputMessage
"""Typed input of a user."""


@dataclass
class RealtimeModelSendRawMessage:
    """Send a frame in the transport's own words."""

    message: RealtimeModelRawClientMessage


@dataclass
class RealtimeModelSendUserInput:
    """Send a user's typed message, and request a reply."""

    user_input: RealtimeModelUserInput


@dataclass
class RealtimeModelSendAudio:
    """Send a piece of a user's speech."""

    audio: bytes
    commit: bool = False


@dataclass
class RealtimeModelSendToolOutput:
    """Send the output of a tool call."""

    tool_call: RealtimeModelToolCallEvent
    output: str
    start_response: bool


@dataclass
class RealtimeModelSendInterrupt:
    """Stop the current speech."""

    force_response_cancel: bool = False
    response_id: str | None = None
    cancel_response_only: bool = False
    playback_only: bool = False


@dataclass
class RealtimeModelSendSessionUpdate:
    """Change the settings of the conversation."""

    session_settings: RealtimeSessionModelSettings


RealtimeModelSendEvent: TypeAlias = (
    RealtimeModelSendRawMessage
    | RealtimeModelSendUserInput
    | RealtimeModelSendAudio
    | RealtimeModelSendToolOutput
    | RealtimeModelSendInterrupt
    | RealtimeModelSendSessionUpdate
)
"""Anything a session sends."""
