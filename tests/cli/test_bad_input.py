"""Everything that can be typed wrong, or be wrong with a store: clear words, the right exit code, nothing half done."""

from __future__ import annotations

import asyncio
import resource
import shutil
import socket
import sqlite3
from pathlib import Path

import pytest

from standfast import SQLiteSession
from standfast._kits.cli import entry
from tests.cli.small_store import filled, message, trace


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store, and with several things that are none."""
    made = tmp_path_factory.mktemp("made")
    filled(lambda session_id: SQLiteSession(session_id, made / "talks.db"))
    (made / "notes.txt").write_text("This is no database, and long enough to be looked at. " * 50)
    with sqlite3.connect(made / "other.db") as db:
        db.execute("CREATE TABLE things (a)")
    db.close()
    (made / "newer.db").write_bytes((made / "talks.db").read_bytes())
    with sqlite3.connect(made / "newer.db") as db:
        db.execute("UPDATE standfast_schema SET version = 99")
    db.close()
    return made


@pytest.fixture
def folder(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in which the test runs."""
    for file in made.iterdir():
        shutil.copy(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.mark.parametrize(
    ("line", "code", "words"),
    [
        ("sessions ls mongodb://here/x", 2, "mongodb:// is no kind of store"),
        ("sessions ls sqlite:///", 2, "names no file"),
        ("sessions ls talks.db?x=1", 4, "there is no file"),
        ("sessions ls sqlite:///talks.db?x=1", 2, "'x' is no option"),
        ("sessions ls none.db", 4, "there is no file"),
        ("runs approve none.db r c --yes", 4, "there is no file"),
        ("sessions ls .", 4, "is a folder"),
        ("sessions ls notes.txt", 4, "not an SQLite database"),
        ("sessions ls other.db", 4, "holds no conversations"),
        ("sessions ls newer.db", 5, "layout 99"),
        ("runs approve newer.db run-7 call-1 --yes", 5, "layout 99"),
        ("sessions ls redis://127.0.0.1:PORT/0 --timeout 1", 4, "127.0.0.1"),
        ("sessions ls postgresql://ada:secret@127.0.0.1:PORT/x --timeout 1", 4, "127.0.0.1"),
        ("sessions show talks.db nobody", 3, "there is no session: 'nobody'"),
        ("sessions tail talks.db nobody", 3, "there is no session"),
        ("sessions fork talks.db nobody new", 3, "there is no session"),
        ("sessions rm talks.db nobody --yes", 3, "there is no session"),
        ("sessions stats talks.db --session nobody", 3, "there is no session"),
        ("sessions show talks.db  --limit 0 evil", 2, "'0' is no whole number"),
        ("sessions show talks.db  --limit DIGITS evil", 2, "is no whole number"),
        ("sessions ls talks.db --after DIGITS", 3, "no cursor"),
        ("sessions show talks.db evil --after nonsense", 3, "no cursor"),
        ("sessions show talks.db evil --after 1.a.b --before 2.a.b", 2, "not allowed with"),
        ("sessions ls talks.db --after nonsense", 3, "no cursor"),
        ("sessions ls talks.db --since yesterday", 2, "not a length of time"),
        ("sessions search talks.db x --after nonsense", 3, "no cursor"),
        ("runs show talks.db nothing", 3, "there is no run: 'nothing'"),
        ("runs result talks.db nothing", 3, "there is no run"),
        ("runs show talks.db run-", 2, "run-7f04b"),
        ("runs ls talks.db --status asleep", 2, "invalid choice"),
        ("runs approve talks.db run-7 call-9 --yes", 3, "call-9"),
        ("runs approve talks.db run-7 call- --yes", 2, "call-0, call-1"),
        ("runs approve talks.db run-7 call-0 --yes", 5, "not waiting"),
        ("runs approve talks.db run-1 call-0 --yes", 3, "call-0"),
        ("runs approve talks.db run-7 call-1 --yes --by", 2, "expected one argument"),
        ("runs cancel talks.db run-1done --yes", 5, "has ended"),
        ("runs prune talks.db --yes", 2, "nothing says which"),
        ("runs resume talks.db run-7", 2, "--agent"),
        ("runs unlock talks.db run-7 --yes", 5, "nobody holds"),
        ("sessions nonsense talks.db", 2, "nonsense"),
        ("sessions", 2, "COMMAND"),
    ],
)
def test_what_is_wrong_is_said(
    line: str, code: int, words: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = trace(folder)
    given = line.replace("PORT", str(closed_port())).replace("DIGITS", "1" * 5000).split()
    ended = entry.main(given)
    said = capsys.readouterr()
    assert ended == code, said.err
    assert said.out == ""
    assert said.err.startswith("standfast")
    assert words in said.err
    assert "secret" not in said.err
    assert "Traceback" not in said.err
    after = trace(folder)
    if "approve talks" in line or "rm talks" in line or "fork talks" in line or "cancel talks" in line:
        # Opened to be changed: the lock file of a writer may be there now; the database is as it was.
        after.pop("talks.db-standfast-lock", None)
        before.pop("talks.db-standfast-lock", None)
    assert {name: kept[0] for name, kept in after.items()} == {name: kept[0] for name, kept in before.items()}


def test_two_that_begin_alike_are_listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["sessions", "fork", "talks.db", "evil", "evil-too"]) == 0
    assert entry.main(["sessions", "show", "talks.db", "ev"]) == 2
    said = capsys.readouterr().err
    assert "more than one session begins with 'ev': evil-too, evil" in said
    assert entry.main(["sessions", "show", "talks.db", "evil"]) == 0  # a whole id is that one, whoever else begins so


def test_an_error_is_told_in_json_where_that_was_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import json

    assert entry.main(["sessions", "show", "talks.db", "nobody", "--json"]) == 3
    said = capsys.readouterr()
    told = json.loads(said.err)
    assert (said.out, told["schema"], told["exit"]) == ("", "standfast.error/1", 3)
    assert "nobody" in told["what"]


def test_a_decision_about_a_call_that_has_changed_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody was shown one call and another one stands there when they agree: between the two it was changed."""
    from standfast._kits.cli.output import Output

    agreed = Output.confirm

    def slowly(self: Output, what: str, **details: object) -> None:
        agreed(self, what, **details)  # type: ignore[arg-type]
        with sqlite3.connect(folder / "talks.db") as db:
            cells = "agent_messages_standfast_cells"
            for number, value in db.execute(f"SELECT id, value FROM {cells}").fetchall():
                db.execute(f"UPDATE {cells} SET value = ? WHERE id = ?", (value.replace(b"ACME", b"EVIL"), number))
        db.close()

    monkeypatch.setattr(Output, "confirm", slowly)
    assert entry.main(["runs", "approve", "talks.db", "run-7", "call-1", "--yes"]) == 5
    assert "arguments differ" in capsys.readouterr().err


def test_a_full_disk_is_told_and_changes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit on the size of files, as a quota: the fork does not fit."""

    async def long() -> None:
        session = SQLiteSession("long", folder / "talks.db")
        await session.add_items([message("x" * 10_000) for _ in range(200)])
        await session.close()

    asyncio.run(long())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))  # Python does not let the signal kill it
    try:
        code = entry.main(["sessions", "fork", "talks.db", "long", "longer"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    said = capsys.readouterr().err
    assert code == 6, said
    assert entry.main(["sessions", "show", "talks.db", "longer"]) == 3
