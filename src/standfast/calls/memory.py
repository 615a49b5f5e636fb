"""A call's memory: its record in a run store, and the session that its settled items go to (E14).

The record is saved before anything of it is appended, so a session only ever receives what a saved call knows. Both
are fenced: the record by its revision, the session by a lease with a ttl of seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from standfast.driver.run_saver import RunSaver
from standfast.driver.session_hold import SessionHold
from standfast.engine.run_store import LogTail, RunStore
from standfast.ground.errors import NotFoundError, RunStateError
from standfast.ground.jsonvalue import Item
from standfast.sessions.protocol import Session
from standfast.talk.codec import decode_saved, encode_head, encode_tails
from standfast.talk.talk import Talk


class TalkRecord:
    """A call as a run store keeps it. The ledger stays also when the call has ended: it holds what was generated."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self.run_id, self.status, self.agent = talk.run_id, talk.status, talk.agent
        self.session_id = talk.session_id

    def head(self) -> bytes:
        """Everything but the ledger."""
        return encode_head(self._talk)

    def tails(self, saved: Mapping[str, int]) -> Mapping[str, LogTail]:
        """What the ledger has beyond what is saved."""
        return encode_tails(self._talk, saved.get("ledger", 0))

    def lengths(self) -> Mapping[str, int]:
        """How long the ledger is."""
        return {"ledger": len(self._talk.ledger)}


class Memory:
    """What a call with a session has beyond one without."""

    def __init__(self, session: Session, *, lease_ttl_s: float, lease_wait_s: float) -> None:
        self.session = session
        self.hold = SessionHold(session, lease_ttl_s=lease_ttl_s, lease_wait_s=lease_wait_s)
        self.store: RunStore | None = self.hold.run_store()
        self._saver: RunSaver[Talk] | None = None

    async def begin(self) -> list[Item]:
        """Take the session, and read what was said before."""
        await self.hold.hold()
        return await self.hold.read()

    def start(self, talk: Talk) -> None:
        """A new call: nothing of it is saved yet."""
        if self.store is not None:
            self._saver = RunSaver(self.store, TalkRecord, needed=True)

    async def load(self, run_id: str) -> tuple[Talk, int] | None:
        """A saved call and how many of its items the session has; None if there is none of this id."""
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
        self._saver = RunSaver(self.store, TalkRecord, revision=saved.revision, needed=True, saved=talk)
        return talk, await self.hold.stored_count(run_id, talk.stored)

    async def save(self, talk: Talk) -> None:
        """Return when this call, or a later state of it, is saved. Raises RunClaimedError if it is another's now."""
        if self._saver is not None:
            await self._saver.save(talk)

    async def append(self, talk: Talk, upto: int) -> None:
        """Store the settled items up to there, each once."""
        items: list[Any] = [entry.item for entry in talk.ledger[talk.stored : upto]]
        await self.hold.append(items, writer=talk.run_id, start=talk.stored)

    async def release(self) -> None:
        """Give the session back."""
        await self.hold.release()
