"""Faults of the provider, on demand.

A fault is data. `server.fault(...)` queues one or several that happen together; the next request that matches uses them
up. "Committed" means that the service has taken the request: the conversation has its items, the response is stored.
Every fault that loses an answer names its side of that line, because that is the difference between a safe retry and a
doubled turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from standfast._kits.testing.loopback.journal import Received


class Fault:
    """Base of all faults."""


@dataclass(frozen=True, slots=True)
class Drop(Fault):
    """Hang up without a single byte of reply; `committed` says whether the request was taken before."""

    committed: bool


@dataclass(frozen=True, slots=True)
class Status(Fault):
    """Answer with an HTTP error. `committed=True`: the request was taken all the same, as a gateway's 502 may hide."""

    status: int
    code: str | None = None
    message: str = "the loopback provider was asked to fail"
    retry_after_s: float | None = None
    headers: dict[str, str] = field(default_factory=dict)
    committed: bool = False


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """Cut the reply after so many bytes (of all that is sent, status line included) or after so many stream events.

    `clean=True` ends the HTTP message properly, so that nothing but the missing rest tells of the cut. The request was
    taken unless `committed=False`.
    """

    after_bytes: int | None = None
    after_events: int | None = None
    clean: bool = False
    committed: bool = True


@dataclass(frozen=True, slots=True)
class Drip(Fault):
    """Send the reply in pieces of so many bytes, with a pause after each."""

    piece_bytes: int = 1
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Malformed(Fault):
    """Replace a stream event (or the whole unstreamed reply) by data that is not JSON."""

    after_events: int = 2
    data: str = '{"type": "response.output_text.delta", "delta": '


@dataclass(frozen=True, slots=True)
class Failed(Fault):
    """The response ends as failed: `response.failed` in a stream. Nothing joins a conversation."""

    code: str = "server_error"
    message: str = "The model failed to generate a response."


@dataclass(frozen=True, slots=True)
class Incomplete(Fault):
    """The response ends as incomplete: `response.incomplete` in a stream. What there is joins the history."""

    reason: str = "max_output_tokens"


@dataclass(frozen=True, slots=True)
class ErrorEvent(Fault):
    """An `error` event in the stream after so many events, and then the end."""

    after_events: int = 2
    code: str = "server_error"
    message: str = "The server had an error while processing your request."
    committed: bool = False


@dataclass(frozen=True, slots=True)
class OmitIds(Fault):
    """Leave ids out of the reply, as some compatible servers do: of the response, of its items, or of both."""

    response: bool = True
    items: bool = True


class Gate(Fault):
    """Hold a request until released, so that a test needs no sleep.

    `before_commit=True` (the default) holds it while it is active: taken up, validated, its conversation locked.
    """

    def __init__(self, *, before_commit: bool = True) -> None:
        self.before_commit = before_commit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open = asyncio.Event()
        self._released = False
        self._lock = Lock()
        self._reached: list[Callable[[], object]] = []
        self._was_reached = False

    async def passed(self) -> None:
        """Wait in the server until `release`."""
        with self._lock:
            self._loop = asyncio.get_running_loop()
            self._was_reached = True
            callbacks, self._reached = self._reached, []
        for callback in callbacks:
            callback()
        if not self._released:
            await self._open.wait()

    async def reached(self, timeout_s: float = 30.0) -> None:
        """Wait, in the test, until a request has reached the gate."""
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            if self._was_reached:
                return
            self._reached.append(lambda: loop.call_soon_threadsafe(arrived.set))
        await asyncio.wait_for(arrived.wait(), timeout_s)

    def release(self) -> None:
        """Release the request and later ones. May be called from any thread."""
        with self._lock:
            self._released = True
            loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._open.set)


def conversation_locked() -> Status:
    """Return the service's refusal while another request on the same conversation is active."""
    return Status(
        400,
        code="conversation_locked",
        message="Another process is currently operating on this conversation. Please retry in a few seconds.",
    )


def rate_limited(retry_after_s: float = 0.01) -> Status:
    """A 429 with Retry-After."""
    return Status(429, code="rate_limit_exceeded", message="Rate limit reached.", retry_after_s=retry_after_s)


# --- which request meets which fault --------------------------------------------------------------------------------

Matcher = str | Callable[["Received"], bool]


@dataclass(slots=True)
class _Queued:
    faults: tuple[Fault, ...]
    on: Matcher
    skip: int
    times: int


class FaultPlan:
    """Faults waiting for a request, in the order they were queued."""

    def __init__(self) -> None:
        self._queue: list[_Queued] = []
        self._lock = Lock()

    def add(self, faults: tuple[Fault, ...], *, on: Matcher, skip: int, times: int) -> None:
        """Queue faults that happen together to the matching requests after the first `skip`, `times` times."""
        with self._lock:
            self._queue.append(_Queued(faults, on, skip, times))

    def take(self, received: Received) -> Faults:
        """Return the faults for a request, and remove them."""
        with self._lock:
            for queued in self._queue:
                if not _matches(queued.on, received):
                    continue
                if queued.skip:
                    queued.skip -= 1
                    continue
                queued.times -= 1
                if queued.times <= 0:
                    self._queue.remove(queued)
                return Faults(queued.faults)
        return Faults(())

    def clear(self) -> None:
        """Remove all unused faults."""
        with self._lock:
            self._queue.clear()

    @property
    def waiting(self) -> int:
        """Number of unused faults."""
        return sum(queued.times for queued in self._queue)


FaultT = TypeVar("FaultT", bound=Fault)


class Faults:
    """Faults of a request."""

    def __init__(self, faults: tuple[Fault, ...]) -> None:
        self.all = faults

    def find(self, kind: type[FaultT]) -> FaultT | None:
        """Return the fault of a kind, or None."""
        return next((fault for fault in self.all if isinstance(fault, kind)), None)

    def loses_before_commit(self) -> Fault | None:
        """The fault, if any, that keeps the request from being taken at all."""
        return next((fault for fault in self.all if _committed(fault) is False and not _is_late(fault)), None)

    def prevents_commit(self) -> bool:
        """True if the reply is sent (in part) but the request is not taken."""
        return any(_committed(fault) is False and _is_late(fault) for fault in self.all)


def _committed(fault: Fault) -> bool | None:
    committed: Any = getattr(fault, "committed", None)
    return committed if isinstance(committed, bool) else None


def _is_late(fault: Fault) -> bool:
    return isinstance(fault, Cut | ErrorEvent)


def _matches(on: Matcher, received: Received) -> bool:
    if callable(on):
        return on(received)
    if on == "any":
        return True
    if on == "model":
        return received.is_model_call
    return on in received.path
