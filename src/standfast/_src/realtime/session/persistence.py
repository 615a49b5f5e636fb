"""Persistence of a voice call: begin or take over, save during the call, and keep the rest at its end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from standfast._src.base.errors import (
    LeaseLostError,
    NotFoundError,
    RunClaimedError,
    SessionClosedError,
    SessionConflictError,
)
from standfast._src.realtime.machine.events import Appended, Claimed, Do, HungUp
from standfast._src.realtime.session.call_scope import CallScope
from standfast._src.realtime.session.call_store import CallStore
from standfast._src.realtime.session.connections import ConnectionManager
from standfast._src.realtime.session.reconciler import RETRY_S_FIRST, RETRY_S_MAX

REFUSED = (RunClaimedError, LeaseLostError, SessionConflictError, SessionClosedError)
"""Errors of a call owned by another process, or of a session that was closed or holds other content under its name."""


class CallPersistence:
    """Storage operations of a voice call."""

    def __init__(self, scope: CallScope, connecting: ConnectionManager, *, resumes: bool) -> None:
        self._scope, self._connecting, self._resumes = scope, connecting, resumes
        self.took_over = False
        """True if the call existed before this session."""

    async def begin(self, memory: CallStore, *, connect: bool) -> None:
        """Acquire and read the session; take over the call of this id if saved, else begin it."""
        scope, hands = self._scope, self._scope.hands
        run_id = hands.talk.run_id
        history, scope.seen = await memory.begin(
            run_id, scope.config.get("unfinished"), resumes=self._resumes, wake_reconciler=scope.wake_reconciler
        )
        # What waits in other runs is shown to the model behind the history, and is never this call's to store (C15).
        self._connecting.history = [*history, *scope.seen.open_turns]
        found = await memory.load(run_id) if memory.store is not None else None
        scope.wake_reconciler()
        if found is not None:
            talk, stored = found
            self.took_over = True
            hands.exchange.talk = talk
            for decision in talk.decisions:
                scope.book().record(decision)
            scope.book().drain()
            hands.has_memory = True
            hands.tell(Claimed(stored, reopens=connect))
            if not connect:
                hands.tell(HungUp())
        elif self._resumes:
            raise NotFoundError(f"there is no call {run_id!r} on this session", "Give the run_id that the call had.")
        else:
            memory.start(hands.talk)
            hands.has_memory = True
            hands.version += 1
        self._connecting.history_upto = hands.talk.stored
        hands.saves_with_items = memory.saves_with_items
        hands.was_away = lambda: memory.hold.was_away
        memory.hold.tell_when_lost(hands.wake_reconciler)  # its lease counts as doubtful from then on
        await memory.save(hands.talk)  # from here on this process owns the call: its previous owner is refused
        scope.wake_reconciler()
        hands.note_saved(hands.version)

    async def make_sure(self) -> None:
        """Confirm with the store that this process owns the call (C13); if not, end the call here and raise.

        Needed before a tool call begins, before a process that was suspended sends anything, and after the loss of a
        lease.
        """
        hands, memory = self._scope.hands, self._scope.memory
        if memory is None or not hands.has_memory:
            return
        try:
            await self._until_done(memory.hold.make_sure)
        except REFUSED as error:
            self._scope.is_refused(error)
            raise

    # --- performers --------------------------------------------------------------------------------------------------

    async def ours(self, _: Do) -> None:
        """Performer of the effect that confirms the owner of the call."""
        await self.make_sure()

    async def save(self, _: Do) -> None:
        """Save the present state of the call."""
        hands, memory = self._scope.hands, self._scope.memory
        assert memory is not None
        version = hands.version
        hands.exchange.fold()
        await self._until_done(lambda: memory.save(hands.talk))
        hands.note_saved(version)

    async def append(self, _: Do) -> None:
        """Store settled items; a session only receives items that the saved call knows."""
        hands, memory = self._scope.hands, self._scope.memory
        assert memory is not None

        async def store() -> None:
            if not memory.saves_with_items:
                await hands.wait_until_saved()
            # All that is settled by now, not only what was when this became due: one write less.
            version, upto = hands.version, len(hands.talk.ledger)
            hands.exchange.fold()
            try:
                await memory.append(hands.talk, upto)
            except SessionConflictError:
                await memory.save(
                    hands.talk
                )  # another process owns the call and stores in its name: saving raises that error
                raise
            if memory.saves_with_items:
                hands.note_saved(version)
            hands.tell(Appended(upto))

        await self._until_done(store)

    async def _until_done(self, work: Callable[[], Awaitable[None]]) -> None:
        """Retry while the store is unreachable; the call continues meanwhile. A final refusal is raised."""
        delay = RETRY_S_FIRST
        while True:
            try:
                return await work()
            except REFUSED:
                raise
            except Exception as error:
                if self._scope.hands.stopped:  # the caller of `send_audio` would try for ever
                    raise
                self._scope.error(error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_S_MAX)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def end(self, failure: BaseException | None, *, hang_up: bool) -> BaseException | None:
        """Store heard items and waiting calls, and release the session; return the error of it, if any."""
        scope, hands, memory = self._scope, self._scope.hands, self._scope.memory
        if memory is None:
            return None
        problem: BaseException | None = None
        is_ours = hands.has_memory and not isinstance(failure, REFUSED)
        hands.has_memory = False
        try:
            if is_ours:
                scope.hands.exchange.listen(hands.now())
                scope.hands.exchange.lose(hands.now())
                if hang_up:
                    scope.hands.exchange.tell(HungUp(), hands.now())
                await self._store_all(memory)
        except Exception as error:
            problem = error
        finally:
            await memory.release()
        return problem

    async def _store_all(self, memory: CallStore) -> None:
        hands = self._scope.hands
        upto = len(hands.talk.ledger)
        if hands.talk.stored < upto:
            if not memory.saves_with_items:
                await memory.save(hands.talk)
            await memory.append(hands.talk, upto)
            hands.exchange.tell(Appended(upto), hands.now())
        await memory.save(hands.talk)
