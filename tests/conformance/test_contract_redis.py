"""The contract, on Redis."""

from __future__ import annotations

import pytest

from standfast.conformance import suite
from tests.conformance.server_backends import StandfastRedis, StandfastRedisCluster

TestRedis = pytest.mark.redis(suite(StandfastRedis()))
TestRedisCluster = pytest.mark.redis(suite(StandfastRedisCluster()))
