"""Conversion of settled parts of a voice call to history, in order, tool calls together with their
outputs (C8, E14).
"""

from __future__ import annotations

from standfast._src.realtime.machine.voice_call import (
    Part,
    VoiceCall,
    assistant_message,
    call_item,
    heard_text,
    output_item,
    user_message,
)
from standfast._src.runs.engine.run import Entry, evolve


def join_settled(talk: VoiceCall) -> VoiceCall:
    """Move settled parts to the ledger, in order: a tool call with its output (C8), a reply as heard."""
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


def _entries(talk: VoiceCall, part: Part) -> list[Entry]:
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
                return []  # unheard text is not history
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
                return []  # silence, or an empty message
            extra = {"id": part.id, "audio": part.audio} if part.audio is not None else {"id": part.id}
            return [Entry("input", part.agent, user_message(part), extra)]
