"""Copying and moving sessions between stores, and into and out of files: whole, verified, and repeatable.

Each session is read at one instant and brought in one step, so a target has it or has not. An interrupted copy is
repeated: what is there already is recognised, and what has been added to the source since is brought behind it. A run
that could still act is left at its source and named; with `move` it is closed there before it can be resumed at the
target (`_src.sessions.rules.snapshot` says how that survives a kill).
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Literal
from uuid import uuid4

from standfast._kits.operators.import_checks import own
from standfast._kits.operators.open_store import open_store
from standfast._kits.operators.store import Store
from standfast._kits.operators.store_url import parse_url
from standfast._src.base.errors import (
    CallerError,
    CorruptRecordError,
    InvalidSettingError,
    LeaseLostError,
    NotFoundError,
    RunClaimedError,
    RunStateError,
    SealBrokenError,
    SessionBusyError,
    SessionConflictError,
    StandfastError,
    StoreError,
)
from standfast._src.sessions.client.stored_runs import fence_of
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.rules.history import BRANCHES, every
from standfast._src.sessions.rules.import_snapshot import (
    Brought,
    Cargo,
    bring,
    build_run_id_taken_error,
    is_moved_from,
    run_head,
)
from standfast._src.sessions.rules.snapshot import (
    ImportNote,
    MovingRun,
    Picture,
    RunPicture,
    brought_tokens,
    close_runs,
    digest_of,
    forget_moved,
    is_continued,
    picture,
)
from standfast._src.sessions.storage import Name
from standfast._src.sessions.wrappers.branches.branch_rules import sessions_in

LEASE_S = 10.0
# Of a mover that was killed: a repeated move waits for its end if the process's death cannot be proved.
RECORDS_A_SECOND = 1000
# What a target is at least expected to take in: a session comes in one step, and its deadline grows with it.

TRIES = 20
# How often a session is read again because it was changed in between: a copy does not block writers, but gives up.

Outcome = Literal["copied", "updated", "equal", "ahead"]
Decision = Literal["whole", "rest", "anew", "equal", "ahead"]
AnyStore = Store | str | os.PathLike[str]


@dataclass(frozen=True, slots=True)
class SessionCopied:
    """Result of copying a session.

    `outcome`: copied (the session was missing), updated (later additions at the source were brought), equal (it was
    there already), ahead (it was there already and has grown at the target, while the source has not).
    """

    session_id: str
    outcome: Outcome
    items: int
    """Records, those of kept generations included."""
    generations: int
    runs: int
    """Saved runs that have ended."""
    moved: tuple[str, ...] = ()
    """Ids of runs that could still act, closed at the source and brought."""
    left: tuple[str, ...] = ()
    """Ids of runs that could still act, left at the source."""
    untold: int = 0
    """How many corrupt records are no text and were left at the source."""
    branches: tuple[str, ...] = ()
    """Ids of the sessions that its branches are kept in (see `AdvancedSQLiteSession`). A copy brings them too; a file
    holds one session, so each is exported by itself. A branch that nothing was stored on has none yet."""
    is_verified: bool = True
    """Whether the target was read again and found equal. False: somebody wrote to it before it could be."""


@dataclass(frozen=True, slots=True)
class SessionsCopied:
    """Results of a copy, session by session, and the refused sessions with the reasons."""

    copied: list[SessionCopied] = field(default_factory=list)
    refused: list[tuple[str, StandfastError]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Progress of a copy."""

    done: int
    total: int
    items: int
    session_id: str
    """The one that was done last."""


async def copy_sessions(
    source: AnyStore,
    target: AnyStore,
    session_ids: Iterable[str] | None = None,
    *,
    move: bool = False,
    progress: Callable[[CopyProgress], None] | None = None,
    wait_s: float = 15.0,
    elsewhere: bool = False,
) -> SessionsCopied:
    """Copy the given sessions with their branches, or all sessions, to another store, each in one step and while in
    use.

    Stores are given as such, or by their URLs or paths; a missing file is made for the target. Each session is read
    again at the target and compared. A repeated copy continues an interrupted one, and brings what was added since.
    Runs that could still act are left behind and named; with `move` they are closed at the source, in one step with the
    last read of the session, and can be resumed at the target only. A move waits up to `wait_s` for the lease of the
    session. A run that was on its way to another target is refused, unless that target no longer exists (`elsewhere`).

    A refused session (the target has a different one, a worker holds the lease) does not end the copy: see
    `SessionsCopied.refused`. Raises StoreError if a store fails; what was copied stays, and the copy can be repeated.

        report = await copy_sessions("talks.db", "redis://localhost:6379/0", move=True)
        for one in report.copied:
            print(one.session_id, one.outcome, one.items, "left:", one.left)
    """
    async with ensure_open_store(source, read_only=not move) as here, ensure_open_store(target, create=True) as there:
        if place_of(here) == place_of(there) and here.backend != "memory":
            raise InvalidSettingError("source and target are one store", "Use fork() for a second session in a store.")
        ids = list(session_ids) if session_ids is not None else await _all_ids(here)
        asked, known = frozenset(ids), set(ids)
        report = SessionsCopied()
        items = 0
        for count, session_id in enumerate(ids, 1):
            try:
                done = await _Copying(here, there, session_id, wait_s, elsewhere).copied(move=move)
            except _OF_ONE_SESSION as error:
                # A branch without stored items has no session: what it is is kept in the conversation's.
                if session_id in asked or not isinstance(error, NotFoundError):
                    report.refused.append((session_id, error))
            else:
                report.copied.append(done)
                items += done.items
                ids += [one for one in done.branches if one not in known]  # without them it would be there in part
                known.update(done.branches)
            if progress is not None:
                progress(CopyProgress(count, len(ids), items, session_id))
        return report


_OF_ONE_SESSION = (
    CallerError, SessionConflictError, SessionBusyError, LeaseLostError, RunClaimedError, CorruptRecordError,
    SealBrokenError,
)  # fmt: skip
# What one session is refused with. Every other error is a store's, and the sessions that follow would meet it too.


# --- one session -----------------------------------------------------------------------------------------------------


class _Copying:
    """Transfer of a session from a source to a target."""

    def __init__(self, source: Store, target: Store, session_id: str, wait_s: float, elsewhere: bool) -> None:
        self._id, self._name = session_id, Name("session", session_id)
        self._source, self._target = source, target
        self._wait_s, self._elsewhere = wait_s, elsewhere
        self._origin = place_of(source)

    async def copied(self, *, move: bool) -> SessionCopied:
        here, there = self._source.session(self._id), self._target.session(self._id)
        try:
            seen = await read_picture(here)
            moving: list[MovingRun] = []
            if move:
                place = place_of(self._target)
                check_target(seen, place, elsewhere=self._elsewhere)
                await self._forget_arrived(here, there, seen)
                seen = await closed_runs(here, place, self._wait_s, partial(self._check, there))
                moving = list(seen.moving)
            done = await self._brought(there, seen, [one.run for one in moving])
            if moving:
                await here.changed(partial(forget_moved, self._name, moving))
            return done
        finally:
            await here.close()
            await there.close()

    async def _forget_arrived(self, here: StoredSession, there: StoredSession, seen: Picture) -> None:
        """Finish an earlier move interrupted after its last step at the target, whatever has happened there since."""
        if seen.moving:
            tokens = await there.looked(partial(brought_tokens, self._name))
            arrived = [one for one in seen.moving if one.run.token in tokens]
            await here.changed(partial(forget_moved, self._name, arrived))

    async def _check(self, there: StoredSession, seen: Picture) -> None:
        """Refuse a session that the target would refuse, before any run is closed."""
        own(seen, seen.unfinished)
        decide_transfer(seen, await there.looked(partial(picture, self._name)), self._origin)
        for run in seen.unfinished:
            head, labels = await there.looked(partial(run_head, run.run_id))
            if head is not None and not is_moved_from(labels, self._id):
                raise build_run_id_taken_error(run.run_id)

    async def _brought(self, there: StoredSession, seen: Picture, moved: Sequence[RunPicture]) -> SessionCopied:
        seen, moved = own(seen, moved)
        note = ImportNote(digest_of(seen), self._origin, uuid4().hex)
        outcome, brought = await brought_to(there, seen, moved, note, _OUTCOMES)
        return await reported(there, seen, note, outcome, brought)


_OUTCOMES: dict[Decision, Outcome] = {
    "whole": "copied", "rest": "updated", "anew": "updated", "equal": "equal", "ahead": "ahead",
}  # fmt: skip


async def read_picture(session: StoredSession) -> Picture:
    """Read a session whole; raise NotFoundError for a missing session."""
    seen = await session.looked(partial(picture, Name("session", session.session_id)))
    if seen is None:
        raise NotFoundError(f"there is no session {session.session_id!r}", "List them with Store.sessions().")
    branches_of(seen)  # damaged ones are noticed before anything is written
    return seen


def decide_transfer(seen: Picture, there: Picture | None, origin: str) -> Decision:
    """Decide the necessary transfer to the target; raise SessionConflictError if the target has a different session."""
    if there is None:
        return "whole"
    mine, theirs, note = digest_of(seen), digest_of(there), there.note
    if mine == theirs:
        return "equal"
    if note is not None and note.digest == mine:
        return "ahead"
    if note is not None and note.source == origin and note.digest == theirs:
        return "rest" if is_continued(there, seen) else "anew"
    why = "and is another one" if note is None else "has changed since it was brought there, and so has the source"
    raise SessionConflictError(
        f"session {seen.session_id!r} is in the target already, {why}; nothing was changed",
        "Keep one of the two: remove the one that is not needed (`sessions rm`), then repeat this.",
    )


async def brought_to(
    there: StoredSession,
    seen: Picture,
    moved: Sequence[RunPicture],
    note: ImportNote,
    allowed: dict[Decision, Outcome],
) -> tuple[Outcome, Brought | None]:
    """Bring a session in one step; return the outcome and the step's effects (None: nothing to do)."""
    name = Name("session", seen.session_id)
    there.timeout_s = max(there.timeout_s, seen.item_count / RECORDS_A_SECOND)
    for _ in range(TRIES):
        found = await there.looked(partial(picture, name))
        what = decide_transfer(seen, found, note.source)
        if what not in allowed:
            raise SessionConflictError(
                f"session {seen.session_id!r} is in the target already, and is another one; nothing was changed",
                "Remove it there first (`sessions rm`), or import into another store.",
            )
        tokens = await there.looked(partial(brought_tokens, name))
        come = [run for run in moved if run.token not in tokens]
        if what == "equal" or what == "ahead":
            if not come:
                return allowed[what], None
            cargo = Cargo(seen, come, note, "runs", found)
        else:
            cargo = Cargo(seen, come, note, what, found)
        got = await there.changed(partial(bring, name, cargo))
        if got is not None:
            return allowed[what], got
    raise SessionConflictError(
        f"session {seen.session_id!r} of the target was changed by somebody each time it was looked at",
        "Repeat this when it is not in use.",
    )


async def reported(
    there: StoredSession, seen: Picture, note: ImportNote, outcome: Outcome, brought: Brought | None
) -> SessionCopied:
    """Build the result of a transfer, after comparing the target with the source."""
    is_verified = outcome in ("equal", "ahead")
    if not is_verified and brought is not None:
        now = await there.looked(partial(picture, Name("session", seen.session_id)))
        is_verified = now is not None and digest_of(now) == note.digest
        if not is_verified and now is not None and now.mark == brought.mark and not now.unfinished:
            raise StoreError(
                f"session {seen.session_id!r} was brought to the target, which does not hold what was brought",
                "Check the target with the conformance kit (`standfast verify`); the source is unchanged.",
            )
    return SessionCopied(
        seen.session_id, outcome, seen.item_count, len(seen.generations), len(seen.runs),
        moved=() if brought is None else brought.moved, left=tuple(run.run_id for run in seen.unfinished),
        untold=seen.untold, branches=branches_of(seen), is_verified=is_verified,
    )  # fmt: skip


def branches_of(seen: Picture) -> tuple[str, ...]:
    """Return the session ids of a session's branches."""
    return tuple(sessions_in(seen.others.get(BRANCHES)))


# --- closing runs at the source --------------------------------------------------------------------------------------


def check_target(seen: Picture, place: str, *, elsewhere: bool) -> None:
    """Refuse runs already on their way to a different target: they may have arrived there."""
    for run, target in seen.moving:
        if target != place and not elsewhere:
            raise RunStateError(
                f"run {run.run_id!r} of session {seen.session_id!r} is on its way to {target}: that move broke off",
                "Repeat that move, which finishes it. If that place is gone for good, say so (elsewhere=True).",
            )


async def closed_runs(
    here: StoredSession, place: str, wait_s: float, check: Callable[[Picture], Awaitable[None]] | None = None
) -> Picture:
    """Close the runs that could still act, in one step with the session's last read; return the picture read.

    `moving` of it are the runs that have to arrive, those of an earlier attempt included.
    """
    name = Name("session", here.session_id)
    seen = await read_picture(here)
    if not seen.unfinished:
        return seen
    async with await here.lease(ttl_s=LEASE_S, wait_s=wait_s, holder=f"moves to {place}") as lease:
        for _ in range(TRIES):
            seen = await read_picture(here)
            if not seen.unfinished:
                return seen  # closed by a step whose answer was lost, or ended
            if check is not None:
                await check(seen)
            runs = [run._replace(token=uuid4().hex) for run in seen.unfinished]
            if await here.changed(partial(close_runs, name, seen, runs, place, fence_of(lease))):
                moving = [*seen.moving, *(MovingRun(run, place) for run in runs)]
                return seen._replace(unfinished=(), moving=moving)
    raise SessionConflictError(
        f"session {here.session_id!r} was changed by somebody each time it was looked at",
        "Repeat the move when it is not in use.",
    )


# --- stores ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def ensure_open_store(store: AnyStore, *, read_only: bool = False, create: bool = False) -> AsyncIterator[Store]:
    """Yield a given store, left open for its owner, or open the store of a URL for the duration."""
    if isinstance(store, Store):
        yield store
        return
    async with open_store(store, read_only=read_only, create=create) as found:
        yield found


def place_of(store: Store) -> str:
    """Return the identity of a store for finding interrupted moves: its URL without a password."""
    if store.backend == "sqlite":
        return "sqlite:" + os.path.realpath(parse_url(store.url).path)
    return store.url


async def _all_ids(store: Store) -> list[str]:
    """Return the ids of all sessions, the oldest change first, so that the target lists them in the same order."""
    found = await store.looked(partial(every, "session", {}))
    return [one.id for one in reversed(found)]
