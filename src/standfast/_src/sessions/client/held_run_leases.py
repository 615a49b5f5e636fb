"""A lease on a saved run that no session's lease covers: shows other workers whether its worker has crashed (C12, C16).

The rules are those of session leases, on the run's own name. Waiters do not queue: a worker that finds the run leased
gets RunClaimedError, or asks again until the holder has released the lease or crashed.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from uuid import uuid4

from standfast._src.base.errors import OutcomeUnknownError, RunClaimedError
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.held_leases import POLL_FIRST_S, POLL_MAX_S, RENEWER, StoredLease, clock_s
from standfast._src.sessions.rules import history, leases
from standfast._src.sessions.rules.leases import Asker, Busy, Fence, IsGone, Taken, UnchangedLease
from standfast._src.sessions.storage import Name, Plan


async def lease_run(
    carrier: Callable[[], Executor],
    run_id: str,
    *,
    ttl_s: float,
    wait_s: float,
    timeout_s: float,
    process: str,
    is_gone: IsGone,
    takeover: bool = False,
    until_alive: bool = False,
) -> StoredLease:
    """Acquire a run's lease; raises RunClaimedError if another worker holds it for longer than `wait_s`.

    `process` is the name by which other processes can check whether this one is alive. `takeover` takes the lease from
    its holder. `until_alive` waits only while the holder's life is uncertain: a holder that has renewed meanwhile is
    alive, and so is one whose process can be seen.
    """
    name, nonce, deadline, pause = Name("run", run_id), uuid4().hex, time.monotonic() + wait_s, POLL_FIRST_S
    holder = f"{socket.gethostname()} process {os.getpid()}".encode(errors="replace").decode()
    asker = Asker(ttl_s, nonce, holder, process, ())
    seen: tuple[int, int, float] | None = None

    def give_back(got: Taken | Busy) -> Plan[None]:
        if isinstance(got, Taken):
            yield from leases.release(name, Fence(got.number, nonce))

    before = "its worker" if takeover else ""
    if takeover:
        await carrier().carry(partial(leases.revoke, name, uuid4().hex), timeout_s, durable=False)
    while True:
        asked_at = clock_s()
        watch = None if seen is None else UnchangedLease(seen[0], seen[1], asked_at - seen[2])
        plan = partial(leases.acquire, name, asker, watch, is_gone)
        try:
            got = await carrier().carry(plan, timeout_s, undo=give_back, durable=False)
        except OutcomeUnknownError:  # it may have been acquired, and would be neither renewed nor released
            carrier().post(partial(leases.withdraw, name, "", nonce), timeout_s)
            raise
        if isinstance(got, Taken):
            lease = StoredLease(
                name, carrier(), Fence(got.number, nonce), ttl_s, timeout_s, asked_at=asked_at,
                taken_from=before or got.taken_from,
            )  # fmt: skip
            RENEWER.add(lease)
            return lease
        is_alive = got.held.process != "" or (seen is not None and seen[:2] != (got.held.number, got.held.renewals))
        if seen is None or seen[:2] != (got.held.number, got.held.renewals):
            seen = (got.held.number, got.held.renewals, clock_s())
        left = deadline - time.monotonic()
        if left <= 0 or (until_alive and is_alive):
            since = history.as_time(got.held.taken or got.held.since).isoformat(timespec="seconds")
            raise RunClaimedError(
                f"run {run_id!r} is at work elsewhere: {got.held.holder or 'another worker'} has it since {since}",
                "Wait for it and ask for its result under its run_id; if its worker is gone for certain, resume it with"
                " Runner.resume(..., takeover=True).",
            )
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, POLL_MAX_S)
