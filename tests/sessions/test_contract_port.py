"""The contract on stores that are only a port: through threads, over a line that loses answers, and sealed."""

from __future__ import annotations

from standfast.conformance import suite
from tests.sessions.port_backends import LosingBackend, PortBackend, SealedBackend

TestThreads = suite(PortBackend())
TestLosing = suite(LosingBackend())
TestSealed = suite(SealedBackend())
