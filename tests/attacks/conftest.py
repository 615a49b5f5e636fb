"""What attacks share; and, at the end, how much they tried."""

from typing import Any

from helpers import counts

from tests.helpers.loopback_fixtures import client, server
from tests.helpers.stores import session

__all__ = ["client", "pytest_terminal_summary", "server", "session"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was tried. Of tests in other processes (`-n`) nothing is known here."""
    if told := counts.summary():
        terminalreporter.write_line(f"tried by attacks: {told}")
