"""Voice calls of the conversation that have not ended: settled, shown or refused, as runs are (C15, E14).

A call whose worker is gone is closed from its data alone, as far as a history needs that: what had begun is said to be
unknown, what was heard is stored. It stays resumable all the same, until it is hung up: what waits for a person waits,
and who had asked for a reply still asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from standfast.agents.approvals import tool_scope
from standfast.driver.call_lookup import Question, questions_of
from standfast.driver.run_saver import RunSaver
from standfast.driver.session_hold import SessionHold
from standfast.engine.events import SettledBy
from standfast.engine.run import Call
from standfast.engine.run_store import RunStore, SavedRun
from standfast.ground.errors import RunClaimedError, RunStateError, StandfastError
from standfast.ground.jsonvalue import Item
from standfast.talk.advance import advance
from standfast.talk.codec import TalkRecord, decode_saved
from standfast.talk.events import Appended
from standfast.talk.talk import Talk, call_item
from standfast.words.model_texts import model_text


def calls_in(saved: SavedRun) -> list[Call]:
    """The tool calls of a saved voice call that are open."""
    return [one.call for one in decode_saved(saved).calls]


@dataclass(frozen=True, slots=True)
class FoundCall:
    """An unfinished voice call."""

    talk: Talk
    revision: int
    is_gone: bool

    remedy = (
        "Go on with the call, or decide about it and hang up: RealtimeRunner.resume(run_id, session=...); or choose"
        " RunConfig(unfinished='settle')."
    )

    @property
    def run_id(self) -> str:
        """What the call is known by."""
        return self.talk.run_id

    @property
    def state(self) -> str:
        """paused (nothing of it is left but what waits for a person), gone or running."""
        if self.talk.waiting and not self.is_torn and (self.is_gone or self.talk.ended):
            return "paused"
        return "gone" if self.is_gone else "running"

    @property
    def is_torn(self) -> bool:
        """Whether something of it is neither history nor waits for a person."""
        talk = self.talk
        return bool(talk.open or talk.stored < len(talk.ledger)) or any(
            one.call.state != "waiting" for one in talk.calls
        )

    @property
    def open_calls(self) -> tuple[Call, ...]:
        """The calls without an output."""
        return tuple(one.call for one in self.talk.calls if one.call.state != "returned")

    def shown(self) -> list[Item]:
        """What waits, as requests of others show it: each call with a fixed text for its output."""
        items: list[Item] = []
        for one in self.talk.calls:
            if one.call.state == "waiting":
                text = model_text("begun_and_waits" if one.call.has_begun else "waits_for_a_person")
                items += [call_item(one), {"type": "function_call_output", "call_id": one.call.id, "output": text}]
        return items

    def questions(self) -> Iterator[Question]:
        """Every question of it that waits."""
        for one in self.talk.calls:
            if one.call.state == "waiting" and one.call.child is not None:
                yield from questions_of(one.call.child)
            elif one.call.state == "waiting":
                yield Question((), one.call, tool_scope(one.call.name), one.agent)


def read_call(saved: SavedRun, *, is_gone: bool) -> FoundCall | None:
    """The call, if it has not ended and has done something. One that cannot be read is refused by name."""
    try:
        talk = decode_saved(saved)
    except StandfastError as error:
        raise unreadable(f"voice call {saved.run_id!r}", error) from error
    has_done_something = bool(talk.calls or talk.open or len(talk.ledger))
    return FoundCall(talk, saved.revision, is_gone) if talk.status != "done" and has_done_something else None


def unreadable(what: str, error: StandfastError) -> RunStateError:
    """What is raised about a run or a call that nobody can tell the state of."""
    return RunStateError(
        f"{what} of this conversation has not ended and cannot be read: {error.what}",
        f"{error.remedy} To go on without it, choose RunConfig(unfinished='ignore').",
    )


async def close_gone_call(hold: SessionHold, event: SettledBy, one: FoundCall, store: RunStore) -> FoundCall:
    """Store what a gone call left, and close what cannot go on; one that another has taken is left alone."""
    talk, run_id = one.talk, one.run_id
    saver = RunSaver(store, TalkRecord, hold=hold, revision=one.revision, needed=True, saved=talk)
    talk, _ = advance(talk, event)
    try:
        await saver.save(talk)  # first of all: from now on nobody else can save in its name
    except RunClaimedError:
        return FoundCall(one.talk, one.revision, is_gone=False)
    upto = len(talk.ledger)
    if talk.stored < upto:
        items = [entry.item for entry in talk.ledger[talk.stored : upto]]
        await hold.append(items, writer=run_id, start=talk.stored)
        talk, _ = advance(talk, Appended(upto))
        await saver.save(talk)
    return FoundCall(talk, saver.revision, is_gone=True)
