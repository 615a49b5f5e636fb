"""Scorecard of engines as a page: a row for each check, a column for each engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from standfast._kits.conformance.engines.checks import CHECKS
from standfast._kits.conformance.engines.engine import Engine
from standfast._kits.conformance.engines.run import EngineResult
from standfast._kits.conformance.results import BROKEN, KEPT, LEFT_OUT

SIGNS = {KEPT: "✓", BROKEN: "✗", LEFT_OUT: "–"}


def page(seen: Mapping[Engine, Sequence[EngineResult]]) -> str:
    """Return the scorecard as Markdown; below it, what was broken or left out."""
    lines = [
        "# Engines: what each was seen to keep",
        "",
        "Every row is a check of the kit for engines ([how to run it on yours](../how-to/test-your-own-engine.md)),",
        "for a sentence of [G1](contract.md#g1). ✓ kept, ✗ broken, – left out. Columns are what",
        "`python -m standfast.conformance.engines … --report` saw, for several engines in runs of their own.",
        "",
        *(f"- {engine.name}: {engine.about}" for engine in seen if engine.about),
        "",
        f"| sentence | check | {' | '.join(engine.name for engine in seen)} |",
        f"|---|---|{'---|' * len(seen)}",
    ]
    details = []
    for name, check in CHECKS.items():
        row = []
        for engine, results in seen.items():
            result = next((one for one in results if one.check == name), None)
            row.append("" if result is None else SIGNS[result.value])
            if result is not None and result.detail:
                details.append(f"- {engine.name}, {name.replace('_', ' ')}: {result.value}: {result.detail}")
        lines.append(f"| {check.sentence} | {name.replace('_', ' ')} | {' | '.join(row)} |")
    return "\n".join([*lines, "", *details]).rstrip() + "\n"
