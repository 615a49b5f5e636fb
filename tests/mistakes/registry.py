"""All deliberate mistakes: each has an id, the clauses that it breaks, and the place where it is planted.

A mistake in the product's own code stands in a `.toml` file of this folder:

    [[mistake]]
    id = "engine/begun-is-forgotten"
    fault = "Begun is forgotten"
    clauses = ["C12"]                           # the selection of tests that has to notice it
    file = "src/standfast/_src/runs/engine/advance.py"    # where `old` occurs exactly once and becomes `new`
    old = '("asked",), state="begun")'
    new = '("asked",), state="asked")'
    proves = ["schedules"]                      # optional: the generated suites that it tests
    check = "a_gap_is_refused"                  # optional: the check of the kit that has to notice it
    seed = 31                                   # optional: a life of a generated suite that notices it

A wrong backend is a class in `tests/conformance/mistakes` that registers itself: it tests the kit.
`tools/mutants.py` runs the selection of tests for its clauses against each mistake.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NOT_PLANTED = "Plant it anew where its rule is now."


@dataclass(frozen=True)
class Mistake:
    """One deliberate mistake. `file` is empty for a wrong backend, which is planted by opening it."""

    id: str
    fault: str
    clauses: tuple[str, ...]
    file: str = ""
    old: str = ""
    new: str = ""
    check: str = ""
    seed: int = -1
    proves: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Dotted name of the module that it is planted in."""
        return self.file.removeprefix("src/").removesuffix(".py").replace("/", ".")

    def wrong_source(self, root: Path = ROOT) -> str:
        """Return the source of `file` with this mistake in it."""
        source = (root / self.file).read_text(encoding="utf-8")
        count = source.count(self.old)
        if count != 1:
            raise LookupError(f"{self.id}: its text occurs {count} times in {self.file}. {NOT_PLANTED}")
        return source.replace(self.old, self.new)


@cache
def source_mistakes() -> tuple[Mistake, ...]:
    """Return the mistakes that are planted in the product's own code, in the order of their files."""
    found = []
    for path in sorted(Path(__file__).parent.glob("*.toml")):
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["mistake"]:
            lists = {key: tuple(entry.get(key, ())) for key in ("clauses", "proves")}
            found.append(Mistake(**{**entry, **lists}))
    return tuple(found)


@cache
def wrong_backends() -> tuple[Mistake, ...]:
    """Return the mistakes that are wrong backends, each with the check of the kit that has to notice it."""
    # By its name: they import the kit and every backend, and `tools/`, which uses this module, does without.
    broken = importlib.import_module("tests.conformance.mistakes").BROKEN
    return tuple(
        Mistake(f"backends/{_slug(str(one))}", one.backend.name, (one.clause,), check=one.check) for one in broken
    )


def every_mistake() -> tuple[Mistake, ...]:
    """Return all mistakes, those in the product's own code first."""
    return source_mistakes() + wrong_backends()


def proving(suite: str) -> list[Mistake]:
    """Return the mistakes that a generated suite has to notice, so that its teeth are known."""
    return [mistake for mistake in source_mistakes() if suite in mistake.proves]


def named(mistake_id: str) -> Mistake:
    """Return the mistake of this id."""
    return next(mistake for mistake in every_mistake() if mistake.id == mistake_id)


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text).strip("-")
