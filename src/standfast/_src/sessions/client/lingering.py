"""Keep the engine of a store for some seconds after its last session object (A19, A21).

A web service makes a session object for each request. Threads, connections and what is known of a store would be made
and ended with each of them, which costs more than the turn.

An `EngineUse` belongs to one session object and refers to the engine. When the last one ends, this module refers to
the engine for `linger_s` more. The engine ends as soon as no object refers to it.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import StoreUnavailableError
from standfast._src.sessions.client.thread_start import start_thread

LINGER_S = 0.0 if os.name == "nt" else 5.0  # Windows neither renames nor removes a file that is open
"""How long an engine stays without a session object, if nothing else was said."""

LINGER_MAX = 8
"""Engines of one process that may linger at once. Each has a few threads and connections."""

TICK_S = 0.1
"""How often lingering engines are looked at: whether their time is over, or their file is another one."""


class Engine(Protocol):
    """Threads and connections that the session objects of one store share."""

    def begin_lingering(self) -> None:
        """Prepare for an end that may come at any moment; from any thread, without waiting."""
        ...

    def has_lost_store(self) -> bool:
        """Return whether its store was deleted or replaced."""
        ...

    def end_lingering(self) -> None:
        """End now if the engine lingers, and wait for that; otherwise do nothing."""
        ...


E = TypeVar("E", bound=Engine)


class EngineUse(Generic[E]):
    """Use of an engine by one session object; it ends when the object is dropped or closed."""

    def __init__(self, lingering: Lingering, engine: E, linger_s: float) -> None:
        self.engine, self.linger_s = engine, linger_s
        self._lingering = lingering

    def __del__(self) -> None:
        # A finalizer can interrupt any code, and so takes no lock. Without the thread the engine would never end.
        lingers = self.linger_s > 0 and self._lingering.thread is not None
        self._lingering.inbox.put((id(self.engine), self.engine if lingers else None, self.linger_s))


class Lingering:
    """Engines of this process that no session object uses, and the thread that ends them."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.inbox: SimpleQueue[tuple[int, Any, float]] = SimpleQueue()
        self._lock = threading.Lock()
        self._use_counts: dict[int, int] = {}
        self._kept: dict[int, tuple[Any, float]] = {}  # engine and the time of its end; the oldest is first
        self._of_parent: list[Any] = []

    def use(self, engine: E, linger_s: float) -> EngineUse[E]:
        """Begin to use an engine. The caller holds the lock under which its kind of engine is found."""
        dropped: list[Any] = []
        with self._lock:
            dropped, self._of_parent = self._of_parent, dropped
            self._drain(dropped)
            self._use_counts[id(engine)] = self._use_counts.get(id(engine), 0) + 1
            self._kept.pop(id(engine), None)
            if linger_s > 0 and self.thread is None:
                with contextlib.suppress(StoreUnavailableError):  # without a thread it ends with its last session
                    self.thread = start_thread(self._run, "standfast-linger")
        return EngineUse(self, engine, linger_s)

    def engines(self) -> list[Any]:
        """List the engines that linger now."""
        dropped: list[Any] = []
        with self._lock:
            self._drain(dropped)
            return [engine for engine, _ in self._kept.values()]

    def take(self, engine: Engine) -> bool:
        """Release an engine and return whether it lingered. The caller holds the lock under which it is found."""
        dropped: list[Any] = []
        with self._lock:
            self._drain(dropped)
            return self._kept.pop(id(engine), None) is not None

    def end_all(self) -> None:
        """End every engine that no session object uses, and wait for that."""
        for engine in self.engines():
            engine.end_lingering()

    def forget_parent(self) -> None:
        """Reset in a child of `os.fork`, which never uses an engine that lingered in its parent."""
        self._lock, self.thread, self.inbox = threading.Lock(), None, SimpleQueue()
        # Kept until the next use: other hooks of this fork need these engines too.
        self._of_parent += [engine for engine, _ in self._kept.values()]
        self._kept.clear()

    def _drain(self, dropped: list[Any]) -> None:
        """Count the uses that have ended. Released engines are added to `dropped`, to end outside the lock."""
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
            self._kept[number] = engine, until
            engine.begin_lingering()

    def _let_go(self, numbers: Iterable[int], dropped: list[Any]) -> None:
        for number in numbers:
            dropped.append(self._kept.pop(number)[0])

    def _run(self) -> None:
        inbox = self.inbox
        while True:
            ended = inbox.get()  # while nothing lingers this thread sleeps
            inbox.put(ended)
            del ended
            while self._look():
                time.sleep(TICK_S)
            with self._lock:
                if self.thread is not threading.current_thread():
                    return
                if not self._use_counts and not self._kept and inbox.empty():
                    self.thread = None
                    return

    def _look(self) -> bool:
        """End the engines that are due, and return whether any still lingers."""
        dropped: list[Any] = []
        lost = [engine for engine in self.engines() if engine.has_lost_store()]
        for engine in lost:
            engine.end_lingering()
        del lost
        with self._lock:
            self._drain(dropped)
            now = time.monotonic()
            self._let_go([number for number, (_, until) in self._kept.items() if until <= now], dropped)
            return bool(self._kept)


LINGERING = Lingering()


def checked_linger(linger_s: object) -> float:
    """Return `linger_s`; raises if it is not a number of seconds."""
    return check_seconds("linger_s", linger_s)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=LINGERING.forget_parent)
