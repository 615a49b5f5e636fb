"""`standfast doctor`: examine a store, repair it with an undo file, and `standfast doctor undo FILE`."""

from __future__ import annotations

import argparse
import errno
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast._kits.cli.arguments import Commands, Parser, deadline, open_named_store, seconds, session_id_of
from standfast._kits.cli.output import Output
from standfast._kits.operators.exit_codes import DONE, FOUND, REFUSED, BrokeOffError, UsageError
from standfast._kits.operators.suggested_commands import command_line
from standfast._src.base.errors import UndoFileError

if TYPE_CHECKING:
    from standfast._kits.operators.doctor.checks import Examination
    from standfast._kits.operators.doctor.findings import Finding
    from standfast._kits.operators.doctor.repair import RepairReport, SessionRepair
    from standfast._kits.operators.store import Store

MARKS = {"broken": "✗", "watch": "!", "note": "·"}

DESCRIPTION = """Say what is wrong with a store, what follows from it, and what to do. Without --repair nothing changes.

`standfast doctor undo FILE` puts back what a repair took out, and keeps all that was written since. It shows the store
that the file names and asks before it opens it. --store names it instead: needed where its URL has a password.
"""


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    parser: Parser = commands.add_parser(
        "doctor",
        help="what is wrong with a store",
        usage="standfast doctor [STORE [SESSION ...]] [--repair] [--json]\n       standfast doctor undo FILE",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=doctor, changes=False, waits=True)
    # Words are told apart by hand: a first word `undo` is a command of its own, and argparse cannot do both.
    parser.add_argument("words", nargs="*", metavar="STORE SESSION", help="the store, and sessions of it (all)")
    parser.add_argument("--store", dest="store_option", metavar="STORE", help="the store; all words are sessions then")
    parser.add_argument(
        "--repair", action="store_true", help="take out what no provider accepts, having written an undo file"
    )
    parser.add_argument("--undo-file", metavar="FILE", help="where to write that (standfast-undo-….jsonl, here)")
    parser.add_argument(
        "--quiet-for",
        type=seconds,
        default=900.0,
        metavar="TIME",
        help="repair only sessions unchanged for so long; of a run without a lease, take so long as a sign (15m)",
    )
    parser.add_argument(
        "--remember",
        type=Path,
        metavar="FILE",
        help="keep lease numbers in FILE, and tell when they went back: the store was restored from a backup",
    )
    parser.add_argument("--timeout", type=deadline, default=30.0, metavar="S", help="seconds for each question (30)")
    parser.add_argument("--yes", "-y", action="store_true", help="undo: do not ask about the store that the file names")
    parser.add_argument("--json", action="store_true", help="one JSON object for each finding, on lines")


async def doctor(args: argparse.Namespace, out: Output) -> int:
    """Examine a store, repair it if requested, or undo a repair."""
    words = list(args.words)
    if words[:1] == ["undo"]:
        return await _undo(args, words[1:], out)
    args.store = None if args.store_option or not words else words.pop(0)
    if args.undo_file and not args.repair:
        raise UsageError("--undo-file names where a repair is written down", "Add --repair.")
    found: list[Finding] = []
    # Looked at without `async with`, which refuses a newer layout or a damaged file: here those are findings.
    store = open_named_store(args, read_only=True)
    try:
        sessions = [await session_id_of(store, given) for given in words] or None
        examination = await _examine(store, sessions, found, out, args)
    finally:
        await store.close()
    unsolved = [one for one in found if one.level != "note" and not one.repairable]
    broken = [one for one in found if one.repairable]
    report = await _repair(args, sessions, out) if args.repair and broken else None
    _summary(examination, found, report, out)
    left = bool(broken) if report is None else bool(report.of("left"))
    return FOUND if unsolved or left else DONE


async def _examine(
    store: Store, sessions: list[str] | None, found: list[Finding], out: Output, args: argparse.Namespace
) -> Examination:
    from standfast._kits.operators.doctor.checks import examine_store
    from standfast._kits.operators.doctor.known_numbers import KnownNumbers

    told: set[str] = set()
    known = None if args.remember is None else KnownNumbers(args.remember)
    with out.progress("examining records") as progress:
        examination = examine_store(
            store, sessions=sessions, progress=progress.advance, quiet_for_s=args.quiet_for, known_numbers=known
        )
        async for one in examination:
            found.append(one)
            _show(one, out, is_first=one.kind not in told)
            told.add(one.kind)
    if known is not None:
        known.remember(examination.lease_numbers)
    return examination


def _show(one: Finding, out: Output, *, is_first: bool) -> None:
    if out.as_json:
        out.record("standfast.finding/1", _as_record(one))
        return
    out.line(f"{MARKS[one.level]} {one.where}: {one.what}")
    if is_first:  # once for each kind: a store may have thousands of one
        out.line(f"    {one.effect}")
        out.line(f"    {one.remedy}")


def _as_record(one: Finding) -> dict[str, Any]:
    fields = ("kind", "level", "where", "what", "effect", "remedy", "repairable", "session_id", "run_id", "index")
    return {name: getattr(one, name) for name in fields}


def _summary(examination: Examination, found: list[Finding], report: RepairReport | None, out: Output) -> None:
    counts = {level: sum(one.level == level for one in found) for level in MARKS}
    repaired = 0 if report is None else sum(one.records for one in report.of("repaired"))
    if out.as_json:
        read = {"sessions": examination.sessions, "items": examination.items, "runs": examination.runs}
        undo_file = None if report is None or report.undo_file is None else str(report.undo_file)
        out.record("standfast.doctor/1", {**read, **counts, "repaired": repaired, "undo_file": undo_file})
        return
    changed = f"{_number(repaired, 'record')} taken out" if repaired else "nothing was changed"
    checked = [_number(getattr(examination, f"{one}s"), one) for one in ("session", "item", "run")]
    out.line(f"checked {', '.join(checked)} · {changed}")
    if found:
        done = f" (repaired: {_number(len(report.of('repaired')), 'session')})" if report and repaired else ""
        out.line(f"{counts['broken']} broken{done}, {counts['watch']} to watch, {counts['note']} to know")


def _number(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


async def _repair(args: argparse.Namespace, sessions: list[str] | None, out: Output) -> RepairReport:
    from standfast._kits.operators.doctor.repair import repair_store, undo_file_name

    path = args.undo_file or undo_file_name()
    out.changes = True  # a closed pipe does not stop it halfway
    try:
        async with open_named_store(args, read_only=False) as store:
            report = await repair_store(store, path, sessions=sessions, quiet_for_s=args.quiet_for)
    except UndoFileError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.ENOSPC, errno.EDQUOT):
            raise BrokeOffError(error.what, error.remedy) from error
        raise
    for one in report.repairs:
        if out.as_json:
            out.record("standfast.repair/1", _repair_record(one))
        elif one.state == "repaired":
            out.line(f"session {one.session_id!r}: repaired, {one.records} taken out")
        else:
            out.line(f"session {one.session_id!r}: left as it is: {one.why}. {one.remedy}")
    if report.undo_file is not None:
        out.note(f"to undo: {command_line('doctor undo', str(report.undo_file))}")
    return report


def _repair_record(one: SessionRepair) -> dict[str, Any]:
    return {name: getattr(one, name) for name in ("session_id", "state", "records", "why", "remedy")}


async def _undo(args: argparse.Namespace, words: list[str], out: Output) -> int:
    if len(words) != 1 or args.repair or args.undo_file:
        raise UsageError("`doctor undo` takes one file", "Give the file that `doctor --repair` has written.")
    from standfast._kits.operators.doctor.repair import undo_repair
    from standfast._kits.operators.doctor.undo_file import read_undo_file

    out.changes = True
    found = read_undo_file(words[0])
    if not args.store_option:
        if "***" in found.store:
            raise UsageError(
                f"the file names the store without its password ({found.store})", "Give its URL with --store."
            )
        count = sum(len(repair.removed) for _, repair in found.repairs)
        out.confirm(f"This opens {found.store}, which the file names, and puts back {_number(count, 'record')}")
    args.store, args.store_option = None, args.store_option or found.store
    async with open_named_store(args, read_only=False) as store:
        report = await undo_repair(words[0], store)
    for one in report.repairs:
        if out.as_json:
            out.record("standfast.repair/1", _repair_record(one))
        else:
            said = f": {one.why}. {one.remedy}".rstrip() if one.why else f", {_number(one.records, 'record')}"
            out.line(f"session {one.session_id!r}: {one.state}{said}")
    if not report.is_whole:
        out.note("the undo file has no last line: its repair broke off, or the file was cut; what it holds was undone")
    return REFUSED if report.of("refused") else DONE
