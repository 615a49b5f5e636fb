"""Behaviour of the model behind the loopback realtime server: words, voice, hearing and habits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from standfast._kits.testing.loopback.answers import Rule
from standfast._kits.testing.realtime.speech import Ears, Voice, tones


@dataclass(frozen=True, slots=True)
class Habits:
    """Variants of the service's behaviour: reports differ, or it depends on the deployment."""

    names_refused_response: bool = True
    """True if the refusal of a second response carries the id of the requesting event."""
    echoes_metadata: bool = True
    """True if a response shows the metadata of its request."""
    transcribes: Literal["at once", "after the reply"] = "at once"
    """Time of a transcript: during the reply, or only after it."""
    reuses_deleted_ids: bool = False
    """True if an item may have the id of a deleted one."""


@dataclass(slots=True)
class Answering:
    """Speaker and listener in place of the model, shared by several conversations."""

    rule: Rule
    voice: Voice = tones
    ears: Ears = field(default_factory=Ears)
    transcripts: list[str | None] = field(default_factory=list)
    """Next transcripts, utterance by utterance, regardless of the audio. None: the transcript fails."""
    habits: Habits = Habits()
    delta_ms: int = 100
    """Maximal milliseconds of audio in a delta."""
