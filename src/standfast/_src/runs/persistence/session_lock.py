"""Session of a run: read once, appended to by writer and ordinal, and locked by one run at a time.

The run asks for abilities, never for a class. A session with exactly-once append is written to directly. Any other
session goes through the adapter for plain sessions, which documents its weaker promises. If one store has the history
and the saved runs, a turn, the run and the lease are written in one step.
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.run_config import Concurrency
from standfast._src.base.errors import OwnerError, SessionBusyError, StoreError, UserError
from standfast._src.base.json_values import Item
from standfast._src.base.logs import logger as logger
from standfast._src.base.operational_events import emit
from standfast._src.items.history import begins_or_answers, rest_of_reply
from standfast._src.runs.engine.reply_costs import Costs
from standfast._src.runs.engine.run_store import RunStore
from standfast._src.runs.persistence.deadlock_detection import Held, enclosing_runs, locks_held_by_callers, waiting_for
from standfast._src.sessions.conversation_identity import conversation_key
from standfast._src.sessions.foreign.adapter import PlainSession
from standfast._src.sessions.foreign.turn_lock import ProcessLease
from standfast._src.sessions.item_sizes import item_bytes_max
from standfast._src.sessions.protocol import Lease, Session, SessionSettings, abilities, ended_abilities
from standfast._src.sessions.records import RunUsage
from standfast._src.sessions.rules.saved_runs import HeardMessage, NestedItems, Recorded, RunSave
from standfast._src.sessions.signatures import has_parameter

LOGGED_WAIT_S = 0.5
# A wait for a session that is worth a line in the log: shorter ones are what taking turns costs.


def session_id_of(session: Session) -> str | None:
    """Return the session's id, or None for a session without an id before its first use."""
    try:
        return str(session.session_id)
    except (ValueError, AttributeError):
        return None


def run_store_of(session: Session | None, run_store: RunStore | None) -> RunStore:
    """Return the given run store, or the session's own; raise UserError if there is neither."""
    store = run_store if run_store is not None or session is None else _run_store_beside(session)
    if store is None:
        raise UserError("there is no run store to look in", "Pass session= (a session of standfast's) or run_store=.")
    return store


def _run_store_beside(session: Any) -> RunStore | None:
    store: RunStore | None = session.run_store() if "runs" in abilities(session) else None
    return store


@dataclass(frozen=True, slots=True)
class NewItems:
    """New items of one step: a writer's items from number `start` on, and the records stored with them."""

    writer: str
    start: int = 0
    items: Sequence[Item] = ()
    costs: Costs | None = None
    """What replies of the writer cost, those that were not kept before."""
    nested: Sequence[NestedItems] = ()
    """Items of runs inside its calls, which stand before its own."""
    heard: Sequence[HeardMessage] = ()
    """Ends of messages heard or refused by the run (F1)."""

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to store."""
        return not (self.items or self.costs or self.nested or self.heard)

    def as_arguments(self) -> dict[str, Any]:
        """The same as arguments of a session's `record`."""
        given: dict[str, Any] = {"items": self.items, "writer": self.writer, "start": self.start}
        # Only where there are any: a session of other origin may have `record` and not know them.
        if self.costs is not None:
            given["costs"] = self.costs
        if self.nested:
            given["nested"] = self.nested
        if self.heard:
            given["heard"] = self.heard
        return given


_told: weakref.WeakSet[type] = weakref.WeakSet()


def _tell_what_ended(session: Session) -> None:
    """Log, once for each class, the abilities lost by overriding a history method, and the way to keep them."""
    kind = type(session)
    if kind in _told:
        return
    _told.add(kind)
    ended = ended_abilities(session)
    for method in sorted(set(ended.values())):
        names = sorted(name for name, by in ended.items() if by == method)
        logger.info(
            "%s overrides %s, so runs on it do without: %s (they would go around it). To keep one, override its method"
            " in the same class too, or say in its body which hold: declared_abilities = frozenset({...})",
            kind.__qualname__,
            method,
            ", ".join(names),
        )


@lru_cache(maxsize=64)
def _says_who(kind: Hashable) -> bool:
    """Return True if a session class accepts a lease holder's name; cached, because reading a signature is slow."""
    return has_parameter(getattr(kind, "lease", None), "holder")


def current_task() -> asyncio.Task[Any] | None:
    """Return the current task, or None outside of a task."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class SessionLock:
    """Lock of one run on a session."""

    def __init__(
        self,
        session: Session,
        *,
        concurrency: Concurrency = "wait",
        lease_ttl_s: float,
        lease_wait_s: float,
        settings: SessionSettings | None = None,
        wrapper: RunContextWrapper[Any] | None = None,
        outer: SessionLock | None = None,
    ) -> None:
        self.session: Any = session  # what it can do beyond the five methods is asked of `abilities`, not of its type
        self.session_id = session_id_of(session)
        self._concurrency, self._settings = concurrency, settings
        self.holder = ""
        """Who holds it, for people: the run."""
        self._lease_ttl_s, self._lease_wait_s = lease_ttl_s, lease_wait_s
        able = abilities(session)
        self._leasable = "lease" in able
        self.can_record = "record" in able
        """Whether items, the saved run and the lease can be written in one step, by a request that needs no loop."""
        self.keeps_costs = self.can_record and "usage" in able
        """Whether what a run costs can be kept with its items, in the step that stores them (B15)."""
        self._plain = None if "append" in able else PlainSession(session, wrapper=wrapper)
        self._history: Any = self._plain or session
        """What knows writers: the session, or the adapter for one that does not."""
        _tell_what_ended(session)
        self._held: Lease | None = None
        """The session's lease; of a plain session one that only this process knows of."""
        self._runs: RunStore | None = None
        # A nested run on its parent's session uses the parent's lease (C13), which may be that of the run around it.
        self._outer: SessionLock | None = None
        if outer is not None and outer.is_same(session):
            self._outer = outer._outer or outer
        self._started_in = current_task()
        self.inbox: tuple[str, ...] = ()
        """Ids of the waiting messages, as of the last step of this run (F1)."""
        self.cut: Sequence[Item] = ()
        """What `read` left out of the latest items, because the limit cut the rest of their reply off."""

    def is_same(self, session: Session) -> bool:
        """Return True for the same conversation in the same store, also through another object or a wrapper."""
        return self.key == conversation_key(session)

    @property
    def key(self) -> Hashable:
        """Key of the conversation in this process."""
        return conversation_key(self.session)

    def has_namesake_around(self) -> bool:
        """Return True if an enclosing run has another conversation of the same id, in another store."""
        around = [one for one in enclosing_runs() if isinstance(one, SessionLock) and one.session_id == self.session_id]
        return any(one.key != self.key for one in around)

    @property
    def counts_writers(self) -> bool:
        """True if the session itself counts the items of each run."""
        return self._plain is None

    @property
    def is_covered(self) -> bool:
        """True if an enclosing run holds the conversation: then no further lease is taken (C13)."""
        return self._outer is not None

    def run_store(self) -> RunStore | None:
        """Return the run store beside the history, or None."""
        if self._runs is None:
            self._runs = _run_store_beside(self.session)
        return self._runs

    def is_beside(self, store: RunStore) -> bool:
        """Return True if this run store is the session's own: its lease then tells the session's open runs."""
        beside = self.run_store()
        return beside is not None and (store is beside or store == beside)

    def keeps(self, store: RunStore) -> bool:
        """Return True if a run in this store can be written in one step with the session's items and lease."""
        return self.can_record and self.is_beside(store)

    # --- one run at a time -------------------------------------------------------------------------------------------

    async def hold(self, *, at_once: bool = False) -> None:
        """Become the only run on this conversation, as the concurrency policy says (C13).

        `at_once`: raises SessionBusyError if another has it, also where the policy is to wait.
        """
        # Holding twice would be waiting for oneself: a parent's lease covers a nested run on the same conversation.
        if self._concurrency == "allow" or self._outer is not None or self._held is not None:
            return
        wait_s = 0.0 if at_once or self._concurrency == "reject" else self._lease_wait_s
        asked_at = time.monotonic()
        if around := locks_held_by_callers(self._started_in):
            self._refuse_to_wait_for_itself(around)
        try:
            if around and wait_s > 0:
                with waiting_for(self.key, self._started_in, what=f"session {self.session_id!r}"):
                    await self._take(wait_s)
            else:
                await self._take(wait_s)
        except SessionBusyError as error:
            if not at_once:  # else it is asked again, by a worker that looks for runs to recover
                emit("message_refused", session=self.session_id or "-", reason=f"held by {error.holder or 'a run'}")
            raise
        self._tell_of_waiting(time.monotonic() - asked_at)

    async def _take(self, wait_s: float) -> None:
        if self._leasable:
            named = {"holder": self.holder} if _says_who(cast("Hashable", type(self.session))) else {}
            self._held = await self.session.lease(ttl_s=self._lease_ttl_s, wait_s=wait_s, **named)
            self.inbox = getattr(self._held, "inbox", ())
        elif self._plain is not None:
            self._held = await self._plain.hold(wait_s)

    def _tell_of_waiting(self, waited_s: float) -> None:
        who, session = self.holder or "a run", self.session_id or "?"
        if waited_s >= LOGGED_WAIT_S:
            emit("lease_waited", holder=who, seconds=waited_s, session=session)
        before = getattr(self._held, "taken_from", "")
        if before:
            emit("lease_taken_over", holder=who, what=f"session {session!r}", before=before)

    def _refuse_to_wait_for_itself(self, around: Sequence[Held]) -> None:
        """Raise SessionBusyError if a call of the run holding this conversation has started, and awaits, this run."""
        for one in around:
            if isinstance(one, SessionLock) and one.key == self.key:
                raise SessionBusyError(
                    f"session {self.session_id!r} is held by the run whose tool, hook or guardrail has started this"
                    " run: it would wait for itself",
                    "Give the inner run another session or none, use the agent as a tool (agent.as_tool), or start it"
                    " in a task of its own, which waits its turn.",
                    holder=one.holder or None,
                )

    @property
    def is_held(self) -> bool:
        """True if this run, or an enclosing one, holds the conversation."""
        return (self._outer or self)._held is not None

    @property
    def lease(self) -> Lease | None:
        """Lease sent with writes, or None if no store knows of a lease."""
        held = (self._outer or self)._held
        return None if isinstance(held, ProcessLease) else held

    async def make_sure(self) -> None:
        """Raise LeaseLostError unless the lease is certainly still ours (C13): then nothing may begin or be asked."""
        lease = self.lease
        if lease is not None and (self.was_away or not getattr(lease, "is_held", True)):
            # Not renewed in time: this process slept, or its store was away. Only the store knows who has it now.
            await lease.renew()

    @property
    def was_away(self) -> bool:
        """True if this process stood still for longer than its lease lives, and has not checked the lease since."""
        return bool(getattr(self.lease, "was_away", False))

    def tell_when_lost(self, tell: Callable[[], None]) -> None:
        """Call `tell` as soon as the lease is found lost, if the lease supports notification."""
        told = getattr(self.lease, "tell_when_lost", None)
        if callable(told):
            told(tell)

    def tell_when_asked(self, tell: Callable[[], None]) -> None:
        """Call `tell` when a renewal of the lease finds a signal, if the lease supports notification (F7)."""
        told = getattr(self.lease, "tell_when_asked", None)
        if callable(told):
            told(tell)

    async def release(self) -> None:
        """Give back what was borrowed. The session stays open (C14)."""
        held, self._held = self._held, None
        if held is not None:
            try:
                await held.release()  # ours submit it before they wait: a cancellation that comes now changes nothing
            except StoreError as error:  # it expires by itself; the run's own outcome is what counts
                logger.warning("a lease on session %r was not given back: %s", self.session_id, error)

    def release_now(self) -> None:
        """Release the session and its lease without waiting. A lease beyond reach expires by itself."""
        held, self._held = self._held, None
        now = getattr(held, "release_now", None)
        if callable(now):
            now()

    # --- history -----------------------------------------------------------------------------------------------------

    def limit(self) -> int | None:
        """Return the number of latest items to read: the session's settings, overridden by the run's (A3)."""
        own = getattr(self.session, "session_settings", None)
        if not isinstance(own, SessionSettings):  # a dict, or the settings of the SDK's own sessions
            limit = own.get("limit") if isinstance(own, dict) else getattr(own, "limit", None)
            own = SessionSettings(limit)
        return own.resolve(self._settings).limit

    @cached_property
    def item_bytes_max(self) -> int:
        """Return the bound of an item: the session's own, or a lower bound of the run (A6)."""
        return min(item_bytes_max(getattr(self.session, "session_settings", None)), item_bytes_max(self._settings))

    async def read(self) -> list[Item]:
        """Read the history at the start of a run. A reply cut in two by the limit is left out, and its rest is `cut`
        (C8).
        """
        limit = self.limit()
        items = await self._read(limit)
        if not items or len(items) != limit or begins_or_answers(items[0]):
            return items
        # Whether the first belongs to a reply is said by the one before it. It is asked for by itself: a session of the
        # user's own is told the limit that was set.
        try:
            before, *more = await self._read(limit + 1)
        except Exception:
            if self._plain is None:
                raise
            return items  # a session of the user's own may refuse more than what it gives at once
        if len(more) != limit:
            return items
        count = rest_of_reply(before, more)
        self.cut = more[:count]
        return more[count:]

    async def _read(self, limit: int | None) -> list[Item]:
        if self._plain is not None:
            return await self._plain.read(limit)
        items: list[Item] = await (self.session.get_items() if limit is None else self.session.get_items(limit=limit))
        return items

    async def append(self, items: Sequence[Item], *, writer: str, start: int) -> None:
        """Store this run's items from number `start` on, once."""
        await self._history.append(items, writer=writer, start=start, lease=self.lease)

    async def store(self, new: NewItems, *, release: bool = False) -> None:
        """Store the items of a step, without the run: in one step if the session can, else one for each writer."""
        if not self.can_record:
            for writer, start, items in (*new.nested, (new.writer, new.start, new.items)):
                if items:
                    await self.append(items, writer=writer, start=start)
        elif not new.is_empty:
            await self.record(new, run=None, release=release)

    async def record(self, new: NewItems, *, run: RunSave | None, release: bool = False) -> Recorded:
        """Store items, the run, and the release of the lease, in one step. A run with a signal keeps the lease (F7)."""
        gives_back = release and self.lease is self._held is not None
        done: Recorded = await self.session.record(run=run, lease=self.lease, release=gives_back, **new.as_arguments())
        if gives_back and getattr(done, "signals", None) is None:
            self._held = None
        self.inbox = getattr(done, "inbox", ())
        return done

    def record_now(self, new: NewItems, *, run: RunSave | None) -> None:
        """Submit items, run and release by this very call, to be carried out without a waiter.

        A nested run releases nothing: the lease is its parent's.
        """
        lease, own = self.lease, self._held
        self._held = None
        # Closed and not awaited: no task is left that could wait.
        self.session.record(run=run, lease=lease, release=own is not None, detached=True, **new.as_arguments()).close()

    def could_not_store(self, run_id: str, count: int) -> None:
        """Remember the number of unstored items, for the next run of the process on the session."""
        if self._plain is not None:
            self._plain.could_not_store(run_id, count)
        logger.warning("%d items of run %s could not be stored in session %r", count, run_id, self.session_id)

    def not_stored(self) -> list[tuple[str, int]]:
        """Return earlier runs of this process with unstored items: run id and number of items; reported once."""
        return self._plain.not_stored() if self._plain is not None else []

    async def accepted(self, writer: str) -> int:
        """Return the number of this run's items in the session, as far as known."""
        return int(await self._history.accepted(writer))

    async def stored_count(self, writer: str, known: int) -> int:
        """Return the number of this run's items, at least `known`; raise OwnerError for another store's session."""
        held = await self.accepted(writer)
        # A plain session can forget (its owner may have edited it); one that counts writers cannot.
        if self._plain is None and held < known:
            raise OwnerError(
                f"session {self.session_id!r} holds {held} items of run {writer!r}, which stored {known}: it has the"
                " same name and is another, or it was removed",
                "Resume the run with the session it was started with; if that is gone, start a new run.",
            )
        return held

    async def usage(self) -> list[RunUsage]:
        """Return the costs of the conversation's runs, if the session keeps them."""
        if not self.keeps_costs:
            return []
        kept: list[RunUsage] = await self.session.usage()
        return kept

    async def written(self, writer: str) -> list[Item]:
        """Return the items written earlier by this run, if the session knows them."""
        items: list[Item] = await self._history.written(writer)
        return items
