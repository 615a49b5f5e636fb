"""A connection over a transport that keeps the conversation itself: the transport requests replies and handles
interruptions.

The session sends only the SDK's send events and receives only the SDK's model events. A sent item counts as present,
and nothing can be sent again: such a transport cannot restore a conversation.
"""

from __future__ import annotations

from typing import Any

from standfast._src.realtime.machine.call_items import AssistantMessageItem, InputAudio, RealtimeItem, UserMessageItem
from standfast._src.realtime.machine.connection_state import ConnectionState
from standfast._src.realtime.machine.events import (
    Added,
    CallMade,
    Event,
    Frame,
    ItemDone,
    Removed,
    ReplyEnded,
    ReplyStarted,
    Transcribed,
)
from standfast._src.realtime.machine.model_events import (
    RealtimeModelEvent,
    RealtimeModelInputAudioTranscriptionCompletedEvent,
    RealtimeModelItemDeletedEvent,
    RealtimeModelItemUpdatedEvent,
    RealtimeModelToolCallEvent,
    RealtimeModelTurnEndedEvent,
    RealtimeModelTurnStartedEvent,
)
from standfast._src.realtime.machine.model_inputs import (
    RealtimeModelSendInterrupt,
    RealtimeModelSendRawMessage,
    RealtimeModelSendSessionUpdate,
    RealtimeModelSendToolOutput,
    RealtimeModelSendUserInput,
)
from standfast._src.realtime.machine.voice_call import Part, VoiceCall
from standfast._src.runs.engine.run import Call


class OpaqueConnection(ConnectionState):
    """State of a connection limited to the SDK's events."""

    def __init__(self, epoch: int, *, guarded: bool = False) -> None:
        super().__init__(epoch, guarded=guarded, attached=True)
        self.ready = self.seeded = True
        self.calls: dict[str, RealtimeModelToolCallEvent] = {}
        self.echoes: list[str] = []
        """Texts that were sent and will come back as items of the transport's own."""
        self.turn = 0
        self._names: dict[str, str] = {}
        """Local name of each response id of the transport."""
        self._ids: dict[str, str | None] = {}
        """Response id of each reply that began without one; None until an event has it."""
        self._heard: str | None = None
        """The reply being received although the transport has not announced its start."""
        self._ended: set[str] = set()

    def _name(self, response: str | None) -> str | None:
        """Return the local name of a response.

        A reply that began without an id takes the first id that no other reply has. Otherwise its words would count
        as another reply's, and a refused reply would not be cancelled (E7).
        """
        if response is None:
            return self.active
        if response not in self._names:
            name = self.active if self.active in self._ids and self._ids[self.active] is None else response
            self._names[response], self._ids[name] = name, response
        return self._names[response]

    def _start(self, response: str | None) -> list[Event]:
        self.turn += 1
        if response is None:
            self.active = f"turn-{self.turn}"
            self._ids[self.active] = None
        else:
            self.active = self._names[response] = response
        self.last_response, self._heard = self.active, None
        return [ReplyStarted(self.active, (), self.left)]

    def _end(self, response: str | None) -> list[Event]:
        name = self._name(response)
        if response is not None and self.active not in (None, name):
            return []
        ended, self.active, self._heard = name or f"turn-{self.turn}", None, None
        self._ended.add(ended)
        return [ReplyEnded(ended, "completed")]

    def hear(self, event: RealtimeModelEvent) -> list[Event]:
        """Return the events of a model event, deltas excepted."""
        match event:
            case RealtimeModelToolCallEvent():
                self.calls[event.call_id] = event
                call = Call(event.call_id, event.name, "tool", event.arguments, "")
                return [CallMade(call, event.id or event.call_id, self.active)]
            case RealtimeModelItemUpdatedEvent(item):
                return self._item(item)
            case RealtimeModelItemDeletedEvent(item_id):
                self.has.discard(item_id)
                return [Removed(item_id)]
            case RealtimeModelInputAudioTranscriptionCompletedEvent(item_id, transcript):
                new = [] if item_id in self.has else [Added(item_id, "said", audio=None)]
                self.has.add(item_id)
                return [*new, Transcribed(item_id, transcript)]
            case RealtimeModelTurnStartedEvent():
                return self._start(event.response_id)
            case RealtimeModelTurnEndedEvent():
                return self._end(event.response_id)
        return []

    def began(self, item_id: str, response: str | None) -> list[Event]:
        """Announce an item that begins with a delta."""
        if item_id in self.has:
            return []
        self.has.add(item_id)
        name = self._name(response)
        if name is not None:
            self.reply_of[item_id] = name
            if self.active is None and name not in self._ended:
                self._heard = name
        return [Added(item_id, "spoken", name, guarded=self.guarded)]

    def _item(self, item: RealtimeItem) -> list[Event]:
        known = item.item_id in self.has
        if isinstance(item, AssistantMessageItem):
            found = self.began(item.item_id, None)
            return [*found, ItemDone(item.item_id)] if item.status in ("completed", "incomplete") else found
        if known or not isinstance(item, UserMessageItem):
            return []
        self.has.add(item.item_id)
        if any(isinstance(part, InputAudio) for part in item.content):
            text = next((part.transcript for part in item.content if isinstance(part, InputAudio)), None)
            return [Added(item.item_id, "said", text=text or None)]
        text = "\n".join(getattr(part, "text", None) or "" for part in item.content)
        if text in self.echoes:
            self.echoes.remove(text)
            return []
        return [Added(item.item_id, "typed", text=text)]

    # --- sending -----------------------------------------------------------------------------------------------------

    def sends(self, talk: VoiceCall) -> list[Frame]:
        """Return the SDK's send events for the transport, in order."""
        out: list[Frame] = []
        if talk.changes and talk.changes[0].number in self.updates and self.sending is None:
            number = talk.changes[0].number
            body: Any = RealtimeModelSendSessionUpdate(self.updates[number])  # type: ignore[arg-type]
            out.append(Frame(f"settings/{number}", body))
        for response in sorted(self.unwanted - self.cancelled):
            if response in self.tripped:
                forced = response == (self.active or self._heard)
                body = RealtimeModelSendInterrupt(
                    force_response_cancel=forced,
                    response_id=self._ids.get(response, response),
                    playback_only=not forced,
                )
                out.append(Frame(f"cancel/{response}", body))
        running = [one for one in talk.calls if one.running]
        for part in talk.open:
            if part.id not in self.left and part.kind in ("typed", "output", "note"):
                out.append(self._send(talk, part, start=not running))
        for ask in talk.asks:
            if ask.bare and talk.part(ask.id) is None and ask.by is None and f"ask/{ask.id}" not in self.sent:
                body = RealtimeModelSendRawMessage({"type": "response.create"})
                out.append(Frame(f"ask/{ask.id}", body))
        return out

    def _send(self, talk: VoiceCall, part: Part, *, start: bool) -> Frame:
        if part.kind == "output":
            one = talk.call(part.call_id)
            assert one is not None
            call = self.calls.get(one.call.id) or RealtimeModelToolCallEvent(
                one.call.name, one.call.id, one.call.arguments, one.item_id
            )
            asks = any(ask.id == part.id for ask in talk.asks)
            body: Any = RealtimeModelSendToolOutput(call, part.text or "", start_response=start and asks)
        elif part.content:
            message: Any = {"type": "message", "role": "user", "content": [dict(one) for one in part.content]}
            body = RealtimeModelSendUserInput(message)
        else:
            body = RealtimeModelSendUserInput(part.text or "")
        return Frame(f"{'note' if part.kind == 'note' else 'item'}/{part.id}", body)

    def note_sent(self, key: str, body: object, text: str | None = None) -> None:
        """Something was handed to the transport."""
        kind, _, rest = key.partition("/")
        if kind in ("item", "note"):
            self.left.add(rest)
            if isinstance(body, RealtimeModelSendUserInput) and isinstance(body.user_input, str):
                self.echoes = [*self.echoes[-31:], body.user_input]
        elif kind == "settings":
            self.sending = int(rest)
        elif kind == "cancel":
            self.cancelled.add(rest)
        else:
            self.sent.add(key)
