"""`standfast verify`: run the conformance kit in a scratch name space of a live store, and show its scorecard."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from standfast._kits.cli.arguments import Commands, Parser, command, count, store_named
from standfast._kits.cli.output import Output
from standfast._kits.operators.exit_codes import DONE, FOUND, UsageError

if TYPE_CHECKING:
    from standfast._kits.conformance.live.verify_store import Verification, VerificationPlan
    from standfast._kits.conformance.results import Result

REPORTS = (".md", ".html", ".json")
NAMED_MAX = 5


def add(commands: Commands[Parser]) -> None:
    """Add `verify`."""
    parser = command(
        commands,
        "verify",
        verify,
        "whether a store keeps the contract, in a scratch name space of it",
        changes=True,
        asks=True,
        description=(
            "Run the conformance kit in a scratch name space of a store that others use, with only the checks that "
            "cannot harm them. An SQLite file is checked in a copy beside it. Says what it will write, and asks."
        ),
    )
    parser.add_argument("--clause", action="append", default=[], metavar="ID", help="only this clause (A5); repeatable")
    parser.add_argument("--in-place", action="store_true", help="an SQLite file: in the file itself, with fewer checks")
    parser.add_argument(
        "--report",
        action="append",
        default=[],
        type=_report,
        metavar="PATH",
        help="write the scorecard there: .md, .html or .json; repeatable",
    )
    parser.add_argument("--rounds", type=count, default=3, metavar="N", help="how often each kill is repeated (3)")
    parser.add_argument("--examples", type=count, default=10, metavar="N", help="how many generated histories (10)")


def _report(text: str) -> Path:
    if not text.endswith(REPORTS):
        raise argparse.ArgumentTypeError(f"{text!r} has none of the endings {', '.join(REPORTS)}")
    return Path(text)


async def verify(args: argparse.Namespace, out: Output) -> int:
    """Announce the writes, ask, make the checks, and show the results; FOUND if a clause is broken."""
    from dataclasses import replace

    from standfast._kits.conformance.live.verify_store import AMOUNT, plan_verification, verify_store

    for path in args.report:
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {str(path.parent)!r} for a report", "Make it, or name another.")
    url, clauses = store_named(args), [one.upper() for one in args.clause]
    plan = await plan_verification(url, clauses=clauses, in_place=args.in_place, timeout_s=args.timeout)
    out.confirm(f"This checks {plan.where}", details=_details(plan))
    # The checks put broken records into the scratch name space: what is logged about those is no news.
    logging.getLogger("standfast").addHandler(logging.NullHandler())
    with out.progress("checking", plan.made + plan.left_out) as progress:

        def told(result: Result, number: int, total: int) -> None:
            progress.advance(1)
            if result.value == "broken":
                out.note(f"{result.clause_id} broken, {result.check.replace('_', ' ')}: {result.detail}")

        done = await verify_store(
            url,
            clauses=clauses,
            in_place=args.in_place,
            options=replace(AMOUNT, rounds=args.rounds, examples=args.examples),
            progress=told,
            timeout_s=args.timeout,
        )
    for path in args.report:
        path.write_text(_contents(done, path.suffix), encoding="utf-8")
        out.note(f"written: {path}")
    _show(done, out)
    return FOUND if done.broken else DONE


def _details(plan: VerificationPlan) -> list[str]:
    dead = [one.name for one in plan.leftovers if one.is_dead]
    alive = len(plan.leftovers) - len(dead)
    lines = [*plan.writes, f"{plan.made} checks are made, {plan.left_out} are left out here."]
    if dead:
        named = ", ".join(dead[:NAMED_MAX]) + (", …" if len(dead) > NAMED_MAX else "")
        lines.append(f"Removed first, because the verification that left it was killed: {named}.")
    if alive:
        lines.append(f"{alive} other verification{'s are' if alive > 1 else ' is'} under way here and left alone.")
    return lines


def _contents(done: Verification, ending: str) -> str:
    match ending:
        case ".md":
            return done.markdown()
        case ".html":
            return done.html()
        case _:
            return done.card.json()


def _show(done: Verification, out: Output) -> None:
    data = done.card.data()[done.plan.backend]
    values = [entry["value"] for entry in data.values()]
    if out.as_json:
        for clause_id, entry in data.items():
            out.record("standfast.clause/1", {"clause": clause_id, **entry})
        summary = {
            "store": done.plan.url,
            "where": done.plan.where,
            "clauses": len(values),
            "kept": values.count("kept"),
            "broken": values.count("broken"),
            "took_s": round(done.took_s, 1),
            "removed": list(done.removed),
            "not_removed": list(done.not_removed),
        }
        out.record("standfast.verification/1", summary)
        return
    out.text("\n".join(done.card.lines()).rstrip())
    broken, not_run = values.count("broken"), values.count("not run")
    out.line()
    out.line(
        f"{values.count('kept')} of {len(values)} clauses kept, {broken} broken, {not_run} not looked at here, "
        f"in {done.took_s:.0f} s"
    )
    if done.not_removed:
        out.note(f"could not be removed, and will be by a later verification: {', '.join(done.not_removed)}")
