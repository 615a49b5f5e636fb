"""Whole store: its sessions, its runs, and actions on them without any agents (B16).

A `Store` is opened by its URL with `open_store`. It keeps nothing itself: everything is read when it is asked for, in
pages, and what it changes (a decision, a cancelled run, a lease taken away) it changes by the rules that runs go by.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from standfast._kits.operators.budgets import BudgetMethods
from standfast._kits.operators.run_view import CallView, RunView, load, view_of
from standfast._kits.operators.run_worker import RunWorker, worker_of
from standfast._src.base.errors import (
    CorruptRecordError,
    NotFoundError,
    RunStateError,
    SchemaTooNewError,
    SealBrokenError,
    StandfastError,
)
from standfast._src.base.json_values import Item
from standfast._src.items.usage import Usage
from standfast._src.runs.engine.codec import has_ended
from standfast._src.runs.engine.run_store import RunSummary
from standfast._src.sessions.client.inspection_methods import check_page, checked_words
from standfast._src.sessions.client.read_only_executor import open_read_only
from standfast._src.sessions.client.stored_runs import StoredRunStore
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.protocol import abilities
from standfast._src.sessions.records import RunUsage, SearchPage, sum_usages
from standfast._src.sessions.rules import append, history, inspection, saved_runs
from standfast._src.sessions.rules.history import LEASE, as_time, listing, look
from standfast._src.sessions.rules.inspection import ListedSession
from standfast._src.sessions.rules.leases import lease_state_in
from standfast._src.sessions.rules.messages import Receipt, WaitingMessage, WhenBusy
from standfast._src.sessions.storage import Listed, Name, Plan, ReadRequest, Row

if TYPE_CHECKING:
    from standfast._kits.operators.backlog import Backlog
    from standfast._kits.operators.hold_runs import RunsHeld
    from standfast._src.sessions.backends.sqlite.read_only import ReadOnlyFile

T = TypeVar("T")

PAGE = 256
# How much is read at a time where everything is: a store of any size in memory of one size.


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a store's tables or keys: `version`, if numbered, and `name` for people."""

    version: int | None
    name: str


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """Facts about a store as a whole."""

    url: str
    """Without a password."""
    backend: str
    read_only: bool
    layout: Layout
    abilities: frozenset[str]
    """What its sessions can do (part B)."""


@dataclass(frozen=True, slots=True)
class StoreCounts:
    """Counts of a store's contents."""

    sessions: int
    runs: int
    runs_by_status: dict[str, int]
    items: int | None = None
    """Records of all sessions; None where they were not counted."""


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """Call that waits for a person."""

    run_id: str
    call: CallView
    since: datetime | None
    """When its run was last saved."""


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """Session in a listing. Details not asked for are None."""

    session_id: str
    created_at: datetime
    updated_at: datetime
    item_count: int | None = None
    """How many records it has, corrupt ones included."""
    first_words: str | None = None
    open_runs: tuple[str, ...] = ()
    """Ids of its runs that have not ended."""
    waiting: tuple[WaitingCall, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionListing:
    """Page of sessions, newest change first; `after` asks for the next page, None on the last."""

    sessions: list[SessionSummary]
    after: str | None


@dataclass(frozen=True, slots=True)
class RunListing:
    """Page of saved runs, newest change first; `after` asks for the next page, None on the last."""

    runs: list[RunSummary]
    after: str | None


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """Cost of the runs on all sessions of a store."""

    total: Usage
    sessions: int
    """How many sessions have cost anything."""
    runs: int
    by_model: dict[str, Usage] = field(default_factory=dict)
    """By the model that was asked, as its agent named it; "" where that is not known."""


class Store(BudgetMethods):
    """Whole store. Use `async with open_store(url) as store:`, or close the store."""

    def __init__(
        self,
        url: str,
        backend: str,
        session: Callable[[str], StoredSession],
        layout: Callable[[], Awaitable[Layout]],
        *,
        read_only: bool = False,
        close: Callable[[], None] | None = None,
        file: ReadOnlyFile | None = None,
    ) -> None:
        """Construct a store for a registered backend: `session` opens a session, `layout` returns the store's layout.

        `file`: the SQLite file it is in, to be looked at as a file.
        """
        self.url, self.backend, self.read_only, self.file = url, backend, read_only, file
        self._session, self._layout, self._close = session, layout, close
        self._anchor: StoredSession | None = None

    # --- opening and closing -----------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            await self.layout()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Release the store's own resources, at once; sessions obtained from the store stay open."""
        anchor, self._anchor = self._anchor or self._session("-"), None
        await anchor.close()
        anchor._end_lingering()
        if self._close is not None:
            self._close()

    def __repr__(self) -> str:
        return f"Store({self.url!r}{', read_only=True' if self.read_only else ''})"

    # --- what it is --------------------------------------------------------------------------------------------------

    async def layout(self) -> Layout:
        """Return the layout of the tables or keys; raise if the store is unusable."""
        return await self._layout()

    async def facts(self) -> StoreFacts:
        """Return facts about the store as a whole."""
        return StoreFacts(self.url, self.backend, self.read_only, await self.layout(), abilities(self._any))

    async def counts(self, *, items: bool = False) -> StoreCounts:
        """Count sessions and runs, and with `items` records; costs time proportional to the counts."""
        by_status: dict[str, int] = {}
        after: str | None = None
        while True:
            page = await self.runs(after=after, limit=PAGE)
            for run in page.runs:
                by_status[run.status] = by_status.get(run.status, 0) + 1
            after = page.after
            if after is None:
                break
        sessions = await self._any.count_sessions()
        total = await self._summed_items() if items else None
        return StoreCounts(sessions, sum(by_status.values()), by_status, total)

    async def _summed_items(self) -> int:
        total, after = 0, None
        while True:
            some, after = await self._any.looked(partial(_count_items, after))
            total += some
            if after is None:
                return total

    # --- sessions ----------------------------------------------------------------------------------------------------

    def session(self, session_id: str) -> StoredSession:
        """Return a session of the store. In a store opened for reading, every change is refused."""
        return self._session(session_id)

    async def find(self, session_id: str) -> StoredSession:
        """Return an existing session; raise NotFoundError for a missing one."""
        session = self.session(session_id)
        if await session.info() is None:
            await session.close()
            raise NotFoundError(f"there is no session {session_id!r}", "List them with Store.sessions().")
        return session

    async def sessions(
        self,
        *,
        after: str | None = None,
        limit: int = 50,
        prefix: str = "",
        changed_since: datetime | None = None,
        waiting: bool = False,
        details: bool = True,
    ) -> SessionListing:
        """List sessions, newest change first, in pages at a cost proportional to the page.

        `prefix`: those whose ids begin so; found by walking through the listing. `changed_since`: as of which time.
        `waiting`: those in which a call waits for a person, by when their run paused. `details=False` leaves out the
        item count (which a store may have to count), the first words and what waits.
        """
        check_page(limit)
        if waiting:
            return await self._list_waiting(after, limit, prefix, changed_since, details=details)
        plan = partial(inspection.list_seen, after, limit, prefix, changed_since, details=details)
        seen, later = await self._any.looked(plan)
        return SessionListing([await self._summary(one) for one in seen], later)

    async def summary(self, session_id: str) -> SessionSummary:
        """Return a session as in a listing; raise NotFoundError for a missing session."""
        seen = await self._any.looked(partial(_look_at_session, session_id, details=True))
        if seen is None:
            raise NotFoundError(f"there is no session {session_id!r}", "List them with Store.sessions().")
        return await self._summary(seen)

    async def _list_waiting(
        self, after: str | None, limit: int, prefix: str, since: datetime | None, *, details: bool
    ) -> SessionListing:
        found: list[SessionSummary] = []
        while True:
            page = await self.runs(status="paused", after=after, limit=min(PAGE, limit - len(found)))
            for run in page.runs:
                if since is not None and run.updated_at < since:
                    return SessionListing(found, None)
                if run.session_id is None or not run.session_id.startswith(prefix):
                    continue
                newest = (await self.runs(status="paused", session_id=run.session_id, limit=1)).runs
                if newest and newest[0].run_id != run.run_id:
                    continue  # the session is placed by its newest waiting run, on whatever page
                seen = await self._any.looked(partial(_look_at_session, run.session_id, details=details))
                if seen is not None:
                    found.append(await self._summary(seen))
            after = page.after
            if after is None or len(found) >= limit:
                return SessionListing(found, after)

    async def _summary(self, one: ListedSession) -> SessionSummary:
        waiting: list[WaitingCall] = []
        for run_id in one.open_runs:
            waiting += await self._waiting_calls(run_id)
        return SessionSummary(
            one.session_id,
            as_time(one.created),
            as_time(one.updated),
            one.item_count,
            one.first_words,
            one.open_runs,
            tuple(waiting),
        )

    async def _waiting_calls(self, run_id: str) -> list[WaitingCall]:
        try:
            view = await self.run(run_id)
        except (NotFoundError, RunStateError):
            return []  # deleted since, or unreadable: a listing is not the place to fail
        return [WaitingCall(run_id, call, view.updated_at) for call in view.waiting]

    async def search(self, text: str, *, after: str | None = None, limit: int = 50) -> SearchPage:
        """Find the records with these words in all sessions, newest change first (B13).

        It returns after some twenty thousand records: a page may have few hits, or none, and `after` continues.
        """
        return await self._any.looked(partial(inspection.search_all, checked_words(text), after, check_page(limit)))

    async def usage(self) -> StoreUsage:
        """Return the cost of the runs on all sessions; takes time proportional to the number of sessions."""
        parts: list[RunUsage] = []
        sessions, after = 0, None
        while True:
            some, count, after = await self._any.looked(partial(_usage_of_some, after))
            parts += some
            sessions += count
            if after is None:
                break
        requests = [one for part in parts for one in part.requests]
        models = sorted({one.model or "" for one in requests})
        by_model = {name: sum_usages([one.usage for one in requests if (one.model or "") == name]) for name in models}
        return StoreUsage(sum_usages([one.usage for one in requests]), sessions, len(parts), by_model)

    def looked(self, plan: Callable[[], Plan[T]]) -> Awaitable[T]:
        """Return the result of a read-only plan; for questions without a method."""
        return self._any.looked(plan)

    # --- runs --------------------------------------------------------------------------------------------------------

    async def runs(
        self, *, status: str | None = None, session_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> RunListing:
        """Saved runs, newest change first: of a status (running, paused, ready, done, failed, cancelled), a session."""
        found, cursor = await self._runs.list_runs(status=status, session_id=session_id, after=after, limit=limit)
        return RunListing(found, cursor)

    async def run(self, run_id: str) -> RunView:
        """Return a saved run as data; raise NotFoundError for a missing run."""
        saved = await load(self._runs, run_id)
        summary = await self._any.looked(partial(_summary_of, run_id))
        if summary is None or summary.session_id is None or not has_ended(saved):
            view = view_of(saved, summary)
            if view.status != "running":
                return view
            return replace(view, worker=await self.worker(run_id, view.session_id))
        name = Name("session", summary.session_id)
        costs = await self._any.looked(partial(inspection.usage, name))
        items = await self._any.looked(partial(append.written, name, run_id, _ignore))
        return view_of(saved, summary, next((one for one in costs if one.run_id == run_id), None), items)

    async def worker(self, run_id: str, session_id: str | None) -> RunWorker | None:
        """Return the present or last worker of a run of a session; None without a lease as evidence."""
        return await self._any.looked(partial(worker_of, run_id, session_id))

    async def backlog(self) -> Backlog:
        """Count the runs that wait for a worker and the calls that wait for a person, reading every open run.

        Where the program has set up an OpenTelemetry meter, the figures are set as gauges too.
        """
        from standfast._kits.operators.backlog import look_at_backlog

        return await look_at_backlog(self.url, self._runs, self.worker)

    async def send(
        self,
        session_id: str,
        message: str | list[Item],
        *,
        agent: str,
        message_id: str | None = None,
        when_busy: WhenBusy = "steer",
        by: str | None = None,
        max_turns: int | None = 10,
    ) -> Receipt:
        """Send a message to a conversation, without agents: the run under way hears it, or a worker begins a run (F1).

        `agent` names the agent of a run that a worker begins, `by` the sender. See `StoredSession.send`.
        """
        self._check_writable()
        session = self.session(session_id)
        try:
            return await session.send(
                message, agent=agent, message_id=message_id, when_busy=when_busy, by=by, max_turns=max_turns
            )
        finally:
            await session.close()

    async def receipt(self, session_id: str, message_id: str) -> Receipt:
        """Return the receipt of a message; raises NotFoundError for an unknown id (F1)."""
        session = self.session(session_id)
        try:
            found = await session.receipt(message_id)
        finally:
            await session.close()
        if found is None:
            raise NotFoundError(
                f"no message {message_id!r} was sent to session {session_id!r}",
                "List the waiting ones with Store.list_messages().",
            )
        return found

    async def list_messages(self, session_id: str) -> list[WaitingMessage]:
        """List the waiting messages of a conversation; `cancel` takes back one (F1)."""
        session = self.session(session_id)
        try:
            return await session.waiting_messages()
        finally:
            await session.close()

    async def decide(
        self,
        run_id: str,
        call_id: str,
        approve: bool,
        *,
        by: str,
        reason: str | None = None,
        arguments: str | None = None,
        prepared_arguments: str | None = None,
    ) -> RunView:
        """Approve or reject a waiting call without the agents; the run is then `ready` for a worker.

        `by` says who decides; it is saved with the time. `reason` is what the model reads about a rejected call.
        `arguments` and `prepared_arguments`: what was shown to the operator, as `CallView` has it; if the call has
        others, it is refused. With neither, the call is taken as it is. The second of two deciders gets
        AlreadyDecidedError. While a worker is at the run, the decision is kept, and that worker or the next one applies
        it (F7). Raises NotFoundError, ApprovalError for a call that does not wait or is another one, RunClaimedError
        for a call that a worker is still at, RunStateError if the run has ended.
        """
        from standfast._kits.operators import approvals

        self._check_writable()
        await approvals.decide(
            self._runs, run_id, call_id, approve=approve, by=by, reason=reason,
            arguments=arguments, prepared_arguments=prepared_arguments,
        )  # fmt: skip
        return await self.run(run_id)

    async def cancel(self, run_id: str, *, by: str, reason: str | None = None) -> RunView:
        """Cancel a saved run without the agents: reject the waiting calls and store the run's turn whole (C8).

        A run that a worker is at gets the wish, and its worker ends it: at its next step, at the latest when it renews
        its lease (a third of its time). If that worker has crashed, the next one ends the run (F7). Until then
        `RunView.cancelled_by` says who asked. A waiting message is taken back and is in no history, also while another
        run has its session (F1). Raises NotFoundError, and RunStateError if the run has ended.
        """
        from standfast._kits.operators import approvals

        self._check_writable()
        saved = await load(self._runs, run_id)
        view = view_of(saved)
        session = None if view.session_id is None or has_ended(saved) else self.session(view.session_id)
        try:
            await approvals.cancel(self._runs, session, run_id, by=by, reason=reason)
        finally:
            if session is not None:
                await session.close()
        return await self.run(run_id)

    async def hold(self, *, by: str, runs: Sequence[str] | None = None) -> RunsHeld:
        """Make the given runs, or every run that could act, wait for a person: for a store restored from a backup.

        A call that has no output waits for a decision, because it may have run after the backup was made; a run without
        such a call waits until `release`. The leases of their sessions are taken away. Voice calls are left and named.
        Stop the workers first. May be repeated.
        """
        from standfast._kits.operators import hold_runs

        self._check_writable()
        held, left = list[str](), list[tuple[str, str]]()
        for run_id, session_id in await hold_runs.open_runs(self._runs):
            if runs is not None and run_id not in runs:
                continue
            try:
                if session_id is not None and await self._any.looked(partial(_is_leased, session_id)):
                    await self.unlock(session_id)
                if await hold_runs.hold(self._runs, run_id, by=by):
                    held.append(run_id)
            except StandfastError as error:
                left.append((run_id, hold_runs.describe_error(error)))
        return hold_runs.RunsHeld(tuple(held), tuple(left))

    async def release(self, run_id: str, *, by: str) -> RunView:
        """Let a held run continue from the stored state: the run is then `ready` for a worker.

        Calls that wait are decided with `decide`. Raises NotFoundError, RunStateError for one that is not held.
        """
        from standfast._kits.operators import hold_runs

        self._check_writable()
        await hold_runs.release(self._runs, run_id, by=by)
        return await self.run(run_id)

    async def unlock(self, session_id: str) -> int:
        """Revoke a session's lease; return its new number (B7).

        The former holder can store nothing more under it, and gets an error; what it has begun is not undone.
        """
        self._check_writable()
        session = self.session(session_id)
        try:
            return await session.revoke_lease()
        finally:
            await session.close()

    async def delete_run(self, run_id: str) -> bool:
        """Delete the saved record of an ended run; raise RunStateError for an open run. Return whether a record
        existed.
        """
        from standfast._src.runs.persistence.resume_checks import (
            refuse_to_delete,  # a store that is only looked into needs none of it
        )

        self._check_writable()
        try:
            saved = await self._runs.load_run(run_id)
        except (CorruptRecordError, SealBrokenError, SchemaTooNewError):
            saved = None  # it cannot be read: this is how to be rid of it. Not a run that a store was too slow to give.
        if saved is not None:
            refuse_to_delete(saved, "Store.cancel()")
        return await self._runs.delete_run(run_id)

    async def prune_runs(self, *, older_than_s: float | None = None, keep: int | None = None) -> int:
        """Delete ended runs by age and number; return their number. Their costs stay with their conversations."""
        self._check_writable()
        return await self._runs.prune_runs(older_than_s=older_than_s, keep=keep)

    # --- inside ------------------------------------------------------------------------------------------------------

    @property
    def _any(self) -> StoredSession:
        """Session for store-wide questions; nothing is ever written under its id."""
        if self._anchor is None:
            self._anchor = self._session("-")
        return self._anchor

    @property
    def _runs(self) -> StoredRunStore:
        return self._any.run_store()

    def _check_writable(self) -> None:
        if self.read_only:
            raise open_read_only()


def store_of(session: Callable[[str], StoredSession], backend: str, *, read_only: bool = False) -> Store:
    """Return the store of given sessions: for sessions in memory, and for stores without a URL."""

    def open_session(session_id: str) -> StoredSession:
        found = session(session_id)
        found.read_only = found.read_only or read_only
        return found

    async def layout() -> Layout:
        return Layout(None, backend)

    return Store(backend, backend, open_session, layout, read_only=read_only)


# --- plans -----------------------------------------------------------------------------------------------------------


def _look_at_session(session_id: str, *, details: bool) -> Plan[ListedSession | None]:
    info = yield from history.info(Name("session", session_id))
    if info is None:
        return None
    created, updated = info.created_at.timestamp(), info.updated_at.timestamp()
    return (yield from inspection.seen(session_id, created, updated, details=details))


def _summary_of(run_id: str) -> Plan[RunSummary | None]:
    """Return a run as in a listing."""
    sight = yield from look(ReadRequest(Name("run", run_id), mark=False, times=True))
    if sight.created is None or sight.updated is None:
        return None
    return saved_runs.summary(Listed(run_id, sight.created, sight.updated, sight.labels, ""))


def _is_leased(session_id: str) -> Plan[bool]:
    """True if the session's lease was taken and not released."""
    sight = yield from look(ReadRequest(Name("session", session_id), cells=(LEASE,), mark=False))
    return bool(lease_state_in(sight).ttl_s)


def _count_items(after: str | None) -> Plan[tuple[int, str | None]]:
    some = yield from listing("session", after, PAGE, {})
    total = 0
    for one in some:
        sight = yield from look(ReadRequest(Name("session", one.id), mark=False, count=True))
        total += sight.count
    return total, some[-1].cursor if len(some) == PAGE else None


def _usage_of_some(after: str | None) -> Plan[tuple[list[RunUsage], int, str | None]]:
    some = yield from listing("session", after, PAGE, {})
    found: list[RunUsage] = []
    count = 0
    for one in some:
        costs = yield from inspection.usage(Name("session", one.id))
        count += bool(costs)
        found += costs
    return found, count, some[-1].cursor if len(some) == PAGE else None


def _ignore(row: Row, fault: str) -> None:
    """Skip an unreadable record: a reader of the session reports it."""
