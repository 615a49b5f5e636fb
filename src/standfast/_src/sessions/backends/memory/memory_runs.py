"""Saved runs in memory, for tests and for programs that pause and resume a run without restarting."""

from __future__ import annotations

from functools import partial

from standfast._src.sessions.backends.memory.memory_storage import MemoryStore
from standfast._src.sessions.client.inline_executor import InlineExecutor
from standfast._src.sessions.client.stored_runs import StoredRunStore
from standfast._src.sessions.storage import run_program

THIS_PROCESS = "this process"
# The holder of a lease here is a task of this process, and so alive.


class InMemoryRunStore(StoredRunStore):
    """Run store that lives as long as the process, alone or beside the sessions of a memory store."""

    def __init__(self, *, store: MemoryStore | None = None) -> None:
        kept = MemoryStore() if store is None else store
        carrier = InlineExecutor(partial(run_program, kept), kept.lock)
        # The key says that two of these are one store: a resumed run is then saved under its session's lease.
        super().__init__(lambda: carrier, key=kept, process=THIS_PROCESS)
        self.store = kept
