"""Events of a run (past tense) and its effects (imperative).

Effects name things; they do not carry items. Each has a stable key, by which the reconciler compares due effects with
running ones. Events carry conclusions, never live objects.
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from standfast._src.base.json_values import Item
from standfast._src.runs.engine.limits import Tally
from standfast._src.runs.engine.run import Call, Conclusion, Decision, Entry, Hold, Outgoing, Response, Run, StopMode
from standfast._src.runs.engine.signals import Signal

Stage = Literal["input", "staged", "output"]


# --- effects ---------------------------------------------------------------------------------------------------------


class Judge(Struct, frozen=True):
    """Ask the guardrails: of the input (blocking ones first), of staged input, of the output."""

    stage: Stage
    turn: int
    blocking: bool = False

    @property
    def key(self) -> str:
        """Stable key of this effect."""
        return f"{self.turn}/judge/{self.stage}/{'blocking' if self.blocking else 'all'}"


class CallModel(Struct, frozen=True):
    """Request the model's reply for a turn."""

    turn: int

    @property
    def key(self) -> str:
        """Stable key of this effect."""
        return f"{self.turn}/model"


class RunCall(Struct, frozen=True):
    """Carry out one call: a tool, an agent as tool, a handoff, a rejection."""

    turn: int
    call_id: str

    @property
    def key(self) -> str:
        """Stable key of this effect."""
        return f"{self.turn}/call/{self.call_id}"


class Conclude(Struct, frozen=True):
    """Decide the meaning of a complete turn; `exhausted` means that no turn is left for another request."""

    turn: int
    exhausted: bool = False

    @property
    def key(self) -> str:
        """Stable key of this effect."""
        return f"{self.turn}/conclude{'/exhausted' if self.exhausted else ''}"


class Append(Struct, frozen=True):
    """Store the ledger from `start` to `end` in the session."""

    start: int
    end: int

    @property
    def key(self) -> str:
        """Stable key of this effect."""
        return f"append/{self.start}"


class Settle(Struct, frozen=True):
    """Find out the outcome of work that had begun before a crash. Never repeat it blindly."""

    turn: int
    call_id: str | None = None
    """The call in doubt; None means the request to the model."""

    @property
    def key(self) -> str:
        """Stable key of this effect."""
        return f"{self.turn}/settle/{self.call_id if self.call_id is not None else 'model'}"


Effect = Judge | CallModel | RunCall | Conclude | Append | Settle


# --- events ----------------------------------------------------------------------------------------------------------


class Event(Struct, frozen=True):
    """A fact that changes a run."""


class Begun(Event, frozen=True):
    """An unrepeatable request or call is about to be sent. Saved before sending."""

    call_id: str | None = None
    outgoing: Outgoing | None = None
    after_item_id: str | None = None
    """See Progress, for these two."""


class NotTaken(Event, frozen=True):
    """Begun work certainly did not happen: it may be done again."""

    call_id: str | None = None
    after_item_id: str | None = None
    """Place to search before doing it again, if it could still arrive."""


class ToolsGone(Event, frozen=True):
    """The tools of these unbegun calls no longer exist; the model will be informed."""

    call_ids: tuple[str, ...]


class Judged(Event, frozen=True):
    """A verdict. `results` are the guardrails' conclusions as JSON."""

    stage: Stage
    results: tuple[Item, ...] = ()
    tripped: bool = False
    more: bool = False
    """True if these were the blocking ones and more will run beside the model."""
    withheld: str = ""
    """Replacement of a tool's result that an output guardrail refused; the usual text if empty."""


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
    """Verdicts of guardrails that ran before the question."""
    same_as_run: str | None = None
    values: str | None = None
    """See Call."""


class Decided(Event, frozen=True):
    """A person decided. `path` leads through nested runs to the run of the call.

    `at_rest`: the saving process does not continue the run; the run is ready for a worker.
    """

    decision: Decision
    path: tuple[str, ...] = ()
    at_rest: bool = False


class Signalled(Event, frozen=True):
    """A signal reached the run (F7). A decision changes nothing after the end of the question."""

    signal: Signal


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
    """A nested run has a new state; if paused, its call waits."""

    call_id: str
    child: Run


class Concluded(Event, frozen=True):
    """The meaning of the complete turn is decided."""

    turn: int
    conclusion: Conclusion
    judged: bool = False
    """True without an output guardrail: no verdict on a final output is pending."""


class Appended(Event, frozen=True):
    """The session has the ledger up to `end`, and what the first `billed` replies cost."""

    end: int
    billed: int = 0


class Compacted(Event, frozen=True):
    """The session compacted its history; these entries replace the old ones, and are in the session already."""

    entries: tuple[Entry, ...]


class Claimed(Event, frozen=True):
    """A resumer took the run. What had begun is now in doubt."""

    claim: str
    stored: int = 0
    """How many of the run's items the session turned out to hold: the answer to an append may have been lost."""


class InputStaged(Event, frozen=True):
    """Input was added to a paused or stopped run, for judgement and admission before its next request.
    None clears it.
    """

    items: tuple[Item, ...] | None


class MessageHeard(Event, frozen=True):
    """A judged message to the conversation, heard between two turns (F2).

    Without items: the message was stored before the run's own input.
    """

    message_id: str
    items: tuple[Item, ...] = ()


class Stopped(Event, frozen=True):
    """The run should end: after its turn, at once, or because an effect failed."""

    mode: StopMode
    upto: int = 0
    message: str = ""
    """Output of unfinished calls."""
    keeps_turn: bool = False
    """True if only an observer of the reply failed: a resume continues from the reply without another request."""
    at_limit: bool = False
    """True for a stop at a limit (F9). With `keeps_turn`, an open turn waits for a resume even if a call has run."""


class Tallied(Event, frozen=True):
    """Addition to the tally of a limited run: a request or a call begins, or a reply arrived (F9)."""

    more: Tally


class Metered(Event, frozen=True):
    """Change of the run's totals on the budgets: spent, unknown and held of each, in order (F10)."""

    changes: tuple[tuple[int, int, int], ...]


class HandedOver(Event, frozen=True):
    """The worker stops and releases the run: no effect is under way, and another worker may resume the run."""


class SettledBy(Event, frozen=True):
    """Another run closes the open parts of a run whose worker has certainly crashed (C15).

    Only the data is needed for it: none of the crashed run's agents, tools, guardrails or hooks.
    """

    run_id: str
    """The run that settles this one."""
    claim: str
    stored: int = 0
    """See Claimed."""
    is_orphan: bool = False
    """True if no worker can continue the run, so that calls waiting for a person are closed too."""


class Held(Event, frozen=True):
    """An operator keeps the run from acting: its store was restored, and may be behind the effects of the run.

    Every call that has no output waits for a person then. A run without such a call waits as a whole.
    """

    hold: Hold


class Released(Event, frozen=True):
    """A person lets a held run continue from its stored state."""
