"""Classification of failed requests: was the request executed? The only place that decides, so nothing is repeated by
guess.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import anyio
import httpx2
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INTERNAL_ERROR, INVALID_REQUEST, PARSE_ERROR, REQUEST_TIMEOUT
from pydantic import ValidationError

from standfast._src.base.errors import MCPServerError

NEVER_LEFT = -32098
"""The code of an error of our own making: the request could not be sent at all."""

ANSWER_LOST = -32097
"""The code of an error of our own making: the request was sent, and its answer did not come."""

REFUSED = -32096
"""The code of an error of our own making: an HTTP status says that the request was refused."""

_CLOSED, _STREAM_ENDED = "Connection closed", "SSE stream "
_SESSION_GONE = "Session terminated"
_BAD_STATUS = "Server returned an error response"
_UNREADABLE = ("server answered a request with 202", "Unexpected content type", "Failed to parse ")
# What `mcp` says in its own name, for the server: an answer of the server's can have the same codes.


@dataclass(frozen=True)
class Failure:
    """Classification of a failed request."""

    outcome: Literal["answered", "not taken", "unknown", "unreadable"]
    """Result: the server answered with an error, cannot have executed the request, or the outcome is unknown: no
    answer came, or an unreadable one. Only the first two may be repeated if the request has effects."""

    is_lost: bool
    """True if the connection is unusable."""

    reason: str


def read_failure(error: BaseException) -> Failure:
    """Classify an error."""
    if isinstance(error, MCPServerError):  # raised while connecting: nothing was sent
        return Failure("not taken", True, error.what)
    if isinstance(error, MCPError):
        return _read_code(error)
    if isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError | httpx2.TransportError):
        return Failure("unknown", True, "the connection was lost")
    # What is left was raised about an answer: it came, and was not what the protocol or the tool's schema allows.
    return Failure("unreadable", False, _in_short(error))


def _in_short(error: BaseException) -> str:
    """Describe the fault of an answer, without its content."""
    if not isinstance(error, ValidationError):
        return str(error).partition("\n")[0]  # of an object that does not fit its schema, the rest is the object
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in details[:3])


def _read_code(error: MCPError) -> Failure:
    if error.code == NEVER_LEFT:
        return Failure("not taken", False, error.message)
    if error.code == ANSWER_LOST:
        return Failure("unknown", False, error.message)
    if error.code == REQUEST_TIMEOUT:
        return Failure("unknown", False, "it did not answer in time")
    if error.code == CONNECTION_CLOSED and error.message == _CLOSED:
        return Failure("unknown", True, "the connection was lost")
    if error.code == CONNECTION_CLOSED and error.message.startswith(_STREAM_ENDED):
        return Failure("unknown", False, "its answer was cut off")
    if error.code == INVALID_REQUEST and error.message == _SESSION_GONE:
        return Failure("not taken", True, "the server knows the session no more")
    if error.code == INTERNAL_ERROR and error.message == _BAD_STATUS:
        return Failure("unknown", False, "an HTTP status came in place of an answer")  # perhaps from a gateway
    if error.code in (INVALID_REQUEST, PARSE_ERROR) and error.message.startswith(_UNREADABLE):
        return Failure("unreadable", False, error.message.partition("\n")[0])
    return Failure("answered", False, error.message)
