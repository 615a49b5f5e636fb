"""`standfast chat` as people use it: in a pipe, at a terminal, with Ctrl-C, killed, and with things missing."""

from __future__ import annotations

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
from standfast.testing.loopback import LoopbackServer, Status
from tests.helpers.children import import_path

DEADLINE_S = 120

SLOW = '''
import asyncio, os, pathlib
from standfast import Agent, function_tool
from standfast.testing import AnsweringModel, assistant_message, function_call

here = pathlib.Path(__file__).parent

@function_tool
async def work() -> str:
    """Work for long."""
    with open(here / "begun", "a") as file:
        file.write("x")
    await asyncio.sleep(1000)
    return "worked"

def answer(call):
    last = call.input[-1]
    if isinstance(last, dict) and last.get("type") == "function_call_output":
        return [assistant_message("It is done: " + str(last["output"]))]
    if "work" in str(last):
        return [function_call("work", {}, call_id="call-1")]
    return [assistant_message("I heard you.")]

agent = Agent(name="Slow", tools=[work], model=AnsweringModel(answer))
not_an_agent = 7
'''


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "PYTHONPATH": import_path(), **more}


def said(folder: Path, *lines: str, options: tuple[str, ...] = ("--demo",), **more: str) -> Any:
    """What the command prints when these lines come through a pipe."""
    return subprocess.run(
        [sys.executable, "-m", "standfast", "chat", *options], cwd=folder, env=environment(**more), text=True,
        input="".join(f"{line}\n" for line in lines), capture_output=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip


class Terminal:
    """The command at a pseudo-terminal."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process, self.file = pty.fork()
        if self.process == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.chdir(folder)
            command = [sys.executable, "-m", "standfast", "chat", *options]
            os.execve(sys.executable, command, environment(TERM="dumb"))
        self.seen = ""

    def until(self, words: str) -> None:
        """Read what it prints until these words come behind what was read for before."""
        while words not in self.seen:
            part = os.read(self.file, 65536)
            assert part, f"{words!r} did not come: {self.seen}"
            self.seen += part.decode(errors="replace")
        self.seen = self.seen.partition(words)[2]

    def types(self, line: str) -> None:
        os.write(self.file, f"{line}\n".encode())

    def presses_ctrl_c(self) -> None:
        os.write(self.file, b"\x03")

    def ended(self) -> int:
        _, status = os.waitpid(self.process, 0)
        os.close(self.file)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        os.kill(self.process, signal.SIGKILL)
        self.ended()


async def history(folder: Path, name: str) -> list[dict[str, Any]]:
    session = SQLiteSession(name, folder / "chats.db")
    try:
        return await session.get_items()
    finally:
        await session.close()


async def test_a_conversation_goes_on_in_another_process_with_what_waited(tmp_path: Path) -> None:
    first = said(tmp_path, "hello", "pay 120 to ACME", options=("--demo", "--session", "mine"))
    assert "needs your approval" in first.stdout
    assert "paid" not in first.stdout
    second = said(tmp_path, "y", "what did I say?", options=("--demo", "--continue"))
    assert "paid 120 to ACME" in second.stdout
    assert 'You said: "hello"; "pay 120 to ACME".' in second.stdout
    outputs = [item for item in await history(tmp_path, "mine") if item.get("type") == "function_call_output"]
    assert len(outputs) == 1


@pytest.mark.parametrize(("answer", "comes"), [("n", "→ "), ("Not before Friday.", "Not before Friday.")])
async def test_a_rejected_call_does_not_run_and_the_model_reads_why(tmp_path: Path, answer: str, comes: str) -> None:
    told = said(tmp_path, "pay 5 to Bob", answer, options=("--demo", "--session", "mine"))
    assert "→ paid 5" not in told.stdout
    assert comes in told.stdout


async def test_commands_take_back_fork_list_and_show(tmp_path: Path) -> None:
    lines = [
        "hello",
        "roll 2 dice",
        "/undo",
        "/history",
        "/fork another",
        "again",
        "/sessions",
        "/fork another",
        "/what",
    ]
    told = said(tmp_path, *lines, "/what", options=("--demo", "--session", "mine"))
    assert told.returncode == 0
    assert "Took the last turn back" in told.stderr
    assert "session 'another' is not empty" in told.stderr
    assert "'/what' is no command. /help lists them" in told.stderr
    assert [item.get("role") for item in await history(tmp_path, "mine")] == ["user", "assistant"]
    assert [item.get("role") for item in await history(tmp_path, "another")] == ["user", "assistant"] * 2
    assert "* another  4 items" in told.stdout


async def test_ctrl_c_stops_the_turn_in_order_and_the_conversation_goes_on(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    terminal = Terminal(tmp_path, "slow:agent", "--session", "mine")
    terminal.until("> ")
    terminal.types("work")
    terminal.until("[work {}]")
    while not (tmp_path / "begun").exists():
        time.sleep(0.02)
    terminal.presses_ctrl_c()
    terminal.until("Stopped.")
    terminal.until("> ")
    terminal.types("hello")
    terminal.until("I heard you.")
    terminal.until("> ")
    terminal.types("/exit")
    assert terminal.ended() == 0
    calls = [item for item in await history(tmp_path, "mine") if item.get("type") == "function_call"]
    outputs = [item for item in await history(tmp_path, "mine") if item.get("type") == "function_call_output"]
    assert len(calls) == len(outputs) == 1, "a call without its output would be refused by every provider"


async def test_killed_inside_a_tool_the_turn_goes_on_and_the_tool_is_not_run_again(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    terminal = Terminal(tmp_path, "slow:agent", "--session", "mine")
    terminal.until("> ")
    terminal.types("work")
    while not (tmp_path / "begun").exists():
        time.sleep(0.02)
    terminal.kill()
    told = said(tmp_path, "hello", options=("slow:agent", "--continue"))
    assert "was not finished; going on with it" in told.stderr
    assert "Whether it took effect is not known; it was not run again" in told.stdout
    assert "I heard you." in told.stdout
    assert (tmp_path / "begun").read_text() == "x"
    kinds = [item.get("role") or item.get("type") for item in await history(tmp_path, "mine")]
    assert kinds == ["user", "function_call", "function_call_output", "assistant", "user", "assistant"]


async def test_a_server_of_ones_own_is_talked_to_by_its_address(tmp_path: Path) -> None:
    with LoopbackServer(["Hello from here.", "And again."]) as server:
        options = ("--base-url", server.base_url, "--model", "tiny", "--session", "mine")
        told = said(tmp_path, "hello", "/model other", "and?", options=options)
        assert "Hello from here." in told.stdout
        assert "And again." in told.stdout
        assert [call.body["model"] for call in server.model_calls] == ["tiny", "other"]


@pytest.mark.parametrize(
    ("options", "words", "code"),
    [
        ((), "OPENAI_API_KEY is not set", 2),
        (("nowhere:agent",), "the module 'nowhere' cannot be imported", 2),
        (("slow:nothing",), "has no 'nothing'", 2),
        (("slow:not_an_agent",), "is an int and no agent", 2),
        (("slow",), "names no agent", 2),
        (("--demo", "--model", "x"), "--demo brings an agent of its own", 2),
        (("--demo", "--continue"), "there is no conversation", 3),
        (("--demo", "--continue", "--session", "a"), "name two conversations", 2),
        (("--demo", "--store", "nowhere://x"), "no kind of store", 2),
        (("--demo", "--store", "missing/folder/x.db"), "does not exist", 4),
    ],
)
def test_what_is_not_there_is_told_with_what_to_do(tmp_path: Path, options: tuple[str, ...], words: str, code: int):
    (tmp_path / "slow.py").write_text(SLOW)
    told = said(tmp_path, "hello", options=options)
    assert words in told.stderr
    assert told.returncode == code
    assert "Traceback" not in told.stderr


def test_a_key_that_is_refused_and_a_model_that_does_not_exist_are_told_and_the_talk_goes_on(tmp_path: Path) -> None:
    with LoopbackServer(["Hello."]) as server:
        server.fault(Status(401))
        server.fault(Status(404))
        told = said(tmp_path, "one", "two", "three", options=("--base-url", server.base_url, "--session", "mine"))
    assert told.returncode == 0
    assert told.stderr.count("standfast: ") == 2
    assert "Traceback" not in told.stderr
    assert "Hello." in told.stdout


def test_stored_and_streamed_text_cannot_control_the_terminal(tmp_path: Path) -> None:
    with LoopbackServer(["\x1b[2Jcleared\u202e"]) as server:
        told = said(tmp_path, "hello", "/history", options=("--base-url", server.base_url))
    assert "\x1b" not in told.stdout
    assert "\\x1b[2Jcleared\\u202e" in told.stdout
