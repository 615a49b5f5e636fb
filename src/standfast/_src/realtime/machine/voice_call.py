"""Everything of a call that must outlive its connections and its process. Plain data, saved like a run.

What is said and done joins the ledger when it is settled, in the server's order; until then it is a `Part` and holds
back those behind it. Calls, decisions and entries are the records that text runs use, and so is the `stored` mark.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct, field

from standfast._src.base.json_values import Item
from standfast._src.runs.engine.append_log import Log
from standfast._src.runs.engine.run import Call, Decision, Entry, evolve

SPEECH = "(speech, not transcribed)"
"""Stands for what was said where nobody knows the words."""

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
    """Whether a server has ever had it."""
    done: bool = False
    """Whether nothing more will be generated."""
    written: bool = False
    """spoken: whether the model wrote it instead of saying it."""
    total_ms: int = 0
    heard_ms: int = 0
    cut: bool = False
    """Whether what was not heard by now never will be."""
    guarded: bool = False
    judged: int = 0
    """How many characters the output guardrails have passed."""
    tripped: bool = False
    idle: bool = False
    """said: nobody said anything, the server only stopped waiting."""
    call_id: str | None = None
    response: str | None = None
    audio: tuple[int, int] | None = None
    """said: where in the audio that this process was given."""

    @property
    def settled(self) -> bool:
        """Whether it can become history as it is."""
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
        """Whether some of it was received and not heard yet."""
        return self.kind == "spoken" and not self.cut and self.heard_ms < self.total_ms


class PendingResponse(Struct, frozen=True):
    """Something that wants a reply which has not ended."""

    id: str
    """The part that asks; of a bare one, only a name."""
    ours: bool = True
    """Whether asking for the reply is ours; else the server answers by itself."""
    tries: int = 0
    by: str | None = None
    """The response under way that answers it."""
    bare: bool = False
    """Whether somebody just wants a reply, to nothing in particular."""


class OpenCall(Struct, frozen=True):
    """A call that is not history yet, and the agent that was current when it arrived (E5)."""

    call: Call
    agent: str
    item_id: str
    response: str | None = None
    asked_for: int | None = None
    """A handoff's: the change it asked for."""

    @property
    def running(self) -> bool:
        """Whether a reply that belongs to it must wait; one that waits for a person does not hold it."""
        return self.call.state in ("asked", "begun", "doubt")


class Change(Struct, frozen=True):
    """An agent that was asked for and is not current yet (E6)."""

    number: int
    agent: str
    call_id: str | None = None
    """The handoff that asked for it."""


class VoiceCall(Struct, frozen=True):
    """One call."""

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
    """How many connections there were."""
    claim: int = 0
    """How many processes had it."""
    counter: int = 0
    trips: tuple[str, ...] = ()
    """Responses that a guardrail refused, as long as something of them is open."""
    ended: bool = False
    """Whether it was hung up."""

    def part(self, item_id: str) -> Part | None:
        """The open part with this id."""
        return next((part for part in self.open if part.id == item_id), None)

    def call(self, call_id: str | None) -> OpenCall | None:
        """The open call with this id."""
        return next((one for one in self.calls if one.call.id == call_id), None)

    def knows_call(self, call_id: str) -> bool:
        """Whether a call of this id was ever made."""
        if self.call(call_id) is not None:
            return True
        return any(entry.item.get("call_id") == call_id for entry in self.ledger)

    @property
    def waiting(self) -> tuple[Call, ...]:
        """The calls that wait for a person."""
        return tuple(one.call for one in self.calls if one.call.state == "waiting")

    @property
    def status(self) -> str:
        """One word for a listing."""
        if not self.ended:
            return "running"
        if self.calls or self.stored < len(self.ledger):
            return "paused" if self.waiting else "running"
        return "done"


def put(talk: VoiceCall, part: Part) -> VoiceCall:
    """The talk with this part in place of the one of its id."""
    return evolve(talk, open=tuple(part if other.id == part.id else other for other in talk.open))


def heard_text(part: Part) -> str:
    """What of a reply was heard: in proportion to the audio, at a word's end, never more than was generated.

    An estimate: this wire says nothing about when which word is spoken. It is taken from the totals at the end of the
    response, not at the interruption; else it would depend on how the network cut the reply.
    """
    text = part.text or ""
    if not part.cut or part.written:
        return text
    if part.total_ms <= 0:
        return ""
    cut = len(text) * min(part.heard_ms, part.total_ms) // part.total_ms
    return text if cut >= len(text) else text[: text.rfind(" ", 0, cut + 1) + 1].rstrip()


def worth_saving(before: VoiceCall, after: VoiceCall) -> bool:
    """Whether something changed that must survive the process: not every word, only what has an end.

    What a takeover finds out by itself is not worth a write: how far the session is, what a server has, which reply was
    under way, what was being said. That something was answered is saved with what follows from it.
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
    """What of the open parts nobody could say again: what was typed, outputs, words that were understood, refusals."""
    return [
        (part.id, part.text if part.kind == "said" else None, part.tripped)
        for part in talk.open
        if part.kind in ("typed", "output", "note") or part.tripped or (part.kind == "said" and part.text is not None)
    ]


# --- items -----------------------------------------------------------------------------------------------------------


def user_message(part: Part) -> Item:
    """What a user said or typed, as any agent reads it."""
    return {"role": "user", "content": list(part.content) if part.content else part.text or ""}


def assistant_message(text: str) -> Item:
    """What the model was heard to say, as any agent reads it."""
    return {"role": "assistant", "content": text}


def call_item(one: OpenCall) -> Item:
    """The call as any agent reads it."""
    return {
        "type": "function_call",
        "call_id": one.call.id,
        "name": one.call.name,
        "arguments": one.call.arguments,
    }


def output_item(part: Part) -> Item:
    """The output as any agent reads it."""
    return {"type": "function_call_output", "call_id": part.call_id, "output": part.text or ""}
