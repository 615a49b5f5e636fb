"""Adapter for foreign sessions: five methods, no abilities, and the care possible from outside.

A plain session cannot name the writer of an item, so when `add_items` fails the stored part of the batch is unknown.
This module finds it by comparing serialised items with the history before (`append_outcome` decides), and it is the
only place in the runtime that calls `pop_item` (C7). Three rules keep that safe. The earlier history is known by its
length and its last items, so similar older items are never mistaken for new ones. A part of a batch is popped only if
it is exactly the new part; if the new part includes another writer's item, nothing is touched and an error is raised.
And items popped by mistake are put back. `PlainSession.cannot` lists the promises beyond any adapter.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import AppendGapError, PartialBatchError, StoreError, StoreTimeoutError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.logs import session_logger as _log
from standfast._src.base.type_names import describe_type
from standfast._src.sessions.conversation_identity import conversation_key
from standfast._src.sessions.foreign.append_outcome import (
    CONTEXT_COUNT,
    HistoryTail,
    is_unambiguous,
    serialise,
    stored_count,
    tail_from,
)
from standfast._src.sessions.foreign.turn_lock import ProcessLease, TurnLock
from standfast._src.sessions.protocol import NO_LIMIT, Session, check_limit
from standfast._src.sessions.signatures import accepts_wrapper, has_parameter, pass_wrapper

__all__ = ["ProcessLease", "PlainSession", "accepts_wrapper", "pass_wrapper"]

T = TypeVar("T")


# --- what this process knows of a session object ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _UnconfirmedBatch:
    """Batch of unknown outcome: the history before it, and its items."""

    before: HistoryTail
    items: list[Item]
    forms: list[bytes]
    end: int = 0


@dataclass(eq=False)
class _Memory:
    """State shared by all adapters of one conversation, dropped with its last session object."""

    held: TurnLock = field(default_factory=TurnLock)
    writing: TurnLock = field(default_factory=TurnLock)
    known: HistoryTail | None = None
    change_count: int = 0
    written: dict[str, int] = field(default_factory=dict)
    open: dict[str, _UnconfirmedBatch] = field(default_factory=dict)
    not_stored: list[tuple[str, int]] = field(default_factory=list)
    session: Session | None = None
    """Set only where the session object cannot be referenced weakly."""


_memories: dict[tuple[int, str], _Memory] = {}
_unweak: weakref.WeakValueDictionary[tuple[int, str], _Memory] = weakref.WeakValueDictionary()
_shared: weakref.WeakValueDictionary[Hashable, _Memory] = weakref.WeakValueDictionary()


def _memory_of(session: Session) -> _Memory:
    """Return the state of the conversation, shared by all session objects (C13).

    Two objects are one conversation only if their store is known (`conversation_key`); else each is a conversation.
    """
    key = (id(session), _id_of(session))
    found = _memories.get(key) or _unweak.get(key)
    if found is None:
        conversation = conversation_key(session)
        # An object that is known only as itself is its own key: in a table it would be kept alive for ever.
        found = _shared.setdefault(conversation, _Memory()) if isinstance(conversation, tuple) else _Memory()
        try:
            weakref.finalize(session, _memories.pop, key, None).atexit = False
            _memories[key] = found
        except TypeError:  # it has slots: kept alive by what is known about it, for as long as an adapter is
            found.session = session
            _unweak[key] = found
    return found


def _id_of(session: Session) -> str:
    try:
        return str(session.session_id)
    except Exception:  # an id that the server has not given yet may raise anything
        return ""


# --- doing -----------------------------------------------------------------------------------------------------------


class PlainSession:
    """A session of five methods, used with care. Methods may be async or not; `close` may be missing."""

    cannot: ClassVar[tuple[str, ...]] = (
        "A5: that no reader sees part of a batch; what `add_items` shows while it runs is up to the session.",
        "B1: that an append repeated by another process, or after a crash, is stored once; writers are known in memory"
        " only, and the session has nowhere to keep them.",
        "B2: that a write of another process is noticed, unless an append of ours failed at the same time.",
        "C7: that a failed append is cleared up if another process wrote equal items in the same moment, if the session"
        " changes items when it stores them, or if it hides a part of a history whose items repeat; where this is"
        " noticed nothing is touched and PartialBatchError says so.",
        "C12: that anything but acknowledged turns survives a kill, or that a saved run is resumed only once.",
        "C13: that runs in other processes wait, or on an object whose store cannot be told; the lock is in-process.",
    )
    """What no adapter can promise for a session without abilities, by contract clause."""

    def __init__(
        self,
        session: Session,
        *,
        wrapper: object = None,
        attempt_count_max: int = 1,
        read_count_max: int = 5,
        read_pause_s: float = 0.05,
        tidy_timeout_s: float = 10.0,
    ) -> None:
        """Adapt `session`.

        A failed append is tried `attempt_count_max` times in all. After a failure the session is read up to
        `read_count_max` times, with growing pauses, before what is seen is believed; each call made while clearing up
        may take `tidy_timeout_s`.
        """
        self.session = session
        self._wrapper = {"wrapper": wrapper} if accepts_wrapper(session) else {}
        self._takes_limit = has_parameter(session.get_items, "limit")
        self._attempt_count_max = max(1, attempt_count_max)
        self._read_count_max = max(1, read_count_max)
        self._read_pause_s = read_pause_s
        self._tidy_timeout_s = tidy_timeout_s
        self._memory = _memory_of(session)

    @property
    def session_id(self) -> str:
        """The id of the session."""
        return str(self.session.session_id)

    def hold(self, wait_s: float | None = None) -> ProcessLease:
        """Lock the conversation for one run of this process, after waiting at most so long (C13)."""
        return ProcessLease(self._memory.held, f"session {_id_of(self.session)!r}", wait_s)

    async def read(self, limit: int | None = None) -> list[Item]:
        """The latest `limit` items, or what the session returns by itself; the caller's to change."""
        check_limit(limit)
        changes = self._memory.change_count
        items = await self._read(limit)
        bound = limit if limit is not None else self._default_limit()
        if changes == self._memory.change_count and not self._memory.open:
            self._memory.known = tail_from(items, whole=bound is None or len(items) < bound)
        return items

    async def append(self, items: Sequence[Item], *, writer: str, start: int, lease: object = None) -> None:
        """Store items as this writer's items number `start` and on, by one `add_items`, once as far as can be known.

        After a failure, the stored part is found and taken back, and the error is raised; if the whole batch was
        stored, the append has succeeded. Raises PartialBatchError if a part remains. A cancellation waits for the
        cleanup. An append after one of unknown outcome settles that first; a lease changes nothing.
        """
        if not items:
            return
        async with self._memory.writing:
            if writer in self._memory.open:
                await self._settle_earlier(writer)
            fresh = self._unwritten(items, writer, start)
            if fresh:
                await self._append(fresh, writer, start + len(items))

    async def accepted(self, writer: str) -> int:
        """Return the number of this writer's stored items, as known in this process. An append of unknown outcome is
        settled first, so that a history read afterwards has no part of a torn batch.
        """
        async with self._memory.writing:
            if writer in self._memory.open:
                await self._settle_earlier(writer)
            return self._memory.written.get(writer, 0)

    async def written(self, writer: str) -> list[Item]:
        """Nothing: the session has nowhere to keep whose an item is."""
        return []

    def could_not_store(self, run_id: str, count: int) -> None:
        """Remember the number of a run's items missing in the session, to be reported at the next run here."""
        self._memory.not_stored.append((run_id, count))

    def not_stored(self) -> list[tuple[str, int]]:
        """Return runs of this process with missing items, reported once: run id and number of items."""
        told, self._memory.not_stored = self._memory.not_stored, []
        return told

    # --- appending ------------------------------------------------------------------------------

    def _unwritten(self, items: Sequence[Item], writer: str, start: int) -> list[Item]:
        written = self._memory.written.get(writer, start)  # a writer first seen now has written what it says it has
        if start > written:
            raise AppendGapError(
                f"writer {writer!r} has written {written} items and continues at number {start}",
                "Append what lies between first.",
            )
        return [copy_json(item) for item in items[written - start :]]

    async def _append(self, items: list[Item], writer: str, end: int) -> None:
        forms = [serialise(item) for item in items]
        for attempt in range(1, self._attempt_count_max + 1):
            batch = _UnconfirmedBatch(await self._load_tail(forms), items, forms, end)
            self._memory.open[writer] = batch
            self._memory.change_count += 1
            try:
                await self._call(self.session.add_items, [copy_json(item) for item in items])
            except (Exception, asyncio.CancelledError) as first:
                if not await self._settle_batch(batch, writer, first):
                    if attempt == self._attempt_count_max or isinstance(first, asyncio.CancelledError):
                        raise
                    continue
                if isinstance(first, asyncio.CancelledError):
                    raise
                _log.warning("add_items raised %s although the session has the whole batch", type(first).__name__)
            else:
                self._confirm(batch, writer, batch.before.then(forms))
            return

    async def _load_tail(self, forms: Sequence[bytes]) -> HistoryTail:
        known = self._memory.known
        if known is None and self._takes_limit:
            tail = await self._read(CONTEXT_COUNT)
            known = tail_from(tail, whole=len(tail) < CONTEXT_COUNT)
        if known is None or (known.count is None and not is_unambiguous(known.tail, forms)):
            known = tail_from(await self._read_whole(), whole=True)
        return known

    def _confirm(self, batch: _UnconfirmedBatch, writer: str, known: HistoryTail) -> None:
        self._memory.open.pop(writer, None)
        self._memory.written[writer] = batch.end
        self._memory.known = known

    async def _settle_batch(self, batch: _UnconfirmedBatch, writer: str, first: BaseException) -> bool:
        """Find out and clear up, however often the caller is cancelled; whether the batch was taken."""
        taken, trouble, cancelled = await _to_the_end(self._resolve_doubt(batch, writer))
        if isinstance(trouble, PartialBatchError) and isinstance(first, Exception) and cancelled is None:
            raise trouble from first
        if trouble is not None:
            first.add_note(f"While clearing up after it: {type(trouble).__name__}: {trouble}")
        if cancelled is not None:
            raise cancelled from first
        if trouble is not None:
            raise first
        return bool(taken)

    async def _settle_earlier(self, writer: str) -> None:
        """Settle the writer's earlier append of unknown outcome before its next one."""
        _, trouble, cancelled = await _to_the_end(self._resolve_doubt(self._memory.open[writer], writer))
        if cancelled is not None:
            raise cancelled
        if trouble is not None:
            raise trouble

    async def _resolve_doubt(self, batch: _UnconfirmedBatch, writer: str) -> bool:
        """Return True if the batch is stored; remove any part of it otherwise, or raise."""
        count, after = await self._read_until(batch, stop_at=len(batch.forms))
        if count is None:
            raise PartialBatchError(
                f"an append of {len(batch.items)} items to session {_id_of(self.session)!r} failed, somebody else has "
                "written meanwhile, and what it left behind cannot be told apart; nothing was taken back",
                "Look at the end of the history, remove what is not whole, and start a new run.",
            )
        if count == len(batch.forms):
            self._confirm(batch, writer, tail_from(after, whole=True))
            return True
        if count:
            after = await self._roll_back(batch, count)
        self._memory.open.pop(writer, None)
        self._memory.known = tail_from(after, whole=True)
        return False

    async def _read_until(self, batch: _UnconfirmedBatch, *, stop_at: int) -> tuple[int | None, list[Item]]:
        """Read the whole history repeatedly until enough of the batch is there, within a bound of readings."""
        seen: tuple[int | None, list[Item]] | None = None
        trouble: BaseException | None = None
        for reading in range(self._read_count_max):
            if reading:  # a store may show its writes late, and a cancelled write may still be under way in a thread
                await asyncio.sleep(self._read_pause_s * reading)
            try:
                after = await self._read_whole(self._tidy_timeout_s)
            except Exception as error:
                trouble = error
                continue
            seen = stored_count(batch.before, batch.forms, [serialise(item) for item in after]), after
            if seen[0] == stop_at:
                break
        if seen is None:
            assert trouble is not None
            raise trouble
        return seen

    # --- taking back: the only pop in the runtime ------------------------------------------------------------------

    async def _roll_back(self, batch: _UnconfirmedBatch, count: int) -> list[Item]:
        """Pop the stored first part of a batch, and nothing else; return the history without it (C7)."""
        popped: list[Item] = []
        for form in reversed(batch.forms[:count]):
            try:
                item = await self._tidy(self.session.pop_item)
            except (Exception, asyncio.CancelledError) as error:
                raise await self._put_back(batch, count, popped, "pop_item failed", error) from error
            if item is not None:
                popped.append(copy_json(item))
            if item is None or serialise(item) != form:
                raise await self._put_back(batch, count, popped, "pop_item gave something else than the last item")
        remaining, after = await self._read_until(batch, stop_at=0)
        if remaining != 0:
            raise self._partial_batch(batch, count, "they were popped and still stand there")
        return after

    async def _put_back(
        self, batch: _UnconfirmedBatch, count: int, popped: list[Item], why: str, error: BaseException | None = None
    ) -> PartialBatchError:
        """Put all popped items back, in order; return the error with the outcome."""
        missing = popped[::-1]
        try:
            after = await self._read_whole(self._tidy_timeout_s)
            left = stored_count(batch.before, batch.forms, [serialise(item) for item in after])
            if error is not None and left is not None and left < count:
                missing = batch.items[left:count]  # the pop that failed may have taken its item all the same
            missing = await self._add_with_retries(missing, tail_from(after, whole=True))
        except (Exception, asyncio.CancelledError) as trouble:
            return self._partial_batch(batch, count, f"{why}, and putting back failed with {trouble!r}", missing)
        return self._partial_batch(batch, count, why if not missing else f"{why}, and putting back failed", missing)

    async def _add_with_retries(self, items: list[Item], before: HistoryTail) -> list[Item]:
        """Add items, again if need be, each once; what could not be added."""
        for _ in range(self._read_count_max):
            if not items:
                break
            batch = _UnconfirmedBatch(before, items, [serialise(item) for item in items])
            try:
                await self._tidy(self.session.add_items, [copy_json(item) for item in items])
                return []
            except (Exception, asyncio.CancelledError):  # even at the end of the loop the items matter more
                count, after = await self._read_until(batch, stop_at=len(items))
                if count is None:
                    break
                items, before = items[count:], tail_from(after, whole=True)
        return items

    def _partial_batch(
        self, batch: _UnconfirmedBatch, count: int, why: str, removed: Sequence[Item] = ()
    ) -> PartialBatchError:
        self._memory.known = None
        rest = f"; {len(removed)} popped items are in this error's `removed`" if removed else ""
        return PartialBatchError(
            f"session {_id_of(self.session)!r} was left with {count} of the {len(batch.items)} items of an append that "
            f"failed, and they could not be taken back: {why}{rest}",
            "Look at the end of the history and remove what is not whole; resuming the run tries again first.",
            removed=[copy_json(item) for item in removed],
        )

    # --- calling ------------------------------------------------------------------------------

    def _default_limit(self) -> int | None:
        limit = getattr(getattr(self.session, "session_settings", None), "limit", None)
        return limit if isinstance(limit, int) else None

    async def _read(self, limit: int | None, timeout_s: float | None = None) -> list[Item]:
        if limit is None or not self._takes_limit:
            found = await self._call(self.session.get_items, timeout_s=timeout_s)
        else:
            found = await self._call(self.session.get_items, limit=limit, timeout_s=timeout_s)
        if not isinstance(found, list | tuple):
            raise StoreError(
                f"{type(self.session).__name__}.get_items() returned {describe_type(found)}",
                "Make it return a list of items, oldest first.",
            )
        items = [copy_json(item) for item in found]
        return items if limit is None else items[max(0, len(items) - limit) :]

    async def _read_whole(self, timeout_s: float | None = None) -> list[Item]:
        # Only where a default limit is in force: a minimal session may not know what to do with a limit.
        return await self._read(None if self._default_limit() is None else NO_LIMIT, timeout_s)

    async def _tidy(self, method: Callable[..., Awaitable[T]], *args: object) -> T:
        return await self._call(method, *args, timeout_s=self._tidy_timeout_s)

    async def _call(
        self, method: Callable[..., Awaitable[T]], *args: object, timeout_s: float | None = None, **named: object
    ) -> T:
        try:
            async with asyncio.timeout(timeout_s) as bound:
                result = method(*args, **named, **self._wrapper)
                return await maybe_await(result)
        except TimeoutError:
            if not bound.expired():
                raise  # the session's own
            raise StoreTimeoutError(
                f"{type(self.session).__name__}.{method.__name__} did not return within {timeout_s} s",
                "Find out why the session stalls.",
            ) from None


async def _to_the_end(
    work: Coroutine[Any, Any, T],
) -> tuple[T | None, BaseException | None, asyncio.CancelledError | None]:
    """Finish the work despite cancellations; return its result or error, and the first cancellation."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = cancelled or error
    if task.cancelled():
        return None, asyncio.CancelledError(), cancelled
    trouble = task.exception()
    return (None if trouble else task.result()), trouble, cancelled
