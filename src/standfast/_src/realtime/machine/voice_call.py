"""State of a voice call that must outlive its connections and its process. Plain data, saved like a run.

An item joins the ledger when settled, in the server's order; until then it is a `Part` and delays the parts behind it.
Calls, decisions and entries are the record types of text runs, and so is the `stored` mark.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from standfast._src.base.json_values import Item
from standfast._src.runs.engine.append_log import Log
from standfast._src.runs.engine.run import Call, Decision, Entry, evolve

SPEECH = "(speech, not transcribed)"
"""Text in place of speech without a transcript."""

PartKind = Literal["said", "typed", "spoken", "output", "note"]


class Part(Struct, frozen=True):
    """An item of the conversation that is not history yet."""

    id: str
    kind: PartKind
    """said: speech of the user; typed: sent as text; spoken: by the model; output: of a call; note: an instruction of
    ours, which is neither stored nor restored."""
    agent: str = ""
    text: str | None = None
    """said: the transcript, None while it may still come; spoken: what was generated so far; else its text."""
    content: tuple[Item, ...] = ()
    """typed: the content as it was given, where it is more than text."""
    known: bool = False
    """True once any server had the item."""
    done: bool = False
    """True once its generation ended."""
    written: bool = False
    """spoken: True if written by the model instead of spoken."""
    total_ms: int = 0
    heard_ms: int = 0
    cut: bool = False
    """True if its unheard rest will never be heard."""
    guarded: bool = False
    judged: int = 0
    """Number of characters passed by the output guardrails."""
    tripped: bool = False
    idle: bool = False
    """said: True for an idle timeout of the server, without speech."""
    call_id: str | None = None
    response: str | None = None
    audio: tuple[int, int] | None = None
    """said: range in the input audio of this process."""

    @property
    def settled(self) -> bool:
        """True if the part can become history unchanged."""
        match self.kind:
            case "said":
                return self.text is not None or self.idle
            case "spoken":
                passed = not self.guarded or self.tripped or self.judged >= len(self.text or "")
                return self.done and passed and (self.cut or self.written or self.heard_ms >= self.total_ms)
            case _:
                return self.known

    @property
    def is_playing(self) -> bool:
        """True if part of its audio was received and not heard yet."""
        return self.kind == "spoken" and not self.cut and self.heard_ms < self.total_ms


class PendingResponse(Struct, frozen=True):
    """A request for a reply, until the reply has ended."""

    id: str
    """The asking part; for a bare request only a name."""
    ours: bool = True
    """True if this side must request the reply; else the server answers by itself."""
    tries: int = 0
    by: str | None = None
    """The response under way that answers it."""
    bare: bool = False
    """True for a request without a part: `ReplyWanted`."""


class OpenCall(Struct, frozen=True):
    """A tool call that is not history yet, and the current agent at its arrival (E5)."""

    call: Call
    agent: str
    item_id: str
    response: str | None = None
    asked_for: int | None = None
    """A handoff's: the change it asked for."""

    @property
    def running(self) -> bool:
        """True if the reply must wait for this call; a call that waits for a person does not delay it."""
        return self.call.state in ("asked", "begun", "doubt")


class Change(Struct, frozen=True):
    """An agent that was asked for and is not current yet (E6)."""

    number: int
    agent: str
    call_id: str | None = None
    """The handoff that asked for it."""


class VoiceCall(Struct, frozen=True):
    """State of a voice call."""

    run_id: str
    agent: str
    session_id: str | None = None
    changes: tuple[Change, ...] = ()
    open: tuple[Part, ...] = ()
    asks: tuple[PendingResponse, ...] = ()
    calls: tuple[OpenCall, ...] = ()
    decisions: tuple[Decision, ...] = ()
    ledger: Log[Entry] = field(default_factory=Log)
    stored: int = 0
    """The session has `ledger[:stored]`."""
    epoch: int = 0
    """Number of connections so far."""
    claim: int = 0
    """Number of processes so far that claimed the call."""
    counter: int = 0
    trips: tuple[str, ...] = ()
    """Responses refused by a guardrail, while any part of them is open."""
    ended: bool = False
    """True after hanging up."""

    def part(self, item_id: str) -> Part | None:
        """Return the open part of an id."""
        return next((part for part in self.open if part.id == item_id), None)

    def call(self, call_id: str | None) -> OpenCall | None:
        """Return the open tool call of an id."""
        return next((one for one in self.calls if one.call.id == call_id), None)

    def knows_call(self, call_id: str) -> bool:
        """Return whether a tool call of this id was ever made."""
        if self.call(call_id) is not None:
            return True
        return any(entry.item.get("call_id") == call_id for entry in self.ledger)

    @property
    def waiting(self) -> tuple[Call, ...]:
        """Tool calls that wait for a person."""
        return tuple(one.call for one in self.calls if one.call.state == "waiting")

    @property
    def status(self) -> str:
        """Status of the call for a listing."""
        if not self.ended:
            return "running"
        if self.calls or self.stored < len(self.ledger):
            return "paused" if self.waiting else "running"
        return "done"


def put(talk: VoiceCall, part: Part) -> VoiceCall:
    """Replace the part of the same id."""
    return evolve(talk, open=tuple(part if other.id == part.id else other for other in talk.open))


def heard_text(part: Part) -> str:
    """Return the heard text of a reply: proportional to the audio, at the end of a word, never more than generated.

    This is an estimate: the wire says nothing about the time of each word. It is taken from the totals at the end of
    the response, not at the interruption; otherwise it would depend on how the network cut the reply.
    """
    text = part.text or ""
    if not part.cut or part.written:
        return text
    if part.total_ms <= 0:
        return ""
    cut = len(text) * min(part.heard_ms, part.total_ms) // part.total_ms
    return text if cut >= len(text) else text[: text.rfind(" ", 0, cut + 1) + 1].rstrip()


def worth_saving(before: VoiceCall, after: VoiceCall) -> bool:
    """Return whether a change must survive the process: not every word, only finished things.

    Facts that a takeover finds out by itself are not worth a write: the progress of the session, the server's items,
    the reply under way, unfinished speech. That a request was answered is saved with what follows from it.
    """
    if before is after:
        return False
    if len(before.ledger) != len(after.ledger):
        return True
    names = ("calls", "decisions", "agent", "changes", "claim", "ended", "trips")
    if any(getattr(before, name) != getattr(after, name) for name in names):
        return True
    asked = {(ask.id, ask.tries) for ask in before.asks}
    if any((ask.id, ask.tries) not in asked for ask in after.asks):
        return True
    return _unrepeatable_parts(before) != _unrepeatable_parts(after)


def _unrepeatable_parts(talk: VoiceCall) -> list[tuple[str, str | None, bool]]:
    """Return the open parts that cannot be repeated: typed messages, outputs, notes, transcripts, refusals."""
    return [
        (part.id, part.text if part.kind == "said" else None, part.tripped)
        for part in talk.open
        if part.kind in ("typed", "output", "note") or part.tripped or (part.kind == "said" and part.text is not None)
    ]


# --- items -----------------------------------------------------------------------------------------------------------


def user_message(part: Part) -> Item:
    """Build a user's message for the history of any agent."""
    return {"role": "user", "content": list(part.content) if part.content else part.text or ""}


def assistant_message(text: str) -> Item:
    """Build the model's message for the history of any agent."""
    return {"role": "assistant", "content": text}


def call_item(one: OpenCall) -> Item:
    """Build the tool call item for the history of any agent."""
    return {
        "type": "function_call",
        "call_id": one.call.id,
        "name": one.call.name,
        "arguments": one.call.arguments,
    }


def output_item(part: Part) -> Item:
    """Build the output item for the history of any agent."""
    return {"type": "function_call_output", "call_id": part.call_id, "output": part.text or ""}
