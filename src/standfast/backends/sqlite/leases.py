"""Leases: at most one holder per session, across processes, by the database's own clock (B7).

A lease is a row with a number that only grows and a time it is held until. Giving up and expiring leave the number, so
a write that carries a lower one is refused inside its own transaction, whatever its holder believes. A holder whose
process is known to be gone holds nothing: whoever resumes after a crash does not wait for the time to run out.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

from standfast.backends.sqlite import holders as processes
from standfast.backends.sqlite.statements import Statements
from standfast.ground.errors import LeaseLostError

POLL_FIRST_S, POLL_MAX_S = 0.01, 0.25
# Another process cannot wake us, so a waiter looks again, less often the longer it waits.


def acquire(db: sqlite3.Connection, sql: Statements, session_id: str, ttl_s: float) -> int | None:
    """The number of a new lease, or None while somebody holds one."""
    now = db.execute(sql.now).fetchone()[0]
    row = db.execute(sql.lease, (session_id,)).fetchone()
    number, expires_at, holder = (0, 0.0, None) if row is None else row
    if expires_at > now and not processes.is_gone(_text(holder)):
        return None
    db.execute(sql.set_lease, (session_id, number + 1, now + ttl_s, processes.this_one()))
    return int(number) + 1


def hold(db: sqlite3.Connection, sql: Statements, session_id: str, number: int, ttl_s: float) -> bool:
    """Move the end of a lease (0 seconds: give it up) if it is still the newest one; whether it is."""
    row = db.execute(sql.lease, (session_id,)).fetchone()
    if row is None or row[0] != number:
        return False
    until = db.execute(sql.now).fetchone()[0] + ttl_s if ttl_s else 0.0
    db.execute(sql.set_lease, (session_id, number, until, _text(row[2])))
    return True


def _text(value: bytes | str | None) -> str | None:
    return value.decode("ascii", "replace") if isinstance(value, bytes) else value  # text is read as it is stored


class Waiters:
    """Tasks of this process that wait for a lease, so that giving one up wakes them at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Any, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    async def wait(self, key: Any, timeout_s: float) -> None:
        """Wait until somebody gives up what `key` names, or for that long."""
        me = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.setdefault(key, set()).add(me)
        try:
            await asyncio.wait_for(me[1].wait(), timeout_s)
        except TimeoutError:
            pass
        finally:
            with self._lock:
                mine = self._waiting.get(key, set())
                mine.discard(me)
                if not mine:
                    self._waiting.pop(key, None)

    def wake(self, key: Any) -> None:
        """Let everybody who waits for it look again."""
        with self._lock:
            woken = list(self._waiting.get(key, ()))
        for loop, event in woken:
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                continue  # that loop has ended, and its waiter with it


WAITERS = Waiters()

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WAITERS.__init__)  # type: ignore[misc]  # nobody waits yet, and no lock is held

Hold = Callable[[int, float], Awaitable[bool]]


class SQLiteLease:
    """A lease on a session. Leaving `async with` gives it up."""

    def __init__(self, number: int, ttl_s: float, hold: Hold) -> None:
        self._number, self._ttl_s, self._hold = number, ttl_s, hold

    @property
    def number(self) -> int:
        """Raised by every acquisition; a write that carries a lower one than the store's is refused."""
        return self._number

    async def renew(self) -> None:
        """Hold it for another `ttl_s`; raises LeaseLostError if another holder took it."""
        if not await self._hold(self._number, self._ttl_s):
            raise LeaseLostError(
                f"the lease number {self._number} has been taken by another holder",
                "Another run has the session now: reload it and run again.",
            )

    async def release(self) -> None:
        """Give it up. Doing so twice, or after it was lost, does nothing."""
        await self._hold(self._number, 0.0)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()
