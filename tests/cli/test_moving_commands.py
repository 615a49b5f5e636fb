"""`standfast sessions export`, `import` and `copy`: what they print, what they leave, and how they end."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from standfast import RunConfig, SQLiteSession
from standfast._kits.cli import entry
from tests.helpers import servers
from tests.helpers.children import program, wait_for
from tests.runs.saved_runs.payment_app import Desk, asks, pay


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def filled(path: Path, *ids: str, count: int = 3, waits: bool = False) -> Path:
    async def fill() -> None:
        for session_id in ids:
            session = SQLiteSession(session_id, path)
            await session.append([message(f"number {n}") for n in range(count)], writer="w", start=0)
            if waits:
                desk = Desk([asks(pay(120, "call-1"))])
                await desk.run("Pay.", session=session, run_config=RunConfig(run_id=f"run of {session_id}"))
            await session.close()

    asyncio.run(fill())
    return path


def items(path: Path, session_id: str) -> list[Any]:
    async def read() -> list[Any]:
        session = SQLiteSession(session_id, path)
        try:
            return await session.get_items()
        finally:
            await session.close()

    return asyncio.run(read())


def test_a_session_goes_to_a_file_and_into_another_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, other, file = filled(tmp_path / "a.db", "talk"), tmp_path / "b.db", tmp_path / "talk.jsonl"
    assert entry.main(["sessions", "export", str(store), "talk", "--to", str(file)]) == 0
    assert "talk.jsonl: 3 records, 0 runs" in capsys.readouterr().out
    assert entry.main(["sessions", "export", str(store), "talk", "--to", str(file)]) == 5
    assert "is there already" in capsys.readouterr().err
    assert entry.main(["sessions", "export", str(store), "ta", "--to", str(file), "--overwrite", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["schema"], record["session"], record["records"]) == ("standfast.exported/1", "talk", 3)
    assert entry.main(["sessions", "import", str(other), str(file)]) == 0
    assert "session talk imported: 3 records, 0 runs" in capsys.readouterr().out
    assert entry.main(["sessions", "import", str(other), str(file)]) == 0
    assert "was there already" in capsys.readouterr().out
    assert items(other, "talk") == items(store, "talk")


def test_in_a_pipe_from_one_store_to_the_other(tmp_path: Path) -> None:
    store, other = filled(tmp_path / "a.db", "talk"), tmp_path / "b.db"
    command = [sys.executable, "-m", "standfast", "sessions"]
    wrote = subprocess.run([*command, "export", store, "talk", "--to", "-"], capture_output=True, check=True)
    assert wrote.stdout.startswith(b'{"schema":"standfast.session"')
    subprocess.run([*command, "import", other, "-"], input=wrote.stdout, check=True)
    assert items(other, "talk") == items(store, "talk")
    cut = subprocess.run([*command, "import", other, "-"], input=wrote.stdout[:-100], capture_output=True, check=False)
    assert cut.returncode == 5
    assert b"was damaged" in cut.stderr
    new = tmp_path / "c.db"
    subprocess.run([*command, "import", new, "-"], input=wrote.stdout[:-100], capture_output=True, check=False)
    assert not new.exists()


def test_runs_of_a_file_come_in_when_asked_for_and_decisions_with_the_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, short, file = tmp_path / "key", tmp_path / "short", tmp_path / "talk.jsonl"
    key.write_bytes(b"a key of sixteen bytes or more\n")
    short.write_bytes(b"short\n")
    store = filled(tmp_path / "a.db", "talk", waits=True)
    assert entry.main(["runs", "approve", str(store), "run of talk", "call-1", "--by", "ada", "--yes"]) == 0
    export = ["sessions", "export", str(store), "talk", "--to", str(file), "--move", "--key-file"]
    assert entry.main([*export, str(short)]) == 2
    assert entry.main([*export, str(tmp_path / "none")]) == 2
    assert entry.main([*export, str(key)]) == 0
    capsys.readouterr()
    signed, unsigned = tmp_path / "b.db", tmp_path / "c.db"
    assert entry.main(["sessions", "import", str(unsigned), str(file)]) == 0
    assert "left in the file, because they can still act: run of talk (--runs" in capsys.readouterr().err
    assert entry.main(["sessions", "import", str(unsigned), str(file), "--runs"]) == 0
    assert "that were decided wait again" in capsys.readouterr().err
    assert entry.main(["sessions", "import", str(signed), str(file), "--runs", "--key-file", str(key)]) == 0
    assert "wait again" not in capsys.readouterr().err
    assert entry.main(["sessions", "import", str(signed), str(file), "--as", "another talk"]) == 0
    said = capsys.readouterr()
    assert "session another talk imported" in said.out
    assert "run of talk (no run comes under another id: leave --as out)" in said.err
    for place, status in ((signed, "ready"), (unsigned, "paused")):
        assert entry.main(["runs", "ls", str(place), "--json"]) == 0
        assert [json.loads(line)["status"] for line in capsys.readouterr().out.splitlines()] == [status]


def test_all_sessions_are_copied_and_unfinished_runs_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, other = filled(tmp_path / "a.db", "one", "two", waits=True), tmp_path / "b.db"
    assert entry.main(["sessions", "copy", str(store), str(other), "--json"]) == 0
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(one["session"], one["outcome"], one["left"]) for one in found] == [
        ("one", "copied", ["run of one"]),
        ("two", "copied", ["run of two"]),
    ]
    assert entry.main(["sessions", "copy", str(store), str(other)]) == 0
    told = capsys.readouterr().err
    assert "left in the store, because they have not ended: run of one (--move takes them along)" in told
    assert entry.main(["sessions", "copy", str(store), str(other), "--session", "tw", "--move"]) == 0
    assert "run of two" in capsys.readouterr().out
    assert entry.main(["runs", "show", str(other), "run of two"]) == 0
    assert "paused" in capsys.readouterr().out
    assert entry.main(["runs", "show", str(store), "run of two"]) == 0
    assert "moved to" in capsys.readouterr().out


def test_how_it_ends_when_it_cannot_be_done(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, other = filled(tmp_path / "a.db", "talk", "more"), filled(tmp_path / "b.db", "talk", count=1)
    down = f"redis://127.0.0.1:{servers.free_port()}/0"
    endings = {
        5: [["copy", store, other], ["import", other, tmp_path / "a.db"], ["import", other, tmp_path / "none.jsonl"]],
        3: [["copy", store, other, "--session", "nobody"], ["export", store, "nobody"]],
        4: [["copy", tmp_path / "none.db", other], ["copy", store, down, "--timeout", "0.3"]],
        2: [["copy", store, "carrier-pigeon://x"], ["copy", store, store], ["import", other, tmp_path]],
    }
    for code, lines in endings.items():
        for words in lines:
            assert entry.main(["sessions", *map(str, words)]) == code, words
            assert capsys.readouterr().err.strip(), words
    assert len(items(other, "talk")) == 1
    assert len(items(other, "more")) == 3  # one that is refused does not end the copy


COPY = """
    import asyncio, sys
    from standfast._kits.operators import copy_sessions
    from standfast._kits.cli import entry
    once = copy_sessions.reported
    async def reported(*given):
        done = await once(*given)
        if done.session_id == "talk-2":
            print("there", flush=True)
            await asyncio.sleep(600)
        return done
    copy_sessions.reported = reported
    sys.exit(entry.main(["sessions", "copy", sys.argv[1], sys.argv[2]]))
"""


def test_ctrl_c_in_the_middle_is_told_and_repeating_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store, other = filled(tmp_path / "a.db", *(f"talk-{n}" for n in range(5))), tmp_path / "b.db"
    child = program(COPY, store, other, errors=True)
    wait_for(child, "there")
    child.send_signal(signal.SIGINT)
    child.communicate(timeout=300)
    assert child.returncode == 130
    assert entry.main(["sessions", "copy", str(store), str(other), "--json"]) == 0
    outcomes = [json.loads(line)["outcome"] for line in capsys.readouterr().out.splitlines()]
    assert outcomes == ["equal", "equal", "equal", "copied", "copied"]
