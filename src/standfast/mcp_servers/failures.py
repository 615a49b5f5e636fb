"""What a failed request says about whether it was carried out. One place decides: nothing is repeated by guess."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import anyio
import httpx2
from mcp import MCPError
from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST, REQUEST_TIMEOUT
from pydantic import ValidationError

from standfast.ground.errors import MCPServerError

NEVER_LEFT = -32098
"""The code of an error of our own making: the request could not be sent at all."""

ANSWER_LOST = -32097
"""The code of an error of our own making: the request was sent, and its answer did not come."""

_SESSION_GONE, _CLOSED, _STREAM_ENDED = "Session terminated", "Connection closed", "SSE stream "


@dataclass(frozen=True)
class Failure:
    """How a request failed."""

    outcome: Literal["answered", "not taken", "unknown"]
    """Whether the server answered with an error, cannot have carried the request out, or nobody knows."""

    is_lost: bool
    """Whether the connection is of no further use."""

    reason: str


def read_failure(error: BaseException) -> Failure:
    """What this error says."""
    if isinstance(error, MCPServerError):  # raised while connecting: nothing was sent
        return Failure("not taken", True, error.what)
    if isinstance(error, MCPError):
        return _read_code(error)
    if isinstance(error, anyio.ClosedResourceError | anyio.BrokenResourceError | httpx2.TransportError):
        return Failure("unknown", True, "the connection was lost")
    # What is left was raised about an answer: it came, and was not what the protocol or the tool's schema allows.
    return Failure("answered", False, _in_short(error))


def _in_short(error: BaseException) -> str:
    """What is wrong with an answer, without the answer."""
    if not isinstance(error, ValidationError):
        return str(error)
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in details[:3])


def _read_code(error: MCPError) -> Failure:
    if error.code == NEVER_LEFT:
        return Failure("not taken", False, error.message)
    if error.code == ANSWER_LOST:
        return Failure("unknown", False, error.message)
    if error.code == REQUEST_TIMEOUT:
        return Failure("unknown", False, "it did not answer in time")
    # Servers use the code of a closed connection for errors of their own; what `mcp` says in its own name is known.
    if error.code == CONNECTION_CLOSED and error.message == _CLOSED:
        return Failure("unknown", True, "the connection was lost")
    if error.code == CONNECTION_CLOSED and error.message.startswith(_STREAM_ENDED):
        return Failure("unknown", False, "its answer was cut off")
    if error.code == INVALID_REQUEST and error.message == _SESSION_GONE:
        return Failure("not taken", True, "the server knows the session no more")
    return Failure("answered", False, error.message)
