"""SQLite files that another program has damaged: the doctor says where, and commands that read end with a remedy."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from standfast import AdvancedSQLiteSession, RunConfig, SQLiteSession
from standfast._kits.cli.entry import main
from tests.runs.saved_runs.payment_app import Desk, asks, pay, says

CELLS, RUNS = "agent_messages_standfast_cells", "agent_messages_standfast_runs"
VALUES: dict[str, Any] = {
    "bytes": b"\xff\x00", "text": "text", "a number": 5, "null": b"null", "an object": b"{}", "nested": b"[" * 100_000,
}  # fmt: skip
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"

DAMAGE: dict[str, tuple[str, str]] = {
    "a label list": (f"UPDATE {RUNS} SET labels = '[1]'", "damaged_labels"),
    "no labels": (f"UPDATE {RUNS} SET labels = NULL", "damaged_labels"),
    "labels of other types": (
        f"""UPDATE {RUNS} SET labels = '{{"status":5,"agent":[],"revision":"x"}}'""",
        "damaged_labels",
    ),
    "a revision that is text": (
        f"""UPDATE {RUNS} SET labels = '{{"status":"done","agent":"a","session":"one","revision":"x"}}'""",
        "damaged_labels",
    ),
    "a writer that is not UTF-8": ("UPDATE agent_messages SET standfast_writer = CAST(x'ff' AS TEXT)", ""),
    "numbers that are text": ("UPDATE agent_messages SET standfast_ordinal = 'x', standfast_replaces = 'y'", ""),
    "an order that is text": ("UPDATE agent_sessions SET standfast_changed = 'y', standfast_seen = 'z'", ""),
    "an epoch that is a number": ("UPDATE agent_sessions SET standfast_epoch = 5", ""),
    "a cell's name that is not UTF-8": (f"UPDATE {CELLS} SET name = CAST(x'772fff' AS TEXT) WHERE name = 'w/w'", ""),
    "a time before time": ("UPDATE agent_sessions SET created_at = '0001-01-01 00:00:00+23:59'", ""),
    "a layout that is text": ("UPDATE standfast_schema SET version = 'two'", "damaged_layout"),
    "a view without end": (
        f"DROP TABLE agent_messages; CREATE VIEW agent_messages AS {ENDLESS} SELECT i AS id, 'one' AS session_id, "
        "'{}' AS message_data, '' AS created_at, NULL AS standfast_writer, NULL AS standfast_ordinal, NULL AS "
        "standfast_replaces FROM n",
        "damaged_layout",
    ),
    "cells that are a view": (
        f"ALTER TABLE {CELLS} RENAME TO c; CREATE VIEW {CELLS} AS SELECT * FROM c",
        "damaged_layout",
    ),
    "no table of runs": (f"DROP TABLE {RUNS}", "damaged_layout"),
    "no table of cells": (f"DROP TABLE {CELLS}", "damaged_layout"),
}

COMMANDS = [
    ["sessions", "ls", "STORE"],
    ["sessions", "show", "STORE", "one"],
    ["sessions", "search", "STORE", "hi"],
    ["sessions", "stats", "STORE"],
    ["sessions", "undo", "STORE", "one", "--list"],
    ["runs", "ls", "STORE"],
    ["runs", "show", "STORE", "run-1"],
    ["runs", "show", "STORE", "run-0"],
    ["sessions", "export", "STORE", "one", "--to", "-"],
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with every kind of cell that a session and a run have."""
    path = tmp_path_factory.mktemp("whole") / "talks.db"

    async def fill() -> None:
        session = AdvancedSQLiteSession(session_id="one", db_path=path, create_tables=True)
        await session.append([{"role": "user", "content": "hi"}], writer="w", start=0)
        desk = Desk([says("Hello."), asks(pay(5, "call-1"))])
        await desk.run("Hi", session=session, run_config=RunConfig(run_id="run-0"))
        await session.replace([{"role": "user", "content": "short"}], upto=await session.head())
        await desk.run("Pay", session=session, run_config=RunConfig(run_id="run-1"))
        session.close()
        other = SQLiteSession("two", path)
        await other.add_items([{"role": "user", "content": "another"}])
        await other.close()

    asyncio.run(fill())
    return path


def damaged(whole: Path, path: Path, statements: str, *values: object) -> Path:
    shutil.copy(whole, path)
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        db.execute("PRAGMA foreign_keys=OFF")
        if values:
            db.execute(statements, values)
        else:
            db.executescript(statements)
    return path


def check_commands(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = path.read_bytes()
    for command in COMMANDS:
        code = main([str(path) if word == "STORE" else word for word in command])
        told = capfd.readouterr().err
        assert code in (0, 1, 3, 4, 5), (command, told)
        assert "defect" not in told
        assert "Traceback" not in told
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", DAMAGE)
def test_each_kind_of_damage_is_told(kind: str, whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    statements, found = DAMAGE[kind]
    path = damaged(whole, tmp_path / "talks.db", statements)
    check_commands(path, capfd)
    code = main(["doctor", str(path), "--json"])
    told = capfd.readouterr()
    assert code in (0, 1), told.err
    if found:
        assert code == 1
        assert f'"{found}"' in told.out


@pytest.mark.parametrize("value", VALUES)
def test_cells_that_hold_something_else_are_told(
    value: str, whole: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """All cells at once, and what the doctor needs most alone: the others must not hide it."""
    path = damaged(whole, tmp_path / "talks.db", f"UPDATE {CELLS} SET value = ?", VALUES[value])
    check_commands(path, capfd)
    assert main(["doctor", str(path), "--json"]) == 1
    assert '"damaged_cell"' in capfd.readouterr().out
    path = damaged(whole, tmp_path / "one.db", f"UPDATE {CELLS} SET value = ? WHERE name = 'gens'", VALUES[value])
    check_commands(path, capfd)
    assert main(["doctor", str(path), "--json"]) == 1
    told = capfd.readouterr().out
    assert "gens" in told
    assert told.count('"damaged_cell"') == 1
