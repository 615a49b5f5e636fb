"""Reading of failures: facts about the exception of any HTTP client or provider library, without importing one.

Libraries are recognised by the names of their exception classes and by attributes (`status_code`, `response.headers`,
`body`, `code`), so a model built on any of them is understood and none needs to be installed.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime

from standfast._src.models.retry import ModelRetryNormalizedError

# Class names, anywhere in the exception's ancestry: those of openai, httpx, httpcore, aiohttp and the standard library.
_ABORTS = frozenset({"APIUserAbortError", "CancelledError", "GeneratorExit", "KeyboardInterrupt"})
_TIMEOUTS = frozenset(
    {"TimeoutError", "APITimeoutError", "TimeoutException", "ServerTimeoutError", "ModelTimeoutError"}
)
_NETWORK = frozenset(
    {
        "APIConnectionError",
        "TransportError",
        "NetworkError",
        "ProtocolError",
        "ConnectionError",
        "ClientConnectionError",
        "ClientPayloadError",
        "ConnectionClosed",
        "IncompleteReadError",
        "StreamCutError",
    }
)
_NEVER_SENT = frozenset(
    {
        "ConnectError",
        "ConnectTimeout",
        "PoolTimeout",
        "ProxyError",
        "UnsupportedProtocol",
        "ClientConnectorError",
        "ConnectionTimeoutError",
        "ConnectionRefusedError",
        "gaierror",
    }
)
_UNREACHABLE = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN})


def normalise_error(error: BaseException, *, now_s: float | None = None) -> ModelRetryNormalizedError:
    """Extract the facts of a failed request from an exception.

    A `Retry-After` that is a date is measured against the response's own `Date`, else against `now_s` (seconds since
    1970); with neither it is ignored.
    """
    chain = list(_causes(error))
    kinds = [{kind.__name__ for kind in type(link).__mro__} for link in chain]
    response = _response(chain)
    headers = _headers(chain[0], response)
    timeout = any(names & _TIMEOUTS for names in kinds)
    never_sent = any(names & _NEVER_SENT or _is_unreachable(link) for names, link in zip(kinds, chain, strict=True))
    network = never_sent or any(
        names & _NETWORK or _is_socket_error(link) for names, link in zip(kinds, chain, strict=True)
    )
    status = _status(chain, response)
    return ModelRetryNormalizedError(
        status_code=status,
        error_code=_error_code(chain),
        message=str(error) or None,
        request_id=_text(getattr(error, "request_id", None)) or headers.get("x-request-id"),
        retry_after=_retry_after_s(headers, now_s),
        is_abort=bool(kinds[0] & _ABORTS),
        is_network_error=network and status is None,
        is_timeout=timeout and status is None,
        never_sent=never_sent and status is None,
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception and its explicit causes. The implicit context is skipped: it was only being handled at the
    time.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__


def _is_socket_error(error: BaseException) -> bool:
    # An OSError about a file (FileNotFoundError and the like) is a bug in a tool or a configuration, not the network.
    return isinstance(error, ConnectionError | EOFError)


def _is_unreachable(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno in _UNREACHABLE


def _status(chain: list[BaseException], response: object) -> int | None:
    for link in chain:
        for name in ("status_code", "status", "http_status"):
            value = getattr(link, name, None)
            if isinstance(value, int) and not isinstance(value, bool) and 100 <= value < 600:
                return value
    value = getattr(response, "status_code", None)
    return value if isinstance(value, int) else None


def _error_code(chain: list[BaseException]) -> str | None:
    for link in chain:
        code = getattr(link, "code", None)
        if isinstance(code, str) and code:
            return code
        body = getattr(link, "body", None)
        if isinstance(body, Mapping):
            inner = body.get("error")
            for holder in (inner, body):
                if isinstance(holder, Mapping) and isinstance(holder.get("code"), str) and holder["code"]:
                    return str(holder["code"])
    return None


def response_headers(error: BaseException) -> dict[str, str]:
    """Return the headers of the failed response with names in lower case; {} without a response."""
    chain = list(_causes(error))
    return _headers(chain[0], _response(chain))


def _response(chain: list[BaseException]) -> object:
    responses = (getattr(link, "response", None) for link in chain)
    return next((found for found in responses if found is not None), None)


def _headers(error: BaseException, response: object) -> dict[str, str]:
    for holder in (response, error):
        headers = getattr(holder, "headers", None)
        if headers is not None and hasattr(headers, "items"):
            return {str(name).lower(): str(value) for name, value in headers.items()}
    return {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _retry_after_s(headers: Mapping[str, str], now_s: float | None) -> float | None:
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = _number(value)
    if seconds is not None or value is None:
        return seconds
    until, now = _date_s(value), _date_s(headers.get("date"))
    now = now_s if now is None else now
    return None if until is None or now is None else max(0.0, until - now)


def _number(value: str | None) -> float | None:
    try:
        number = float(value) if value is not None else math.nan
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def _date_s(value: str | None) -> float | None:
    try:
        return parsedate_to_datetime(value).timestamp() if value is not None else None
    except (TypeError, ValueError, OverflowError):
        return None
