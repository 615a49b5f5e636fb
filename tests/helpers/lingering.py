"""Tests that count threads or move files see those of their own only."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def end_what_lingers() -> Iterator[None]:
    """End the engines that wait for a next session object, after each test."""
    yield
    module = sys.modules.get("standfast._src.sessions.client.lingering")
    if module is not None:
        module.LINGERING.end_all()
