"""The contract, on sealed sessions: every clause holds where the store sees no content."""

from __future__ import annotations

import pytest

from standfast.conformance import suite
from tests.conformance.narrowed import without
from tests.conformance.sealed_backends import SealedMemory, SealedPostgres, SealedRedis, SealedSQLite

CARRIED_BY_THE_STORE = ("A9", "A13", "A21", "A22", "A23", "B7")
# First writers, deadlines, threads and forks, leases: what carries a sealed session's plans is the wrapped session's
# own executor, and it is taken through these with that. Here they are left out on servers, where they take the longest.


TestSealedMemory = suite(SealedMemory())
TestSealedSQLite = suite(SealedSQLite())
TestSealedRedis = pytest.mark.redis(without(CARRIED_BY_THE_STORE, suite(SealedRedis())))
TestSealedPostgres = pytest.mark.postgres(without(CARRIED_BY_THE_STORE, suite(SealedPostgres())))
