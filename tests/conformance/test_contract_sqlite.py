"""The contract, on SQLite."""

from __future__ import annotations

from standfast.conformance import suite
from tests.conformance.kit_backends import StandfastSQLite

TestSQLite = suite(StandfastSQLite())
