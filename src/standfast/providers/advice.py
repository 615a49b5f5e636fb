"""What the OpenAI service's errors say about sending a request again.

`x-should-retry` and `Retry-After` are advice about usefulness. Safety is another question: a request that never left,
or that was refused, was not taken; after a server error, a timeout or a cut nobody knows, whatever the headers suggest.

The library's errors are known by their attributes and names, so that `openai` need not be imported to read one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from standfast.ground.errors import CallerError, ModelReplyError
from standfast.llm.retry import ModelRetryAdvice, ModelRetryAdviceRequest, ModelRetryNormalizedError, not_taken

_CONNECTION_LOST = frozenset({"APIConnectionError"})
_TIMED_OUT = frozenset({"APITimeoutError"})
# The connection was never made, or never got out of the pool: no byte of the request has left.
_NEVER_SENT = frozenset({"ConnectError", "ConnectTimeout", "PoolTimeout"})
_PASSING_STATUSES = frozenset({408, 409, 429})
_PASSING_CODES = frozenset({"server_error", "rate_limit_exceeded", "conversation_locked"})


def retry_advice(request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
    """Advice about a failed request; None for a failure that is not the service's."""
    error: Any = request.error
    if isinstance(error, CallerError):  # raised by the converters, before anything was sent
        return ModelRetryAdvice(suggested=False, replay_safety="safe", reason=str(error))
    failure = _read(error)
    reply = error if isinstance(error, ModelReplyError) else None
    if reply is None and failure.status_code is None and not failure.is_network_error:
        return None
    return ModelRetryAdvice(
        suggested=_suggested(error, failure),
        retry_after=failure.retry_after,
        replay_safety="safe" if not_taken(failure) else None,
        reason=failure.message,
        normalized=failure,
        response_started=reply is not None and reply.output_begun,
    )


def _read(error: Any) -> ModelRetryNormalizedError:
    """What is certain about the failure; what is not stays unsaid, so that the runner's own reading counts."""
    names = [{kind.__name__ for kind in type(link).__mro__} for link in _causes(error)]
    status, code = getattr(error, "status_code", None), getattr(error, "code", None)
    said: dict[str, Any] = {"message": str(error)}
    if isinstance(status, int):
        said["status_code"] = status
    if isinstance(code, str) and code:
        said["error_code"] = code
    request_id = getattr(error, "request_id", None)
    if isinstance(request_id, str) and request_id:
        said["request_id"] = request_id
    seconds = _retry_after_s(error)
    if seconds is not None:
        said["retry_after"] = seconds
    if any(link & _CONNECTION_LOST for link in names):
        said["is_network_error"] = True
        said["is_timeout"] = any(link & _TIMED_OUT for link in names)
        said["never_sent"] = any(link & _NEVER_SENT for link in names)
    return ModelRetryNormalizedError(**said)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _suggested(error: Any, failure: ModelRetryNormalizedError) -> bool | None:
    said = _header(error, "x-should-retry")
    if said in ("true", "false"):
        return said == "true"
    if isinstance(error, ModelReplyError) and error.status in ("incomplete", "malformed"):
        return False  # the same request would meet the same limit, or the same server
    if failure.error_code in _PASSING_CODES or failure.is_network_error:
        return True
    status = failure.status_code
    return None if status is None else status in _PASSING_STATUSES or status >= 500


def _retry_after_s(error: Any) -> float | None:
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = _header(error, name)
        try:
            seconds = float(value) * unit if value is not None else -1.0
        except ValueError:
            continue  # a date: the runner reads it against the server's own clock
        if 0 <= seconds < float("inf"):
            return seconds
    return None


def _header(error: Any, name: str) -> str | None:
    headers = getattr(getattr(error, "response", None), "headers", None)
    value = headers.get(name) if headers is not None else None
    return value.strip().lower() if isinstance(value, str) else None
