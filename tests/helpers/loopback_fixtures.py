"""A provider on this machine and the real `openai` client, for the folders whose tests speak to one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI

from standfast.testing.loopback import LoopbackServer


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    """A provider, which keeps conversations and answers what its rule says."""
    with LoopbackServer() as running:
        yield running
        assert running.faults_waiting == 0, "a fault was prepared that no request met"


@pytest.fixture
async def client(server: LoopbackServer) -> AsyncIterator[AsyncOpenAI]:
    """Its client, which repeats nothing by itself."""
    async with server.client(max_retries=0) as real:
        yield real
