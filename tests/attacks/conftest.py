"""What attacks share; and, at the end, how much they tried."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from helpers import counts
from openai import AsyncOpenAI

from standfast.testing.loopback import LoopbackServer
from tests.helpers.stores import session

__all__ = ["pytest_terminal_summary", "session"]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was tried. Of tests in other processes (`-n`) nothing is known here."""
    if told := counts.summary():
        terminalreporter.write_line(f"tried by attacks: {told}")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """A provider on this machine, which keeps conversations and answers what its rule says."""
    with LoopbackServer() as running:
        yield running
        assert running.faults_waiting == 0, "a fault was prepared that no request met"


@pytest.fixture
async def client(server: LoopbackServer) -> AsyncIterator[AsyncOpenAI]:
    """Its client, which repeats nothing by itself."""
    async with server.client(max_retries=0) as made:
        yield made
