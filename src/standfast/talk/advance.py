"""Every way a call can change.

`advance` is the only function that makes a new `Talk` from an old one. It does not know what a connection is, what was
sent or who listens: a connection's knowledge comes as fields of events. What is settled joins the ledger at the end of
every step, in order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_never

from standfast.engine.advance import advance as advance_run
from standfast.engine.run import Decision, Entry, Run, evolve
from standfast.talk.events import (
    Added,
    Appended,
    Began,
    CallMade,
    ChangeAsked,
    ChangeMade,
    ChangeRefused,
    ChildMoved,
    Claimed,
    Confirmed,
    Decided,
    Delegated,
    Event,
    HungUp,
    Interrupted,
    ItemDone,
    ItemRefused,
    Judged,
    Lost,
    NotTaken,
    Opened,
    Overdue,
    Played,
    Removed,
    ReplyEnded,
    ReplyRefused,
    ReplyStarted,
    ReplyWanted,
    Returned,
    Shown,
    Spoke,
    Transcribed,
    Typed,
    Waits,
)
from standfast.talk.talk import (
    SPEECH,
    Ask,
    Change,
    OpenCall,
    Part,
    Talk,
    assistant_message,
    call_item,
    heard_text,
    output_item,
    put,
    user_message,
)

Step = tuple[Talk, tuple[Shown, ...]]


def advance(talk: Talk, event: Event) -> Step:
    """The call after this event, and what is worth showing of it. What does not fit the call changes nothing."""
    shown: list[Shown] = []
    return _joined(_changed(talk, event, shown)), tuple(shown)


def _changed(talk: Talk, event: Event, shown: list[Shown]) -> Talk:
    match event:
        case Confirmed(item_id):
            part = talk.part(item_id)
            return talk if part is None else _placed(talk, evolve(part, known=True))
        case Added():
            return _added(talk, event)
        case Delegated(ask_id):
            part = talk.part(ask_id)
            talk = evolve(talk, asks=tuple(ask for ask in talk.asks if ask.id != ask_id))
            return talk if part is None else _placed(talk, evolve(part, known=True))
        case Removed(item_id):
            return _removed(talk, item_id)
        case Transcribed(item_id, text):
            part = talk.part(item_id)
            if part is None or part.kind != "said":
                return talk
            return put(talk, evolve(part, text=SPEECH if text is None else text))
        case Spoke(item_id, text, total_ms, written):
            part = talk.part(item_id)
            return talk if part is None else put(talk, evolve(part, text=text, total_ms=total_ms, written=written))
        case ItemDone(item_id):
            part = talk.part(item_id)
            return talk if part is None else put(talk, evolve(part, done=True))
        case CallMade():
            return _called(talk, event, shown)
        case ReplyStarted():
            return _started(talk, event)
        case ReplyEnded():
            return _answered(talk, event, shown)
        case ReplyRefused():
            return _refused(talk, event, shown)
        case Overdue(refused):
            talk = _refused(talk, ReplyRefused(), shown) if refused else talk
            return evolve(talk, asks=tuple(evolve(ask, ours=True) if ask.by is None else ask for ask in talk.asks))
        case ItemRefused(item_id, why):
            part = talk.part(item_id)
            shown.append(Shown("item_refused", item_id, why))
            if part is None:
                return talk
            # No server will have it: it stays in the history as what was wanted, and nobody waits for an answer to it.
            asks = tuple(ask for ask in talk.asks if ask.id != item_id)
            return evolve(_placed(talk, evolve(part, known=True)), asks=asks)
        case Opened():
            return _opened(talk, event)
        case Lost():
            return _lost(talk, shown)
        case Typed(text, content):
            return _asking(talk, Part(f"m{talk.claim}x{talk.counter}", "typed", talk.agent, text, content))
        case ReplyWanted():
            ask = Ask(f"r{talk.claim}x{talk.counter}", bare=True)
            return talk if talk.ended else evolve(talk, asks=(*talk.asks, ask), counter=talk.counter + 1)
        case Interrupted():
            return _interrupted(talk, event, shown)
        case Played(heard, over):
            return _played(talk, heard, over)
        case Judged():
            return _judged(talk, event, shown)
        case ChangeAsked(agent, call_id):
            return _change_asked(talk, agent, call_id)
        case ChangeMade(number, output):
            return _change_made(talk, number, output, shown)
        case ChangeRefused(number, why, output):
            return _change_refused(talk, number, why, output, shown)
        case Began(call_id):
            return _on_call(talk, call_id, ("asked",), state="begun")
        case Waits(call_id, reason):
            shown.append(Shown("approval", call_id, reason))
            return _on_call(talk, call_id, ("asked", "begun", "doubt"), state="waiting", reason=reason)
        case Decided(decision, path):
            return _decided_inside(talk, decision, path) if path else _decided(talk, decision)
        case NotTaken(call_id):
            return _on_call(talk, call_id, ("doubt",), state="asked")
        case ChildMoved(call_id, child):
            paused = {"state": "waiting", "reason": "approval"} if child.paused else {}
            shown += [Shown("approval", inner, path) for inner, path in asked_inside(child, (call_id,))]
            return _on_call(talk, call_id, ("asked", "begun", "waiting"), child=child, **paused)
        case Returned():
            return _returned(talk, event)
        case Appended(end):
            return evolve(talk, stored=max(talk.stored, end))
        case Claimed(stored, reopens):
            return _claimed(evolve(talk, ended=False) if reopens else talk, stored, shown)
        case HungUp():
            return _hung_up(talk)
        case _:
            assert_never(event)


# --- items -----------------------------------------------------------------------------------------------------------


def _added(talk: Talk, event: Added) -> Talk:
    if talk.part(event.item_id) is not None:
        return talk
    tripped = event.response is not None and event.response in talk.trips
    part = Part(
        event.item_id,
        event.kind,
        talk.agent,
        "" if event.kind == "spoken" else event.text,
        known=True,
        cut=event.cut or tripped,
        guarded=event.guarded,
        tripped=tripped,
        idle=event.idle,
        response=event.response,
        audio=event.audio,
    )
    talk = _placed(talk, part)
    if event.ask is None:
        return talk
    return evolve(talk, asks=(*talk.asks, Ask(event.item_id, ours=event.ask == "ours")))


def _placed(talk: Talk, part: Part) -> Talk:
    """In the server's order: behind everything it had before, in front of what it has not got yet."""
    old = talk.part(part.id)
    if old is not None and old.known:
        return put(talk, part)  # it keeps its place on a new connection
    rest = tuple(other for other in talk.open if other.id != part.id)
    place = next((place for place, other in enumerate(rest) if not other.known), len(rest))
    return evolve(talk, open=(*rest[:place], part, *rest[place:]))


def _removed(talk: Talk, item_id: str) -> Talk:
    """Somebody else took an item back: it will not be history. A call stays, it may have been done."""
    part = talk.part(item_id)
    if part is None or part.kind == "output":
        return talk
    return evolve(
        talk,
        open=tuple(other for other in talk.open if other.id != item_id),
        asks=tuple(ask for ask in talk.asks if ask.id != item_id),
    )


def _asking(talk: Talk, part: Part) -> Talk:
    """A new part of ours that wants a reply; after hanging up no server will ever have it."""
    if talk.ended:
        return evolve(talk, open=(*talk.open, evolve(part, known=True)), counter=talk.counter + 1)
    return evolve(talk, open=(*talk.open, part), asks=(*talk.asks, Ask(part.id)), counter=talk.counter + 1)


# --- replies ---------------------------------------------------------------------------------------------------------


def _started(talk: Talk, event: ReplyStarted) -> Talk:
    """A reply answers what the server had when it began; what came later asks again."""
    asks = tuple(evolve(ask, by=event.response) if ask.bare or ask.id in event.held else ask for ask in talk.asks)
    # A note that has not left is about an older reply than this one: the model has moved on (E7).
    gone = {part.id for part in talk.open if part.kind == "note" and not part.known and part.id not in event.left}
    return evolve(
        talk,
        asks=tuple(ask for ask in asks if ask.id not in gone),
        open=tuple(part for part in talk.open if part.id not in gone) if gone else talk.open,
    )


def _answered(talk: Talk, event: ReplyEnded, shown: list[Shown]) -> Talk:
    """A reply that ended has answered what it was about, however it ended; one that failed is asked for once more."""
    parts = tuple(
        evolve(part, done=True) if part.response == event.response and not part.done else part for part in talk.open
    )
    failed = event.status == "failed"
    asks = []
    for ask in talk.asks:
        if ask.by != event.response:
            asks.append(ask)
        elif failed and not ask.tries:
            asks.append(evolve(ask, ours=True, tries=ask.tries + 1, by=None))
    if failed:
        shown.append(Shown("reply_failed", event.response))
    return evolve(talk, open=parts, asks=tuple(asks), counter=talk.counter + 1)


def _refused(talk: Talk, event: ReplyRefused, shown: list[Shown]) -> Talk:
    """Asked for again within a bound: a server that refuses for ever must not be asked for ever."""
    asks = tuple(evolve(ask, tries=ask.tries + 1) if ask.ours and ask.by is None else ask for ask in talk.asks)
    given_up = tuple(ask for ask in asks if ask.ours and ask.by is None and ask.tries >= event.bound)
    if given_up:
        shown.append(Shown("reply_given_up", given_up[0].id, event.why))
    return evolve(talk, asks=tuple(ask for ask in asks if ask not in given_up), counter=talk.counter + 1)


# --- interruptions and guardrails ------------------------------------------------------------------------------------


def _interrupted(talk: Talk, event: Interrupted, shown: list[Shown]) -> Talk:
    """What has not been heard by now never will be. Decided here, before any frame leaves."""
    parts = []
    for part in talk.open:
        concerned = part.kind == "spoken" and not part.cut and (event.only is None or part.id == event.only)
        if concerned and (not part.done or part.heard_ms < part.total_ms):
            heard_ms = min(max(part.heard_ms, event.heard.get(part.id, 0)), part.total_ms)
            if not part.done or heard_ms < part.total_ms:
                # Also between two pieces of audio: more was to come.
                if heard_ms < part.total_ms or (part.total_ms and not part.done):
                    shown.append(Shown("audio_interrupted", part.id))
                part = evolve(part, heard_ms=heard_ms, cut=True)
            else:
                part = evolve(part, heard_ms=heard_ms)
        parts.append(part)
    return evolve(talk, open=tuple(parts))


def _played(talk: Talk, heard: Mapping[str, int], over: Collection[str]) -> Talk:
    parts = []
    for part in talk.open:
        ms = heard.get(part.id)
        if ms is not None and part.kind == "spoken" and not part.cut and ms > part.heard_ms:
            part = evolve(part, heard_ms=min(int(ms), part.total_ms))
        if part.id in over and part.is_playing:
            part = evolve(part, cut=True)  # the rest was dropped before anybody took it
        parts.append(part)
    return evolve(talk, open=tuple(parts))


def _judged(talk: Talk, event: Judged, shown: list[Shown]) -> Talk:
    part = talk.part(event.item_id)
    if part is None or part.tripped:
        return talk
    if not event.tripped:
        return put(talk, evolve(part, judged=max(part.judged, event.upto)))
    response = part.response or part.id
    first = response not in talk.trips
    parts = []
    for other in talk.open:
        if other.kind == "spoken" and (other.response or other.id) == response and not other.tripped:
            heard_ms = other.heard_ms
            if other.id == part.id:
                heard_ms = min(max(heard_ms, event.heard_ms), other.total_ms)
            if heard_ms < other.total_ms and not other.cut:
                shown.append(Shown("audio_interrupted", other.id))
            other = evolve(other, cut=True, tripped=True, heard_ms=heard_ms)
        parts.append(other)
    talk = evolve(talk, open=tuple(parts))
    if not first:
        return talk
    shown.insert(0, Shown("guardrail", response, part.id))
    talk = evolve(talk, trips=(*talk.trips, response))
    if event.note is None or talk.ended:
        return talk
    made = _asking(talk, Part(f"g{talk.claim}x{talk.counter}", "note", talk.agent, event.note, response=response))
    # A note is not restored, but the reply it wants is owed all the same.
    return evolve(made, asks=(*made.asks[:-1], evolve(made.asks[-1], bare=True)))


# --- agents ----------------------------------------------------------------------------------------------------------


def _change_asked(talk: Talk, agent: str, call_id: str | None) -> Talk:
    change = Change(talk.counter + 1, agent, call_id)
    if call_id is not None:
        one = talk.call(call_id)
        if one is None:
            return talk
        talk = _put_call(talk, evolve(one, asked_for=change.number))
    return evolve(talk, changes=(*talk.changes, change), counter=talk.counter + 1)


def _change_made(talk: Talk, number: int, output: str | None, shown: list[Shown]) -> Talk:
    if not talk.changes or talk.changes[0].number != number:
        return talk
    change = talk.changes[0]
    shown.append(Shown("handoff", talk.agent, change.agent))
    talk = evolve(talk, agent=change.agent, changes=talk.changes[1:], counter=talk.counter + 1)
    if change.call_id is None or talk.call(change.call_id) is None:
        return talk
    return _returned(talk, Returned(change.call_id, output or ""))


def _change_refused(talk: Talk, number: int, why: object, output: str | None, shown: list[Shown]) -> Talk:
    if not talk.changes or talk.changes[0].number != number:
        return talk
    change = talk.changes[0]
    shown.append(Shown("change_refused", change.agent, why))
    talk = evolve(talk, changes=talk.changes[1:], counter=talk.counter + 1)
    if change.call_id is None or talk.call(change.call_id) is None:
        return talk
    return _returned(talk, Returned(change.call_id, output or ""))


# --- calls -----------------------------------------------------------------------------------------------------------


def _called(talk: Talk, event: CallMade, shown: list[Shown]) -> Talk:
    if talk.knows_call(event.call.id):
        return talk
    shown.append(Shown("call", event.call.id))
    one = OpenCall(event.call, talk.agent, event.item_id, event.response)
    return evolve(talk, calls=(*talk.calls, one))


def _on_call(talk: Talk, call_id: str, allowed: tuple[str, ...], **changes: object) -> Talk:
    one = talk.call(call_id)
    if one is None or one.call.state not in allowed:
        return talk
    return _put_call(talk, evolve(one, call=evolve(one.call, **changes)))


def _put_call(talk: Talk, one: OpenCall) -> Talk:
    return evolve(talk, calls=tuple(one if other.call.id == one.call.id else other for other in talk.calls))


def _decided(talk: Talk, decision: Decision) -> Talk:
    if decision.sticky:
        talk = evolve(talk, decisions=(*talk.decisions, decision))
    if decision.call_id is None:
        return talk
    return _on_call(talk, decision.call_id, ("waiting",), state="asked", decision=decision)


def _decided_inside(talk: Talk, decision: Decision, path: tuple[str, ...]) -> Talk:
    """A run inside a call is told, and its call is entered again."""
    one = talk.call(path[0])
    if one is None or one.call.child is None or one.call.state != "waiting":
        return talk
    child = advance_run(one.call.child, Decided(decision, path[1:]))
    return _put_call(talk, evolve(one, call=evolve(one.call, child=child, state="asked")))


def asked_inside(run: Run, path: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """The calls of a paused run, and of those inside it, that wait for a person, each with the way to it."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for call in run.waiting if run.paused else ():
        if call.child is not None:
            found += asked_inside(call.child, (*path, call.id))
        else:
            found.append((call.id, path))
    return found


def _returned(talk: Talk, event: Returned) -> Talk:
    one = talk.call(event.call_id)
    if one is None or one.call.state == "returned":
        return talk
    talk = _put_call(talk, evolve(one, call=evolve(one.call, state="returned", child=None)))
    part = Part(f"o{talk.claim}x{talk.counter}", "output", one.agent, event.output, call_id=event.call_id)
    made = _asking(talk, part)
    return evolve(made, asks=tuple(ask for ask in made.asks if ask.id != part.id)) if event.silent else made


# --- connections and processes ---------------------------------------------------------------------------------------


def _lost(talk: Talk, shown: list[Shown]) -> Talk:
    """The response under way is gone with its connection; what was received of it goes on being heard."""
    parts = []
    for part in talk.open:
        if part.kind == "spoken" and not part.done:
            part = evolve(part, done=True)
            shown.append(Shown("cut_off", part.id))
        parts.append(part)
    asks = tuple(evolve(ask, ours=True, by=None) for ask in talk.asks)
    return evolve(talk, open=tuple(parts), asks=asks, counter=talk.counter + 1)


def _opened(talk: Talk, event: Opened) -> Talk:
    """Speech that is said again is forgotten here; of other speech no transcript will come any more."""
    parts = []
    for part in talk.open:
        if part.id in event.again:
            continue
        if part.kind == "said" and part.text is None and not part.idle and not event.attached:
            part = evolve(part, text=SPEECH)
        parts.append(part)
    asks = tuple(ask for ask in talk.asks if ask.id not in event.again)
    return evolve(talk, epoch=event.epoch, open=tuple(parts), asks=asks)


def _claimed(talk: Talk, stored: int, shown: list[Shown]) -> Talk:
    """What had begun elsewhere is in doubt; what was being said was heard as far as is known; notes are forgotten."""
    calls = []
    for one in talk.calls:
        call = one.call
        if call.state == "begun" and one.asked_for is None:
            # A run inside a call is claimed itself: its call is entered again where that run stands.
            if call.child is not None:
                call = evolve(call, state="asked")
            else:
                call = evolve(call, state="doubt", reason="unknown")
        if call.state == "waiting" and call.child is None:
            shown.append(Shown("approval", call.id, call.reason))
        calls.append(evolve(one, call=call))
    parts, gone = [], set()
    for part in talk.open:
        if part.kind == "note":
            gone.add(part.id)
            continue
        if part.kind == "said" and part.text is None and not part.idle:
            shown.append(Shown("cut_off", part.id))  # its audio died with the process
            part = evolve(part, text=SPEECH)
        if part.kind == "spoken":
            part = evolve(part, done=True, cut=part.cut or part.heard_ms < part.total_ms)
        parts.append(evolve(part, audio=None))
    asks = tuple(evolve(ask, ours=True, by=None) for ask in talk.asks if ask.id not in gone)
    return evolve(
        talk,
        claim=talk.claim + 1,
        stored=max(talk.stored, stored),
        open=tuple(parts),
        asks=asks,
        calls=tuple(calls),
        counter=talk.counter + 1,
    )


def _hung_up(talk: Talk) -> Talk:
    """Nobody listens any more: what was heard is history, nothing is asked for. A call that waits may be decided."""
    parts = []
    for part in talk.open:
        if part.kind == "note":
            continue
        if part.kind == "spoken":
            cut = part.cut or part.heard_ms < part.total_ms
            part = evolve(part, done=True, cut=cut, judged=max(part.judged, len(part.text or "")))
        text = SPEECH if part.kind == "said" and part.text is None else part.text
        parts.append(evolve(part, known=True, text=text))
    talk = evolve(talk, ended=True, open=tuple(parts), asks=(), counter=talk.counter + 1)
    while talk.changes:  # a handoff to an agent that nobody will talk to
        talk = _change_refused(talk, talk.changes[0].number, None, "The call ended before the handoff.", [])
    return talk


def _joined(talk: Talk) -> Talk:
    """What is settled, in order, becomes history; a call together with its output (C8), a reply as it was heard."""
    if not talk.open or not talk.open[0].settled:
        return talk
    entries: list[Entry] = []
    place, calls = 0, talk.calls
    for part in talk.open:
        if not part.settled:
            break
        place += 1
        entries += _entries(talk, part)
        if part.kind == "output":
            calls = tuple(one for one in calls if one.call.id != part.call_id)
    rest = talk.open[place:]
    trips = talk.trips and tuple(one for one in talk.trips if any(one == part.response for part in rest))
    return evolve(talk, open=rest, calls=calls, trips=trips, ledger=talk.ledger.appended(entries))


def _entries(talk: Talk, part: Part) -> list[Entry]:
    match part.kind:
        case "output":
            one = talk.call(part.call_id)
            assert one is not None
            return [
                Entry("tool_call_item", one.agent, call_item(one), {"id": one.item_id}),
                Entry("tool_call_output_item", one.agent, output_item(part), {"id": part.id}),
            ]
        case "spoken":
            text = heard_text(part)
            if not text:
                return []  # what nobody heard is not history
            extra = {
                "id": part.id,
                "heard_ms": part.heard_ms,
                "total_ms": part.total_ms,
                "generated": None if part.tripped else part.text,
            }
            return [Entry("message_output_item", part.agent, assistant_message(text), extra)]
        case "note":
            return []
        case _:
            if part.idle or (not part.text and not part.content):
                return []  # nobody's words
            extra = {"id": part.id, "audio": part.audio} if part.audio is not None else {"id": part.id}
            return [Entry("input", part.agent, user_message(part), extra)]
