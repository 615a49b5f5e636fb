"""Sessions of the SDK's that a test leaves open: Python 3.13 reports their connections, in whatever test runs then."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from agents.memory.sqlite_session import SQLiteSession


@pytest.fixture(autouse=True)
def close_the_sdks_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every SQLite session of the SDK's that the test has made."""
    made: list[SQLiteSession] = []
    begin = SQLiteSession.__init__

    def noted(self: SQLiteSession, *given: Any, **more: Any) -> None:
        begin(self, *given, **more)
        made.append(self)

    monkeypatch.setattr(SQLiteSession, "__init__", noted)
    yield
    for one in made:
        one.close()
