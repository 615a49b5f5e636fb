"""The commands that look: what they show, and that not a byte, a file or a mode is changed by any of them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import agents
import pytest

from standfast import SQLiteSession
from standfast._kits.cli import entry
from tests.cli.small_store import READING, filled, message, trace, words
from tests.helpers.children import import_path


@pytest.fixture
def ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BOOK", str(tmp_path.parent / "book"))
    folder = tmp_path / "store"
    folder.mkdir()
    path = folder / "talks.db"
    filled(lambda session_id: SQLiteSession(session_id, path))
    return path


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A file of the SDK's that standfast has never seen: no runs in it, and no tables of ours."""
    folder = tmp_path / "sdk"
    folder.mkdir()
    path = folder / "sdk.db"

    async def fill() -> None:
        session = agents.SQLiteSession("done-1", path)
        await session.add_items([{"role": "user", "content": "Hello there."}])
        session.close()

    asyncio.run(fill())
    return path


def looked(store: Path, capsys: pytest.CaptureFixture[str], *, runs: bool = True) -> None:
    """Every reading command, for people and for programs."""
    for name in READING:
        expected = 0 if runs or name not in ("runs show", "runs result") else 3
        for more in ([], ["--json"]):
            code = entry.main([*words(name, str(store)), *more])
            said = capsys.readouterr()
            assert code == expected, f"{name}: {code}, {said.err}"
            assert "\x1b" not in said.out
            assert "\u202e" not in said.out
            if more and not expected:
                assert all(json.loads(line)["schema"].startswith("standfast.") for line in said.out.splitlines())


def test_a_file_at_rest_is_left_as_it_is(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (ours.parent / "talks.db-standfast-lock").unlink(missing_ok=True)
    before = trace(ours.parent)
    looked(ours, capsys)
    assert trace(ours.parent) == before


def test_a_file_of_the_sdks_is_left_as_it_is(theirs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = trace(theirs.parent)
    looked(theirs, capsys, runs=False)
    assert trace(theirs.parent) == before


def test_a_file_in_use_is_left_as_it_is(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its writer has a log open, in which the newest session is."""

    async def write() -> SQLiteSession:
        session = SQLiteSession("in the log", ours)
        await session.add_items([message("only in the log")])
        return session

    with asyncio.Runner() as runner:
        writer = runner.run(write())
        before = trace(ours.parent)
        assert "talks.db-wal" in before
        looked(ours, capsys)
        after = trace(ours.parent)
        # The shared memory beside a log has a mark for each reader; what is stored is in the other two.
        assert after.keys() == before.keys()
        for name in ("talks.db", "talks.db-wal"):
            assert after[name] == before[name]
        assert entry.main(["sessions", "ls", str(ours)]) == 0
        assert "only in the log" in capsys.readouterr().out
        runner.run(writer.close())


@pytest.fixture
def readable(ours: Path) -> Iterator[Path]:
    """The file where everybody may read it and nobody may write: neither the file nor the folder.

    Not below pytest's own folders: whichever pytest starts next takes them away from everybody else.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "talks.db"
        shutil.copy(ours, path)
        path.chmod(0o444)
        folder.chmod(0o555)
        yield path
        folder.chmod(0o755)


AS_NOBODY = """
    import json, os, sys
    from standfast._kits.cli import entry
    store, warm, lines = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    for line in lines:  # everything is imported then: the next user may not even read our source
        entry.main([warm if word == store else word for word in line])
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    print("codes", *[entry.main(line) for line in lines])
"""


def as_nobody(store: Path, folder: Path, lines: list[list[str]]) -> tuple[list[int], str]:
    """The exit codes of these command lines, and what they said, for a user who may write nothing.

    As root that is the user nobody; otherwise the permissions say it of everybody.
    """
    warm = folder / "warm.db"
    warm.write_bytes(store.read_bytes())
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(AS_NOBODY), str(store), str(warm), json.dumps(lines)],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": import_path()},
    )  # fmt: skip
    return [int(code) for code in ended.stdout.splitlines()[-1].split()[1:]], ended.stderr


def test_another_user_who_may_write_nothing_reads_and_leaves_nothing(readable: Path, tmp_path: Path) -> None:
    lines = [words(name, str(readable)) for name in READING]
    before = trace(readable.parent)
    codes, said = as_nobody(readable, tmp_path, lines)
    assert codes == [0] * len(lines), said
    assert trace(readable.parent) == before


def test_what_would_change_a_file_that_may_not_be_written_is_refused(readable: Path, tmp_path: Path) -> None:
    store = str(readable)
    lines = [
        ["runs", "approve", store, "run-7", "call-1", "--yes"],
        ["sessions", "fork", store, "evil", "new"],
        ["sessions", "rm", store, "evil", "--yes"],
    ]
    before = trace(readable.parent)
    codes, said = as_nobody(readable, tmp_path, lines)
    assert codes == [5, 5, 5], said
    assert trace(readable.parent) == before


# --- what they show --------------------------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str], *line: str, code: int = 0) -> Any:
    assert entry.main(list(line)) == code
    return capsys.readouterr()


def records(capsys: pytest.CaptureFixture[str], *line: str) -> list[dict[str, Any]]:
    return [json.loads(one) for one in told(capsys, *line, "--json").out.splitlines()]


def test_a_listing_has_counts_words_and_what_waits(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {one["session"]: one for one in records(capsys, "sessions", "ls", str(ours))}
    assert list(found) == ["evil", "done-1", "invoice-7"]
    assert found["invoice-7"]["items"] == 3
    assert found["invoice-7"]["first_words"] == "Please pay the invoice."
    assert [one["tool"] for one in found["invoice-7"]["waiting"]] == ["pay"]
    assert records(capsys, "sessions", "ls", str(ours), "--waiting")[0]["session"] == "invoice-7"
    line = told(capsys, "sessions", "ls", str(ours)).out.splitlines()[2].split("\t")
    assert [line[0], line[1], line[3], line[4]] == ["invoice-7", "3", "1 waits", "Please pay the invoice."]


def test_pages_go_on_where_they_ended(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seen, after = [], None
    while True:
        more = [] if after is None else ["--after", after]
        page = records(capsys, "sessions", "ls", str(ours), "--limit", "1", *more)
        seen.append(page[0]["session"])
        if page[-1]["schema"] != "standfast.page/1":
            break
        after = page[-1]["after"]
    assert seen == ["evil", "done-1", "invoice-7"]
    assert [one["session"] for one in records(capsys, "sessions", "ls", str(ours), "--all")] == seen
    assert [one["session"] for one in records(capsys, "sessions", "ls", str(ours), "--prefix", "d")] == ["done-1"]
    assert records(capsys, "sessions", "ls", str(ours), "--since", "7d", "--brief")[0]["session"] == "evil"
    said = told(capsys, "sessions", "ls", str(ours), "--limit", "2")
    assert "2 of 3" in said.err
    assert "--after" in said.err


def test_show_tells_what_a_session_is_and_its_records(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session, *shown = records(capsys, "sessions", "show", str(ours), "invoice-7")
    assert (session["schema"], session["items"]) == ("standfast.session/1", 3)
    assert [one["status"] for one in session["runs"]] == ["paused"]
    assert [one["schema"] for one in shown] == ["standfast.record/1"] * 3
    assert [one["number"] for one in shown] == [0, 1, 2]
    said = told(capsys, "sessions", "show", str(ours), "invoice-7")
    assert "run run-7f04b is paused" in said.err
    assert said.out.splitlines()[1].split("\t")[1:] == ["calls", 'trains {"to":"Porto"}', "run-7f04b #1"]
    cursor = told(capsys, "sessions", "show", str(ours), "inv", "-n", "1").err.split()[-1]
    assert len(records(capsys, "sessions", "show", str(ours), "inv", "--before", cursor)) == 3
    assert len(records(capsys, "sessions", "show", str(ours), "inv", "--after", "")) == 4
    full = told(capsys, "sessions", "show", str(ours), "evil", "--full")
    assert "2 items replaced" in full.err
    assert "\\x1b[2J" in full.out


def test_search_finds_words_in_any_case(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = records(capsys, "sessions", "search", str(ours), "HELLO")
    assert [one["session"] for one in found] == ["done-1", "done-1"]
    assert records(capsys, "sessions", "search", str(ours), "hello", "--session", "evil") == []
    assert "nothing found" in told(capsys, "sessions", "search", str(ours), "no such words").err


def test_stats_count_everything(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = records(capsys, "sessions", "stats", str(ours))
    assert (found["sessions"], found["items"]) == (3, 7)
    assert found["runs_by_status"] == {"done": 1, "paused": 1}
    assert found["usage"]["requests"] == 2
    (found,) = records(capsys, "sessions", "stats", str(ours), "--session", "evil")
    assert (found["items"], found["generations"]) == (2, 1)
    said = told(capsys, "sessions", "stats", str(ours)).out
    assert "3 sessions, 7 items" in said
    assert "2 saved runs: 1 done, 1 paused" in said


def test_a_run_is_shown_without_its_agents(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    listed = records(capsys, "runs", "ls", str(ours))
    assert {one["run"]: one["status"] for one in listed} == {"run-7f04b": "paused", "run-1done": "done"}
    assert [one["run"] for one in records(capsys, "runs", "ls", str(ours), "--status", "paused")] == ["run-7f04b"]
    assert [one["run"] for one in records(capsys, "runs", "ls", str(ours), "--session", "done")] == ["run-1done"]
    (found,) = records(capsys, "runs", "show", str(ours), "run-7")
    assert [one["state"] for one in found["calls"]] == ["done", "waiting"]
    said = told(capsys, "runs", "show", str(ours), "run-7")
    assert 'pay {"amount":120,"to":"ACME"}   WAITS for a decision  (call-1)' in said.out
    assert f"standfast runs approve {ours} run-7f04b call-1" in said.err
    assert told(capsys, "runs", "result", str(ours), "run-1").out == "Hello \\x1b[31mAda\\x1b[0m.\n"
    (result,) = records(capsys, "runs", "result", str(ours), "run-1")
    assert result["output"] == "Hello \x1b[31mAda\x1b[0m."
    said = told(capsys, "runs", "result", str(ours), "run-7", code=5)
    assert "has not ended (paused)" in said.err


def test_tail_shows_what_comes_and_goes_on_after_a_compaction(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another task writes, replaces and writes again while it watches."""
    from standfast._kits.cli.entry import parser_of
    from standfast._kits.cli.output import Output

    args = parser_of("sessions").parse_args(["sessions", "tail", str(ours), "done-1", "--json"])

    async def scenario() -> None:
        out = Output(as_json=True)
        tail = asyncio.create_task(args.run(args, out))
        shown: list[str] = []

        async def until(words: str) -> None:
            while not any(words in one for one in shown):
                await asyncio.sleep(0.02)
                assert not tail.done()
                shown.extend(capsys.readouterr().out.splitlines())

        session = SQLiteSession("done-1", ours)
        await until("Hello.")
        await session.add_items([message("one more")])
        await until("one more")
        await session.replace([message("in short")], upto=await session.head())
        await until("in short")
        await session.add_items([message("and on")])
        await until("and on")
        await session.close()
        tail.cancel()
        with pytest.raises(asyncio.CancelledError):
            await tail

    asyncio.run(scenario())


def test_a_corrupt_record_is_shown_as_one(ours: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with sqlite3.connect(ours) as db:
        db.execute("UPDATE agent_messages SET message_data = 'no json' WHERE session_id = 'done-1'")
    db.close()
    said = told(capsys, "sessions", "show", str(ours), "done-1")
    assert said.out.splitlines()[0].split("\t")[1] == "corrupt"
