"""Bringing plans to their end in rounds: each is brought to its next question, and the store is asked.

One plan after the other, where a store answers one question at a time. If an answer is lost, the same question is asked
again until the deadline: whatever a plan asks for carries what a repeat is known by (A6, A8). What was done for callers
who have left is undone first.

To a server go many at once, each in as few round trips as it can do with. Two things make that fast, and neither is
seen by a plan:

- **What waits goes out together.** The writing thread takes every request that is there, asks each plan for its next
  question, and gives the store all of them at once (`ask_many`): one write, one read, and on PostgreSQL one commit.
- **A look at cells is guessed.** A plan looks before it writes, and its step says what it saw. So a look that asks for
  nothing but cells is answered from what this process last knew of them, and the guess is made a condition of the step
  that follows: if it was wrong the step is refused, nothing was done, and the plan looks again, now really. A plan that
  ends without such a step (it found a repeat, a gap, a lost lease) is carried out again without guessing.
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
"""What is said where nobody can ask: anything else is a store's answer, by which others can be asked for."""

LOOK_AGAIN = Refused(0, "mark")
"""For a step that the store refuses to repeat after an answer was lost (it is full now, or lets nobody write): whether
it was done, its plan can still see."""

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
    """A store that can be asked several things at once."""

    def reach(self) -> None:
        """Connect, if it is not connected. What is to be written is not begun before."""
        ...

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """What it answers to each, in order. Each step is atomic by itself; an error of one is no error of another."""
        ...


class Active(msgspec.Struct, eq=False):
    """A request whose plan has begun."""

    request: AnyRequest
    plan: Plan[Any]
    question: Ask | None = None
    is_step: bool = False
    """Whether its question would change something."""
    answer: Answer | None = None
    guesses: bool = True
    guessed: dict[Name, dict[str, bytes | None]] = msgspec.field(default_factory=dict)
    pause: float = RETRY_FIRST_S
    not_before: float = 0.0
    held: frozenset[Used] = NONE_USED
    """The lanes that it has written to, perhaps, and goes on with: what it wrote there may be all that tells of it."""
    written: frozenset[Name] = NO_NAMES
    """The names that it has changed, perhaps, and goes on with."""

    def begin_anew(self) -> None:
        """Begin the plan once more, without guessing."""
        self.plan, self.question, self.answer, self.is_step = self.request.plan(), None, None, False
        self.guesses, self.guessed = False, {}
        self.pause, self.not_before = RETRY_FIRST_S, 0.0

    def keep(self, step: Any) -> None:
        """Remember what a step was about that may have been done, and that was not the last of this."""
        self.held |= frozenset(_idempotency_slots_in(step))
        self.written |= frozenset([change.name for change in step])

    def lose_answer(self) -> None:
        """Note that no answer was taken: a step may have been done, and is known by its lane when it comes again."""
        if self.is_step:
            self.request.in_doubt = True
            self.keep(self.question)

    def names(self) -> frozenset[Name]:
        """What its question is about."""
        question: Any = self.question
        if self.is_step:
            return frozenset([change.name for change in question])
        return frozenset([question.name]) if isinstance(question, ReadRequest) else NO_NAMES


def _asked_for(active: Active) -> str:
    """What a request asked the store for, by kind and ids."""
    names = sorted(f"{name.kind} {name.id!r}" for name in active.names())
    return f"{'to write' if active.is_step else 'to read'} {', '.join(names[:3]) or 'a listing'}"


def _idempotency_slots_in(step: Any) -> list[Used]:
    """The lanes that a step uses."""
    found: list[Used] = []
    for change in step:
        for cell in change.put:
            if cell.startswith(LANE):
                found.append((change.name, cell))
    return found


class Pipeline(Compensator):
    """What the writing thread does: rounds of questions, all that can be asked at once.

    `under_way`: for a store that can be asked several things (`Many`), the writes that have not ended.
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
        """Do what is asked for until told to end."""
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
        """Undo what is to be undone: there is no next write before which it would be done."""
        while not self._inbox.empty():  # given up since the end was asked for
            message = self._inbox.get()
            if isinstance(message, CompensationMessage):
                self._to_undo.append(message.request)
        self._look_for_orphans()
        self._undo_what_is_owed()

    def _take(self, ending: bool) -> bool:
        """Take what is there; wait only if there is nothing to do. Whether the end was asked for."""
        while not ending and len(self._active) < self._at_once_max:
            if self._active and self._inbox.empty():  # nobody else takes from it
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
        """Before anything else is written. What cannot be undone now is tried again before the next write."""
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
        """How long nothing can go out: until the first of those that wait for their time. Others wait for them."""
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
        """Those whose question goes out now, in the order they came."""
        now, ready, ended = time.monotonic(), list[Active](), list[Active]()
        is_alone = len(self._active) == 1  # as most are; then it waits for nobody
        # A lane is its user's until that one has ended, also while it only looks whether it was done: if another wrote
        # there meanwhile, it would find no trace of itself, and do it a second time.
        users = {} if is_alone else {lane: active for active in self._active for lane in active.held}
        reached, trouble = False, None
        left = set[Name]()  # of these a change is under way that nobody waits for: nothing that came later overtakes it
        for active in self._active:
            request = active.request
            is_withdrawn = request.stage not in OPEN  # also one that only looks: nobody waits for what it sees
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
        """Whether it has to wait for another, who uses its lane, or whom nobody waits for (A13)."""
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
        """Why the store cannot be reached now; None if it can."""
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
        """What answers; None before it is opened."""
        return self._store

    def _connect(self) -> Any:
        self._store = thread_start.open_or_explain(self._open_store)
        return self._store

    def _is_ended(self, active: Active, answer: Answer | Exception) -> bool:
        """Take an answer; whether the request has its outcome."""
        if isinstance(answer, Exception):
            return self._handle_failure(active, answer)
        if type(answer) is Done:
            active.guesses, active.guessed = False, {}  # what follows is never begun anew: this would be done again
        elif isinstance(answer, Refused):
            self._learn(active, answer)
        active.question, active.answer, active.pause = None, answer, RETRY_FIRST_S
        return not self._advance(active)

    def _handle_failure(self, active: Active, error: Exception) -> bool:
        """Whether an error stands. A lost answer is asked for again: the step carries what a repeat is known by."""
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
        """Bring a plan to its next question that only the store can answer; False if it has ended."""
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
        """An answer to a look that asks for cells only. Not for the lease alone: that asks for the time as well."""
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
        """What cells will hold if this step is done."""
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

    def _learn(self, active: Active, refused: Refused) -> None:
        """Forget what was guessed for a step that was refused, and believe what the store found instead."""
        active.guesses, active.guessed = False, {}
        step: Any = active.question
        for change in step:
            self._believed.pop(change.name, None)
        change = step[refused.place]
        self._believed[change.name] = {
            cell: refused.cells[cell].value if cell in refused.cells else None for cell in change.cells
        }


class Reading(Pipeline):
    """What a thread does that only reads, and takes its requests from where others do."""

    def _end(self) -> None:
        """Nothing was done that could be undone, and what is still queued is for the others."""


def _as_condition(question: Ask, guessed: Mapping[Name, Mapping[str, bytes | None]]) -> Ask:
    """The step with every guess as a condition."""
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
