"""Events of a voice call (past tense), effects that should be under way, and things worth showing."""

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
    """A server has an item sent by this side."""

    item_id: str


@dataclass(frozen=True, slots=True)
class Added:
    """A server has an item from elsewhere. `ask`: the side that asks for a reply to it (ours, server), or None."""

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
    """The transcript of speech arrived; None: no transcript will come."""

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
    """Generation of an item ended."""

    item_id: str


@dataclass(frozen=True, slots=True)
class CallMade:
    """The model wrote a whole call."""

    call: Call
    item_id: str
    response: str | None = None


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """A response began. `held`: the items of the server at that time; `left`: the items already sent."""

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
    """A requested reply was refused, or did not begin in time."""

    why: Any = None
    bound: int = 3


@dataclass(frozen=True, slots=True)
class Overdue:
    """A server has said nothing for too long. `refused`: also about a reply that we asked for."""

    refused: bool = False


@dataclass(frozen=True, slots=True)
class ItemRefused:
    """A server refused a sent item."""

    item_id: str
    why: Any = None


@dataclass(frozen=True, slots=True)
class Opened:
    """A new connection is open. `again`: speech parts to send again."""

    epoch: int
    again: Collection[str] = ()
    attached: bool = False


@dataclass(frozen=True, slots=True)
class Lost:
    """The connection was lost. `attached`: the conversation and the reply under way continue without it."""

    attached: bool = False


# --- events: what people and programs did ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Typed:
    """A user typed a message."""

    text: str
    content: tuple[Item, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyWanted:
    """The application requested a reply."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Replies were cut at the audio heard by now. `heard`: duration per item; `only`: restriction to one item."""

    heard: Mapping[str, int] = field(default_factory=dict)
    only: str | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """Audio was heard up to a duration per item; `over`: items at the end of their audio."""

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
    """Note for the model instead; None if a newer reply began."""


@dataclass(frozen=True, slots=True)
class ChangeAsked:
    """A change of agent was requested."""

    agent: str
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ChangeMade:
    """The server has confirmed the settings of the first change."""

    number: int
    output: str | None = None
    """Output of the requesting handoff."""


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """The first pending change failed: unknown agent, or refused by the server."""

    number: int
    why: Any = None
    output: str | None = None


@dataclass(frozen=True, slots=True)
class Began:
    """A tool call begins. Saved before any effect of the call."""

    call_id: str
    on_unknown: str = "report"
    """The tool's policy for a call cut by a crash, for a process that settles the call without its code (C15)."""


@dataclass(frozen=True, slots=True)
class Waits:
    """A call waits for a person."""

    call_id: str
    reason: str = "approval"
    same_as_run: str | None = None
    """Another run of the conversation in which the same question waits already (C15)."""
    values: str | None = None
    """See `engine.run.Call`."""
    behind: str | None = None
    """Implementation of the tool when the question was asked; see `engine.run.Call`."""


@dataclass(frozen=True, slots=True)
class NotTaken:
    """A tool call in doubt certainly did not run."""

    call_id: str


@dataclass(frozen=True, slots=True)
class Returned:
    """A tool call has its output."""

    call_id: str
    output: str
    silent: bool = False
    """True if no reply to the output is wanted."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """Another process claimed the voice call; `reopens`: even after hanging up."""

    stored: int = 0
    reopens: bool = False


@dataclass(frozen=True, slots=True)
class HungUp:
    """The voice call ended: nothing more will be heard."""


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
    """An effect that should be under way, identified by a key: connect, append, run, settle, judge or resolve."""

    key: str
    kind: str
    of: str = ""
    upto: int = 0


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame missing at the server, identified by a key."""

    key: str
    body: Any


# --- what is worth showing -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shown:
    """Something for the application: a name, the item, call or response concerned, and details."""

    name: str
    of: str = ""
    more: Any = None
