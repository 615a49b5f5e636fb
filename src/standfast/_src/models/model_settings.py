"""Settings of a model call: sampling, tools, storage, retries, timeouts. Every setting is optional; None means unset.

A dict is accepted in place of settings, and an unknown key is refused: a misspelt setting that is silently ignored
costs more than an error. `resolve` overlays one set on another; there is no other way to combine them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from standfast._src.base.errors import InvalidSettingError, SettingTypeError
from standfast._src.items.openai_compat import reasoning_of
from standfast._src.models.retry import ModelRetrySettings


@dataclass(slots=True)
class MCPToolChoice:
    """Tool choice that asks the model to call a tool of a hosted MCP server."""

    server_label: str
    name: str


Headers: TypeAlias = Mapping[str, Any]
"""Headers of a request: text, or openai's `Omit` for a header to leave out."""

ToolChoice: TypeAlias = Literal["auto", "required", "none"] | str | MCPToolChoice | None
"""Choice between the tools of a request."""


@dataclass
class ModelSettings:
    """Settings of a model call. The provider decides about fields left at None.

    A setting that an API lacks is not sent, with a single warning: the Responses API has no `frequency_penalty`
    and no `presence_penalty`, Chat Completions has no `truncation`, `response_include` and `context_management`.
    """

    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    tool_choice: ToolChoice = None
    parallel_tool_calls: bool | None = None
    truncation: Literal["auto", "disabled"] | None = None
    max_tokens: int | None = None
    reasoning: Any | None = None
    """`openai.types.shared.Reasoning`, or a dict, which is read as one: `settings.reasoning.effort` works."""

    verbosity: Literal["low", "medium", "high"] | None = None
    metadata: dict[str, str] | None = None
    store: bool | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    include_usage: bool | None = None
    response_include: list[str] | None = None
    top_logprobs: int | None = None
    extra_query: Mapping[str, Any] | None = None
    extra_body: Any | None = None
    extra_headers: Headers | None = None
    extra_args: dict[str, Any] | None = None
    retry: ModelRetrySettings | None = None
    context_management: list[Any] | None = None
    prompt_cache_options: Any | None = None
    preserve_raw_usage: bool | None = None
    timeout: float | None = None
    """Seconds one attempt may take; a finite number above zero."""

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            if value is not None and type(value) is not kind:
                setattr(self, name, _number(name, value, kind))
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise InvalidSettingError(f"{name}={value!r} is none of its values", f"Choose {' or '.join(choices)}.")
        if self.timeout is not None:
            self.timeout = _checked_timeout(self.timeout)
        if self.context_management is not None:
            _check_context_management(self.context_management)
        if self.reasoning is not None:
            self.reasoning = reasoning_of(self.reasoning)
        retry: Any = self.retry
        if retry is not None and type(retry) is not ModelRetrySettings:
            self.retry = ModelRetrySettings.coerce(retry)
        choice: Any = self.tool_choice
        if isinstance(choice, Mapping):
            self.tool_choice = MCPToolChoice(**choice)

    def resolve(self, override: ModelSettings | dict[str, Any] | None) -> ModelSettings:
        """Overlay an override on these settings; `extra_args` and `retry` are merged key by key."""
        if override is None:
            return self
        if not isinstance(override, ModelSettings):
            override = coerce_model_settings(override)
        said = {name: value for name, value in override.__dict__.items() if value is not None}
        if not said:
            return self
        if self.extra_args and "extra_args" in said:
            said["extra_args"] = {**self.extra_args, **said["extra_args"]}
        if self.retry is not None and "retry" in said:
            said["retry"] = self.retry.resolve(said["retry"])
        return dataclasses.replace(self, **said)

    def to_json_dict(self) -> dict[str, Any]:
        """Every setting as plain JSON. A retry policy is code and is left out."""
        return {name: _plain(getattr(self, name)) for name in SETTING_NAMES}

    def to_traceable_dict(self) -> dict[str, Any]:
        """Return the settings for a trace, without the `extra_*` ones: these may hold secrets."""
        return {name: _plain(getattr(self, name)) for name in SETTING_NAMES if name not in _UNTRACEABLE}


_KINDS: dict[str, type[float]] = {
    **dict.fromkeys(("temperature", "top_p", "frequency_penalty", "presence_penalty"), float),
    **dict.fromkeys(("max_tokens", "top_logprobs"), int),
    **dict.fromkeys(("parallel_tool_calls", "store", "include_usage", "preserve_raw_usage"), bool),
}
_CHOICES: dict[str, tuple[str, ...]] = {
    "truncation": ("auto", "disabled"),
    "verbosity": ("low", "medium", "high"),
    "prompt_cache_retention": ("in_memory", "24h"),
}
_TRUTHS: dict[Any, bool] = {
    **dict.fromkeys((1, "1", "true", "yes", "on"), True),
    **dict.fromkeys((0, "0", "false", "no", "off"), False),
}

SETTING_NAMES: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(ModelSettings))
_UNTRACEABLE = frozenset({"extra_query", "extra_body", "extra_headers", "extra_args", "preserve_raw_usage"})


def coerce_model_settings(
    value: ModelSettings | dict[str, Any] | None, *, owner: str = "model_settings"
) -> ModelSettings:
    """Convert to ModelSettings: an instance is kept, a mapping is read, None gives fresh defaults.

    Raises SettingTypeError (a TypeError) for a key that is no setting and for any other kind of value.
    """
    if isinstance(value, ModelSettings):
        return value
    if value is None:
        return ModelSettings()
    if not isinstance(value, Mapping):
        raise SettingTypeError(
            f"{owner} must be a ModelSettings instance or a dict, got {type(value).__name__}",
            "Write ModelSettings(...) or a dict with its field names.",
        )
    unknown = sorted(str(name) for name in value if name not in SETTING_NAMES)
    if unknown:
        raise SettingTypeError(
            f"Unknown model settings: {', '.join(unknown)}",
            "Check the spelling; what the provider knows and ModelSettings does not goes into extra_args.",
        )
    return ModelSettings(**value)


def _number(name: str, value: str | float, kind: type[float]) -> float:
    """Convert a setting to a number of its kind if possible: settings often come from text."""
    try:
        if kind is bool:
            return _TRUTHS[value.lower() if isinstance(value, str) else value]
        number = float(value)
        if kind is float or number.is_integer():
            return kind(number)
    except (TypeError, ValueError, KeyError, OverflowError):
        pass
    wanted = {float: "a number", int: "a whole number", bool: "True or False"}[kind]
    raise InvalidSettingError(f"{name}={value!r} is not {wanted}", f"Give {wanted}, or None to leave it unsaid.")


def _check_context_management(value: object) -> None:
    rules: Any = value if isinstance(value, list | tuple) else [None]
    if not all(isinstance(rule, Mapping) and isinstance(rule.get("type"), str) for rule in rules):
        raise InvalidSettingError(
            "context_management is no list of rules that each say their type",
            "Write e.g. context_management=[{'type': 'compaction', 'compact_threshold': 200_000}].",
        )
    for rule in rules:
        unknown = sorted(set(rule) - {"type", "compact_threshold"}) if rule["type"] == "compaction" else []
        if unknown:
            raise InvalidSettingError(
                f"a compaction rule of context_management has no {', '.join(map(repr, unknown))}",
                "Check the spelling of 'compact_threshold'; a field that is newer goes into extra_body.",
            )
        threshold = rule.get("compact_threshold")
        if threshold is not None and (isinstance(threshold, bool) or not isinstance(threshold, int)):
            raise InvalidSettingError(
                f"a compact_threshold of {threshold!r} is not a number of tokens", "Give a whole number."
            )


def _checked_timeout(value: str | float) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if not (math.isfinite(seconds) and seconds > 0):
        raise InvalidSettingError(
            f"a timeout of {value!r} is not a time",
            "Give the seconds of one attempt, above zero, or None for no limit.",
        )
    return seconds


def _plain(value: object) -> Any:
    """Convert a setting to JSON. A value without a JSON form is shown by its repr, never dropped."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(inner) for inner in value]
    if hasattr(value, "to_json_dict"):
        return value.to_json_dict()
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return repr(value)
