"""The contract, on databases that SQLAlchemy reaches."""

from __future__ import annotations

import pytest

from standfast.conformance import suite
from tests.conformance.sqlalchemy_backends import SQLAlchemyPostgres, SQLAlchemySQLite

TestSQLAlchemySQLite = suite(SQLAlchemySQLite())
TestSQLAlchemyPostgres = pytest.mark.postgres(suite(SQLAlchemyPostgres()))
