"""The service without a network: a session, its conversation, and its jobs.

A plain state machine. `take` processes a client event like the service; every event for the client goes to `tell`, in
order. Work that takes time (a response, a transcript, playing audio) is a `Job`: it announces its next event, and waits
for `step`. So a schedule, a simulator or a socket decides about the times, and this file about the events.

It is made from the documentation and from public reports about the service; `answering.Habits` are the points on which
reports differ.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from standfast._kits.testing.loopback.answers import Asked
from standfast._kits.testing.realtime import checks, refusals, settings
from standfast._kits.testing.realtime.answering import Answering
from standfast._kits.testing.realtime.audio import Format, format_of
from standfast._kits.testing.realtime.detection import ONSET_MS, Detector, Started
from standfast._kits.testing.realtime.items import Held, as_seen, render_item
from standfast._kits.testing.realtime.jobs import Job, Playing, Transcribing
from standfast._kits.testing.realtime.refusals import Refused
from standfast._kits.testing.realtime.responding import Responding
from standfast._src.base.json_values import Item, copy_json

Event = dict[str, Any]
SESSION_LIMIT_S = 3_600.0
COMMIT_MS_MIN = 100


class Conversation:
    """A session of the service. `tell` is called with each event for the client."""

    def __init__(
        self,
        answering: Answering,
        tell: Callable[[Event], None],
        *,
        name: str = "1",
        model: str = "gpt-realtime-2.1",
        attached: bool = False,
        limit_s: float = SESSION_LIMIT_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.answering, self._tell, self.name, self._now = answering, tell, name, now
        self.limit_s = limit_s
        self.attached = attached
        """True if media bypass the websocket, as for calls by phone or WebRTC."""
        self._counts = {prefix: count(1) for prefix in ("event", "item", "resp", "call", "sess", "conv")}
        self.id = self.new_id("conv")
        self.session = settings.build_session(self.new_id("sess"), model, round(now() + limit_s))
        self.items: list[Held] = []
        self.jobs: list[Job] = []
        self.active: Responding | None = None
        """The response that writes to the conversation, if one is under way."""
        self.has_spoken = False
        self.refused: list[str] = []
        """The codes of everything that was refused."""
        self._ids: set[str] = set()
        self._answered = 0
        self._detector = Detector()
        self._buffer = b""
        self._buffer_from_ms = 0
        self._speech: tuple[str, int] | None = None
        self._idle_from_ms: int | None = None

    # --- what the client sends ---------------------------------------------------------------------------------------

    def greeting(self) -> Event:
        """Return the first event of every connection."""
        return {"type": "session.created", "event_id": self.new_id("event"), "session": copy_json(self.session)}

    def take(self, frame: object) -> None:
        """Process a client event, or refuse it."""
        event_id = frame.get("event_id") if isinstance(frame, dict) else None
        try:
            self._take(checks.event(frame))
        except Refused as refused:
            self.refuse(refused, event_id if isinstance(event_id, str) else None)

    def refuse(self, refused: Refused, event_id: str | None = None) -> None:
        """Send a refusal to the client."""
        self.refused.append(refused.code)
        self.tell("error", error=refused.error(event_id))

    def _take(self, frame: Event) -> None:
        match frame["type"]:
            case "session.update":
                given = checks.require_field(frame, "session", "")
                self.session = settings.apply_update(self.session, given, has_spoken=self.has_spoken)
                self.tell("session.updated", session=copy_json(self.session))
            case "conversation.item.create":
                self._create_item(frame)
            case "conversation.item.delete":
                held = self._find_item(frame, "delete")
                self.items.remove(held)
                self.tell("conversation.item.deleted", item_id=held.id)
            case "conversation.item.retrieve":
                held = self._find_item(frame, "retrieve")
                self.tell("conversation.item.retrieved", item=render_item(held, self._format("output"), whole=True))
            case "conversation.item.truncate":
                self._truncate(frame)
            case "response.create":
                self._create_response(frame)
            case "response.cancel":
                self._cancel(frame.get("response_id"))
            case "input_audio_buffer.append":
                self.hear(checks.audio(checks.require_field(frame, "audio", "")))
            case "input_audio_buffer.commit":
                self._commit_by_hand()
            case "input_audio_buffer.clear":
                self._forget_input()
                self.tell("input_audio_buffer.cleared")
            case "output_audio_buffer.clear":
                self._clear_output()

    # --- items -------------------------------------------------------------------------------------------------------

    def _create_item(self, frame: Event) -> None:
        item = checks.item(checks.require_field(frame, "item", ""))
        place, previous = self._place(frame.get("previous_item_id"))
        item_id = item.setdefault("id", None) or self.new_id("item")
        item["id"] = item_id
        taken = self._ids if not self.answering.habits.reuses_deleted_ids else {held.id for held in self.items}
        if item_id in taken:
            raise refusals.duplicate_item(item_id)
        if item["type"] == "function_call_output" and item["call_id"] not in self._call_ids():
            raise refusals.no_call(item["call_id"])
        if item["type"] == "function_call":
            item.setdefault("call_id", self.new_id("call"))
        self.add(Held(item), place, previous)
        self.tell("conversation.item.done", previous_item_id=previous, item=render_item(self.items[place]))

    def _place(self, after: object) -> tuple[int, str | None]:
        """Return the place of a new item, and the id of the previous one."""
        if after is None:
            return len(self.items), self.items[-1].id if self.items else None
        after = checks.text(after, "previous_item_id")
        if after == "root":
            return 0, None
        for place, held in enumerate(self.items):
            if held.id == after:
                return place + 1, after
        raise refusals.no_previous_item(after)

    def add(self, held: Held, place: int | None = None, previous: str | None = None) -> None:
        """Insert an item into the conversation, by default at the end, and notify the client."""
        if place is None:
            place, previous = self._place(None)
        self.items.insert(place, held)
        self._ids.add(held.id)
        self.tell("conversation.item.added", previous_item_id=previous, item=render_item(held))

    def previous_of(self, held: Held) -> str | None:
        """Return the id of the previous item."""
        place = self.items.index(held) if held in self.items else 0
        return self.items[place - 1].id if place else None

    def _find_item(self, frame: Event, doing: str) -> Held:
        item_id = checks.text(checks.require_field(frame, "item_id", ""), "item_id")
        for held in self.items:
            if held.id == item_id:
                return held
        raise refusals.no_item(doing, item_id)

    def _truncate(self, frame: Event) -> None:
        held = self._find_item(frame, "truncate")
        index = checks.number(checks.require_field(frame, "content_index", ""), "content_index")
        end_ms = checks.number(checks.require_field(frame, "audio_end_ms", ""), "audio_end_ms")
        if held.item.get("role") != "assistant" or not held.audio:
            raise refusals.not_truncatable()
        if index != 0:
            raise Refused("invalid_value", f"Invalid 'content_index': {index}.", param="content_index")
        if end_ms > held.left_ms:
            raise refusals.already_shorter(held.left_ms, end_ms)
        self.truncate(held, end_ms)

    def truncate(self, held: Held, end_ms: int) -> None:
        """Cut an item's audio, and the service's text of it."""
        held.heard_ms = end_ms
        self.tell("conversation.item.truncated", item_id=held.id, content_index=0, audio_end_ms=end_ms)

    def _call_ids(self) -> set[str]:
        return {held.item["call_id"] for held in self.items if held.item["type"] == "function_call"}

    # --- responses ---------------------------------------------------------------------------------------------------

    def _create_response(self, frame: Event) -> None:
        params = checks.response(frame.get("response"))
        beside = params.get("conversation") == "none"
        if self.active is not None and not beside:
            named = self.answering.habits.names_refused_response
            raise refusals.active_response(self.active.id, names_event=named)
        self.respond(params)

    def respond(self, params: Event | None = None) -> None:
        """Begin a response, in the conversation or out of band."""
        params = params or {}
        beside = params.get("conversation") == "none"
        job = Responding(self, self.new_id("resp"), params, self._build_asked(params))
        if not beside:
            self.active = job
            self._answered = len(self.items)
        job.begin()
        self.jobs.append(job)

    def _build_asked(self, params: Event) -> Asked:
        """Return the model's input: the conversation, or the input given with a response."""
        known = {held.id: held for held in self.items}
        seen = [as_seen(held) for held in self.items]
        new = seen[min(self._answered, len(seen)) :]
        if params.get("input") is not None:
            given = []
            for place, one in enumerate(checks.array(params["input"], "response.input")):
                where = f"response.input[{place}]"
                if checks.mapping(one, where).get("type") == "item_reference":
                    if one.get("id") not in known:
                        raise refusals.no_item("retrieve", str(one.get("id")))
                    given.append(as_seen(known[one["id"]]))
                else:
                    given.append(as_seen(Held({"id": self.new_id("item"), **checks.item(one, where)})))
            seen = new = given
        body = {**copy_json(self.session), **copy_json(params)}
        return Asked(body, tuple(seen), tuple(new))

    def _cancel(self, response_id: object) -> None:
        for job in self.jobs:
            if isinstance(job, Responding) and (job.id == response_id or (response_id is None and job is self.active)):
                return job.stop("cancelled", "client_cancelled")
        raise refusals.nothing_to_cancel()

    def ended(self, job: Responding) -> None:
        """A response is over."""
        if self.active is job:
            self.active = None
            self._idle_from_ms = self._detector.heard_ms

    # --- what is heard -----------------------------------------------------------------------------------------------

    def hear(self, data: bytes) -> None:
        """More audio of the user."""
        kind = self._format("input")
        self._buffer += data
        detection = self.session["audio"]["input"]["turn_detection"]
        if detection is None:
            return
        for noticed in self._detector.feed(kind.to_pcm(data), detection):
            if isinstance(noticed, Started):
                self._speech_started(noticed.at_ms, detection)
            else:
                self._speech_stopped(noticed.at_ms, detection)
        if self._speech is None:
            self._wait_idly(detection)
            # Silence: only possible padding of the next speech is kept.
            padding_ms = int(detection.get("prefix_padding_ms") or 300) + ONSET_MS
            self._drop_until(self._detector.heard_ms - padding_ms)

    def _speech_started(self, at_ms: int, detection: Event) -> None:
        # What was committed is gone from the buffer: speech that follows at once begins behind it.
        at_ms = max(at_ms, self._buffer_from_ms)
        self._speech = self.new_id("item"), at_ms
        self.tell("input_audio_buffer.speech_started", audio_start_ms=at_ms, item_id=self._speech[0])
        if detection.get("interrupt_response"):
            if self.active is not None:
                self.active.stop("cancelled", "turn_detected")
            if self.attached:
                self._stop_playing()

    def _speech_stopped(self, at_ms: int, detection: Event) -> None:
        assert self._speech is not None
        item_id, start_ms = self._speech
        self.tell("input_audio_buffer.speech_stopped", audio_end_ms=at_ms, item_id=item_id)
        self._commit(item_id, self._cut_out(start_ms, at_ms))
        if detection.get("create_response") and self.active is None:
            self.respond()

    def _wait_idly(self, detection: Event) -> None:
        limit_ms, since_ms = detection.get("idle_timeout_ms"), self._idle_from_ms
        if limit_ms is None or since_ms is None or self.active is not None:
            return
        now_ms = self._detector.heard_ms
        if now_ms - since_ms < limit_ms:
            return
        item_id = self.new_id("item")
        start_ms = max(since_ms, self._buffer_from_ms)
        times = {"audio_start_ms": since_ms, "audio_end_ms": now_ms}
        self.tell("input_audio_buffer.timeout_triggered", **times, item_id=item_id)
        self._commit(item_id, self._cut_out(start_ms, now_ms))
        self.respond()

    def _commit_by_hand(self) -> None:
        kind = self._format("input")
        if len(self._buffer) < COMMIT_MS_MIN * kind.bytes_per_ms:
            raise refusals.empty_buffer(len(self._buffer) / kind.bytes_per_ms)
        item_id = self._speech[0] if self._speech is not None else self.new_id("item")
        data, self._buffer = self._buffer, b""
        self._buffer_from_ms += kind.ms(data)
        self._commit(item_id, data)

    def _commit(self, item_id: str, data: bytes) -> None:
        """Make an item of buffered speech. Its transcript comes later, if at all."""
        self._speech, self._idle_from_ms = None, None
        self._detector.forget()
        content = [{"type": "input_audio", "transcript": None}]
        item: Item = {"id": item_id, "object": "realtime.item", "type": "message", "status": "completed"}
        held = Held({**item, "role": "user", "content": content}, audio=data, kind=self._format("input"))
        held.text = self._transcribe(held)
        _, previous = self._place(None)
        self.tell("input_audio_buffer.committed", previous_item_id=previous, item_id=item_id)
        self.add(held)
        self.tell("conversation.item.done", previous_item_id=previous, item=render_item(held))
        if self.session["audio"]["input"]["transcription"] is not None:
            self.jobs.append(Transcribing(self, held))

    def _transcribe(self, held: Held) -> str | None:
        queued = self.answering.transcripts
        if queued:
            return queued.pop(0)
        heard = self.answering.ears.hear(held.audio, held.kind)
        return heard or f"(speech of {held.kind.ms(held.audio)} ms)"

    def _cut_out(self, start_ms: int, end_ms: int) -> bytes:
        """Remove a stretch and all earlier audio from the buffer; return the stretch."""
        self._drop_until(start_ms)
        size = (end_ms - self._buffer_from_ms) * self._format("input").bytes_per_ms
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        self._buffer_from_ms = end_ms
        return data

    def _drop_until(self, at_ms: int) -> None:
        drop_ms = at_ms - self._buffer_from_ms
        if drop_ms > 0:
            self._buffer = self._buffer[drop_ms * self._format("input").bytes_per_ms :]
            self._buffer_from_ms = at_ms

    def _forget_input(self) -> None:
        self._buffer_from_ms += self._format("input").ms(self._buffer)
        self._buffer, self._speech = b"", None
        self._detector.forget()

    # --- what is played, where media goes past the websocket ----------------------------------------------------------

    def play(self, response: Responding, held: Held) -> None:
        """Play a response's audio to the caller; the client is only notified of it."""
        if not any(isinstance(job, Playing) and job.response is response for job in self.jobs):
            self.jobs.append(Playing(self, response, response.id, held))
            self.tell("output_audio_buffer.started", response_id=response.id)

    def _clear_output(self) -> None:
        if not self.attached:
            message = "'output_audio_buffer.clear' is only supported for WebRTC and SIP."  # modelled
            raise Refused("invalid_value", message, param="type")
        self._stop_playing()

    def _stop_playing(self) -> None:
        for job in [job for job in self.jobs if isinstance(job, Playing)]:
            job.clear()

    # --- small things ------------------------------------------------------------------------------------------------

    def step(self, job: Job) -> None:
        """Advance a job by an event."""
        job.step()
        if job.next is None and job in self.jobs:
            self.jobs.remove(job)

    def run(self) -> None:
        """Run every job to its end, in turns."""
        while ready := [job for job in self.jobs if job.ready]:
            for job in ready:
                self.step(job)

    def tell(self, kind: str, **fields: object) -> None:
        """Tell the client something."""
        self._tell({"type": kind, "event_id": self.new_id("event"), **fields})

    def new_id(self, prefix: str) -> str:
        """A fresh id, different in every conversation of a server."""
        return f"{prefix}_{self.name}x{next(self._counts[prefix]):05d}"

    def now(self) -> float:
        """Seconds since 1970."""
        return self._now()

    def _format(self, side: str) -> Format:
        return format_of(self.session["audio"][side]["format"])

    def output_format(self) -> Format:
        """Format of the model's audio."""
        return self._format("output")

    def said(self) -> Iterator[tuple[str, str]]:
        """Yield role and heard words of every message; words of speech as recognised."""
        for held in self.items:
            if held.item["type"] == "message" and held.heard_text():
                yield held.item["role"], held.heard_text()
