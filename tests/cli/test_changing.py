"""The commands that change something: what they do, what they say before, and who is told when two are at it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from standfast import RunConfig, Runner, SQLiteSession, open_store
from standfast._kits.cli import entry
from standfast._kits.cli.arguments import whoever
from standfast.testing import function_call
from tests.cli.small_store import clerk, filled, message
from tests.helpers.children import import_path


@pytest.fixture
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "book"
    monkeypatch.setenv("BOOK", str(path))
    return path


@pytest.fixture
def store(tmp_path: Path, book: Path) -> str:
    path = tmp_path / "talks.db"
    filled(lambda session_id: SQLiteSession(session_id, path))
    return str(path)


def told(capsys: pytest.CaptureFixture[str], *line: str, code: int = 0) -> Any:
    ended = entry.main(list(line))
    said = capsys.readouterr()
    assert ended == code, said.err
    return said


async def kept(store: str, session_id: str) -> dict[str, Any]:
    async with open_store(store, read_only=True) as opened:
        session = opened.session(session_id)
        return {
            "info": await session.info(),
            "items": await session.get_items(),
            "generations": await session.generations(),
            "usage": await session.usage(),
            "runs": (await opened.runs(session_id=session_id)).runs,
            "written": await session.accepted("run-7f04b"),
        }


def shell(*line: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "standfast", *line], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": import_path(), **environment},
    )  # fmt: skip


# --- rm, fork, undo --------------------------------------------------------------------------------------------------


def test_rm_removes_all_there_is_and_says_what_stays(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "sessions", "rm", store, "invoice-7", "--yes")
    for words in ("3 items", "1 saved run", "1 run of it has not ended", "each writer wrote", "lease's number",
                  "undo files", "backups", "free pages"):  # fmt: skip
        assert words in said.err
    left = asyncio.run(kept(store, "invoice-7"))
    assert {name: left[name] for name in ("info", "items", "generations", "usage", "runs")} == {
        "info": None, "items": [], "generations": [], "usage": [], "runs": []
    }  # fmt: skip
    assert left["written"] == 3
    assert told(capsys, "sessions", "rm", store, "invoice-7", "--yes", code=3)
    assert "kept generation" in told(capsys, "sessions", "rm", store, "evil", "--yes").err
    assert asyncio.run(kept(store, "evil"))["generations"] == []


def test_rm_asks_and_does_nothing_where_nobody_can_be_asked(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = told(capsys, "sessions", "rm", store, "invoice-7", code=5)
    assert "Add --yes" in said.err
    said = told(capsys, "sessions", "rm", store, "invoice", "--yes", code=5)
    assert "give the whole id" in said.err
    assert len(asyncio.run(kept(store, "invoice-7"))["items"]) == 3


def test_rm_refuses_a_session_that_somebody_holds(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def held() -> Any:
        session = SQLiteSession("evil", store)
        return await session.lease(ttl_s=600, wait_s=0, holder="a run of ada's")

    with asyncio.Runner() as runner:
        lease = runner.run(held())
        said = told(capsys, "sessions", "rm", store, "evil", "--yes", code=5)
        assert "a run of ada's" in said.err
        said = told(capsys, "runs", "unlock", store, "evil", "--session", code=5)
        assert "takes session evil away from" in said.err
        told(capsys, "runs", "unlock", store, "evil", "--session", "--yes")
        told(capsys, "runs", "unlock", store, "evil", "--session", "--yes", code=5)
        told(capsys, "sessions", "rm", store, "evil", "--yes")
        lease.release_now()


def test_a_fork_continues_and_an_undo_puts_back(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "sessions", "fork", store, "inv", "copy", "--at", "1")
    assert len(asyncio.run(kept(store, "copy"))["items"]) == 1
    shown = told(capsys, "sessions", "show", store, "copy", "--json")
    assert json.loads(shown.out.splitlines()[0])["origin"]["by"] == whoever()
    assert "not empty" in told(capsys, "sessions", "fork", store, "inv", "copy", code=5).err
    told(capsys, "sessions", "fork", store, "inv", "whole")
    assert asyncio.run(kept(store, "whole"))["items"] == asyncio.run(kept(store, "invoice-7"))["items"]
    before = asyncio.run(kept(store, "evil"))["items"]
    (generation,) = asyncio.run(kept(store, "evil"))["generations"]
    told(capsys, "sessions", "fork", store, "evil", "as it was", "--generation", generation.id)
    assert asyncio.run(kept(store, "as it was"))["items"][1] == message("two\nlines", "assistant")
    said = told(capsys, "sessions", "undo", store, "evil", "--json")
    assert json.loads(said.out)["items"] == 3
    restored = asyncio.run(kept(store, "evil"))["items"]
    listed = told(capsys, "sessions", "undo", store, "evil", "--list", "--json").out.splitlines()
    assert [json.loads(one)["by"] for one in listed] == [whoever(), None]
    assert restored[1] == message("two\nlines", "assistant")
    told(capsys, "sessions", "undo", store, "evil", "--to", json.loads(said.out)["displaced"])
    assert asyncio.run(kept(store, "evil"))["items"] == before
    assert "nothing that was replaced" in told(capsys, "sessions", "undo", store, "invoice-7", code=3).err
    told(capsys, "sessions", "undo", store, "evil", "--to", "no such", code=3)
    told(capsys, "sessions", "fork", store, "inv", "far", "--at", "99", code=3)


# --- deciding --------------------------------------------------------------------------------------------------------


def test_a_run_is_decided_and_resumed_from_the_shell(
    store: str, book: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(capsys, "runs", "approve", store, "run-7", "call-1", code=5)
    assert '  pay {"amount":120,"to":"ACME"}' in said.err
    said = told(capsys, "runs", "approve", store, "run-7", "call-1", "--yes", "--by", "ada")
    assert "ready" in said.out
    said = told(capsys, "runs", "show", store, "run-7")
    assert "approved by ada" in said.out
    assert not book.exists()
    said = told(capsys, "runs", "resume", store, "run-7", "--agent", "tests.cli.small_store:ready_clerk")
    assert said.out == "Paid.\n"
    assert book.read_text() == "120 to ACME\n"
    assert told(capsys, "runs", "result", store, "run-7").out == "Paid.\n"
    told(capsys, "runs", "resume", store, "run-7", "--agent", "tests.cli.small_store:ready_clerk", code=5)
    assert book.read_text() == "120 to ACME\n"
    told(capsys, "runs", "prune", store, "--yes", code=2)
    assert told(capsys, "runs", "prune", store, "--older-than", "1d", "--yes").out == "forgot 0 runs\n"
    assert told(capsys, "runs", "prune", store, "--keep", "0", "--yes").out == "forgot 2 runs\n"


def test_a_rejected_call_does_not_run_and_the_model_is_told(
    store: str, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told(capsys, "runs", "reject", store, "run-7", "call-1", "--yes", "--say", "Not before Friday.")
    told(capsys, "runs", "resume", store, "run-7", "--agent", "tests.cli.small_store:ready_clerk")
    assert not book.exists()
    outputs = [one.get("output") for one in asyncio.run(kept(store, "invoice-7"))["items"]]
    assert "Not before Friday." in outputs


def test_a_run_that_is_given_up_leaves_a_whole_turn(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "runs", "cancel", store, "run-7", code=5)
    said = told(capsys, "runs", "cancel", store, "run-7", "--yes", "--by", "ada", "--say", "The invoice was wrong")
    assert "cancelled" in said.out
    items = asyncio.run(kept(store, "invoice-7"))["items"]
    assert "ada cancelled the run (The invoice was wrong)" in items[-1]["output"]
    told(capsys, "runs", "cancel", store, "run-7", "--yes", code=5)


def test_who_decides_is_saved_without_being_asked(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "runs", "approve", store, "run-7", "call-1", "--yes")
    (found,) = [json.loads(told(capsys, "runs", "show", store, "run-7", "--json").out)]
    assert "@" in found["calls"][1]["decision"]["by"]


@pytest.mark.parametrize(
    ("agent", "words"),
    [
        ("nothing", "names no agent"),
        ("no.such.module:agent", "cannot be imported"),
        ("tests.cli.small_store:missing", "has no 'missing'"),
        ("tests.cli.small_store:EVIL", "is a str and no agent"),
    ],
)
def test_an_agent_that_cannot_be_had_is_a_usage_error(
    agent: str, words: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert words in told(capsys, "runs", "resume", store, "run-7", "--agent", agent, code=2).err


def test_two_people_decide_at_once_in_two_shells_and_one_is_told(store: str, book: Path) -> None:
    ada = shell("runs", "approve", store, "run-7f04b", "call-1", "--yes", "--by", "ada")
    bob = shell("runs", "reject", store, "run-7f04b", "call-1", "--yes", "--by", "bob")
    endings = {name: (child.communicate(), child.returncode) for name, child in (("ada", ada), ("bob", bob))}
    codes = {name: code for name, (_, code) in endings.items()}
    assert sorted(codes.values()) == [0, 5], endings
    (first,) = [name for name, code in codes.items() if code == 0]
    (second,) = [name for name, code in codes.items() if code == 5]
    did = {"ada": "ada approved", "bob": "bob rejected"}[first]
    assert did in endings[second][0][1]


def test_of_several_workers_one_resumes(store: str, book: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told(capsys, "runs", "approve", store, "run-7", "call-1", "--yes")
    agent = ("--agent", "tests.cli.small_store:ready_clerk")
    workers = [shell("runs", "resume", store, "run-7f04b", *agent, BOOK=str(book)) for _ in range(3)]
    said = [(*worker.communicate(), worker.returncode) for worker in workers]
    assert sorted(code for _, _, code in said) == [0, 5, 5], said
    assert book.read_text() == "120 to ACME\n"
    assert [out for out, _, code in said if code == 0] == ["Paid.\n"]


def test_a_call_is_shown_with_the_values_its_tool_gets_and_decided_as_it_was_shown(
    tmp_path: Path, book: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talks.db"

    async def pause() -> None:
        session = SQLiteSession("coerced", path)
        asks = clerk([function_call("pay", '{"amount": "5000", "to": "ACME"}', call_id="call-1")])
        await Runner.run(asks, "Pay.", session=session, run_config=RunConfig(run_id="run-5"))
        await session.close()

    asyncio.run(pause())
    values = 'the tool will get {"amount": 5000, "to": "ACME"}'
    assert values in told(capsys, "runs", "show", str(path), "run-5").out
    said = told(capsys, "runs", "approve", str(path), "run-5", "call-1", "--yes")
    assert [line.strip() for line in said.err.splitlines()][1:3] == ['pay {"amount": "5000", "to": "ACME"}', values]
    resume = ["runs", "resume", str(path), "run-5", "--agent", "tests.cli.small_store:ready_clerk"]
    told(capsys, *resume)
    assert book.read_text() == "5000 to ACME\n"
