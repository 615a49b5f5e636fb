"""The contract, on the reference."""

from __future__ import annotations

from backends import Memory

from holdfast.conformance import suite

TestMemory = suite(Memory())
