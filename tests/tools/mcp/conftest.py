"""Shorter patience with servers that do not end: how long it is changes nothing about what a test says."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standfast._src.tools.mcp.processes.EXIT_S_MAX", 0.2)
