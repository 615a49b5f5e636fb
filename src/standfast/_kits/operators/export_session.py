"""A session as a file, and back. The format is in `export_format`, and in docs/reference/export-format.md.

A file is written beside its place and then moved there, so that no reader meets half of one. Importing reads all of it
before anything is stored, and stores it in one step.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import IO
from uuid import uuid4

from standfast._kits.operators.copy_sessions import (
    AnyStore,
    Decision,
    Outcome,
    SessionCopied,
    branches_of,
    brought_to,
    check_target,
    closed_runs,
    ensure_open_store,
    read_picture,
    reported,
)
from standfast._kits.operators.export_format import Exported, create_hmac, export_chunks, read_export
from standfast._kits.operators.import_checks import UNREADABLE, FromFile, from_file
from standfast._src.base.errors import ExportFileError, StandfastError, StoreFullError, StoreUnavailableError
from standfast._src.sessions.backends.memory.memory_session import InMemorySession, InMemoryStore
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.rules.snapshot import ImportNote, MovingRun, Picture, digest_of, forget_moved
from standfast._src.sessions.storage import Name

File = str | os.PathLike[str] | IO[bytes]


async def export_session(
    store: AnyStore,
    session_id: str,
    file: File,
    *,
    move: bool = False,
    overwrite: bool = False,
    wait_s: float = 15.0,
    key: str | bytes | None = None,
) -> SessionCopied:
    """Write a session with all its state to a file, while in use.

    `file` is a path, or something open for writing bytes. Runs that could still act are left in the store and named;
    with `move` they are closed there and go with the file, which must then be imported once: `move` takes a path. An
    existing file is replaced only with `overwrite`. Only its owner can read a new one. `key` signs it: an import with
    the same key keeps what people decided about calls. Raises NotFoundError for a missing session.

        done = await export_session("talks.db", "user-7", "user-7.jsonl")
        print(done.items, "records;", "left behind:", done.left)
    """
    place = os.path.abspath(os.fspath(file)) if isinstance(file, str | os.PathLike) else file
    if move and not isinstance(place, str):
        raise ExportFileError("a run is moved into a file that stays, not into a stream", "Give a path.")
    create_hmac(key)  # a key that is none is refused before a run is closed
    async with ensure_open_store(store, read_only=not move) as found:
        session = found.session(session_id)
        try:
            if not move:
                seen = await read_picture(session)
                await asyncio.to_thread(_write, export_chunks(seen, key=key), place, overwrite=overwrite)
                return _report_export(seen, ())
            return await _move_to_file(session, str(place), key, overwrite=overwrite, wait_s=wait_s)
        finally:
            await session.close()


async def _move_to_file(
    session: StoredSession, path: str, key: str | bytes | None, *, overwrite: bool, wait_s: float
) -> SessionCopied:
    """Close the runs at the source, write them to the file, and delete them at the source once the file is in place."""
    place = f"file:{path}"
    before = await read_picture(session)
    check_target(before, place, elsewhere=False)
    if os.path.exists(path) and not overwrite and not await asyncio.to_thread(_holds, path, before.moving):
        raise _there(path)
    seen = await closed_runs(session, place, wait_s)
    runs = [one.run for one in seen.moving]
    await asyncio.to_thread(_write, export_chunks(seen, runs, key), path, overwrite=True)
    await session.changed(partial(forget_moved, Name("session", session.session_id), seen.moving))
    return _report_export(seen, tuple(run.run_id for run in runs))


def _holds(path: str, moving: Iterable[MovingRun]) -> bool:
    """Return whether a file was written by an earlier attempt of a move: its runs are the moving ones."""
    wanted = {one.run.token for one in moving}
    try:
        return bool(wanted) and wanted <= {run.token for run in _read(path, None).runs}
    except StandfastError:
        return False


def _report_export(seen: Picture, moved: tuple[str, ...]) -> SessionCopied:
    return SessionCopied(
        seen.session_id, "copied", seen.item_count, len(seen.generations), len(seen.runs), moved=moved,
        left=tuple(run.run_id for run in seen.unfinished), untold=seen.untold, branches=branches_of(seen),
    )  # fmt: skip


async def import_session(
    store: AnyStore,
    file: File,
    *,
    key: str | bytes | None = None,
    accept_runs: bool = False,
    session_id: str | None = None,
) -> SessionCopied:
    """Store an exported session under its id in one step, after comparing the prospective result with the file.

    A file touches the session of its own id only, or of `session_id`. A file that was cut, changed or written by a
    newer release is refused before anything is stored. So is a session that is there already, unless it is the very
    one: then nothing is done, and the outcome says so.

    Runs that could still act come in with `accept_runs`; without it they are named in `left`. Decisions about their
    calls are dropped, so that a person is asked again, unless the file was exported with the same `key`; a file that
    this key has not signed is refused. Under another `session_id` no run comes.

        done = await import_session("redis://localhost:6379/0", "user-7.jsonl")
        print(done.outcome, done.items)
    """
    given = await asyncio.to_thread(_read, file, key)  # a long one takes a second; the loop continues
    come = await asyncio.to_thread(from_file, given, session_id, accept_runs=accept_runs)
    seen = come.seen
    note = ImportNote(digest_of(seen), f"export {given.digest}", uuid4().hex)
    await _rehearse(come, note)
    async with ensure_open_store(store, create=True) as target:
        session = target.session(seen.session_id)
        try:
            outcome, brought = await brought_to(session, seen, come.moved, note, _OUTCOMES)
            done = await reported(session, seen, note, outcome, brought)
            return replace(done, left=come.left)
        finally:
            await session.close()


async def _rehearse(come: FromFile, note: ImportNote) -> None:
    """Store the session of a file in memory and compare the result; raise ExportFileError on a difference."""
    session = InMemorySession(come.seen.session_id, store=InMemoryStore())
    try:
        await brought_to(session, come.seen, come.moved, note, _OUTCOMES)
        found = await read_picture(session)
        await session.usage()
        is_same = digest_of(found) == note.digest and len(found.unfinished) == len(come.moved)
        why = "what would be stored is not what it says"
    except UNREADABLE as error:
        is_same, why = False, f"{type(error).__name__}: {error}"
    finally:
        await session.close()
    if not is_same:
        raise ExportFileError(
            f"this exported session cannot be stored: {why}; nothing was imported",
            "Export it again, or take another copy of it.",
        )


_OUTCOMES: dict[Decision, Outcome] = {"whole": "copied", "equal": "equal", "ahead": "ahead"}


# --- files -----------------------------------------------------------------------------------------------------------


def _read(file: File, key: str | bytes | None) -> Exported:
    if not isinstance(file, str | os.PathLike):
        return read_export(file, key)
    try:
        with open(file, "rb") as opened_file:
            return read_export(opened_file, key)
    except OSError as error:
        raise ExportFileError(
            f"{os.fspath(file)!r} cannot be read: {error.strerror or error}", "Give the path of an exported session."
        ) from error


def _write(chunks: Iterable[bytes], file: str | IO[bytes], *, overwrite: bool) -> None:
    if not isinstance(file, str):
        for chunk in chunks:
            file.write(chunk)
        return
    if os.path.exists(file) and not overwrite:
        raise _there(file)
    with write_atomically(file) as part:
        for chunk in chunks:
            part.write(chunk)


@contextmanager
def write_atomically(path: str) -> Iterator[IO[bytes]]:
    """Yield a file that replaces `path` once all data are on disk; after a failure nothing is left behind.

    It holds what people said: only its owner can read a new one. One that is written over keeps its mode.
    """
    part = f"{path}.{uuid4().hex}.part"  # unique: two processes may be writing to this place at once
    try:
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
                with contextlib.suppress(FileNotFoundError):
                    os.chmod(part, stat.S_IMODE(os.stat(path).st_mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
            _sync_folder(os.path.dirname(path))
        finally:
            if os.path.exists(part):
                os.unlink(part)
    except OSError as error:
        kind = StoreFullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else StoreUnavailableError
        raise kind(
            f"{path!r} could not be written: {error.strerror or error}; nothing is left of it",
            "Make room or choose another place, and repeat this.",
        ) from error


def _sync_folder(folder: str) -> None:
    """Sync a folder, so that a new name survives a crash; without effect on systems other than POSIX."""
    try:
        handle = os.open(folder or ".", os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)


def _there(path: str) -> ExportFileError:
    return ExportFileError(
        f"{path!r} is there already", "Choose another name, or say that it may be written over (overwrite=True)."
    )
