"""The contract, on SQLite."""

from __future__ import annotations

from holdfast.conformance import suite
from tests.conformance.kit_backends import HoldfastSQLite

TestSQLite = suite(HoldfastSQLite())
