"""Transitions of a voice call after the loss of its connection, its process or the caller.

A call whose process crashed is either claimed by another process, which continues it, or settled by a process that has
none of its code and only needs a complete history (C15). A settled call can still be continued (E14).
"""

from __future__ import annotations

from standfast._src.items.texts_for_models import model_text
from standfast._src.realtime.machine.events import Opened, Returned, Shown
from standfast._src.realtime.machine.tool_calls import change_refused, put_call, returned
from standfast._src.realtime.machine.voice_call import SPEECH, OpenCall, Part, VoiceCall
from standfast._src.runs.engine.advance import advance as advance_run
from standfast._src.runs.engine.events import SettledBy
from standfast._src.runs.engine.run import evolve


def apply_lost(talk: VoiceCall, attached: bool, shown: list[Shown]) -> VoiceCall:
    """End the response under way with its connection; the audio received so far continues to play.

    On an attached call the response continues at the server, and the next connection searches for its outcome.
    """
    parts = []
    for part in talk.open:
        if part.kind == "spoken" and not part.done and not attached:
            part = evolve(part, done=True, cut=part.cut or _is_unheard(part))
            shown.append(Shown("cut_off", part.id))
        parts.append(part)
    asks = tuple(evolve(ask, ours=True, by=None) for ask in talk.asks)
    return evolve(talk, open=tuple(parts), asks=asks, counter=talk.counter + 1)


def apply_opened(talk: VoiceCall, event: Opened) -> VoiceCall:
    """Forget speech that is sent again; for all other open speech no transcript will come."""
    parts = []
    for part in talk.open:
        if part.id in event.again:
            continue
        if part.kind == "said" and part.text is None and not part.idle and not event.attached:
            part = evolve(part, text=SPEECH)
        parts.append(part)
    asks = tuple(ask for ask in talk.asks if ask.id not in event.again)
    return evolve(talk, epoch=event.epoch, open=tuple(parts), asks=asks)


def apply_claimed(talk: VoiceCall, stored: int, shown: list[Shown]) -> VoiceCall:
    """Put begun tool calls in doubt, cut spoken replies at the audio known to be heard, and forget notes."""
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
            part = _broken_off(part)
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


def apply_settled(talk: VoiceCall, event: SettledBy) -> VoiceCall:
    """Settle a call of a crashed process: all items join the history except calls that wait for a person (C15).

    Requests for a reply stay pending, for a process that continues the call. Text unchecked by a guardrail was heard
    all the same, and only heard text is kept.
    """
    talk = apply_claimed(talk, event.stored, [])
    # A handoff that was not confirmed did not happen, and its agent can be asked for again.
    talk = evolve(talk, changes=tuple(change for change in talk.changes if change.call_id is None))
    for one in talk.calls:
        talk = _settle_call(talk, one, event)
    return evolve(talk, open=tuple(_as_heard(part) for part in talk.open))


def _settle_call(talk: VoiceCall, one: OpenCall, event: SettledBy) -> VoiceCall:
    call = one.call
    if call.child is not None and not call.child.is_closed:
        child = advance_run(call.child, event)
        if child.paused:
            return put_call(talk, evolve(one, call=evolve(call, state="waiting", reason="approval", child=child)))
    elif call.state in ("waiting", "returned"):
        return talk
    if call.state == "doubt" and call.on_unknown == "ask":
        return put_call(talk, evolve(one, call=evolve(call, state="waiting")))
    has_begun = call.has_begun and one.asked_for is None
    return returned(talk, Returned(call.id, model_text("outcome_unknown" if has_begun else "did_not_run")))


def _broken_off(part: Part) -> Part:
    """End a reply: the rest of its audio will not be heard."""
    return evolve(part, done=True, cut=part.cut or part.heard_ms < part.total_ms or _is_unheard(part))


def _is_unheard(part: Part) -> bool:
    """Return whether a spoken reply has text but no audio yet, so that it was not heard at all."""
    return not part.done and not part.written and not part.total_ms


def _as_heard(part: Part) -> Part:
    """Complete a part as heard and as understood, for a call without further events."""
    if part.kind == "spoken":
        part = evolve(_broken_off(part), judged=max(part.judged, len(part.text or "")))
    text = SPEECH if part.kind == "said" and part.text is None else part.text
    return evolve(part, known=True, text=text)


def apply_hung_up(talk: VoiceCall) -> VoiceCall:
    """End the call: heard text is history, no reply is pending. A waiting tool call may still be decided."""
    parts = tuple(_as_heard(part) for part in talk.open if part.kind != "note")
    talk = evolve(talk, ended=True, open=parts, asks=(), counter=talk.counter + 1)
    while talk.changes:  # a handoff to an agent without a listener
        talk = change_refused(talk, talk.changes[0].number, None, "The call ended before the handoff.", [])
    return talk
