"""All state of a run. Plain data: anything missing here does not survive a crash.

A `Run` is a small head plus append-only logs. The ledger holds only settled items; a turn in progress is `run.turn` and
joins the ledger as one piece, or is dropped. Progress is a few numbers (`Positions`), never likeness: two people may
both say "yes".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field, structs

from standfast._src.base.json_values import Item
from standfast._src.runs.engine.append_log import Log
from standfast._src.runs.engine.limits import (
    BudgetUse,
    Limits,
    Tally,
    plain_record,
    read_budgets,
    read_limits,
    read_tally,
)

evolve = structs.replace
"""The record with some fields changed. Records are msgspec's, and so is this: a run makes dozens of them in each turn,
and a frozen dataclass of as many fields costs twenty times as much to make."""


OwnerKind = Literal["replay", "session", "conversation", "chain"]
Verdict = Literal["blocking", "parallel", "passed", "tripped"]
CallState = Literal["asked", "waiting", "begun", "doubt", "returned"]
StopMode = Literal["after_turn", "immediate", "failed", "abandoned"]


class Hold(Struct, frozen=True):
    """An operator keeps the run from acting, because its store may be behind what the run did (C15)."""

    by: str
    at: float
    """In seconds since 1970, by the operator's clock."""


class Owner(Struct, frozen=True):
    """The keeper of the conversation. Chosen once, for the whole run (D1)."""

    kind: OwnerKind = "replay"
    id: str | None = None
    """The session id, the conversation id, or the response id the chain starts from."""

    @property
    def is_server(self) -> bool:
        """True if a server keeps the history, so that only unacknowledged items are sent."""
        return self.kind in ("conversation", "chain")

    @property
    def conversation_id(self) -> str | None:
        """The server's conversation; None if no conversation of a server's is the owner."""
        return self.id if self.kind == "conversation" else None


class Spec(Struct, frozen=True):
    """Decisions made at the beginning of the run."""

    run_id: str
    agent: str
    owner: Owner = Owner()
    max_turns: int | None = 10
    input_count: int = 0
    """Number of the ledger's first entries that are the run's own input."""
    input_is_text: bool = False
    context: Any = None
    """What few runs have, as a JSON object: `inside`, `apart`, `beside`, `took_over`, `takeovers`,
    `handed_over`, `held`, `message`, `attempts`, `heard`, `limits`, `tally`, `budgets`, `signals`,
    `cancel`.
    Fields would stand in the saved form of every run."""

    @property
    def inside(self) -> str | None:
        """Outermost enclosing run: only this outer run resumes the nested one."""
        found = self.context.get("inside") if isinstance(self.context, dict) else None
        return found if isinstance(found, str) else None

    @property
    def is_apart(self) -> bool:
        """True if an outer run has another conversation of the same id, in another store."""
        return self._says("apart")

    @property
    def is_beside(self) -> bool:
        """True if the outermost run is kept in the same store as this one."""
        return self._says("beside")

    @property
    def took_over(self) -> bool:
        """True if its input begins with items owed by crashed runs of its server's conversation (C15)."""
        return self._says("took_over")

    @property
    def takeovers(self) -> int:
        """Number of resumes by a worker after another had stopped or crashed in the middle of the run."""
        found = self.context.get("takeovers") if isinstance(self.context, dict) else None
        return found if type(found) is int else 0

    @property
    def was_handed_over(self) -> bool:
        """Tell whether the last worker stopped in order, with no effect under way, and none resumed the run since."""
        return self._says("handed_over")

    @property
    def hold(self) -> Hold | None:
        """The operator's hold on the run, if any."""
        found = self.context.get("held") if isinstance(self.context, dict) else None
        return Hold(str(found.get("by")), float(found.get("at") or 0)) if isinstance(found, dict) else None

    def with_hold(self, hold: Hold | None) -> Spec:
        """Return a copy that is held by an operator, or released."""
        return self.with_context("held", None if hold is None else {"by": hold.by, "at": hold.at})

    @property
    def message(self) -> dict[str, Any] | None:
        """Policy and sender of a message to the conversation; empty for a run without a message (F1)."""
        found = self.context.get("message") if isinstance(self.context, dict) else None
        return found if isinstance(found, dict) else None

    @property
    def attempts(self) -> int:
        """Number of times a worker has begun the message as a run."""
        found = self.context.get("attempts") if isinstance(self.context, dict) else None
        return found if type(found) is int else 0

    @property
    def heard(self) -> tuple[str, ...]:
        """Ids of the messages heard by the run, in order (F2)."""
        found = self.context.get("heard") if isinstance(self.context, dict) else None
        return tuple(map(str, found)) if isinstance(found, list | tuple) else ()

    @property
    def limits(self) -> Limits | None:
        """Upper bounds of the run and of nested runs (F9)."""
        return read_limits(self.context.get("limits")) if isinstance(self.context, dict) else None

    @property
    def tally(self) -> Tally:
        """Use of a limited run; empty without limits (F9)."""
        return read_tally(self.context.get("tally")) if isinstance(self.context, dict) else Tally()

    @property
    def budgets(self) -> tuple[BudgetUse, ...]:
        """Budgets of the run, with the totals on each (F10)."""
        return read_budgets(self.context.get("budgets")) if isinstance(self.context, dict) else ()

    def with_budgets(self, budgets: Sequence[BudgetUse]) -> Spec:
        """Return a copy with new budgets."""
        return self.with_context("budgets", [plain_record(one) for one in budgets] or None)

    def with_limits(self, limits: Limits | None) -> Spec:
        """Return a copy under these limits."""
        return self.with_context("limits", None if limits is None else plain_record(limits))

    @property
    def signals_taken(self) -> int:
        """Number of applied signals (F7)."""
        found = self.context.get("signals") if isinstance(self.context, dict) else None
        return found if type(found) is int else 0

    @property
    def cancel_wish(self) -> dict[str, str] | None:
        """Wish of an operator to cancel the run, if any: `by`, and `text` for unfinished calls (F7)."""
        found = self.context.get("cancel") if isinstance(self.context, dict) else None
        return found if isinstance(found, dict) else None

    def with_context(
        self, name: str, value: bool | int | Sequence[object] | Mapping[str, object] | None = True
    ) -> Spec:
        """Return a copy with a fact added to its context."""
        known = {**(self.context if isinstance(self.context, dict) else {}), name: value}
        return evolve(self, context={name: value for name, value in known.items() if value is not None} or None)

    def _says(self, name: str) -> bool:
        return isinstance(self.context, dict) and self.context.get(name) is True


class Entry(Struct, frozen=True):
    """An item with its author. `kind` is the public name of its run item; "input" is the caller's own."""

    kind: str
    agent: str
    item: Item
    extra: dict[str, Any] | None = None


class View(Struct, frozen=True):
    """The model's view: `base`, then the ledger from `tail` on. A base of None is the session's history."""

    base: tuple[Item, ...] | None
    tail: int


class Decision(Struct, frozen=True):
    """Decision of a person about a call or, if sticky, about every call of a scope."""

    approved: bool
    call_id: str | None = None
    scope: str | None = None
    sticky: bool = False
    message: str | None = None
    arguments_digest: str | None = None
    agent: str | None = None
    """Agent of the tool; None in states of 0.1, and such a sticky decision covers nothing any more (C16)."""
    by: str | None = None
    """Name of the deciding person, if given."""
    at: float | None = None
    """Time in seconds since 1970, by the clock of the saving process."""
    behind: str | UnsetType | None = UNSET
    """Implementation of the tool, as in `Call.behind`: a sticky approval covers no other (C16). Unset in older states,
    which are written as they were."""


class Call(Struct, frozen=True):
    """A call of the turn in progress, with its state."""

    id: str
    name: str
    kind: str
    """tool, agent, handoff, ignored (a second handoff), unknown (no such tool), hosted (a provider's request),
    gone (its tool was no longer there when the run was resumed), repeated (of an earlier reply; not run again)."""
    arguments: str
    digest: str
    state: CallState = "asked"
    decision: Decision | None = None
    reason: str | None = None
    """Reason of its wait: "approval", or "unknown" after a crash left its outcome open."""
    outputs: tuple[Entry, ...] = ()
    target: str | None = None
    base: tuple[Item, ...] | None = None
    """For a handoff: its target agent, and the view made by its filter."""
    child: Run | None = None
    """The run of an agent used as a tool, while it is not finished."""
    on_unknown: str = "report"
    """Its tool's policy for a call cut by a crash, kept here for a settling process without the code (C15)."""
    behind: str | None = None
    """Implementation of the tool: "function", or the agent or server, as in "agent:Helper"; None: not known (C16)."""
    same_as_run: str | None = None
    """Another run of the conversation with the same pending question (C15)."""
    values: str | None = None
    """Values for its tool, as JSON text, noted when a person was asked: `arguments` itself if they are exactly the
    model's text; None: not known (C16)."""

    @property
    def prepared_arguments(self) -> str | None:
        """Values for its tool, as JSON text, if different from `arguments`."""
        return None if self.values == self.arguments else self.values

    @property
    def id_name(self) -> str:
        """Name of the id field in its item."""
        return "id" if self.kind == "hosted" else "call_id"

    @property
    def has_begun(self) -> bool:
        """True if part of it has happened, or may have: also before a crash, or in a waiting nested run."""
        # A decision does not undo a beginning: once entered, it cannot be said that it did not run.
        return self.state in ("begun", "doubt") or self.child is not None or self.reason == "unknown"

    @property
    def is_granted(self) -> bool:
        """True if a provider's own tool may run and has not: the answer is sent with the turn, and the provider then
        acts.

        Any request that carries the answer triggers it: so no other run's request may, as long as the turn is open.
        """
        return self.kind == "hosted" and any(entry.item.get("approve") is True for entry in self.outputs)

    @property
    def is_question(self) -> bool:
        """True if a person may decide about it: it waits for a decision, or was decided and has not run yet."""
        return self.state == "waiting" or (self.state == "asked" and self.decision is not None)


class Conclusion(Struct, frozen=True):
    """Meaning of a complete turn: continue, or end with `output` (JSON; the live value is kept outside the run)."""

    final: bool
    output: Any = None
    entries: tuple[Entry, ...] = ()
    """Items that a handler adds behind the turn."""
    calls: tuple[str, ...] = ()
    """Calls whose outputs form the final output, if from tools."""


class Turn(Struct, frozen=True):
    """A turn in progress: the reply and its calls. Not history yet."""

    number: int
    agent: str
    reply: tuple[Entry, ...]
    calls: tuple[Call, ...] = ()
    acknowledged: bool = False
    """Whether the server that owns the conversation has, with this reply, everything up to it."""
    owed: tuple[int, ...] = ()
    is_unanswered: bool = False
    """True if a reply without a message is not an answer yet: a hosted tool was active, or only old calls were
    repeated."""
    conclusion: Conclusion | None = None

    def item_of(self, call: Call) -> Item:
        """Return the reply's item of a call. Every call has one: decoding a run checks that."""
        name, call_id = call.id_name, call.id
        return next(entry.item for entry in self.reply if entry.item.get(name) == call_id)

    @property
    def complete(self) -> bool:
        """True if every call has its output."""
        return all(call.state == "returned" for call in self.calls)

    @property
    def ran(self) -> bool:
        """True if a tool of this turn has run, or may have."""
        return any(
            call.kind in ("tool", "agent") and (call.state == "returned" or call.has_begun) for call in self.calls
        )


class Response(Struct, frozen=True):
    """A reply as it arrived, for `raw_responses` and usage. `hidden` is usage of a nested run."""

    items: tuple[Item, ...]
    usage: dict[str, Any]
    response_id: str | None = None
    request_id: str | None = None
    hidden: bool = False
    model: str | None = None
    """The name of the model that was asked, where it has one."""
    agent: str | None = None


class Positions(Struct, frozen=True):
    """Progress of session and server: the whole progress of this run in numbers."""

    stored: int = 0
    """The session has this run's `ledger[:stored]`."""
    ready: int = 0
    """`ledger[:ready]` may be stored: up to the last turn that joined (C3)."""
    acknowledged: int = 0
    """The server has `ledger[:acknowledged]`, less `owed`."""
    owed: tuple[int, ...] = ()
    response_id: str | None = None
    """The end of the response chain."""
    billed: int = 0
    """The session has the costs of `responses[:billed]` (B15)."""


class Stop(Struct, frozen=True):
    """An end asked for from outside. `upto` is the last turn that may still happen."""

    mode: StopMode
    upto: int


class Outgoing(Struct, frozen=True):
    """A request to a server-owned conversation that has left, and has no reply yet."""

    key: str
    sent: tuple[int, ...] = ()
    """The ordinals it carries."""
    payload: tuple[Item, ...] | None = None
    """The filtered form of its items, by which it can be found again; None if sent unchanged."""
    reply_id: str | None = None
    """The id its reply was seen to have, before the reply broke off."""


class Progress(Struct, frozen=True):
    """Small mutable state of a run."""

    agent: str
    turns: int = 0
    """Turns charged: replies that arrived."""
    verdict: Verdict = "passed"
    stop: Stop | None = None
    ended: bool = False
    output: Any = None
    staged: tuple[Item, ...] = ()
    used: tuple[tuple[str, str], ...] = ()
    """Used (agent, tool) pairs, for reset_tool_choice."""
    outgoing: Outgoing | None = None
    after_item_id: str | None = None
    """The server's newest item before `outgoing`, if known. Kept after a request that was not found there: it may
    still arrive."""
    doubt: bool = False
    """True if `outgoing` was found after a crash, so that its outcome must be settled."""
    claim: str | None = None
    compacted: tuple[Entry, ...] = ()
    """Entries made by a compaction of the session after this run; not part of the ledger."""
    settled_by: str | None = None
    """The run that closed the open parts of this one after a crash (C15)."""
    is_ready: bool = False
    """True after a decision by a process that does not continue the run, until a worker takes it."""


class Run(Struct, frozen=True, dict=True):
    """A run: a head and its logs.

    The loop, the saver and the watchers of a run ask the same questions of each state; as a state never changes, the
    answers that take a look at several parts of it are computed once and kept beside it (`dict`), not saved.
    """

    spec: Spec
    progress: Progress
    marks: Positions = Positions()
    turn: Turn | None = None
    ledger: Log[Entry] = field(default_factory=Log)
    responses: Log[Response] = field(default_factory=Log)
    views: Log[View] = field(default_factory=Log)
    results: Log[Item] = field(default_factory=Log)
    """Verdicts of guardrails, in order, as JSON. A log and not part of the head: a run may have very many."""
    decided: Log[Decision] = field(default_factory=Log)
    """Decisions about future calls: made in advance, or about every call of a tool."""

    @property
    def view(self) -> View:
        """The model's present view."""
        return self.views[-1]

    @property
    def tripped(self) -> bool:
        """True if an input guardrail ended the run."""
        return self.progress.verdict == "tripped"

    @property
    def withheld(self) -> bool:
        """True if an output guardrail ended the run."""
        return self.progress.ended and any(one.get("stage") == "output" and one.get("tripped") for one in self.results)

    @cached_property
    def storable(self) -> int:
        """Number of ledger entries that the session should have now (C3).

        A run's input waits for the first settled turn, so that a failed request leaves nothing; it is stored alone when
        a guardrail trips or the run pauses, because then it will not be sent again.
        """
        if self.spec.owner.kind != "session":
            return self.marks.stored
        if self.tripped:  # the run ended with its input; a refused message is in no history (F4)
            return len(self.ledger) if self.spec.message is None else self.marks.ready
        # A pause: a person may take days to decide.
        return len(self.ledger) if self.paused else self.marks.ready

    @property
    def calls(self) -> tuple[Call, ...]:
        """The calls of the turn in progress."""
        return self.turn.calls if self.turn is not None else ()

    @property
    def waiting(self) -> tuple[Call, ...]:
        """The calls that wait for a person, a nested run's included in their parent's call."""
        return tuple(call for call in self.calls if call.state == "waiting")

    @cached_property
    def paused(self) -> bool:
        """True if nothing can happen before a person decides."""
        if self.is_held:
            return True
        if self.progress.verdict != "passed":
            return False
        waits = False
        for call in self.calls:
            if call.state == "waiting":
                waits = True
            # Something can still happen without a person. A handoff cannot: it waits for the other calls.
            elif call.state != "returned" and call.kind != "handoff":
                return False
        return waits

    @property
    def is_held(self) -> bool:
        """True if an operator keeps the run from acting until a person releases the hold."""
        return self.spec.hold is not None and not self.finished

    @property
    def is_parked(self) -> bool:
        """True if the run needs no worker now: it waits for a person, or for a worker to take it."""
        return self.paused or self.progress.is_ready

    @cached_property
    def finished(self) -> bool:
        """True if the run reached its end: an output, a tripwire, or abandonment."""
        return self.progress.ended or self.tripped

    @property
    def is_closed(self) -> bool:
        """True if the run has ended and its session holds all of it: nothing is left to resume (D7)."""
        return self.finished and self.marks.stored >= self.storable

    @property
    def has_done_something(self) -> bool:
        """True if a call has begun or waits, or a turn is stored: then no other run may ignore this one (C15).

        On a server's conversation also: a reply in hand is a turn that the server has stored, a request may have been
        sent, and the run may have taken over items that other runs owe there.
        """
        if self.spec.owner.kind == "conversation" and (self.turn or self.progress.outgoing or self.spec.took_over):
            return True
        if any(call.state in ("waiting", "returned") or call.has_begun for call in self.calls):
            return True
        return self.marks.stored > 0 or self.marks.acknowledged > 0 or self.storable > self.marks.stored

    @property
    def is_left_owing(self) -> bool:
        """True if the run ended with items that its server's conversation lacks, and no caller has them.

        A run's result contains the items it owes (D11). But no caller has the result of a nested run, and items taken
        over from crashed runs do not belong to the caller.
        """
        spec, marks = self.spec, self.marks
        if not self.finished or spec.owner.kind != "conversation" or self.progress.settled_by is not None:
            return False
        if not marks.acknowledged:
            return spec.took_over
        return spec.inside is not None and (bool(marks.owed) or marks.acknowledged < len(self.ledger))

    @property
    def status(self) -> str:
        """Status for a listing: running, paused, ready, done, failed, cancelled."""
        stop = self.progress.stop
        if self.finished and not self.is_closed:
            return "running"  # a kill before its last append must leave something to resume
        if self.tripped:
            return "failed"
        if self.progress.ended:
            return "cancelled" if stop is not None and stop.mode == "abandoned" else "done"
        if stop is not None and (self.turn.number if self.turn is not None else self.progress.turns + 1) > stop.upto:
            return "failed" if stop.mode == "failed" else "cancelled"
        if self.progress.is_ready and not self.is_held:
            return "paused" if self.waiting and self.spec.cancel_wish is None else "ready"
        return "paused" if self.paused else "running"

    def call(self, call_id: str) -> Call | None:
        """Return the call of an id in the turn in progress."""
        return next((call for call in self.calls if call.id == call_id), None)

    def used_by(self, agent: str) -> Iterator[str]:
        """Yield the tools used by an agent so far."""
        return (tool for name, tool in self.progress.used if name == agent)


def begin(
    *,
    run_id: str,
    agent: str,
    input_items: list[Item],
    owner: Owner = Owner(),  # noqa: B008 — frozen
    max_turns: int | None = 10,
    verdict: Verdict = "passed",
    input_is_text: bool = False,
    inside: str | None = None,
    is_apart: bool = False,
    is_beside: bool = False,
    message: dict[str, Any] | None = None,
) -> Run:
    """Build a run before its first effect."""
    context: dict[str, Any] = {} if inside is None else {"inside": inside}
    context |= {name: True for name, is_so in (("apart", is_apart), ("beside", is_beside)) if is_so}
    context |= {} if message is None else {"message": message}
    entries = [Entry("input", agent, item) for item in input_items]
    return Run(
        spec=Spec(run_id, agent, owner, max_turns, len(entries), input_is_text, context or None),
        progress=Progress(agent=agent, verdict=verdict, is_ready=message is not None),
        marks=Positions(response_id=owner.id if owner.kind == "chain" else None),
        ledger=Log(entries),
        views=Log([View(None if owner.kind == "session" else (), 0)]),
    )
