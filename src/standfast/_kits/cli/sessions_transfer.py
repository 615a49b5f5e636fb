"""`standfast sessions export`, `import` and `copy`: conversations in files, and from one store to another."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from standfast._kits.cli.arguments import (
    Commands,
    Parser,
    command,
    deadline,
    open_named_store,
    seconds,
    session_id_of,
)
from standfast._kits.cli.formatting import number, several
from standfast._kits.cli.output import Column, Output
from standfast._kits.operators.exit_codes import DONE, BrokeOffError, RefusedError, UsageError, code_of
from standfast._src.base.errors import StandfastError, StoreError

if TYPE_CHECKING:
    from standfast._kits.operators.copy_sessions import CopyProgress, SessionCopied, SessionsCopied
    from standfast._kits.operators.store import Store

WAIT_S = 15.0


def add(commands: Commands[Parser]) -> None:
    """Add the commands for moving sessions."""
    export = command(commands, "export", export_session, "write a session to a file, whole", changes=True,
                     description=EXPORT)  # fmt: skip
    export.add_argument("session", metavar="SESSION")
    export.add_argument("--to", "-o", metavar="FILE", help="where to (else: SESSION.jsonl here; -: standard output)")
    export.add_argument("--overwrite", action="store_true", help="a file that is there may be written over")
    add_key(export, "sign the file with the key in this file: an import with it keeps decisions about calls")
    add_move(export)

    bring = command(commands, "import", import_session, "store a session from a file that `export` wrote", changes=True,
                    description=IMPORT)  # fmt: skip
    bring.add_argument("file", metavar="FILE", help="the exported session (-: standard input)")
    bring.add_argument("--runs", action="store_true", help="take in runs that can still act (else they are named)")
    bring.add_argument("--as", dest="session_id", metavar="SESSION", help="store it under this id, without its runs")
    add_key(bring, "the key that must have signed the file; decisions about calls are kept then, else asked again")

    copy = command(commands, "copy", copy_sessions, "copy sessions to another store, and verify them", store=False,
                   changes=True, description=COPY)  # fmt: skip
    copy.set_defaults(waits=True)
    copy.add_argument("source", metavar="FROM", help="path or URL of the store they are in")
    copy.add_argument("target", metavar="TO", help="path or URL of the store they come to; a file is made")
    copy.add_argument("--session", "-s", action="append", metavar="SESSION", help="this one; may be given often (all)")
    copy.add_argument("--timeout", type=deadline, default=30.0, metavar="S", help="seconds for each question (30)")
    copy.add_argument("--elsewhere", action="store_true", help="the target of a move that broke off is gone for good")
    add_move(copy)


EXPORT = (
    "Write a session to a file with everything that makes it the same session: items with writer, number and time, "
    "kept generations, saved runs, usage. Runs that have not ended are left in the store, unless they are moved."
)
IMPORT = (
    "Store an exported session under its id, in one step; no other session is touched. A damaged file, one of a newer "
    "release, and a session that is there already and is another one are refused; nothing is changed then. Runs that "
    "can still act come in with --runs. What people decided about their calls is asked for again, unless --key-file "
    "names the key that has signed the file."
)
COPY = (
    "Copy sessions from one store to another, each in one step and compared afterwards, while both are in use. "
    "Repeating it goes on where it broke off and brings what has come since. A database of the OpenAI Agents SDK is a "
    "store too. Runs that have not ended are left, unless they are moved."
)


def add_move(parser: Parser) -> None:
    """Add the option to move unfinished runs with their session."""
    parser.add_argument(
        "--move", action="store_true", help="close runs that have not ended here, so that they go on there"
    )
    parser.add_argument(
        "--wait", type=seconds, default=WAIT_S, metavar="S", help=f"wait so long for a run that is at it ({WAIT_S:g})"
    )


def add_key(parser: Parser, help: str) -> None:
    """Add the option for the key of a signed file. The key is not a word: everyone on the machine can read those."""
    parser.add_argument("--key-file", metavar="FILE", help=help)


def _key(args: argparse.Namespace) -> bytes | None:
    """Return the key named by the command line, without line ends added by an editor."""
    if args.key_file is None:
        return None
    try:
        with open(args.key_file, "rb") as file:
            return file.read().rstrip(b"\r\n")
    except OSError as error:
        raise UsageError(f"{args.key_file!r} cannot be read: {error.strerror}", "Give the file of the key.") from error


# --- export and import -----------------------------------------------------------------------------------------------


async def export_session(args: argparse.Namespace, out: Output) -> int:
    """Write a session to a file."""
    from standfast._kits.operators import export_session as exporting

    async with open_named_store(args, read_only=not args.move) as store:
        session_id = await session_id_of(store, args.session)
        file = args.to or _file_name(session_id)
        with out.waiting_for(await _describe_export(store, session_id, args)):
            if file == "-":
                await exporting.export_session(store, session_id, sys.stdout.buffer, move=args.move, key=_key(args))
                return DONE
            done = await exporting.export_session(
                store, session_id, file, move=args.move, overwrite=args.overwrite, wait_s=args.wait, key=_key(args)
            )
    if out.as_json:
        out.record("standfast.exported/1", {**_fields(done), "file": os.path.abspath(file)})
    else:
        out.line(_describe_copy(done, f"written to {file}"))
    _say_left(done, out)
    if done.moved:
        out.note(f"{several(len(done.moved), 'run')} moved into the file: import it into one store only")
    return DONE


async def _describe_export(store: Store, session_id: str, args: argparse.Namespace) -> str:
    """Return the reason why an export takes time: reading, or the holder of a session with runs to be moved."""
    session = store.session(session_id)
    try:
        holder = await session.holder() if args.move else None
    finally:
        await session.close()
    if holder is None:
        return f"exporting session {session_id}"
    return f"waiting for {holder.name or 'the holder'} of session {session_id}"


def _file_name(session_id: str) -> str:
    """A session's id as the name of a file that every system takes."""
    kept = "".join(one if one.isalnum() or one in "-_. " else "_" for one in session_id).strip(". ") or "session"
    return f"{kept[:120]}.jsonl"


async def import_session(args: argparse.Namespace, out: Output) -> int:
    """Store an exported session."""
    from standfast._kits.cli.arguments import store_named
    from standfast._kits.operators import export_session as exporting
    from standfast._kits.operators.open_store import open_store

    if args.file != "-" and os.path.isdir(args.file):
        raise UsageError(f"{args.file} is a directory", "Give the file that `sessions export` wrote.")
    store = open_store(store_named(args), create=True, timeout_s=args.timeout)
    try:  # not entered: a file that is refused makes no store
        with out.waiting_for(f"importing {args.file}"):
            done = await exporting.import_session(
                store, sys.stdin.buffer if args.file == "-" else args.file, key=_key(args), accept_runs=args.runs,
                session_id=args.session_id,
            )  # fmt: skip
    finally:
        await store.close()
    if out.as_json:
        out.record("standfast.imported/1", _fields(done))
    else:
        was = {"equal": "was there already", "ahead": "was there already, and has gone on since"}
        out.line(_describe_copy(done, was.get(done.outcome, "imported")))
    if done.left:
        how = "--runs takes them in" if args.session_id is None else "no run comes under another id: leave --as out"
        out.note(f"left in the file, because they can still act: {', '.join(done.left)} ({how})")
    if done.moved and args.key_file is None:
        out.note("calls of these runs that were decided wait again: the file is not signed with a key that was given")
    if done.branches:
        out.note(f"its branches have new ids; import the file of each with --as: {', '.join(done.branches)}")
    return DONE


# --- copy ------------------------------------------------------------------------------------------------------------

COPIED = (
    Column("SESSION", "session", gives_way=True),
    Column("OUTCOME", "outcome"),
    Column("RECORDS", "records", number, is_right=True),
    Column("RUNS", "runs", number, is_right=True),
    Column("MOVED", "moved", lambda found: ", ".join(found) or "–", lambda found: ",".join(found)),
    Column("LEFT", "left", lambda found: ", ".join(found) or "–", lambda found: ",".join(found)),
)


async def copy_sessions(args: argparse.Namespace, out: Output) -> int:
    """Copy sessions to another store."""
    from standfast._kits.operators import copy_sessions as moving
    from standfast._kits.operators.open_store import open_store

    done: list[int] = [0]
    async with open_store(args.source, read_only=not args.move, timeout_s=args.timeout) as source:
        ids = None if args.session is None else [await session_id_of(source, one) for one in args.session]
        total = len(ids) if ids is not None else (await source.counts()).sessions
        async with open_store(args.target, create=True, timeout_s=args.timeout) as target:
            with out.progress("copying", total) as shown:

                def progress(one: CopyProgress) -> None:
                    shown.advance(one.done - done[0])
                    done[0] = one.done

                try:
                    report = await moving.copy_sessions(
                        source, target, ids, move=args.move, progress=progress, wait_s=args.wait,
                        elsewhere=args.elsewhere,
                    )  # fmt: skip
                except StoreError as error:
                    raise BrokeOffError(
                        f"the copy broke off behind {several(done[0], 'session')} of {total}: {error.what}",
                        f"{error.remedy} Then repeat it: it goes on where it was.",
                    ) from error
    return _report_copies(report, out)


def _report_copies(report: SessionsCopied, out: Output) -> int:
    out.table("standfast.copied/1", COPIED, [_fields(one) for one in report.copied])
    for one in report.copied:
        _say_left(one, out)
    for session_id, error in report.refused:
        if out.as_json:
            out.record("standfast.not-copied/1", {"session": session_id, "why": error.what, "remedy": error.remedy})
        else:
            out.note(f"{session_id} was not copied: {error.what}. {error.remedy}")
    if len(report.refused) == 1 and not report.copied:
        raise _only(report.refused[0][1])
    if report.refused:
        raise RefusedError(f"{several(len(report.refused), 'session')} not copied", "See above; the others were.")
    return DONE


def _only(error: StandfastError) -> BaseException:
    """Return the error that ends the command if the one requested session was refused: its own, for its exit code."""
    return error if code_of(error) != DONE else RefusedError(error.what, error.remedy)


# --- saying ----------------------------------------------------------------------------------------------------------


def _fields(done: SessionCopied) -> dict[str, Any]:
    return {
        "session": done.session_id,
        "outcome": done.outcome,
        "records": done.items,
        "generations": done.generations,
        "runs": done.runs,
        "moved": list(done.moved),
        "left": list(done.left),
        "corrupt_left": done.untold,
        "verified": done.is_verified,
    }


def _describe_copy(done: SessionCopied, what: str) -> str:
    return f"session {done.session_id} {what}: {several(done.items, 'record')}, {several(done.runs, 'run')}"


def _say_left(done: SessionCopied, out: Output) -> None:
    if done.left:
        out.note(f"left in the store, because they have not ended: {', '.join(done.left)} (--move takes them along)")
    if done.untold:
        out.note(f"left in the store: {several(done.untold, 'corrupt record')} of {done.session_id} that are no text")
