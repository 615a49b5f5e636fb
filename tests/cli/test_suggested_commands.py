"""Command lines that the terminal suggests are pasted into a shell: every word in them is data, whoever chose it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from standfast import RunConfig, Runner, SQLiteSession
from standfast._kits.cli import entry
from standfast.testing import function_call
from tests.cli.small_store import clerk, message

EVIL = [
    "c;touch${IFS}PWNED;#",
    "$(touch PWNED)",
    "a b'c\"d",
    "'; touch PWNED; '",
    "--by=mallory",
    "!! && `touch PWNED` > PWNED",
    "two\nlines; touch PWNED",
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `standfast` on the path says which words it was given, and does nothing."""
    program = tmp_path / "bin" / "standfast"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nprintf '%s\\037' \"$@\"\nprintf '\\036'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("BOOK", str(tmp_path / "book"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


def suggested(capsys: pytest.CaptureFixture[str], *line: str) -> list[str]:
    """Run a command, and return the command lines that it suggests."""
    assert entry.main(list(line)) == 0
    said = capsys.readouterr()
    found = re.findall(r"standfast (?:runs|sessions|doctor) .*?(?=   \(or|$)", said.out + said.err, re.MULTILINE)
    assert found, said
    return found


def pasted(lines: list[str], folder: Path) -> list[list[str]]:
    """Paste the lines into a shell, and return the words that `standfast` was given by each."""
    done = subprocess.run(["bash"], input="\n".join(lines), cwd=folder, capture_output=True, text=True, timeout=60)
    assert list(folder.iterdir()) == []
    return [said.split("\x1f")[:-1] for said in done.stdout.split("\x1e")[:-1]]


async def _paused(store: Path, session_id: str, run_id: str, call_id: str) -> None:
    session = SQLiteSession(session_id, store)
    asks = clerk([function_call("pay", {"amount": 1, "to": "ACME"}, call_id=call_id)])
    await Runner.run(asks, "Pay.", session=session, run_config=RunConfig(run_id=run_id))
    await session.replace([message("a summary")], upto=await session.head())
    await session.close()


def as_shown(word: str) -> str:
    """A word as a terminal shows it: control characters are written out."""
    return word.replace("\n", "\\n")


@pytest.mark.parametrize("evil", EVIL)
def test_a_suggested_line_is_one_command_with_these_words(
    evil: str, tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "it's a store.db"
    session_id, run_id, call_id = f"{evil} s", f"{evil} r", evil
    asyncio.run(_paused(store, session_id, run_id, call_id))
    path = str(store)

    def words(*names: str) -> list[Any]:
        found = [as_shown(name) for name in (path, *names)]
        return ["--", *found] if any(name.startswith("-") for name in found) else found

    agent = ["--agent", "MODULE:NAME"]
    [shown] = pasted(suggested(capsys, "runs", "show", path, "--", run_id), folder)
    assert shown == ["runs", "approve", *words(run_id, call_id)]
    found = pasted(suggested(capsys, "sessions", "show", path, "--", session_id), folder)
    assert [one[:2] for one in found] == [["sessions", "undo"], ["runs", "show"]]
    assert found[1][2:] == words(run_id)
    assert [one for one in found[0] if not one.startswith("--to=")][2:] == words(session_id)
    [resume] = pasted(suggested(capsys, "runs", "approve", path, "--yes", "--", run_id, call_id), folder)
    assert (resume[:2], sorted(resume[2:])) == (["runs", "resume"], sorted([*agent, *words(run_id)]))
    if "--" in resume:
        assert resume.index("--") > resume.index("--agent")
    assert pasted(suggested(capsys, "runs", "show", path, "--", run_id), folder) == [resume]
    back = suggested(capsys, "sessions", "undo", path, "--", session_id)
    assert [word for word in pasted(back, folder)[0] if not word.startswith("--to=")] == [
        "sessions", "undo", *words(session_id)
    ]  # fmt: skip


def test_a_pasted_line_decides_about_the_call_that_it_names(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The real command takes the words apart as the shell put them together, also those that look like options."""
    store = tmp_path / "talks.db"
    asyncio.run(_paused(store, "s", "-run;touch PWNED", "--yes"))
    [line] = suggested(capsys, "runs", "show", str(store), "--", "-run;touch PWNED")
    _, *words = shlex.split(line)
    assert entry.main(["runs", "approve", "--by=ada", "--yes", *words[2:]]) == 0
    assert "approved pay (--yes)" in capsys.readouterr().out
