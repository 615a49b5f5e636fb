"""Saving of a record: the small head, fenced by its revision, and the tails of its logs.

Saves happen one after the other; all requests during a save, or in the same iteration of the event loop, share one
further write: ten calls that return at once cost one. Only the process that saved a record last may continue it: any
other gets an error (C12). In a store that has the session too, a save carries the session's lease, so that a process
without the lease saves nothing, and it can be one step with the items of a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

from standfast._src.base.errors import RunClaimedError, SessionConflictError
from standfast._src.runs.engine.run_store import RunStore, SavableRecord
from standfast._src.runs.loop.reconciler import ignore_exception
from standfast._src.runs.persistence.session_lock import NewItems, SessionLock
from standfast._src.sessions.rules.budgets import draws_of
from standfast._src.sessions.rules.saved_runs import Recorded, RunSave

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class _Write(Generic[State]):
    """A save, ready to be sent, and to be repeated unchanged."""

    state: State
    record: SavableRecord
    save: RunSave = field(repr=False)
    new: NewItems = field(repr=False)
    release: bool


class _Shared:
    """A pending save, and the number of its waiters."""

    saving: asyncio.Task[None] | None = None
    count = 0


class RunSaver(Generic[State]):
    """Writer of a record to a run store. `record_of` encodes its state: any kind of record can be saved."""

    def __init__(
        self,
        store: RunStore,
        record_of: Callable[[State], SavableRecord],
        *,
        hold: SessionLock | None = None,
        revision: int = 0,
        needed: bool = False,
        saved: State | None = None,
    ) -> None:
        self.store = store
        self.revision = revision
        self.signals: bytes | None = None
        """Pending signals of the last saved state (F7)."""
        self.needed = needed
        """Whether something has happened that must survive: before that, nothing is written."""
        self.beside = hold if hold is not None and hold.keeps(store) else None
        """The session in the same store: saves carry its lease, and can be one step with its items."""
        self._record_of = record_of
        self._confirmed: SavableRecord | None = record_of(saved) if saved is not None else None
        self._head: bytes | None = None
        """The head as it was last saved by this saver."""
        self._lock = asyncio.Lock()
        self._newest: State | None = None
        self._done: State | None = saved
        self._unconfirmed: _Write[State] | None = None
        self.refused: Mapping[str, int] = {}
        """Limits of budgets without room for the reservations of the last save (F10)."""
        self._next: _Shared | None = None

    # --- saving ------------------------------------------------------------------------------------------------------

    def has(self, state: State) -> bool:
        """Return True if the store has this very state."""
        return state is self._done

    def take_for_saved(self, state: State) -> None:
        """Treat a state as saved: only data read since the save differs.

        The store keeps the state of the last save: the logs of this one may be longer.
        """
        self._done = state

    async def save(self, state: State) -> None:
        """Save this state; return once the store has it or a later one. Raises RunClaimedError if another process owns
        the record.
        """
        self._newest = state
        shared = self._next
        if shared is None:
            shared = self._next = _Shared()
            shared.saving = asyncio.ensure_future(self._save_newest())
            shared.saving.add_done_callback(ignore_exception)
        assert shared.saving is not None
        shared.count += 1
        try:
            # Shared with all present savers: the cancellation of one of them must not end it for all.
            await asyncio.shield(shared.saving)
        finally:
            shared.count -= 1
            if not shared.count:
                # No waiter is left: an unsent save must not be sent any more, it would come after later work. And a
                # saver that comes before that task has noticed needs one of its own.
                if self._next is shared:
                    self._next = None
                shared.saving.cancel()

    async def _save_newest(self) -> None:
        try:
            # A further iteration of the loop, for savers that are about to come in the present one.
            await asyncio.sleep(0)
            await self._lock.acquire()
        finally:
            self._next = None  # a saver that comes now may be too late for this one
        try:
            await self._repeat_unconfirmed()
            state = self._newest
            if state is not None and state is not self._done:
                await self._write(state)
        finally:
            self._lock.release()

    async def store_items(
        self, hold: SessionLock, new: NewItems, before: State, after: State, *, release: bool = False
    ) -> None:
        """Store items in the session together with the record's knowledge of them: in one step if one store has both.

        Otherwise the record is first saved in its earlier state: then no other process can save in its name, and a
        crash leaves more in the session than the record knows, never less. The updated `stored` mark is written by the
        next save.
        """
        if self.beside is not None:
            await self.save_with(after, new, release=release)
        else:
            await self.save(before)
            await hold.store(new)

    async def save_with(self, state: State, new: NewItems, *, release: bool = False) -> None:
        """Save this state, store items in the same store, and release the session's lease if requested: in one step."""
        assert self.beside is not None
        async with self._lock:
            await self._repeat_unconfirmed()
            self._newest = state
            await self._write(state, new, release)

    async def forget(self, state: State) -> None:
        """Delete the record, if any: no reader needs it any more.

        This last state is saved first, because a store deletes any record, and another process may have settled the
        record of this one: then that is raised, and its record stays.
        """
        async with self._lock:
            await self._repeat_unconfirmed()
            record = self._confirmed
            if record is not None:
                last = self._record_of(state)
                await self._send(_Write(state, last, self._save_of(last), NewItems(last.run_id), release=False))
            # Before it is asked for: cut there, nothing is to be saved in its place.
            self._confirmed, self._head, self.revision, self.needed = None, None, 0, False
            if record is not None:
                await self.store.delete_run(record.run_id)

    async def confirm(self) -> State | None:
        """Repeat a save of unknown outcome, if any; return the state that the store certainly has then."""
        async with self._lock:
            await self._repeat_unconfirmed()
        return self._done

    async def _repeat_unconfirmed(self) -> None:
        if self._unconfirmed is not None:
            # Whatever failed may have been done all the same, so it is repeated as it was: then the store either
            # knows it already or takes it now, and which revision is ours is known again.
            await self._send(self._unconfirmed)

    async def _write(self, state: State, new: NewItems | None = None, release: bool = False) -> None:
        record = self._record_of(state)
        save = self._save_of(record)
        if new is None and not save.tails and self._head == save.head:
            self._done = state  # it differs in nothing that is kept
            return
        await self._send(_Write(state, record, save, new or NewItems(save.run_id), release))

    async def _send(self, write: _Write[State]) -> None:
        self._unconfirmed = write
        try:
            self.revision = await self._send_write(write)
        except (RunClaimedError, SessionConflictError):
            self._unconfirmed = None  # it was refused, for certain: nothing of it is written
            raise
        self._unconfirmed = None
        self._confirmed, self._head, self._done = write.record, write.save.head, write.state
        _wake_watchers(write.save.run_id)

    async def _send_write(self, write: _Write[State]) -> int:
        save = write.save
        if self.beside is not None:
            done: Recorded = await self.beside.record(write.new, run=save, release=write.release)
            self._note_answer(done)
            return done.revision
        if _records(type(self.store)):
            store: Any = self.store
            done = await store.record_run(save)
            self._note_answer(done)
            return done.revision
        return await self.store.save_run(
            save.run_id,
            expect=save.expect,
            head=save.head,
            tails=save.tails,
            status=save.status,
            agent=save.agent,
            session_id=save.session_id,
        )

    def _note_answer(self, done: Recorded) -> None:
        self.refused, self.signals = getattr(done, "refused", {}), getattr(done, "signals", None)

    def _save_of(self, record: SavableRecord) -> RunSave:
        tails = record.tails(self._confirmed.lengths() if self._confirmed is not None else {})
        return RunSave(
            record.run_id,
            self.revision,
            record.head(),
            tails,
            record.status,
            record.agent,
            record.session_id,
            draws=draws_of(record),
        )

    # --- the last save -----------------------------------------------------------------------------------------------

    def last(self, state: State) -> RunSave | None:
        """Return the final save of a state, to be sent without waiting; None if already saved.

        It fits a store both before and after a save that is on its way.
        """
        if not self.needed:
            return None
        record, open_end = self._record_of(state), self._unconfirmed
        save = self._save_of(record)
        if open_end is None and not save.tails and self._head == save.head:
            return None
        return save if open_end is None else replace(save, in_flight=open_end.save.head)

    def give_back(self, state: State) -> Coroutine[Any, Any, object] | None:
        """Submit a save of the state from before the claim, if the claim was or may have been saved.

        For a process stopped before anything has begun, in a store without a lease: otherwise the record would count as
        running for ever.
        """
        is_taken = self._confirmed is not None or self._unconfirmed is not None
        if not is_taken or self.beside is not None or not hasattr(type(self.store), "save_detached"):
            return None
        save, store = self.last(state), cast("Any", self.store)
        submitted: Coroutine[Any, Any, object] | None = None if save is None else store.save_detached(save)
        return submitted


@lru_cache(maxsize=64)
def _records(kind: Hashable) -> bool:
    """Return True if the class with a store's `save_run` has `record_run` too: a store around another has neither."""
    kinds = vars(next(one for one in cast("type", kind).__mro__ if "save_run" in vars(one)))
    return "record_run" in kinds


# --- who watches -----------------------------------------------------------------------------------------------------

# A watcher of a run polls its store, as it must for saves of other processes. For saves of this process it need not
# wait for the next poll. A save costs one more look into this dictionary, which is empty without watchers.
_woken: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}


@contextmanager
def woken_by(run_id: str, event: asyncio.Event) -> Iterator[None]:
    """Set the event, which belongs to the running loop, after every save of this run in this process."""
    entry = (asyncio.get_running_loop(), event)
    _woken.setdefault(run_id, set()).add(entry)
    try:
        yield
    finally:
        left = _woken.get(run_id, set())
        left.discard(entry)
        if not left:
            _woken.pop(run_id, None)


def _wake_watchers(run_id: str) -> None:
    """Wake the watchers of this run, in any loop."""
    for loop, event in tuple(_woken.get(run_id, ())):
        with suppress(RuntimeError):  # that loop was closed
            loop.call_soon_threadsafe(event.set)
