"""All transitions of a voice call.

`advance` is the only function that makes a new `VoiceCall` from an old one, and its `match` is the list of all the
ways. It
does not know what a connection is, what was sent or who listens: a connection's knowledge comes as fields of events.
What is settled joins the ledger at the end of every step, in order. Here is what is said and answered; `calling` has
the calls and agents, `surviving` what outlives connections and processes, `joining` what becomes history.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import assert_never

from standfast._src.realtime.machine.crash_recovery import (
    apply_claimed,
    apply_hung_up,
    apply_lost,
    apply_opened,
    apply_settled,
)
from standfast._src.realtime.machine.events import (
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
from standfast._src.realtime.machine.to_history import join_settled
from standfast._src.realtime.machine.tool_calls import (
    add_call,
    add_part_and_request_reply,
    apply_decision,
    asked_inside,
    change_asked,
    change_made,
    change_refused,
    decided_inside,
    on_call,
    returned,
)
from standfast._src.realtime.machine.voice_call import SPEECH, Part, PendingResponse, VoiceCall, put
from standfast._src.runs.engine.events import SettledBy
from standfast._src.runs.engine.run import evolve

Step = tuple[VoiceCall, tuple[Shown, ...]]


def advance(talk: VoiceCall, event: Event) -> Step:
    """Apply an event; return the new call and what to show. An event that does not fit the call changes nothing."""
    shown: list[Shown] = []
    return join_settled(_apply_event(talk, event, shown)), tuple(shown)


def _apply_event(talk: VoiceCall, event: Event, shown: list[Shown]) -> VoiceCall:
    match event:
        case Confirmed(item_id):
            part = talk.part(item_id)
            return talk if part is None else _place_part(talk, evolve(part, known=True))
        case Added():
            return _apply_added(talk, event)
        case Delegated(ask_id):
            part = talk.part(ask_id)
            talk = evolve(talk, asks=tuple(ask for ask in talk.asks if ask.id != ask_id))
            return talk if part is None else _place_part(talk, evolve(part, known=True))
        case Removed(item_id):
            return _remove_part(talk, item_id)
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
            return add_call(talk, event, shown)
        case ReplyStarted():
            return _apply_reply_started(talk, event)
        case ReplyEnded():
            return _apply_reply_ended(talk, event, shown)
        case ReplyRefused():
            return _apply_reply_refused(talk, event, shown)
        case Overdue(refused):
            talk = _apply_reply_refused(talk, ReplyRefused(), shown) if refused else talk
            return evolve(talk, asks=tuple(evolve(ask, ours=True) if ask.by is None else ask for ask in talk.asks))
        case ItemRefused(item_id, why):
            part = talk.part(item_id)
            shown.append(Shown("item_refused", item_id, why))
            if part is None:
                return talk
            # No server will have it: it stays in the history as what was wanted, and no answer to it is pending.
            asks = tuple(ask for ask in talk.asks if ask.id != item_id)
            return evolve(_place_part(talk, evolve(part, known=True)), asks=asks)
        case Opened():
            return apply_opened(talk, event)
        case Lost(attached):
            return apply_lost(talk, attached, shown)
        case Typed(text, content):
            return add_part_and_request_reply(
                talk, Part(f"m{talk.claim}x{talk.counter}", "typed", talk.agent, text, content)
            )
        case ReplyWanted():
            ask = PendingResponse(f"r{talk.claim}x{talk.counter}", bare=True)
            return talk if talk.ended else evolve(talk, asks=(*talk.asks, ask), counter=talk.counter + 1)
        case Interrupted():
            return _apply_interrupted(talk, event, shown)
        case Played(heard, over):
            return _apply_played(talk, heard, over)
        case Judged():
            return _apply_judged(talk, event, shown)
        case ChangeAsked(agent, call_id):
            return change_asked(talk, agent, call_id)
        case ChangeMade(number, output):
            return change_made(talk, number, output, shown)
        case ChangeRefused(number, why, output):
            return change_refused(talk, number, why, output, shown)
        case Began(call_id, on_unknown):
            return on_call(talk, call_id, ("asked",), state="begun", on_unknown=on_unknown)
        case Waits(call_id, reason, same_as_run, values, behind):
            shown.append(Shown("approval", call_id, reason))
            asked = {"reason": reason, "same_as_run": same_as_run, "values": values, "decision": None, "behind": behind}
            return on_call(talk, call_id, ("asked", "begun", "doubt"), state="waiting", **asked)
        case Decided(decision, path):
            return decided_inside(talk, decision, path) if path else apply_decision(talk, decision)
        case NotTaken(call_id):
            return on_call(talk, call_id, ("doubt",), state="asked")
        case ChildMoved(call_id, child):
            paused = {"state": "waiting", "reason": "approval"} if child.paused else {}
            shown += [Shown("approval", inner, path) for inner, path in asked_inside(child, (call_id,))]
            return on_call(talk, call_id, ("asked", "begun", "waiting"), child=child, **paused)
        case Returned():
            return returned(talk, event)
        case Appended(end):
            return evolve(talk, stored=max(talk.stored, end))
        case Claimed(stored, reopens):
            return apply_claimed(evolve(talk, ended=False) if reopens else talk, stored, shown)
        case SettledBy():
            return apply_settled(talk, event)
        case HungUp():
            return apply_hung_up(talk)
        case _:
            assert_never(event)


# --- items -----------------------------------------------------------------------------------------------------------


def _apply_added(talk: VoiceCall, event: Added) -> VoiceCall:
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
    talk = _place_part(talk, part)
    if event.ask is None:
        return talk
    return evolve(talk, asks=(*talk.asks, PendingResponse(event.item_id, ours=event.ask == "ours")))


def _place_part(talk: VoiceCall, part: Part) -> VoiceCall:
    """Place a new item in the server's order: behind all items the server has, before those it lacks."""
    old = talk.part(part.id)
    if old is not None and old.known:
        return put(talk, part)  # it keeps its place on a new connection
    rest = tuple(other for other in talk.open if other.id != part.id)
    place = next((place for place, other in enumerate(rest) if not other.known), len(rest))
    return evolve(talk, open=(*rest[:place], part, *rest[place:]))


def _remove_part(talk: VoiceCall, item_id: str) -> VoiceCall:
    """Drop an item deleted by the server or another client: it will not be history. A tool call stays, since it may
    have run.
    """
    part = talk.part(item_id)
    if part is None or part.kind == "output":
        return talk
    return evolve(
        talk,
        open=tuple(other for other in talk.open if other.id != item_id),
        asks=tuple(ask for ask in talk.asks if ask.id != item_id),
    )


# --- replies ---------------------------------------------------------------------------------------------------------


def _apply_reply_started(talk: VoiceCall, event: ReplyStarted) -> VoiceCall:
    """Assign pending requests to a reply: it answers the items the server had at its beginning, later ones
    ask again.
    """
    asks = tuple(evolve(ask, by=event.response) if ask.bare or ask.id in event.held else ask for ask in talk.asks)
    # A note that has not left is about an older reply than this one: the model has moved on (E7).
    gone = {part.id for part in talk.open if part.kind == "note" and not part.known and part.id not in event.left}
    return evolve(
        talk,
        asks=tuple(ask for ask in asks if ask.id not in gone),
        open=tuple(part for part in talk.open if part.id not in gone) if gone else talk.open,
    )


def _apply_reply_ended(talk: VoiceCall, event: ReplyEnded, shown: list[Shown]) -> VoiceCall:
    """End a reply: its requests count as answered, whatever its status. A failed reply is requested once more."""
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


def _apply_reply_refused(talk: VoiceCall, event: ReplyRefused, shown: list[Shown]) -> VoiceCall:
    """Ask again for a reply that was refused, so often and no more: a server may refuse for ever."""
    asks = tuple(evolve(ask, tries=ask.tries + 1) if ask.ours and ask.by is None else ask for ask in talk.asks)
    given_up = tuple(ask for ask in asks if ask.ours and ask.by is None and ask.tries >= event.bound)
    if given_up:
        shown.append(Shown("reply_given_up", given_up[0].id, event.why))
    return evolve(talk, asks=tuple(ask for ask in asks if ask not in given_up), counter=talk.counter + 1)


# --- interruptions and guardrails ------------------------------------------------------------------------------------


def _apply_interrupted(talk: VoiceCall, event: Interrupted, shown: list[Shown]) -> VoiceCall:
    """Cut replies at the audio heard by now. Decided here, before any frame is sent."""
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


def _apply_played(talk: VoiceCall, heard: Mapping[str, int], over: Collection[str]) -> VoiceCall:
    parts = []
    for part in talk.open:
        ms = heard.get(part.id)
        if ms is not None and part.kind == "spoken" and not part.cut and ms > part.heard_ms:
            part = evolve(part, heard_ms=min(int(ms), part.total_ms))
        if part.id in over and part.is_playing:
            part = evolve(part, cut=True)  # the rest was dropped before any reader took it
        parts.append(part)
    return evolve(talk, open=tuple(parts))


def _apply_judged(talk: VoiceCall, event: Judged, shown: list[Shown]) -> VoiceCall:
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
    made = add_part_and_request_reply(
        talk, Part(f"g{talk.claim}x{talk.counter}", "note", talk.agent, event.note, response=response)
    )
    # A note is not restored, but the reply it wants is owed all the same.
    return evolve(made, asks=(*made.asks[:-1], evolve(made.asks[-1], bare=True)))
