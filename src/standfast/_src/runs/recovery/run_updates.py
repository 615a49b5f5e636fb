"""Updates for watchers of a saved run, and their order.

A store keeps the state of a run, not its events. So everything here is a function of two values: the updates that a
watcher has already got (`Told`, encoded by its cursor) and the present state of the run (`RunSnapshot`). No state is
kept for a watcher, and a disconnected one continues in any process: its missing updates are computed from the run.

Items never leave a run's history and have a number there, so each is reported once. A call of an incomplete turn is
known by the number that its item will have: a turn with a begun call is never dropped. Concurrent calls end in any
order, and the history has them in call order, so a cursor records for each whether its end was reported; a single
number could not do that. The state of a run (its worker, the person it waits for) is reported when it differs from the
last reported one: states in between that were not seen are lost.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from standfast._src.base.errors import CallerError
from standfast._src.base.json_values import Item, JsonValue, copy_json
from standfast._src.items.history import LOCAL_CALL_TYPES, LOCAL_OUTPUT_TYPES, pair, sanitise_for_store
from standfast._src.items.item_kinds import kind_of
from standfast._src.runs.engine.run import Call, Run, Turn
from standfast._src.runs.steps.call_lookup import questions_of
from standfast._src.runs.steps.reply_parsing import arguments_text

# --- what is told ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Update:
    """An update for a watcher. `cursor` is the watcher's position after it."""

    run_id: str
    cursor: str

    TYPE: ClassVar[str] = ""

    def to_json(self) -> dict[str, Any]:
        """The update as a JSON object, with its `type` first: item_saved, call_began, call_ended, …"""
        told = {one.name: getattr(self, one.name) for one in fields(self)}
        if "waiting" in told:
            told["waiting"] = [{one.name: getattr(call, one.name) for one in fields(call)} for call in told["waiting"]]
        return {"type": self.TYPE, **told}


@dataclass(frozen=True, slots=True)
class ItemSaved(_Update):
    """An item of the run's history is saved for good. A turn's items come together, when the turn is whole."""

    ordinal: int
    """Which of the run's items it is, from 0."""
    kind: str
    """`input`, or what the item would be called in a result: message_output_item, tool_call_item, …"""
    item: Item
    agent: str | None = field(default=None, compare=False)
    """Whose it is; None where that is no longer known, because the run has ended and its session keeps only items."""

    TYPE: ClassVar[str] = "item_saved"


@dataclass(frozen=True, slots=True)
class CallBegan(_Update):
    """A worker has begun a tool call, to run it or to refuse it."""

    call_id: str
    tool: str
    arguments: str

    TYPE: ClassVar[str] = "call_began"


@dataclass(frozen=True, slots=True)
class CallEnded(_Update):
    """A tool call has its output. Its turn may still wait for other calls."""

    call_id: str
    tool: str
    output: JsonValue

    TYPE: ClassVar[str] = "call_ended"


@dataclass(frozen=True, slots=True)
class PendingCall:
    """Call waiting for a person. `reason`: "approval", or "unknown" after a crash with an open outcome."""

    call_id: str
    tool: str
    arguments: str
    agent: str
    reason: str | None = None
    prepared_arguments: str | None = None
    """The values that the tool will get, as JSON text, where they differ from `arguments`."""


@dataclass(frozen=True, slots=True)
class RunStatusChanged(_Update):
    """A worker is at the run (`running`), it waits for people (`paused`), or for a worker, being decided (`ready`)."""

    status: Literal["running", "paused", "ready"]
    waiting: tuple[PendingCall, ...] = ()
    """The calls that wait for a person. Further calls of a `running` run may still be under way."""
    is_taken_over: bool = False
    """Whether a worker has taken it up since the status before was told: after a pause, a crash or a hand-over."""

    TYPE: ClassVar[str] = "run_status_changed"


@dataclass(frozen=True, slots=True)
class RunEnded(_Update):
    """The run has ended. A failed or cut run can be resumed; to see the resume, watch the run again."""

    status: Literal["done", "failed", "cancelled"]
    output: JsonValue = None
    agent: str = ""
    settled_by: str | None = None
    """The run that found this one gone and closed it."""
    is_complete: bool = True
    """Whether every item was told. Not if its session no longer holds them, or cannot say which are this run's."""

    TYPE: ClassVar[str] = "run_ended"


RunUpdate: TypeAlias = ItemSaved | CallBegan | CallEnded | RunStatusChanged | RunEnded
"""Update for a watcher of a run: one of five kinds."""


# --- what was told ---------------------------------------------------------------------------------------------------

_CURSOR = re.compile(r"(\d{1,9})((?:\.\d{1,9}[be])*)-(?:([0-9a-f]{6})([0-9a-f]{6}))?", re.ASCII)

Mark = Literal["b", "e"]


@dataclass(frozen=True, slots=True)
class Told:
    """Updates that a watcher has got: all items before number `count`, and parts of some later calls.

    `calls`: the number of a call's item, and whether only its begin was reported (b) or its end too (e); left out if
    implied by `count`. `standing` and `claim`: digests of the run's state, and of its worker; "": nothing was reported.
    """

    count: int = 0
    calls: tuple[tuple[int, Mark], ...] = ()
    standing: str = ""
    claim: str = ""

    @property
    def cursor(self) -> str:
        """The same as a short text."""
        return f"{self.count}{''.join(f'.{ordinal}{mark}' for ordinal, mark in self.calls)}-{self.standing}{self.claim}"

    @property
    def is_nothing(self) -> bool:
        """True if no update was sent yet."""
        return self == Told()


def parse_cursor(cursor: str | None) -> Told:
    """Decode a cursor; raise CallerError for any other text."""
    if cursor is None:
        return Told()
    found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise CallerError(f"{cursor!r} is no cursor of a watched run", "Give the `cursor` of an update, unchanged.")
    count, calls, standing, claim = found.groups(default="")
    marks: list[tuple[int, Mark]] = [(int(one[:-1]), "b" if one[-1] == "b" else "e") for one in calls.split(".")[1:]]
    return Told(int(count), tuple(marks), standing, claim)


# --- how a run stands ------------------------------------------------------------------------------------------------


class ShownItem(NamedTuple):
    """An item of a run in the form for watchers."""

    item: Item
    kind: str
    agent: str | None = None


class BegunCall(NamedTuple):
    """Begun call of the open turn, with the number of its future item."""

    ordinal: int
    item: Item
    has_ended: bool
    output: JsonValue


@dataclass(frozen=True, slots=True)
class RunSnapshot:
    """Present state of a run."""

    run_id: str
    status: str
    shown: Sequence[ShownItem] = ()
    count: int | None = 0
    """How many items it has; more than are shown where some can no longer be read, None where it is unknown."""
    calls: Sequence[BegunCall] = ()
    waiting: tuple[PendingCall, ...] = ()
    claim: str = ""
    output: JsonValue = None
    agent: str = ""
    settled_by: str | None = None
    is_complete: bool = True

    @property
    def has_ended(self) -> bool:
        """True if the run is done, failed or cancelled."""
        return self.status in ("done", "failed", "cancelled")


def snapshot_of(run: Run) -> RunSnapshot:
    """Build the snapshot of a run that is saved whole."""
    items = [
        _to_shown_item(entry.item, number < run.spec.input_count, entry.agent)
        for number, entry in enumerate(run.ledger)
    ]
    waiting = tuple(
        PendingCall(call.id, call.name, call.arguments, agent, call.reason, call.prepared_arguments)
        for _, call, _, agent in questions_of(run)
        if call.state == "waiting"
    )
    return RunSnapshot(
        run.spec.run_id,
        run.status,
        items,
        len(items),
        tuple(_open_calls(run.turn, len(items))) if run.turn is not None else (),
        waiting,
        run.progress.claim or "",
        run.progress.output,
        run.progress.agent,
        run.progress.settled_by,
    )


def snapshot_of_ending(run_id: str, ending: Item, items: Sequence[Item], count: int | None) -> RunSnapshot:
    """Build the snapshot of a run with only its ending saved; its session has `count` items of it, among them these."""
    known = ending.get("input_count")
    inputs = known if isinstance(known, int) else 0
    return RunSnapshot(
        run_id,
        str(ending.get("status", "done")),
        [_to_shown_item(item, number < inputs, None) for number, item in enumerate(items)],
        count,
        claim=str(ending.get("claim") or ""),
        output=ending.get("output"),
        agent=str(ending.get("agent", "")),
        settled_by=ending.get("settled_by"),
        is_complete=len(items) == count,
    )


def _to_shown_item(item: Item, is_input: bool, agent: str | None) -> ShownItem:
    # From stored facts alone: a later watcher, with only these left, must get the same updates.
    if is_input:
        kind = "input"
    elif item.get("type") in LOCAL_OUTPUT_TYPES:
        kind = "tool_call_output_item"
    elif item.get("role") in ("user", "system", "developer"):
        kind = "input_item"
    else:
        kind = kind_of(item).name
    return ShownItem(sanitise_for_store(item) or item, kind, agent or None)


def _open_calls(turn: Turn, start: int) -> Iterator[BegunCall]:
    # A turn of which a call has begun, or has its output, is kept whatever happens (C8). Before that it may be dropped,
    # and another call would come to stand where this one was told of.
    if not turn.ran:
        return
    places = {id(entry.item): start + number for number, entry in enumerate(turn.reply)}
    for call in turn.calls:
        item = turn.item_of(call)
        if item.get("type") in LOCAL_CALL_TYPES and (call.has_begun or call.state == "returned"):
            yield BegunCall(places[id(item)], item, call.state == "returned", _output(call))


def _output(call: Call) -> JsonValue:
    return next((entry.item["output"] for entry in call.outputs if "output" in entry.item), None)


# --- what there is to tell -------------------------------------------------------------------------------------------


def updates_after(told: Told, now: RunSnapshot) -> list[tuple[RunUpdate, Told]]:
    """Return the missing updates in order, each with the watcher's position after it.

    Raises CallerError if the cursor is ahead of the run: then it belongs to another run.
    """
    if now.count is not None and told.count > now.count:
        raise CallerError(
            f"this cursor is behind {told.count} items, and run {now.run_id!r} has {now.count}",
            "Give a cursor of this run; if the run was deleted and begun anew, watch it without one.",
        )
    return list(_Teller(told, now).tell())


class _Teller:
    """Computation of the updates from a watcher's position to the run's state."""

    def __init__(self, told: Told, now: RunSnapshot) -> None:
        self._now, self._count = now, told.count
        self._calls: dict[int, Mark] = dict(told.calls)
        self._standing, self._claim = told.standing, told.claim
        self._end_of: dict[int, int] = {}  # the number of an output's item, by that of its call's

    def tell(self) -> Iterator[tuple[RunUpdate, Told]]:
        now = self._now
        if now.status == "running":
            yield from self._tell_standing()  # a worker came first, and then did what is told behind it
        yield from self._tell_items()
        yield from self._tell_calls()
        if now.status != "running":
            yield from self._tell_standing()

    def _tell_items(self) -> Iterator[tuple[RunUpdate, Told]]:
        now, items = self._now, [one.item for one in self._now.shown]
        self._end_of = {call: end for call, end in pair(items).items() if items[call].get("type") in LOCAL_CALL_TYPES}
        call_of = {end: call for call, end in self._end_of.items()}
        for ordinal in range(self._count, len(items) if now.is_complete else self._count):
            item, kind, agent = now.shown[ordinal]
            if ordinal in self._end_of and ordinal not in self._calls:
                yield self._began(ordinal, item)
            call = call_of.get(ordinal)
            if call is not None and self._calls.get(call) != "e":
                yield self._build_call_ended(call, items[call], item.get("output"))
            self._count = ordinal + 1
            told = self._build_told()
            yield ItemSaved(now.run_id, told.cursor, ordinal, kind, copy_json(item), agent), told
        if not now.is_complete:
            self._count, self._calls = now.count or self._count, {}

    def _tell_calls(self) -> Iterator[tuple[RunUpdate, Told]]:
        now = self._now
        for call in now.calls:
            if call.ordinal not in self._calls:
                yield self._began(call.ordinal, call.item)
        for call in now.calls:
            if call.has_ended and self._calls[call.ordinal] != "e":
                yield self._build_call_ended(call.ordinal, call.item, call.output)

    def _began(self, ordinal: int, item: Item) -> tuple[RunUpdate, Told]:
        self._calls[ordinal] = "b"
        told = self._build_told()
        call_id, tool = str(item.get("call_id")), str(item.get("name"))
        return CallBegan(self._now.run_id, told.cursor, call_id, tool, arguments_text(item)), told

    def _build_call_ended(self, ordinal: int, item: Item, output: object) -> tuple[RunUpdate, Told]:
        self._calls[ordinal] = "e"
        told = self._build_told()
        call_id, tool = str(item.get("call_id")), str(item.get("name"))
        return CallEnded(self._now.run_id, told.cursor, call_id, tool, copy_json(output)), told

    def _tell_standing(self) -> Iterator[tuple[RunUpdate, Told]]:
        now = self._now
        standing = _digest(now.status, *(call.call_id for call in now.waiting))
        claim = _digest(now.claim)
        if (standing, claim) == (self._standing, self._claim):
            return
        is_taken_over = bool(self._claim) and claim != self._claim
        self._standing, self._claim = standing, claim
        told = self._build_told()
        match now.status:
            case "running" | "paused" | "ready" as status:
                yield RunStatusChanged(now.run_id, told.cursor, status, now.waiting, is_taken_over), told
            case "done" | "failed" | "cancelled" as status:
                complete = now.is_complete
                yield RunEnded(now.run_id, told.cursor, status, now.output, now.agent, now.settled_by, complete), told
            case other:
                raise AssertionError(other)

    def _build_told(self) -> Told:
        """Return the present position in canonical form, without parts implied by the number of items."""
        self._calls = {
            ordinal: mark
            for ordinal, mark in self._calls.items()
            if ordinal >= self._count or (mark == "e" and self._end_of.get(ordinal, self._count) >= self._count)
        }
        return Told(self._count, tuple(sorted(self._calls.items())), self._standing, self._claim)


def _digest(*parts: str) -> str:
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:6]
