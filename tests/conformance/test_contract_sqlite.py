"""The contract, on SQLite; and with the SDK's tables of branches and turns kept beside it."""

from __future__ import annotations

from standfast.conformance import suite
from tests.conformance.kit_backends import StandfastAdvanced, StandfastSQLite

TestSQLite = suite(StandfastSQLite())
TestAdvanced = suite(StandfastAdvanced())
