"""The contract, on SQLite."""

from __future__ import annotations

from backends import HoldfastSQLite

from holdfast.conformance import suite

TestSQLite = suite(HoldfastSQLite())
