"""Watching of a saved run from any process: polls its store, and yields updates.

A watcher only reads: it takes no lease, writes nothing, and no run waits for it. The store is polled at intervals, only
for the head of the run as long as nothing was saved; all watchers of a run in an event loop share the poll.
`run_updates` computes the updates.

Rejected: PostgreSQL's NOTIFY with each save. A transaction that notifies holds one lock of the whole server until its
commit is on disk, so that commits of different runs would wait for each other, watched or not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import NotFoundError, OwnerError, RunStateError
from standfast._src.base.json_values import Item
from standfast._src.realtime.machine.codec import is_call
from standfast._src.runs.engine.codec import decode_saved, ending_of, has_ended
from standfast._src.runs.engine.run_store import RunStore, SavedRun, check_run_id
from standfast._src.runs.persistence.run_saver import woken_by
from standfast._src.runs.persistence.session_lock import run_store_of
from standfast._src.runs.recovery.run_updates import (
    RunSnapshot,
    RunUpdate,
    parse_cursor,
    snapshot_of,
    snapshot_of_ending,
    updates_after,
)
from standfast._src.sessions.protocol import Session, with_ability

WAIT_S, POLL_S = 60.0, 0.25

WOKEN_AFTER_S = 0.02
# Minimal time between two polls even if this process has saved the run again: a run that is saved a thousand
# times a second must not be read a thousand times a second by its watchers.


async def watch(
    run_id: str,
    session: Session | None,
    run_store: RunStore | None,
    after: str | None,
    wait_s: float | None,
    poll_s: float,
) -> AsyncGenerator[RunUpdate, None]:
    """Yield the updates of a saved run; see `Runner.watch`."""
    check_run_id(run_id)
    check_seconds("poll_s", poll_s, is_ttl=True)
    if wait_s is not None:
        check_seconds("wait_s", wait_s)
    told = parse_cursor(after)
    store = run_store_of(session, run_store)
    if not told.is_nothing:
        wait_s = 0.0  # it was there: if it is not now, it will not come
    deadline = None if wait_s is None else time.monotonic() + wait_s
    looking = _Looking.acquire(store, run_id)
    seen = 0
    try:
        while True:
            newest = await looking.newer(store, seen, poll_s, deadline)
            if newest == seen:
                raise _not_there(run_id, wait_s)
            seen, saved, deadline = newest, looking.saved, None
            if saved is None:
                raise NotFoundError(f"run {run_id!r} was deleted while it was watched", "There is nothing more to see.")
            now = await _picture(saved, session)
            for update, then in updates_after(told, now):
                told = then
                yield update
            if now.has_ended:
                return
    finally:
        looking.release()


def _not_there(run_id: str, wait_s: float | None) -> NotFoundError:
    return NotFoundError(
        f"there is no saved run {run_id!r}" + (f", and none came within {wait_s:g} s" if wait_s else ""),
        "Look at the id and the store. A run is saved first when something of it must survive: when a call begins, a"
        " turn is stored or it waits. Give wait_s the time that the model may take until then.",
    )


# --- looking, once for all who watch ---------------------------------------------------------------------------------


@dataclass(eq=False)
class _Looking:
    """Shared state of all watchers of a run in an event loop."""

    run_id: str
    places: dict[tuple[RunStore, str], _Looking]
    key: tuple[RunStore, str]
    saved: SavedRun | None = None
    version: int = 0
    """How many states of it were seen."""
    watcher_count: int = 0
    look_count: int = 0
    _is_looking: bool = False
    _looked: asyncio.Event = field(default_factory=asyncio.Event)
    _looked_at: float = float("-inf")
    _saved_here: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def acquire(cls, store: RunStore, run_id: str) -> _Looking:
        """Return the shared state of a run; `release` gives it back."""
        places = _here.setdefault(asyncio.get_running_loop(), {})
        # Two objects of one store of ours are equal; another's is known by itself, or as it says.
        key = (store, run_id)
        found = places.get(key)
        if found is None:
            found = places[key] = cls(run_id, places, key)
        found.watcher_count += 1
        return found

    def release(self) -> None:
        """Remove a watcher."""
        self.watcher_count -= 1
        if not self.watcher_count and self.places.get(self.key) is self:
            del self.places[self.key]

    async def newer(self, store: RunStore, seen: int, poll_s: float, deadline: float | None) -> int:
        """Wait for a state newer than number `seen`, polled by this or another watcher; return its number.

        The same number is returned after the deadline and at least one poll. One watcher polls and the others wait for
        it; after its end the next one polls. Each polls through its own store, which is open during its watch.
        """
        looks = self.look_count
        while self.version <= seen:
            if deadline is not None and self.look_count > looks and time.monotonic() >= deadline:
                return seen
            if self._is_looking:
                await self._looked.wait()
                continue
            self._is_looking = True
            try:
                with woken_by(self.run_id, self._saved_here):
                    await self._rest(poll_s, deadline)
                    await self._look(store)
            finally:
                self._is_looking = False
                self._looked.set()
                self._looked = asyncio.Event()
        return self.version

    async def _rest(self, poll_s: float, deadline: float | None) -> None:
        """Wait for the next poll, or until this process has saved the run."""
        until = self._looked_at + poll_s
        left_s = (until if deadline is None else min(until, deadline)) - time.monotonic()
        if left_s > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._saved_here.wait()
                    await asyncio.sleep(WOKEN_AFTER_S - (time.monotonic() - self._looked_at))
        self._saved_here.clear()

    async def _look(self, store: RunStore) -> None:
        known = self.saved
        self._looked_at = time.monotonic()
        newer: Any = getattr(store, "load_run_since", None)
        saved: SavedRun | None
        saved = await store.load_run(self.run_id) if known is None or newer is None else await newer(known)
        self.look_count += 1
        if saved is None and known is None:
            return  # it is not there yet
        if saved is None or known is None or (saved.revision, saved.head) != (known.revision, known.head):
            self.saved = saved
            self.version += 1


_here: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[tuple[RunStore, str], _Looking]] = WeakKeyDictionary()


# --- how the run stands ----------------------------------------------------------------------------------------------


async def _picture(saved: SavedRun, session: Session | None) -> RunSnapshot:
    run_id = saved.run_id
    if is_call(saved):
        raise RunStateError(f"{run_id!r} is a voice call", "Watch what is said with `session.watch()` of its session.")
    if not has_ended(saved):
        run = decode_saved(saved)
        if run.spec.owner.kind == "session":
            _check_session(run_id, session, run.spec.owner.id)
        return snapshot_of(run)
    _check_session(run_id, session, None)
    ending = ending_of(saved) or {}
    items, count = await _read_written(session, run_id)
    if not count and ending.get("status") == "done" and count is not None:
        raise OwnerError(
            f"run {run_id!r} has stored nothing in this session: it is another's",
            "Pass the session that it ran on; Runner.list_runs(...) tells its id.",
        )
    return snapshot_of_ending(run_id, ending, items, count)


async def _read_written(session: Session | None, run_id: str) -> tuple[list[Item], int | None]:
    """Return the session's items of the run, and the number of accepted ones, or None if unknown."""
    appending = with_ability(session, "append")
    if appending is None:
        return [], None
    return await appending.written(run_id), await appending.accepted(run_id)


def _check_session(run_id: str, session: Session | None, owner_id: str | None) -> None:
    if session is None:
        raise OwnerError(
            f"run {run_id!r} belongs to a session, which has what it says", "Pass that session: session=..."
        )
    if owner_id is not None and session.session_id != owner_id:
        raise OwnerError(
            f"run {run_id!r} belongs to session {owner_id!r}, and {session.session_id!r} was given",
            "Pass the session that it runs on.",
        )
