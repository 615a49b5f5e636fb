"""Write the scorecards in docs/: run the whole kit on each backend of a page, every check that can be made there.

    ./dev scorecards                          all pages; an hour on a quiet machine
    ./dev scorecards servers                  one page
    ./dev scorecards servers --clause A13     only this clause again; the other fields stay as they were seen
    ./dev scorecards --stale                  only what the kit has more checks for than a page tells of

What was seen is kept in build/scorecards/, one file for each backend, and a page is written from those files as a
whole, or (`--stale`) field by field: none is ever entered by hand. It ends with 1 if a backend of ours breaks a clause,
and then writes that.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standfast._kits.conformance.scorecard import Scorecard

ROOT = Path(__file__).resolve().parent.parent
SEEN = ROOT / "build" / "scorecards"
BACKENDS = "tests.conformance"


@dataclass(frozen=True, slots=True)
class Page:
    """One page: where it is, what it says above its table, and the columns of that."""

    name: str
    path: str
    title: str
    introduction: str
    backends: tuple[str, ...]
    """Module below `tests.conformance` and class."""


SERVERS = """\
What the kit says of the sessions on servers, with the real OpenAI Agents SDK writing beside them (B10), through a proxy
that stalls and loses answers (A6, A8, A13)."""

SQLALCHEMY = """\
What the kit says of `SQLAlchemySession`, with the real OpenAI Agents SDK writing beside it (B10). `./dev test` leaves
out on PostgreSQL what runs the same code as on SQLite and takes minutes on a server; here everything is run."""

SEALED = """\
What the kit says of `EncryptedSession` over each store. `./dev test` leaves out on servers what the wrapped session's
own executor does; here everything is run."""

PEER = """\
The kit that our own stores have to pass, run on the SQLite session of the OpenAI Agents SDK through a factory of three
lines, beside our own stores.

Read it with two things in mind. The clauses are ours: the SDK never promised most of them, and "broken" says that a
program which relies on the clause would be wrong there, not that the SDK breaks its word. And the abilities of part B
do not exist there, so it is not accused of lacking them: they are not claimed.

`tests/conformance/test_contract_peer.py` runs the checks that found something, so that this page cannot go stale
unseen."""

PAGES = (
    Page(
        "servers",
        "docs/reference/server-scorecard.md",
        "The contract on servers",
        SERVERS,
        (
            "server_backends:StandfastRedis",
            "server_backends:StandfastRedisCluster",
            "server_backends:StandfastPostgres",
        ),
    ),
    Page(
        "sqlalchemy",
        "docs/reference/sqlalchemy-scorecard.md",
        "The contract through SQLAlchemy",
        SQLALCHEMY,
        (
            "sqlalchemy_backends:SQLAlchemySQLite",
            "sqlalchemy_backends:SQLAlchemyPostgres",
            "sqlalchemy_backends:SQLAlchemyMariaDB",
        ),
    ),
    Page(
        "sealed",
        "docs/reference/sealed-scorecard.md",
        "The contract on encrypted sessions",
        SEALED,
        (
            "sealed_backends:SealedMemory",
            "sealed_backends:SealedSQLite",
            "sealed_backends:SealedRedis",
            "sealed_backends:SealedPostgres",
        ),
    ),
    Page(
        "peer",
        "docs/explanation/peer-scorecard.md",
        "The same kit on the OpenAI Agents SDK",
        PEER,
        ("kit_backends:AgentsSQLite", "kit_backends:StandfastSQLite", "kit_backends:Memory"),
    ),
)
THEIRS = frozenset({"kit_backends:AgentsSQLite"})
"""Not ours to mend: what is broken there is what the page is about."""


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    given = _parser().parse_args(arguments)
    servers: Any = import_module("tests.helpers.servers")
    broken: list[str] = []
    try:
        for page in PAGES:
            if given.pages and page.name not in given.pages:
                continue
            for reference in page.backends:
                clauses = stale(page, reference) if given.stale else given.clause
                if given.stale and not clauses:
                    continue
                if not given.write_only:
                    see(reference, given, clauses)
                broken += _broken(reference)
                if given.stale:
                    mend(page, reference, clauses)
            if not given.stale:
                write(page)
            _say(f"wrote {page.path}")
    finally:
        servers.stop_all()
    for line in broken:
        _say(line)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev scorecards", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=", ".join(page.name for page in PAGES))
    parser.add_argument("--clause", action="append", default=[], metavar="ID", help="only these again; may be repeated")
    parser.add_argument("--stale", action="store_true", help="only fields that tell of fewer checks than there are")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--examples", type=int, default=30)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--write-only", action="store_true", help="write pages from what was seen before")
    return parser


def rows_of(text: str) -> list[list[str]]:
    """The table of a page, with its heading and the line below that."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def stale(page: Page, reference: str) -> list[str]:
    """The clauses that a page lacks or shows as broken for this backend, or with other numbers of checks than now.

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
    place = 2 + page.backends.index(reference)
    _, _, *rows = rows_of((ROOT / page.path).read_text(encoding="utf-8"))
    cells = {row[0]: row[place] for row in rows}
    found = []
    for clause_id in there:
        cell = cells.get(clause_id, "")
        told = re.search(r"\((\d+)/(\d+)\)", cell)
        numbers = (int(told[1]), int(told[2])) if told else (0, there[clause_id])
        is_stale = numbers[1] != there[clause_id] or (reference not in THEIRS and numbers[0] != made[clause_id])
        is_mended = reference not in THEIRS and "broken" in cell  # or it is broken still: it is seen again
        found += [clause_id] if is_stale or is_mended or not cell else []
    return found


def mend(page: Page, reference: str, clauses: list[str]) -> None:
    """Write the fields of these clauses again, from what was seen of this backend."""
    from standfast._kits.conformance.scorecard import Scorecard

    card = Scorecard()
    card.merge(_seen(reference))
    seen = {row[0]: row[2] for row in rows_of(card.markdown())}
    path, place = ROOT / page.path, 2 + page.backends.index(reference)
    lines = _with_rows(path.read_text(encoding="utf-8").splitlines(), card, len(page.backends))
    for number, line in enumerate(lines):
        row = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else [""]
        if row[0] in clauses:
            row[place] = seen[row[0]]
            lines[number] = f"| {' | '.join(row)} |"
    # Below the table stands why a clause is not kept; of these clauses that was said of an earlier look.
    earlier = tuple(f"- **{clause_id}** {loaded(reference).name}, " for clause_id in clauses)
    now = [line for line in card.markdown().splitlines() if line.startswith(earlier)]
    lines = [line for line in lines if not line.startswith(earlier)] + now
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _with_rows(lines: list[str], card: Scorecard, columns: int) -> list[str]:
    """Add empty rows for the clauses of this card that a page lacks, in the order of the contract."""
    from standfast._kits.contract.clauses import sort_key

    rows = [(number, row[0]) for number, line in enumerate(lines) if line.startswith("| ") for row in rows_of(line)]
    known = {name: number for number, name in rows[2:]}
    for new in rows_of(card.markdown())[2:]:
        name = new[0]
        if name in known:
            continue
        # The heading of a part stands before its clauses: `**F**` is placed as `F` is.
        earlier = [number for other, number in known.items() if sort_key(other.strip("*")) <= sort_key(name.strip("*"))]
        at = max(earlier, default=rows[1][0]) + 1
        lines = [*lines[:at], f"| {' | '.join([*new[:2], *[''] * columns])} |", *lines[at:]]
        known = {other: number + (number >= at) for other, number in known.items()} | {name: at}
    return lines


def see(reference: str, given: argparse.Namespace, clauses: list[str]) -> None:
    """Run the kit, or these clauses of it, on one backend and keep what was seen."""
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
    seen = Scorecard.of(backend, results, clause_ids=clauses).data()
    path = SEEN / f"{reference.partition(':')[2]}.json"
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() and clauses else {}
    known = {backend.name: known.get(backend.name, {}) | seen[backend.name]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(known, indent=1, ensure_ascii=False), encoding="utf-8")


def write(page: Page) -> None:
    """Write a page from what was seen of its backends; raises if that does not cover every clause."""
    from standfast._kits.conformance.catalogue import clauses_of
    from standfast._kits.conformance.scorecard import Scorecard

    card = Scorecard()
    about = []
    for reference in page.backends:
        seen = _seen(reference)
        missing = [one for column in seen.values() for one in clauses_of("ABCF") if one not in column]
        if missing:
            raise SystemExit(f"{reference} has not been looked at for {', '.join(missing)}: run ./dev scorecards again")
        card.merge(seen)
        backend = loaded(reference)
        about += [f"- {backend.name}: {backend.about}"] if backend.about else []
    how = f"Written by a command, never by hand:\n\n    ./dev scorecards {page.name}"
    # tools/pictures.py draws it from the table, once that is written.
    picture = f"![Squares: which clauses of the table below each store keeps]({Path(page.path).stem}.svg)"
    text = "\n".join([page.introduction, "", how, "", picture, "", *about])
    (ROOT / page.path).write_text(card.markdown(page.title, text), encoding="utf-8")


def loaded(reference: str) -> Any:
    """The backend that a page names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(f"{BACKENDS}.{module}"), name)()


def _seen(reference: str) -> dict[str, Any]:
    path = SEEN / f"{reference.partition(':')[2]}.json"
    if not path.exists():
        raise SystemExit(f"{reference} has not been run: run ./dev scorecards without --write-only")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _broken(reference: str) -> list[str]:
    if reference in THEIRS:
        return []
    return [
        f"{name}: {clause_id} is broken: {entry['reason']}"
        for name, column in _seen(reference).items()
        for clause_id, entry in column.items()
        if entry["value"] == "broken"
    ]


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
