"""Unfinished voice calls of the conversation: settled, shown or refused, like runs (C15, E14).

A voice call whose worker has crashed is closed from its data alone, as far as a history needs that: begun tool calls
are recorded as unknown, heard text is stored. It stays resumable all the same, until it is hung up: calls that wait for
a person wait, and requests for a reply stay pending.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from standfast._src.agents.approvals import tool_scope
from standfast._src.base.errors import RunClaimedError, RunStateError, StandfastError
from standfast._src.base.json_values import Item
from standfast._src.items.texts_for_models import model_text
from standfast._src.realtime.machine.advance import advance
from standfast._src.realtime.machine.codec import VoiceCallRecord, decode_saved
from standfast._src.realtime.machine.events import Appended
from standfast._src.realtime.machine.voice_call import VoiceCall, call_item
from standfast._src.runs.engine.events import SettledBy
from standfast._src.runs.engine.run import Call
from standfast._src.runs.engine.run_store import RunStore, SavedRun
from standfast._src.runs.persistence.run_saver import RunSaver
from standfast._src.runs.persistence.session_lock import NewItems, SessionLock
from standfast._src.runs.steps.call_lookup import Question, questions_of
from standfast._src.sessions.rules.saved_runs import NestedItems


def calls_in(saved: SavedRun) -> list[Call]:
    """Return the open tool calls of a saved voice call."""
    return [one.call for one in decode_saved(saved).calls]


@dataclass(frozen=True, slots=True)
class FoundCall:
    """An unfinished voice call."""

    talk: VoiceCall
    revision: int
    is_gone: bool

    remedy = (
        "Go on with the call, or decide about it and hang up: RealtimeRunner.resume(run_id, session=...); or choose"
        " RunConfig(unfinished='settle')."
    )

    @property
    def run_id(self) -> str:
        """Id of the voice call."""
        return self.talk.run_id

    @property
    def state(self) -> str:
        """State: paused (only approvals are open), gone or running."""
        if self.talk.waiting and not self.is_torn and (self.is_gone or self.talk.ended):
            return "paused"
        return "gone" if self.is_gone else "running"

    @property
    def is_torn(self) -> bool:
        """True if a part of it is neither history nor waiting for a person."""
        talk = self.talk
        return bool(talk.open or talk.stored < len(talk.ledger)) or any(
            one.call.state != "waiting" for one in talk.calls
        )

    @property
    def open_calls(self) -> tuple[Call, ...]:
        """The calls without an output."""
        return tuple(one.call for one in self.talk.calls if one.call.state != "returned")

    def items_to_show(self) -> list[Item]:
        """Return its waiting calls for requests of other runs, each with a fixed text as its output."""
        items: list[Item] = []
        for one in self.talk.calls:
            if one.call.state == "waiting":
                text = model_text("begun_and_waits" if one.call.has_begun else "waits_for_a_person")
                items += [call_item(one), {"type": "function_call_output", "call_id": one.call.id, "output": text}]
        return items

    def questions(self) -> Iterator[Question]:
        """Yield its waiting questions."""
        for one in self.talk.calls:
            if one.call.state == "waiting" and one.call.child is not None:
                yield from questions_of(one.call.child)
            elif one.call.state == "waiting":
                yield Question((), one.call, tool_scope(one.call.name), one.agent)


def read_call(saved: SavedRun, *, is_gone: bool) -> FoundCall | None:
    """Return the voice call, if it has not ended and has done something. An unreadable one is refused by name."""
    try:
        talk = decode_saved(saved)
    except StandfastError as error:
        raise unreadable(f"voice call {saved.run_id!r}", error) from error
    has_done_something = bool(talk.calls or talk.open or len(talk.ledger))
    return FoundCall(talk, saved.revision, is_gone) if talk.status != "done" and has_done_something else None


def unreadable(what: str, error: StandfastError) -> RunStateError:
    """Build the error about a run or a voice call with an unreadable state."""
    return RunStateError(
        f"{what} of this conversation has not ended and cannot be read: {error.what}",
        f"{error.remedy} To go on without it, choose RunConfig(unfinished='ignore').",
    )


async def close_gone_call(
    hold: SessionLock, event: SettledBy, nested: Sequence[NestedItems], one: FoundCall, store: RunStore
) -> FoundCall:
    """Store the rest of a crashed voice call, and close its interrupted parts; one taken by another process is left
    unchanged.
    """
    saver = RunSaver(store, VoiceCallRecord, hold=hold, revision=one.revision, saved=one.talk)
    talk, _ = advance(one.talk, event)
    after, _ = advance(talk, Appended(len(talk.ledger)))
    items = [entry.item for entry in talk.ledger.since(talk.stored)]
    try:
        await saver.store_items(hold, NewItems(one.run_id, talk.stored, items, nested=nested), talk, after)
        await saver.save(after)
    except RunClaimedError:
        return FoundCall(one.talk, one.revision, is_gone=False)
    return FoundCall(after, saver.revision, is_gone=True)
