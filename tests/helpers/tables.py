"""One test for a whole table: every row is checked, and the failure lists each row that did not hold.

`@for_each` takes the arguments of `pytest.mark.parametrize`. It is for checks of a few microseconds over hundreds of
rows: a test case for each row would cost more than the check and report nothing more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


def for_each(
    names: str | Sequence[str], rows: Iterable[Any], *, ids: Sequence[str] | Callable[[Any], str] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make one test of a function that takes a row of a table; other parameters stay fixtures."""
    taken = (names,) if isinstance(names, str) else tuple(names)
    table = list(rows)
    labels = [ids(row) for row in table] if callable(ids) else list(ids or map(repr, table))
    assert table, "an empty table would be a test of nothing"

    def over(check: Callable[..., None]) -> Callable[..., None]:
        def test(**fixtures: Any) -> None:
            failed: list[str] = []
            for label, row in zip(labels, table, strict=True):
                values = (row,) if isinstance(names, str) else row
                try:
                    check(**dict(zip(taken, values, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    failed.append(f"{label}: {type(error).__name__}: {error}")
            if failed:
                pytest.fail(f"{len(failed)} of {len(table)} rows\n" + "\n".join(failed), pytrace=False)

        test.__name__, test.__doc__, test.__module__ = check.__name__, check.__doc__, check.__module__
        signature = inspect.signature(check)
        left = [parameter for name, parameter in signature.parameters.items() if name not in taken]
        test.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return test

    return over
