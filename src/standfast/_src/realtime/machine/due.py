"""Effects that should be under way now: derived from the call and its connection, never stored.

The frames to send are `view(talk)` less the server's items. So a reconnect, a takeover and a call that starts from a
text history need no code of their own: they are a connection without items. An unsent frame is sent again (E10).
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from standfast._src.realtime.machine.connection_state import MARK, ConnectionState
from standfast._src.realtime.machine.events import Do, Frame
from standfast._src.realtime.machine.voice_call import (
    SPEECH,
    OpenCall,
    Part,
    VoiceCall,
    assistant_message,
    call_item,
    heard_text,
    output_item,
    user_message,
)
from standfast._src.realtime.machine.wire_format import changed_settings, short_id, wire_item

WAITING = "These calls wait for a person's approval and have not run yet. Do not say that they are done: "


def due(talk: VoiceCall, link: ConnectionState | None, *, debounce: int) -> list[Do]:
    """Return the effects besides sending: connect, tool calls, checks by guardrails, appends, changes of agent."""
    effects: list[Do] = []
    if talk.stored < len(talk.ledger):
        effects.append(Do(f"append/{talk.stored}", "append", upto=len(talk.ledger)))
    for one in talk.calls:
        if one.asked_for is not None:
            continue  # a handoff: it has run, and waits for its change
        if one.call.state in ("asked", "begun"):
            effects.append(Do(f"run/{one.call.id}", "run", one.call.id))
        elif one.call.state == "doubt":
            effects.append(Do(f"settle/{one.call.id}", "settle", one.call.id))
    if talk.ended:
        return effects
    looked = set()
    for part in talk.open:  # one look at a time for each reply: the key does not name the text
        response = part.response or part.id
        if response not in looked and wants_a_look(part, debounce):
            looked.add(response)
            effects.append(Do(f"judge/{response}", "judge", part.id, len(part.text or "")))
    if link is None:
        effects.append(Do(f"connect/{talk.epoch + 1}", "connect"))
    elif talk.changes and link.ready and link.sending is None and talk.changes[0].number not in link.updates:
        change = talk.changes[0]
        effects.append(Do(f"resolve/{link.epoch}/{change.number}", "resolve", change.agent, change.number))
    return effects


def wants_a_look(part: Part, debounce: int) -> bool:
    """Return whether the output guardrails should check a reply now: at each threshold, and at the end."""
    if part.kind != "spoken" or not part.guarded or part.tripped:
        return False
    size = len(part.text or "")
    return size > part.judged and (part.done or size >= part.judged + max(debounce, 1))


# --- what the server lacks -------------------------------------------------------------------------------------------


def frames(talk: VoiceCall, link: ConnectionState, *, announce: bool = False) -> list[Frame]:
    """Return the frames missing at the server, in sending order."""
    if talk.ended:
        return []
    if not link.ready:
        return [] if link.sending is not None or link.refused is not None else [_settings(0, link.settings)]
    out: list[Frame] = []
    if talk.changes and link.sending is None:
        number = talk.changes[0].number
        if number in link.updates and number != link.confirmed:
            out.append(_settings(number, changed_settings(link.applied, link.updates[number])))
    if link.search is not None:
        out += link.search.frames()
    out += _items(talk, link)
    out += _corrections(talk, link)
    if link.active is not None and link.active in link.unwanted and link.active not in link.cancelled:
        out.append(Frame(f"cancel/{link.active}", {"type": "response.cancel", "response_id": link.active}))
    out += [frame for frame in _truncations(talk, link) if frame.key not in link.sent]
    if link.attached and link.stop_playing:
        out.append(Frame("clear/output", {"type": "output_audio_buffer.clear"}))
    if link.seeded and link.pending:
        out.append(audio_frame(link))
    if owes_reply(talk, link):
        waiting = [call for call in talk.waiting if call.id not in link.announced]
        if announce and waiting:
            out.append(_announcement(link, [f"{call.name} ({call.id})" for call in waiting], waiting))
        else:
            key = f"reply/{link.epoch}/{talk.counter}"
            body = {"type": "response.create", "event_id": key, "response": {"metadata": {MARK: key}}}
            out.append(Frame(key, body))
    return out


def _settings(number: int, session: dict[str, Any]) -> Frame:
    return Frame(f"settings/{number}", {"type": "session.update", "event_id": f"settings/{number}", "session": session})


def audio_frame(link: ConnectionState) -> Frame:
    """Build the frame of the first pending audio."""
    place, data, _ = link.pending[0]
    if not data:
        return Frame(f"commit/{place}", {"type": "input_audio_buffer.commit"})
    body = {"type": "input_audio_buffer.append", "audio": b64encode(data).decode("ascii")}
    return Frame(f"audio/{place}", body)


def _announcement(link: ConnectionState, names: list[str], waiting: list[Any]) -> Frame:
    item_id = f"w{link.epoch}x{len(link.announced)}"
    item = {
        "id": item_id,
        "type": "message",
        "role": "system",
        "content": [{"type": "input_text", "text": WAITING + ", ".join(names)}],
    }
    return Frame(
        f"announce/{','.join(call.id for call in waiting)}", {"type": "conversation.item.create", "item": item}
    )


# --- items -----------------------------------------------------------------------------------------------------------


def view(talk: VoiceCall, link: ConnectionState, *, only_open: bool = False) -> list[tuple[str, dict[str, Any]]]:
    """Return the items that a server should have, in order: history, then open items; tool calls precede their outputs.

    A connection that once had all items also has the items that became history since: then `only_open` is enough.
    """
    seen: list[tuple[str, dict[str, Any]]] = []
    if not only_open:
        seen += link.base
        for entry in talk.ledger.since(link.base_upto):
            item_id = str((entry.extra or {}).get("id"))
            made = wire_item(entry.item, short_id(item_id))
            if made is not None:
                seen.append((short_id(item_id), made))
    answered = set()
    for part in talk.open:
        if part.kind == "output":
            answered.add(part.call_id)
            one = talk.call(part.call_id)
            assert one is not None
            seen.append(_call_seed(one))
        made = wire_item(_item_of(part), part.id)
        if made is not None:
            if part.kind == "note":
                made["role"] = "system"
            seen.append((part.id, made))
    # Open calls too, before any reply is asked for: else the model calls again, and it is done twice.
    seen += [_call_seed(one) for one in talk.calls if one.call.id not in answered]
    return seen


def _call_seed(one: OpenCall) -> tuple[str, dict[str, Any]]:
    item_id = short_id(one.item_id)
    made = wire_item(call_item(one), item_id)
    assert made is not None
    return item_id, made


def _item_of(part: Part) -> dict[str, Any]:
    match part.kind:
        case "output":
            return output_item(part)
        case "spoken":
            return assistant_message(heard_text(part) if part.cut else part.text or "")
        case "said" if part.idle:
            return {}
        case "said":
            return {"role": "user", "content": SPEECH if part.text is None else part.text}
        case _:
            return user_message(part)


def _items(talk: VoiceCall, link: ConnectionState) -> list[Frame]:
    out = []
    for item_id, item in view(talk, link, only_open=link.seeded):
        if item_id in link.has or item_id in link.left:
            continue
        part = talk.part(item_id)
        # A connection that has everything is only given what is ours: what the model or the user says it has itself.
        if link.seeded and (part is None or part.kind not in ("typed", "output", "note")):
            continue
        out.append(_create(item_id, item))
    return out


def _create(item_id: str, item: dict[str, Any]) -> Frame:
    key = f"item/{item_id}"
    return Frame(key, {"type": "conversation.item.create", "event_id": key, "item": item})


def _corrections(talk: VoiceCall, link: ConnectionState) -> list[Frame]:
    """Replace copies at the server that contain more text than was heard in the end, history included."""
    if not link.given:
        return []
    out: list[Frame] = []
    there = view(talk, link)
    texts = dict(there)
    for place, (item_id, item) in enumerate(there):
        given, text = link.given.get(item_id), _text(item)
        if given is None or given == text:
            continue
        gone, again = f"gone/{item_id}/{len(text)}", f"again/{item_id}/{len(text)}"
        if gone not in link.sent and item_id in link.has:
            out.append(_delete(gone, link.names.get(item_id, item_id)))
        if (gone in link.sent or item_id in link.has) and again not in link.sent:
            before = next((known for known, _ in reversed(there[:place]) if known in link.has), "root")
            # A server does not take the id of an item that it has deleted.
            copy = {**item, "id": short_id(f"{item_id}-{len(text)}")}
            before = link.names.get(before, before)
            body = {"type": "conversation.item.create", "event_id": again, "item": copy, "previous_item_id": before}
            out.append(Frame(again, body))
    for item_id in link.given:
        if item_id not in texts and item_id in link.has and f"gone/{item_id}/0" not in link.sent:
            # nothing of it was heard
            out.append(_delete(f"gone/{item_id}/0", link.names.get(item_id, item_id)))
    return out


def item_text_of(frame: Frame) -> str:
    """Return the text of a frame's item."""
    return _text(frame.body["item"])


def _text(item: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for part in item.get("content") or ())


def _delete(key: str, item_id: str) -> Frame:
    return Frame(key, {"type": "conversation.item.delete", "event_id": key, "item_id": item_id})


def _truncations(talk: VoiceCall, link: ConnectionState) -> list[Frame]:
    out: list[Frame] = []
    if link.attached:
        return out  # media goes past us: the server knows what was played, and cuts its items itself
    for item_id, cut in link.cuts.items():
        total = link.received_ms(item_id)
        under_way = cut.response is not None and cut.response == link.active
        if total == 0:
            # Only audio can be truncated. If none came until the end, the server has text that was never heard.
            if not under_way and item_id in link.has:
                out.append(_delete(f"gone/{item_id}/cut", item_id))
            continue
        if cut.heard_ms < total or under_way:
            body = {
                "type": "conversation.item.truncate",
                "event_id": f"truncate/{item_id}",
                "item_id": item_id,
                "content_index": 0,
                "audio_end_ms": min(cut.heard_ms, total),
            }
            out.append(Frame(f"truncate/{item_id}", body))
    return out


# --- replies ---------------------------------------------------------------------------------------------------------


def owes_reply(talk: VoiceCall, link: ConnectionState) -> bool:
    """Return whether to request a reply now: one for all requests, once no tool call is running that belongs to it
    (E9).
    """
    if not talk.asks or not link.seeded or link.creating is not None or link.active is not None:
        return False
    if talk.changes or any(one.running for one in talk.calls):
        return False  # a call that waits for a person does not delay the reply to other calls
    if link.creates:
        # The server's turn first: it answers by itself what was said, with all it has by then.
        if link.speech is not None or link.spoke:
            return False
        if any(not ask.ours and ask.by is None and ask.id in link.has for ask in talk.asks):
            return False
    if link.pending or (link.search is not None and not link.search.is_over):
        return False
    mine = [part.id for part in talk.open if part.kind in ("typed", "output", "note")]
    if any(item_id not in link.has for item_id in mine):
        return False
    return any(ask.ours and ask.by is None and (ask.bare or ask.id in link.has) for ask in talk.asks)
