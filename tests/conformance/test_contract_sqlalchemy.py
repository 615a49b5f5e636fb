"""The contract, on databases that SQLAlchemy reaches."""

from __future__ import annotations

import pytest

from standfast.conformance import suite
from tests.conformance.narrowed import without
from tests.conformance.sqlalchemy_backends import SQLAlchemyMariaDB, SQLAlchemyPostgres, SQLAlchemySQLite

SHOWN_ON_SQLITE = (
    "A1_any", "A17_any", "A18_different", "A21", "A23_every", "A5_a_writer_killed", "B3_a_process_killed",
    "B1_an_append_repeated_after_a_kill", "A13_a_call_past_its_deadline",
)  # fmt: skip
# All databases run the same code. On a server these take minutes: thousands of round trips, dozens of processes. The
# check of deadlines allows 0.3 s for a first operation, which needs a connection and some twenty round trips here: on a
# busy machine that is too little, and says nothing about deadlines.

TestSQLAlchemySQLite = suite(SQLAlchemySQLite())
TestSQLAlchemyPostgres = pytest.mark.postgres(without(SHOWN_ON_SQLITE, suite(SQLAlchemyPostgres())))
TestSQLAlchemyMariaDB = pytest.mark.mariadb(without((*SHOWN_ON_SQLITE, "B1_any"), suite(SQLAlchemyMariaDB())))
