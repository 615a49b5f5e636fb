"""Jobs of the service: work that takes time, advanced event by event.

A job is a generator that yields the type of its next event, and emits the event (and changes its own state, in the same
step) when resumed. So a scheduler can hold a job before any event, and an ended job never leaves half a step behind.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from standfast._kits.testing.realtime.answering import Answering
from standfast._kits.testing.realtime.audio import Format
from standfast._kits.testing.realtime.items import Held

Steps = Generator[str, None, None]
TRANSCRIPTION = "conversation.item.input_audio_transcription"


class Stage(Protocol):
    """Interface of a conversation for its jobs."""

    id: str
    answering: Answering
    session: dict[str, Any]
    attached: bool
    has_spoken: bool
    jobs: list[Job]

    @property
    def active(self) -> Job | None:
        """The response that writes to the conversation, or None."""

    def tell(self, kind: str, **fields: object) -> None:
        """Tell the client something."""

    def new_id(self, prefix: str) -> str:
        """A fresh id."""

    def add(self, held: Held) -> None:
        """Put an item at the end of the conversation, and tell the client."""

    def previous_of(self, held: Held) -> str | None:
        """Return the id of the previous item."""

    def truncate(self, held: Held, end_ms: int) -> None:
        """Cut an item's audio."""

    def play(self, response: Any, held: Held) -> None:
        """Let audio of a response go to the caller's ear."""

    def output_format(self) -> Format:
        """Format of the model's audio."""

    def ended(self, job: Any) -> None:
        """A response is over."""


class Job:
    """Work under way. `next` is the type of the next step's event; None: the job has ended."""

    def __init__(self, conversation: Stage) -> None:
        self.conversation = conversation
        self.next: str | None = None
        self.about = ""
        """Subject of the job: for a reply, the answered words; for a transcript, its words."""
        self._steps: Steps | None = None

    @property
    def ready(self) -> bool:
        """True if it can continue. A job that waits for another becomes ready by itself."""
        return self.next is not None

    def start(self) -> None:
        """Compute the first event's type."""
        self._steps = self.steps()
        self.next = next(self._steps, None)

    def step(self) -> None:
        """Emit the announced event, and announce the following one."""
        if self._steps is not None:
            self.next = next(self._steps, None)

    def end(self) -> None:
        """Stop: no further event is emitted."""
        steps, self._steps, self.next = self._steps, None, None
        if steps is not None:
            steps.close()
        if self in self.conversation.jobs:
            self.conversation.jobs.remove(self)

    def steps(self) -> Steps:
        """Run the job, with a yield before each event."""
        raise NotImplementedError


class Transcribing(Job):
    """Transcript of speech, during the reply or missing."""

    def __init__(self, conversation: Stage, held: Held) -> None:
        super().__init__(conversation)
        self.held = held
        self.about = held.text or ""
        self.start()

    @property
    def ready(self) -> bool:
        """True at once or only after the reply, by the service's habit."""
        beside = self.conversation.answering.habits.transcribes == "at once"
        return self.next is not None and (beside or self.conversation.active is None)

    def steps(self) -> Steps:
        """Emit the words in a delta and then whole, or a failure."""
        held, tell = self.held, self.conversation.tell
        at: dict[str, Any] = {"item_id": held.id, "content_index": 0}
        if held.text is None:
            yield f"{TRANSCRIPTION}.failed"
            error = {
                "type": "server_error",
                "code": "audio_unintelligible",
                "message": "The audio could not be transcribed.",
            }
            return tell(f"{TRANSCRIPTION}.failed", **at, error={**error, "param": None})
        if held.text:
            yield f"{TRANSCRIPTION}.delta"
            tell(f"{TRANSCRIPTION}.delta", **at, delta=held.text)
        yield f"{TRANSCRIPTION}.completed"
        for part in held.item["content"]:
            part["transcript"] = held.text
        usage = {"type": "duration", "seconds": held.audio_ms / 1000}
        tell(f"{TRANSCRIPTION}.completed", **at, transcript=held.text, usage=usage)


class Playing(Job):
    """Playback of a response's audio to the caller, in a call with media outside the websocket."""

    def __init__(self, conversation: Stage, response: Job, response_id: str, held: Held) -> None:
        super().__init__(conversation)
        self.response, self.response_id, self.held = response, response_id, held
        self.played_ms: int | None = None
        """Milliseconds heard by the caller; None: all available audio."""
        self.start()

    @property
    def ready(self) -> bool:
        """True once the response has ended."""
        return self.next is not None and self.response.next is None

    def steps(self) -> Steps:
        """It stops by itself when the response is over and everything was played."""
        yield "output_audio_buffer.stopped"
        self.conversation.tell("output_audio_buffer.stopped", response_id=self.response_id)

    def clear(self) -> None:
        """Stop now. The service knows what was played and truncates the item itself."""
        self.end()
        self.conversation.tell("output_audio_buffer.cleared", response_id=self.response_id)
        if self.held.audio:
            played_ms = self.held.audio_ms if self.played_ms is None else min(self.played_ms, self.held.audio_ms)
            self.conversation.truncate(self.held, played_ms)
