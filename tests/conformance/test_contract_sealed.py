"""The contract, on sealed sessions: every clause holds where the store sees no content."""

from __future__ import annotations

import pytest

from standfast.conformance import suite
from tests.conformance.sealed_backends import SealedMemory, SealedPostgres, SealedRedis, SealedSQLite

TestSealedMemory = suite(SealedMemory())
TestSealedSQLite = suite(SealedSQLite())
TestSealedRedis = pytest.mark.redis(suite(SealedRedis()))
TestSealedPostgres = pytest.mark.postgres(suite(SealedPostgres()))
