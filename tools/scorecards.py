"""Write the scorecard in docs/: what the whole kit sees on every backend, every check that can be made there.

    ./dev scorecards                          all columns; an hour on a quiet machine
    ./dev scorecards servers                  the columns of one group
    ./dev scorecards servers --clause A13     only this clause again; the other fields stay as they were seen
    ./dev scorecards --stale                  only fields that tell of other numbers of checks than the kit has

The table is written field by field from what was seen: none is ever entered by hand. It ends with 1 if a backend of
ours breaks a clause, and then writes that.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "scorecard.md"
BACKENDS = "tests.conformance"

INTRODUCTION = """\
# The scorecard

What the kit says of every store: clauses of [the contract](contract.md) as rows, stores as columns. On servers the
checks run through a proxy that stalls and loses answers (A6, A8, A13), with the real OpenAI Agents SDK writing beside
ours (B10). `./dev test` leaves out of encrypted and SQLAlchemy sessions what runs the same code elsewhere; here
everything is run.

The last column is the SQLite session of the OpenAI Agents SDK, through a factory of three lines. Read it with two
things in mind. The clauses are ours: the SDK never promised most of them, and "broken" says that a program which relies
on the clause would be wrong there, not that the SDK breaks its word. And the abilities of part B do not exist there, so
they are not claimed. `tests/conformance/test_contract_peer.py` runs the checks that found something.

Written by a command, never by hand:

    ./dev scorecards
"""
COUNTS = "kept (n/m): n checks made, m exist; the others need something this backend does not have."
REASONS = "## What was seen"

GROUPS: dict[str, tuple[str, ...]] = {
    "files": ("kit_backends:Memory", "kit_backends:StandfastSQLite"),
    "servers": (
        "server_backends:StandfastRedis",
        "server_backends:StandfastRedisCluster",
        "server_backends:StandfastPostgres",
    ),
    "sqlalchemy": (
        "sqlalchemy_backends:SQLAlchemySQLite",
        "sqlalchemy_backends:SQLAlchemyPostgres",
        "sqlalchemy_backends:SQLAlchemyMariaDB",
    ),
    "sealed": (
        "sealed_backends:SealedMemory",
        "sealed_backends:SealedSQLite",
        "sealed_backends:SealedRedis",
        "sealed_backends:SealedPostgres",
    ),
    "peer": ("kit_backends:AgentsSQLite",),
}
"""The columns by group: module below `tests.conformance` and class."""

COLUMNS = tuple(reference for group in GROUPS.values() for reference in group)
THEIRS = frozenset({"kit_backends:AgentsSQLite"})
"""Not ours to mend: what is broken there is what the page is about."""


@dataclass(slots=True)
class Page:
    """The page as data: fields by clause and column, notes about columns, reasons by clause and column."""

    fields: dict[str, dict[str, str]]
    notes: dict[str, str]
    reasons: dict[tuple[str, str], list[str]]

    @classmethod
    def read(cls, text: str) -> Page:
        """Return what a page says."""
        page = cls({}, {}, {})
        heading, *rows = rows_of(text)
        for row in rows[1:]:
            if not row[0].startswith("**"):
                page.fields[row[0]] = dict(zip(heading[2:], row[2:], strict=True))
        for line in text.splitlines():
            if reason := re.match(r"- \*\*(\w+)\*\* (.+?), (?:broken|not)", line):
                page.reasons.setdefault((reason[1], reason[2]), []).append(line)
            elif note := re.match(r"- (.+?): ", line):
                page.notes[note[1]] = line
        return page

    def update(self, name: str, about: str, seen: dict[str, Any]) -> None:
        """Take in what was seen of a column."""
        from standfast._kits.conformance.scorecard import Scorecard

        card = Scorecard()
        card.merge({name: seen})
        now = Page.read(card.markdown())
        for clause_id in seen:
            self.fields.setdefault(clause_id, {})[name] = now.fields[clause_id][name]
            self.reasons.pop((clause_id, name), None)
        self.reasons |= now.reasons
        if about:
            self.notes[name] = f"- {name}: {about}"

    def text(self, names: list[str]) -> str:
        """Return the page, with these columns in this order."""
        from standfast._kits.contract.clauses import CLAUSES, PARTS, sort_key

        notes = [self.notes[name] for name in names if name in self.notes]
        out = [INTRODUCTION, *notes, "", _row(["clause", "promise", *names]), _row(["---"] * (len(names) + 2))]
        part = ""
        for clause_id in sorted(self.fields, key=sort_key):
            if clause_id[0] != part:
                part = clause_id[0]
                out.append(_row([f"**{part}**", f"**{PARTS[part]}**", *[""] * len(names)]))
            fields = self.fields[clause_id]
            out.append(_row([clause_id, CLAUSES[clause_id].title, *(fields.get(name, "") for name in names)]))
        places = sorted(self.reasons, key=lambda place: (names.index(place[1]), sort_key(place[0])))
        return "\n".join([*out, "", COUNTS, "", REASONS, "", *(line for at in places for line in self.reasons[at]), ""])


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    given = _parser().parse_args(arguments)
    servers: Any = import_module("tests.helpers.servers")
    broken: list[str] = []
    page = Page.read(PAGE.read_text(encoding="utf-8"))
    names = [loaded(reference).name for reference in COLUMNS]
    try:
        for group in given.groups or GROUPS:
            for reference in GROUPS[group]:
                clauses = stale(page, reference) if given.stale else given.clause
                if given.stale and not clauses:
                    continue
                backend = loaded(reference)
                seen = see(reference, given, clauses)
                page.update(backend.name, backend.about, seen)
                PAGE.write_text(page.text(names), encoding="utf-8")
                _say(f"wrote the column of {backend.name}")
                broken += [] if reference in THEIRS else _broken(backend.name, seen)
    finally:
        servers.stop_all()
    for line in broken:
        _say(line)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev scorecards", description=(__doc__ or "").split("\n")[0])
    # The empty list: argparse asks for it among the choices where no group is given.
    parser.add_argument("groups", nargs="*", metavar="GROUP", choices=[*GROUPS, []], help=", ".join(GROUPS))
    parser.add_argument("--clause", action="append", default=[], metavar="ID", help="only these again; may be repeated")
    parser.add_argument("--stale", action="store_true", help="only fields that tell of fewer checks than there are")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--examples", type=int, default=30)
    parser.add_argument("--objects", type=int, default=10_000)
    return parser


def rows_of(text: str) -> list[list[str]]:
    """The table of a page, with its heading and the line below that."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def stale(page: Page, reference: str) -> list[str]:
    """The clauses that the page lacks or shows as broken for this backend, or with other numbers of checks than now.

    Those that the kit has, and those of them that can be made there: a backend may have learned a hook since.
    """
    from standfast._kits.conformance.catalogue import checks_of
    from standfast._kits.conformance.results import excuse
    from standfast._src.sessions.protocol import ALL_ABILITIES

    backend = loaded(reference)
    declared = ALL_ABILITIES | {"close", "port"}  # of ours all have them; what a backend lacks is a hook
    there, made = Counter[str](), Counter[str]()
    for check in checks_of():
        there[check.clause_id] += 1
        can_be_made = excuse(backend, check.clause_id) is None and check.missing(backend, declared) is None
        made[check.clause_id] += can_be_made
    cells = {clause_id: fields.get(backend.name, "") for clause_id, fields in page.fields.items()}
    found = []
    for clause_id in there:
        cell = cells.get(clause_id, "")
        told = re.search(r"\((\d+)/(\d+)\)", cell)
        numbers = (int(told[1]), int(told[2])) if told else (0, there[clause_id])
        is_stale = numbers[1] != there[clause_id] or (reference not in THEIRS and numbers[0] != made[clause_id])
        is_mended = reference not in THEIRS and "broken" in cell  # or it is broken still: it is seen again
        found += [clause_id] if is_stale or is_mended or not cell else []
    return found


def see(reference: str, given: argparse.Namespace, clauses: list[str]) -> dict[str, Any]:
    """Run the kit, or these clauses of it, on one backend; return what was seen of each clause."""
    from standfast._kits.conformance.check_context import Options
    from standfast._kits.conformance.run import prepare_checks
    from standfast._kits.conformance.scorecard import Scorecard

    backend = loaded(reference)
    amount = Options(given.rounds, given.examples, given.objects)
    results = []
    checks = prepare_checks(backend, *clauses, options=amount)
    started = time.monotonic()
    for number, make in enumerate(checks, 1):
        results.append(make())
        if results[-1].value == "broken":
            _say(f"{backend.name}: {results[-1].clause_id} {results[-1].check}: {results[-1].detail}")
        if number % 20 == 0 or number == len(checks):
            _say(f"{backend.name}: {number} of {len(checks)} checks, {time.monotonic() - started:.0f} s")
    seen: dict[str, Any] = Scorecard.of(backend, results, clause_ids=clauses).data()[backend.name]
    return seen


def loaded(reference: str) -> Any:
    """The backend of a column."""
    module, _, name = reference.partition(":")
    return getattr(import_module(f"{BACKENDS}.{module}"), name)()


def _broken(name: str, seen: dict[str, Any]) -> list[str]:
    return [
        f"{name}: {clause_id} is broken: {entry['reason']}"
        for clause_id, entry in seen.items()
        if entry["value"] == "broken"
    ]


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
