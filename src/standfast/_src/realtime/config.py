"""Settings of a voice call: those of the SDK, and those the SDK lacks."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from standfast._src.agents.guardrails import OutputGuardrail
from standfast._src.base.errors import InvalidSettingError, SettingTypeError
from standfast._src.base.type_names import describe_type
from standfast._src.realtime.machine.session_settings import RealtimeSessionModelSettings
from standfast._src.tools.refusal_texts import ToolErrorFormatter

DEBOUNCE_CHARS = 100
LEASE_TTL_S, LEASE_WAIT_S = 6.0, 15.0
# A caller who is cut off waits on the line for the next worker, so a call's lease is shorter than that of a run.


class RealtimeGuardrailsSettings(TypedDict):
    """Settings of output guardrails."""

    debounce_text_length: NotRequired[int]
    """Number of characters between two checks; 100 unless given."""

    on_error: NotRequired[Literal["skip", "trip"]]
    """Effect of a guardrail that raises: none (`skip`, the default), or a trip."""

    hold_audio: NotRequired[bool]
    """True to delay audio until the guardrails have checked its words, so that no refused text is heard."""


class RealtimeToolExecutionConfig(TypedDict):
    """Execution of tool calls."""

    pre_approval_tool_input_guardrails: NotRequired[bool]
    """True to run tool input guardrails also before a person is asked."""

    max_function_tool_concurrency: NotRequired[int]
    """Number of tool calls that may run at the same time."""


class RealtimeReconnectConfig(TypedDict):
    """Behaviour after the loss of a connection."""

    enabled: NotRequired[bool]
    """True to continue the call with a new connection. Default: True with a session, else False."""

    max_attempts: NotRequired[int]
    """Number of attempts to connect before the call ends; 8 unless given."""

    first_delay_s: NotRequired[float]
    max_delay_s: NotRequired[float]
    """The waits between two attempts grow from the one to the other: 0.2 and 10 unless given."""

    recycle_before_s: NotRequired[float]
    """Seconds before the provider's time limit for a new connection, made between two turns; 60 unless given."""


class RealtimeRunConfig(TypedDict):
    """All settings of a voice call."""

    model_settings: NotRequired[RealtimeSessionModelSettings]
    output_guardrails: NotRequired[list[OutputGuardrail[Any]]]
    guardrails_settings: NotRequired[RealtimeGuardrailsSettings]
    tracing_disabled: NotRequired[bool]
    async_tool_calls: NotRequired[bool]
    tool_execution: NotRequired[RealtimeToolExecutionConfig]
    tool_error_formatter: NotRequired[ToolErrorFormatter]
    reconnect: NotRequired[RealtimeReconnectConfig]
    tool_failure: NotRequired[Literal["output", "raise"]]
    """Effect of a tool that raises: an output and an `error` event (the default), or the end of the call."""
    announce_waiting_calls: NotRequired[bool]
    """True to inform the model, before a reply, of the calls that wait for a person."""
    raw_events: NotRequired[bool]
    """True if readers see `raw_model_event`; on unless switched off."""
    close_timeout_s: NotRequired[float]
    """Seconds that closing waits for code that cannot be stopped; 5 unless given."""
    reply_timeout_s: NotRequired[float]
    """Seconds without news of a reply before it is requested again; 10 unless given."""
    audio_buffer_bytes: NotRequired[int]
    event_buffer_count: NotRequired[int]
    """Bounds of a reader's queue: bytes of audio, and number of other events."""
    lease_ttl_s: NotRequired[float]
    """Seconds for which a crashed worker keeps the lease on its call's session; 6 unless given."""
    lease_wait_s: NotRequired[float]
    """Seconds that entering waits for another holder of the session; 15 unless given."""
    unfinished: NotRequired[Literal["settle", "refuse", "ignore"]]
    """Policy for other unfinished runs of the conversation at entry, as in `RunConfig` (C15)."""


_KNOWN = frozenset(RealtimeRunConfig.__annotations__)


def check_run_config(config: object) -> RealtimeRunConfig:
    """The config itself, if every setting of it exists and can mean something."""
    if config is None:
        return {}
    if not isinstance(config, dict):
        raise SettingTypeError(f"{describe_type(config)} is no RealtimeRunConfig", "Give a dict of its settings.")
    for name in ("limits", "price", "budgets"):
        if name in config:
            raise SettingTypeError(
                f"RealtimeRunConfig has no {name}: a call is paid for by its length, and has no turns to stop between",
                "End the call after a time; give limits to the agents that its tools run (as_tool(run_config=...)).",
            )
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
