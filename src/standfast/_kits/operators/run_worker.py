"""The worker of a saved run, by the leases of the run and of its session: live, hung, silent or dead.

A worker renews its lease while its event loop runs. A lease that ended without a release is proof that its
holder renews no more: it has died, or it hangs. On the machine of the holder the process table says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from standfast._src.sessions.backends.sqlite import process_liveness
from standfast._src.sessions.rules.history import LATEST_S, LEASE, OPEN_RUN, as_time, look
from standfast._src.sessions.rules.leases import LeaseState, lease_state_in, open_runs_in
from standfast._src.sessions.storage import Name, Plan, ReadRequest

WorkerState = Literal["live", "hung", "silent", "dead"]

STATES_IN_WORDS: Mapping[WorkerState, str] = {
    "live": "is at it",
    "hung": "HANGS: its process exists and does not renew its lease",
    "silent": "is SILENT: it has died or hangs, and its process cannot be seen from this machine",
    "dead": "is DEAD: its process has ended",
}
"""What terminal and inspector say behind the name of a worker."""


@dataclass(frozen=True, slots=True)
class RunWorker:
    """Holder of the lease of a run's driver.

    `state`: `live` holds its lease, `hung` has let it end and its process exists, `silent` has let it end and its
    process cannot be looked up from here, `dead` has a process that exists no more.
    """

    state: WorkerState
    holder: str
    """Host, process id and run, as the worker named itself; may be empty."""
    since: datetime
    """When it took the lease."""
    renewed: datetime
    """When it renewed the lease for the last time."""
    until: datetime
    """When the lease ends, or ended, unless it is renewed."""


def worker_of(run_id: str, session_id: str | None, clock: Callable[[], float] | None = None) -> Plan[RunWorker | None]:
    """Return the present or last worker of a run; None without a lease as evidence.

    A live holder of the session counts whatever it does there. One whose lease has ended counts only if the run was
    saved under that lease. `clock` gives the time instead of the store.
    """
    found: RunWorker | None = None
    names = [Name("run", run_id)] + ([] if session_id is None else [Name("session", session_id)])
    for name in names:
        sight = yield from look(ReadRequest(name, cells=(LEASE, OPEN_RUN + run_id), mark=False))
        held = lease_state_in(sight)
        if not held.ttl_s:
            continue
        worker = _judge(held, sight.now if clock is None else clock())
        if worker.state == "live":
            return worker
        is_its_own = name.kind == "run" or any(one.lease_number == held.number for one in open_runs_in(sight))
        if is_its_own and found is None:
            found = worker
    return found


def _judge(held: LeaseState, now: float) -> RunWorker:
    exists = process_liveness.exists(held.process)
    state: WorkerState = "silent" if exists is None else "hung"
    if exists is False:
        state = "dead"
    elif not held.is_over(now):
        state = "live"
    since, until = as_time(held.taken or held.since), as_time(min(held.since + held.ttl_s, LATEST_S))
    return RunWorker(state, held.holder, since, as_time(held.since), until)
