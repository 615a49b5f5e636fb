"""Results in pages: printed at once in a pipe, collected into one table on a terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

from standfast._kits.cli.output import Column, Output, Row


class Rows(NamedTuple):
    """Rows, and the beginning of the next ones; None on the last page."""

    rows: Sequence[Row]
    after: str | None


async def show_pages(
    out: Output, schema: str, columns: Sequence[Column], pages: AsyncIterator[Rows], what: str
) -> tuple[int, str | None]:
    """Print every page; how many rows there were, and where the next would begin."""
    shown, after = 0, None
    gathered: list[Row] = []
    with out.progress(f"reading {what}") as progress:
        async for page in pages:
            after = page.after
            progress.advance(len(page.rows))
            if out.is_terminal and not out.as_json:  # a table has one width, so all of it must be known
                gathered += page.rows
            else:
                shown += out.table(schema, columns, page.rows)
    return shown + (out.table(schema, columns, gathered) if gathered else 0), after
