"""Saved runs in memory, for tests and for programs that pause and resume a run without restarting."""

from __future__ import annotations

from functools import partial

from standfast._src.sessions.backends.memory.memory_storage import MemoryStore
from standfast._src.sessions.client.inline_executor import InlineExecutor
from standfast._src.sessions.client.stored_runs import StoredRunStore
from standfast._src.sessions.storage import run_program

THIS_PROCESS = "this process"
# Whoever holds something here is in this process, and alive.


class InMemoryRunStore(StoredRunStore):
    """Keeps runs for as long as the process lives, in a store of its own or in one that also keeps sessions."""

    def __init__(self, *, store: MemoryStore | None = None) -> None:
        kept = MemoryStore() if store is None else store
        carrier = InlineExecutor(partial(run_program, kept), kept.lock)
        # The key says that two of these are one store: a resumed run is then saved under its session's lease.
        super().__init__(lambda: carrier, key=kept, process=THIS_PROCESS)
        self.store = kept
