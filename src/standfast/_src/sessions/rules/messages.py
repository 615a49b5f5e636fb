"""Send messages to a conversation, and read receipts (F1).

A message is a saved run without a worker. One step saves the run and adds the id to the session's inbox. A message ends
when a run hears it (one step stores the message and ends the record) or when a worker begins the message as a run. The
cell of a message is the receipt: it outlives the record and a clear.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

from standfast._src.base.canonical_json import canonical_json
from standfast._src.base.errors import SealKeyError, SessionBusyError, SessionConflictError
from standfast._src.base.json_values import Item, digest
from standfast._src.runs.engine.codec import decode_saved, ending_of, has_ended
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.sessions.rules.history import (
    INBOX,
    LEASE,
    MESSAGE,
    OPEN_RUN,
    SEALED,
    SEALED_ROW,
    WRITER,
    as_time,
    commit,
    decode_cell,
    look,
    value_of,
)
from standfast._src.sessions.rules.leases import encode_inbox, inbox_in, lease_state_in, open_run_value
from standfast._src.sessions.rules.saved_runs import RunSave, load_run, plan_save
from standfast._src.sessions.storage import Done, KeyUpdate, Name, Plan, ReadAnswer, ReadRequest, Rows

WAITING_MAX = 256
# An inbox without a bound hides a faulty sender, and makes every look longer.

WhenBusy = Literal["steer", "queue", "interrupt", "reject"]
"""Policy of a sender towards a run under way: be heard by the run, wait for the next run, wait and ask the run to stop
after its turn, or be refused."""

MessageState = Literal["waiting", "running", "heard", "done", "refused", "failed", "cancelled", "cleared", "moved"]


class Receipt(NamedTuple):
    """State of a message.

    `state`: `waiting` (no run has heard it), `heard` (by the run `run_id`), `running` and `done` (it is a run of its
    own), `failed` (that run failed), `refused` (by the input guardrail `refused_by`), `cancelled`, `cleared` (its
    session was cleared before a run heard it), or `moved` (it waits in another store).
    """

    message_id: str
    state: MessageState
    run_id: str | None = None
    """The run of the message, or the run that heard it; None while the message waits."""
    refused_by: str | None = None
    is_new: bool = False
    """False for a repeat."""


class WaitingMessage(NamedTuple):
    """A waiting message."""

    message_id: str
    items: list[Item]
    agent: str
    by: str | None
    when_busy: WhenBusy


class Note(msgspec.Struct, frozen=True, array_like=True):
    """Cell of a message: digest of the content, and an end that the message's own record does not tell.

    `writer` and `ordinal` give the place in the history: a fork cuts by them. `nonce` is that of the sending call: a
    call whose answer was lost finds its own message, not a repeat.
    """

    digest: str
    nonce: str = ""
    state: Literal["", "heard", "refused"] = ""
    run_id: str = ""
    writer: str = ""
    ordinal: int = 0
    refused_by: str = ""

    def encode(self) -> bytes:
        """Encode the value of the cell."""
        return msgspec.json.encode(self)


_decode_note = msgspec.json.Decoder(Note).decode


def decode_note(value: bytes) -> Note:
    """Read the cell of a message."""
    return decode_cell(MESSAGE, value, _decode_note)


def content_digest(items: list[Item]) -> str:
    """Return a digest: equal for equal items, in any order of keys."""
    return digest(canonical_json(items)).hex()


class Sending(NamedTuple):
    """A message to send: the saved run, the digest of the content, the sender's policy, a nonce of the call."""

    save: RunSave
    digest: str
    when_busy: WhenBusy
    nonce: str


def send(session: Name, wanted: Sending) -> Plan[Receipt]:
    """Save the message and add the id to the inbox, once; return the receipt of a repeat."""
    message_id = wanted.save.run_id
    run, note, writer = OPEN_RUN + message_id, MESSAGE + message_id, WRITER + message_id
    cells = (INBOX, LEASE, run, note, writer)
    while True:
        sight = yield from look(
            ReadRequest(session, cells=cells, prefixes=(SEALED_HEAD,), rows=(Rows(limit=1, tags=False),), mark=False)
        )
        _refuse_sealed(session, sight)
        if (known := value_of(sight, note)) is not None:
            found = decode_note(known)
            receipt = yield from _receipt(sight, message_id, found, wanted.digest)
            return receipt._replace(is_new=found.nonce == wanted.nonce)
        if value_of(sight, writer) is not None or (yield from load_run(message_id)) is not None:
            raise SessionConflictError(
                f"there is a run {message_id!r} already, and it was not sent as a message to session {session.id!r}",
                "Give the message another id.",
            )
        if wanted.when_busy == "reject":
            _refuse_busy(session, sight)
        ids = inbox_in(sight)
        if len(ids) >= WAITING_MAX:
            raise SessionBusyError(
                f"{len(ids)} messages wait in session {session.id!r}, and no run hears them",
                "Send again later; see that a worker recovers the runs of this store (Runner.recover).",
            )
        saving = (yield from plan_save(wanted.save)).change
        assert saving is not None  # there is no run of that id
        conditions = {cell: value_of(sight, cell) for cell in (INBOX, run, note, writer)}
        if wanted.when_busy == "reject":
            conditions[LEASE] = value_of(sight, LEASE)
        put = {
            INBOX: encode_inbox((*ids, message_id)),
            run: open_run_value(wanted.save.status, None),
            note: Note(wanted.digest, wanted.nonce).encode(),
        }
        got = yield from commit([KeyUpdate(session, cells=conditions, put=put, touch=True), saving])
        if isinstance(got, Done):
            return Receipt(message_id, "waiting", is_new=True)


SEALED_HEAD = "s/"
# Prefix of cells of a sealed session: the sealed head.


def _refuse_sealed(session: Name, sight: ReadAnswer) -> None:
    """Refuse a plain message to a sealed session."""
    rows = sight.rows[0]
    is_sealed = any(value.value.startswith(SEALED) for value in sight.cells.values())
    if is_sealed or (rows and rows[-1].data.startswith(SEALED_ROW)):
        raise SealKeyError(
            f"session {session.id!r} is sealed, and a message to it must be sealed too",
            "Send through EncryptedSession with its key.",
        )


def _refuse_busy(session: Name, sight: ReadAnswer) -> None:
    held = lease_state_in(sight)
    if not held.is_over(sight.now):
        raise SessionBusyError(
            f"session {session.id!r} is held by {held.holder or 'a run'}, and the message was sent with "
            "when_busy='reject'",
            "Send it later, or with when_busy='steer', 'queue' or 'interrupt'.",
            holder=held.holder,
            since=as_time(held.taken or held.since),
        )


def read_receipt(session: Name, message_id: str) -> Plan[Receipt | None]:
    """Return the receipt of a message; None for an unknown id."""
    note = MESSAGE + message_id
    sight = yield from look(ReadRequest(session, cells=(INBOX, note, WRITER + message_id), mark=False))
    known = value_of(sight, note)
    return None if known is None else (yield from _receipt(sight, message_id, decode_note(known), None))


def _receipt(sight: ReadAnswer, message_id: str, known: Note, digest: str | None) -> Plan[Receipt]:
    if digest is not None and known.digest != digest:
        raise SessionConflictError(
            f"message {message_id!r} was sent before, with another content", "Give each message its own id."
        )
    if known.state:
        return Receipt(message_id, known.state, known.run_id or None, known.refused_by or None)
    saved = yield from load_run(message_id)
    if saved is not None:
        return _receipt_by_record(message_id, saved)
    if value_of(sight, WRITER + message_id) is not None:
        return Receipt(message_id, "done", message_id)  # its record was pruned, and its items are what is left
    return Receipt(message_id, "cleared")


_STATES: dict[str, MessageState] = {"done": "done", "failed": "failed", "cancelled": "cancelled"}
"""State of a message by the status of the run that it is."""


def _receipt_by_record(message_id: str, saved: SavedRun) -> Receipt:
    """Build the receipt from the message's own record."""
    if has_ended(saved):
        ending = ending_of(saved) or {}
        if ending.get("refused_by"):
            return Receipt(message_id, "refused", message_id, ending["refused_by"])
        if ending.get("moved_to"):
            return Receipt(message_id, "moved")
        state: MessageState = _STATES.get(ending.get("status", ""), "done")
        return Receipt(message_id, state, ending.get("settled_by") or message_id)
    status = decode_saved(saved).status
    if status == "ready":
        return Receipt(message_id, "waiting")
    return Receipt(message_id, _STATES.get(status, "running"), message_id)


def list_waiting(session: Name) -> Plan[list[WaitingMessage]]:
    """List the waiting messages in the order of sending (F3)."""
    sight = yield from look(ReadRequest(session, cells=(INBOX,), mark=False))
    found: list[WaitingMessage] = []
    for message_id in inbox_in(sight):
        saved = yield from load_run(message_id)
        if saved is None or has_ended(saved):
            continue
        run = decode_saved(saved)
        if run.status == "running" or run.spec.message is None:
            continue
        said, items = run.spec.message, [entry.item for entry in run.ledger[: run.spec.input_count]]
        found.append(WaitingMessage(message_id, items, run.spec.agent, said.get("by"), said.get("when_busy", "steer")))
    return found
