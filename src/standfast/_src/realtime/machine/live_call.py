"""A voice call with its connection: events of both, and the frames to send.

`VoiceCall` knows nothing of connections, and a `ConnectionState` nothing beyond its connection; only this module knows
both. It never waits, and time is an argument. Audio, transcript and text deltas take a short path: they only touch a
buffer of their item, until a threshold is crossed or the item ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from standfast._src.realtime.machine.advance import advance
from standfast._src.realtime.machine.connection_state import ConnectionState
from standfast._src.realtime.machine.due import audio_frame, due, frames, item_text_of, view, wants_a_look
from standfast._src.realtime.machine.events import (
    CallMade,
    ChangeAsked,
    ChangeMade,
    ChangeRefused,
    Do,
    Event,
    Frame,
    HungUp,
    Interrupted,
    Judged,
    Lost,
    Opened,
    Overdue,
    Played,
    Shown,
    Spoke,
)
from standfast._src.realtime.machine.gap_recovery import GapSearch
from standfast._src.realtime.machine.input_buffer import TAIL_MS, InputBuffer
from standfast._src.realtime.machine.opaque_connection import OpaqueConnection
from standfast._src.realtime.machine.playback import Playback
from standfast._src.realtime.machine.session_settings import ALL_MS, SPOKEN_MS_PER_CHAR
from standfast._src.realtime.machine.voice_call import VoiceCall
from standfast._src.realtime.machine.wire_format import changed_settings

AUDIO_KEPT_BYTES_MAX = 2_880_000
"""A minute of 24 kHz pcm16: how much input is kept to be said again."""


@dataclass(slots=True)
class Buffer:
    """Generated text and audio of an item so far."""

    pieces: list[str] = field(default_factory=list)
    size: int = 0
    audio_bytes: int = 0
    counted_bytes: int = 0
    """Bytes already counted by the connection, and by the call with the next `fold`."""
    taken_bytes: int = 0
    """Position of the furthest reader in the audio: audio taken by several readers is heard once."""
    written: bool = False
    fresh: bool = False
    """True if text, or counted audio, arrived since the last `fold`."""
    look_at: int = 0
    """Size of the text at the guardrails' next check."""

    def text(self) -> str:
        """Return the whole text."""
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


class LiveCall:
    """A voice call with at most one connection."""

    def __init__(self, talk: VoiceCall, *, debounce: int, announce: bool = False) -> None:
        self.talk = talk
        self.link: ConnectionState | None = None
        self.link_before: ConnectionState | None = None
        """The last lost connection, with the ranges of audio not yet understood."""
        self.playback = Playback()
        self.hearing = InputBuffer(AUDIO_KEPT_BYTES_MAX)
        self.buffers: dict[str, Buffer] = {}
        self.out_rate = 48
        self.debounce, self.announce = debounce, announce
        self.handoff_texts: dict[int, str] = {}
        """Output of the handoff of each change, for its completion."""

    # --- what happens ------------------------------------------------------------------------------------------------

    def receive(self, frame: Mapping[str, Any], now: float) -> list[Shown]:
        """Process a server frame other than a delta."""
        link = self.link
        if link is None:
            return []
        shown: list[Shown] = []
        for event in link.receive(frame):
            shown += self.tell(event, now)
        if frame.get("type") == "input_audio_buffer.speech_started" and link.interrupts and not link.attached:
            shown += self.interrupt(now, by_server=True)
        if link.attached:
            shown += self._played_elsewhere(frame, link, now)
        shown += self._advance_connection(now)
        if frame.get("type") == "error" and not link.expected:
            shown.append(Shown("error", "", frame.get("error")))
        if link.gap is not None:
            shown.append(Shown("gap", link.gap))
            link.gap = None
        return shown

    def _played_elsewhere(self, frame: Mapping[str, Any], link: ConnectionState, now: float) -> list[Shown]:
        """Process playback reports of the server, which plays the audio of an attached call itself."""
        kind, response = frame.get("type"), frame.get("response_id")
        if kind == "output_audio_buffer.stopped":
            heard = {part.id: ALL_MS for part in self.talk.open if part.response == response and part.kind == "spoken"}
            return self.tell(Played(heard), now)
        if kind == "output_audio_buffer.cleared":
            return self.tell(Interrupted(self.heard(now)), now)
        if kind == "conversation.item.truncated":
            item_id = str(frame.get("item_id"))
            return self.tell(Interrupted({item_id: int(frame.get("audio_end_ms") or 0)}, item_id), now)
        return []

    def tell(self, event: Event, now: float) -> list[Shown]:
        """Apply an event to the call; return what to show."""
        if not isinstance(event, CallMade):
            self.fold()
        before = self.talk
        self.talk, shown = advance(self.talk, event)
        if isinstance(event, Judged | HungUp | Interrupted):
            self._owe(before)
            if isinstance(event, Judged) and event.tripped and self.link is not None:
                part = before.part(event.item_id)
                if part is not None and part.response is not None:
                    self.link.unwanted.add(part.response)
                    self.link.tripped.add(part.response)
        if before.open is not self.talk.open and (self.buffers or self.playback.tracks):
            self._tidy()
        return list(shown)

    def _owe(self, before: VoiceCall) -> None:
        """Record truncations owed to the server for replies cut in this step, history included."""
        if self.link is None:
            return
        after = {part.id: part for part in self.talk.open}
        for part in before.open:
            if part.kind != "spoken" or part.cut:
                continue
            now = after.get(part.id)
            if now is not None and now.cut:
                self.link.owe(now)
            elif now is None:
                told = [one.extra for one in self.talk.ledger.since(len(before.ledger)) if one.extra]
                heard = next((extra["heard_ms"] for extra in told if extra.get("id") == part.id), 0)
                if heard < part.total_ms or not part.total_ms:
                    self.link.owe(type(part)(part.id, "spoken", heard_ms=heard, response=part.response))

    def _advance_connection(self, now: float) -> list[Shown]:
        """Complete confirmed changes of agent, and mark a fully seeded connection."""
        link, shown = self.link, []
        if link is None:
            return []
        while self.talk.changes and link.ready and link.sending is None:
            number = self.talk.changes[0].number
            wanted = link.updates.get(number)
            if wanted is None or (number != link.confirmed and changed_settings(link.applied, wanted)):
                break
            link.applied = wanted  # to what it already has, a change is made at once
            shown += self.tell(ChangeMade(number, self.handoff_texts.pop(number, None)), now)
        if not link.seeded and link.ready:
            link.seeded = all(item_id in link.has for item_id, _ in view(self.talk, link))
            if link.seeded:
                link.has |= link.base_ids  # so that questions about one of them are answered
        return shown

    def follow_up(self, now: float) -> list[Shown]:
        """Continue after an event other than a frame; return what to show."""
        return self._advance_connection(now)

    # --- the short lane ----------------------------------------------------------------------------------------------

    def audio(self, item_id: str, size: int) -> int:
        """Count received audio bytes of an item; return the new total, or -1 for unwanted audio."""
        buffer = self.buffers.get(item_id)
        if buffer is None:
            buffer = self.buffers[item_id] = Buffer()
        end = buffer.audio_bytes = buffer.audio_bytes + size
        link = self.link
        if link is None or not link.unwanted:
            return end
        response = link.reply_of.get(item_id, link.active)
        return end if response is None or response not in link.unwanted else -1

    def _count(self) -> None:
        """Add newly received audio to the connection's totals. A delta itself only changes its buffer."""
        for item_id, buffer in self.buffers.items():
            new = buffer.audio_bytes - buffer.counted_bytes
            if new:
                buffer.counted_bytes += new
                buffer.fresh = True
                if self.link is not None:
                    self.link.received[item_id] = self.link.received.get(item_id, 0) + new

    def words(self, item_id: str, text: str, *, written: bool = False, now: float = 0.0) -> bool:
        """Some words of an item came; whether the guardrails want to look now."""
        buffer = self.buffers.get(item_id)
        if buffer is None:
            buffer = self.buffers[item_id] = Buffer(written=written, look_at=self.debounce)
        link = self.link
        if link is not None and link.attached and not written and not isinstance(link, OpaqueConnection):
            # Its audio goes past us. How long it is can only be guessed, and when it began is when its words came.
            buffer.audio_bytes += len(text) * SPOKEN_MS_PER_CHAR * self.out_rate
            self.playback.take(item_id, len(text) * SPOKEN_MS_PER_CHAR, now)
        buffer.pieces.append(text)
        buffer.size += len(text)
        buffer.written = buffer.written or written
        buffer.fresh = True
        if buffer.size < buffer.look_at:
            return False
        buffer.look_at = (buffer.size // max(self.debounce, 1) + 1) * max(self.debounce, 1)
        return True

    def fold(self) -> None:
        """Pass the content of the buffers to the call."""
        self._count()
        for item_id, buffer in self.buffers.items():
            if buffer.fresh:
                buffer.fresh = False
                event = Spoke(item_id, buffer.text(), buffer.audio_bytes // self.out_rate, buffer.written)
                self.talk, _ = advance(self.talk, event)

    def _tidy(self) -> None:
        """Drop buffers and tracks of items that became history."""
        here = {part.id for part in self.talk.open}
        self._count()
        for item_id in [one for one in self.buffers if one not in here and not self.buffers[one].fresh]:
            del self.buffers[item_id]
        for item_id in [one for one in self.playback.tracks if one not in here]:
            self.playback.forget(item_id)

    # --- what is heard -----------------------------------------------------------------------------------------------

    def heard(self, now: float) -> dict[str, int]:
        """Return the heard duration of each open reply."""
        return {part.id: self.playback.heard_ms(part.id, now) for part in self.talk.open if part.is_playing}

    def received_ms(self) -> dict[str, float]:
        """Return the audio duration of each open reply, in order of arrival."""
        self.fold()
        return {part.id: float(part.total_ms) for part in self.talk.open if part.kind == "spoken" and part.total_ms}

    def listen(self, now: float) -> list[Shown]:
        """Update the heard durations. A reply heard to its end settles."""
        self.fold()
        heard = self.heard(now)
        over = [
            part.id
            for part in self.talk.open
            if part.done and part.is_playing and self.playback.is_over(part.id, part.total_ms, now)
        ]
        # A player is done with the whole of what it was given, whatever the rounding says.
        for item_id in over:
            track = self.playback.tracks[item_id]
            if not track.missing_ms:
                heard[item_id] = ALL_MS
        return self.tell(Played(heard, over), now) if heard else []

    def interrupt(self, now: float, *, by_server: bool = False) -> list[Shown]:
        """Stop replies, including a requested one that has not begun."""
        self.fold()
        shown = self.tell(Interrupted(self.heard(now)), now)
        for one in shown:
            if one.name == "audio_interrupted":
                self.playback.stop(one.of, now)
        link = self.link
        if link is None:
            return shown
        if link.attached and not by_server:
            link.stop_playing = True
        if link.active is not None:
            link.unwanted.add(link.active)
            if by_server:
                link.cancelled.add(link.active)
        if link.creating is not None and not by_server:
            link.doomed = link.creating
        return shown

    def record_verdict(self, item_id: str, upto: int, tripped: bool, note: str, now: float) -> list[Shown]:
        """The guardrails have looked; a trip stops the reply before anything is sent."""
        self.fold()
        part = self.talk.part(item_id)
        link = self.link
        newer = link is not None and part is not None and link.last_response not in (None, part.response)
        event = Judged(item_id, upto, tripped, self.playback.heard_ms(item_id, now), None if newer else note)
        shown = self.tell(event, now)
        for one in shown:
            if one.name == "audio_interrupted":
                self.playback.stop(one.of, now)
        return shown

    def look(self) -> bool:
        """Return whether a guardrail check is due. Folds the buffers first."""
        self.fold()
        return any(wants_a_look(part, self.debounce) for part in self.talk.open)

    # --- what is said ------------------------------------------------------------------------------------------------

    def speak(self, data: bytes, *, commit: bool = False) -> Frame | None:
        """Add input audio; return its frame if sendable at once, else keep it until the server has the history."""
        place = self.hearing.append(data) if data else self.hearing.end
        link = self.link
        if link is None:
            return None
        link.pending.append((place, data, commit))
        if len(link.pending) > 1 or not link.seeded:
            return None
        self._forget_understood()
        return audio_frame(link)

    def _forget_understood(self) -> None:
        """Drop audio that is no longer needed: before any open speech, and before the last second."""
        link = self.link
        if link is None:
            return
        needed = [part.audio[0] for part in self.talk.open if part.kind == "said" and part.audio and part.text is None]
        needed += [start for start, _ in link.spoke.values()]
        if link.speech is not None:
            needed.append(link.speech[1])
        if link.uncommitted is not None:
            needed.append(link.uncommitted)
        self.hearing.forget(min([*needed, self.hearing.end - TAIL_MS * link.in_rate]))

    # --- connections -------------------------------------------------------------------------------------------------

    def open(self, link: ConnectionState, now: float) -> list[Shown]:
        """There is a new connection."""
        again: set[str] = set()
        before = self.link_before
        if before is not None and not link.attached:
            again = self._say_again(link, before)
        elif before is None and not link.attached:
            link.pending.extend((place, data, False) for place, data in self.hearing.take(0, self.hearing.end))
        shown = self.tell(Opened(link.epoch, again, link.attached), now)
        if link.attached:
            # Its server keeps the conversation: what it ever had it has.
            link.has |= {part.id for part in self.talk.open if part.known}
            link.has |= {str((entry.extra or {}).get("id")) for entry in self.talk.ledger}
            link.has |= {one.item_id for one in self.talk.calls}
            link.seeded = True
            if link.epoch > 1:
                link.search = GapSearch(
                    link.epoch, {part.id for part in self.talk.open if part.known and not part.settled}
                )
        else:
            own = self.talk.ledger[: link.base_upto]
            link.base_ids = frozenset(str((entry.extra or {}).get("id")) for entry in own)
        self.link = link
        self.out_rate = self.playback.bytes_per_ms = link.out_rate
        return [*shown, *self._advance_connection(now)]

    def _say_again(self, link: ConnectionState, before: ConnectionState) -> set[str]:
        """Queue unanswered or untranscribed speech for the new connection, in order.

        The selection uses the understood ranges, not the end of the last utterance: repeated speech may be lost again.
        """
        asked = {ask.id for ask in self.talk.asks}
        again: set[str] = set()
        wanted: list[tuple[int, int]] = list(before.spoke.values())
        for part in self.talk.open:
            lost = part.kind == "said" and part.text is None and part.id in asked
            if lost and part.audio is not None and self.hearing.has(*part.audio):
                again.add(part.id)
                wanted.append(part.audio)
        understood = [one for one in before.heard_ranges if one not in wanted]
        ends = [start for start, _ in wanted] if not before.detects else []
        wanted += [(place, place + len(data)) for place, data, _ in before.pending]
        given_to = before.stream[-1][1] + before.stream[-1][2] if before.stream else self.hearing.start
        tail = [given_to - TAIL_MS * before.in_rate]
        if before.speech is not None:
            tail.append(before.speech[1])
        if before.uncommitted is not None:
            tail.append(before.uncommitted)
        wanted.append((max(min(tail), 0), self.hearing.end))
        for start, end in subtract_ranges(wanted, understood):
            link.pending.extend((place, data, False) for place, data in self.hearing.take(start, end))
            if start in ends and link.pending:
                place, data, _ = link.pending.pop()
                link.pending.append((place, data, True))
        link.heard_ranges = understood
        return again

    def lose(self, now: float) -> list[Shown]:
        """Record the loss of the connection."""
        if self.link is None:
            return []
        self.fold()
        self.link_before, self.link = self.link, None
        return self.tell(Lost(self.link_before.attached), now)

    def overdue(self, now: float) -> list[Shown]:
        """Handle a silent server: request a reply that the server should have begun itself; treat a requested one as
        refused.
        """
        link = self.link
        if link is None:
            return []
        for event in link.search.give_up() if link.search is not None else ():
            self.tell(event, now)
        refused = link.creating is not None
        link.creating = link.doomed = None
        link.spoke.clear()
        return [*self.tell(Overdue(refused), now), *self._advance_connection(now)]

    # --- what is due -------------------------------------------------------------------------------------------------

    def due(self) -> list[Do]:
        """Return the effects besides sending."""
        return due(self.talk, self.link, debounce=self.debounce)

    def frames(self) -> list[Frame]:
        """Return the frames missing at the server, in order."""
        if self.link is None:
            return []
        self._count()
        return frames(self.talk, self.link, announce=self.announce)

    def sent(self, frame: Frame) -> None:
        """A frame is being handed to the connection."""
        assert self.link is not None
        text = None
        kind, _, rest = frame.key.partition("/")
        if kind in ("item", "again"):
            item_id = rest.partition("/")[0]
            part = self.talk.part(item_id)
            if (part is not None and part.kind == "spoken") or item_id in self.link.given:
                text = item_text_of(frame)
        self.link.note_sent(frame.key, frame.body, text)

    def change(self, agent: str, now: float, *, call_id: str | None = None, text: str | None = None) -> list[Shown]:
        """Request a change of agent; `text` becomes the output of the handoff."""
        shown = self.tell(ChangeAsked(agent, call_id), now)
        if text is not None and self.talk.changes:
            self.handoff_texts[self.talk.changes[-1].number] = text
        return shown

    def refuse_change(self, number: int, why: object, text: str | None, now: float) -> list[Shown]:
        """Refuse a change whose agent could not be resolved."""
        self.handoff_texts.pop(number, None)
        return [*self.tell(ChangeRefused(number, why, text), now), *self._advance_connection(now)]


def subtract_ranges(wanted: list[tuple[int, int]], understood: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the ranges in `wanted` without those in `understood`, sorted and disjoint."""
    found: list[tuple[int, int]] = []
    at = 0
    for start, end in sorted(wanted):
        start = max(start, at)
        for low, high in sorted(understood):
            if low <= start < high:
                start = high
            elif start < low < end:
                found.append((start, low))
                start = high
        if start < end:
            found.append((start, end))
        at = max(at, start, end)
    return found
