"""Let checks of the kit look at one wrong backend: `python -m tests.mistakes.wrong_backend ID PATH CHECK…`.

The first check that sees its clause broken is written to the path, with what it saw.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from standfast._kits.conformance.results import BROKEN as SEEN_BROKEN
from standfast.conformance import Options, check
from tests.conformance.mistakes import BROKEN
from tests.mistakes.registry import wrong_backends

QUICK = Options(rounds=12, examples=150, objects=2_000, repeatable=True, soon_s=2, shrink=False)


def main(mistake_id: str, path: str, *checks: str) -> None:
    """Run those of the checks that belong to the mistake's clause, the one it was made for first."""
    wanted, wrong = next(pair for pair in zip(wrong_backends(), BROKEN, strict=True) if pair[0].id == mistake_id)
    for name in sorted(checks, key=lambda one: one != wanted.check):
        for result in check(wrong.backend, wrong.clause, only=name, options=QUICK):
            if result.value == SEEN_BROKEN and result.detail and not result.has_hung:
                found = {"check": f"kit: {wrong.clause} {name}", "seen": result.detail.splitlines()[0][:200]}
                Path(path).write_text(json.dumps(found), encoding="utf-8")
                return


if __name__ == "__main__":
    main(*sys.argv[1:])
