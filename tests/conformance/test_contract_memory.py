"""The contract, on the reference."""

from __future__ import annotations

from standfast.conformance import suite
from tests.conformance.kit_backends import Memory

TestMemory = suite(Memory())
