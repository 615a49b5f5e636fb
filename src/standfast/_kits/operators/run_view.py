"""Saved run as data: activity, turns, calls, decisions and usage, without any of its agents.

Everything here is read from what the store holds. Nothing is resumed, checked against code or changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from standfast._kits.operators.run_worker import RunWorker
from standfast._src.base.errors import NotFoundError, RunStateError, StandfastError
from standfast._src.base.json_values import Item, decode_value
from standfast._src.items.usage import Usage
from standfast._src.realtime.machine.codec import SCHEMA as CALL, decode_saved as decode_call
from standfast._src.realtime.machine.voice_call import VoiceCall
from standfast._src.runs.engine.codec import ENDED, decode_saved, ending_of, has_ended
from standfast._src.runs.engine.decisions import decisions_of
from standfast._src.runs.engine.reply_costs import costs_since
from standfast._src.runs.engine.run import Call, Decision, Run
from standfast._src.runs.engine.run_store import RunStore, RunSummary, SavedRun
from standfast._src.sessions.records import RequestCost, RunUsage, sum_usages
from standfast._src.sessions.rules.history import NOT_A_VALUE
from standfast._src.sessions.rules.inspection import cost_in

CallState = Literal["intended", "waiting", "decided", "started", "unknown", "done"]


@dataclass(frozen=True, slots=True)
class DecisionView:
    """A person's decision about a call, with name and time. None: not recorded (decided by a program)."""

    approved: bool
    by: str | None
    at: datetime | None
    message: str | None
    is_sticky: bool = False
    """Whether it covers every later call of the same tool."""


@dataclass(frozen=True, slots=True)
class CallView:
    """A call of a run. `state`: `intended` will run, `waiting` is for a person, `decided` waits for a worker, `started`
    had begun when last saved, `unknown` had begun before its worker crashed, `done` has its output.
    """

    call_id: str
    tool: str
    arguments: str
    state: CallState
    turn: int
    agent: str
    run_id: str
    """The run whose call it is: this one, or one inside a call of it."""
    reason: str | None = None
    """Why it waits: "approval", or "unknown" after a crash left its outcome open."""
    output: Any = None
    decision: DecisionView | None = None
    prepared_arguments: str | None = None
    """The values that the tool will get, as JSON text, where they differ from `arguments`."""


@dataclass(frozen=True, slots=True)
class HoldView:
    """The operator and time of a hold on a run."""

    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class SpokenView:
    """Spoken reply of a voice call. The history holds only the heard part.

    The place where the text is cut is an estimate: audio has no word marks.
    """

    number: int
    """Number of its item among those that the call wrote (`Record.number`)."""
    heard: str
    unheard: str | None
    """Rest of the generated text, which the user never heard. None: a guardrail refused the reply, and its text was
    not kept."""
    heard_ms: int
    total_ms: int


@dataclass(frozen=True, slots=True)
class RunView:
    """Saved run as data from its store."""

    run_id: str
    status: str
    """running, paused, ready, done, failed or cancelled."""
    revision: int
    agent: str
    session_id: str | None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    kind: Literal["run", "voice call"] = "run"
    owner: str = "session"
    """Who keeps the conversation: session, conversation, chain or replay."""
    doing: str = ""
    """In words: what it does or waits for."""
    turns: int = 0
    max_turns: int | None = None
    input: tuple[Item, ...] = ()
    open_items: tuple[Item, ...] = ()
    """The reply of its open turn: what the session does not hold yet."""
    calls: tuple[CallView, ...] = ()
    requests: tuple[RequestCost, ...] = ()
    output: Any = None
    settled_by: str | None = None
    """The run that found this one gone and closed it."""
    hold: HoldView | None = None
    """Who keeps it from acting, where it waits as a whole: `Store.release` lets it go on."""
    cancelled_by: str | None = None
    """Who has asked its worker to end it, until the worker does (F7)."""
    spoken: tuple[SpokenView, ...] = ()
    """The spoken replies of a voice call that the user heard, whole or in part."""
    worker: RunWorker | None = None
    """Who drives it, or drove it last, while it is `running` and a lease tells."""

    @property
    def waiting(self) -> tuple[CallView, ...]:
        """Calls that wait for a person."""
        return tuple(call for call in self.calls if call.state == "waiting")

    @property
    def usage(self) -> Usage:
        """Usage of the run so far."""
        return sum_usages([one.usage for one in self.requests])


async def load(runs: RunStore, run_id: str) -> SavedRun:
    """Load a saved run; raise NotFoundError for a missing run, RunStateError for an unreadable record."""
    saved = await runs.load_run(run_id)
    if saved is None:
        raise NotFoundError(f"there is no saved run {run_id!r}", "List them with Store.runs().")
    return saved


def view_of(
    saved: SavedRun, summary: RunSummary | None = None, kept: RunUsage | None = None, items: Sequence[Item] = ()
) -> RunView:
    """Build the view of a saved run. `kept` and `items`: the session's records of an ended run.

    Raises RunStateError for a run that was damaged so that nothing can be shown of it.
    """
    try:
        return _build_view(saved, summary, kept, items)
    except StandfastError:
        raise
    except NOT_A_VALUE as error:
        raise RunStateError(
            f"run {saved.run_id!r} cannot be read: it was damaged ({type(error).__name__})",
            "Restore the store from a backup, or remove the run with Store.delete_run().",
        ) from error


def _build_view(
    saved: SavedRun, summary: RunSummary | None = None, kept: RunUsage | None = None, items: Sequence[Item] = ()
) -> RunView:
    created, updated = (None, None) if summary is None else (summary.created_at, summary.updated_at)
    head = _head(saved)
    if head.get("schema") == CALL:
        return _voice_call(saved, summary)
    if has_ended(saved):
        ending = ending_of(saved) or {}
        status, moved = str(ending.get("status", "done")), ending.get("moved_to")
        return RunView(
            saved.run_id, status, saved.revision, str(ending.get("agent", "")),
            None if summary is None else summary.session_id, created, updated,
            doing=f"was moved to {moved}" if moved else f"has ended: {status}", turns=_turn_count(kept),
            max_turns=ending.get("max_turns"),
            input=tuple(items[: ending.get("input_count") or 0]), calls=_calls_of_ended(saved.run_id, ending, items),
            output=ending.get("output"), requests=() if kept is None else kept.requests,
            settled_by=ending.get("settled_by"),
        )  # fmt: skip
    run = decode_saved(saved)
    owner = run.spec.owner
    return RunView(
        saved.run_id,
        run.status,
        saved.revision,
        run.progress.agent,
        owner.id if owner.kind == "session" else None,
        created,
        updated,
        owner=owner.kind,
        doing=describe_activity(run),
        turns=run.progress.turns,
        max_turns=run.spec.max_turns,
        input=tuple(entry.item for entry in run.ledger[: run.spec.input_count]),
        open_items=tuple(entry.item for entry in run.turn.reply) if run.turn is not None else (),
        calls=tuple(calls_of(run)),
        requests=tuple(costs_of(run)),
        output=run.progress.output,
        settled_by=run.progress.settled_by,
        hold=hold_of(run),
        cancelled_by=None if run.spec.cancel_wish is None else run.spec.cancel_wish["by"],
    )


def hold_of(run: Run) -> HoldView | None:
    """Return the hold of a run or of a nested run in its calls."""
    if run.is_held and run.spec.hold is not None:
        return HoldView(run.spec.hold.by, datetime.fromtimestamp(run.spec.hold.at, UTC))
    inside = (hold_of(call.child) for call in run.calls if call.child is not None)
    return next((one for one in inside if one is not None), None)


def _head(saved: SavedRun) -> Item:
    try:
        head = decode_value(saved.head)
    except ValueError:
        head = None
    if not isinstance(head, dict):
        raise RunStateError(
            f"run {saved.run_id!r} cannot be read: its head is no JSON object",
            "It was damaged, or another program wrote it; delete_run() removes it.",
        )
    return head


def _voice_call(saved: SavedRun, summary: RunSummary | None) -> RunView:
    talk = decode_call(saved)
    status = summary.status if summary is not None else talk.status
    return RunView(
        saved.run_id,
        status,
        saved.revision,
        talk.agent,
        talk.session_id,
        None if summary is None else summary.created_at,
        None if summary is None else summary.updated_at,
        kind="voice call",
        doing=f"has ended: {status}" if status in ENDED else "is a voice call: RealtimeRunner.resume takes it up",
        open_items=tuple(entry.item for entry in talk.ledger.since(talk.stored)),
        spoken=tuple(_spoken_replies(talk)),
    )


def _spoken_replies(talk: VoiceCall) -> Iterator[SpokenView]:
    for number, entry in enumerate(talk.ledger):
        extra, heard = entry.extra or {}, entry.item.get("content")
        if "total_ms" not in extra or not isinstance(heard, str):
            continue
        generated = extra.get("generated")
        # A written reply and a corrected transcript need not begin with what the history holds.
        unheard = generated.removeprefix(heard).strip() if generated and generated.startswith(heard) else ""
        rest = None if generated is None else unheard
        yield SpokenView(number, heard, rest, extra.get("heard_ms", 0), extra["total_ms"])


def _turn_count(kept: RunUsage | None) -> int:
    return max((one.turn for one in kept.requests), default=0) if kept is not None else 0


# --- what it does ----------------------------------------------------------------------------------------------------


def describe_activity(run: Run) -> str:
    """Describe a run's activity, or the reason for its wait, in a few words."""
    status, turn = run.status, run.turn
    if status in ("done", "failed", "cancelled"):
        return f"has ended: {status}" if run.finished else f"was stopped: {status}; it can be resumed"
    if run.spec.cancel_wish is not None:
        return f"is to end: {run.spec.cancel_wish['by']} cancelled it"
    waits = [call for call in calls_of(run) if call.state == "waiting"]
    if waits:
        return f"waits for a decision about {', '.join(call.tool for call in waits)}"
    if (hold := hold_of(run)) is not None:
        return f"is held by {hold.by}, because its store was restored, and waits for a person to let it continue"
    if status == "ready":
        return "is decided, and waits for a worker"
    if run.finished:
        return "has come to its end, and stores its last turn"
    if turn is None:
        asks = "asks the model" if run.progress.outgoing is not None else "is about to ask the model"
        return f"{asks}, for turn {run.progress.turns + 1}"
    begun = [call.name for call in turn.calls if call.state == "begun"]
    doubtful = [call.name for call in turn.calls if call.state == "doubt"]
    if doubtful:
        return f"settles what became of {', '.join(doubtful)}"
    if begun:
        return f"runs {', '.join(begun)}"
    if not turn.complete:
        return f"is about to run {', '.join(call.name for call in turn.calls if call.state == 'asked')}"
    return f"concludes turn {turn.number}"


# --- calls -----------------------------------------------------------------------------------------------------------


def calls_of(run: Run) -> Iterator[CallView]:
    """Yield every call of a run in order; unfinished nested runs' calls follow the call around them."""
    outputs = {entry.item.get("call_id"): entry.item.get("output") for entry in run.ledger if "output" in entry.item}
    decided = {one["call_id"]: one for one in decisions_of(run) if one.get("run_id") == run.spec.run_id}
    turn_number, was_reply = 0, False
    for entry in run.ledger:
        is_reply = entry.kind not in ("input", "input_item") and "output" not in entry.item
        turn_number += is_reply and not was_reply
        was_reply = is_reply
        if entry.kind in ("tool_call_item", "handoff_call_item") and "call_id" in entry.item:
            output = outputs.get(entry.item["call_id"])
            yield _view_done_call(run.spec.run_id, entry.item, entry.agent, turn_number, output, decided)
    turn = run.turn
    for call in turn.calls if turn is not None else ():
        assert turn is not None
        yield CallView(
            call.id,
            call.name,
            call.arguments,
            _state(call),
            turn.number,
            turn.agent,
            run.spec.run_id,
            call.reason if call.state == "waiting" else None,
            call.outputs[0].item.get("output") if call.outputs else None,
            decision_view(call.decision),
            call.prepared_arguments,
        )
        if call.child is not None:
            yield from calls_of(call.child)


def _view_done_call(
    run_id: str, item: Item, agent: str, turn: int, output: object, decided: Mapping[Any, Item]
) -> CallView:
    arguments = item.get("arguments")
    return CallView(
        str(item["call_id"]),
        str(item.get("name") or item.get("type")),
        arguments if isinstance(arguments, str) else "",
        "done",
        turn,
        agent,
        run_id,
        output=output,
        decision=_kept_decision(decided.get(item["call_id"])),
    )


def _calls_of_ended(run_id: str, ending: Item, items: Sequence[Item]) -> tuple[CallView, ...]:
    """Return the calls of an ended run from its session's items, with the decisions from its own record.

    For calls inside an agent tool, and for items deleted from the session, only the decided calls.
    """
    known = {(one.get("run_id"), one.get("call_id")): one for one in ending.get("decisions", ())}
    own = {call_id: one for (of, call_id), one in known.items() if of == run_id}
    outputs = {item.get("call_id"): item["output"] for item in items if "output" in item}
    found: dict[tuple[Any, Any], CallView] = {}
    turn_number, was_reply = 0, False
    for item in items[ending.get("input_count") or 0 :]:
        is_reply = "output" not in item
        turn_number += is_reply and not was_reply
        was_reply = is_reply
        if is_reply and "call_id" in item:
            call_id = item["call_id"]
            found[run_id, call_id] = _view_done_call(run_id, item, "", turn_number, outputs.get(call_id), own)
    for (of, call_id), one in known.items():
        if (of, call_id) not in found:
            item = {"call_id": call_id, "name": one.get("tool")}
            found[of, call_id] = _view_done_call(str(of), item, str(one.get("agent", "")), 0, None, {call_id: one})
    return tuple(found.values())


def _kept_decision(kept: Item | None) -> DecisionView | None:
    if kept is None:
        return None
    names = ("approved", "message", "sticky", "by", "at")
    return decision_view(Decision(**{name: kept[name] for name in names if name in kept}))


def _state(call: Call) -> CallState:
    match call.state:
        case "asked":
            return "intended" if call.decision is None else "decided"
        case "waiting":
            # A call whose nested run waits: the call inside is the one to decide about.
            return "waiting" if call.child is None else "started"
        case "begun":
            return "started"
        case "doubt":
            return "unknown"
        case "returned":
            return "done"


def decision_view(decision: Decision | None) -> DecisionView | None:
    """Build the view of a decision."""
    if decision is None:
        return None
    at = None if decision.at is None else datetime.fromtimestamp(decision.at, UTC)
    return DecisionView(decision.approved, decision.by, at, decision.message, decision.sticky)


# --- costs -----------------------------------------------------------------------------------------------------------


def costs_of(run: Run) -> list[RequestCost]:
    """Return the cost of each reply of a run, with its turn."""
    return [cost_in(one) for one in costs_since(run, 0)]
