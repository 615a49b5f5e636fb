"""How the calls of the model change, and the agents that some of them ask for: asked, begun, waiting, returned."""

from __future__ import annotations

from standfast.engine.advance import advance as advance_run
from standfast.engine.events import Decided
from standfast.engine.run import Decision, Run, evolve
from standfast.talk.events import CallMade, Returned, Shown
from standfast.talk.talk import Ask, Change, OpenCall, Part, Talk

# --- agents ----------------------------------------------------------------------------------------------------------


def change_asked(talk: Talk, agent: str, call_id: str | None) -> Talk:
    """Another agent should take over, behind those that were asked for before (E6)."""
    change = Change(talk.counter + 1, agent, call_id)
    if call_id is not None:
        one = talk.call(call_id)
        if one is None:
            return talk
        talk = put_call(talk, evolve(one, asked_for=change.number))
    return evolve(talk, changes=(*talk.changes, change), counter=talk.counter + 1)


def change_made(talk: Talk, number: int, output: str | None, shown: list[Shown]) -> Talk:
    """The first change is made: its agent talks from now on, and the handoff that asked for it has its output."""
    if not talk.changes or talk.changes[0].number != number:
        return talk
    change = talk.changes[0]
    shown.append(Shown("handoff", talk.agent, change.agent))
    talk = evolve(talk, agent=change.agent, changes=talk.changes[1:], counter=talk.counter + 1)
    if change.call_id is None or talk.call(change.call_id) is None:
        return talk
    return returned(talk, Returned(change.call_id, output or ""))


def change_refused(talk: Talk, number: int, why: object, output: str | None, shown: list[Shown]) -> Talk:
    """The first change will not be: the agent stays, and the handoff that asked for it is told so."""
    if not talk.changes or talk.changes[0].number != number:
        return talk
    change = talk.changes[0]
    shown.append(Shown("change_refused", change.agent, why))
    talk = evolve(talk, changes=talk.changes[1:], counter=talk.counter + 1)
    if change.call_id is None or talk.call(change.call_id) is None:
        return talk
    return returned(talk, Returned(change.call_id, output or ""))


# --- calls -----------------------------------------------------------------------------------------------------------


def called(talk: Talk, event: CallMade, shown: list[Shown]) -> Talk:
    """A call that was not known yet is open from now on, with the agent that is current (E5)."""
    if talk.knows_call(event.call.id):
        return talk
    shown.append(Shown("call", event.call.id))
    one = OpenCall(event.call, talk.agent, event.item_id, event.response)
    return evolve(talk, calls=(*talk.calls, one))


def on_call(talk: Talk, call_id: str, allowed: tuple[str, ...], **changes: object) -> Talk:
    """The talk with this call changed, if it is in one of the allowed states."""
    one = talk.call(call_id)
    if one is None or one.call.state not in allowed:
        return talk
    return put_call(talk, evolve(one, call=evolve(one.call, **changes)))


def put_call(talk: Talk, one: OpenCall) -> Talk:
    """The talk with this call in place of the one of its id."""
    return evolve(talk, calls=tuple(one if other.call.id == one.call.id else other for other in talk.calls))


def decided(talk: Talk, decision: Decision) -> Talk:
    """A call that waited is asked for again, with the decision; a sticky one holds for later calls too."""
    if decision.sticky:
        talk = evolve(talk, decisions=(*talk.decisions, decision))
    if decision.call_id is None:
        return talk
    return on_call(talk, decision.call_id, ("waiting",), state="asked", decision=decision)


def decided_inside(talk: Talk, decision: Decision, path: tuple[str, ...]) -> Talk:
    """A run inside a call is told, and its call is entered again."""
    one = talk.call(path[0])
    if one is None or one.call.child is None or one.call.state != "waiting":
        return talk
    child = advance_run(one.call.child, Decided(decision, path[1:]))
    return put_call(talk, evolve(one, call=evolve(one.call, child=child, state="asked")))


def asked_inside(run: Run, path: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """The calls of a paused run, and of those inside it, that wait for a person, each with the way to it."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for call in run.waiting if run.paused else ():
        if call.child is not None:
            found += asked_inside(call.child, (*path, call.id))
        else:
            found.append((call.id, path))
    return found


def returned(talk: Talk, event: Returned) -> Talk:
    """The call has its output, which is owed to the server and wants a reply."""
    one = talk.call(event.call_id)
    if one is None or one.call.state == "returned":
        return talk
    talk = put_call(talk, evolve(one, call=evolve(one.call, state="returned", child=None)))
    part = Part(f"o{talk.claim}x{talk.counter}", "output", one.agent, event.output, call_id=event.call_id)
    made = asking(talk, part)
    return evolve(made, asks=tuple(ask for ask in made.asks if ask.id != part.id)) if event.silent else made


def asking(talk: Talk, part: Part) -> Talk:
    """A new part of ours that wants a reply; after hanging up no server will ever have it."""
    if talk.ended:
        return evolve(talk, open=(*talk.open, evolve(part, known=True)), counter=talk.counter + 1)
    return evolve(talk, open=(*talk.open, part), asks=(*talk.asks, Ask(part.id)), counter=talk.counter + 1)
