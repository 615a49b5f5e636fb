"""Change a saved run from outside of its worker: at once if no worker has it, else by a signal (F7).

One plan reads the run with pending signals and asks `decide` for a change. A parked run is saved under the loaded
revision. A running run gets a signal: the signal's step is conditional on the run's head, and every save of the run is
conditional on the signals. So the next save meets the signal, also a save that parks the run.
"""

from __future__ import annotations

from collections.abc import Callable

from standfast._src.base.errors import NotFoundError, RunClaimedError, RunStateError
from standfast._src.runs.engine.codec import count_taken_signals, decode_saved
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.runs.engine.signals import SIGNALS_MAX, Signal, encode_signals, pending_signals
from standfast._src.sessions.rules.history import OPEN_RUN, commit, look, value_of
from standfast._src.sessions.rules.leases import ask_holder, open_run_value
from standfast._src.sessions.rules.saved_runs import HEAD, LOG, SIGNALS, Recording, RunSave, record, saved_in
from standfast._src.sessions.storage import Done, KeyUpdate, Name, Plan, ReadAnswer, ReadRequest

Change = RunSave | Signal | None
"""Change of a run: a new state, a signal for the worker (numbered here), or none."""


def change_run(run_id: str, decide: Callable[[SavedRun], Change]) -> Plan[None]:
    """Change a saved run as `decide` says; repeat after a concurrent save.

    `decide` recognizes a repeat of the same change, because the answer of the step may have been lost.
    """
    refused: RunClaimedError | None = None
    refused_at = 0
    while True:
        # With its times: no executor guesses what the run looks like.
        name = Name("run", run_id)
        sight = yield from look(ReadRequest(name, cells=(HEAD, SIGNALS), prefixes=(LOG,), mark=False, times=True))
        saved = saved_in(run_id, sight)
        if saved is None:
            raise NotFoundError(f"there is no saved run {run_id!r}", "List them with Store.runs().")
        if refused is not None and saved.revision == refused_at:
            raise refused  # by a guess: raised, the plan is carried out again without guesses
        wanted = decide(saved)
        if wanted is None:
            return
        if isinstance(wanted, Signal):
            if (yield from _keep(name, saved, sight, wanted)):
                return
            continue
        session = None if wanted.session_id is None else Name("session", wanted.session_id)
        try:
            yield from record(Recording(session, (), wanted, None))
        except RunClaimedError as error:
            refused, refused_at = error, saved.revision
            continue  # another process has saved the run since the look
        return


def _keep(name: Name, saved: SavedRun, sight: ReadAnswer, signal: Signal) -> Plan[bool]:
    """Keep a signal for the run's worker; return False after a concurrent save."""
    kept, taken = value_of(sight, SIGNALS), count_taken_signals(saved.head)
    if taken is None:
        return True  # it has ended
    pending = pending_signals(kept, taken)
    if len(pending) >= SIGNALS_MAX:
        raise RunStateError(
            f"{len(pending)} signals wait for the worker of run {saved.run_id!r}",
            "See that a worker resumes the run (Runner.recover).",
        )
    number = pending[-1].number + 1 if pending else taken
    cell = encode_signals((*pending, Signal(number, signal.id, signal.path, signal.decision, signal.by, signal.cancel)))
    cells = {HEAD: value_of(sight, HEAD), SIGNALS: kept}
    labels, session_id = dict(sight.labels), sight.labels.get("session")
    session = None if session_id is None else Name("session", session_id)
    if decode_saved(saved).is_parked and labels.get("status") == "paused":
        labels["status"] = "ready"  # a worker is to take it: nothing else would see the signal
        step = [KeyUpdate(name, cells=cells, put={SIGNALS: cell}, touch=True, labels=labels)]
        if session is not None:
            step.append(KeyUpdate(session, put={OPEN_RUN + saved.run_id: open_run_value("ready", None)}))
    else:
        asks = yield from ask_holder(name, signal.id)
        step = [KeyUpdate(name, cells=cells, put={SIGNALS: cell})]
        if asks is not None:  # the run has a lease of its own
            step = [KeyUpdate(name, cells={**cells, **asks.cells}, put={SIGNALS: cell, **asks.put}, hold_s=asks.hold_s)]
        if session is not None and (asks := (yield from ask_holder(session, signal.id))) is not None:
            step.append(asks)
    got = yield from commit(step)
    return isinstance(got, Done)
