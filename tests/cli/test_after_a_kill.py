"""What an operator sees of a run whose worker was killed, hangs or works, and while a command waits (C15, B7)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from standfast import SQLiteSession
from standfast._kits.cli.entry import main
from tests.cli.small_store import filled
from tests.cli.test_terminal import COMMAND, Terminal, environment
from tests.helpers.children import program, wait_for

WORKER = """
    import asyncio, sys
    from standfast import Agent, RunConfig, Runner, SQLiteSession, function_tool
    from standfast.testing import ScriptedModel, function_call

    @function_tool
    async def pay(amount: int) -> str:
        "Pay."
        print("paying", flush=True)
        await asyncio.sleep(3600)
        return "paid"

    async def main():
        script = [[function_call("pay", {"amount": 3}, call_id="call-1")]]
        agent = Agent(name="Clerk", tools=[pay], model=ScriptedModel(script))
        config = RunConfig(run_id="run-1", lease_ttl_s=float(sys.argv[2]))
        await Runner.run(agent, "Pay.", session=SQLiteSession("guest", sys.argv[1]), run_config=config)

    asyncio.run(main())
"""


@pytest.fixture
def workers() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        if one.poll() is None:
            one.kill()
        one.communicate()


def at_work(path: Path, workers: list[subprocess.Popen[str]], ttl_s: float = 600.0) -> subprocess.Popen[str]:
    """A worker in the middle of its tool."""
    workers.append(program(WORKER, path, ttl_s))
    wait_for(workers[-1], "paying")
    return workers[-1]


def findings(capsys: pytest.CaptureFixture[str], *line: str) -> list[str]:
    capsys.readouterr()
    main(["doctor", *line, "--json"])
    lines = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
    return [f"{one['kind']}: {one['what']}" for one in lines if one.get("run_id")]


def shown(capsys: pytest.CaptureFixture[str], path: Path) -> tuple[str, str]:
    """What `runs show` says: the worker's state, and everything."""
    capsys.readouterr()
    assert main(["runs", "show", str(path), "run-1"]) == 0
    said = capsys.readouterr()
    main(["runs", "show", str(path), "run-1", "--json"])
    return json.loads(capsys.readouterr().out)["worker"]["state"], said.out + said.err


def until_over(capsys: pytest.CaptureFixture[str], path: Path) -> None:
    """Wait until the lease of the run has ended."""
    while "lease ended" not in shown(capsys, path)[1]:
        time.sleep(0.05)


def test_a_killed_worker_is_found_at_once_and_after_its_lease(
    tmp_path: Path, workers: list[subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talks.db"
    worker = at_work(path, workers, ttl_s=2.0)
    worker.kill()
    worker.wait()
    for _ in range(2):
        (gone, call) = findings(capsys, str(path))
        assert gone.startswith("worker_gone: ")
        assert f"process {worker.pid} (run run-1) is dead" in gone
        assert call.startswith("open_call: ")
        state, said = shown(capsys, path)
        assert state == "dead"
        assert f"to go on: standfast runs resume {path} run-1 --agent MODULE:NAME" in said
        until_over(capsys, path)


def test_a_worker_that_hangs_and_one_that_works_are_told_apart(
    tmp_path: Path, workers: list[subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talks.db"
    worker = at_work(path, workers, ttl_s=1.0)
    assert findings(capsys, str(path)) == []
    state, said = shown(capsys, path)
    assert state == "live"
    assert f"worker: {socket.gethostname()} process {worker.pid} (run run-1) is at it" in said
    assert f"if its worker makes no progress: standfast runs unlock {path} run-1" in said
    os.kill(worker.pid, signal.SIGSTOP)
    until_over(capsys, path)
    state, said = shown(capsys, path)
    assert state == "hung"
    assert "stop that process first" in said
    assert findings(capsys, str(path))[0].startswith("worker_gone: ")


def test_without_a_lease_a_run_counts_as_left_after_the_time_that_is_asked_for(
    tmp_path: Path, workers: list[subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talks.db"
    worker = at_work(path, workers)
    worker.kill()
    worker.wait()
    assert main(["runs", "unlock", str(path), "run-1", "--yes"]) == 0  # with it goes the sign of who had the run
    assert findings(capsys, str(path)) == []
    assert findings(capsys, str(path), "--quiet-for", "1h") == []
    gone, call = findings(capsys, str(path), "--quiet-for", "0s")
    assert gone.startswith("worker_gone: ")
    assert call.startswith("open_call: ")


def test_a_person_at_a_terminal_is_told_that_an_import_waits_for_its_file(tmp_path: Path) -> None:
    slow = tmp_path / "slow.jsonl"
    os.mkfifo(slow)
    terminal = Terminal("sessions", "import", str(tmp_path / "talks.db"), str(slow), columns=200)
    try:
        terminal.until(f"importing {slow}: ")
    finally:
        with contextlib.suppress(OSError):
            os.close(os.open(slow, os.O_WRONLY | os.O_NONBLOCK))
        terminal.close()


def test_a_session_without_a_record_names_the_run_that_is_at_work_on_it(
    tmp_path: Path, workers: list[subprocess.Popen[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talks.db"
    at_work(path, workers)
    assert main(["sessions", "show", str(path), "gue"]) == 3
    said = capsys.readouterr().err
    assert "session 'guest' has no record yet: run 'run-1' is at work on it" in said
    assert f"standfast runs show {path} run-1" in said


def test_a_person_at_a_terminal_is_told_what_a_command_waits_for(
    tmp_path: Path, workers: list[subprocess.Popen[str]]
) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # it accepts and never answers
    url = f"redis://127.0.0.1:{silent.getsockname()[1]}/0"
    path = tmp_path / "talks.db"

    async def begun() -> None:
        session = SQLiteSession("guest", path)
        await session.add_items([{"role": "user", "content": "hello"}])
        await session.close()

    asyncio.run(begun())
    worker = at_work(path, workers)
    export = ("sessions", "export", str(path), "guest", "--move", "--to", str(tmp_path / "guest.jsonl"))
    terminals = [Terminal("sessions", "ls", url, columns=200), Terminal(*export, columns=200)]
    try:
        terminals[0].until(f"asking {url}: ")
        host = socket.gethostname()
        terminals[1].until(f"waiting for {host} process {worker.pid} (run run-1) of session guest: ")
    finally:
        for one in terminals:
            one.close()
        silent.close()


def test_a_session_that_is_not_named_is_asked_for_and_is_the_newest(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"

    async def written() -> None:
        for name in ("older", "newer"):
            session = SQLiteSession(name, path)
            await session.add_items([{"role": "user", "content": f"from {name}"}])
            await session.close()

    asyncio.run(written())
    terminal = Terminal("sessions", "show", str(path), columns=200)
    try:
        assert "  2  older" in terminal.until("Which session? [1] ")
        terminal.type("2\n")
        code, seen = terminal.ended()
    finally:
        terminal.close()
    assert (code, "from older" in seen.partition("Which")[2]) == (0, True)
    line = [*COMMAND, "sessions", "show"]
    piped = subprocess.run([*line, str(path)], capture_output=True, text=True, env=environment(), timeout=120)
    assert "from newer" in piped.stdout
    assert "no session is named, so this is the newest; further sessions: older" in piped.stderr
    there = environment(STANDFAST_STORE=str(path))
    named = subprocess.run([*line, "older"], capture_output=True, text=True, env=there, timeout=120)
    assert "from older" in named.stdout
    nothing = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=120)
    assert (nothing.returncode, "no store is named" in nothing.stderr) == (2, True)


def test_the_one_call_that_waits_need_not_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "talks.db"
    monkeypatch.setenv("BOOK", str(tmp_path / "book"))
    filled(lambda session_id: SQLiteSession(session_id, path))
    assert main(["runs", "approve", str(path)]) == 2
    assert "this command takes STORE RUN [CALL]" in capsys.readouterr().err
    assert main(["runs", "approve", str(path), "run-1done", "--yes"]) == 5
    assert "no call of run 'run-1done' waits" in capsys.readouterr().err
    monkeypatch.setenv("STANDFAST_STORE", str(path))
    assert main(["runs", "approve", "run-7", "--yes", "--by", "Ada"]) == 0
    assert "approved pay (call-1) in run run-7f04b, by Ada" in capsys.readouterr().out
