"""The contract, on PostgreSQL."""

from __future__ import annotations

import pytest

from standfast.conformance import suite
from tests.conformance.server_backends import StandfastPostgres

TestPostgres = pytest.mark.postgres(suite(StandfastPostgres()))
