"""Keep the engine of a store for some seconds after the last session object (A19, A21).

A web service makes a session object for each request. Threads, connections and what is known of a store would be made
and ended with each of them, which costs more than the turn.

An `EngineUse` belongs to one session object and refers to the engine. After the end of the last use, this module refers
to the engine for `linger_s`. An engine ends with the last reference.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import StoreUnavailableError
from standfast._src.base.logs import session_logger as _log
from standfast._src.sessions.client.thread_start import start_thread

LINGER_S = 0.0 if os.name == "nt" else 5.0  # Windows neither renames nor removes a file that is open
"""How long an engine stays without a session object, if nothing else was said."""

LINGER_MAX = 8
"""Engines of one process that may linger at once. Each has a few threads and connections."""

TICK_S = 0.1
"""Interval in which lingering engines are examined: for the end of their time, and for a lost file."""


class Engine(Protocol):
    """Threads and connections shared by the session objects of a store."""

    def prepare_for_end(self) -> None:
        """Begin to complete the store, without waiting; called in the first pause."""
        ...

    def has_lost_store(self) -> bool:
        """Return whether the store was deleted or replaced."""
        ...

    def end_lingering(self) -> None:
        """End a lingering engine now, and wait for the end; otherwise do nothing."""
        ...


E = TypeVar("E", bound=Engine)


class EngineUse(Generic[E]):
    """Use of an engine by a session object, until the object is closed or dropped."""

    def __init__(self, lingering: Lingering, engine: E, linger_s: float) -> None:
        self.engine, self.linger_s = engine, linger_s
        self._lingering = lingering

    def __del__(self) -> None:
        # A finalizer can interrupt any code, and so takes no lock. Without the thread the engine would never end.
        lingers = self.linger_s > 0 and self._lingering.thread is not None
        self._lingering.inbox.put((id(self.engine), self.engine if lingers else None, self.linger_s))
        self._lingering.wakes.put(None)


@dataclass(slots=True)
class _Kept:
    """An engine without a session object, and the time of its end."""

    engine: Any
    until: float
    ticks: int = 0


class Lingering:
    """Engines without a session object in this process, and the thread for ending engines."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.inbox: SimpleQueue[tuple[int, Any, float]] = SimpleQueue()
        # The thread waits for these, and takes nothing out of the inbox to wake up: a caller that ends all engines in
        # that moment would have found the inbox empty.
        self.wakes: SimpleQueue[None] = SimpleQueue()
        # SQLite's registry of engines uses this lock too, and it is reentrant: garbage collection in here may close a
        # session object of the application, which takes the lock of the registry. With a lock each, this thread and one
        # that opens a session would wait for each other.
        self.lock = threading.RLock()
        self._use_counts: dict[int, int] = {}
        self._kept: dict[int, _Kept] = {}  # the oldest is first
        self._of_parent: list[Any] = []

    def use(self, engine: E, linger_s: float) -> EngineUse[E]:
        """Begin to use an engine. The caller holds the lock of the engine's registry."""
        dropped: list[Any] = []
        with self.lock:
            dropped, self._of_parent = self._of_parent, dropped
            self._drain(dropped)
            self._use_counts[id(engine)] = self._use_counts.get(id(engine), 0) + 1
            self._kept.pop(id(engine), None)
            if linger_s > 0 and self.thread is None:
                with contextlib.suppress(StoreUnavailableError):  # without a thread it ends with its last session
                    self.thread = start_thread(self._run, "standfast-linger")
        return EngineUse(self, engine, linger_s)

    def engines(self) -> list[Any]:
        """List the lingering engines."""
        dropped: list[Any] = []
        with self.lock:
            self._drain(dropped)
            return [kept.engine for kept in self._kept.values()]

    def take(self, engine: Engine) -> bool:
        """Release an engine; return True if the engine lingered. The caller holds the lock of the registry."""
        dropped: list[Any] = []
        with self.lock:
            self._drain(dropped)
            return self._kept.pop(id(engine), None) is not None

    def end_all(self) -> None:
        """End every lingering engine, and wait for the end."""
        for engine in self.engines():
            engine.end_lingering()

    def forget_parent(self) -> None:
        """Reset in a child of `os.fork`: an engine lingering in the parent is never used by the child."""
        self.thread, self.inbox, self.wakes = None, SimpleQueue(), SimpleQueue()
        # Kept until the next use: other hooks of this fork need these engines too.
        self._of_parent += [kept.engine for kept in self._kept.values()]
        self._kept.clear()

    def _drain(self, dropped: list[Any]) -> None:
        """Count the ended uses. Released engines are added to `dropped`, to end outside the lock."""
        now = time.monotonic()
        with contextlib.suppress(Empty):
            while True:
                number, engine, linger_s = self.inbox.get_nowait()
                self._count_end(number, engine, now + linger_s)
                dropped.append(engine)
        self._let_go(list(self._kept)[: max(0, len(self._kept) - LINGER_MAX)], dropped)

    def _count_end(self, number: int, engine: Any, until: float) -> None:
        count = self._use_counts.get(number, 0) - 1
        if count > 0:
            self._use_counts[number] = count
            return
        self._use_counts.pop(number, None)
        if engine is not None:
            self._kept[number] = _Kept(engine, until)

    def _let_go(self, numbers: Iterable[int], dropped: list[Any]) -> None:
        for number in numbers:
            dropped.append(self._kept.pop(number).engine)

    def _run(self) -> None:
        inbox, wakes = self.inbox, self.wakes
        while True:
            wakes.get()  # while nothing lingers this thread sleeps
            _empty(wakes)
            while self._look():
                time.sleep(TICK_S)
                _empty(wakes)  # the next look finds what they announced
            with self.lock:
                if self.thread is not threading.current_thread():
                    return
                if not self._use_counts and not self._kept and inbox.empty():
                    self.thread = None
                    return

    def _look(self) -> bool:
        """End the due engines, and return True while engines linger."""
        dropped: list[Any] = []
        for engine in self.engines():
            try:
                if engine.has_lost_store():
                    engine.end_lingering()
            except Exception:
                _log.exception("an engine that lingers could not be ended early")
        with self.lock:
            self._drain(dropped)
            now = time.monotonic()
            self._let_go([number for number, kept in self._kept.items() if kept.until <= now], dropped)
            for kept in list(self._kept.values()):
                # Not at its first sight: the next session object of a busy service comes within this time, and a
                # checkpoint for each request would cost more than the turn.
                kept.ticks += 1
                if kept.ticks == 2:
                    kept.engine.prepare_for_end()
            return bool(self._kept)


def _empty(wakes: SimpleQueue[None]) -> None:
    with contextlib.suppress(Empty):
        while True:
            wakes.get_nowait()


LINGERING = Lingering()


def checked_linger(linger_s: object) -> float:
    """Return `linger_s`; raises if it is not a number of seconds."""
    return check_seconds("linger_s", linger_s)


def _let_go() -> None:
    with contextlib.suppress(RuntimeError):  # it was never taken: Ctrl-C came before
        LINGERING.lock.release()


def _after_fork_in_child() -> None:
    LINGERING.forget_parent()
    _let_go()


if hasattr(os, "register_at_fork"):
    # Held over the fork: the thread that examines the engines is not in the child, and must not leave it taken there.
    os.register_at_fork(before=LINGERING.lock.acquire, after_in_parent=_let_go, after_in_child=_after_fork_in_child)
