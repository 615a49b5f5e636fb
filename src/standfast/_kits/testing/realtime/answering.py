"""Who is behind the loopback realtime server: what it says, in which voice, what it understands, and its habits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from standfast._kits.testing.loopback.answers import Rule
from standfast._kits.testing.realtime.speech import Ears, Voice, tones


@dataclass(frozen=True, slots=True)
class Habits:
    """What the service does one way or the other: reports differ, or it depends on the deployment."""

    names_refused_response: bool = True
    """Whether the refusal of a second response carries the id of the event that asked for it."""
    echoes_metadata: bool = True
    """Whether a response shows the metadata that it was asked for with."""
    transcribes: Literal["at once", "after the reply"] = "at once"
    """When the transcript of speech comes: beside the reply, or only after it."""
    reuses_deleted_ids: bool = False
    """Whether an item may have the id of one that was deleted."""


@dataclass(slots=True)
class Answering:
    """Who speaks and who listens in place of the model; several conversations share one."""

    rule: Rule
    voice: Voice = tones
    ears: Ears = field(default_factory=Ears)
    transcripts: list[str | None] = field(default_factory=list)
    """What is heard next, utterance by utterance, whatever was said. None: the transcript fails."""
    habits: Habits = Habits()
    delta_ms: int = 100
    """How much audio one delta carries at most."""
