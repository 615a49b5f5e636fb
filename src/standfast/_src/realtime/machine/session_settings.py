"""Settings of a voice conversation, with the SDK's names. Tools and handoffs are only inspected, never called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypeAlias, TypedDict

from standfast._src.items.fields import make_typed

RealtimeModelName: TypeAlias = str
"""The name of a realtime model."""

RealtimeAudioFormat: TypeAlias = str | Mapping[str, Any] | Any
"""`pcm16`, `g711_ulaw`, `g711_alaw`, their names on the wire, or a typed object of `openai`."""

RealtimeReasoningEffort: TypeAlias = Literal["minimal", "low", "medium", "high", "xhigh"] | str
"""Amount of reasoning before the model speaks."""


class RealtimeCustomVoice(TypedDict):
    """A custom voice, by id."""

    id: str


RealtimeVoice: TypeAlias = str | RealtimeCustomVoice | Mapping[str, Any]
"""The voice of the model."""


class RealtimeClientMessage(TypedDict):
    """A frame in the wire's own words."""

    type: str
    other_data: NotRequired[dict[str, Any]]


class RealtimeInputAudioTranscriptionConfig(TypedDict):
    """Transcription of the user's speech."""

    language: NotRequired[str]
    model: NotRequired[str]
    prompt: NotRequired[str]
    keywords: NotRequired[list[str]]
    languages: NotRequired[list[str]]
    delay: NotRequired[Literal["minimal", "low", "medium", "high", "xhigh"]]


class RealtimeInputAudioNoiseReductionConfig(TypedDict):
    """Noise reduction of the input."""

    type: NotRequired[Literal["near_field", "far_field"]]


class RealtimeTurnDetectionConfig(TypedDict):
    """Detection of the begin and end of a user's speech by the server."""

    type: NotRequired[Literal["semantic_vad", "server_vad"]]
    create_response: NotRequired[bool]
    eagerness: NotRequired[Literal["auto", "low", "medium", "high"]]
    interrupt_response: NotRequired[bool]
    prefix_padding_ms: NotRequired[int]
    silence_duration_ms: NotRequired[int]
    threshold: NotRequired[float]
    idle_timeout_ms: NotRequired[int]
    model_version: NotRequired[str]


class RealtimeAudioInputConfig(TypedDict, total=False):
    """Settings of input audio."""

    format: RealtimeAudioFormat
    noise_reduction: RealtimeInputAudioNoiseReductionConfig | None
    transcription: RealtimeInputAudioTranscriptionConfig
    turn_detection: RealtimeTurnDetectionConfig | None


class RealtimeAudioOutputConfig(TypedDict, total=False):
    """Settings of output audio."""

    format: RealtimeAudioFormat
    voice: RealtimeVoice
    speed: float


class RealtimeAudioConfig(TypedDict, total=False):
    """Settings of both."""

    input: RealtimeAudioInputConfig
    output: RealtimeAudioOutputConfig


class RealtimeReasoningConfig(TypedDict, total=False):
    """Reasoning of the model."""

    effort: RealtimeReasoningEffort


class RealtimeModelTracingConfig(TypedDict):
    """Tracing of the conversation by the provider."""

    workflow_name: NotRequired[str]
    group_id: NotRequired[str]
    metadata: NotRequired[dict[str, Any]]


class RealtimeSessionModelSettings(TypedDict):
    """All settings of a conversation; a missing setting keeps its default."""

    model_name: NotRequired[RealtimeModelName]
    instructions: NotRequired[str]
    prompt: NotRequired[Any]
    modalities: NotRequired[list[Literal["text", "audio"]]]
    output_modalities: NotRequired[list[Literal["text", "audio"]]]
    audio: NotRequired[RealtimeAudioConfig]
    voice: NotRequired[RealtimeVoice]
    speed: NotRequired[float]
    max_output_tokens: NotRequired[int | Literal["inf"]]
    input_audio_format: NotRequired[RealtimeAudioFormat]
    output_audio_format: NotRequired[RealtimeAudioFormat]
    input_audio_transcription: NotRequired[RealtimeInputAudioTranscriptionConfig]
    input_audio_noise_reduction: NotRequired[RealtimeInputAudioNoiseReductionConfig | None]
    turn_detection: NotRequired[RealtimeTurnDetectionConfig | None]
    tool_choice: NotRequired[Any]
    parallel_tool_calls: NotRequired[bool]
    reasoning: NotRequired[RealtimeReasoningConfig]
    tools: NotRequired[list[Any]]
    handoffs: NotRequired[list[Any]]
    tracing: NotRequired[RealtimeModelTracingConfig | None]


class RealtimeUserInputText(TypedDict):
    """Typed text."""

    type: Literal["input_text"]
    text: str


class RealtimeUserInputImage(TypedDict, total=False):
    """A picture, by its address or as data."""

    type: Literal["input_image"]
    image_url: str
    detail: NotRequired[str]


class RealtimeUserInputMessage(TypedDict):
    """A message of a user."""

    type: Literal["message"]
    role: Literal["user"]
    content: list[RealtimeUserInputText | RealtimeUserInputImage]


RealtimeUserInput: TypeAlias = str | RealtimeUserInputMessage
"""Typed input of a user."""

ALL_MS = 1 << 30
"""Longer than any reply: says that all of one was heard, however long it is."""

PCM_RATE, G711_RATE = 24_000, 8_000
_PCM, _ULAW, _ALAW = (
    ("pcm16", "audio/pcm", "pcm"),
    ("g711_ulaw", "audio/pcmu", "pcmu"),
    ("g711_alaw", "audio/pcma", "pcma"),
)


def to_realtime_audio_format(input_audio_format: RealtimeAudioFormat | None) -> Any:
    """Convert an audio format to openai's object (`AudioPCM`, …) if that package is loaded, else to a record of the
    same fields; None for no format or an unknown one. An object of a format is returned unchanged.

    Only 24 kHz exists on the wire: another rate is read as that one.
    """
    if isinstance(input_audio_format, Mapping | str | None):
        plain = wire_audio_format(input_audio_format)
        return (
            None
            if plain is None
            else make_typed(_FORMATS, "Audio" + plain["type"].removeprefix("audio/").upper(), plain)
        )
    return input_audio_format


_FORMATS = "openai.types.realtime.realtime_audio_formats"


def wire_audio_format(input_audio_format: RealtimeAudioFormat | None) -> dict[str, Any] | None:
    """Convert an audio format to the wire's form; None as in `to_realtime_audio_format`."""
    kind = format_name(input_audio_format)
    if kind in _PCM:
        return {"type": "audio/pcm", "rate": PCM_RATE}
    if kind in _ULAW:
        return {"type": "audio/pcmu"}
    return {"type": "audio/pcma"} if kind in _ALAW else None


def format_name(value: object) -> str | None:
    """Return the lower-case name of an audio format in any notation."""
    if isinstance(value, Mapping):
        value = value.get("type")
    elif value is not None and not isinstance(value, str):
        value = getattr(value, "type", None)
    return value.lower() if isinstance(value, str) else None


SPOKEN_MS_PER_CHAR = 65
"""Spoken duration of a letter, for calls with unobserved audio."""


def bytes_per_ms(value: RealtimeAudioFormat | None) -> int:
    """Return the bytes per millisecond of a format; unknown formats count as pcm16."""
    kind = format_name(value) or ""
    return G711_RATE // 1000 if kind in _ULAW + _ALAW or kind.startswith("g711") else PCM_RATE * 2 // 1000


def calculate_audio_length_ms(format: RealtimeAudioFormat | None, audio_bytes: bytes) -> float:
    """Return the duration of audio data in milliseconds."""
    return len(audio_bytes) / bytes_per_ms(format)
