"""Saving a run: the small head, fenced by its revision, and the tails of its logs.

Saves happen one after the other; a save that waits while a newer one is asked for saves the newest, so ten calls that
return at once cost one write. Whoever saved this run last is the one who may go on with it: a second one is told
(C12).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from holdfast.engine.codec import LOGS, encode_head, encode_tails
from holdfast.engine.state import Run
from holdfast.engine.store import LogTail, RunStore


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

    def save(self, run: Run) -> Coroutine[Any, Any, None]:
        """Return when this run, or a later one, is saved; raises RunClaimedError if it is another's now."""
        self._newest = run  # now, not when the coroutine gets its turn: an older run must never follow a newer one
        return self._save()

    async def _save(self) -> None:
        async with self._lock:
            run = self._newest
            if run is None or run is self._done:
                return
            ended = run.settled
            # What it came to is in its session, or was handed over; only that it ended, and how, must be known on.
            tails = {name: LogTail(0, ()) for name in self._lengths} if ended else encode_tails(run, self._lengths)
            self.revision = await self.store.save_run(
                run.spec.run_id,
                expect=self.revision,
                head=encode_head(run, short=ended),
                tails=tails,
                status=run.status,
                agent=run.progress.agent,
                session_id=run.spec.owner.id if run.spec.owner.kind == "session" else None,
            )
            self._lengths = {} if ended else {name: len(getattr(run, name)) for name in LOGS}
            self._done = run
