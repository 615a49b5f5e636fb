"""Port of a store: the two operations of every backend. All promises of the contract are decided above, once.

A store keeps *names*: a session, or a saved run. A name has

- **rows**, in order. Box 0 is the live history; boxes 1, 2, … are kept generations of it. A run has no rows;
- **cells**: small values, each under a name of its own (what a writer has written, who holds the session, a head).

It can do two things with them. `look` reads several of them at one instant. `commit` changes several of them, of one
name or of several, in one step if conditions hold; if one does not, it changes nothing and says what it found. A store
answers and keeps conditions. It decides nothing: which ordinals are new, what a rewind may remove, what undo restores
and whether a lease is free is decided in `rules`, `lease_rules` and `run_rules`.

A rule is a *plan*: a generator that yields a `ReadRequest` or a `CommitRequest`, is sent what the store answered, and
returns the
result. Whoever carries a plan chooses how: a store in this process runs it to the end inside one transaction, so that
it meets no refusal; a store on a network makes each yield one round trip, and the plan looks again when it is refused.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from itertools import count, repeat
from types import MappingProxyType
from typing import Literal, NamedTuple, Protocol, TypeVar, overload

import msgspec

from standfast._src.base.errors import StoreError

T = TypeVar("T")

# What is made for every operation is a Struct: a frozen dataclass takes ten times as long to make, which was a tenth of
# the time of an append.

Kind = Literal["session", "run"]


class Name(NamedTuple):
    """Identity of stored data. Any non-empty id, used exactly; the two kinds never meet."""

    kind: Kind
    id: str


class Tag(NamedTuple):
    """Author of a row, the row's number among the author's, and the generation it replaces (0: none; it was appended).

    A writer of "" means an unknown writer: `add_items`. Such rows are never rewound.
    """

    writer: str = ""
    ordinal: int = 0
    replaces: int = 0


NOBODY = Tag()
"""Tag of rows with an unknown writer."""

as_tag = partial(tuple.__new__, Tag)
"""What `Tag(*values)` does, of a tuple, without a Python frame for each of ten thousand."""


class NewRows(Sequence[tuple[bytes, Tag]]):
    """Rows to add, each with its tag: a writer's items from number `start` on, or, for writer "", of an unknown writer.

    They are kept as columns, and a tag is made only on request: for four items the tags were a tenth of an append. A
    store may take the columns.
    """

    __slots__ = ("data", "start", "writer")

    def __init__(self, data: Sequence[bytes], writer: str = "", start: int = 0) -> None:
        self.data, self.writer, self.start = data, writer, start

    def __len__(self) -> int:
        return len(self.data)

    def __iter__(self) -> Iterator[tuple[bytes, Tag]]:
        if not self.writer:
            return zip(self.data, repeat(NOBODY))
        return zip(self.data, map(as_tag, zip(repeat(self.writer), count(self.start), repeat(0))))  # noqa: B905

    @overload
    def __getitem__(self, place: int) -> tuple[bytes, Tag]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[tuple[bytes, Tag]]: ...
    def __getitem__(self, place: int | slice) -> tuple[bytes, Tag] | Sequence[tuple[bytes, Tag]]:
        return list(self)[place]


class Row(NamedTuple):
    """A stored record. `ref` (1 or more) grows along a box and names the row until the next `Arrange` of its name.

    It is the order of a history, whatever the clock says (A4).

    A ref is never given to two rows of a name: what is pushed or arranged gets higher ones than any row had before,
    after a `wipe` too. A tag of None: another program wrote it, and does not say who.
    """

    ref: int
    data: bytes
    tag: Tag | None

    def tagged(self, replaces: int = 0) -> Tag:
        """Return the row's writer, if known, as the tag of a row that replaces a generation."""
        return (self.tag or NOBODY)._replace(replaces=replaces)


class Cell(msgspec.Struct, frozen=True, gc=False):
    """A cell's value. `alive`: it was written since the name was last cleared, by whomever (A12, B10).

    `expired`: it was written in an incarnation that has expired since, and is there only because a lease holds it.
    """

    value: bytes
    alive: bool
    expired: bool = False


# --- looking ---------------------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """Selection of rows of a box: the latest `limit` with a ref below `before`. Given oldest first.

    `writer`: only rows whose tag names it. `tags=False`: tags are not needed and may be left out, as if there were
    none; reading a long history is then half the work. `after`: only rows with a ref above it, and of these the first
    `limit`, not the latest; only for box 0, without `before` and `writer`. `times`: see `ReadAnswer.times`.
    """

    box: int = 0
    before: int | None = None
    limit: int | None = None
    writer: str | None = None
    tags: bool = True
    after: int | None = None
    times: bool = False


class ReadRequest(msgspec.Struct, frozen=True, gc=False):
    """Request to read parts of a name at one instant. The answer may leave out everything not requested."""

    name: Name
    cells: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    """And every cell whose name begins so."""
    rows: tuple[Rows, ...] = ()
    upto: str | None = None
    """A mark to resolve: see `ReadAnswer.upto`."""
    only_data: bool = False
    """Only the contents of the first of `rows` are wanted: they come as bytes in `ReadAnswer.data`, all else is left
    out."""
    mark: bool = True
    """True if `ReadAnswer.mark` is needed."""
    times: bool = False
    """True if `ReadAnswer.epoch`, `created`, `updated` and `labels` are needed."""
    count: bool = False
    """Whether `ReadAnswer.count` is wanted; it may cost what the history is long."""


class ReadAnswer(msgspec.Struct, frozen=True, gc=False):
    """Answer to a `ReadRequest`."""

    mark: str = ""
    """Version of the live rows; "" without any. Equal marks mean equal rows, regardless of the writer (B2)."""
    now: float = 0.0
    """The store's clock, in seconds since 1970."""
    epoch: str = ""
    """Names the incarnation: another one after every clear, by whomever. "" where nothing of ours is stored yet."""
    created: float | None = None
    updated: float | None = None
    """When the name was made and last changed; None if nothing is stored for it."""
    labels: Mapping[str, str] = msgspec.field(default_factory=dict)
    cells: Mapping[str, Cell] = msgspec.field(default_factory=dict)
    rows: tuple[Sequence[Row], ...] = ()
    data: Sequence[bytes] = ()
    upto: int | None = None
    """The ref of the last row that `ReadRequest.upto` covers (0 for the mark of an empty history); None if anything up
    to it
    was removed, replaced or cleared since."""
    count: int = 0
    """Number of live rows."""
    times: tuple[Sequence[float | None], ...] = ()
    """Beside each of `rows`: when each row was written, in seconds since 1970, where that was asked for (else empty);
    None where nobody knows. A row that was moved may have the time of the move."""


# --- changing --------------------------------------------------------------------------------------------------------


class Range(NamedTuple):
    """Rows of a box, as before the step, with refs above `after` and not above `upto` (None: no bound).

    The store moves or copies them itself: their contents do not travel. `replaces` is the new value in their tags (a
    row without a tag gets one of an unknown writer); None: unchanged. `of`: a box of another name (None: the same).
    """

    box: int
    after: int | None = None
    upto: int | None = None
    replaces: int | None = None
    of: Name | None = None


class Arrange(NamedTuple):
    """Rearrangement: the live rows become `live`, in that order; those of `keep` become box `box`; boxes `forget` are
    removed.

    A part of `live` is a range, or new rows as (data, tag). Live rows in neither are removed; a box that a range was
    taken from stays unchanged. All rows that are live afterwards have new refs.
    """

    live: Sequence[Range | Sequence[tuple[bytes, Tag]]]
    box: int = 0
    keep: Sequence[Range] = ()
    forget: Sequence[int] = ()


class Load(NamedTuple):
    """Import of data kept elsewhere, unchanged: rows with their times, and whole boxes.

    The rows of `live` come behind the live ones, as those of `push` do. `times` says when each was written (None: not
    known), as exactly as the store keeps times; one that keeps none leaves them out. `boxes` are none that the name
    has. `created` is when the name was made there, for a change that makes it here.
    """

    live: Sequence[tuple[bytes, Tag]] = ()
    times: Sequence[float | None] = ()
    boxes: Mapping[int, Sequence[tuple[bytes, Tag]]] = MappingProxyType({})
    created: float | None = None

    def rising_us(self, unknown: int) -> list[int]:
        """Return the times in microseconds, each above the previous: for a store whose rows are ordered by time.

        Missing times become the previous time plus 1 µs; `unknown` is used for a missing first time.
        """
        found: list[int] = []
        for at in self.times:
            wanted = (0 if found else unknown) if at is None else round(at * 1e6)
            found.append(max(wanted, found[-1] + 1 if found else 0))
        return found


class Addition(NamedTuple):
    """Addition to a whole number, stored as decimal text in a cell; a missing cell counts as 0.

    With a `max` the addition is also a condition: a sum above `max` refuses the step. Unlike conditions on a value,
    additions of concurrent writers do not conflict. All numbers and sums are below 2**53 in size.
    """

    n: int
    max: int | None = None


class KeyUpdate(msgspec.Struct, frozen=True, gc=False):
    """Changes of a name, made if the conditions hold. Effects take place in the order of the fields."""

    name: Name
    # conditions
    mark: str | None = None
    """The live rows end exactly here."""
    prefix: str | None = None
    """The live rows up to this mark are as they were; more may have come behind them."""
    cells: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)
    """These cells have these values, alive or not (None: there is no such cell)."""
    # effects
    remove: bool = False
    """Remove the name altogether, cells and times included."""
    wipe: tuple[str, ...] | None = None
    """Remove all rows, boxes, times and cells, but for cells whose names begin with one of these. What is written to
    the name afterwards belongs to a new incarnation: cells that survived are no longer alive until they are put."""
    drop: Sequence[int] = ()
    """Refs of live rows to remove."""
    arrange: Arrange | None = None
    back: Sequence[Row] = ()
    """Rows that were dropped, to stand where their refs belong again (nothing was arranged or wiped since). Rows behind
    them may have been seen without them, so no mark given out since may be given again (B2)."""
    push: Sequence[tuple[bytes, Tag]] = ()
    """Rows to add behind the live ones."""
    load: Load | None = None
    """Rows, boxes and times of a name that was kept elsewhere: for imports, and always with `touch`."""
    sweep: tuple[str, ...] = ()
    """Remove the cells whose names begin with one of these."""
    touch: bool = False
    """The name has changed: make it if it is not there, move its time on, put it first in the listing, renew its
    expiry (A20). A change without this (a lease, a ticket) does none of it."""
    put: Mapping[str, bytes | None] = msgspec.field(default_factory=dict)
    """Cells to write (None: remove); behind `touch`, so that those of a new name are alive."""
    add: Mapping[str, Addition] = msgspec.field(default_factory=dict)
    """Cells to add to, disjoint from `put`; behind `touch`. A sum above `max` refuses the step like a cell."""
    labels: Mapping[str, str] | None = None
    """What a listing shows and filters by; replaces what was there."""
    hold_s: float = 0.0
    """The name's cells stay for at least so many seconds, though it expires before: a lease is not over because the
    history it covers is. For a store with an expiry; the rest of the name expires when it would have."""


CommitRequest = Sequence[KeyUpdate]
"""Changes of one or several names, done together or not at all."""


class Done(msgspec.Struct, frozen=True, gc=False):
    """The step was done. `marks`: the new version of the live rows for each of its changes (for a run: "")."""

    marks: tuple[str, ...]


class Refused(msgspec.Struct, frozen=True, gc=False):
    """Nothing was done: a condition of change number `place` did not hold.

    `mark` and `cells` are the found values in place of the expected ones: the mark, and every cell with a condition or
    an addition in the change.
    """

    place: int
    why: Literal["cell", "mark"]
    mark: str = ""
    cells: Mapping[str, Cell] = msgspec.field(default_factory=dict)


# --- listing ---------------------------------------------------------------------------------------------------------


class Listed(NamedTuple):
    """A name in a listing. `cursor` continues behind it."""

    id: str
    created: float
    updated: float
    labels: Mapping[str, str]
    cursor: str


# --- the store and its plans -----------------------------------------------------------------------------------------


class Store(Protocol):
    """Interface of a backend: four methods and a fact. Each method is one atomic step, or raises.

    `StoreTimeoutError` means that the store is busy (another program has its lock): nothing was done, and it is asked
    again until the deadline, so a store need not wait itself. `StoreUnavailableError` means that nothing was done (A6),
    and `OutcomeUnknownError` that the step may have been done (its answer was lost). No method is called from two
    threads at once.
    """

    loses_answers: bool
    """Whether a commit may be done though its answer never arrives: a network lies between. Then each write carries
    something by which a repeat is known."""

    def look(self, look: ReadRequest) -> ReadAnswer:
        """Read all requested parts at one instant."""
        ...

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Do the whole step if all conditions hold; durable when it returns."""
        ...

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """Names of a kind with these labels, newest change first by the store's own order (B9).

        `after` is the cursor of a `Listed`; raises NotFoundError for what is none.
        """
        ...

    def count(self, kind: Kind) -> int:
        """Return the number of names of a kind."""
        ...


class Listing(NamedTuple):
    """Request for `Store.listing`, for a plan to yield."""

    kind: Kind
    after: str | None
    limit: int
    labels: Mapping[str, str]


class Count(NamedTuple):
    """A question for `Store.count`."""

    kind: Kind


Ask = ReadRequest | CommitRequest | Listing | Count
Answer = ReadAnswer | Done | Refused | Sequence[Listed] | int

REFUSALS_MAX = 100
"""How often a store in this process may refuse the steps of one plan: twice is a race with itself, this is a defect."""

Plan = Generator[Ask, Answer, T]
"""What a rule is: it yields questions and steps, is sent the answers, and returns its result."""


def add_conditions(change: KeyUpdate, cells: Mapping[str, bytes | None]) -> KeyUpdate:
    """Add conditions on cells to a change; its own conditions have precedence."""
    return msgspec.structs.replace(change, cells={**cells, **change.cells})


def only_appends(step: CommitRequest) -> bool:
    """Return whether a step only adds rows to one session, puts cells and relies on cells, like every turn.

    A store may have a fast path for that.
    """
    change = step[0]
    if len(step) != 1 or change.add or not change.push or not change.touch or change.name.kind != "session":
        return False
    if change.mark is not None or change.prefix is not None or change.wipe is not None or change.labels is not None:
        return False
    if change.remove or change.drop or change.arrange or change.back or change.load or change.sweep or change.hold_s:
        return False
    return None not in change.put.values()


def run_program(store: Store, plan: Plan[T], asked: Ask | None = None) -> T:
    """Run a plan, with one call of the store for each request it yields; `asked` is a request already yielded.

    The caller ensures that nothing else happens in between. So a refused plan looks again and is not refused a second
    time; a store that keeps refusing contradicts itself, and an error says so instead of an endless loop.
    """
    refusals = 0
    try:
        question = next(plan) if asked is None else asked
        while True:
            if type(question) is ReadRequest:
                question = plan.send(store.look(question))
                continue
            answer = store.commit(question) if type(question) is list else ask(store, question)
            if type(answer) is Refused:
                refusals += 1
                if refusals > REFUSALS_MAX:
                    raise StoreError(
                        f"the store refused {refusals} steps of one plan though nothing else could change it",
                        "Its conditions do not agree with its answers: check it with the conformance kit.",
                    )
            question = plan.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def ask(store: Store, question: Ask) -> Answer:
    """Return the store's answer to a request of a plan."""
    if isinstance(question, ReadRequest):
        return store.look(question)
    if isinstance(question, Listing):
        return store.listing(question.kind, after=question.after, limit=question.limit, labels=question.labels)
    if isinstance(question, Count):
        return store.count(question.kind)
    return store.commit(question)
