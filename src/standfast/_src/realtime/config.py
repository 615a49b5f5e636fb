"""How a voice call is run: the SDK's settings, and those it has no word for."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from standfast._src.agents.guardrails import OutputGuardrail
from standfast._src.base.errors import InvalidSettingError, SettingTypeError
from standfast._src.realtime.machine.session_settings import RealtimeSessionModelSettings
from standfast._src.tools.refusal_texts import ToolErrorFormatter


class RealtimeGuardrailsSettings(TypedDict):
    """How output guardrails look."""

    debounce_text_length: NotRequired[int]
    """How many characters come between two looks; 100 unless given."""

    on_error: NotRequired[Literal["skip", "trip"]]
    """What a guardrail that raises means: nothing (`skip`, the default), or a trip."""

    hold_audio: NotRequired[bool]
    """Whether audio is kept back until the guardrails have looked at its words. Later, but nothing refused is heard."""


class RealtimeToolExecutionConfig(TypedDict):
    """How calls are carried out."""

    pre_approval_tool_input_guardrails: NotRequired[bool]
    """Whether tool input guardrails look before a person is asked, too."""

    max_function_tool_concurrency: NotRequired[int]
    """How many calls may run at once."""


class RealtimeReconnectConfig(TypedDict):
    """What happens when a connection is lost."""

    enabled: NotRequired[bool]
    """Whether the call goes on with a new one. On where a session is given, else off."""

    max_attempts: NotRequired[int]
    """How often a new connection is tried before the call ends; 8 unless given."""

    first_delay_s: NotRequired[float]
    max_delay_s: NotRequired[float]
    """The waits between two attempts grow from the one to the other: 0.2 and 10 unless given."""

    recycle_before_s: NotRequired[float]
    """How long before the provider's time limit a new connection is made, between two turns; 60 unless given."""


class RealtimeRunConfig(TypedDict):
    """Everything that can be said about how a call is run."""

    model_settings: NotRequired[RealtimeSessionModelSettings]
    output_guardrails: NotRequired[list[OutputGuardrail[Any]]]
    guardrails_settings: NotRequired[RealtimeGuardrailsSettings]
    tracing_disabled: NotRequired[bool]
    async_tool_calls: NotRequired[bool]
    tool_execution: NotRequired[RealtimeToolExecutionConfig]
    tool_error_formatter: NotRequired[ToolErrorFormatter]
    reconnect: NotRequired[RealtimeReconnectConfig]
    tool_failure: NotRequired[Literal["output", "raise"]]
    """What a tool that raises means: an output and an `error` event (the default), or the end of the call."""
    announce_waiting_calls: NotRequired[bool]
    """Whether the model is told, before a reply, which calls wait for a person."""
    raw_events: NotRequired[bool]
    """Whether readers see `raw_model_event`; on unless switched off."""
    close_timeout_s: NotRequired[float]
    """How long closing waits for code that cannot be stopped; 5 unless given."""
    reply_timeout_s: NotRequired[float]
    """How long a server may say nothing about a reply before it is asked for again; 10 unless given."""
    audio_buffer_bytes: NotRequired[int]
    event_buffer_count: NotRequired[int]
    """How much audio, and how many other events, may wait for a reader."""
    lease_ttl_s: NotRequired[float]
    """How long a dead worker keeps its call's session; 6 unless given."""
    lease_wait_s: NotRequired[float]
    """How long entering waits for whoever holds the session; 15 unless given."""
    unfinished: NotRequired[Literal["settle", "refuse", "ignore"]]
    """What entering does about other runs of the conversation that have not ended, as in `RunConfig` (C15)."""


_KNOWN = frozenset(RealtimeRunConfig.__annotations__)


def check_run_config(config: object) -> RealtimeRunConfig:
    """The config itself, if every setting of it exists and can mean something."""
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise SettingTypeError(f"a {type(config).__name__} is no RealtimeRunConfig", "Give a dict of its settings.")
    unknown = sorted(set(config) - _KNOWN)
    if unknown:
        raise SettingTypeError(f"RealtimeRunConfig has no {', '.join(unknown)}", f"It has {', '.join(sorted(_KNOWN))}.")
    for name in ("close_timeout_s", "reply_timeout_s", "lease_ttl_s", "audio_buffer_bytes", "event_buffer_count"):
        if name in config and not config[name] > 0:
            raise InvalidSettingError(f"{name} is {config[name]!r}", "Give a positive number.")
    if config.get("unfinished", "settle") not in ("settle", "refuse", "ignore"):
        raise InvalidSettingError(f"unfinished is {config['unfinished']!r}", "Choose 'settle', 'refuse' or 'ignore'.")
    checked: RealtimeRunConfig = config  # type: ignore[assignment]
    return checked
