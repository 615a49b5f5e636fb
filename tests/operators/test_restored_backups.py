"""A store that was put back to an earlier time: nothing that its runs did since happens twice without a person's word.

The worker is a process that is killed, the backup is SQLite's own, and every payment is a line in a file that no backup
takes back (C15, B17).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, RunConfig, Runner, RunStateError, SQLiteSession, function_tool, open_store
from standfast._kits.cli.entry import main
from standfast.testing import ScriptedModel, final, function_call
from tests.helpers.children import program, wait_for

RUNS = ("begun", "asking", "approved", "later")
"""What each run is at when the backup is made: in a tool, before its first request, approved, waiting for approval."""

WORKER = """
    import asyncio, sys
    from tests.operators.test_restored_backups import work
    asyncio.run(work(sys.argv[1], sys.argv[2]))
"""


def agents(folder: Path) -> dict[str, Agent[Any]]:
    """One agent for each run: it pays, and is done. What it paid stands in the file `book`."""

    async def until_open() -> None:
        while not (folder / "open").exists():
            await asyncio.sleep(0.01)

    def pay(what: str) -> None:
        with open(folder / "book", "a") as book:
            book.write(what + "\n")

    @function_tool(name_override="pay", failure_error_function=None)
    async def pay_slowly(what: str) -> str:
        "Pay."
        print("in the tool", flush=True)
        await until_open()
        pay(what)
        return "paid"

    @function_tool(name_override="pay", needs_approval=True)
    async def pay_if_approved(what: str) -> str:
        "Pay."
        pay(what)
        return "paid"

    @function_tool(name_override="pay")
    async def pay_at_once(what: str) -> str:
        "Pay."
        pay(what)
        return "paid"

    async def instructions(context: Any, agent: Any) -> str:
        await until_open()
        return "Pay."

    def agent(name: str, tool: Any, **more: Any) -> Agent[Any]:
        script = [[function_call("pay", {"what": name}, call_id="call-1")], final("done")]
        return Agent(name=name, tools=[tool], model=ByTurn(script), **more)

    return {
        "begun": agent("begun", pay_slowly),
        "asking": agent("asking", pay_at_once, instructions=instructions),
        "approved": agent("approved", pay_if_approved),
        "later": agent("later", pay_if_approved),
    }


class ByTurn(ScriptedModel):
    """A model that answers by what it is sent: a run that is resumed elsewhere does not begin its script again."""

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        given = kwargs.get("input", args[1] if len(args) > 1 else None)
        has_output = isinstance(given, list) and any("output" in item for item in given)
        script = ScriptedModel([self.known[1 if has_output else 0]])
        return await script.get_response(*args, **kwargs)

    def __init__(self, script: list[Any]) -> None:
        super().__init__(script)
        self.known = script


async def begin(folder: Path, name: str, path: str) -> None:
    config = RunConfig(run_id=name, lease_ttl_s=2.0)
    await Runner.run(agents(folder)[name], "Pay.", session=SQLiteSession(name, path), run_config=config)


async def recover(folder: Path, path: str) -> Any:
    return await Runner.recover(
        list(agents(folder).values()), sessions=lambda session_id: SQLiteSession(session_id, path)
    )


async def work(path: str, where: str) -> None:
    """The worker: pauses two runs, is in the middle of two others, and finishes all of them once it may."""
    folder = Path(where)
    for name in ("approved", "later"):
        await begin(folder, name, path)
    tasks = [asyncio.ensure_future(begin(folder, name, path)) for name in ("asking", "begun")]
    await asyncio.gather(*tasks)
    while not (folder / "all approved").exists():
        await asyncio.sleep(0.01)
    await recover(folder, path)
    print("finished", flush=True)
    await asyncio.sleep(3600)


def book(folder: Path) -> Counter[str]:
    return Counter((folder / "book").read_text().split())


async def decide(path: Path, run_id: str) -> None:
    async with open_store(str(path)) as store:
        await store.decide(run_id, "call-1", approve=True, by="Ada")


@pytest.fixture
def restored(tmp_path: Path) -> Path:
    """A store as it is after a kill and a restore: every payment was made after the backup."""
    path = tmp_path / "talks.db"
    worker: subprocess.Popen[str] = program(WORKER, path, tmp_path)
    try:
        wait_for(worker, "in the tool")

        async def shown() -> None:
            async with open_store(str(path), read_only=True) as store:
                while {run.run_id for run in (await store.runs()).runs} != set(RUNS):
                    await asyncio.sleep(0.02)

        asyncio.run(shown())
        asyncio.run(decide(path, "approved"))
        assert main(["doctor", str(path), "--remember", str(tmp_path / "numbers")]) in (0, 1)
        source, copy = sqlite3.connect(path), sqlite3.connect(tmp_path / "backup.db")
        source.backup(copy)
        source.close()
        copy.close()
        (tmp_path / "open").touch()
        asyncio.run(decide(path, "later"))
        (tmp_path / "all approved").touch()
        wait_for(worker, "finished")
        assert main(["doctor", str(path), "--remember", str(tmp_path / "numbers")]) in (0, 1)
        worker.kill()
        worker.wait()
        assert book(tmp_path) == Counter(RUNS)
    finally:
        if worker.poll() is None:
            worker.kill()
        worker.communicate()
    for ending in ("", "-wal", "-shm"):
        Path(f"{path}{ending}").unlink(missing_ok=True)
    shutil.copy(tmp_path / "backup.db", path)
    return path


def test_nothing_happens_twice_without_a_persons_word(
    restored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Recovery does nothing for a held run, and a decision about a call is needed again (clause C15)."""
    capsys.readouterr()
    assert main(["doctor", str(restored), "--remember", str(tmp_path / "numbers"), "--json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    back = [one["session_id"] for one in found if one.get("kind") == "numbers_went_back"]
    assert set(back) == {"approved", "later"}, "the worker took their leases again after the backup"

    assert main(["runs", "hold", str(restored), "--all", "--yes", "--by", "Ada"]) == 0
    said = capsys.readouterr()
    assert "4 runs held" in said.err
    assert said.out.count("its outcome is not known") == 3
    report = asyncio.run(recover(tmp_path, str(restored)))
    assert {one.run_id: one.outcome for one in report.runs} == dict.fromkeys(RUNS, "waits")
    assert book(tmp_path) == Counter(RUNS)

    # Each is a person's word: one was paid and is said to be, three are paid once more.
    assert main(["runs", "reject", str(restored), "later", "--say", "It was paid.", "--yes", "--by", "Ada"]) == 0
    assert main(["runs", "cancel", str(restored), "begun", "--yes", "--by", "Ada"]) == 0
    assert main(["runs", "approve", str(restored), "asking", "--yes", "--by", "Ada"]) == 0
    assert main(["runs", "approve", str(restored), "approved", "--yes", "--by", "Ada"]) == 0
    report = asyncio.run(recover(tmp_path, str(restored)))
    assert {one.run_id: one.outcome for one in report.runs} == dict.fromkeys(
        ("later", "asking", "approved"), "continued"
    )
    assert book(tmp_path) == Counter({"begun": 1, "later": 1, "asking": 2, "approved": 2})


def test_without_a_hold_a_restored_store_repeats_what_it_does_not_know(restored: Path, tmp_path: Path) -> None:
    """The danger that the hold is for. If this changes, so should the page on backups."""
    asyncio.run(recover(tmp_path, str(restored)))
    assert book(tmp_path) == Counter({"begun": 1, "later": 1, "asking": 2, "approved": 2})


def test_a_held_run_is_resumed_by_no_program(restored: Path, tmp_path: Path) -> None:
    async def story() -> None:
        async with open_store(str(restored)) as store:
            done = await store.hold(by="Ada", runs=["asking"])
            assert done.held == ("asking",)
            view = await store.run("asking")
            assert (view.status, view.hold is not None and view.hold.by) == ("paused", "Ada")
            assert (await store.hold(by="Ada")).held != ()  # the others; again is no error
        session = SQLiteSession("asking", restored)
        with pytest.raises(RunStateError, match="is held by Ada"):
            await Runner.resume(agents(tmp_path)["asking"], "asking", session=session)
        with pytest.raises(RunStateError, match="is held by Ada"):
            await begin(tmp_path, "asking", str(restored))
        async with open_store(str(restored)) as store:
            assert (await store.release("asking", by="Ada")).status == "ready"
            with pytest.raises(RunStateError, match="is not held"):
                await store.release("asking", by="Ada")
        await session.close()

    asyncio.run(story())
    assert book(tmp_path) == Counter(RUNS)
    assert os.path.getsize(restored)
