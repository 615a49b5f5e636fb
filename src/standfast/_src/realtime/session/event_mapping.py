"""Mapping of transport events and transitions of the call to the events for readers (spec 1.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from standfast._src.base.errors import ModelBehaviorError
from standfast._src.realtime.machine.events import Interrupted, Shown
from standfast._src.realtime.machine.live_call import LiveCall
from standfast._src.realtime.machine.model_events import (
    RealtimeModelAudioDoneEvent,
    RealtimeModelAudioEvent,
    RealtimeModelAudioInterruptedEvent,
    RealtimeModelConnectionStatusEvent,
    RealtimeModelEndOfStreamEvent,
    RealtimeModelErrorEvent,
    RealtimeModelEvent,
    RealtimeModelExceptionEvent,
    RealtimeModelInputAudioTimeoutTriggeredEvent,
    RealtimeModelInputAudioTranscriptionCompletedEvent,
    RealtimeModelItemDeletedEvent,
    RealtimeModelItemUpdatedEvent,
    RealtimeModelOutputTextDeltaEvent,
    RealtimeModelRawServerEvent,
    RealtimeModelToolCallEvent,
    RealtimeModelTranscriptDeltaEvent,
    RealtimeModelTurnEndedEvent,
    RealtimeModelTurnStartedEvent,
    RealtimeModelUsageEvent,
)
from standfast._src.realtime.machine.opaque_connection import OpaqueConnection
from standfast._src.realtime.machine.tool_calls import asked_inside
from standfast._src.realtime.machine.voice_call import heard_text
from standfast._src.realtime.session.call_hooks import CallHookRunner
from standfast._src.realtime.session.call_scope import CallScope
from standfast._src.realtime.session.connections import ConnectionManager
from standfast._src.realtime.session.effects import output_guardrails
from standfast._src.realtime.session_events import (
    RealtimeAgentEndEvent,
    RealtimeAgentStartEvent,
    RealtimeAudio,
    RealtimeAudioEnd,
    RealtimeAudioInterrupted,
    RealtimeHandoffEvent,
    RealtimeHistoryAdded,
    RealtimeHistoryUpdated,
    RealtimeInputAudioTimeoutTriggered,
    RealtimeToolApprovalRequired,
)

if TYPE_CHECKING:
    from standfast._src.realtime.agent import RealtimeAgent

DELTAS = frozenset(
    {"response.output_audio.delta", "response.output_audio_transcript.delta", "response.output_text.delta"}
)


class EventMapper:
    """Producer of a voice call's events."""

    def __init__(
        self, scope: CallScope, exchange: LiveCall, connecting: ConnectionManager, observing: CallHookRunner
    ) -> None:
        self._exchange = exchange
        self._scope, self._connecting, self._observing = scope, connecting, observing
        settings = scope.config.get("guardrails_settings") or {}
        self._holds_audio = bool(settings.get("hold_audio"))
        self._held: dict[str, list[RealtimeAudio]] = {}
        self._active: str | None = None
        self._info, self._outlets = scope.info, scope.outlets

    # --- what a transport tells --------------------------------------------------------------------------------------

    def receive(self, event: RealtimeModelEvent) -> bool:
        """Process a transport event without waiting; return whether it was only a delta."""
        if type(event) is RealtimeModelTranscriptDeltaEvent or type(event) is RealtimeModelOutputTextDeltaEvent:
            self._words(event)
            return True
        if isinstance(event, RealtimeModelAudioEvent):
            self.audio(event)
            return True
        self._scope.show_raw(event)
        if isinstance(event, RealtimeModelRawServerEvent):
            if event.data.get("type") in DELTAS:
                return True
            if self._scope.restores:
                self._connecting.receive(event.data)
            return False
        link = self._scope.hands.exchange.link
        if isinstance(link, OpaqueConnection):
            found = link.hear(event)
            if found:
                self._scope.hands.happen(
                    lambda exchange, now: [one for told in found for one in exchange.tell(told, now)]
                )
        self._show(event)
        return False

    def _words(self, event: RealtimeModelTranscriptDeltaEvent | RealtimeModelOutputTextDeltaEvent) -> None:
        """A few words: a buffer, and nothing else, however long the history is."""
        scope, exchange = self._scope, self._exchange
        if scope.raw_events:
            scope.show_raw(event)
        link, item_id = exchange.link, event.item_id
        if link is not None and item_id not in link.has and isinstance(link, OpaqueConnection):
            self._announce(item_id, event.response_id)
        if type(event) is RealtimeModelOutputTextDeltaEvent:
            looks = exchange.words(item_id, event.delta, written=True)
        else:
            scope.history.transcript_delta(item_id, event.delta)
            now = scope.hands.now() if scope.attached else 0.0
            looks = exchange.words(item_id, event.delta, now=now)
        if looks and exchange.look():
            scope.hands.wake_reconciler()

    def _announce(self, item_id: str, response: str | None) -> None:
        exchange = self._scope.hands.exchange
        link = exchange.link
        assert isinstance(link, OpaqueConnection)
        found = link.began(item_id, response)
        self._scope.hands.happen(lambda exchange, now: [one for told in found for one in exchange.tell(told, now)])

    def audio(self, event: RealtimeModelAudioEvent) -> None:
        """Count a piece of audio and put an event into every reader's queue."""
        exchange, item_id, size = self._exchange, event.item_id, len(event.data)
        buffer, link = exchange.buffers.get(item_id), exchange.link
        if buffer is not None and link is not None and not link.unwanted:
            end = buffer.audio_bytes = buffer.audio_bytes + size  # `exchange.audio` without its questions
        else:
            if buffer is None and isinstance(link, OpaqueConnection):
                self._announce(item_id, event.response_id)
            end = exchange.audio(item_id, size)
            if end < 0:
                self._scope.show_raw(event)
                self._scope.hands.stats_late += size
                return
        shown = RealtimeAudio(event, item_id, event.content_index, self._info)
        shown.end = end
        if self._holds_audio and self._is_guarded(item_id):
            # Its raw event comes with it: readers make that of the audio they are given.
            self._held.setdefault(item_id, []).append(shown)
            return
        for outlet in self._outlets:
            outlet.put_audio(shown, size)

    def _is_guarded(self, item_id: str) -> bool:
        part = self._scope.hands.talk.part(item_id)
        return part is not None and part.guarded and not part.tripped

    def release_audio(self) -> None:
        """Show held audio of replies that the guardrails have looked at to their end, or so far."""
        if not self._held:
            return
        self._scope.hands.exchange.fold()
        for item_id in list(self._held):
            part = self._scope.hands.talk.part(item_id)
            if part is not None and part.tripped:
                del self._held[item_id]
            elif part is None or part.judged >= len(part.text or ""):
                for one in self._held.pop(item_id):
                    for outlet in self._outlets:
                        outlet.put_audio(one, len(one.audio.data))

    def _show(self, event: RealtimeModelEvent) -> None:
        scope = self._scope
        match event:
            case RealtimeModelErrorEvent(error):
                link = scope.hands.exchange.link
                if not (scope.restores and link is not None and link.expected):
                    scope.error(error)
            case RealtimeModelToolCallEvent():
                self._tool_call(event)
            case RealtimeModelAudioInterruptedEvent(item_id, index):
                self._interrupted_by_transport(item_id, index)
            case RealtimeModelAudioDoneEvent(item_id, index):
                scope.show(RealtimeAudioEnd(scope.info, item_id, index))
            case RealtimeModelInputAudioTranscriptionCompletedEvent(item_id, transcript):
                new = scope.history.set_transcript(item_id, transcript)
                self._history(item_id if new else None)
            case RealtimeModelInputAudioTimeoutTriggeredEvent():
                scope.show(RealtimeInputAudioTimeoutTriggered(scope.info))
            case RealtimeModelItemUpdatedEvent(item):
                new_item = scope.history.update(item)
                if scope.history.is_cut(item.item_id):
                    scope.history.cut(item.item_id, self._heard(item.item_id))
                if new_item is not None:
                    self._history(item.item_id if new_item else None)
            case RealtimeModelItemDeletedEvent(item_id):
                scope.history.remove(item_id)
                self._history(None)
            case RealtimeModelTurnStartedEvent(response_id=response_id):
                self._active = response_id
                self._observing.agent_started(scope.agent)
                scope.show(RealtimeAgentStartEvent(scope.agent, scope.info))
            case RealtimeModelTurnEndedEvent(response_id=response_id):
                if response_id is None or self._active in (None, response_id):
                    self._active = None
                    scope.show(RealtimeAgentEndEvent(scope.agent, scope.info))
            case RealtimeModelUsageEvent(usage):
                scope.wrapper.usage.add(usage)
            case RealtimeModelConnectionStatusEvent(status, code=code, reason=reason) if status == "disconnected":
                if scope.restores:
                    self._connecting.lost(code, reason)
            case RealtimeModelExceptionEvent(exception):
                if not scope.restores:
                    scope.is_fatal(exception)
            case RealtimeModelEndOfStreamEvent():
                if not scope.restores or scope.hands.exchange.link is None:
                    scope.stream_ended = not scope.hands.connects
                    scope.wake_readers()

    def _tool_call(self, event: RealtimeModelToolCallEvent) -> None:
        if not event.call_id:
            self._scope.error(
                ModelBehaviorError(
                    f"the model called {event.name!r} without an id", "A call needs a non-empty string call ID."
                )
            )

    def _interrupted_by_transport(self, item_id: str, index: int) -> None:
        """Stop an item's playback for a transport that handles interruptions itself."""
        scope = self._scope
        exchange = scope.hands.exchange
        if isinstance(exchange.link, OpaqueConnection):
            exchange.fold()
            heard = exchange.heard(scope.hands.now())
            exchange.tell(Interrupted(heard, item_id), scope.hands.now())
            exchange.playback.stop(item_id, scope.hands.now())
        scope.drop_audio(item_id)
        scope.show(RealtimeAudioInterrupted(scope.info, item_id, index))

    def _history(self, new: str | None) -> None:
        scope = self._scope
        item = scope.history.get(new) if new is not None else None
        if item is not None:
            scope.show(RealtimeHistoryAdded(item, scope.info))
        else:
            scope.show(RealtimeHistoryUpdated(scope.history.items(), scope.info))

    # --- what the call makes of it -----------------------------------------------------------------------------------

    def shown(self, found: list[Shown]) -> None:
        """Show transitions of the call to the readers."""
        for one in found:
            self._connecting.note(one)
            self._one(one)

    def _one(self, one: Shown) -> None:
        scope = self._scope
        talk = scope.hands.talk
        match one.name:
            case "call":
                if scope.offer is not None:
                    scope.offers[one.of] = scope.offer  # the agent, tools and settings of now are this call's (E5)
            case "approval":
                event = self.approval(one.of, one.more if isinstance(one.more, tuple) else ())
                if event is not None:
                    scope.show(event)
            case "audio_interrupted":
                self._cut(one.of)
            case "handoff":
                before, after = scope.agent_of(one.of), scope.agent_of(str(one.more))
                self.switch_agent(before, after)
                scope.show(RealtimeHandoffEvent(before, after, scope.info))
            case "change_refused":
                scope.error({"message": f"The agent stays as it was: {one.of} could not take over", "error": one.more})
            case "reply_failed":
                scope.error({"message": "A reply failed", "response_id": one.of})
            case "reply_given_up":
                scope.error({"message": "A reply was refused too often and is not asked for again", "error": one.more})
            case "item_refused":
                scope.error({"message": f"The server does not take item {one.of}", "error": one.more})
        if talk.ended:
            return

    def questions(self) -> list[RealtimeToolApprovalRequired]:
        """Every question to a person, those of agents used as tools included."""
        found = []
        for call in self._scope.hands.talk.waiting:
            inside = asked_inside(call.child, (call.id,)) if call.child is not None else [(call.id, ())]
            found += [self.approval(call_id, path) for call_id, path in inside]
        return [one for one in found if one is not None]

    def _approval_inside(self, call_id: str, path: tuple[str, ...]) -> RealtimeToolApprovalRequired | None:
        """Build the approval request of an agent used as a tool."""
        scope = self._scope
        one = scope.hands.talk.call(path[0])
        offer = scope.offers.get(path[0]) or scope.offer
        outer = offer.tools.get(one.call.name) if one is not None and offer is not None else None
        run: Any = one.call.child if one is not None else None
        agent: Any = None
        call: Any = None
        for step in (*path[1:], call_id):
            agent = outer.agent_tool.agent if outer is not None and outer.agent_tool is not None else None
            call = run.call(step) if run is not None else None
            if agent is None or call is None:
                return None
            outer = next((tool for tool in agent.tools if getattr(tool, "name", None) == call.name), None)
            run = call.child
        if outer is None:
            return None
        values = call.prepared_arguments
        return RealtimeToolApprovalRequired(
            agent, outer, call_id, call.arguments, scope.info, prepared_arguments=values
        )

    def approval(self, call_id: str, path: tuple[str, ...] = ()) -> RealtimeToolApprovalRequired | None:
        """The question to a person about a call."""
        if path:
            return self._approval_inside(call_id, path)
        scope = self._scope
        one = scope.hands.talk.call(call_id)
        offer = scope.offers.get(call_id) or scope.offer
        tool = offer.tools.get(one.call.name) if one is not None and offer is not None else None
        if one is None or offer is None or tool is None:
            return None
        call = one.call
        return RealtimeToolApprovalRequired(
            offer.agent,
            tool,
            call_id,
            call.arguments,
            scope.info,
            same_as_run=call.same_as_run,
            prepared_arguments=call.prepared_arguments,
        )

    def _cut(self, item_id: str) -> None:
        scope = self._scope
        self._held.pop(item_id, None)
        scope.drop_audio(item_id)
        tracker = scope.model_config.get("playback_tracker")
        if tracker is not None:
            tracker.on_interrupted()
        scope.show(RealtimeAudioInterrupted(scope.info, item_id, 0))
        if scope.history.cut(item_id, self._heard(item_id)):
            self._history(None)

    def _heard(self, item_id: str) -> str:
        """Return the heard text of an item; a complete item became history at the moment of its cut."""
        talk = self._scope.hands.talk
        part = talk.part(item_id)
        if part is not None:
            return heard_text(part)
        for entry in reversed(talk.ledger):
            if (entry.extra or {}).get("id") == item_id:
                return str(entry.item["content"])
        return ""  # unheard items are not in the history

    def switch_agent(self, before: RealtimeAgent[Any], after: RealtimeAgent[Any]) -> None:
        """Use the new agent's tools for calls that arrive from now on."""
        scope = self._scope
        numbers = sorted(scope.changing)
        for number in numbers:
            offer = scope.changing[number]
            if offer.agent is after:
                scope.offer = offer
                del scope.changing[number]
                break
        link = scope.hands.exchange.link
        if link is not None:
            link.guarded = bool(output_guardrails(scope, after))
