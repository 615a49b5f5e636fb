"""Retry advice from the OpenAI service's errors.

`x-should-retry` and `Retry-After` are advice about usefulness. Safety is another question: a request that never left,
or was refused, was not taken; after a server error, a timeout or a cut the outcome is unknown, whatever the headers
suggest.

The facts of a failure (its status and code, whether the request can have left) are read in `_src.models.error_reading`.
"""

from __future__ import annotations

from standfast._src.base.errors import CallerError, ModelReplyError
from standfast._src.models.error_reading import normalise_error, response_headers
from standfast._src.models.retry import ModelRetryAdvice, ModelRetryAdviceRequest, ModelRetryNormalizedError, not_taken

_PASSING_STATUSES = frozenset({408, 409, 429})
_PASSING_CODES = frozenset({"server_error", "rate_limit_exceeded", "conversation_locked"})


def retry_advice(request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
    """Return advice about a failed request, or None for a failure outside the service."""
    error = request.error
    if isinstance(error, CallerError):  # raised by the converters, before anything was sent
        return ModelRetryAdvice(suggested=False, replay_safety="safe", reason=str(error))
    failure = normalise_error(error)
    reply = error if isinstance(error, ModelReplyError) else None
    if reply is None and failure.status_code is None and not failure.is_network_error:
        return None
    return ModelRetryAdvice(
        suggested=_suggest_retry(error, failure),
        retry_after=failure.retry_after,
        replay_safety="safe" if not_taken(failure) else None,
        reason=failure.message,
        normalized=failure,
        response_started=reply is not None and reply.output_begun,
    )


def _suggest_retry(error: Exception, failure: ModelRetryNormalizedError) -> bool | None:
    said = response_headers(error).get("x-should-retry", "").strip().lower()
    if said in ("true", "false"):
        return said == "true"
    if isinstance(error, ModelReplyError) and error.status in ("incomplete", "malformed"):
        return False  # the same request would meet the same limit, or the same server
    if failure.error_code in _PASSING_CODES or failure.is_network_error:
        return True
    status = failure.status_code
    return None if status is None else status in _PASSING_STATUSES or status >= 500
