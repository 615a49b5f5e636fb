"""Saving a run: the small head, fenced by its revision, and the tails of its logs.

Saves happen one after the other; a save that waits while a newer one is asked for saves the newest, so ten calls that
return at once cost one write. Whoever saved this run last is the one who may go on with it: a second one is told
(C12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from standfast.engine.codec import LOGS, encode_head, encode_tails
from standfast.engine.run import Run
from standfast.engine.run_store import LogTail, RunStore
from standfast.ground.errors import RunClaimedError


class RunSaver:
    """Writes one run to a run store."""

    def __init__(self, store: RunStore, *, revision: int = 0, needed: bool = False, saved: Run | None = None) -> None:
        self.store = store
        self.revision = revision
        self.needed = needed
        self._lengths = {name: len(getattr(saved, name)) for name in LOGS} if saved is not None else {}
        self._lock = asyncio.Lock()
        self._newest: Run | None = None
        self._done: Run | None = saved
        self._doubt: tuple[Run, bytes, dict[str, LogTail], bool] | None = None

    def save(self, run: Run) -> Coroutine[Any, Any, None]:
        """Return when this run, or a later one, is saved; raises RunClaimedError if it is another's now."""
        self._newest = run  # now, not when the coroutine gets its turn: an older run must never follow a newer one
        return self._save()

    async def _save(self) -> None:
        async with self._lock:
            if self._doubt is not None:
                await self._write(*self._doubt)
            run = self._newest
            if run is None or run is self._done:
                return
            ended = run.settled and run.spec.owner.kind == "session"
            # What it came to is in its session: only that it ended, and how, must be known on. Without a session the
            # whole is kept, for a process that died before it could hand over the result.
            tails = {name: LogTail(0, ()) for name in self._lengths} if ended else encode_tails(run, self._lengths)
            await self._write(run, encode_head(run, short=ended), tails, ended)

    async def _write(self, run: Run, head: bytes, tails: dict[str, LogTail], ended: bool) -> None:
        """Save once. Whatever fails may have been done all the same, so before the next save it is repeated as it was:
        then the store either knows it already or takes it now, and which revision is ours is known again."""
        self._doubt = (run, head, tails, ended)
        try:
            self.revision = await self.store.save_run(
                run.spec.run_id,
                expect=self.revision,
                head=head,
                tails=tails,
                status=run.status,
                agent=run.progress.agent,
                session_id=run.spec.owner.id if run.spec.owner.kind == "session" else None,
            )
        except RunClaimedError:
            self._doubt = None  # it is another's now, for certain
            raise
        self._doubt = None
        self._lengths = {} if ended else {name: len(getattr(run, name)) for name in LOGS}
        self._done = run
