"""`standfast doctor`: its words, its exit codes, and what it leaves alone."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from standfast import SQLiteSession
from standfast._kits.cli.entry import main
from standfast._src.sessions.client.lingering import LINGERING
from tests.operators.doctor.world import call, output, user
from tests.operators.test_read_only import trace

ORPHAN = [user("Book a table."), call(1), user("Are you there?")]


@pytest.fixture
def talks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store with a broken session and a healthy one, both of long ago."""
    folder = tmp_path / "store"
    folder.mkdir()
    path = folder / "talks.db"

    async def filled() -> None:
        for session_id, items in (("guest", ORPHAN), ("healthy", [user("hello"), call(2), output(2)])):
            session = SQLiteSession(session_id, path)
            await session.add_items(items)
            await session.close()

    asyncio.run(filled())
    LINGERING.end_all()
    long_ago = "2020-01-01 00:00:00"
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("UPDATE agent_messages SET created_at = ?", (long_ago,))
    db.execute("UPDATE agent_sessions SET created_at = ?, updated_at = ?", (long_ago, long_ago))
    db.close()
    monkeypatch.chdir(tmp_path)
    return path


def items_of(path: Path, session_id: str = "guest") -> list[dict[str, Any]]:
    db = sqlite3.connect(path)
    query = "SELECT message_data FROM agent_messages WHERE session_id = ? ORDER BY id"
    found = [json.loads(data) for (data,) in db.execute(query, (session_id,))]
    db.close()
    return found


def told(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_it_says_what_is_wrong_and_changes_nothing(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = trace(talks.parent)
    assert main(["doctor", str(talks)]) == 1
    said = told(capsys)
    assert "✗ session 'guest', record 1: a call without an output (book call_1)" in said
    assert "checked 2 sessions, 6 items, 0 runs · nothing was changed" in said
    assert trace(talks.parent) == before


def test_a_healthy_session_ends_with_0(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(talks), "healthy"]) == 0
    assert main(["doctor", "--store", str(talks), "heal"]) == 0  # ids may be shortened
    assert "checked 1 session, 3 items" in told(capsys)


def test_findings_as_json_lines(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(talks), "guest", "--json"]) == 1
    lines = [json.loads(line) for line in told(capsys).splitlines()]
    (one,) = [line for line in lines if line["schema"] == "standfast.finding/1" and line["level"] != "note"]
    assert (one["kind"], one["session_id"], one["index"], one["repairable"]) == (
        "call_without_output",
        "guest",
        1,
        True,
    )
    assert (lines[-1]["schema"], lines[-1]["sessions"], lines[-1]["broken"]) == ("standfast.doctor/1", 1, 1)


def test_a_fix_is_written_down_done_and_undone(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    healthy = items_of(talks, "healthy")
    assert main(["doctor", str(talks), "--repair", "--undo-file", "undo.jsonl"]) == 0
    assert "session 'guest': repaired, 1 taken out" in told(capsys)
    assert items_of(talks) == [ORPHAN[0], ORPHAN[2]]
    assert main(["doctor", str(talks)]) == 0
    assert main(["doctor", "undo", "undo.jsonl", "--yes"]) == 0
    assert "session 'guest': put back, 1 record" in told(capsys)
    assert items_of(talks) == ORPHAN
    assert main(["doctor", "undo", "undo.jsonl", "--yes"]) == 0
    assert "nothing to do" in told(capsys)
    assert items_of(talks, "healthy") == healthy


def test_a_fix_of_what_is_healthy_changes_no_byte_and_leaves_no_file(talks: Path) -> None:
    before = trace(talks.parent)
    assert main(["doctor", str(talks), "healthy", "--repair"]) == 0
    assert trace(talks.parent) == before
    assert not list(Path().glob("*.jsonl"))


def test_a_session_of_a_moment_ago_is_left(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def written() -> None:
        session = SQLiteSession("guest", talks)
        await session.add_items([user("One moment.")])
        await session.close()

    asyncio.run(written())
    assert main(["doctor", str(talks), "--repair"]) == 1
    assert "left as it is" in told(capsys)
    assert len(items_of(talks)) == 4


def test_an_undo_file_is_named_or_made_up_and_never_replaced(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("there.jsonl").write_text("mine")
    assert main(["doctor", str(talks), "--repair", "--undo-file", "there.jsonl"]) == 5
    assert Path("there.jsonl").read_text() == "mine"
    assert items_of(talks) == ORPHAN
    assert main(["doctor", str(talks), "--repair"]) == 0
    (made,) = Path().glob("standfast-undo-*.jsonl")
    assert f"standfast doctor undo {made}" in capsys.readouterr().err
    assert main(["doctor", "undo", str(made), "-y"]) == 0
    assert items_of(talks) == ORPHAN


def test_an_undo_of_what_was_compacted_is_refused(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", str(talks), "--repair", "--undo-file", "undo.jsonl"]) == 0

    async def compacted() -> None:
        session = SQLiteSession("guest", talks)
        await session.replace([user("summary")], upto=await session.head())
        await session.close()

    asyncio.run(compacted())
    assert main(["doctor", "undo", "undo.jsonl", "--yes"]) == 5
    assert "refused" in told(capsys)
    assert items_of(talks) == [user("summary")]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["nowhere.db"], 4),
        (["."], 4),
        (["foo://x"], 2),
        ([], 2),
        (["{talks}", "nobody"], 3),
        (["{talks}", "--undo-file", "x"], 2),
        (["undo"], 2),
        (["undo", "a", "b"], 2),
        (["undo", "nowhere.jsonl"], 3),
        (["undo", "{talks}"], 5),
        (["{talks}", "--quiet-for", "soon"], 2),
    ],
)
def test_bad_words_have_their_exit_codes(talks: Path, words: list[str], code: int) -> None:
    assert main(["doctor", *(word.format(talks=talks) for word in words)]) == code
    assert not list(Path().glob("*.jsonl"))


def test_an_undo_shows_the_store_that_the_file_names_and_asks(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file may be a stranger's, and whatever it names gets the passwords of the environment."""
    assert main(["doctor", str(talks), "--repair", "--undo-file", "undo.jsonl"]) == 0
    repaired = talks.read_bytes()
    capsys.readouterr()
    assert main(["doctor", "undo", "undo.jsonl"]) == 5
    told = capsys.readouterr().err
    assert f"This opens sqlite:///{talks.absolute()}, which the file names, and puts back" in told
    assert "Add --yes if it is meant" in told
    assert talks.read_bytes() == repaired
    assert main(["doctor", "undo", "undo.jsonl", "--store", str(talks)]) == 0
    assert "put back" in capsys.readouterr().out


def test_an_undo_without_the_password_asks_for_the_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = {"schema": "standfast.doctor-undo", "version": 1, "store": "redis://me:***@host/0"}
    (tmp_path / "undo").write_text(json.dumps(header) + "\n")
    assert main(["doctor", "undo", str(tmp_path / "undo")]) == 2
    assert "--store" in capsys.readouterr().err


def test_a_damaged_file_is_found_and_left(talks: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def more() -> None:
        session = SQLiteSession("long", talks)
        await session.add_items([user("x" * 500) for _ in range(200)])
        await session.close()

    asyncio.run(more())
    with open(talks, "r+b") as file:
        file.seek(-4096, os.SEEK_END)
        file.write(b"\x55" * 4096)
    before = trace(talks.parent)
    assert main(["doctor", str(talks)]) == 1
    assert "damaged" in told(capsys)
    assert trace(talks.parent) == before
