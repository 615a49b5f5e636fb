"""`standfast send`: a message from the shell, and what the command says of it (F1)."""

from __future__ import annotations

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, Runner, SQLiteSession, open_store
from standfast._kits.cli import entry
from standfast.testing import ScriptedModel, assistant_message


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = tmp_path / "talks.db"

    async def begin() -> None:
        await Runner.run(_clerk(), "hello", session=SQLiteSession("guest", path))

    asyncio.run(begin())
    return str(path)


def _clerk() -> Agent[Any]:
    return Agent("Clerk", model=ScriptedModel([[assistant_message("done")]]))


def _told(capsys: pytest.CaptureFixture[str], *line: str, code: int = 0) -> str:
    assert entry.main(list(line)) == code
    said = capsys.readouterr()
    return said.out or said.err


def test_a_message_is_sent_once_and_a_repeat_is_told_what_became_of_it(
    store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """F1a, F1c, F1d."""
    line = ["send", store, "guest", "a taxi", "--agent", "Clerk", "--id", "m1"]
    assert _told(capsys, *line, "--by", "ann") == "message m1 waits for a run to hear it\n"

    async def look() -> list[Any]:
        async with open_store(store) as opened:
            found = await opened.list_messages("guest")
            await Runner.recover(_clerk(), sessions=opened.session)
        return [(one.message_id, one.agent, one.by, one.when_busy, one.items[0]["content"]) for one in found]

    assert asyncio.run(look()) == [("m1", "Clerk", "ann", "steer", "a taxi")]
    assert _told(capsys, *line) == "message m1 is a run of its own, which is done\n"
    record = json.loads(_told(capsys, *line, "--json"))
    assert (record["schema"], record["state"], record["run"], record["is_new"]) == (
        "standfast.receipt/1", "done", "m1", False,
    )  # fmt: skip
    other = ["send", store, "guest", "a bus", "--agent", "Clerk", "--id", "m1"]
    assert "another content" in _told(capsys, *other, code=5)


def test_a_message_is_read_from_the_standard_input_and_an_empty_one_refused(
    store: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["send", store, "guest", "-", "--agent", "Clerk", "--id", "m1", "--when-busy", "queue"]
    monkeypatch.setattr("sys.stdin", io.StringIO("  \n"))
    assert "empty" in _told(capsys, *line, code=2)
    monkeypatch.setattr("sys.stdin", io.StringIO("a long text"))
    assert _told(capsys, *line) == "message m1 waits for a run to hear it\n"
