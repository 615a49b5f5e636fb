"""The contract, on memory over the shared rules; and on the oracle that the kit compares everybody with."""

from __future__ import annotations

from standfast.conformance import suite
from tests.conformance.kit_backends import Memory, Reference

TestMemory = suite(Memory())
TestReference = suite(Reference())
