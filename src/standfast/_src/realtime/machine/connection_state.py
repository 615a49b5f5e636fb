"""State of one connection: the server's items, the response under way, sent frames, audio received per item.

It ends with the connection and is never saved, so it may change in place. `receive` reads a frame and returns its
events for the voice call. `note_sent` is called with every frame handed to the connection: a connection that cannot
send is lost, so a frame counts as sent from then on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from standfast._src.realtime.machine.events import (
    Added,
    CallMade,
    ChangeRefused,
    Confirmed,
    Event,
    ItemDone,
    ItemRefused,
    Removed,
    ReplyEnded,
    ReplyRefused,
    ReplyStarted,
    Transcribed,
)
from standfast._src.realtime.machine.gap_recovery import GapSearch
from standfast._src.realtime.machine.session_settings import bytes_per_ms
from standfast._src.realtime.machine.voice_call import SPEECH, Part
from standfast._src.runs.engine.run import Call

MARK = "standfast"
"""The name in a response's metadata by which we know a reply that we asked for."""


@dataclass(slots=True)
class Cut:
    """Heard part of a cut item: owed to the server, even if the item is history here."""

    heard_ms: int
    response: str | None


@dataclass
class ConnectionState:
    """State of one connection of a voice call."""

    epoch: int
    settings: dict[str, Any] = field(default_factory=dict)
    """Session object to start with."""
    base: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """Conversation before this call, for a server without any items."""
    base_upto: int = 0
    """Number of ledger entries in `base`."""
    attached: bool = False
    """True if the server keeps the conversation, which must not be sent again."""
    guarded: bool = False
    """True if output guardrails check replies."""
    base_ids: frozenset[str] = frozenset()
    """Our ids of the part of the ledger that is in `base`: a session keeps items without them."""

    applied: dict[str, Any] = field(default_factory=dict)
    """The session object that the server has confirmed."""
    updates: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The whole session object of each change that is resolved, by its number."""
    sending: int | None = None
    ready: bool = False
    """True once the first settings are confirmed."""
    refused: Any = None
    """Reason for the server's refusal of the first settings."""
    confirmed: int | None = None
    """The change that was confirmed last."""
    seeded: bool = False
    """True once the server has all items that must precede new ones."""

    has: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)
    """Items that we have sent."""
    given: dict[str, str] = field(default_factory=dict)
    """Sent texts of replies that could still be cut."""
    names: dict[str, str] = field(default_factory=dict)
    """The ids under which the server has items that we gave it a second time: an id is never free again."""
    sent: set[str] = field(default_factory=set)
    """Keys of frames that left and must not leave again."""

    active: str | None = None
    creating: str | None = None
    doomed: str | None = None
    """A reply that was interrupted before it began."""
    last_response: str | None = None
    outside: set[str] = field(default_factory=set)
    """Responses beside the conversation."""
    unwanted: set[str] = field(default_factory=set)
    """Responses with unwanted audio: interrupted or refused."""
    tripped: set[str] = field(default_factory=set)
    """Those of them that a guardrail refused."""
    cancelled: set[str] = field(default_factory=set)
    reply_of: dict[str, str] = field(default_factory=dict)
    received: dict[str, int] = field(default_factory=dict)
    """Bytes of audio received of each item."""
    cuts: dict[str, Cut] = field(default_factory=dict)
    stop_playing: bool = False
    """On an attached call: whether what the caller hears must stop, which only the server can do."""
    announced: set[str] = field(default_factory=set)
    """Waiting calls announced to the model."""

    speech: tuple[str, int] | None = None
    """The user is speaking: the item to be, and where in the audio it began."""
    spoke: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Utterances that ended and are not items yet."""
    heard_ranges: list[tuple[int, int]] = field(default_factory=list)
    """The audio of every utterance that became an item, newest last."""
    idle: set[str] = field(default_factory=set)
    uncommitted: int | None = None
    """Begin of the audio that no utterance has taken; only without voice detection."""
    stream: list[tuple[int, int, int]] = field(default_factory=list)
    """Input audio given to this connection: (place on the connection, place in the call, length), in bytes."""
    written: int = 0
    pending: deque[tuple[int, bytes, bool]] = field(default_factory=deque)
    """Audio to be sent: its place, the bytes, and whether it is committed then."""

    creates: bool = True
    interrupts: bool = True
    detects: bool = True
    transcribes: bool = True
    expires_at: float | None = None
    session_id: str | None = None
    in_rate: int = 48
    out_rate: int = 48
    expected: bool = False
    """True if the last error was expected and harmless."""
    gap: str | None = None
    """An item the server mentioned and we have never seen, on an attached call."""
    search: GapSearch | None = None
    """On an attached call that was away: the look for what happened meanwhile."""

    def __post_init__(self) -> None:
        self._understand(self.settings)

    # --- what it is asked --------------------------------------------------------------------------------------------

    def holds(self, item_id: str) -> bool:
        """Return whether the server has an item."""
        return item_id in self.has

    def received_ms(self, item_id: str) -> int:
        """Return the milliseconds of audio of an item received over this connection."""
        return self.received.get(item_id, 0) // self.out_rate

    def owe(self, part: Part) -> None:
        """The server is owed the news of how much was heard, whatever becomes of the item here."""
        if part.id not in self.has or part.id in self.left or part.id in self.cuts or part.written:
            return  # a text that we gave it is corrected, not truncated
        self.cuts[part.id] = Cut(part.heard_ms, part.response)

    def place_of(self, ms: int) -> int:
        """Convert the server's millisecond to a position in the call's input audio. The server counts only this
        connection's audio.
        """
        at = ms * self.in_rate
        for start, place, length in reversed(self.stream):
            if at >= start:
                return place + min(at - start, length)
        return self.stream[0][1] if self.stream else 0

    def gave_audio(self, place: int, size: int) -> None:
        """So much audio of ours has been sent."""
        if self.stream and self.stream[-1][1] + self.stream[-1][2] == place:
            start, at, length = self.stream[-1]
            self.stream[-1] = (start, at, length + size)
        else:
            self.stream.append((self.written, place, size))
            if len(self.stream) > 256:  # more pieces than a server could still speak about
                del self.stream[0]
        if not self.detects and self.uncommitted is None:
            self.uncommitted = place
        self.written += size

    def note_sent(self, key: str, body: Mapping[str, Any], text: str | None = None) -> None:
        """A frame was handed to the connection."""
        kind, _, rest = key.partition("/")
        match kind:
            case "item" | "again":
                item_id = rest.partition("/")[0]
                self.left.add(item_id)
                if kind == "again":
                    self.sent.add(key)
                    self.names[item_id] = body["item"]["id"]
                if text is not None:  # noted when it leaves: until it is confirmed, more may have happened
                    self.given[item_id] = text
            case "probe" | "unprobe" | "fetch":
                assert self.search is not None
                self.search.note_sent(kind, rest)
            case "settings":
                self.sending = int(rest)
            case "reply":
                self.creating = key
            case "cancel":
                self.cancelled.add(rest)
            case "audio":
                place, data, commits = self.pending.popleft()
                self.gave_audio(place, len(data))
                if commits:
                    self.pending.appendleft((place + len(data), b"", True))
            case "commit":
                self.pending.popleft()
            case "clear":
                self.stop_playing = False
            case "announce":
                self.announced.update(rest.split(","))
            case _:
                self.sent.add(key)

    # --- what it receives --------------------------------------------------------------------------------------------

    def receive(self, frame: Mapping[str, Any]) -> list[Event]:
        """Return the events of a frame, deltas excepted. An unknown frame is not an error."""
        match frame.get("type"):
            case "session.created":
                self._session(frame.get("session") or {})
            case "session.updated":
                return self._handle_session_updated(frame.get("session") or {})
            case "conversation.item.added" | "conversation.item.created":
                return self._handle_item_added(frame.get("item") or {}, frame.get("previous_item_id"))
            case "conversation.item.deleted":
                return self._handle_item_deleted(str(frame.get("item_id")))
            case "conversation.item.retrieved":
                return self._handle_item_retrieved(frame.get("item") or {})
            case "conversation.item.input_audio_transcription.completed":
                return [Transcribed(str(frame.get("item_id")), frame.get("transcript") or "")]
            case "conversation.item.input_audio_transcription.failed":
                return [Transcribed(str(frame.get("item_id")), None)]
            case "input_audio_buffer.speech_started":
                self.speech = (str(frame.get("item_id")), self.place_of(frame.get("audio_start_ms") or 0))
            case "input_audio_buffer.speech_stopped":
                self._handle_speech_stopped(str(frame.get("item_id")), self.place_of(frame.get("audio_end_ms") or 0))
            case "input_audio_buffer.committed":
                self._handle_committed(str(frame.get("item_id")))
            case "input_audio_buffer.cleared":
                self.speech, self.uncommitted = None, None
            case "input_audio_buffer.timeout_triggered":
                self.idle.add(str(frame.get("item_id")))
            case "response.created":
                return self._handle_response_created(frame.get("response") or {})
            case "response.output_item.added":
                item_id = (frame.get("item") or {}).get("id")
                if item_id is not None and frame.get("response_id"):
                    self.reply_of[item_id] = frame["response_id"]
            case "response.output_item.done":
                return self._item_done(frame.get("item") or {}, frame.get("response_id"))
            case "response.done":
                return self._handle_response_done(frame.get("response") or {})
            case "error":
                return self._error(frame.get("error") or {})
        return []

    def _session(self, session: Mapping[str, Any]) -> None:
        self.expires_at = session.get("expires_at") or self.expires_at
        self.session_id = session.get("id") or self.session_id
        if self.attached:
            self._understand(session)

    def _handle_session_updated(self, session: Mapping[str, Any]) -> list[Event]:
        self.expires_at = session.get("expires_at") or self.expires_at
        self._understand(session)
        sending, self.sending = self.sending, None
        if sending is None:
            return []  # another client's change
        if sending == 0:
            self.ready, self.applied = True, dict(self.settings)
        else:
            self.applied = self.updates.get(sending, self.applied)
            self.confirmed = sending
        return []

    def _understand(self, session: Mapping[str, Any]) -> None:
        audio = session.get("audio") or {}
        heard = audio.get("input") or {}
        if "turn_detection" in heard:
            detection = heard["turn_detection"]
            self.detects = detection is not None
            self.creates = self.detects and (detection or {}).get("create_response", True) is not False
            self.interrupts = self.detects and (detection or {}).get("interrupt_response", True) is not False
        if "transcription" in heard:
            self.transcribes = heard["transcription"] is not None
        if "format" in heard:
            self.in_rate = bytes_per_ms(heard["format"])
        if "format" in (audio.get("output") or {}):
            self.out_rate = bytes_per_ms(audio["output"]["format"])

    # --- items -------------------------------------------------------------------------------------------------------

    def _handle_item_added(self, item: Mapping[str, Any], previous: object) -> list[Event]:
        item_id = item.get("id")
        if not isinstance(item_id, str) or item_id in self.has:
            return []
        if self.search is not None and item_id == self.search.probe:
            self.search.handle_probe_placed(previous, self.has)
            self.gap = self.search.newest
            return []
        if self.search is not None and previous == self.search.probe:
            previous = None  # it came between the probe and its removal
        if self.attached and isinstance(previous, str) and previous not in self.has and previous != "root":
            self.gap = previous
        item_id = self.ours(item_id)
        self.has.add(item_id)
        if item_id in self.left:
            return [Confirmed(item_id)]
        if item.get("type") != "message":
            return []
        if item.get("role") == "assistant":
            response = self.reply_of.get(item_id, self.active)
            cut = response is not None and response in self.unwanted
            if cut:
                self.cuts[item_id] = Cut(0, response)
            return [Added(item_id, "spoken", response, cut=cut, guarded=self.guarded)]
        if item.get("role") != "user":
            return []
        return self._user_item_events(item_id, item)

    def _user_item_events(self, item_id: str, item: Mapping[str, Any]) -> list[Event]:
        parts = [part for part in item.get("content") or () if isinstance(part, Mapping)]
        audio = self.spoke.pop(item_id, None)
        if audio is not None:
            self.heard_ranges = [*self.heard_ranges[-63:], audio]
        idle = item_id in self.idle
        if not any(part.get("type") == "input_audio" for part in parts):
            text = "\n".join(str(part.get("text") or "") for part in parts)
            return [Added(item_id, "typed", text=text)]
        transcript = next((part.get("transcript") for part in parts if part.get("transcript")), None)
        if transcript is None and not self.transcribes:
            transcript = SPEECH  # no transcript will come
        ask = None
        if self.creates or idle:
            # A response under way keeps the server from answering by itself: then asking is ours.
            ask = "ours" if self.active is not None else "server"
        return [Added(item_id, "said", text=transcript, ask=ask, audio=audio, idle=idle)]

    def _handle_speech_stopped(self, item_id: str, end: int) -> None:
        started = self.speech[1] if self.speech is not None and self.speech[0] == item_id else end
        self.speech = None
        self.spoke[item_id] = (started, end)

    def _handle_committed(self, item_id: str) -> None:
        if self.uncommitted is not None and item_id not in self.spoke:
            start, self.uncommitted = self.uncommitted, None
            end = self.stream[-1][1] + self.stream[-1][2] if self.stream else start
            self.spoke[item_id] = (start, end)

    def ours(self, item_id: str) -> str:
        """Return the local id of an item."""
        return next((own for own, name in self.names.items() if name == item_id), item_id) if self.names else item_id

    def _handle_item_deleted(self, item_id: str) -> list[Event]:
        if item_id not in self.has and item_id not in self.names.values():
            return []
        if self.names.get(item_id, item_id) != item_id:
            return []  # the first copy, of which there is another by now
        item_id = self.ours(item_id)
        self.has.discard(item_id)
        if any(key.startswith(f"gone/{item_id}/") for key in self.sent):
            return []  # as we said; what we gave stays noted, its correction is still owed
        return [Removed(item_id)]

    def _handle_item_retrieved(self, item: Mapping[str, Any]) -> list[Event]:
        found: list[Event] = []
        if self.search is not None:
            found = self.search.handle_item_fetched(item, self.has)
            self.has.add(str(item.get("id")))
        texts = [part.get("transcript") for part in item.get("content") or () if isinstance(part, Mapping)]
        return [*found, *self._transcription_events(item, texts)]

    def _transcription_events(self, item: Mapping[str, Any], texts: list[Any]) -> list[Event]:
        return [Transcribed(str(item.get("id")), text) for text in texts[:1] if isinstance(text, str)]

    def _item_done(self, item: Mapping[str, Any], response: str | None) -> list[Event]:
        item_id = item.get("id")
        if not isinstance(item_id, str) or response in self.outside:
            return []
        if item.get("type") != "function_call":
            return [ItemDone(item_id)]
        self.has.add(item_id)
        if item.get("status") != "completed" or not item.get("call_id"):
            return []  # cut while it was being written: no call
        call = Call(item["call_id"], item.get("name") or "", "tool", item.get("arguments") or "", "")
        return [CallMade(call, item_id, response)]

    # --- replies -----------------------------------------------------------------------------------------------------

    def _handle_response_created(self, response: Mapping[str, Any]) -> list[Event]:
        response_id = str(response.get("id"))
        if "conversation_id" in response and response["conversation_id"] is None:
            self.outside.add(response_id)
            return []
        mark = (response.get("metadata") or {}).get(MARK)
        mine = self.creating is not None and mark in (None, self.creating)
        if mine:
            if self.doomed == self.creating:
                self.unwanted.add(response_id)
                self.doomed = None
            self.creating = None
        self.active = self.last_response = response_id
        return [ReplyStarted(response_id, set(self.has), set(self.left))]

    def _handle_response_done(self, response: Mapping[str, Any]) -> list[Event]:
        response_id = str(response.get("id"))
        if response_id in self.outside:
            self.outside.discard(response_id)
            return []
        if self.active is not None and self.active not in (response_id, "?"):
            return []
        self.active = None
        found: list[Event] = []
        for item in response.get("output") or ():
            # A call that was whole when its response was cut may be told only here.
            if item.get("type") == "function_call":
                found += self._item_done(item, response_id)
        return [*found, ReplyEnded(response_id, str(response.get("status") or "completed"))]

    # --- errors ------------------------------------------------------------------------------------------------------

    def _error(self, error: Mapping[str, Any]) -> list[Event]:
        """Match an error to its cause: by event id, else by code."""
        code, about = error.get("code"), error.get("event_id")
        self.expected = False
        if code == "conversation_already_has_active_response" and about in (None, self.creating):
            # The winner is seen before its refusal, but on an attached call it may have begun before we came.
            self.expected = True
            if self.creating is not None:
                self.creating = self.doomed = None
                if self.active is None and self.attached:
                    self.active = "?"
            return []
        if code == "item_create_duplicate_item_id":
            self.expected = True  # it is there, which is what was asked for
            named = (
                about.partition("/")[2] if isinstance(about, str) else self._find_named_item(str(error.get("message")))
            )
            if named in self.left:
                self.has.add(named)
                return [Confirmed(named)]
            return []
        if code == "response_cancel_not_active":
            self.expected = True
            return []
        if not isinstance(about, str):
            return []
        kind, _, rest = about.partition("/")
        if kind in ("probe", "unprobe", "fetch") and self.search is not None:
            self.expected = True
            return self.search.handle_refused(kind, rest)
        if about == self.creating:
            self.creating = self.doomed = None
            return [ReplyRefused(error)]
        if kind == "settings" and self.sending is not None and rest == str(self.sending):
            self.sending = None
            if rest == "0":
                self.refused = error
            return [ChangeRefused(int(rest), error)]
        if kind == "item" and rest in self.left:
            self.has.add(rest)  # it will never be there; nothing may wait for it
            return [ItemRefused(rest, error)]
        return []

    def _find_named_item(self, message: str) -> str:
        return next((item_id for item_id in self.left - self.has if item_id in message), "")
