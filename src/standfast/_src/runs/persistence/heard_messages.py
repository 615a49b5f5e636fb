"""Hear the messages that were sent to a run's conversation (F2, F4).

When a run begins, waiting messages are judged and stored, each under its own name, before the run reads the history.
Between two turns they are judged, join the run's ledger, and are stored in a step before the next request leaves.
Either step ends the messages: each is history once, under one writer, and never within a turn.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from standfast._src.agents.guardrails import InputGuardrail, InputGuardrailResult, judge
from standfast._src.base.errors import SessionConflictError, StandfastError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.base.operational_events import emit
from standfast._src.items.items import InputItem
from standfast._src.items.stream_events import RunItemStreamEvent
from standfast._src.realtime.machine.codec import is_call
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.codec import RunRecord, decode_saved, has_ended
from standfast._src.runs.engine.events import MessageHeard, SettledBy
from standfast._src.runs.engine.limits import full_for_request
from standfast._src.runs.engine.run import Run
from standfast._src.runs.loop.run_scope import RunScope, logger
from standfast._src.runs.persistence.session_lock import NewItems
from standfast._src.runs.steps.run_guardrails import input_guardrails
from standfast._src.sessions.rules.budgets import draws_of
from standfast._src.sessions.rules.messages import Note, content_digest
from standfast._src.sessions.rules.saved_runs import HeardMessage, NestedItems, RunSave

if TYPE_CHECKING:
    from standfast._src.runs.loop.loop import Loop


@dataclass(frozen=True, slots=True)
class Message:
    """A waiting message: items, and the save that ends the record."""

    message_id: str
    items: list[Item]
    end: RunSave

    def end_heard(self, run_id: str, writer: str, ordinal: int) -> HeardMessage:
        """End the message as heard by the run `run_id`: a writer's item of this number."""
        note = Note(content_digest(self.items), "", "heard", run_id, writer, ordinal)
        return HeardMessage(self.message_id, self.end, note.encode())

    def end_refused(self, run_id: str, guardrail: str) -> HeardMessage:
        """End the message as refused by a guardrail of the run `run_id`."""
        note = Note(content_digest(self.items), "", "refused", run_id, refused_by=guardrail)
        return HeardMessage(self.message_id, self.end, note.encode())


def can_hear(scope: RunScope) -> bool:
    """Return True for the outermost run of a session, under a lease, saved in the same store."""
    hold, store = scope.session, scope.store
    if hold is None or store is None or scope.arguments.moved is not None:
        return False
    return hold.lease is not None and not hold.is_covered and hold.keeps(store)


def _has_room(run: Run) -> bool:
    """Return False at a full limit: without a further request, the next run hears waiting messages (F2c)."""
    limits = run.spec.limits
    return limits is None or full_for_request(limits, run.spec.tally) is None


def hears_at_once(scope: RunScope) -> bool:
    """Return True if the run hears waiting messages before its own input: the run is saved first then (F5)."""
    return scope.session is not None and bool(scope.session.inbox) and can_hear(scope)


async def _load_waiting(
    scope: RunScope, run: Run, ids: tuple[str, ...], *, is_steered: bool
) -> tuple[list[Message], list[HeardMessage]]:
    """Load waiting messages in the order of sending, and list messages without a record."""
    assert scope.store is not None
    found, gone = list[Message](), list[HeardMessage]()
    for message_id in ids:
        if message_id == scope.unheard:
            break
        if message_id == run.spec.run_id or message_id in scope.mail:
            continue
        saved = await scope.store.load_run(message_id)
        if saved is None or has_ended(saved):
            gone.append(HeardMessage(message_id, None, None))
            continue
        if is_call(saved):
            break
        try:
            message = decode_saved(saved)
        except StandfastError as error:
            logger.warning("message %s cannot be read, and waits: %s", message_id, error)
            scope.unheard = message_id
            break
        if message.has_done_something or message.spec.message is None:
            break  # a worker began it and crashed: the run that settles it or resumes it comes first (C15)
        ended = advance(message, SettledBy(run.spec.run_id, uuid.uuid4().hex))
        record = RunRecord(ended)
        tails = record.tails({log: len(records) for log, records in saved.logs.items()})
        end = RunSave(
            message_id,
            saved.revision,
            record.head(),
            tails,
            record.status,
            record.agent,
            record.session_id,
            draws=draws_of(record),
        )
        if is_steered and message.spec.message.get("when_busy") != "steer":
            scope.unheard = message_id
            break
        found.append(Message(message_id, [entry.item for entry in message.ledger], end))
    return found, gone


async def hear_first(scope: RunScope, run: Run) -> Run:
    """Store waiting messages before a fresh run reads its history; return the run afterwards.

    Not with the first turn: cut in that turn, the run would leave its own input in front of earlier messages.
    """
    if not hears_at_once(scope) or run.progress.turns or run.turn is not None or run.marks.stored:
        return run
    if not _has_room(run):
        return run
    assert scope.session is not None
    own, ids = run.spec.run_id, scope.session.inbox
    ids, judged = ids[: ids.index(own)] if own in ids else ids, dict[str, str | None]()
    while True:
        messages, ended = await _load_waiting(scope, run, ids, is_steered=False)
        for message in messages:
            if message.message_id not in judged:
                judged[message.message_id] = await _refusing_guardrail(scope, run, message)
        heard = [message for message in messages if judged[message.message_id] is None]
        refused = [(one, by) for one in messages if (by := judged[one.message_id]) is not None]
        ended += [message.end_heard(own, message.message_id, 0) for message in heard]
        ended += [message.end_refused(own, by) for message, by in refused]
        if not ended:
            break
        nested = [NestedItems(one.message_id, 0, one.items) for one in heard]
        try:
            await scope.session.record(NewItems(own, nested=nested, heard=ended), run=None)
            break
        except SessionConflictError:
            if not await _is_one_over(scope, messages):
                raise  # else an operator took one back in this moment, and the rest is heard
    for message, by in refused:
        _tell_refused(run, message, by)
    for message in heard:
        run = advance(run, MessageHeard(message.message_id))
        _tell_heard(scope, run, message)
    return run


async def _is_one_over(scope: RunScope, messages: Iterable[Message]) -> bool:
    """Return True if a message has ended after loading."""
    assert scope.store is not None
    for message in messages:
        saved = await scope.store.load_run(message.message_id)
        if saved is None or has_ended(saved):
            return True
    return False


async def hear(loop: Loop, scope: RunScope) -> bool:
    """Hear waiting messages before a request; return True if the run has heard any, or stops for one."""
    hold, run = scope.session, loop.run
    if hold is None or not hold.inbox or scope.config.messages == "queue" or not can_hear(scope):
        return False
    if run.turn is not None or run.progress.staged or run.progress.verdict != "passed":
        return False
    if not _has_room(run) or (loop.saver is not None and loop.saver.refused):  # refused: a budget is full (F10)
        return False
    if not run.marks.stored or run.marks.stored < len(run.ledger):
        return False  # its own input is not history yet: what waits is heard after the first turn
    scope.interrupted_by = await _find_interrupting(scope, hold.inbox)
    if scope.interrupted_by is not None:
        logger.info("run %s stops after its turn for message %s", run.spec.run_id, scope.interrupted_by)
        loop.stop_after_turn()
        return True
    messages, ended = await _load_waiting(scope, run, hold.inbox, is_steered=True)
    heard: list[Message] = []
    for message in messages:
        try:
            refused_by = await _refusing_guardrail(scope, run, message)
        except Exception as error:
            # Raised, it would let a message end the work of hours. A later run asks again.
            logger.warning(
                "message %s waits: a guardrail that judges it raised %s", message.message_id, type(error).__name__
            )
            scope.unheard = message.message_id
            break
        if refused_by is None:
            heard.append(message)
        else:
            ended.append(message.end_refused(run.spec.run_id, refused_by))
            _tell_refused(run, message, refused_by)
    if loop.run is not run:
        return False  # a stop came in meanwhile
    if ended:
        await hold.record(NewItems(run.spec.run_id, heard=ended), run=None)
    for message in heard:
        writer, ordinal = run.spec.run_id, len(loop.run.ledger)
        scope.mail[message.message_id] = message.end_heard(writer, writer, ordinal)
        await loop.record(MessageHeard(message.message_id, tuple(message.items)))
        _tell_heard(scope, loop.run, message)
    return bool(heard)


async def _find_interrupting(scope: RunScope, ids: tuple[str, ...]) -> str | None:
    """Return the id of a waiting message whose sender asks the run to stop, or None; read each message once."""
    assert scope.store is not None
    for message_id in ids:
        if message_id not in scope.interrupting:
            saved = await scope.store.load_run(message_id)
            with suppress(StandfastError):  # an unreadable message asks for nothing
                is_over = saved is None or has_ended(saved) or is_call(saved)
                said = None if saved is None or is_over else decode_saved(saved).spec.message
                scope.interrupting[message_id] = said is not None and said.get("when_busy") == "interrupt"
        if scope.interrupting.get(message_id):
            return message_id
    return None


async def _refusing_guardrail(scope: RunScope, run: Run, message: Message) -> str | None:
    """Ask the input guardrails about a message; return the name of a guardrail that trips (F4)."""
    agent = scope.graph.agent(run.progress.agent)
    guardrails = input_guardrails(scope, agent)
    if not guardrails:
        return None

    async def ask(guardrail: InputGuardrail[Any]) -> InputGuardrailResult:
        with scope.enter_user_code():
            return await guardrail.run(agent, [copy_json(item) for item in message.items], scope.wrapper)

    tripped = await judge(guardrails, ask, scope.results.of_input)
    return None if tripped is None else str(tripped.guardrail.get_name())


def _tell_heard(scope: RunScope, run: Run, message: Message) -> None:
    emit("message_heard", message=message.message_id, run=run.spec.run_id)
    agent = scope.graph.agent(run.progress.agent)
    for number, item in enumerate(message.items):
        shown = InputItem(agent, copy_json(item), input_id=f"{message.message_id}-{number}")
        scope.show(RunItemStreamEvent("input_heard", shown))


def _tell_refused(run: Run, message: Message, guardrail: str) -> None:
    reason = f"guardrail {guardrail!r} of run {run.spec.run_id} tripped on message {message.message_id}"
    emit("message_refused", session=run.spec.owner.id or "-", reason=reason)
