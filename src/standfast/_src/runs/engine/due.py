"""Effects that should be under way now: derived from the run, never stored, so a restart cannot lose them.

The rules, in the order they are read: nothing before the verdict that must come first; no call while an earlier turn is
unstored; no handoff while another call is open; no request after a stop. A request may overlap an append, if the saved
run contains the turn (`_src/runs/loop/saving_loop.py`).
"""

from __future__ import annotations

from standfast._src.runs.engine.events import Append, CallModel, Conclude, Effect, Judge, RunCall, Settle
from standfast._src.runs.engine.run import Call, Run, Turn


def due(run: Run) -> tuple[Effect, ...]:
    """Return the effects that should be in flight; none means that the run rests: ended, paused or stopped."""
    progress, turn = run.progress, run.turn
    storable = run.storable
    # An append is due beside whatever else is: a request may overlap it, a call may not.
    append: tuple[Effect, ...] = (Append(run.marks.stored, storable),) if run.marks.stored < storable else ()
    # Ended is not over: what the run came to must still reach its session.
    if run.finished:
        return append
    if run.spec.context is not None and run.is_held:  # asked after every event: most runs have no context
        return append
    number = turn.number if turn is not None else progress.turns + 1
    # A stop ends the run between turns. What has begun stays due, so that its outcome becomes known.
    if progress.stop is not None and number > progress.stop.upto:
        return append
    if progress.verdict == "blocking":
        return (Judge("input", number, blocking=True),)
    if turn is None:
        return append + _between_turns(run, number)
    # The reply came before the verdict. No call of it may begin: what a tripwire cuts must have had no effect (C6).
    if progress.verdict == "parallel":
        return (*append, Judge("input", number))
    # Begun while an earlier turn is unstored, a call could outlive it in a crash: an output without its call (C8).
    if append:
        return append
    return _within(turn)


def _between_turns(run: Run, number: int) -> tuple[Effect, ...]:
    progress = run.progress
    # First of all: sent again, a request that was taken would double a turn (D5).
    if progress.doubt:
        return (Settle(number),)
    if progress.staged:
        return (Judge("staged", number),)
    if run.spec.max_turns is not None and number > run.spec.max_turns:
        return (Conclude(number, exhausted=True),)
    if progress.verdict == "parallel":
        return (Judge("input", number), CallModel(number))
    return (CallModel(number),)


def _within(turn: Turn) -> tuple[Effect, ...]:
    left = [call for call in turn.calls if call.state != "returned"]
    if left:
        return tuple(
            Settle(turn.number, call.id) if call.state == "doubt" else RunCall(turn.number, call.id)
            for call in _in_order(left)
        )
    return (Conclude(turn.number),) if turn.conclusion is None else (Judge("output", turn.number),)


def _in_order(left: list[Call]) -> list[Call]:
    """Select the calls without an output that should be under way now."""
    # A handoff comes last: the agent that takes over must see what the other calls of the turn came to.
    only_handoffs = all(call.kind == "handoff" for call in left)
    ready = [
        call
        for call in left
        if call.state == "doubt" or (call.state != "waiting" and (only_handoffs or call.kind != "handoff"))
    ]
    # In the SDK's order: the output for a removed tool comes before the other calls of a resumed turn,
    # the output for a tool that never existed comes after the remaining calls of a new one.
    gone = [call for call in ready if call.kind == "gone"]
    return gone or [call for call in ready if call.kind != "unknown"] or ready
