"""Faults of a connection, on demand.

A fault is data. `server.fault(...)` queues one for the matching frames, in either direction; it happens before or after
the frame. Before a received frame means that the server has not taken it, after means that it has and its answers are
lost: the difference between a safe repetition and a doubled one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

from standfast._kits.testing.loopback.faults import Gate
from standfast._kits.testing.realtime.jobs import Job
from standfast._kits.testing.realtime.journal import Direction, Frame, Match

Side = Literal["before", "after"]


class Fault:
    """Base of all faults of a frame."""

    side: Side = "before"


@dataclass(frozen=True, slots=True)
class Cut(Fault):
    """The line is cut, without a word: the client sees what was sent so far and then nothing."""

    side: Side = "before"


@dataclass(frozen=True, slots=True)
class Close(Fault):
    """The server closes the connection properly, with a code and a reason."""

    code: int = 1011
    reason: str = ""
    side: Side = "before"


@dataclass(frozen=True, slots=True)
class Slow(Fault):
    """Delay the frame, and all later ones in its direction."""

    delay_s: float
    side: Side = "before"


@dataclass(frozen=True, slots=True)
class Stall(Fault):
    """Hold the frame, and all later ones in its direction, until the gate is opened."""

    gate: Gate
    side: Side = "before"


@dataclass(frozen=True, slots=True)
class Lose(Fault):
    """Drop the frame, like an unresponsive server."""


@dataclass(frozen=True, slots=True)
class Instead(Fault):
    """Replace the frame by a text: not JSON, an unknown event, anything a test needs."""

    text: str


@dataclass(frozen=True, slots=True)
class Refuse(Fault):
    """Refuse a received frame with this error, without any effect of it."""

    code: str
    message: str = "the loopback server was asked to refuse this"
    names_event: bool = True


@dataclass(frozen=True, slots=True)
class Rejected:
    """The upgrade to a websocket is answered with an HTTP status instead."""

    status: int
    message: str = "the loopback server was asked to refuse the connection"
    code: str | None = None
    retry_after_s: float | None = None


@dataclass(slots=True)
class _Queued:
    fault: Any
    on: Match
    direction: Direction
    skip: int
    times: int


class FramePlan:
    """Faults waiting for a frame, in the order they were queued."""

    def __init__(self) -> None:
        self._queue: list[_Queued] = []
        self._lock = Lock()

    def add(self, faults: Sequence[Fault], *, on: Match, direction: Direction, skip: int, times: int) -> None:
        """Queue faults for the matching frames, after the first `skip` of them, `times` times."""
        with self._lock:
            self._queue.extend(_Queued(fault, on, direction, skip, times) for fault in faults)

    def take(self, frame: Frame) -> list[Fault]:
        """Return the faults for a frame. Each fault counts its matching frames separately."""
        found: list[Fault] = []
        with self._lock:
            for queued in list(self._queue):
                if queued.direction != frame.direction or not frame.matches(queued.on):
                    continue
                if queued.skip:
                    queued.skip -= 1
                    continue
                found.append(queued.fault)
                queued.times -= 1
                if queued.times <= 0:
                    self._queue.remove(queued)
        frame.faults = tuple(type(fault).__name__ for fault in found)
        return found

    @property
    def waiting(self) -> int:
        """Number of unused faults."""
        with self._lock:
            return sum(queued.times for queued in self._queue)


@dataclass(slots=True)
class _Held:
    kind: str
    skip: int
    about: str
    gate: Gate


class Holds:
    """Gates before which the service's own work waits: the model stops speaking, a transcript is late."""

    def __init__(self) -> None:
        self._queue: list[_Held] = []
        self._lock = Lock()

    def add(self, kind: str, skip: int, about: str) -> Gate:
        """Add a gate before an event of a type, after the first `skip` of them, for jobs about something."""
        held = _Held(kind, skip, about, Gate())
        with self._lock:
            self._queue.append(held)
        return held.gate

    def take(self, job: Job) -> Gate | None:
        """Return the gate at which a job has to wait now, or None."""
        with self._lock:
            for held in list(self._queue):
                if held.kind != job.next or held.about not in job.about:
                    continue
                if held.skip:
                    held.skip -= 1
                    continue
                self._queue.remove(held)
                return held.gate
        return None
