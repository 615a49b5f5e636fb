"""Decisions of a person about waiting tool calls, of the voice agent itself and of agents used as tools."""

from __future__ import annotations

from standfast._src.agents.approvals import digest_shown_arguments, tool_scope
from standfast._src.base.errors import ApprovalError
from standfast._src.realtime.machine.events import Decided
from standfast._src.realtime.machine.tool_calls import asked_inside
from standfast._src.realtime.session.call_scope import CallScope
from standfast._src.runs.engine.run import Call, Decision, Run


def decide(scope: CallScope, call_id: str, *, approved: bool, always: bool, message: str | None) -> None:
    """Record a decision about a tool call; raise ApprovalError if no call of this id is waiting.

    With `always`, every waiting call of the same agent's tool is decided, and every later one will be (C16).
    """
    hands = scope.hands
    inside = _asked_inside(scope, call_id)
    if inside is not None:
        call, path, agent = inside
        made = _decision_about(call, agent, approved=approved, sticky=always, message=message)
        hands.tell(Decided(made, path))
        return
    one = hands.talk.call(call_id)
    if one is None or one.call.state != "waiting" or one.call.child is not None:
        raise ApprovalError(
            f"no call {call_id!r} waits for a decision", "Take the call_id of a tool_approval_required event."
        )
    book = scope.book()
    made = _decision_about(one.call, one.agent, approved=approved, sticky=always, message=message)
    book.record(made)
    book.drain()
    for other in hands.talk.waiting:
        of = hands.talk.call(other.id)
        is_alike = of is not None and (of.agent, other.name) == (one.agent, one.call.name)
        if other.id == call_id or (always and is_alike):
            sticky = always and other.id == call_id
            hands.tell(Decided(_decision_about(other, one.agent, approved=approved, sticky=sticky, message=message)))


def _decision_about(call: Call, agent: str, *, approved: bool, sticky: bool, message: str | None) -> Decision:
    """Build a decision, bound to the call as it was shown and to what was behind the tool's name (C16)."""
    scope, digest = tool_scope(call.name), digest_shown_arguments(call)
    return Decision(approved, call.id, scope, sticky, message, digest, agent, behind=call.behind)


def _asked_inside(scope: CallScope, call_id: str) -> tuple[Call, tuple[str, ...], str] | None:
    """Find a waiting call inside an agent used as a tool: the call, its path, and the agent in the nested run."""
    for outer in scope.hands.talk.waiting:
        for inner, path in asked_inside(outer.child, (outer.id,)) if outer.child is not None else ():
            if inner == call_id:
                run: Run | None = outer.child
                for step in path[1:]:
                    found = run.call(step) if run is not None else None
                    run = found.child if found is not None else None
                call = run.call(inner) if run is not None else None
                if run is None or run.turn is None or call is None:
                    return None
                return call, path, run.turn.agent
    return None
