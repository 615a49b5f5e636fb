"""`standfast verify`: it says what it will write, asks, and ends with 1 if the store breaks its word."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from standfast import SQLiteSession
from standfast._kits.cli import entry
from standfast._kits.conformance.backends.sqlite import SQLiteBackend
from standfast._kits.conformance.live.scratch_space import PREFIX

DEADLINE_S = 120.0


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    path = tmp_path / "talks.db"
    session = SQLiteSession("invoice-7", path)
    await session.add_items([{"role": "user", "content": "Please pay."}])
    await session.close()
    return path


def test_the_scorecard_is_shown_and_written(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reports = [tmp_path / f"card{ending}" for ending in (".md", ".html", ".json")]
    named = [word for path in reports for word in ("--report", str(path))]
    before = store.read_bytes()
    assert entry.main(["verify", str(store), "--clause", "a7", "--clause", "B10", "--yes", *named]) == 0
    shown = capsys.readouterr()
    assert "A7   empty batch                  kept" in shown.out
    assert "B10 not run" in shown.out
    assert "1 of 2 clauses kept, 0 broken, 1 not looked at here" in shown.out
    assert "talks.db itself is read once and not changed" in shown.err
    markdown, page, data = (path.read_text(encoding="utf-8") for path in reports)
    assert "| A7 | empty batch | kept (2/2) |" in markdown
    assert "<!doctype html>" in page
    assert json.loads(data)["SQLiteSession"]["A7"]["value"] == "kept"
    assert store.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if PREFIX in path.name) == []


def test_a_program_gets_records(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["verify", str(store), "--clause", "A7", "--in-place", "--yes", "--json"]) == 0
    first, last = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["schema"], first["clause"], first["value"]) == ("standfast.clause/1", "A7", "kept")
    assert (last["schema"], last["kept"], last["broken"]) == ("standfast.verification/1", 1, 0)


def test_a_broken_clause_ends_with_one(
    store: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = SQLiteBackend.open

    def forgetful(self: SQLiteBackend, session_id: str, **options: Any) -> Any:
        session = opened(self, session_id, **options)

        async def nothing(items: Any) -> None:
            return None

        session.add_items = nothing  # type: ignore[method-assign]
        return session

    monkeypatch.setattr(SQLiteBackend, "open", forgetful)
    assert entry.main(["verify", str(store), "--clause", "A7", "--yes"]) == 1
    shown = capsys.readouterr()
    assert "BROKEN" in shown.out
    assert "A7 broken" in shown.err


def test_nothing_is_written_where_nobody_agrees(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    before = sorted(path.name for path in tmp_path.iterdir())
    assert entry.main(["verify", str(store)]) == 5
    assert "--yes" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert entry.main(["verify", str(tmp_path / "none.db"), "--yes"]) == 4
    assert entry.main(["verify", str(store), "--clause", "Z9", "--yes"]) == 3
    assert entry.main(["verify", str(store), "--report", "card.pdf", "--yes"]) == 2
    assert entry.main(["verify", str(store), "--report", "no/such/card.md", "--yes"]) == 2
    assert entry.main(["verify", "mongodb://host/db", "--yes"]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_ctrl_c_in_a_terminal_removes_what_was_begun(store: Path, tmp_path: Path) -> None:
    """In a pseudo-terminal: the question is answered, the checks begin, and Ctrl-C leaves nothing behind."""
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "standfast", "verify", str(store)],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env={**os.environ, "TERM": "xterm"},  # a dumb terminal is shown no progress, which is waited for below
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    os.close(theirs)
    try:
        said = _until(ours, b"Go on?")
        assert b"talks.db itself is read once" in said
        os.write(ours, b"y\n")
        _until(ours, b"checking")
        deadline = time.monotonic() + DEADLINE_S
        while not any(PREFIX in path.name for path in tmp_path.iterdir()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(child.pid, signal.SIGINT)
        _drained(ours)
        assert child.wait(DEADLINE_S) == 130
    finally:
        child.kill()
        child.wait()
        os.close(ours)
    assert not any(PREFIX in path.name for path in tmp_path.iterdir())


def _until(descriptor: int, words: bytes) -> bytes:
    said = b""
    while words not in said:
        said += os.read(descriptor, 4096)
    return said


def _drained(descriptor: int) -> None:
    """Read what the child says until it has ended: a terminal that nobody reads would stop it."""
    try:
        while os.read(descriptor, 4096):
            pass
    except OSError:
        return
