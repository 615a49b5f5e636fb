"""Examination of a store for every kind of fault, without changes.

Sessions are read in pages of the listing, each session at one instant, in time proportional to its records. What is
judged is judged by the rules that requests go by (`_src.items.repair`), and by those of leases and runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec

from standfast._kits.operators.doctor import database_file
from standfast._kits.operators.doctor.cell_faults import without_faults
from standfast._kits.operators.doctor.diagnosis import Diagnosis, diagnose, number_went_back
from standfast._kits.operators.doctor.findings import Finding, build_finding
from standfast._kits.operators.run_view import RunView
from standfast._kits.operators.run_worker import RunWorker, worker_of
from standfast._kits.operators.store import PAGE, Store
from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import CorruptRecordError, NotFoundError, RunStateError, SchemaTooNewError, StoreError
from standfast._src.runs.engine.run_store import RunSummary
from standfast._src.sessions.backends.sqlite import process_liveness, schema
from standfast._src.sessions.rules.history import OPEN_RUN, listing, look, value_of
from standfast._src.sessions.rules.leases import open_runs_in
from standfast._src.sessions.rules.record_repair import whole
from standfast._src.sessions.rules.saved_runs import HEAD, UNREADABLE
from standfast._src.sessions.storage import Name, Plan, ReadAnswer, ReadRequest, Row, Rows

QUIET_FOR_S = 15 * 60.0
# Programs without leases write a call before its output: what looks broken may be a turn under way.

WAITING_FOR_S = 24 * 3600.0
# A person may sleep over a decision.

ITEMS_AT_ONCE = 20_000
# Rows that are read in one step: findings come early, no transaction is long, and no read takes the whole timeout.

READS_MAX = 3
# A long session that changes while its pages are read is read again, so often. A repair needs one that stood still.

FILE_TIMEOUT_S = 600.0

Clock = Callable[[], float]
"""Gives the time, in seconds since 1970."""


class Part(NamedTuple):
    """Some sessions of a store: the findings, the amounts read, and the cursor of the next part."""

    found: list[tuple[str, Diagnosis, ReadAnswer]]
    sessions: int
    items: int
    is_foreign: bool
    """Whether another program has written to one of them."""
    after: str | None
    lease_numbers: dict[str, int]
    """How often the lease of each session was taken."""
    long: tuple[str, ...] = ()
    """Sessions of more rows than are read in one step; they are not among the others."""


class Examination:
    """Examination of a store: iterate over the findings once (`async for`). Nothing is changed.

    `sessions`, `items` and `runs` say how much was looked at so far.
    """

    def __init__(
        self,
        store: Store,
        sessions: Sequence[str] | None,
        clock: Clock | None,
        quiet_for_s: float,
        waiting_for_s: float,
        progress: Callable[[int], None] | None,
        known_numbers: Callable[[str], int] | None,
    ) -> None:
        self._progress, self._known_numbers = progress, known_numbers
        self.lease_numbers: dict[str, int] = {}
        """How often the lease of each session was taken, as far as sessions were looked at."""
        self._store, self._wanted = store, sessions
        self._clock = clock
        self._quiet_for_s = check_seconds("quiet_for_s", quiet_for_s)
        self._waiting_for_s = check_seconds("waiting_for_s", waiting_for_s)
        self.sessions = self.items = self.runs = 0
        self._is_foreign = False

    async def __aiter__(self) -> AsyncIterator[Finding]:
        try:
            layout = await self._store.layout()
        except SchemaTooNewError as error:
            yield build_finding("newer_layout", "store", error.what)
            return
        except CorruptRecordError as error:
            yield build_finding("damaged_layout", "store", error.what)
            return
        except StoreError as error:
            kind = database_file.damage_of(error)
            if kind is None:
                raise
            yield build_finding(kind, "store", str(error.__cause__))
            return
        if self._store.file is not None and layout.version is not None and layout.version < schema.VERSION:
            self._is_foreign = not layout.version
            yield build_finding("older_layout" if layout.version else "foreign_layout", "store", layout.name)
        try:
            async for one in self._examine_all():
                yield one
        except StoreError as error:
            kind = database_file.damage_of(error)
            if kind is None:
                raise
            yield build_finding(kind, "store", str(error.__cause__))
        if self._store.file is not None:
            for one in await asyncio.to_thread(self._of_file):
                yield one

    async def _examine_all(self) -> AsyncIterator[Finding]:
        async for part in read(self._store, self._wanted, self._clock):
            self.sessions += part.sessions
            self.items += part.items
            self._is_foreign = self._is_foreign or part.is_foreign
            if self._progress is not None:
                self._progress(part.items)
            self.lease_numbers |= part.lease_numbers
            if self._known_numbers is not None:
                for session_id, number in part.lease_numbers.items():
                    for one in number_went_back(Name("session", session_id), number, self._known_numbers(session_id)):
                        yield one
            for session_id, diagnosis, sight in part.found:
                for one in diagnosis.findings:
                    yield one
                for one in await self._store.looked(partial(_lost_runs, session_id, sight)):
                    yield one
        async for one in self._of_runs():
            yield one

    def _of_file(self) -> list[Finding]:
        file = self._store.file
        assert file is not None
        found = list(database_file.examine_surroundings(file.path))
        if self._wanted is None:  # a caller with a single session does not wait for the whole file
            found += database_file.examine_contents(file, FILE_TIMEOUT_S)
        return [*found, *database_file.reset_fault(self._is_foreign)]

    # --- runs --------------------------------------------------------------------------------------------------------

    async def _of_runs(self) -> AsyncIterator[Finding]:
        there: dict[str, bool] = {}
        for status in ("running", "paused", "ready", "done"):
            after: str | None = None
            while True:
                page = await self._store.runs(status=status, after=after, limit=PAGE)
                for run in page.runs:
                    if self._wanted is not None and run.session_id not in self._wanted:
                        continue
                    self.runs += 1
                    async for one in self._of_run(run, there):
                        yield one
                after = page.after
                if after is None:
                    break
        after = None
        while self._wanted is None:  # without its labels nothing says whose run it is
            page = await self._store.runs(after=after, limit=PAGE)
            for run in page.runs:
                if run.status == UNREADABLE or not run.revision:
                    yield _build_run_finding(run, "damaged_labels", "")
            after = page.after
            if after is None:
                break

    async def _of_run(self, run: RunSummary, there: dict[str, bool]) -> AsyncIterator[Finding]:
        if run.status == "done":
            name = run.session_id
            if name is not None and name not in there:
                there[name] = await self._store.looked(partial(_is_there, name))
            if name is not None and not there[name]:
                yield _build_run_finding(run, "run_without_session", f"session {name!r}")
            return
        try:
            view = await self._store.run(run.run_id)
        except NotFoundError:
            return  # deleted since it was listed
        except (RunStateError, CorruptRecordError) as error:
            yield _build_run_finding(run, "unreadable_run", error.what)
            return
        age = self._now() - run.updated_at.timestamp()
        if run.status == "paused" and age > self._waiting_for_s:
            for call in view.waiting:
                yield _build_run_finding(run, "waiting_approval", f"{call.tool} {call.call_id}, for {_ago(age)}")
        if run.status == "ready" and age > self._quiet_for_s:
            yield _build_run_finding(run, "untaken_run", f"for {_ago(age)}")
        worker = await self._worker_of(run) if run.status == "running" else None
        is_gone = run.status == "running" and (age > self._quiet_for_s if worker is None else worker.state != "live")
        if is_gone:
            who = "" if worker is None else f"{worker.holder or 'its worker'} is {worker.state}; "
            yield _build_run_finding(run, "worker_gone", f"{who}last saved {_ago(age)} ago; it {view.doing}")
        for named in _open_calls(view, is_gone):
            yield _build_run_finding(run, "open_call", named)

    def _now(self) -> float:
        return time.time() if self._clock is None else self._clock()

    async def _worker_of(self, run: RunSummary) -> RunWorker | None:
        return await self._store.looked(partial(worker_of, run.run_id, run.session_id, self._clock))


def examine_store(
    store: Store,
    *,
    sessions: Sequence[str] | None = None,
    clock: Clock | None = None,
    quiet_for_s: float = QUIET_FOR_S,
    waiting_for_s: float = WAITING_FOR_S,
    progress: Callable[[int], None] | None = None,
    known_numbers: Callable[[str], int] | None = None,
) -> Examination:
    """Examine a store; iterate over the findings with `async for`. Nothing is changed.

    `sessions`: only these, their runs, and the store itself. `waiting_for_s`: how long a call may wait for a person
    before that is reported; `quiet_for_s`: how long a run may be without a sign of its worker, where no lease proves
    that the worker has crashed. `clock` gives the time in seconds since 1970; `progress` is called with the number of
    records read since its last call. `known_numbers` returns the highest lease number that a session is known to have
    had: a lower one shows that the store was restored from a backup. Reads everything once, in time proportional to it.
    """
    return Examination(store, sessions, clock, quiet_for_s, waiting_for_s, progress, known_numbers)


def _build_run_finding(run: RunSummary, kind: str, detail: str) -> Finding:
    return build_finding(kind, f"run {run.run_id!r}", detail, session_id=run.session_id, run_id=run.run_id)


def _open_calls(view: RunView, is_gone: bool) -> list[str]:
    states = ("started", "unknown") if is_gone else ("unknown",)
    return [f"{call.tool} {call.call_id}" for call in view.calls if call.state in states]


def _ago(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"


# --- reading ---------------------------------------------------------------------------------------------------------


async def read(store: Store, wanted: Sequence[str] | None, clock: Clock | None) -> AsyncIterator[Part]:
    """Yield the sessions in parts, with the findings of each; sessions without a finding are only counted."""
    for session_id in wanted or ():
        name = Name("session", session_id)
        seen = await store.looked(partial(_one, name, clock))
        found = await _read_pages(store, name, clock) if seen == "long" else seen
        if found is None:
            raise NotFoundError(f"there is no session {session_id!r}", "List them with Store.sessions().")
        yield _part_of(session_id, *found)
    after: str | None = None
    while wanted is None:
        part = await store.looked(partial(_some, after, clock))
        yield part
        for session_id in part.long:
            found = await _read_pages(store, Name("session", session_id), clock)
            if found is not None:
                yield _part_of(session_id, *found)
        after = part.after
        if after is None:
            return


def _part_of(session_id: str, diagnosis: Diagnosis, sight: ReadAnswer) -> Part:
    numbers = {session_id: diagnosis.lease_number}
    return Part([(session_id, diagnosis, sight)], 1, len(sight.rows[0]), diagnosis.has_foreign_rows, None, numbers)


async def _read_pages(store: Store, name: Name, clock: Clock | None) -> tuple[Diagnosis, ReadAnswer] | None:
    """Read a long session in several steps, and again if rows that were read have moved or left meanwhile."""
    for _ in range(READS_MAX):
        first = await store.looked(partial(whole, name, Rows(limit=1, times=True)))
        end, after = max((row.ref for row in first.rows[0]), default=0), 0
        rows, times = list[Row](), list[float | None]()
        while after < end:
            page = await store.looked(partial(_page, name, Rows(after=after, limit=ITEMS_AT_ONCE, times=True)))
            kept = sum(row.ref <= end for row in page.rows[0])
            rows += page.rows[0][:kept]
            times += page.times[0][:kept]
            after = rows[-1].ref if kept else end
        again = await store.looked(partial(_resolve, name, first.mark))
        if again.upto is not None:
            break
    return _judge(name, msgspec.structs.replace(first, rows=(rows,), times=(times,)), clock)


def _page(name: Name, rows: Rows) -> Plan[ReadAnswer]:
    return (yield from look(ReadRequest(name, rows=(rows,), mark=False)))


def _resolve(name: Name, mark: str) -> Plan[ReadAnswer]:
    return (yield from look(ReadRequest(name, upto=mark, mark=False)))


def _one(name: Name, clock: Clock | None) -> Plan[tuple[Diagnosis, ReadAnswer] | Literal["long"] | None]:
    sight = yield from whole(name, Rows(after=0, limit=ITEMS_AT_ONCE + 1, times=True))
    return "long" if len(sight.rows[0]) > ITEMS_AT_ONCE else _judge(name, sight, clock)


def _judge(name: Name, sight: ReadAnswer, clock: Clock | None) -> tuple[Diagnosis, ReadAnswer] | None:
    sight, faults = without_faults(sight)
    if sight.created is None and not sight.rows[0]:
        return None
    diagnosis = diagnose(name, sight, sight.now if clock is None else clock(), process_liveness.is_gone)
    where = f"session {name.id!r}"
    damaged = [
        build_finding("damaged_cell", where, f"{cell}: {why}", session_id=name.id)
        for cell, why in sorted(faults.items())
    ]
    return diagnosis._replace(findings=[*damaged, *diagnosis.findings]), sight


def _some(after: str | None, clock: Clock | None) -> Plan[Part]:
    found: list[tuple[str, Diagnosis, ReadAnswer]] = []
    long: tuple[str, ...] = ()
    sessions = items = 0
    is_foreign = False
    numbers: dict[str, int] = {}
    for one in (yield from listing("session", after, PAGE, {})):
        after = one.cursor
        seen = yield from _one(Name("session", one.id), clock)
        if seen == "long":
            long = (one.id,)
            break
        sessions += 1
        if seen is not None:
            diagnosis, sight = seen
            items += len(sight.rows[0])
            numbers[one.id] = diagnosis.lease_number
            is_foreign = is_foreign or diagnosis.has_foreign_rows
            if diagnosis.findings or open_runs_in(sight):
                found.append((one.id, diagnosis, sight))
        if items > ITEMS_AT_ONCE:
            break
    else:
        if sessions < PAGE:
            after = None
    return Part(found, sessions, items, is_foreign, after, numbers, long)


def _lost_runs(session_id: str, sight: ReadAnswer) -> Plan[list[Finding]]:
    """Find open runs named by the session but missing in the store. A run that has ended since is skipped."""
    found: list[Finding] = []
    for run in open_runs_in(sight):
        seen = yield from look(ReadRequest(Name("run", run.run_id), cells=(HEAD,), mark=False))
        if value_of(seen, HEAD) is not None:
            continue
        again = yield from look(ReadRequest(Name("session", session_id), cells=(OPEN_RUN + run.run_id,), mark=False))
        if again.cells:
            where = f"session {session_id!r}"
            found.append(
                build_finding("lost_run", where, f"run {run.run_id!r}", session_id=session_id, run_id=run.run_id)
            )
    return found


def _is_there(session_id: str) -> Plan[bool]:
    sight = yield from look(ReadRequest(Name("session", session_id), mark=False, times=True))
    return sight.created is not None
