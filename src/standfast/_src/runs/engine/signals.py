"""Signals: events for a run from outside of the worker, kept in one cell until a save applies them (F7).

A signal is a decision of a person or a wish to cancel the run. The next save meets the signals. Signals are numbered,
and the run counts applied signals, so no signal counts twice. A signal never takes a run from a worker.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from standfast._src.runs.engine.run import Call, Decision, Run

SIGNALS_MAX = 64
# Pending signals of one run. A run has fewer open questions; a sender without a bound would slow each of its saves.


class Signal(msgspec.Struct, frozen=True, omit_defaults=True):
    """A decision about a call (`path` leads through nested runs to the call), or a wish to cancel the run."""

    number: int
    id: str
    path: tuple[str, ...] = ()
    decision: Decision | None = None
    by: str = ""
    cancel: str | None = None
    """Output of unfinished calls of the cancelled run; None for a decision."""


decode_signals = msgspec.json.Decoder(tuple[Signal, ...]).decode


def encode_signals(signals: Sequence[Signal]) -> bytes | None:
    """Encode the cell of a run's signals; None without any."""
    return msgspec.json.encode(list(signals)) if signals else None


def pending_signals(cell: bytes | None, taken: int) -> tuple[Signal, ...]:
    """Return the signals behind the first `taken` ones, which a run has applied."""
    return () if cell is None else tuple(one for one in decode_signals(cell) if one.number >= taken)


def find_call(run: Run, path: Sequence[str], call_id: str) -> Call | None:
    """Return the call of a nested run at the end of a path of enclosing calls."""
    for step in path:
        call = run.call(step)
        if call is None or call.child is None:
            return None
        run = call.child
    return run.call(call_id)


def is_answerable(run: Run, signal: Signal) -> bool:
    """Return True if the question of a decision is still open in the run."""
    assert signal.decision is not None
    call = find_call(run, signal.path, signal.decision.call_id or "")
    return call is not None and call.state == "waiting" and call.decision is None
