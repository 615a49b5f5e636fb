"""The contract, on databases that SQLAlchemy reaches."""

from __future__ import annotations

import pytest

from standfast.conformance import suite
from tests.conformance.narrowed import without
from tests.conformance.sqlalchemy_backends import SHOWN_ON_SQLITE, SQLAlchemyPostgres, SQLAlchemySQLite

TestSQLAlchemySQLite = suite(SQLAlchemySQLite())
TestSQLAlchemyPostgres = pytest.mark.postgres(without(SHOWN_ON_SQLITE, suite(SQLAlchemyPostgres())))
