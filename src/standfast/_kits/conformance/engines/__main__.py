"""Check an engine's adapter without pytest, and write its scorecard.

    python -m standfast.conformance.engines tests/my_queue.py:MyQueue --report engines.md

Prints each result at once, and exits with 1 if a check is broken.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from standfast._kits.conformance.engines.checks import CHECKS
from standfast._kits.conformance.engines.engine import Engine
from standfast._kits.conformance.engines.run import EngineResult, check_engine
from standfast._kits.conformance.engines.scorecard import page
from standfast._kits.conformance.results import BROKEN
from standfast._src.base.errors import NotFoundError


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    options = _parser().parse_args(arguments)
    seen: dict[Engine, list[EngineResult]] = {}
    for reference in options.engines:
        engine = _load(reference)

        def say(result: EngineResult, name: str = engine.name) -> None:
            detail = f": {result.detail}" if result.detail else ""
            sys.stdout.write(f"{name}: {result.sentence} {result.value}, {result.check.replace('_', ' ')}{detail}\n")
            sys.stdout.flush()

        try:
            seen[engine] = check_engine(engine, *options.check, watch=say)
        except NotFoundError as error:
            raise SystemExit(str(error)) from error
    for path in options.report:
        path.write_text(page(seen), encoding="utf-8")
    return 1 if any(result.value == BROKEN for results in seen.values() for result in results) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m standfast.conformance.engines", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("engines", nargs="+", metavar="MODULE:CLASS", help="a description: file or module, its class")
    parser.add_argument(
        "--check", action="append", default=[], metavar="NAME", help=f"only this check: {', '.join(CHECKS)}"
    )
    parser.add_argument("--report", action="append", default=[], type=Path, metavar="PATH", help="a Markdown page")
    return parser


def _load(reference: str) -> Engine:
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
    if not isinstance(found, Engine):
        raise SystemExit(f"{reference!r} is not an Engine. Give a subclass of standfast.conformance.engines.Engine.")
    return found


if __name__ == "__main__":
    sys.exit(main())
