"""JSON form of a run, and back: a saved run equals the run, with the same effects due.

One version number; each older version has one small upgrade step in `upgrades.py`, and a newer or foreign one is
refused by name (D9). A payload is data: it is checked against the types and against itself, and nothing in it can
name code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from standfast._src.base.errors import RunStateError
from standfast._src.base.json_values import Item, decode_value, encode_value
from standfast._src.items.history import LOCAL_CALL_TYPES
from standfast._src.runs.engine.advance import advance, refuse_settled
from standfast._src.runs.engine.append_log import NOT_OF_THE_TYPE, convert, encode_record, plain
from standfast._src.runs.engine.decisions import decisions_of
from standfast._src.runs.engine.events import Signalled
from standfast._src.runs.engine.run import Decision, Run, Turn
from standfast._src.runs.engine.run_store import LogTail, SavedRun
from standfast._src.runs.engine.signals import pending_signals
from standfast._src.runs.engine.upgrades import SCHEMA, VERSION, choose_version, downgrade, upgrade

ENDED = frozenset({"done", "failed", "cancelled"})
"""Statuses of a saved run without a worker and without a pending decision."""

LOGS = ("ledger", "responses", "views", "results", "decided")


def encode_run(run: Run) -> dict[str, Any]:
    """The whole run as a JSON object."""
    return _add_version(plain(run))


def _add_version(parts: dict[str, Any]) -> dict[str, Any]:
    """Add schema and version to the saved parts, in the layout for this process to write."""
    payload = {"schema": SCHEMA, "version": VERSION, **parts}
    version = choose_version()
    return payload if version == VERSION else downgrade(plain(payload), version)


def decode_run(payload: object) -> Run:
    """Decode a run; raise RunStateError for any other payload, before using any of it."""
    data = upgrade(payload)
    try:
        run = convert({name: value for name, value in data.items() if name not in ("schema", "version")}, Run)
    except NOT_OF_THE_TYPE as error:
        raise _unreadable(str(error)) from None
    _check(run)
    return run


class SavedContext(Struct, frozen=True, omit_defaults=True):
    """A context as JSON, and the method of its conversion."""

    via: Literal["none", "mapping", "asdict", "model_dump", "omitted", "context_serializer"]
    value: Item | None
    type_name: str | None = field(default=None, name="class")

    def __post_init__(self) -> None:
        if (self.via == "none") is not (self.value is None):
            raise ValueError("a context has a value, and no context has none")


class BesideRun(Struct, frozen=True):
    """Parts of a saved state besides the run itself."""

    revision: Annotated[int, Meta(ge=0)] = 0
    saved_context: SavedContext = SavedContext("none", None)
    usage: Item | None = None
    decisions: tuple[Decision, ...] = ()


class RunRecord:
    """A run as a record of a run store.

    For a run that ended in a session, only its ending is kept: its items are in the session. Without a session the
    whole run is kept, for a process that crashed before it could hand over the result.
    """

    def __init__(self, run: Run) -> None:
        owner = run.spec.owner
        self._run = run
        self._only_ending = run.is_closed and owner.kind == "session"
        self.run_id, self.status, self.agent = run.spec.run_id, run.status, run.progress.agent
        self.session_id = owner.id if owner.kind == "session" else None
        self.budgets = run.spec.budgets
        """Totals of the run on the budgets (F10)."""
        self.has_ended = run.is_closed

    def head(self) -> bytes:
        """The small part, whole."""
        return encode_ending(self._run) if self._only_ending else encode_head(self._run)

    def tails(self, saved: Mapping[str, int]) -> Mapping[str, LogTail]:
        """Return the unsaved tail of each log; if only the ending is kept, empty logs from the start."""
        return {name: LogTail(0, ()) for name in saved} if self._only_ending else encode_tails(self._run, saved)

    def lengths(self) -> Mapping[str, int]:
        """Return the length of each log."""
        return {} if self._only_ending else _lengths(self._run)


def encode_ending(run: Run) -> bytes:
    """Encode the ending of a run."""
    ending = {
        "status": run.status,
        "agent": run.progress.agent,
        "output": run.progress.output,
        "tripped": run.tripped or run.withheld,
        # Whose save this is: else a second resumer's would look like a repeat of the first one's.
        "claim": run.progress.claim,
        "settled_by": run.progress.settled_by,
        # Number of its items in the session that were its input: a later reader of its result cannot tell otherwise.
        "input_count": run.spec.input_count,
        "max_turns": run.spec.max_turns,
    }
    if run.tripped and run.spec.message is not None:
        ending["refused_by"] = next((one["guardrail"] for one in reversed(run.results) if one.get("tripped")), "")
    if decided := list(decisions_of(run)):
        ending["decisions"] = decided
    return encode_value(_add_version({"ended": run.spec.run_id, **ending}))


def encode_head(run: Run) -> bytes:
    """The small part of a run: everything but the logs, with their lengths."""
    parts = {"spec": run.spec, "progress": run.progress, "marks": run.marks, "turn": run.turn}
    return encode_record(_add_version({**parts, "lengths": _lengths(run)}))


def _lengths(run: Run) -> dict[str, int]:
    return {name: len(getattr(run, name)) for name in LOGS}


def encode_tails(run: Run, saved: Mapping[str, int]) -> dict[str, LogTail]:
    """Encode the unsaved tail of each log."""
    return {
        name: LogTail(saved.get(name, 0), [encode_record(record) for record in records])
        for name in LOGS
        if (records := getattr(run, name).since(saved.get(name, 0)))
    }


def _own_head(head: bytes) -> dict[str, Any]:
    """The head of a saved run of ours, of any version; empty for anything else."""
    try:
        known = decode_value(head)
    except ValueError:
        return {}
    return known if isinstance(known, dict) and known.get("schema") == SCHEMA else {}


def has_ended(saved: SavedRun) -> bool:
    """Return whether only the ending of a run was saved."""
    return "ended" in _own_head(saved.head)


def ending_of(saved: SavedRun) -> dict[str, Any] | None:
    """Return the saved ending of a run (status, last agent, output); None for a run saved whole."""
    head = _own_head(saved.head)
    return head if "ended" in head and "agent" in head else None


class Ending(Struct, frozen=True):
    """Saved part of a run that has ended in a session, as `encode_ending` writes it."""

    status: Literal["done", "failed", "cancelled"]
    agent: str
    output: Any = None
    tripped: bool = False
    claim: str | None = None
    settled_by: str | None = None
    moved_to: str | None = None
    input_count: Annotated[int, Meta(ge=0)] = 0
    max_turns: int | None = None
    decisions: tuple[Item, ...] = ()
    refused_by: str | None = None


def check_ending(saved: SavedRun) -> Ending:
    """Return the saved ending of a run, with checked types; raise RunStateError otherwise."""
    try:
        return convert(_own_head(saved.head), Ending)
    except NOT_OF_THE_TYPE as error:
        raise _unreadable(str(error)) from None


def is_left_open(head: bytes) -> bool:
    """Return whether a saved head belongs to a run of standfast that stopped before its end, and has done something
    (C15).
    """
    known = _own_head(head)
    progress, marks = known.get("progress"), known.get("marks") or {}
    if not isinstance(progress, dict):
        return False  # only its end was kept, or it is no run of ours
    has_ended = progress.get("ended") or progress.get("verdict") == "tripped"
    if not has_ended and (known.get("turn") or marks.get("stored") or marks.get("acknowledged")):
        return True
    return _conversation(known) is not None and _owes(known, has_ended=bool(has_ended))


def _owes(known: dict[str, Any], *, has_ended: bool) -> bool:
    """Return `Run.is_left_owing` for a head on a server's conversation, or whether an unended run may owe
    items there.
    """
    progress, marks, context = known["progress"], known.get("marks") or {}, known["spec"].get("context")
    said = context if isinstance(context, dict) else {}
    sent = marks.get("acknowledged", 0)
    if progress.get("settled_by") is not None:
        return False
    if not sent:
        return said.get("took_over") is True or (not has_ended and progress.get("outgoing") is not None)
    length = (known.get("lengths") or {}).get("ledger", 0)
    return has_ended and "inside" in said and bool(marks.get("owed") or sent < length)


def may_go_on(status: str, head: bytes) -> bool:
    """Return whether a resume of this saved run, or voice call, could still have an effect."""
    known = _own_head(head)
    if not known:
        return status not in ENDED
    progress = known.get("progress")
    if "ended" in known or not isinstance(progress, dict):
        return False
    # One that failed or was cut can be resumed: what it had not done yet is done then.
    return not progress.get("ended") and progress.get("verdict") != "tripped"


def encode_moved(run_id: str, agent: str, moved_to: str) -> bytes:
    """Encode the head of a run that continues in another store: an ending for every reader here."""
    ending = {"status": "cancelled", "agent": agent, "output": None, "settled_by": None, "moved_to": moved_to}
    return encode_value(_add_version({"ended": run_id, **ending}))


def conversation_of(head: bytes) -> str | None:
    """Return the server's conversation of a saved head's run; None for a run without one."""
    return _conversation(_own_head(head))


def _conversation(known: dict[str, Any]) -> str | None:
    spec = known.get("spec")
    owner = spec.get("owner") if isinstance(spec, dict) else None
    if not isinstance(owner, dict) or owner.get("kind") != "conversation" or not isinstance(owner.get("id"), str):
        return None
    found: str = owner["id"]
    return found


def settler_of(saved: SavedRun) -> str | None:
    """Return the run that settled a saved run after its worker had crashed; None if unsettled (C15)."""
    ending = ending_of(saved)
    return decode_saved(saved).progress.settled_by if ending is None else ending.get("settled_by")


def decode_saved(saved: SavedRun) -> Run:
    """Decode a stored run, with the signals since the last save (F7)."""
    run = _decode_as_saved(saved)
    for signal in pending_signals(saved.signals, run.spec.signals_taken):
        if not run.finished:
            run = advance(run, Signalled(signal))
    return run


def count_taken_signals(head: bytes) -> int | None:
    """Return the number of applied signals of a saved head; None for an ended run."""
    known = _own_head(head)
    spec = known.get("spec")
    if "ended" in known or not isinstance(spec, dict):
        return None
    context = spec.get("context")
    found = context.get("signals") if isinstance(context, dict) else None
    return found if type(found) is int else 0


def _decode_as_saved(saved: SavedRun) -> Run:
    try:
        stored = decode_value(saved.head)
        logs = {name: [decode_value(record) for record in saved.logs.get(name, ())] for name in LOGS}
    except ValueError:
        raise _unreadable("it is not JSON") from None
    if has_ended(saved):
        ending = ending_of(saved) or {}
        refuse_settled(saved.run_id, ending.get("settled_by"), ending.get("moved_to"))
        raise RunStateError(
            f"run {saved.run_id!r} has ended and cannot be resumed",
            "Start a new turn on the same session, with another run id.",
        )
    head = upgrade(stored)  # a record of another kind is named here, before anything of it is looked at
    lengths = head.pop("lengths", None)
    if not isinstance(lengths, dict):
        raise _unreadable("its head is not one of ours")
    for name, records in logs.items():
        if name in head and name not in stored:
            continue  # the version it was saved in kept this in the head
        wanted = lengths.get(name)
        if type(wanted) is not int or not 0 <= wanted <= len(records):
            raise _unreadable(f"its {name} log is not as long as its head says")
        head[name] = records[:wanted]
    return decode_run(head)


def _check(run: Run) -> None:
    """Check the invariants that types cannot express: the numbers of a run agree with its logs."""
    # A payload is untrusted text. The items at these numbers are read and sent without another check.
    size = len(run.ledger)
    marks, spec = run.marks, run.spec
    sent = run.progress.outgoing.sent if run.progress.outgoing is not None else ()
    faults = [
        (not spec.run_id, "it has no run id"),
        (not 0 <= marks.stored <= size, "its stored mark is outside the ledger"),
        (not 0 <= marks.ready <= size, "its ready mark is outside the ledger"),
        (not 0 <= marks.acknowledged <= size, "its acknowledged mark is outside the ledger"),
        (any(not 0 <= ordinal < size for ordinal in marks.owed), "it owes an item outside the ledger"),
        (any(not 0 <= place < size for place in sent), "it has sent an item outside the ledger"),
        (not 0 <= spec.input_count <= size, "its input is longer than its ledger"),
        (not len(run.views), "it has no view"),
        (any(not 0 <= view.tail <= size for view in run.views), "a view begins outside the ledger"),
        (run.progress.turns < 0, "its turn count is negative"),
        (run.turn is not None and run.turn.number not in _open_numbers(run, run.turn), "its open turn is not its last"),
        (len({call.id for call in run.calls}) != len(run.calls), "a call id repeats"),
    ]
    for wrong, why in faults:
        if wrong:
            raise _unreadable(why)
    if run.turn is not None:
        _check_calls(run.turn)


def _is_local_call(kind: object) -> bool:
    return isinstance(kind, str) and kind in LOCAL_CALL_TYPES  # a damaged state may hold anything there


def _check_calls(turn: Turn) -> None:
    """Check that the calls of the open turn belong to its reply, and their outputs to them.

    A missing call would be forgotten; a call marked open despite an output would run again.
    """
    for call in turn.calls:
        if all(entry.item.get(call.id_name) != call.id for entry in turn.reply):
            raise _unreadable(f"call {call.id!r} is not in the reply that it should have come with")
        if call.state == "returned" and not call.outputs:
            raise _unreadable(f"call {call.id!r} returned without an output")
        if call.state != "returned" and call.outputs:
            raise _unreadable(f"call {call.id!r} has an output and has not returned")
        if call.kind != "hosted" and any(entry.item.get("call_id") != call.id for entry in call.outputs[:1]):
            raise _unreadable(f"the output of call {call.id!r} is not its own")
        if call.child is not None:
            _check(call.child)
    known = {call.id for call in turn.calls}
    for entry in turn.reply:
        if _is_local_call(entry.item.get("type")) and str(entry.item.get("call_id")) not in known:
            raise _unreadable("a call of its reply is missing")


def _open_numbers(run: Run, turn: Turn) -> tuple[int, ...]:
    # See `_concluded` in advance.
    # A turn is charged when its reply arrives; one that a handler made when no turn was left has no reply.
    unasked = turn.conclusion is not None and not turn.reply and not turn.calls
    return (run.progress.turns, run.progress.turns + 1) if unasked else (run.progress.turns,)


def _unreadable(why: str) -> RunStateError:
    return RunStateError(
        f"this is not a saved run that can be used: {why}",
        "Use the text that RunState.to_string() gave, unchanged; if it is lost, start a new run on the same session.",
    )
