"""A listing of a whole file is written by SQLite where that is possible, and says what the long way says."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import agents
import pytest

from standfast import SQLiteSession
from standfast._kits.cli import entry
from standfast._src.sessions.backends.sqlite import brief, schema
from tests.cli.small_store import message, trace
from tests.helpers.children import import_path


def listed(path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert entry.main(["sessions", "ls", str(path), "--all", "--brief"]) == 0
    said = capsys.readouterr()
    return said.out + said.err


def both(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_short: bool) -> str:
    before = trace(path.parent)
    short = listed(path, capsys)
    assert (brief.session_lines(str(path)) is not None) == is_short
    with monkeypatch.context() as patch:
        patch.setattr(brief, "session_lines", lambda path: None)
        assert listed(path, capsys) == short
    assert trace(path.parent) == before
    return short


async def write(path: Path, *ids: str) -> None:
    for session_id in ids:
        session = SQLiteSession(session_id, path)
        await session.add_items([message("hello")])
        await session.close()


async def write_as_the_sdk(path: Path, *ids: str) -> None:
    for session_id in ids:
        session = agents.SQLiteSession(session_id, path)
        await session.add_items([{"role": "user", "content": "hello"}])
        session.close()


def rest(path: Path) -> None:
    """As if the file had been written a minute ago: one that has just changed is looked at the long way."""
    os.utime(path, (time.time() - 60,) * 2)


def test_both_ways_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talks.db"
    asyncio.run(write(path, "a", "b", "c", "a"))
    rest(path)
    said = both(path, capsys, monkeypatch, is_short=True)
    assert [line.split("\t")[0] for line in said.splitlines()] == ["a", "c", "b", "3"]
    asyncio.run(write_as_the_sdk(path, "d", "b"))
    rest(path)
    said = both(path, capsys, monkeypatch, is_short=False)
    assert [line.split("\t")[0] for line in said.splitlines()] == ["b", "d", "a", "c", "4"]
    asyncio.run(write(path, "a"))
    rest(path)
    both(path, capsys, monkeypatch, is_short=False)  # d has a time as the SDK writes it


@pytest.mark.parametrize("session_id", ["two words", "tab\there", "line\nbreak", "é", "\x1b[2J", "\u202e"])
def test_an_id_that_is_no_plain_word_goes_the_long_way(
    session_id: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "talks.db"
    asyncio.run(write(path, "a", session_id))
    rest(path)
    said = both(path, capsys, monkeypatch, is_short=False)
    assert "\x1b" not in said
    assert len(said.splitlines()) == 3


def test_a_file_in_use_and_one_of_the_sdks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, ours = tmp_path / "sdk" / "sdk.db", tmp_path / "ours" / "talks.db"
    theirs.parent.mkdir()
    ours.parent.mkdir()
    asyncio.run(write_as_the_sdk(theirs, "a", "b"))
    rest(theirs)
    both(theirs, capsys, monkeypatch, is_short=False)

    async def open_one() -> SQLiteSession:
        session = SQLiteSession("open", ours)
        await session.add_items([message("in the log")])
        return session

    with asyncio.Runner() as runner:
        session = runner.run(open_one())
        assert brief.session_lines(str(ours)) is not None
        assert listed(ours, capsys).startswith("open\t")
        runner.run(session.close())


def test_an_empty_store_has_no_session(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "talks.db"
    asyncio.run(write(path, "a"))
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM agent_sessions")
        db.execute("DELETE FROM agent_messages")
    db.close()
    rest(path)
    assert listed(path, capsys) == "no session\n"


def test_its_layout_is_todays() -> None:
    """Whoever changes the layout looks at this way, too."""
    assert (brief.LAYOUT, brief.SESSIONS, brief.MESSAGES) == (schema.VERSION, "agent_sessions", "agent_messages")


def test_it_imports_nothing_that_is_slow(tmp_path: Path) -> None:
    """The imports of a run would take longer than the question: no event loop, no library for JSON or schemas."""
    path = tmp_path / "talks.db"
    asyncio.run(write(path, "a"))
    rest(path)
    code = "import sys; from standfast._kits.cli.entry import main; main(sys.argv[1:]); "
    code += "print(*sys.modules, file=sys.stderr)"
    ended = subprocess.run(
        [sys.executable, "-c", code, "sessions", "ls", str(path), "--all", "--brief"],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": import_path()},
    )  # fmt: skip
    assert ended.stdout.startswith("a\t")
    loaded = set(ended.stderr.split())
    assert "standfast._src.sessions.backends.sqlite.brief" in loaded
    assert not loaded & {
        "asyncio",
        "msgspec",
        "pydantic",
        "dataclasses",
        "rich",
        "standfast._src.sessions.client.stored_session",
    }
