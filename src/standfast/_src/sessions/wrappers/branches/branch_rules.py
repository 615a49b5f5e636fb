"""Branches of a conversation: their list, and the redirection of plans to a branch.

A branch is a fork (B6): a session of its own in the same file, so that exactly-once append, undo, leases and saved runs
hold on each. A cell of the conversation lists the branches. Every plan begins by reading this cell, and is then carried
out on the branch: a rule works on a name, and the name is exchanged on the way. All of it is one SQLite transaction, so
no other writer can come in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from hashlib import blake2b
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from standfast._src.base.errors import InvalidNameError, InvalidSettingError, SessionConflictError
from standfast._src.base.identifiers import is_name
from standfast._src.sessions.client.executor import Executor, MakePlan
from standfast._src.sessions.client.executor_wrapper import ChangePlan, ExecutorWrapper
from standfast._src.sessions.protocol import Position
from standfast._src.sessions.rules import append, forks, history, leases
from standfast._src.sessions.rules.history import BRANCHES
from standfast._src.sessions.storage import Answer, Arrange, Ask, Done, KeyUpdate, Name, Plan, Range, ReadRequest, Rows
from standfast._src.sessions.wrappers.branches.turns import MAIN, is_user

T = TypeVar("T")

NONCE_LETTERS = 16

SDK_USAGE = "sdk-usage/"
"""Begins the cells in which the store shows what the SDK has kept as the cost of turns."""


class Branch(msgspec.Struct, frozen=True):
    """Branch, with the id of its session and its creation time."""

    id: str
    made: Annotated[float, msgspec.Meta(ge=0, le=253402300799.0)]


class Branches(msgspec.Struct, frozen=True):
    """The branches of a conversation besides `main`, in the order they were made."""

    main: str | None = None
    """The session that `main` is kept in; None: the conversation's own."""
    current: str = MAIN
    made: dict[str, Branch] = {}
    used: list[str] = []
    """Names that were ever used: a session object that still means a deleted branch must not find another one."""
    clears: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0

    def session_of(self, branch: str, name: Name) -> Name | None:
        """Return the session of a branch, or None if there is no such branch."""
        if branch == MAIN:
            return Name("session", self.main) if self.main else name
        found = self.made.get(branch)
        return None if found is None else Name("session", found.id)


class At(NamedTuple):
    """Branch of a session object, and the number of clears of the conversation at its selection."""

    branch: str
    clears: int


class Pointer:
    """Branch of a session object, shared with plans in another thread.

    None: the object has done nothing yet, and begins on the last selected branch.
    """

    def __init__(self) -> None:
        self.at: At | None = None


_decode = msgspec.json.Decoder(Branches).decode


def encode_branches(branches: Branches) -> bytes:
    """The branches as a cell."""
    return msgspec.json.encode(branches)


def branch_session_id(session_id: str, branch: str, nonce: str) -> str:
    """Return a unique id for a branch's session, from which people can read the conversation."""
    return f"{session_id} [branch {branch}] {nonce[:NONCE_LETTERS]}"


def sessions_in(cell: bytes | None) -> list[str]:
    """Return the ids of the sessions of a conversation's branches, from its cell of branches (None: no cell)."""
    if cell is None:
        return []
    found = history.decode_cell(BRANCHES, cell, _decode)
    return [*([found.main] if found.main else []), *(branch.id for branch in found.made.values())]


def check_own(session_id: str, cell: bytes) -> None:
    """Raise ValueError unless a cell of branches is this session's own, without another session's branches."""
    found = _decode(cell)
    known = {branch: one.id for branch, one in found.made.items()} | ({MAIN: found.main} if found.main else {})
    for branch, kept_in in known.items():
        begins = branch_session_id(session_id, branch, "")
        nonce = kept_in.removeprefix(begins)
        if nonce == kept_in or len(nonce) != NONCE_LETTERS or not nonce.isalnum():
            raise ValueError(f"branch {branch!r} is kept in a session of another conversation")


def renew_session_ids(session_id: str, cell: bytes) -> bytes:
    """Return a foreign cell of branches with new ids for their sessions.

    The same cell gets the same ids each time, to recognize a repeat. Raises ValueError for any other data.
    """
    found = _decode(cell)
    if not all(map(is_name, (*found.made, *found.used))) or found.current not in (MAIN, *found.made):
        raise ValueError("a branch has no name, or the current one is not there")

    def new_id(branch: str, old: str) -> str:
        known = blake2b(repr((session_id, branch, old)).encode(), digest_size=NONCE_LETTERS // 2)
        return branch_session_id(session_id, branch, known.hexdigest())

    made = {branch: replace(one, id=new_id(branch, one.id)) for branch, one in found.made.items()}
    return encode_branches(replace(found, main=found.main and new_id(MAIN, found.main), made=made))


def load_branches(name: Name) -> Plan[tuple[Branches | None, bytes | None]]:
    """Return the branches of a conversation, and the stored cell; None if none were made since the last clear."""
    sight = yield from history.look(ReadRequest(name, cells=(BRANCHES,), mark=False))
    cell = sight.cells.get(BRANCHES)
    value = None if cell is None else cell.value
    return (history.decode_cell(BRANCHES, cell.value, _decode) if cell is not None and cell.alive else None), value


def current(name: Name, pointer: Pointer, at: At | None) -> Plan[tuple[Branches, str]]:
    """Return the branches, and the branch of a session object: after a clear `main`."""
    found, _ = yield from load_branches(name)
    if found is None:
        pointer.at = At(MAIN, 0)
        return Branches(), MAIN
    if at is None:
        at = At(found.current, found.clears)
        pointer.at = pointer.at or at
    if found.session_of(at.branch, name) is not None:
        return found, at.branch
    if at.clears != found.clears:
        pointer.at = At(MAIN, found.clears)
        return found, MAIN
    raise SessionConflictError(
        f"the branch {at.branch!r} of session {name.id!r} was deleted meanwhile",
        "Switch to another branch, for example 'main'.",
    )


# --- carrying --------------------------------------------------------------------------------------------------------


class BranchExecutor(ExecutorWrapper):
    """Executor that redirects plans about a conversation to the session object's branch."""

    def __init__(self, carrier: Executor, name: Name, pointer: Pointer) -> None:
        super().__init__(carrier)
        self._name, self._pointer = name, pointer

    def changing(self) -> ChangePlan:
        """Lead a plan to the branch."""
        return partial(_run_on_branch, self._name, self._pointer, self._pointer.at)


def _run_on_branch(name: Name, pointer: Pointer, at: At | None, plan: MakePlan[T]) -> Plan[T]:
    """Carry out a plan on the branch that `at` means."""
    found, branch = yield from current(name, pointer, at)
    to = found.session_of(branch, name)
    assert to is not None
    return (yield from plan() if to == name else _run_with_names(plan(), {name: to}))


def _run_with_names(plan: Plan[T], names: Mapping[Name, Name]) -> Plan[T]:
    """Run a plan with exchanged names: the plan uses the old names, the store gets the new ones."""
    try:
        question = next(plan)
        while True:
            answer: Answer = yield _rename_question(question, names)
            question = plan.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def _rename_question(question: Ask, names: Mapping[Name, Name]) -> Ask:
    if isinstance(question, ReadRequest):
        return replace(question, name=names.get(question.name, question.name))
    if isinstance(question, list):
        return [_rename_change(change, names) for change in question]
    return question


def _rename_change(change: KeyUpdate, names: Mapping[Name, Name]) -> KeyUpdate:
    arrange = change.arrange
    if arrange is not None:
        live = [_rename_range(part, names) if isinstance(part, Range) else part for part in arrange.live]
        arrange = Arrange(live, arrange.box, [_rename_range(part, names) for part in arrange.keep], arrange.forget)
    return replace(change, name=names.get(change.name, change.name), arrange=arrange)


def _rename_range(part: Range, names: Mapping[Name, Name]) -> Range:
    return part if part.of is None else part._replace(of=names.get(part.of, part.of))


# --- changing branches -----------------------------------------------------------------------------------------------


def _keep(name: Name, old: bytes | None, new: Branches, *, touch: bool = False) -> Plan[None]:
    got = yield from history.commit(
        [KeyUpdate(name, cells={BRANCHES: old}, put={BRANCHES: encode_branches(new)}, touch=touch)]
    )
    assert isinstance(got, Done), "nobody else can write in one transaction"


def fork_at_turn(
    name: Name, pointer: Pointer, at: At | None, turn: int, wanted: str | None, nonce: str, report: history.Report
) -> Plan[tuple[str, str, At]]:
    """Make a branch of the items before a turn, and select it. Return the new name and the source."""
    found, source = yield from current(name, pointer, at)
    _, old = yield from load_branches(name)
    of = found.session_of(source, name)
    assert of is not None
    items, _ = yield from history.latest(of, None, None, report)
    begins = [place for place, (_, item) in enumerate(items) if is_user(item)]
    if isinstance(turn, bool) or not isinstance(turn, int) or not 0 < turn <= len(begins):
        raise InvalidSettingError(
            f"turn {turn!r} does not contain a user message in branch {source!r}",
            f"The branch has turns 1 to {len(begins)}: get_conversation_turns() shows them.",
        )
    branch = wanted if wanted is not None else _free_name(found, turn)
    if branch in (MAIN, *found.used):
        raise InvalidNameError(
            f"the branch name {branch!r} has already been used in session {name.id!r}", "Choose another name."
        )
    made = Branch(branch_session_id(name.id, branch, nonce), time.time())
    yield from forks.fork(of, Name("session", made.id), Position(begins[turn - 1]), None, None)
    new = replace(found, current=branch, made={**found.made, branch: made}, used=[*found.used, branch])
    yield from _keep(name, old, new, touch=True)
    return branch, source, At(branch, new.clears)


def _free_name(found: Branches, turn: int) -> str:
    base = free = f"branch_from_turn_{turn}_{int(time.time())}"
    number = 1
    while free in found.used:
        number += 1
        free = f"{base}_{number}"
    return free


def switch(name: Name, branch: str) -> Plan[At]:
    """Select a branch, also for new session objects."""
    found, old = yield from load_branches(name)
    found = found or Branches()
    _check_there(name, found, branch)
    if found.current != branch:
        yield from _keep(name, old, replace(found, current=branch))
    return At(branch, found.clears)


def delete(name: Name, pointer: Pointer, at: At | None, branch: str, *, force: bool) -> Plan[At]:
    """Remove a branch and everything stored for it. Return the new branch of the session object."""
    found, here = yield from current(name, pointer, at)
    _, old = yield from load_branches(name)
    if here == branch and not force:
        raise InvalidSettingError(
            f"{branch!r} is the current branch", "Switch to another one first, or give force=True to go to 'main'."
        )
    gone = _check_there(name, found, branch)
    yield from history.commit([KeyUpdate(gone, remove=True)])
    left = {one: made for one, made in found.made.items() if one != branch}
    new = replace(found, made=left, current=MAIN if found.current == branch else found.current)
    yield from _keep(name, old, new)
    return At(MAIN if here == branch else here, new.clears)


def _check_there(name: Name, found: Branches, branch: str) -> Name:
    to = found.session_of(branch, name)
    if to is None:
        raise InvalidNameError(
            f"session {name.id!r} has no branch {branch!r}", "Choose one of list_branches(), or create it."
        )
    return to


def clear(name: Name) -> Plan[At]:
    """Remove the conversation with all its branches (A12). Names of branches stay used."""
    found, _ = yield from load_branches(name)
    yield from history.clear(name, leases.is_under_way, append.count_alone, None)
    if found is None:
        return At(MAIN, 0)
    gone = [Name("session", one) for one in [*(branch.id for branch in found.made.values()), found.main] if one]
    if gone:
        yield from history.commit([KeyUpdate(one, remove=True) for one in gone])
    yield from _keep(name, None, Branches(used=found.used, clears=found.clears + 1))
    return At(MAIN, found.clears + 1)


# --- reading branches ------------------------------------------------------------------------------------------------


class ListedBranch(NamedTuple):
    """Branch in a listing."""

    branch: str
    item_count: int
    turn_count: int
    is_current: bool
    made: float | None


def list_branches(name: Name, pointer: Pointer, at: At | None, report: history.Report) -> Plan[list[ListedBranch]]:
    """All branches, `main` first, then as they were made."""
    found, here = yield from current(name, pointer, at)
    shown = []
    for branch in (MAIN, *found.made):
        to = found.session_of(branch, name)
        assert to is not None
        sight = yield from history.look(ReadRequest(to, rows=(Rows(tags=False, times=True),), mark=False))
        items = [item for _, item in history.items_of(sight.rows[0], report)]
        made = found.made[branch].made if branch in found.made else next(iter(sight.times[0]), None)
        if items or found.made:
            shown.append(ListedBranch(branch, len(items), sum(map(is_user, items)), branch == here, made))
    return shown


def of_branch(
    name: Name, pointer: Pointer, at: At | None, branch: str | None, rule: Callable[[Name, str], Plan[list[T]]]
) -> Plan[list[T]]:
    """Return the result of a rule on a branch; nothing if there is no such branch."""
    found, here = yield from current(name, pointer, at if branch is None else At(MAIN, 0))
    wanted = here if branch is None else branch
    to = found.session_of(wanted, name)
    return [] if to is None else (yield from rule(to, wanted))
