"""Retry rules for failed model requests, pure: nothing is sent here.

`after` looks at a failed attempt and returns `Wait`, `GiveUp`, or `Ask` (the user's policy first, which may be async).
Streaming makes no difference: the same failure has the same fate in both modes, and a reply with begun output is never
requested again. A stateful request, one that a server adds to its own conversation, is repeated only with evidence that
the first one was not taken, or with the policy's explicit approval (clause D5).

Evidence is about the last attempt. An adapter must therefore switch off its client's own retries for stateful requests:
"refused" after an unseen first try that timed out proves nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from standfast._src.base.errors import InvalidSettingError, SettingTypeError
from standfast._src.base.type_names import describe_type

ReplaySafety: TypeAlias = Literal["safe", "unsafe", "unknown"]


# --- settings --------------------------------------------------------------------------------------------------------

INITIAL_DELAY_S = 0.25
MAX_DELAY_S = 2.0
MULTIPLIER = 2.0
JITTER_SHARE = 0.125
# An eighth either way keeps a crowd of runs that failed together from coming back together.

LOCKED_RETRIES_MAX = 3
# A conversation is locked while another response is being written: waiting 1, 2 and 4 s covers most, and more would
# hide a deadlock from the user.


@dataclass
class ModelRetryBackoffSettings:
    """Delays before the next attempt; None means the default (0.25 s, doubling, up to 2 s, with jitter)."""

    initial_delay: float | None = None
    max_delay: float | None = None
    multiplier: float | None = None
    jitter: bool | None = None

    def __post_init__(self) -> None:
        for name in ("initial_delay", "max_delay", "multiplier"):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not (0 <= value < math.inf):
                raise InvalidSettingError(f"a backoff {name} of {value!r} is not possible", "Give a number from 0 up.")
            setattr(self, name, float(value))

    def to_json_dict(self) -> dict[str, Any]:
        """The settings as plain JSON."""
        return dataclasses.asdict(self)

    def resolve(self, override: ModelRetryBackoffSettings | None) -> ModelRetryBackoffSettings:
        """Overlay the override's non-None values on these settings."""
        if override is None:
            return self
        said = {name: value for name, value in vars(override).items() if value is not None}
        return dataclasses.replace(self, **said)

    def delay_s(self, attempt: int, *, jitter: float = 0.5) -> float:
        """Seconds to wait after failed attempt number `attempt` (1, 2, …); `jitter` is a random number in [0, 1)."""
        longest = MAX_DELAY_S if self.max_delay is None else self.max_delay
        first = INITIAL_DELAY_S if self.initial_delay is None else self.initial_delay
        factor = MULTIPLIER if self.multiplier is None else self.multiplier
        try:
            delay = min(longest, first * factor ** max(0, attempt - 1))
        except OverflowError:
            delay = longest
        if self.jitter is not False:
            delay *= 1 + JITTER_SHARE * (2 * jitter - 1)
        return min(longest, delay)


DEFAULT_BACKOFF = ModelRetryBackoffSettings()


@dataclass
class ModelRetrySettings:
    """Number, pace and conditions of retries. Without a policy only requests refused by a locked conversation are
    retried.
    """

    max_retries: int | None = None
    backoff: ModelRetryBackoffSettings | dict[str, Any] | None = None
    policy: RetryPolicy | None = dataclasses.field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.backoff, Mapping):
            self.backoff = ModelRetryBackoffSettings(
                **_reject_unknown_names(self.backoff, ModelRetryBackoffSettings, "backoff")
            )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: object, handler: Callable[[object], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Describe the settings to pydantic: the policy is code, so it is validated but not serialised."""
        # The schema of a serialiser by hand: this layer does without pydantic.
        return {**handler(source), "serialization": {"type": "function-wrap", "function": _without_policy}}

    @classmethod
    def coerce(cls, value: object) -> ModelRetrySettings:
        """`value` as retry settings: an instance is kept, a mapping is read."""
        if isinstance(value, cls):
            return value
        if not isinstance(value, Mapping):
            raise SettingTypeError(
                f"retry settings cannot be {describe_type(value)}", "Write ModelRetrySettings(...) or a dict."
            )
        return cls(**_reject_unknown_names(value, cls, "retry"))

    def resolve(self, override: ModelRetrySettings | None) -> ModelRetrySettings:
        """These settings with the override's on top, field by field, the backoff's fields too."""
        if override is None:
            return self
        backoff = override.backoff_settings() if override.backoff is not None else None
        return ModelRetrySettings(
            self.max_retries if override.max_retries is None else override.max_retries,
            self.backoff if backoff is None else self.backoff_settings().resolve(backoff),
            self.policy if override.policy is None else override.policy,
        )

    def backoff_settings(self) -> ModelRetryBackoffSettings:
        """Return the backoff in force: the setting, else the defaults."""
        backoff = self.backoff
        return backoff if isinstance(backoff, ModelRetryBackoffSettings) else DEFAULT_BACKOFF

    def to_json_dict(self) -> dict[str, Any]:
        """The settings as plain JSON; the policy is code and is left out."""
        backoff = self.backoff_settings().to_json_dict() if self.backoff is not None else None
        return {"max_retries": self.max_retries, "backoff": backoff}


def _without_policy(value: object, serialise: Callable[[object], Any]) -> Any:
    dumped = serialise(dataclasses.replace(value, policy=None) if isinstance(value, ModelRetrySettings) else value)
    if isinstance(dumped, dict):
        dumped.pop("policy", None)
    return dumped


def _reject_unknown_names(
    value: Mapping[str, Any], kind: type[ModelRetrySettings] | type[ModelRetryBackoffSettings], what: str
) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(kind)}
    unknown = sorted(str(name) for name in value if name not in names)
    if unknown:
        raise SettingTypeError(f"Unknown {what} settings: {', '.join(unknown)}", f"Known ones: {sorted(names)}.")
    return dict(value)


# --- what is known about a failure -----------------------------------------------------------------------------------

_UNSET: Any = object()


@dataclass(init=False)
class ModelRetryNormalizedError:
    """A failure in terms common to all providers. `never_sent`: the request did not leave this machine."""

    status_code: int | None = None
    error_code: str | None = None
    message: str | None = None
    request_id: str | None = None
    retry_after: float | None = None
    is_abort: bool = False
    is_network_error: bool = False
    is_timeout: bool = False
    never_sent: bool = False

    def __init__(
        self,
        status_code: int | None = _UNSET,
        error_code: str | None = _UNSET,
        message: str | None = _UNSET,
        request_id: str | None = _UNSET,
        retry_after: float | None = _UNSET,
        is_abort: bool = _UNSET,
        is_network_error: bool = _UNSET,
        is_timeout: bool = _UNSET,
        never_sent: bool = _UNSET,
    ) -> None:
        given = {name: value for name, value in locals().items() if name != "self" and value is not _UNSET}
        for f in dataclasses.fields(self):
            setattr(self, f.name, given.get(f.name, f.default))
        # What an adapter says overrides what was read off the exception, but only where it said something.
        self._said = frozenset(given)

    def overlaid(self, other: ModelRetryNormalizedError | None) -> ModelRetryNormalizedError:
        """Overlay the explicit fields of `other` on this failure."""
        if other is None:
            return self
        said = getattr(other, "_said", None)
        if said is None:  # the SDK's own type, from a model written for it: its defaults say nothing
            said = [f.name for f in dataclasses.fields(self) if getattr(other, f.name, None) not in (None, False)]
        merged = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        merged.update({name: getattr(other, name) for name in said})
        return ModelRetryNormalizedError(**merged)


@dataclass
class ModelRetryAdvice:
    """Knowledge of a provider's adapter about a failure."""

    suggested: bool | None = None
    retry_after: float | None = None
    replay_safety: Literal["safe", "unsafe"] | None = None
    reason: str | None = None
    normalized: ModelRetryNormalizedError | None = None
    response_started: bool = False


@dataclass
class ModelRetryAdviceRequest:
    """The failure an adapter is asked about. `attempt` counts from 1."""

    error: Exception
    attempt: int
    stream: bool
    previous_response_id: str | None = None
    conversation_id: str | None = None


# --- the user's policy -----------------------------------------------------------------------------------------------


@dataclass
class RetryDecision:
    """Answer of a policy: retry or not, the delay, and approval of a possibly doubled turn."""

    retry: bool
    delay: float | None = None
    reason: str | None = None
    approve_unsafe_replay: bool = False


@dataclass
class RetryPolicyContext:
    """Facts available to a policy."""

    error: Exception
    attempt: int
    max_retries: int
    stream: bool
    normalized: ModelRetryNormalizedError
    provider_advice: ModelRetryAdvice | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None

    @property
    def response_started(self) -> bool:
        """True if the provider reports begun output."""
        return self.provider_advice is not None and self.provider_advice.response_started

    @property
    def replay_safety(self) -> ReplaySafety:
        """The provider's verdict on a repeat of the request."""
        return (self.provider_advice.replay_safety if self.provider_advice is not None else None) or "unknown"

    @property
    def stateful_request(self) -> bool:
        """True if a server that owns the conversation may have taken the request."""
        return bool(self.previous_response_id or self.conversation_id)


RetryPolicy: TypeAlias = Callable[[RetryPolicyContext], "bool | RetryDecision | Awaitable[bool | RetryDecision]"]
"""Decides about a failed attempt: a function of its `RetryPolicyContext`, sync or async."""


# --- the decision ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Wait:
    """Send the request again after `seconds`; `counted` attempts use up `max_retries`."""

    seconds: float
    counted: bool = True


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Verdict: do not retry. `outcome_unknown`: a server may have taken the request, without evidence
    either way (D5).
    """

    reason: str
    outcome_unknown: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """Verdict: ask the policy, then call `after` again with its decision."""


Verdict: TypeAlias = Wait | GiveUp | Ask


def not_taken(failure: ModelRetryNormalizedError, advice: ModelRetryAdvice | None = None) -> bool:
    """Return whether there is evidence that the server did not take the request: never sent, or refused.

    Server errors, timeouts and cut connections are not evidence: the request may have been taken before the answer was
    lost.
    """
    safety = advice.replay_safety if advice is not None else None
    if safety is not None:
        return safety == "safe"
    if failure.never_sent or is_conversation_locked(failure):
        return True
    status = failure.status_code
    # 408 and 499 are what proxies say about a request of which they lost sight: a timeout by another name.
    return status is not None and 400 <= status < 500 and status not in (408, 499) and not failure.is_timeout


def is_conversation_locked(failure: ModelRetryNormalizedError) -> bool:
    """Return whether the server refused because another response is being written to the conversation."""
    return failure.error_code == "conversation_locked" and failure.status_code in (None, 400, 409)


def after(
    failure: ModelRetryNormalizedError,
    *,
    attempt: int,
    settings: ModelRetrySettings | None,
    stateful: bool,
    output_begun: bool = False,
    advice: ModelRetryAdvice | None = None,
    decision: RetryDecision | None = None,
    locked_retries: int = 0,
    settled_not_taken: bool = False,
    jitter: float = 0.5,
) -> Verdict:
    """Decide about failed attempt number `attempt` (1 for the first; uncounted waits do not raise it).

    `output_begun`: part of the reply was already seen by any reader. `settled_not_taken`: the server was asked and does
    not have the request. `jitter` is a random number in [0, 1).
    """
    safety = advice.replay_safety if advice is not None else None
    evidence = settled_not_taken or not_taken(failure, advice)

    def give_up(reason: str) -> GiveUp:
        return GiveUp(reason, outcome_unknown=stateful and not evidence)

    max_retries = settings.max_retries if settings is not None else None
    if failure.is_abort:
        return give_up("the call was cancelled")
    locked = is_conversation_locked(failure) and max_retries != 0
    if locked and not output_begun and locked_retries < LOCKED_RETRIES_MAX:
        return Wait(float(2**locked_retries), counted=False)
    if attempt > (max_retries or 0):
        return give_up(f"max_retries is {max_retries or 0}")
    if output_begun:
        return give_up("output had begun")
    if settings is None or settings.policy is None:
        return give_up("no retry policy is set")
    if decision is None:
        return Ask()
    if not decision.retry:
        return give_up(decision.reason or "the retry policy says no")
    approved = decision.approve_unsafe_replay
    if advice is not None and advice.response_started and not approved:
        return give_up("output had begun")  # by the provider's word; a policy may know better (D5 c)
    if stateful and not evidence and not approved:
        return give_up("the server may have taken the request")
    if safety == "unsafe" and not settled_not_taken and not approved:
        return give_up("the provider says that repeating this request is unsafe")
    return Wait(_delay_s(failure, attempt, settings, advice, decision, jitter))


def _delay_s(
    failure: ModelRetryNormalizedError,
    attempt: int,
    settings: ModelRetrySettings,
    advice: ModelRetryAdvice | None,
    decision: RetryDecision,
    jitter: float,
) -> float:
    asked = (decision.delay, failure.retry_after, advice.retry_after if advice is not None else None)
    for seconds in asked:
        if seconds is not None:
            return max(0.0, float(seconds))
    return settings.backoff_settings().delay_s(attempt, jitter=jitter)
