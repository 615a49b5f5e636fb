"""Sessions of the SDK's that a test leaves open: Python 3.13 reports their connections, in whatever test runs then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def close_the_sdks_sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close every SQLite session of the SDK's that the test has made."""
    loaded: Any = sys.modules.get("agents.memory.sqlite_session")
    if loaded is None:  # not imported for this: most tests have nothing to do with it
        yield
        return
    made: list[Any] = []
    begin = loaded.SQLiteSession.__init__

    def noted(self: Any, *given: Any, **more: Any) -> None:
        begin(self, *given, **more)
        made.append(self)

    monkeypatch.setattr(loaded.SQLiteSession, "__init__", noted)
    yield
    for one in made:
        one.close()
