"""Run the kit on backends without pytest and write their scorecard.

    python -m standfast.conformance tests/my_stores.py:MyStore --report scorecard.md

It makes every check, prints what is broken as it is seen, and ends with 1 if something is. `--strict` also wants every
clause to be claimed.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from standfast._kits.conformance.backend import Backend
from standfast._kits.conformance.check_context import Options
from standfast._kits.conformance.results import BROKEN
from standfast._kits.conformance.scorecard import Scorecard
from standfast._src.base.errors import NotFoundError
from standfast._src.base.extras import needed_by


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    try:
        with needed_by("the kit"):
            from standfast._kits.conformance.plugin import write
            from standfast._kits.conformance.run import check
    except ImportError as error:
        raise SystemExit(str(error)) from error
    card, about, is_broken = Scorecard(), [], False
    amount = Options(options.rounds, options.examples, options.objects)
    for reference in options.backends:
        backend = _load(reference)
        try:
            results = check(backend, *options.clause, options=amount)
        except NotFoundError as error:
            raise SystemExit(str(error)) from error
        for result in results:
            if result.value == BROKEN:
                is_broken = True
                _say(f"{backend.name}: {result.clause_id} broken, {result.check.replace('_', ' ')}: {result.detail}")
        card.merge(Scorecard.of(backend, results, clause_ids=options.clause).data())
        about += [f"- {backend.name}: {backend.about}"] if backend.about else []
    _say("\n".join(card.lines()))
    for path in options.report:
        if path.suffix == ".md":
            introduction = options.introduction.read_text(encoding="utf-8") if options.introduction else ""
            text = "\n".join([introduction.strip(), "", *about])
            path.write_text(card.markdown(options.title, text), encoding="utf-8")
        else:
            write(card, path)
    return 1 if is_broken or (options.strict and not all(card.green(name) for name in card.backends)) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m standfast.conformance", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("backends", nargs="+", metavar="MODULE:CLASS", help="a backend: file or module, and its class")
    parser.add_argument("--clause", action="append", default=[], metavar="ID", help="only this clause; may be repeated")
    parser.add_argument("--report", action="append", default=[], type=Path, metavar="PATH", help=".md or .json")
    parser.add_argument("--title", default="Scorecard", help="the title of a Markdown report")
    parser.add_argument("--introduction", type=Path, metavar="PATH", help="text to put before the Markdown table")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--examples", type=int, default=30)
    parser.add_argument("--objects", type=int, default=10_000)
    parser.add_argument("--strict", action="store_true", help="end with 1 also if a clause is not claimed")
    return parser


def _load(reference: str) -> Backend:
    where, _, name = reference.rpartition(":")
    if not where:
        raise SystemExit(f"{reference!r} names no class. Write it as path/to/module.py:ClassName.")
    if where.endswith(".py"):
        path = Path(where).resolve()
        sys.path.insert(0, str(path.parent))
        module = importlib.import_module(path.stem)
    else:
        module = importlib.import_module(where)
    found = getattr(module, name)()
    if not isinstance(found, Backend):
        raise SystemExit(f"{reference!r} is no Backend. Give a subclass of standfast.conformance.Backend.")
    return found


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
