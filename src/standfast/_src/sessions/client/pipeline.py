"""Execute plans in rounds: bring each to its next question, then ask the store.

A store that answers one question at a time gets one plan after the other. After a lost answer the same question is
asked again until the deadline: every write carries what identifies its repeat (A6, A8). Compensations for cancelled
callers go first.

A server gets many plans at once, each in as few round trips as possible. Two techniques make that fast, and no plan
sees either:

- **Batching.** The writing thread takes every waiting request, asks each plan for its next question, and sends all
  questions together (`ask_many`): one write, one read, and on PostgreSQL one commit.
- **Optimistic reads.** A plan reads before it writes, and its step states what it read. A read of nothing but cells is
  answered from this process's cache, and the guess becomes a condition of the step that follows. If the guess was
  wrong, the step is refused, nothing was written, and the plan reads again, now from the store. A plan that ends
  without such a step (it found a repeat, a gap, a lost lease) runs again without guesses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any, Protocol, cast

import msgspec

from standfast._src.base.errors import OutcomeUnknownError, StoreTimeoutError, StoreUnavailableError
from standfast._src.base.logs import session_logger as _log
from standfast._src.sessions.client import thread_start
from standfast._src.sessions.client.requests import (
    CLAIMED,
    OPEN,
    CompensationMessage,
    Compensator,
    Request,
    claim_all,
    deliver,
)
from standfast._src.sessions.rules.history import LANE, LEASE
from standfast._src.sessions.storage import (
    Answer,
    Ask,
    Cell,
    CommitRequest,
    Count,
    Done,
    KeyUpdate,
    Listing,
    Name,
    Plan,
    ReadAnswer,
    ReadRequest,
    Refused,
    Store,
    add_conditions,
    ask,
)

AT_ONCE_MAX = 64
# How many plans are under way at once: all of them are asked about in one write, and answered in one read.

NAMES_MAX, CELLS_MAX = 4096, 64
# What is believed about cells saves a round trip and is checked by the store, so it may be forgotten at any time.

READS = (ReadRequest, Listing, Count)

RETRY_FIRST_S, RETRY_MAX_S = 0.005, 0.5
UNDO_S_MIN = 1.0

DOUBTFUL = (OutcomeUnknownError, StoreUnavailableError, StoreTimeoutError)
"""Errors of a store that gave no answer. Any other error is an answer, after which a plan can ask again."""

LOOK_AGAIN = Refused(0, "mark")
"""Answer given to a plan whose step cannot be repeated after a lost answer (the store is full now, or read-only): the
plan reads again and sees whether the step was committed."""

AnyRequest = Request[Any]

Inbox = SimpleQueue["AnyRequest | CompensationMessage | None"]
"""None: end when all that came before is done."""

Used = tuple[Name, str]
"""A lane, by its session and its cell."""
NONE_USED: frozenset[Used] = frozenset()
NO_NAMES: frozenset[Name] = frozenset()
NOTHING: Mapping[str, bytes | None] = MappingProxyType({})
question_of = attrgetter("question")


class Many(Protocol):
    """A store that takes several questions at once."""

    def reach(self) -> None:
        """Connect, if necessary. No write is begun before."""
        ...

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """Return the answer to each question, in order. Each step is atomic by itself; one error does not affect the
        rest.
        """
        ...


class Active(msgspec.Struct, eq=False):
    """A request whose plan has begun."""

    request: AnyRequest
    plan: Plan[Any]
    question: Ask | None = None
    is_step: bool = False
    """Whether its question would change something."""
    answer: Answer | None = None
    own_changes: int = 0
    """The number of changes in a step of the plan. Guesses may be proved by further ones behind them."""
    guesses: bool = True
    guessed: dict[Name, dict[str, bytes | None]] = msgspec.field(default_factory=dict)
    pause: float = RETRY_FIRST_S
    not_before: float = 0.0
    held: frozenset[Used] = NONE_USED
    """The idempotency slots that it may have written to and still needs: they may be the only trace of its writes."""
    written: frozenset[Name] = NO_NAMES
    """The names that it may have changed, and continues with."""

    def begin_anew(self) -> None:
        """Restart the plan, without optimistic reads."""
        self.plan, self.question, self.answer, self.is_step = self.request.plan(), None, None, False
        self.guesses, self.guessed = False, {}
        self.pause, self.not_before = RETRY_FIRST_S, 0.0

    def keep(self, step: Any) -> None:
        """Record the slots and names of a step that may be committed and is not the plan's last."""
        self.held |= frozenset(_idempotency_slots_in(step))
        self.written |= frozenset([change.name for change in step])

    def lose_answer(self) -> None:
        """Record that no answer arrived: a step may be committed, and its slot identifies the repeat."""
        if self.is_step:
            self.request.in_doubt = True
            self.keep(self.question)

    def names(self) -> frozenset[Name]:
        """Return the names that the question concerns."""
        question: Any = self.question
        if self.is_step:
            return frozenset([change.name for change in question])
        return frozenset([question.name]) if isinstance(question, ReadRequest) else NO_NAMES


def _asked_for(active: Active) -> str:
    """Describe a request's question for a log: reading or writing, with kinds and ids."""
    names = sorted(f"{name.kind} {name.id!r}" for name in active.names())
    return f"{'to write' if active.is_step else 'to read'} {', '.join(names[:3]) or 'a listing'}"


def _idempotency_slots_in(step: Any) -> list[Used]:
    """Return the idempotency slots that a step writes."""
    found: list[Used] = []
    for change in step:
        for cell in change.put:
            if cell.startswith(LANE):
                found.append((change.name, cell))
    return found


class Pipeline(Compensator):
    """The writing thread's loop: rounds of questions, as many at once as the store takes.

    `under_way`: the unfinished writes, for a store that takes several questions at once (`Many`).
    """

    def __init__(
        self, open_store: Callable[[], Store], inbox: Inbox, loses_answers: bool, under_way: set[int] | None = None
    ) -> None:
        super().__init__()
        self._open_store, self._loses_answers = open_store, loses_answers
        self._inbox = inbox
        self._store: Any = None
        self._active: list[Active] = []
        self._believed: dict[Name, dict[str, bytes | None]] = {}
        self._is_many = under_way is not None
        self._at_once_max = AT_ONCE_MAX if self._is_many else 1
        self._under_way: set[int] = set() if under_way is None else under_way

    def run(self) -> None:
        """Execute requests until the end is requested."""
        ending = False
        try:
            while self._active or not ending:
                ending = self._take(ending)
                if self._untaken:
                    self._look_for_orphans()
                if self._to_undo:
                    self._undo_what_is_owed()
                self._round()
            self._end()
        finally:
            close = getattr(self._store, "close", None)
            if callable(close):
                close()

    def _end(self) -> None:
        """Compensate what is still owed: no later write will do it first."""
        while not self._inbox.empty():  # given up since the end was asked for
            message = self._inbox.get()
            if isinstance(message, CompensationMessage):
                self._to_undo.append(message.request)
        self._look_for_orphans()
        self._undo_what_is_owed()

    def _take(self, ending: bool) -> bool:
        """Take waiting requests, blocking only if there is nothing to do; return whether the end was requested."""
        while not ending and len(self._active) < self._at_once_max:
            if self._active and self._inbox.empty():  # no other thread takes from it
                break
            message = self._inbox.get()
            if message is None:
                return True
            self._accept(message)
            if self._to_undo and not self._active:
                break
        return ending

    def _accept(self, message: AnyRequest | CompensationMessage) -> None:
        if isinstance(message, CompensationMessage):
            self._to_undo.append(message.request)
        else:
            self._active.append(Active(message, message.plan(), guesses=self._is_many))

    # --- a round ----------------------------------------------------------------------------------------------------

    def _undo_what_is_owed(self) -> None:
        """Execute compensations before any other write. After a failure the compensation is retried before the next
        write.
        """
        others = self._active
        while self._to_undo:
            self._believed.clear()
            undoing = self._to_undo[0].undoing(UNDO_S_MIN)
            self._active = [Active(undoing, undoing.plan(), guesses=False)]
            while self._active:
                self._round()
            if isinstance(undoing.error, DOUBTFUL):
                break
            if undoing.error is not None:  # it would fail for ever
                _log.error("a cancelled operation cannot be undone", exc_info=undoing.error)
            self._to_undo.pop(0).end_undo()
        self._active = others

    def _round(self) -> None:
        ready = self._ready()
        if not ready:
            if self._active:
                time.sleep(self._pause())
            return
        self._take_answers(ready, self._answers(list(map(question_of, ready))))

    def _pause(self) -> float:
        """Return the seconds until the first of the delayed plans may ask again."""
        now = time.monotonic()
        return min((one.not_before - now for one in self._active if one.not_before > now), default=0.0)

    def _take_answers(self, ready: Sequence[Active], answers: Sequence[Answer | Exception]) -> None:
        ended: list[Active] = []
        for place, active in enumerate(ready):
            answer = answers[place]
            step = active.question if active.is_step else None
            if self._is_ended(active, answer):
                ended.append(active)
            elif step is not None:
                active.keep(step)
        if ended:
            self._deliver(ended)

    def _ready(self) -> list[Active]:
        """Return the plans whose questions go out now, in the order of arrival."""
        now, ready, ended = time.monotonic(), list[Active](), list[Active]()
        is_alone = len(self._active) == 1  # as most are; then it waits for no other plan
        # A lane is its user's until that one has ended, also while it only looks whether it was done: if another wrote
        # there meanwhile, it would find no trace of itself, and do it a second time.
        users = {} if is_alone else {lane: active for active in self._active for lane in active.held}
        reached, trouble = False, None
        left = set[Name]()  # an abandoned or detached change of these is under way: no later request overtakes it
        for active in self._active:
            request = active.request
            is_withdrawn = request.stage not in OPEN  # also a read: no caller waits for its result
            if is_withdrawn or (active.question is None and not self._advance(active)):
                ended.append(active)
                continue
            waits = active.not_before > now
            if not is_alone:
                waits |= self._is_behind(active, users, left)
            if waits:
                continue
            if active.is_step:
                if not reached:
                    reached, trouble = True, self._trouble()
                if trouble is not None:  # it has not left, so it can still be withdrawn
                    if self._handle_failure(active, trouble):
                        ended.append(active)
                    continue
                if not claim_all((request,)):
                    ended.append(active)
                    continue
                self._cache_write(active.question)  # what comes behind it may already rely on it
            ready.append(active)
        if ended:
            self._deliver(ended)
        return ready

    @staticmethod
    def _is_behind(active: Active, users: dict[Used, Active], left: set[Name]) -> bool:
        """Return whether a plan must wait for another user of its idempotency slot, or for an abandoned change
        (A13).
        """
        is_behind = bool(left) and not left.isdisjoint(active.names())
        if active.is_step:
            for lane in _idempotency_slots_in(active.question):
                is_behind |= users.setdefault(lane, active) is not active
        if active.request.is_left:
            left |= active.written
        elif active.request.must_be_seen:
            left |= active.written | active.names()
        return is_behind

    def _trouble(self) -> Exception | None:
        """Return the reason why the store cannot be reached now; None if it can."""
        try:
            store = self._connect() if self._store is None else self._store
            if self._is_many:
                store.reach()
        except Exception as error:
            return error
        return None

    def _answers(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        try:
            store = self._connect() if self._store is None else self._store
            if not self._is_many:
                return [ask(store, question) for question in questions]
            found: list[Answer | Exception] = store.ask_many(questions)
        except Exception as error:
            return [error] * len(questions)
        return found

    @property
    def _asked_store(self) -> Any:
        """The object that answers; None before the store is opened."""
        return self._store

    def _connect(self) -> Any:
        self._store = thread_start.open_or_explain(self._open_store)
        return self._store

    def _is_ended(self, active: Active, answer: Answer | Exception) -> bool:
        """Take an answer; return whether the request has its outcome."""
        if isinstance(answer, Exception):
            return self._handle_failure(active, answer)
        if type(answer) is Done:
            active.guesses, active.guessed = False, {}  # the plan is not restarted from here: this write would repeat
        elif isinstance(answer, Refused):
            self._learn(active, answer)
            if answer.place >= active.own_changes:  # a wrong guess about another name, which the plan did not ask for
                answer = LOOK_AGAIN
        active.question, active.answer, active.pause = None, answer, RETRY_FIRST_S
        return not self._advance(active)

    def _handle_failure(self, active: Active, error: Exception) -> bool:
        """Return whether an error is final. A lost answer is asked for again: the step carries what identifies its
        repeat.
        """
        if active.is_step:
            step: Any = active.question
            for change in step:
                self._believed.pop(change.name, None)
        request, is_busy = active.request, isinstance(error, StoreTimeoutError)
        request.in_doubt |= active.is_step and isinstance(error, OutcomeUnknownError)
        if (self._loses_answers or is_busy) and request.may_try_again(error, active.pause):
            if not is_busy:
                request.retries += 1
                label = getattr(self._asked_store, "label", "a store")
                request.retried = label, _asked_for(active), getattr(error, "what", type(error).__name__)
            active.not_before = time.monotonic() + active.pause
            active.pause = min(active.pause * 2, RETRY_MAX_S)
            return False
        if active.is_step and request.in_doubt and not isinstance(error, DOUBTFUL):
            active.guesses, active.guessed = False, {}
            active.question, active.answer, active.pause = None, LOOK_AGAIN, RETRY_FIRST_S
            return not self._advance(active)
        request.error = request.last_word(error)
        return True

    def _deliver(self, ended: list[Active]) -> None:
        requests: list[AnyRequest] = []
        for active in ended:
            self._active.remove(active)
            request = active.request
            if (request.stage is CLAIMED or request.claim()) and request.finish():
                self._to_undo.append(request)
            if request.undo is not None:
                self._remember([request])
            self._under_way.discard(id(request))
            requests.append(request)
        deliver(requests)

    # --- a plan -----------------------------------------------------------------------------------------------------

    def _advance(self, active: Active) -> bool:
        """Bring a plan to its next question for the store; return False if the plan has ended."""
        request, plan = active.request, active.plan
        try:
            question = next(plan) if active.answer is None else plan.send(active.answer)
            while (
                active.guesses
                and type(question) is ReadRequest
                and (guess := self._read_cached(active, question)) is not None
            ):
                question = plan.send(guess)
        except StopIteration as end:
            request.result, error = end.value, None
        except Exception as fault:
            error = fault
        else:
            active.is_step = not isinstance(question, READS)
            if active.is_step:
                request.in_doubt = False  # it has seen that the step before was not done
                active.own_changes = len(cast(CommitRequest, question))
                if active.guessed:
                    question = _as_condition(question, active.guessed)
            active.question, active.answer = question, None
            return True
        if active.guessed:  # it ended by what was guessed, and nothing has proved that
            active.begin_anew()
            return self._advance(active)
        request.error = error
        return False

    def _read_cached(self, active: Active, question: ReadRequest) -> ReadAnswer | None:
        """Answer a read of cells from the cache. Not a read of the lease alone, which asks for the store's time as
        well.
        """
        if not question.cells or question.cells == (LEASE,):
            return None
        if question.mark or question.times or question.rows or question.prefixes or question.upto is not None:
            return None
        known = self._believed.get(question.name, NOTHING)
        guessed = active.guessed.setdefault(question.name, {})
        cells: dict[str, Cell] = {}
        for cell in question.cells:
            value = guessed[cell] = known.get(cell)
            if value is not None:
                cells[cell] = Cell(value, True)
        return ReadAnswer(cells=cells, now=time.time())  # this process's clock: what replies cost is kept with the time

    # --- what is believed about cells -------------------------------------------------------------------------------

    def _cache_write(self, question: Ask | None) -> None:
        """Cache the cells as they will be once this step is committed."""
        step: Any = question
        for change in step:
            if change.wipe is not None or change.remove or change.sweep:
                self._believed.pop(change.name, None)
                continue
            if len(self._believed) >= NAMES_MAX:
                self._believed.clear()
            known = self._believed.setdefault(change.name, {})
            if len(known) + len(change.put) > CELLS_MAX:
                known.clear()
            known.update(change.cells)
            known.update(change.put)
            for cell in change.add:  # its sum is not known here
                known.pop(cell, None)

    def _learn(self, active: Active, refused: Refused) -> None:
        """Drop the guesses of a refused step, and cache the cells that the store found instead."""
        active.guesses, active.guessed = False, {}
        step: Any = active.question
        for change in step:
            self._believed.pop(change.name, None)
        change = step[refused.place]
        self._believed[change.name] = {
            cell: refused.cells[cell].value if cell in refused.cells else None for cell in change.cells
        }


class Reading(Pipeline):
    """The loop of a reading thread, with a queue shared by all readers."""

    def _end(self) -> None:
        """Do nothing: a read needs no compensation, and queued requests are left to the other readers."""


def _as_condition(question: Ask, guessed: Mapping[Name, Mapping[str, bytes | None]]) -> Ask:
    """Return the step with every guess as a condition."""
    step: list[KeyUpdate] = []
    left, changes = dict(guessed), cast(CommitRequest, question)
    if len(changes) == len(left) == 1:  # most are of one name, and name themselves what they saw
        own = left.get(changes[0].name)
        if own is not None and own.keys() <= changes[0].cells.keys():
            return question
    for change in changes:
        own = left.pop(change.name, None)
        if own and not own.keys() <= change.cells.keys():
            step.append(add_conditions(change, own))
        else:
            step.append(change)
    for name, cells in left.items():
        step.append(KeyUpdate(name, cells=cells))
    return step
