"""What can happen to a call (events, past tense), what should be under way (effects), and what is worth showing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from standfast._src.base.json_values import Item
from standfast._src.realtime.machine.voice_call import PartKind
from standfast._src.runs.engine.events import (  # the same for a run and for a voice call
    Appended as Appended,
    ChildMoved as ChildMoved,
    Decided as Decided,
    SettledBy as SettledBy,
)
from standfast._src.runs.engine.run import Call

# --- events: what a server said --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Confirmed:
    """A server has an item that we gave it."""

    item_id: str


@dataclass(frozen=True, slots=True)
class Added:
    """A server has an item that we did not give it. `ask`: who asks for a reply to it (ours, server), if anybody."""

    item_id: str
    kind: PartKind
    response: str | None = None
    text: str | None = None
    ask: str | None = None
    audio: tuple[int, int] | None = None
    idle: bool = False
    cut: bool = False
    guarded: bool = False


@dataclass(frozen=True, slots=True)
class Delegated:
    """A transport has taken something of ours and sees to the reply itself."""

    ask_id: str


@dataclass(frozen=True, slots=True)
class Removed:
    """A server no longer has an item, and not because we said so."""

    item_id: str


@dataclass(frozen=True, slots=True)
class Transcribed:
    """What was said is known as text; None: it will not be known."""

    item_id: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Spoke:
    """So much of a reply has been generated."""

    item_id: str
    text: str
    total_ms: int
    written: bool = False


@dataclass(frozen=True, slots=True)
class ItemDone:
    """Nothing more of this item will be generated."""

    item_id: str


@dataclass(frozen=True, slots=True)
class CallMade:
    """The model wrote a whole call."""

    call: Call
    item_id: str
    response: str | None = None


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """A response began. `held` are the items the server had by then, `left` those that have been sent to it."""

    response: str
    held: Collection[str]
    left: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """A response ended: completed, cancelled, failed or incomplete."""

    response: str
    status: str


@dataclass(frozen=True, slots=True)
class ReplyRefused:
    """A reply that we asked for was refused, or nothing was heard of it in time."""

    why: Any = None
    bound: int = 3


@dataclass(frozen=True, slots=True)
class Overdue:
    """A server has said nothing for too long. `refused`: also about a reply that we asked for."""

    refused: bool = False


@dataclass(frozen=True, slots=True)
class ItemRefused:
    """A server does not take an item that we gave it."""

    item_id: str
    why: Any = None


@dataclass(frozen=True, slots=True)
class Opened:
    """There is a new connection. `again` are said parts whose audio is given to it again."""

    epoch: int
    again: Collection[str] = ()
    attached: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection is gone. `attached`: the conversation, and the reply under way, go on without it."""

    attached: bool = False


# --- events: what people and programs did ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typed:
    """Somebody typed something."""

    text: str
    content: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyWanted:
    """Somebody wants a reply."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Stop: what was not heard by now never will be. `heard` says how much was; `only` limits it to one item."""

    heard: Mapping[str, int] = field(default_factory=dict)
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """So much of these items has been heard; `over` are those of which no more will be."""

    heard: Mapping[str, int]
    over: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Judged:
    """The output guardrails have looked at the first `upto` characters of a reply."""

    item_id: str
    upto: int
    tripped: bool = False
    heard_ms: int = 0
    note: str | None = None
    """What the model is told instead; None if a newer reply began."""


@dataclass(frozen=True, slots=True)
class ChangeAsked:
    """Another agent should take over."""

    agent: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeMade:
    """The server has confirmed the settings of the first change."""

    number: int
    output: str | None = None
    """What the handoff that asked for it reads."""


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """The first change will not be: its agent could not be resolved, or the server refused it."""

    number: int
    why: Any = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Began:
    """A call begins. Saved before anything of it happens."""

    call_id: str
    on_unknown: str = "report"
    """Its tool's policy for a call that a crash cut, kept for whoever settles it and has none of the code (C15)."""


@dataclass(frozen=True, slots=True)
class Waits:
    """A call waits for a person."""

    call_id: str
    reason: str = "approval"
    same_as_run: str | None = None
    """Another run of the conversation in which the same question waits already (C15)."""
    values: str | None = None
    """See `engine.run.Call`."""


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A call that was in doubt did not happen, for certain."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A call has its output."""

    call_id: str
    output: str
    silent: bool = False
    """Whether nobody wants a reply to it."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Another process took the call; `reopens`: also if it had been hung up."""

    stored: int = 0
    reopens: bool = False


@dataclass(frozen=True, slots=True)
class HungUp:
    """The call is over: nobody listens any more."""


Event = (
    Confirmed
    | Added
    | Delegated
    | Removed
    | Transcribed
    | Spoke
    | ItemDone
    | CallMade
    | ReplyStarted
    | ReplyEnded
    | ReplyRefused
    | Overdue
    | ItemRefused
    | Opened
    | Lost
    | Typed
    | ReplyWanted
    | Interrupted
    | Played
    | Judged
    | ChangeAsked
    | ChangeMade
    | ChangeRefused
    | Began
    | Waits
    | Decided
    | NotTaken
    | ChildMoved
    | Returned
    | Appended
    | Claimed
    | SettledBy
    | HungUp
)


# --- effects ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Do:
    """Something that should be under way, known by its key: connect, append, run, settle, judge or resolve."""

    key: str
    kind: str
    of: str = ""
    upto: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that the server lacks, known by its key."""

    key: str
    body: Any


# --- what is worth showing -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """Something an application may want to know: what, about which item, call or response, and more."""

    name: str
    of: str = ""
    more: Any = None
