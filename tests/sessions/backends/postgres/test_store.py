"""The PostgreSQL store does what the port says, whatever the OpenAI Agents SDK does to the same tables meanwhile."""

from __future__ import annotations

import re
import uuid

import psycopg
import pytest
from hypothesis import given, settings, strategies as st

from standfast._src.sessions.backends.postgres.postgres_storage import PostgresStore, packed_rows
from standfast._src.sessions.backends.postgres.schema import Tables
from standfast._src.sessions.storage import NewRows
from tests.helpers import servers
from tests.helpers.port_machine import Machine

pytestmark = pytest.mark.postgres


class SDKOnPostgres:
    """The statements that the SDK's SQLAlchemySession sends for add, pop and clear."""

    def __init__(self, connection: psycopg.Connection, tables: Tables) -> None:
        self.connection, self.s, self.m = connection, tables.s, tables.m

    def push(self, session_id: str, data: bytes) -> None:
        self.connection.execute(f"INSERT INTO {self.s} (session_id) VALUES (%s) ON CONFLICT DO NOTHING", (session_id,))
        self.connection.execute(
            f"INSERT INTO {self.m} (session_id, message_data) VALUES (%s, %s)", (session_id, data.decode())
        )
        self.connection.execute(
            f"UPDATE {self.s} SET updated_at = CURRENT_TIMESTAMP WHERE session_id = %s", (session_id,)
        )

    def pop(self, session_id: str) -> None:
        self.connection.execute(
            f"DELETE FROM {self.m} WHERE id = (SELECT id FROM {self.m} WHERE session_id = %s "
            "ORDER BY created_at DESC, id DESC LIMIT 1)",
            (session_id,),
        )

    def clear(self, session_id: str) -> None:
        self.connection.execute(f"DELETE FROM {self.m} WHERE session_id = %s", (session_id,))
        self.connection.execute(f"DELETE FROM {self.s} WHERE session_id = %s", (session_id,))


@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside the SDK"])
@settings(max_examples=8)
@given(data=st.data())
def test_any_steps_give_what_the_port_says(beside: bool, data: st.DataObject) -> None:
    tables = Tables.of("agent_sessions", "agent_messages", f"t{uuid.uuid4().hex}")
    url = servers.postgres_url()
    store = PostgresStore(url, tables, options={}, create_tables=True)
    store.count("session")  # the tables are made when they are first needed
    with psycopg.connect(url, autocommit=True) as connection:
        try:
            Machine(store, SDKOnPostgres(connection, tables) if beside else None).run(data.draw, 12)
        finally:
            store.close()
            servers.drop_schema(url, tables.schema)


def test_rows_are_taken_from_arrays_in_one_go() -> None:
    """To reach one text in an array PostgreSQL walks over all before it: a first write of 40,000 rows took a minute.

    The time depends on the machine, so the functions themselves are looked at: a text by its number is taken only where
    popped rows are put back, one or two at a time.
    """
    sql = Tables.of("agent_sessions", "agent_messages").sql()
    by_number = re.findall(r"p_(?:texts|writers)\[[^\]:]*\]", sql)
    assert [part for part in by_number if part != "p_writers[list]"] == ["p_texts[r.at]", "p_writers[r.at]"]


@given(st.lists(st.binary(max_size=20), max_size=5), st.sampled_from(["", "w", "é"]), st.integers(0, 2**31))
def test_columns_are_packed_as_their_rows_would_be(data: list[bytes], writer: str, start: int) -> None:
    rows = NewRows(data, writer, start)
    assert packed_rows(rows) == packed_rows(list(rows))
