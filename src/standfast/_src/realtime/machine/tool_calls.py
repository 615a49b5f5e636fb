"""Transitions of tool calls (asked, begun, waiting, returned), and of the changes of agent they request."""

from __future__ import annotations

from standfast._src.realtime.machine.events import CallMade, Returned, Shown
from standfast._src.realtime.machine.voice_call import Change, OpenCall, Part, PendingResponse, VoiceCall
from standfast._src.runs.engine.advance import advance as advance_run
from standfast._src.runs.engine.events import Decided
from standfast._src.runs.engine.run import Decision, Run, evolve

# --- agents ----------------------------------------------------------------------------------------------------------


def change_asked(talk: VoiceCall, agent: str, call_id: str | None) -> VoiceCall:
    """Queue a change of agent behind earlier ones (E6)."""
    change = Change(talk.counter + 1, agent, call_id)
    if call_id is not None:
        one = talk.call(call_id)
        if one is None:
            return talk
        talk = put_call(talk, evolve(one, asked_for=change.number))
    return evolve(talk, changes=(*talk.changes, change), counter=talk.counter + 1)


def change_made(talk: VoiceCall, number: int, output: str | None, shown: list[Shown]) -> VoiceCall:
    """Complete the first change: its agent is current from now on, and its handoff returns an output."""
    if not talk.changes or talk.changes[0].number != number:
        return talk
    change = talk.changes[0]
    shown.append(Shown("handoff", talk.agent, change.agent))
    talk = evolve(talk, agent=change.agent, changes=talk.changes[1:], counter=talk.counter + 1)
    if change.call_id is None or talk.call(change.call_id) is None:
        return talk
    return returned(talk, Returned(change.call_id, output or ""))


def change_refused(talk: VoiceCall, number: int, why: object, output: str | None, shown: list[Shown]) -> VoiceCall:
    """Refuse the first change: the agent stays, and its handoff returns an output that says so."""
    if not talk.changes or talk.changes[0].number != number:
        return talk
    change = talk.changes[0]
    shown.append(Shown("change_refused", change.agent, why))
    talk = evolve(talk, changes=talk.changes[1:], counter=talk.counter + 1)
    if change.call_id is None or talk.call(change.call_id) is None:
        return talk
    return returned(talk, Returned(change.call_id, output or ""))


# --- calls -----------------------------------------------------------------------------------------------------------


def add_call(talk: VoiceCall, event: CallMade, shown: list[Shown]) -> VoiceCall:
    """Add an unknown tool call, assigned to the current agent (E5)."""
    if talk.knows_call(event.call.id):
        return talk
    shown.append(Shown("call", event.call.id))
    one = OpenCall(event.call, talk.agent, event.item_id, event.response)
    return evolve(talk, calls=(*talk.calls, one))


def on_call(talk: VoiceCall, call_id: str, allowed: tuple[str, ...], **changes: object) -> VoiceCall:
    """Change a tool call if in one of the allowed states."""
    one = talk.call(call_id)
    if one is None or one.call.state not in allowed:
        return talk
    return put_call(talk, evolve(one, call=evolve(one.call, **changes)))


def put_call(talk: VoiceCall, one: OpenCall) -> VoiceCall:
    """Replace the tool call of the same id."""
    return evolve(talk, calls=tuple(one if other.call.id == one.call.id else other for other in talk.calls))


def apply_decision(talk: VoiceCall, decision: Decision) -> VoiceCall:
    """Ask again for a waiting call, with the decision; a sticky decision also covers later calls."""
    if decision.sticky:
        talk = evolve(talk, decisions=(*talk.decisions, decision))
    if decision.call_id is None:
        return talk
    return on_call(talk, decision.call_id, ("waiting",), state="asked", decision=decision)


def decided_inside(talk: VoiceCall, decision: Decision, path: tuple[str, ...]) -> VoiceCall:
    """Pass a decision to a run inside a tool call, and ask for that call again."""
    one = talk.call(path[0])
    if one is None or one.call.child is None or one.call.state != "waiting":
        return talk
    child = advance_run(one.call.child, Decided(decision, path[1:]))
    return put_call(talk, evolve(one, call=evolve(one.call, child=child, state="asked")))


def asked_inside(run: Run, path: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the calls of a paused run and its nested runs that wait for a person, each with its path."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for call in run.waiting if run.paused else ():
        if call.child is not None:
            found += asked_inside(call.child, (*path, call.id))
        else:
            found.append((call.id, path))
    return found


def returned(talk: VoiceCall, event: Returned) -> VoiceCall:
    """Store the output of a tool call, to be sent to the server and answered by a reply."""
    one = talk.call(event.call_id)
    if one is None or one.call.state == "returned":
        return talk
    talk = put_call(talk, evolve(one, call=evolve(one.call, state="returned", child=None)))
    part = Part(f"o{talk.claim}x{talk.counter}", "output", one.agent, event.output, call_id=event.call_id)
    made = add_part_and_request_reply(talk, part)
    return evolve(made, asks=tuple(ask for ask in made.asks if ask.id != part.id)) if event.silent else made


def add_part_and_request_reply(talk: VoiceCall, part: Part) -> VoiceCall:
    """Add a local part that wants a reply; after hanging up no server will get it."""
    if talk.ended:
        return evolve(talk, open=(*talk.open, evolve(part, known=True)), counter=talk.counter + 1)
    return evolve(talk, open=(*talk.open, part), asks=(*talk.asks, PendingResponse(part.id)), counter=talk.counter + 1)
