"""Telling operators of calls whose outcome stays unknown: which run, which call, and never what it said."""

from __future__ import annotations

from standfast.engine.run import Run
from standfast.ground.operators import tell


def tell_unknown(run: Run, call_id: str, done: str) -> None:
    """Tell that nobody knows whether this call has done its work, and what is done about it."""
    tell("outcome_unknown", what=f"call {call_id}", run=run.spec.run_id, done=done)


def tell_begun(run: Run, done: str) -> None:
    """Tell the same of every call of the open turn that has begun and not returned; of a nested run's, its own."""
    for call in run.calls:
        if call.child is not None:
            tell_begun(call.child, done)
        elif call.has_begun and call.state != "returned":
            tell_unknown(run, call.id, done)
