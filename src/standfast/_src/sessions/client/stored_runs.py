"""Saved runs over any store of the storage port."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Hashable, Mapping
from functools import partial
from typing import Any
from weakref import WeakSet

from standfast._src.base.errors import AbilityMissingError, SettingTypeError
from standfast._src.base.type_names import describe_type
from standfast._src.runs.engine.run_store import LogTail, RunSummary, SavedRun, check_run_id
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.held_leases import StoredLease
from standfast._src.sessions.client.held_run_leases import lease_run
from standfast._src.sessions.protocol import Lease, page_size
from standfast._src.sessions.rules import budgets, run_signals, saved_runs
from standfast._src.sessions.rules.budgets import BudgetState
from standfast._src.sessions.rules.leases import Fence, IsGone
from standfast._src.sessions.rules.run_signals import Change
from standfast._src.sessions.rules.saved_runs import Recorded, Recording, RunSave
from standfast._src.sessions.storage import Name

_LABELLED: WeakSet[Executor] = WeakSet()
# Stores in which every run that runs or waits has a label with its conversation.


class StoredRunStore:
    """Keeps runs in a store that may also keep sessions. Every method is one step, durable on return."""

    def __init__(
        self,
        carrier: Callable[[], Executor],
        timeout_s: float = 30.0,
        *,
        key: Hashable = None,
        process: str = "",
        is_gone: IsGone = lambda process: False,
        no_budgets: str = "",
    ) -> None:
        """Use this executor. `key` identifies the store in this process, if sessions are kept there too.

        `process` is the name by which other processes can check whether this one is alive, as `is_gone` does for
        theirs.
        """
        self._carrier, self._timeout_s, self._key = carrier, timeout_s, key
        self._process, self._is_gone = process, is_gone
        self.no_budgets = no_budgets
        """Reason for the absence of budgets; empty for a store with budgets (F10)."""

    def __eq__(self, other: object) -> bool:
        """Return whether both keep runs in one store."""
        if self._key is None:
            return self is other
        return isinstance(other, StoredRunStore) and self._key == other._key

    def __hash__(self) -> int:
        return id(self) if self._key is None else hash(self._key)

    async def load_run(self, run_id: str) -> SavedRun | None:
        """Return the run as last saved; None if the id is unknown."""
        plan = partial(saved_runs.load_run, check_run_id(run_id))
        return await self._carrier().carry(plan, self._timeout_s, kind="read")

    async def load_run_since(self, known: SavedRun) -> SavedRun | None:
        """Return the run as `load_run` does, reading only the records that an earlier state does not have."""
        return await self._carrier().carry(partial(saved_runs.load_run_since, known), self._timeout_s, kind="read")

    async def save_run(
        self,
        run_id: str,
        *,
        expect: int,
        head: bytes,
        tails: Mapping[str, LogTail],
        status: str,
        agent: str,
        session_id: str | None = None,
        lease: Lease | None = None,
    ) -> int:
        """Write the head and the tails in one step if the saved revision is `expect`; return the new revision.

        Raises LeaseLostError, and writes nothing, if `lease` is not the session's newest.
        """
        save = run_save(run_id, expect, head, tails, status, agent, session_id)
        session = None if session_id is None else Name("session", session_id)
        plan = partial(saved_runs.record, Recording(session, (), save, fence_of(lease)))
        return (await self._carrier().carry(plan, self._timeout_s)).revision

    async def record_run(self, save: RunSave) -> Recorded:
        """Save a run as `save_run` does; the answer has the run's pending signals too (F7)."""
        session = None if save.session_id is None else Name("session", save.session_id)
        return await self._carrier().carry(
            partial(saved_runs.record, Recording(session, (), save, None)), self._timeout_s
        )

    async def change_run(self, run_id: str, decide: Callable[[SavedRun], Change]) -> None:
        """Change a saved run as `decide` says, at once or by a signal to its worker (F7)."""
        await self._carrier().carry(partial(run_signals.change_run, check_run_id(run_id), decide), self._timeout_s)

    def save_detached(self, save: RunSave) -> Coroutine[Any, Any, Recorded]:
        """Submit a save of a run by this call itself: it is executed even without a waiting caller."""
        session = None if save.session_id is None else Name("session", save.session_id)
        plan = partial(saved_runs.record, Recording(session, (), save, None))
        return self._carrier().carry(plan, self._timeout_s, detached=True)

    async def list_runs(
        self, *, status: str | None = None, session_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> tuple[list[RunSummary], str | None]:
        """Return runs, newest change first, and the cursor of the next page (None: no more)."""
        plan = partial(saved_runs.list_runs, status, session_id, after, page_size(limit))
        return await self._carrier().carry(plan, self._timeout_s, kind="read")

    async def open_on_conversation(self, conversation_id: str) -> list[RunSummary]:
        """Return the runs that may be unfinished on a server's conversation, oldest change first (C15).

        Runs are found by their label. Runs saved by an earlier release have no label: as long as there are any, they
        are read too.
        """
        carrier = self._carrier()
        by_label = partial(saved_runs.open_on_conversation, conversation_id)
        found = await carrier.carry(by_label, self._timeout_s, kind="read")
        if carrier not in _LABELLED:
            early = await carrier.carry(saved_runs.open_without_conversation, self._timeout_s, kind="read")
            if early:
                found += early
            else:
                _LABELLED.add(carrier)  # and every later save writes the label
        return sorted(found, key=lambda one: one.updated_at)

    async def lease_run(
        self, run_id: str, *, ttl_s: float, wait_s: float, takeover: bool = False, until_alive: bool = False
    ) -> StoredLease:
        """Acquire the lease of a run that no session's lease covers (C12); see `held_run_leases.lease_run`."""
        return await lease_run(
            self._carrier,
            check_run_id(run_id),
            ttl_s=ttl_s,
            wait_s=wait_s,
            timeout_s=self._timeout_s,
            process=self._process,
            is_gone=self._is_gone,
            takeover=takeover,
            until_alive=until_alive,
        )

    async def budgets(self) -> list[BudgetState]:
        """Return every budget of the store in its present period (F10)."""
        return await self._carrier().carry(budgets.list_budgets, self._timeout_s, kind="read")

    async def budget(self, budget_id: str) -> BudgetState:
        """Return the state of a budget in its present period (F10)."""
        plan = partial(budgets.read_budget, budgets.check_budget_id(budget_id))
        return await self._carrier().carry(plan, self._timeout_s, kind="read")

    async def set_budget(self, budget_id: str, limit: int | None) -> BudgetState:
        """Set the limit of a budget in its unit (usd: billionths of a dollar); None removes the limit (F10)."""
        if self.no_budgets:
            raise AbilityMissingError(f"this store keeps no budgets: {self.no_budgets}", "Use a store of one server.")
        plan = partial(budgets.set_limit, budgets.check_budget_id(budget_id), limit)
        return await self._carrier().carry(plan, self._timeout_s)

    async def delete_run(self, run_id: str) -> bool:
        """Remove a run; return whether it existed."""
        carrier = self._carrier()
        plan = partial(saved_runs.delete_run, check_run_id(run_id), loses_answers=carrier.lane is not None)
        return await carrier.carry(plan, self._timeout_s)

    async def prune_runs(self, *, older_than_s: float | None = None, keep: int | None = None) -> int:
        """Remove ended runs (done, failed, cancelled) older than `older_than_s`, and all but the newest `keep` of
        them.
        """
        return await self._carrier().carry(partial(saved_runs.prune_runs, older_than_s, keep), self._timeout_s)


def run_save(
    run_id: str,
    expect: int,
    head: bytes,
    tails: Mapping[str, LogTail],
    status: str,
    agent: str,
    session_id: str | None,
) -> RunSave:
    """Build a save with copies of the records: the caller may change its own afterwards."""
    frozen = {log: LogTail(tail.start, [bytes(record) for record in tail.records]) for log, tail in tails.items()}
    return RunSave(run_id, expect, bytes(head), frozen, status, agent, session_id)


def fence_of(lease: Lease | None) -> Fence | None:
    """Return the fence of a write under a lease. Only leases of standfast carry a nonce."""
    if lease is None:
        return None
    fence = getattr(lease, "fence", None)
    if isinstance(fence, Fence):
        return fence
    number = getattr(lease, "number", None)
    if not isinstance(number, int):
        raise SettingTypeError(f"{describe_type(lease)} is no lease", "Give what lease() gave, or None.")
    return Fence(number)
