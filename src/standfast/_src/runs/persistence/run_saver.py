"""Saving a record: the small head, fenced by its revision, and the tails of its logs.

Saves happen one after the other; whatever is asked for while one is on its way, or in the same round of the event
loop, is saved by one further write: ten calls that return at once cost one. Whoever saved a record last is the one who
may go on with it: a second one is told (C12). In a store that has the session too, a save carries the session's lease,
so that one who lost it saves nothing, and it can be one step with the items of a turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from standfast._src.base.errors import RunClaimedError, SessionConflictError
from standfast._src.runs.engine.run_store import RunStore, SavableRecord
from standfast._src.runs.loop.reconciler import ignore_exception
from standfast._src.runs.persistence.session_lock import NewItems, SessionLock
from standfast._src.sessions.rules.saved_runs import RunSave

State = TypeVar("State")


@dataclass(frozen=True, slots=True)
class _Write(Generic[State]):
    """One save, ready to be sent, and sent again as it is."""

    state: State
    record: SavableRecord
    save: RunSave = field(repr=False)
    new: NewItems = field(repr=False)
    release: bool


class _Shared:
    """A save that is about to be made, and how many wait for it."""

    saving: asyncio.Task[None] | None = None
    count = 0


class RunSaver(Generic[State]):
    """Writes one record to a run store. `record_of` says how its state is written: any kind of record can be saved."""

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
        self._next: _Shared | None = None

    # --- saving ------------------------------------------------------------------------------------------------------

    def has(self, state: State) -> bool:
        """Whether the store has this very state, so that there is nothing to save."""
        return state is self._done

    def take_for_saved(self, state: State) -> None:
        """Write nothing for this state: it differs from the saved one only in what was read since.

        What the store has stays what it was saved with: the logs of this one may be longer.
        """
        self._done = state

    async def save(self, state: State) -> None:
        """Return when this state, or a later one, is saved; raises RunClaimedError if it is another's now."""
        self._newest = state
        shared = self._next
        if shared is None:
            shared = self._next = _Shared()
            shared.saving = asyncio.ensure_future(self._save_newest())
            shared.saving.add_done_callback(ignore_exception)
        assert shared.saving is not None
        shared.count += 1
        try:
            # Shared with whoever else has something to save now: one of them being cancelled must not end it for all.
            await asyncio.shield(shared.saving)
        finally:
            shared.count -= 1
            if not shared.count:
                # Nobody waits: what has not left yet must not, it would come after whatever is done next. And whoever
                # saves before that task has noticed needs one of their own.
                if self._next is shared:
                    self._next = None
                shared.saving.cancel()

    async def _save_newest(self) -> None:
        try:
            # A further round of the loop, for those who are about to say something in the one that begins now.
            await asyncio.sleep(0)
            await self._lock.acquire()
        finally:
            self._next = None  # whoever comes now may be too late for this one
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
        """Store these items in the session, and the record that knows them: in one step where one store has both.

        Else the record is saved first as it was before: then nobody else can save in its name, and a kill leaves more
        in the session than it knows, never less. That it knows them is saved with whatever is saved next.
        """
        if self.beside is not None:
            await self.save_with(after, new, release=release)
        else:
            await self.save(before)
            await hold.store(new)

    async def save_with(self, state: State, new: NewItems, *, release: bool = False) -> None:
        """Save this state, store these items beside it, and give the session's lease back if wanted: in one step."""
        assert self.beside is not None
        async with self._lock:
            await self._repeat_unconfirmed()
            self._newest = state
            await self._write(state, new, release)

    async def forget(self, state: State) -> None:
        """Remove the record, if there is one: whoever might have had to know of it need not any more.

        This last state is saved first, because a store removes whatever it has, and another process may have settled
        what this one took for its own: then that is told, and theirs stays.
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
        """Repeat the save whose outcome is not known, if there is one; the state that the store certainly has then."""
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
            return await self.beside.record(write.new, run=save, release=write.release)
        return await self.store.save_run(
            save.run_id,
            expect=save.expect,
            head=save.head,
            tails=save.tails,
            status=save.status,
            agent=save.agent,
            session_id=save.session_id,
        )

    def _save_of(self, record: SavableRecord) -> RunSave:
        tails = record.tails(self._confirmed.lengths() if self._confirmed is not None else {})
        return RunSave(
            record.run_id, self.revision, record.head(), tails, record.status, record.agent, record.session_id
        )

    # --- the last save -----------------------------------------------------------------------------------------------

    def last(self, state: State) -> RunSave | None:
        """The save of a state after which there is none, to be sent by somebody who does not wait; None if saved.

        A save that is on its way may be done before it, or not: it fits both.
        """
        if not self.needed:
            return None
        record, open_end = self._record_of(state), self._unconfirmed
        save = self._save_of(record)
        if open_end is None and not save.tails and self._head == save.head:
            return None
        return save if open_end is None else replace(save, in_flight=open_end.save.head)

    def give_back(self, state: State) -> Coroutine[Any, Any, object] | None:
        """Save the state in which a record was taken, if it was or may have been; submitted by this very call.

        For a taker who is told to stop before anything has begun, in a store of which no lease tells that they are
        gone: the record would be said to be running, and nobody could know better.
        """
        is_taken = self._confirmed is not None or self._unconfirmed is not None
        if not is_taken or self.beside is not None or not hasattr(type(self.store), "save_detached"):
            return None
        save, store = self.last(state), cast("Any", self.store)
        submitted: Coroutine[Any, Any, object] | None = None if save is None else store.save_detached(save)
        return submitted


# --- who watches -----------------------------------------------------------------------------------------------------

# Whoever watches a run looks at its store from time to time, as it must for what other processes save. What is saved
# here it need not wait for. A save costs one look into this dictionary more, which is empty where nobody watches.
_woken: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}


@contextmanager
def woken_by(run_id: str, event: asyncio.Event) -> Iterator[None]:
    """Set the event, which belongs to the running loop, whenever this process has saved a run of this id."""
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
    """Wake those who watch this run, in whatever loop."""
    for loop, event in tuple(_woken.get(run_id, ())):
        with suppress(RuntimeError):  # that loop was closed
            loop.call_soon_threadsafe(event.set)
