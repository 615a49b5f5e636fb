"""What can happen to a run (events, past tense) and what should be under way (effects, imperative).

Effects name things; they do not carry items. Each has a stable key, by which the driver compares what is due with
what is in flight. Events carry conclusions, never live objects.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from standfast._src.base.json_values import Item
from standfast._src.runs.engine.run import Call, Conclusion, Decision, Entry, Outgoing, Response, Run, StopMode

Stage = Literal["input", "staged", "output"]


# --- effects ---------------------------------------------------------------------------------------------------------


class Judge(Struct, frozen=True):
    """Ask the guardrails: of the input (blocking ones first), of staged input, of the output."""

    stage: Stage
    turn: int
    blocking: bool = False

    @property
    def key(self) -> str:
        """Stable name of this effect."""
        return f"{self.turn}/judge/{self.stage}/{'blocking' if self.blocking else 'all'}"


class CallModel(Struct, frozen=True):
    """Ask the model for the reply of this turn."""

    turn: int

    @property
    def key(self) -> str:
        """Stable name of this effect."""
        return f"{self.turn}/model"


class RunCall(Struct, frozen=True):
    """Carry out one call: a tool, an agent as tool, a handoff, a rejection."""

    turn: int
    call_id: str

    @property
    def key(self) -> str:
        """Stable name of this effect."""
        return f"{self.turn}/call/{self.call_id}"


class Conclude(Struct, frozen=True):
    """Find out what a complete turn means; `exhausted` means that no turn is left to ask the model."""

    turn: int
    exhausted: bool = False

    @property
    def key(self) -> str:
        """Stable name of this effect."""
        return f"{self.turn}/conclude{'/exhausted' if self.exhausted else ''}"


class Append(Struct, frozen=True):
    """Store the ledger from `start` to `end` in the session."""

    start: int
    end: int

    @property
    def key(self) -> str:
        """Stable name of this effect."""
        return f"append/{self.start}"


class Settle(Struct, frozen=True):
    """Find out what became of something that had begun when the process died. Never repeat it blindly."""

    turn: int
    call_id: str | None = None
    """The call in doubt; None means the request to the model."""

    @property
    def key(self) -> str:
        """Stable name of this effect."""
        return f"{self.turn}/settle/{self.call_id if self.call_id is not None else 'model'}"


Effect = Judge | CallModel | RunCall | Conclude | Append | Settle


# --- events ----------------------------------------------------------------------------------------------------------


class Event(Struct, frozen=True):
    """Something that has happened to a run."""


class Begun(Event, frozen=True):
    """Something that may not be repeated is about to leave. Saved before it does."""

    call_id: str | None = None
    outgoing: Outgoing | None = None
    after_item_id: str | None = None
    """See Progress, for these two."""


class NotTaken(Event, frozen=True):
    """What had begun did not happen, for certain: it may be done again."""

    call_id: str | None = None
    after_item_id: str | None = None
    """Where to look for it before it is done again, if it could still arrive."""


class ToolsGone(Event, frozen=True):
    """The tools of these calls, which have not begun, are no longer there; the model is to be told."""

    call_ids: tuple[str, ...]


class Judged(Event, frozen=True):
    """A verdict. `results` are the guardrails' conclusions as JSON."""

    stage: Stage
    results: tuple[Item, ...] = ()
    tripped: bool = False
    more: bool = False
    """Whether these were the blocking ones and others are to run beside the model."""
    withheld: str = ""
    """What stands in place of a tool's result that an output guardrail refused; the usual text if empty."""


class Replied(Event, frozen=True):
    """The model's reply arrived whole."""

    turn: int
    entries: tuple[Entry, ...]
    calls: tuple[Call, ...]
    response: Response
    owed: tuple[int, ...] = ()
    """Ordinals that were offered to the server and left out by a filter."""
    is_unanswered: bool = False
    """See Turn.is_unanswered."""
    used: tuple[str, ...] = ()
    """The tools it called, hosted ones too."""


class ApprovalNeeded(Event, frozen=True):
    """A call waits for a person."""

    call_id: str
    reason: str = "approval"
    results: tuple[Item, ...] = ()
    """What guardrails that looked before the question said."""
    same_as_run: str | None = None
    values: str | None = None
    """See Call."""


class Decided(Event, frozen=True):
    """A person decided. `path` leads through nested runs to the one whose call it is.

    `at_rest`: whoever saves this does not go on with the run; it is ready for whoever does.
    """

    decision: Decision
    path: tuple[str, ...] = ()
    at_rest: bool = False


class Returned(Event, frozen=True):
    """A call has its output."""

    call_id: str
    entries: tuple[Entry, ...]
    results: tuple[Item, ...] = ()
    used: tuple[str, ...] = ()
    target: str | None = None
    base: tuple[Item, ...] | None = None
    responses: tuple[Response, ...] = ()
    """Usage of a nested run."""


class ChildMoved(Event, frozen=True):
    """A nested run is now here; if it is paused, its call waits."""

    call_id: str
    child: Run


class Concluded(Event, frozen=True):
    """What the complete turn means."""

    turn: int
    conclusion: Conclusion
    judged: bool = False
    """Whether no verdict on a final output is to be awaited: there is no output guardrail."""


class Appended(Event, frozen=True):
    """The session has the ledger up to `end`, and what the first `billed` replies cost."""

    end: int
    billed: int = 0


class Compacted(Event, frozen=True):
    """The session made its history shorter; these stand for what was replaced. They are in the session already."""

    entries: tuple[Entry, ...]


class Claimed(Event, frozen=True):
    """A resumer took the run. What had begun is now in doubt."""

    claim: str
    stored: int = 0
    """How many of the run's items the session turned out to hold: the answer to an append may have been lost."""


class InputStaged(Event, frozen=True):
    """Input for a paused or stopped run, to be judged and admitted before its next request. None clears it."""

    items: tuple[Item, ...] | None


class Stopped(Event, frozen=True):
    """The run should end: after its turn, at once, or because an effect failed."""

    mode: StopMode
    upto: int = 0
    message: str = ""
    """What unfinished calls get as their output."""
    keeps_turn: bool = False
    """Whether what failed only observed the reply: then resuming goes on from it, and none is asked for again."""


class HandedOver(Event, frozen=True):
    """The worker stops and releases the run: no effect is under way, and another worker may resume the run."""


class SettledBy(Event, frozen=True):
    """The run's worker is gone for certain, and another run closes what it left open (C15).

    Only the data is needed for it: none of the gone run's agents, tools, guardrails or hooks.
    """

    run_id: str
    """The run that settles this one."""
    claim: str
    stored: int = 0
    """See Claimed."""
    is_orphan: bool = False
    """Whether nobody can go on with the run, so that what waits for a person is closed too."""
