"""Advice about a saved run: who continues it, and with which command. The terminal and the inspector give the same.

Calls that wait for a decision have commands of their own, which name the call.
"""

from __future__ import annotations

from dataclasses import dataclass

from standfast._kits.operators.run_view import RunView
from standfast._kits.operators.suggested_commands import resume_command, store_command


@dataclass(frozen=True, slots=True)
class NextStep:
    """Command for an operator to paste, with its reason, and another command to give the run up."""

    text: str
    command: str
    give_up: str | None = None


def next_step_of(run: RunView, store: str) -> NextStep | None:
    """Return the advice about a run, by its status and the state of its worker; None if there is nothing to do."""
    if run.kind != "run":
        return None
    resume, cancel = resume_command(store, run.run_id), store_command("runs cancel", store, run.run_id)
    if run.status == "ready":
        return NextStep("a worker that calls Runner.recover continues it; by hand", resume)
    if run.hold is not None and not run.waiting:
        return NextStep("to let it continue", store_command("runs approve", store, run.run_id), cancel)
    if run.status != "running":
        return None
    if run.worker is None:
        takeover = store_command("runs resume", store, run.run_id, options="--agent MODULE:NAME --takeover")
        return NextStep("no lease tells whether a worker is at it; if none is", takeover)
    match run.worker.state:
        case "live":
            unlock = store_command("runs unlock", store, run.run_id)
            return NextStep("it is under way; if its worker makes no progress", unlock)
        case "hung":
            return NextStep("stop that process first, for its tools may still act; then go on", resume, cancel)
        case "silent":
            return NextStep("make sure on its machine that the process has ended; then go on", resume, cancel)
        case "dead":
            return NextStep("to go on", resume, cancel)
