"""Storage of a voice call: its record in a run store, and the session of its settled items (E14).

The record is saved before any of its items is appended, or in the same step if one store has both, so a session only
receives items that a saved call knows. Both are fenced: the record by its revision, and both by a lease on the session
with a ttl of seconds.
"""

from __future__ import annotations

from collections.abc import Callable

from standfast._src.agents.run_config import Unfinished
from standfast._src.base.errors import NotFoundError, RunStateError
from standfast._src.base.json_values import Item, encode_value
from standfast._src.realtime.machine.codec import VoiceCallRecord, decode_saved
from standfast._src.realtime.machine.voice_call import VoiceCall
from standfast._src.runs.engine.run import evolve
from standfast._src.runs.engine.run_store import RunStore
from standfast._src.runs.loop.run_scope import Seen
from standfast._src.runs.persistence.run_saver import RunSaver
from standfast._src.runs.persistence.session_lock import NewItems, SessionLock
from standfast._src.runs.persistence.unfinished_runs import policy_for, settle_unfinished
from standfast._src.sessions.item_sizes import check_item_sizes
from standfast._src.sessions.protocol import Session


class CallStore:
    """Storage of a voice call with a session."""

    def __init__(self, session: Session, *, lease_ttl_s: float, lease_wait_s: float) -> None:
        self.session = session
        self.hold = SessionLock(session, lease_ttl_s=lease_ttl_s, lease_wait_s=lease_wait_s)
        self.store: RunStore | None = self.hold.run_store()
        self._saver: RunSaver[VoiceCall] | None = None

    async def begin(
        self, run_id: str, given: Unfinished | None, *, resumes: bool, wake_reconciler: Callable[[], None]
    ) -> tuple[list[Item], Seen]:
        """Take the session, see to the unfinished runs of the conversation (C15), and read what was said before.

        `given` is the policy of the settings. A call that is there already is resumed, whichever way it was entered.
        `wake_reconciler` is called after each step and raises if the call was closed meanwhile.
        """
        self.hold.holder = f"voice call {run_id}"
        await self.hold.hold()
        wake_reconciler()
        seen = Seen()
        if self.store is not None:
            is_there = any(one.run_id == run_id for one in getattr(self.hold.lease, "open_runs", None) or ())
            policy = policy_for(given, is_resumed=resumes or is_there)
            seen = await settle_unfinished(self.hold, run_id, self.store, policy)
            wake_reconciler()
        history = await self.hold.read()
        wake_reconciler()
        return history, seen

    def start(self, talk: VoiceCall) -> None:
        """Begin the record of a new call, with nothing saved yet."""
        if self.store is not None:
            self._saver = RunSaver(self.store, VoiceCallRecord, hold=self.hold, needed=True)

    async def load(self, run_id: str) -> tuple[VoiceCall, int] | None:
        """Load a saved call and the number of its items in the session; None for an unknown id."""
        if self.store is None:
            raise RunStateError(
                f"{type(self.session).__name__} keeps no runs, so it has no call to go on with",
                "Use a session whose store keeps runs (SQLiteSession, InMemorySession).",
            )
        saved = await self.store.load_run(run_id)
        if saved is None:
            return None
        talk = decode_saved(saved)
        if talk.session_id is not None and talk.session_id != self.hold.session_id:
            raise NotFoundError(
                f"call {run_id!r} belongs to session {talk.session_id!r}", "Resume it with the session it was made on."
            )
        self._saver = RunSaver(
            self.store, VoiceCallRecord, hold=self.hold, revision=saved.revision, needed=True, saved=talk
        )
        return talk, await self.hold.stored_count(run_id, talk.stored)

    async def save(self, talk: VoiceCall) -> None:
        """Save the call; return once this or a later state is saved. Raises RunClaimedError if another process owns the
        call.
        """
        if self._saver is not None:
            await self._saver.save(talk)

    @property
    def saves_with_items(self) -> bool:
        """True if items and the record are written in one step: then storing items also saves the record."""
        return self._saver is not None and self._saver.beside is not None

    async def append(self, talk: VoiceCall, upto: int) -> None:
        """Append the settled items up to `upto`, each once, together with the record if one store has both."""
        items = [entry.item for entry in talk.ledger[talk.stored : upto]]
        if self._saver is None or self._saver.beside is None:
            await self.hold.append(items, writer=talk.run_id, start=talk.stored)
        else:
            await self._saver.save_with(evolve(talk, stored=upto), NewItems(talk.run_id, talk.stored, items))

    def check_size(self, item: Item) -> None:
        """Raise ItemNotStorableError for an item above the bound of the session (A6)."""
        check_item_sizes([encode_value(item)], self.hold.item_bytes_max)

    async def release(self) -> None:
        """Give the session back."""
        await self.hold.release()
