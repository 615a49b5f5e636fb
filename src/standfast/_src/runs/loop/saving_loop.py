"""Reconciler for a saved run with a session: decides the content, the time and the step of each write.

Facts needed after a crash are saved before anything else happens. If one store has both the session and the run, a turn
and the run's knowledge of it are one step. A turn absent from every saved run is stored before the next request leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from standfast._src.base.errors import LeaseLostError, RunClaimedError
from standfast._src.base.logs import logger
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.events import (
    Append,
    Appended,
    ApprovalNeeded,
    Begun,
    ChildMoved,
    Effect,
    Event,
    MessageHeard,
    Replied,
    Returned,
    Signalled,
)
from standfast._src.runs.engine.run import Run
from standfast._src.runs.engine.signals import pending_signals
from standfast._src.runs.loop.reconciler import Reconciler
from standfast._src.runs.persistence.pending_items import with_items
from standfast._src.runs.persistence.run_saver import RunSaver
from standfast._src.runs.persistence.session_lock import NewItems, SessionLock
from standfast._src.sessions.protocol import Lease
from standfast._src.sessions.rules.saved_runs import HeardMessage, NestedItems

# What must be known after a crash, so that nothing with side effects is repeated: saved before anything else happens.
# A reply is among them only if a server has taken the request; else asking again is harmless.
ALWAYS_SAVED = (Begun, Returned, ApprovalNeeded, ChildMoved, MessageHeard)


class Reserving(Protocol):
    """Meter of a run, for the loop (F10)."""

    def reserve_ahead(self) -> None:
        """Reserve the next request in the step about to store a turn."""
        ...

    def release_ahead(self) -> None:
        """Release the reservation of an unsent request."""
        ...


class SavingLoop(Reconciler[Run, Event, Effect]):
    """Loop that records events of a run, saves the run, and stores its items."""

    def __init__(
        self,
        run: Run,
        perform: Callable[[Any, Effect], Awaitable[None]],
        *,
        moved: Callable[[Run], Awaitable[None]] | None = None,
        session: SessionLock | None = None,
        keeps_lease: bool = False,
    ) -> None:
        super().__init__(run, advance=advance, due=due, perform=perform)
        self.saver: RunSaver[Run] | None = None
        self._moved = moved
        """Told of each step of a nested run; None for one that is not nested."""
        self._session = session
        self.keeps_lease = keeps_lease
        """Whether the session is still needed after the last append: to compact it."""
        self.run_lease: Lease | None = None
        """The lease on the run itself, where no session's covers it."""
        self.meter: Reserving | None = None
        """Meter of a run with budgets (F10)."""
        self.nested: list[NestedItems] = []
        """What nested runs that ended with this one's turn leave to be stored, in the step that stores the turn."""
        self.mail: Mapping[str, HeardMessage] = {}
        """Ends of heard messages, by message id: each is part of the storing step (F2)."""
        self._is_over = self._stores_first = False

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self.state

    # Overridden, not given to the reconciler as `due`: a loop that holds a method of its own is a cycle, and each run
    # would wait, with all it holds, for the garbage collector.
    def _due_now(self) -> tuple[Effect, ...]:
        effects = due(self.state)
        if len(effects) > 1 and (self.saver is None or self._stores_first):
            # The append is all that keeps what the calls came to: no saved run has it (C3), or the append saves that
            # run too. The next request is to be paid, and leaves when the append has returned.
            first = tuple(effect for effect in effects if isinstance(effect, Append) or effect.key in self._tasks)
            return first if any(isinstance(effect, Append) for effect in first) else effects
        return effects

    # --- what happened -----------------------------------------------------------------------------------------------

    async def record(self, event: Event, *, completes: Effect | None = None) -> None:
        """Apply an event to the run, and save the run if the event must survive a crash."""
        if not isinstance(event, Begun):
            self._refuse_if_over()
            await super().record(event, completes=completes)
            return
        await self.make_sure()
        await super().record(event, completes=completes)
        await self.make_sure()  # saving took its time, and this process may have slept since

    async def make_sure(self) -> None:
        """Raise LeaseLostError if the session may be another's by now: then no request leaves and nothing begins."""
        self._refuse_if_over()
        if self._session is not None:
            await self._session.make_sure()
        lease = self.run_lease
        if lease is not None and not getattr(lease, "is_held", True):
            await lease.renew()

    def _refuse_if_over(self) -> None:
        if self._is_over:
            # Its last state is on its way to the store. Whatever is left of it ends here, and begins nothing more.
            raise asyncio.CancelledError("the run was stopped, and what it had done is stored")

    async def _finish_record(self, event: Event) -> None:
        saves = False
        if self.saver is not None and self._must_save(event):
            self.saver.needed = True
            self._stores_first = self._is_stored_next(event)
            saves = not self._stores_first
        if self._moved is not None:
            await self._moved(self.state)  # first: who goes on with a nested run goes by what its parent knows
        if saves:
            await self.save()
        if self.saver is not None and self.saver.signals is not None:
            await self.take_signals()

    async def take_signals(self) -> None:
        """Apply the signals of the last save (F7); a wish to cancel ends the run."""
        saver, run = self.saver, self.state
        if saver is None or saver.signals is None or run.finished or self._moved is not None:
            return
        for signal in pending_signals(saver.signals, run.spec.signals_taken):
            saver.needed = True
            self.apply(Signalled(signal))
        if self.state.spec.cancel_wish is not None:
            await self._end_as_wished()

    async def _end_as_wished(self) -> None:
        """End the run: an operator has cancelled the run."""

    def _must_save(self, event: Event) -> bool:
        return isinstance(event, ALWAYS_SAVED) or (isinstance(event, Replied) and self.state.spec.owner.is_server)

    def _is_stored_next(self, event: Event) -> bool:
        """Return True if the next step stores items in the session together with the run: a turn, or a pause with its
        input.

        If application code comes before a turn's step, the caller of that code saves the run first. A pause saved
        before its input would, after a crash, leave input in no history (C15).
        """
        # What happens in a nested run is saved here before that run saves it itself: it does not wait for an append.
        if (
            self.saver is None
            or self.saver.beside is None
            or not isinstance(event, Returned | ApprovalNeeded | MessageHeard)
        ):
            return False
        run = self.state
        if run.paused:
            return run.marks.stored < run.storable
        return not isinstance(event, ApprovalNeeded) and (run.turn is None or run.turn.complete)

    async def save(self) -> None:
        """Save the present run, if there is a store and a fact that must survive."""
        if self.saver is not None and self.saver.needed:
            await self.saver.save(self.state)

    async def save_tally(self, *, is_needed: bool = False) -> None:
        """Save the count of a request in a saved run, and report the count to the enclosing run (F9)."""
        if self._moved is not None:
            await self._moved(self.state)
        if is_needed and self.saver is not None:
            self.saver.needed = True
        await self.save()

    # --- what the session gets ---------------------------------------------------------------------------------------

    async def append(self, effect: Append) -> None:
        """Store the items due for the session, once, and the run's knowledge of them."""
        if self.meter is not None:
            self.meter.reserve_ahead()
        after, new = self._with_items()
        if self.saver is not None and after.paused:
            self.saver.needed = True
        await self._store(after, new, release=not self.keeps_lease and not due(after))
        await self.record(Appended(after.marks.stored, after.marks.billed), completes=effect)

    def _with_items(self) -> tuple[Run, NewItems]:
        assert self._session is not None  # only a session-owned run has something to store
        after, new = with_items(self.state, keeps_costs=self._session.keeps_costs, nested=self.nested)
        return after, self._with_heard(after, new) if self.mail else new

    def _with_heard(self, after: Run, new: NewItems) -> NewItems:
        """Add the ends of the messages stored in this step (F2)."""
        entries = self.state.ledger[self.state.marks.stored : after.marks.stored]
        ids = [str(one.extra["message_id"]) for one in entries if one.extra and "message_id" in one.extra]
        heard = [self.mail[one] for one in dict.fromkeys(ids) if one in self.mail]
        return replace(new, heard=heard) if heard else new

    async def _store(self, after: Run, new: NewItems, *, release: bool) -> None:
        """Store items and, if it must survive, the run's knowledge of the items."""
        assert self._session is not None
        if self.saver is not None and self.saver.needed:
            await self.saver.store_items(self._session, new, self.state, after, release=release)
        else:
            await self._session.store(new, release=release)
        self.nested = []

    @property
    def _is_only_its_parents(self) -> bool:
        """True if the run ended inside a call with all items on the server: only the parent run needs the end."""
        run = self.state
        is_on_server = run.spec.owner.kind == "conversation"
        return self._moved is not None and is_on_server and run.is_closed and not run.is_left_owing

    async def _save_at_rest(self) -> None:
        if self.saver is None or not (self.saver.needed or self.state.paused) or self.saver.has(self.state):
            return  # one that was only looked at is not written either, however the looking ends
        self.saver.needed = True
        try:
            await (self.saver.forget(self.state) if self._is_only_its_parents else self.save())
        except (RunClaimedError, LeaseLostError):
            raise
        except Exception as error:
            if not self.state.is_closed:
                raise
            # Nothing is left to do or to resume: raised, this would only take the paid result from the caller.
            logger.warning(
                "run %s ended, and its run store did not take that: %s: %s",
                self.state.spec.run_id,
                type(error).__name__,
                error,
            )
