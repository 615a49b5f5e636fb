"""What takes time at the service: it announces its next event and goes on when it is told to.

A job is a generator that yields the type of the event it will tell next, and tells it (and changes what belongs to
it, in the same breath) when it is resumed. So whoever schedules jobs can hold one before any event, and a job that is
ended never leaves half a step behind.
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
    """What a job needs of the conversation it belongs to."""

    id: str
    answering: Answering
    session: dict[str, Any]
    attached: bool
    has_spoken: bool
    jobs: list[Job]

    @property
    def active(self) -> Job | None:
        """The response that writes to the conversation, if one is under way."""

    def tell(self, kind: str, **fields: object) -> None:
        """Tell the client something."""

    def new_id(self, prefix: str) -> str:
        """A fresh id."""

    def add(self, held: Held) -> None:
        """Put an item at the end of the conversation, and tell the client."""

    def previous_of(self, held: Held) -> str | None:
        """The id of the item before this one."""

    def truncate(self, held: Held, end_ms: int) -> None:
        """Cut an item's audio."""

    def play(self, response: Any, held: Held) -> None:
        """Let audio of a response go to the caller's ear."""

    def output_format(self) -> Format:
        """The format in which the model's audio is sent."""

    def ended(self, job: Any) -> None:
        """A response is over."""


class Job:
    """Something under way. `next` is the type of the event that the next step tells; None: it is over."""

    def __init__(self, conversation: Stage) -> None:
        self.conversation = conversation
        self.next: str | None = None
        self.about = ""
        """What this work is about: for a reply, the words it answers; for a transcript, the words."""
        self._steps: Steps | None = None

    @property
    def ready(self) -> bool:
        """Whether it can go on. One that waits for another becomes ready by itself."""
        return self.next is not None

    def start(self) -> None:
        """Find out what comes first."""
        self._steps = self.steps()
        self.next = next(self._steps, None)

    def step(self) -> None:
        """Tell the announced event, and announce the following one."""
        if self._steps is not None:
            self.next = next(self._steps, None)

    def end(self) -> None:
        """Go no further: nothing more is told."""
        steps, self._steps, self.next = self._steps, None, None
        if steps is not None:
            steps.close()
        if self in self.conversation.jobs:
            self.conversation.jobs.remove(self)

    def steps(self) -> Steps:
        """What this job does, one yield before each event."""
        raise NotImplementedError


class Transcribing(Job):
    """The transcript of something that was said. It comes beside the reply, or not at all."""

    def __init__(self, conversation: Stage, held: Held) -> None:
        super().__init__(conversation)
        self.held = held
        self.about = held.text or ""
        self.start()

    @property
    def ready(self) -> bool:
        """Beside the reply, or only after it: that is a habit of the service."""
        beside = self.conversation.answering.habits.transcribes == "at once"
        return self.next is not None and (beside or self.conversation.active is None)

    def steps(self) -> Steps:
        """The words in one delta and then whole, or a failure."""
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
    """Audio of a response that plays in the caller's ear, of a call whose media goes past the websocket."""

    def __init__(self, conversation: Stage, response: Job, response_id: str, held: Held) -> None:
        super().__init__(conversation)
        self.response, self.response_id, self.held = response, response_id, held
        self.played_ms: int | None = None
        """How much the caller has heard; None: all that there is."""
        self.start()

    @property
    def ready(self) -> bool:
        """Not before the response is over."""
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
