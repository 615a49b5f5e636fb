"""Clauses times backends: kept, broken, not applicable or not claimed, with the reason.

Green means that nothing is broken and nothing unclaimed. A clause that several checks prove is kept if all of them that
could be made saw it kept. Checks that could not be made are counted, never hidden.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from standfast._kits.conformance.backend import Backend
from standfast._kits.conformance.results import (
    BROKEN,
    KEPT,
    LEFT_OUT,
    NOT_APPLICABLE,
    NOT_CLAIMED,
    NOT_RUN,
    Result,
    value_of,
)
from standfast._kits.conformance.scorecard_page import page
from standfast._kits.contract.clauses import CLAUSES, PARTS, sort_key

_WORDS = {KEPT: "kept", BROKEN: "BROKEN", NOT_APPLICABLE: "n/a", NOT_CLAIMED: "not claimed", NOT_RUN: "·"}


@dataclass(slots=True)
class Entry:
    """A clause of a backend."""

    value: str = NOT_RUN
    reason: str = ""
    checks: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        """Add the outcome of a check: broken has precedence, then kept."""
        self.checks.append(result)
        if result.value == BROKEN and self.value != BROKEN:
            self.value, self.reason = BROKEN, result.detail
        elif result.value == KEPT and self.value not in (BROKEN, KEPT):
            self.value, self.reason = KEPT, ""


class Scorecard:
    """Values of clauses by backend."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[str, Entry]] = {}

    def entry(self, backend: str, clause_id: str) -> Entry:
        """Return the entry of a clause, created if missing."""
        return self._entries.setdefault(backend, {}).setdefault(clause_id, Entry())

    def record(self, backend: str, result: Result) -> None:
        """Add the outcome of a check."""
        self.entry(backend, result.clause_id).add(result)

    def declare(self, backend: Backend, clause_ids: Iterable[str], results: Iterable[Result]) -> None:
        """Add a backend's declarations about clauses, and its unsupported checks."""
        left_out = [result for result in results if result.value == LEFT_OUT]
        for clause_id in clause_ids:
            found = self.entry(backend.name, clause_id)
            mine = [result for result in left_out if result.clause_id == clause_id]
            found.checks += [result for result in mine if result not in found.checks]

    def set_value(self, backend: Backend, clause_id: str, value: str, reason: str) -> None:
        """Give a clause its value from outside: not applicable or not claimed."""
        found = self.entry(backend.name, clause_id)
        if found.value == NOT_RUN:
            found.value, found.reason = value, reason

    @classmethod
    def of(
        cls, backend: Backend, results: Iterable[Result], parts: str = "ABCF", clause_ids: Iterable[str] = ()
    ) -> Scorecard:
        """Build the scorecard of a backend from the outcomes of its checks, optionally only for these clauses."""
        from standfast._kits.conformance.catalogue import clauses_of  # with every check: the plugin loads without them

        card, results = cls(), list(results)
        for clause_id in sorted(clause_ids, key=sort_key) or clauses_of(parts):
            found = card.entry(backend.name, clause_id)
            found.checks = [result for result in results if result.clause_id == clause_id]
            found.value, found.reason = value_of(backend, clause_id, results)
        return card

    # --- questions ----------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._entries)

    @property
    def backends(self) -> list[str]:
        """The columns."""
        return list(self._entries)

    @property
    def clauses(self) -> list[str]:
        """Rows: every clause with a value for any backend."""
        return sorted({clause_id for column in self._entries.values() for clause_id in column}, key=sort_key)

    def value(self, backend: str, clause_id: str) -> str:
        """Return one of the four values, or "not run"."""
        found = self._entries.get(backend, {}).get(clause_id)
        return NOT_RUN if found is None else found.value

    def green(self, backend: str) -> bool:
        """Return whether no clause is broken or unclaimed."""
        return all(found.value not in (BROKEN, NOT_CLAIMED) for found in self._entries.get(backend, {}).values())

    # --- for xdist, JSON and people ---------------------------------------------------------------------

    def data(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            backend: {
                clause_id: {
                    "value": column[clause_id].value,
                    "reason": column[clause_id].reason,
                    "checks": [
                        {"check": result.check, "value": result.value, "detail": result.detail}
                        for result in sorted(column[clause_id].checks, key=lambda result: result.check)
                    ],
                }
                for clause_id in sorted(column, key=sort_key)
            }
            for backend, column in self._entries.items()
        }

    def merge(self, data: dict[str, Any]) -> None:
        """Add the results of another process."""
        for backend, column in data.items():
            for clause_id, theirs in column.items():
                mine = self.entry(backend, clause_id)
                known = {(result.check, result.value) for result in mine.checks}
                for found in theirs["checks"]:
                    if (found["check"], found["value"]) not in known:
                        mine.add(Result(clause_id, found["check"], found["value"], found["detail"]))
                if mine.value == NOT_RUN:
                    mine.value, mine.reason = theirs["value"], theirs["reason"]

    def json(self) -> str:
        """The whole scorecard as JSON."""
        return json.dumps(self.data(), indent=2, ensure_ascii=False) + "\n"

    def lines(self) -> list[str]:
        """Format a table for a terminal, with the reasons below it."""
        widths = [max(13, len(name) + 2) for name in self.backends]
        rows = [" " * 34 + "".join(name.ljust(width) for name, width in zip(self.backends, widths, strict=True))]
        for clause_id in self.clauses:
            title = f"{clause_id:<4} {CLAUSES[clause_id].title}" if clause_id in CLAUSES else clause_id
            words = [self._word(name, clause_id) for name in self.backends]
            cells = "".join(word.ljust(width) for word, width in zip(words, widths, strict=True))
            rows.append(f"{title:<34}{cells}".rstrip())
        return [*rows, "", *(f"{who}: {clause_id} {value}: {why}" for who, clause_id, value, why in self._reasons())]

    def markdown(self, title: str = "Scorecard", introduction: str = "") -> str:
        """A page with the table, the reasons, and the checks that were made."""
        out = [f"# {title}", ""]
        out += [introduction.strip(), ""] if introduction else []
        out += [_row(["clause", "promise", *self.backends]), _row(["---"] * (len(self.backends) + 2))]
        part = ""
        for clause_id in self.clauses:
            if clause_id[0] != part:
                part = clause_id[0]
                out.append(_row([f"**{part}**", f"**{PARTS.get(part, '')}**", *([""] * len(self.backends))]))
            name = CLAUSES[clause_id].title if clause_id in CLAUSES else ""
            cells = [self._cell(backend, clause_id) for backend in self.backends]
            out.append(_row([clause_id, name, *cells]))
        out += ["", "kept (n/m): n checks made, m exist; the others need something this backend does not have."]
        reasons = list(self._reasons())
        if reasons:
            out += ["", "## What was seen", ""]
            out += [f"- **{clause_id}** {who}, {value}: {_one_line(why)}" for who, clause_id, value, why in reasons]
        return "\n".join(out) + "\n"

    def html(self, title: str = "Scorecard", facts: Mapping[str, str] | None = None) -> str:
        """Format a self-contained page for a browser; `facts` precede the table."""
        return page(self.data(), title, facts or {})

    def _word(self, backend: str, clause_id: str) -> str:
        """Return a value for the terminal, with the number of possible checks if not all."""
        found = self._entries.get(backend, {}).get(clause_id, Entry())
        made = sum(result.value in (KEPT, BROKEN) for result in found.checks)
        partly = found.value == KEPT and made < len(found.checks)
        return f"kept {made}/{len(found.checks)}" if partly else _WORDS[found.value]

    def _cell(self, backend: str, clause_id: str) -> str:
        found = self._entries.get(backend, {}).get(clause_id, Entry())
        made = sum(result.value in (KEPT, BROKEN) for result in found.checks)
        words = {BROKEN: "**broken**", NOT_RUN: ""}.get(found.value, found.value)
        return f"{words} ({made}/{len(found.checks)})" if found.value in (KEPT, BROKEN) else words

    def _reasons(self) -> Iterable[tuple[str, str, str, str]]:
        for backend, column in self._entries.items():
            for clause_id in sorted(column, key=sort_key):
                found = column[clause_id]
                broken = [result for result in found.checks if result.value == BROKEN]
                for result in sorted(broken, key=lambda result: result.check):
                    yield backend, clause_id, f"broken ({result.check.replace('_', ' ')})", result.detail
                if not broken and found.value != KEPT and (found.value != NOT_RUN or found.reason):
                    yield backend, clause_id, found.value, found.reason


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
