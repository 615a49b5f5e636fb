"""JSON form of a voice call, in the layout of saved runs: a small head and the tail of its ledger.

The schema is checked first, so that a reader that expects a run can report that it found a voice call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from standfast._src.base.errors import RunStateError
from standfast._src.base.json_values import decode_value
from standfast._src.realtime.machine.voice_call import VoiceCall
from standfast._src.runs.engine.append_log import NOT_OF_THE_TYPE, convert, encode_record
from standfast._src.runs.engine.run_store import LogTail, SavedRun

SCHEMA = "standfast.call"
VERSION = 1
_HEAD = [name for name in VoiceCall.__struct_fields__ if name != "ledger"]


def encode_head(talk: VoiceCall) -> bytes:
    """Encode all fields except the ledger, plus the ledger's length."""
    head = {name: getattr(talk, name) for name in _HEAD}
    return encode_record({"schema": SCHEMA, "version": VERSION, **head, "lengths": {"ledger": len(talk.ledger)}})


def encode_tails(talk: VoiceCall, saved: int) -> dict[str, LogTail]:
    """Encode the ledger's entries behind those already saved."""
    entries = talk.ledger.since(saved)
    return {"ledger": LogTail(saved, [encode_record(entry) for entry in entries])} if entries else {}


class VoiceCallRecord:
    """A voice call as a record of a run store. Its ledger stays after the end of the call: it holds the
    generated text.
    """

    def __init__(self, talk: VoiceCall) -> None:
        self._talk = talk
        self.run_id, self.status, self.agent = talk.run_id, talk.status, talk.agent
        self.session_id = talk.session_id

    def head(self) -> bytes:
        """Return all fields except the ledger."""
        return encode_head(self._talk)

    def tails(self, saved: Mapping[str, int]) -> Mapping[str, LogTail]:
        """Return the ledger's entries behind those already saved."""
        return encode_tails(self._talk, saved.get("ledger", 0))

    def lengths(self) -> Mapping[str, int]:
        """Return the length of the ledger."""
        return {"ledger": len(self._talk.ledger)}


def is_call(saved: SavedRun) -> bool:
    """Return whether a saved run is a voice call."""
    try:
        head = decode_value(saved.head)
    except ValueError:
        return False
    return isinstance(head, dict) and head.get("schema") == SCHEMA


def decode_saved(saved: SavedRun) -> VoiceCall:
    """The call a store holds; raises RunStateError for anything else, before anything is used of it."""
    if not is_call(saved):
        raise RunStateError(
            f"run {saved.run_id!r} is no voice call", "Resume it with Runner.resume, or give the id of a call."
        )
    try:
        head = decode_value(saved.head)
        entries = [decode_value(record) for record in saved.logs.get("ledger", ())]
    except ValueError:
        raise _unreadable("it is not JSON") from None
    if head.pop("version", None) != VERSION:
        raise RunStateError(
            f"call {saved.run_id!r} was saved by another version", "Resume it with the version that wrote it, or newer."
        )
    length = (head.pop("lengths", None) or {}).get("ledger")
    if type(length) is not int or not 0 <= length <= len(entries):
        raise _unreadable("its ledger is not as long as its head says")
    head.pop("schema")
    head["ledger"] = entries[:length]
    try:
        talk = convert(head, VoiceCall)
    except NOT_OF_THE_TYPE as error:
        raise _unreadable(str(error)) from None
    _check(talk)
    return talk


def _check(talk: VoiceCall) -> None:
    calls = [one.call.id for one in talk.calls]
    faults = [
        (not talk.run_id, "it has no run id"),
        (not 0 <= talk.stored <= len(talk.ledger), "its stored mark is outside the ledger"),
        (len(set(calls)) != len(calls), "a call id repeats"),
        (
            any(part.kind == "output" and part.call_id not in calls for part in talk.open),
            "an output belongs to no call",
        ),
    ]
    for wrong, why in faults:
        if wrong:
            raise _unreadable(why)


def generated(talk: VoiceCall) -> list[dict[str, Any] | None]:
    """Return, for each entry of the call's history, the generated text and the heard duration."""
    return [entry.extra for entry in talk.ledger]


def _unreadable(why: str) -> RunStateError:
    return RunStateError(
        f"this is not a saved call that can be used: {why}", "If it is lost, start a new call on the same session."
    )
