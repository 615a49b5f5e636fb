"""Saving a record: the small head, fenced by its revision, and the tails of its logs.

Saves happen one after the other; a save that waits while a newer one is asked for saves the newest, so ten calls that
return at once cost one write. Whoever saved a record last is the one who may go on with it: a second one is told (C12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from standfast.engine.run_store import LogTail, Record, RunStore
from standfast.ground.errors import RunClaimedError

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class _Write(Generic[State]):
    """One save, ready to be sent, and sent again as it is."""

    state: State
    record: Record
    head: bytes
    tails: Mapping[str, LogTail]


class RunSaver(Generic[State]):
    """Writes one record to a run store. `record_of` says how its state is written: any kind of record can be saved."""

    def __init__(
        self,
        store: RunStore,
        record_of: Callable[[State], Record],
        *,
        revision: int = 0,
        needed: bool = False,
        saved: State | None = None,
    ) -> None:
        self.store = store
        self.revision = revision
        self.needed = needed
        """Whether something has happened that must survive: before that, nothing is written."""
        self._record_of = record_of
        self._lengths: Mapping[str, int] = record_of(saved).lengths() if saved is not None else {}
        self._lock = asyncio.Lock()
        self._newest: State | None = None
        self._done: State | None = saved
        self._unconfirmed: _Write[State] | None = None

    def save(self, state: State) -> Coroutine[Any, Any, None]:
        """Return when this state, or a later one, is saved; raises RunClaimedError if it is another's now."""
        self._newest = state  # now, not when the coroutine gets its turn: an older state must never follow a newer one
        return self._save()

    async def _save(self) -> None:
        async with self._lock:
            if self._unconfirmed is not None:
                # Whatever failed may have been done all the same, so it is repeated as it was: then the store either
                # knows it already or takes it now, and which revision is ours is known again.
                await self._write(self._unconfirmed)
            state = self._newest
            if state is None or state is self._done:
                return
            record = self._record_of(state)
            await self._write(_Write(state, record, record.head(), record.tails(self._lengths)))

    async def _write(self, write: _Write[State]) -> None:
        self._unconfirmed = write
        record = write.record
        try:
            self.revision = await self.store.save_run(
                record.run_id,
                expect=self.revision,
                head=write.head,
                tails=write.tails,
                status=record.status,
                agent=record.agent,
                session_id=record.session_id,
            )
        except RunClaimedError:
            self._unconfirmed = None  # it is another's now, for certain
            raise
        self._unconfirmed = None
        self._lengths = record.lengths()
        self._done = write.state
