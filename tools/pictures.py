"""Draw the tables of docs/ as pictures (`./dev pictures`): benchmarks as bars, scorecards as squares.

A picture is made from the table that stands below it and from nothing else, so that the two cannot differ; a test draws
them again and compares. Each is one SVG that is light or dark as its reader's system is, with its words as text.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 820
LABELS = 300
LONGEST = 420
ROW = 26
TOP = 46
SQUARE = 9
STYLE = """
svg { font: 13px system-ui, sans-serif; color-scheme: light dark; }
.page { fill: #ffffff; stroke: #d0d7de; } text { fill: #1f2328; } .title { font-weight: 600; font-size: 15px; }
.quiet { fill: #59636e; } .ours { fill: #0b6e4f; } .theirs { fill: #8c959f; } .broken { fill: #b42318; }
.none { fill: none; stroke: #8c959f; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; stroke: #3d444d; } text { fill: #f0f6fc; } .quiet { fill: #9198a1; }
  .ours { fill: #3fb68b; } .theirs { fill: #656c76; } .broken { fill: #ff7b72; } .none { stroke: #656c76; }
}
"""


class Bars(NamedTuple):
    """A picture of one column of a table: a bar for each row."""

    file: str
    page: str
    begins: str
    """The first heading of the table."""
    column: str
    title: str
    unit: str
    leaves_out: str = ""
    """Rows whose label begins so are not drawn."""


class Squares(NamedTuple):
    """A picture of a scorecard: a row for each store, a square for each clause."""

    file: str
    page: str
    title: str


PICTURES: tuple[Bars | Squares, ...] = (
    Bars("docs/reference/benchmarks-runs.svg", "docs/reference/benchmarks.md", "case", "times less",
         "Processor time of a run: how many times less than openai-agents", "×"),
    Bars("docs/reference/benchmarks-sessions.svg", "docs/reference/benchmarks.md", "64 sessions appending at once",
         "turns/s", "64 sessions at once on SQLite: turns stored in a second", "", "release 0.1"),
    Bars("docs/reference/benchmarks-import.svg", "docs/reference/benchmarks.md", "program", "ms",
         "What importing costs a program", " ms"),
    Squares("docs/explanation/peer-scorecard.svg", "docs/explanation/peer-scorecard.md", "One kit on three stores"),
    Squares("docs/reference/server-scorecard.svg", "docs/reference/server-scorecard.md", "The contract on servers"),
    Squares("docs/reference/sqlalchemy-scorecard.svg", "docs/reference/sqlalchemy-scorecard.md",
            "The contract through SQLAlchemy"),
    Squares("docs/reference/sealed-scorecard.svg", "docs/reference/sealed-scorecard.md",
            "The contract on encrypted sessions"),
)  # fmt: skip


def tables(text: str) -> Iterator[list[list[str]]]:
    """Every table of a page, as rows of cells; the first row holds the headings."""
    for block in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


def table(text: str, begins: str, column: str) -> list[list[str]]:
    """The table with that first heading and that column; whoever renames one of them is told here."""
    for rows in tables(text):
        if rows[0][0] == begins and column in rows[0]:
            return rows
    raise SystemExit(f"there is no table with {begins!r} and {column!r} any more: change tools/pictures.py, too")


def drawn(picture: Bars | Squares) -> str:
    """The picture of what the page says now."""
    text = (ROOT / picture.page).read_text(encoding="utf-8")
    return bars(picture, text) if isinstance(picture, Bars) else squares(picture, text)


def bars(picture: Bars, text: str) -> str:
    """A bar for each row of the table, as long as its number; ours in colour."""
    head, *rows = table(text, picture.begins, picture.column)
    at = head.index(picture.column)
    found = [(row[0].strip("`"), float(row[at].replace(",", ""))) for row in rows]
    if picture.leaves_out:
        found = [(label, value) for label, value in found if not label.startswith(picture.leaves_out)]
    most = max(value for _, value in found)
    is_beside = any("openai-agents" in label for label, _ in found)  # else every bar is a ratio of ours
    parts, said = [], []
    for number, (label, value) in enumerate(found):
        y = TOP + number * ROW
        length = max(2, round(value / most * LONGEST))
        told = f"{value:,.0f}" if value >= 100 else f"{value:g}"
        kind = "ours" if "standfast" in label or not is_beside else "theirs"
        parts += [
            f'<text x="{LABELS - 10}" y="{y + 15}" text-anchor="end">{escape(label)}</text>',
            f'<rect class="{kind}" x="{LABELS}" y="{y + 4}" width="{length}" height="15" rx="2"/>',
            f'<text x="{LABELS + 8 + length}" y="{y + 15}">{told}{picture.unit}</text>',
        ]
        said.append(f"{label}: {told}{picture.unit}")
    return _svg(picture.title, "; ".join(said), TOP + len(found) * ROW + 14, parts)


def squares(picture: Squares, text: str) -> str:
    """A row for each store with a square for each clause: full where it is kept, crossed where it is broken."""
    head, *rows = next(one for one in tables(text) if one[0][:2] == ["clause", "promise"])
    clauses = [row for row in rows if re.fullmatch(r"[A-Z]\d+", row[0])]
    parts, said = [], []
    for number, store in enumerate(head[2:]):
        y = TOP + number * ROW
        values = [row[2 + number] for row in clauses]
        kept, broken = (sum(word in value for value in values) for word in ("kept", "broken"))
        told = f"{kept} kept, {broken} broken" if broken else f"{kept} kept"
        parts.append(f'<text x="{LABELS - 40}" y="{y + 15}" text-anchor="end">{escape(store)}</text>')
        parts += [_square(LABELS - 30 + place * SQUARE, y + 5, value) for place, value in enumerate(values)]
        parts.append(f'<text class="quiet" x="{LABELS - 20 + len(values) * SQUARE}" y="{y + 15}">{told}</text>')
        said.append(f"{store}: {told} of {len(values)} clauses")
    y = TOP + len(head[2:]) * ROW + 12
    legend = "full: kept · crossed: broken · outlined: not claimed, or does not apply"
    parts.append(f'<text class="quiet" x="{LABELS - 30}" y="{y}">{legend}</text>')
    return _svg(picture.title, "; ".join(said), y + 14, parts)


def _square(x: int, y: int, value: str) -> str:
    size = SQUARE - 2
    if "kept" in value:
        return f'<rect class="ours" x="{x}" y="{y}" width="{size}" height="12"/>'
    if "broken" in value:
        return f'<text class="broken" x="{x - 1}" y="{y + 11}">×</text>'
    return f'<rect class="none" x="{x + 0.5}" y="{y + 0.5}" width="{size - 1}" height="11"/>'


def _svg(title: str, said: str, height: int, parts: Sequence[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' role="img" aria-labelledby="t d">',
        f'<title id="t">{escape(title)}</title>',
        f'<desc id="d">{escape(said)}</desc>',
        f"<style>{STYLE}</style>",
        f'<rect class="page" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="6"/>',
        f'<text class="title" x="16" y="28">{escape(title)}</text>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Draw all of them."""
    for picture in PICTURES:
        (ROOT / picture.file).write_text(drawn(picture), encoding="utf-8")
        print(f"drew {picture.file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
