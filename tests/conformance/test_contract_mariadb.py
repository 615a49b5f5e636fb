"""The contract, on MariaDB. Not imported unless `--with mariadb` asks for it: a suite asks its store what it can."""

from __future__ import annotations

import pytest

from standfast.conformance import suite
from tests.conformance.narrowed import without
from tests.conformance.sqlalchemy_backends import SHOWN_ON_SQLITE, SQLAlchemyMariaDB

TestSQLAlchemyMariaDB = pytest.mark.mariadb(without((*SHOWN_ON_SQLITE, "B1_any"), suite(SQLAlchemyMariaDB())))
