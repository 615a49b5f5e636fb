"""The command in a real terminal and in a real pipe: width, questions, Ctrl-C, readers that leave, a live writer."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from standfast import SQLiteSession
from tests.cli.small_store import filled
from tests.helpers.children import import_path, program, wait_for

DEADLINE_S = 120.0
"""Generous: it only ends what hangs, before the time limit of the test does."""
COMMAND = [sys.executable, "-m", "standfast"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    filled(lambda session_id: SQLiteSession(session_id, folder / "talks.db"))
    return folder / "talks.db"


@pytest.fixture
def store(made: Path, tmp_path: Path) -> Path:
    path = tmp_path / "talks.db"
    path.write_bytes(made.read_bytes())
    return path


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    return {**kept, "PYTHONPATH": import_path(), "TERM": "xterm", "PYTHONUTF8": "1", **more}


class Terminal:
    """A command in a pseudo-terminal of so many columns, which is its controlling one."""

    def __init__(self, *line: str, columns: int = 60, **more: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.child = subprocess.Popen(
            [*COMMAND, *line], stdin=slave, stdout=slave, stderr=slave, env=environment(**more),
            start_new_session=True, preexec_fn=self._take,
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    @staticmethod
    def _take() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    def until(self, words: str) -> str:
        """Everything seen so far, once it holds these words."""
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.seen:
            assert time.monotonic() < deadline, self.seen
            if not self._read():
                raise AssertionError(f"it ended without saying {words!r}: {self.seen}")
        return self.seen

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def ended(self) -> tuple[int, str]:
        """Its exit code and all it said."""
        deadline = time.monotonic() + DEADLINE_S
        while self._read():
            assert time.monotonic() < deadline, self.seen
        return self.child.wait(DEADLINE_S), self.seen.replace("\r\n", "\n")

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.wait()
        os.close(self.master)

    def _read(self) -> bool:
        ready, _, _ = select.select([self.master], [], [], 1.0)
        if not ready:
            return True
        try:
            got = os.read(self.master, 65536)
        except OSError:  # Linux says so when the last one has closed the other end
            return False
        self.seen += got.decode("utf-8", "replace")
        return bool(got)


@pytest.fixture
def terminal() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for one in opened:
        one.close()


def test_a_table_fits_the_terminal_and_stored_text_cannot_act_on_it(store: Path, terminal: list[Terminal]) -> None:
    terminal.append(Terminal("sessions", "ls", str(store), TERM="dumb"))
    code, seen = terminal[0].ended()
    lines = seen.splitlines()
    assert code == 0
    assert lines[0].split() == ["SESSION", "ITEMS", "LAST", "CHANGE", "RUNS", "FIRST", "WORDS"]
    assert all(len(line) <= 60 for line in lines[:4])
    assert "\x1b" not in seen
    assert "\u202e" not in seen
    assert lines[3].split()[:2] == ["invoice-7", "3"]
    assert "3 of 3" in lines[4]


def test_with_colours_only_our_own_get_through(store: Path, terminal: list[Terminal]) -> None:
    terminal.append(Terminal("sessions", "show", str(store), "evil", columns=200))
    code, seen = terminal[0].ended()
    assert code == 0
    assert "\x1b[1m" in seen  # the heading, by rich
    assert "\x1b[2J" not in seen
    assert "\x1b]0;" not in seen
    assert "\\x1b[2J" in seen


def test_a_question_is_asked_and_no_is_no(store: Path, terminal: list[Terminal]) -> None:
    terminal.append(Terminal("sessions", "rm", str(store), "evil", columns=200))
    asked = terminal[0].until("Go on? [y/N] ")
    assert "This removes session evil for good: 2 items, 1 kept generation" in asked
    terminal[0].type("n\n")
    code, seen = terminal[0].ended()
    assert code == 5
    assert "nothing was changed" in seen
    terminal.append(Terminal("sessions", "rm", str(store), "ev", columns=200))
    terminal[1].until("Go on? [y/N] ")
    terminal[1].type("y\n")
    code, seen = terminal[1].ended()
    assert code == 0
    assert "removed session evil" in seen


def test_ctrl_c_at_a_question_changes_nothing(store: Path, terminal: list[Terminal]) -> None:
    terminal.append(Terminal("runs", "approve", str(store), "run-7", "call-1", columns=200))
    assert 'pay {"amount":120,"to":"ACME"}' in terminal[0].until("Go on? [y/N] ")
    terminal[0].type("\x03")
    code, seen = terminal[0].ended()
    assert code == 130
    assert "Traceback" not in seen
    shown = subprocess.run(
        [*COMMAND, "runs", "show", str(store), "run-7", "--json"], capture_output=True, text=True, env=environment()
    )
    assert json.loads(shown.stdout)["status"] == "paused"


def test_tail_follows_a_writer_of_another_process_until_ctrl_c(store: Path, terminal: list[Terminal]) -> None:
    terminal.append(Terminal("sessions", "tail", str(store), "done-1", columns=200))
    terminal[0].until("Hello.")
    writer = program(
        """
        import asyncio, sys
        from standfast import SQLiteSession
        async def main():
            session = SQLiteSession("done-1", sys.argv[1])
            await session.add_items([{"role": "user", "content": "from another process"}])
            await session.close()
        asyncio.run(main())
        """,
        store,
    )
    with writer:
        terminal[0].until("from another process")
    terminal[0].type("\x03")
    code, seen = terminal[0].ended()
    assert code == 130
    assert "Traceback" not in seen
    assert "interrupted" in seen


def test_in_a_pipe_there_is_one_line_for_each_record_and_nothing_else(store: Path) -> None:
    ended = subprocess.run([*COMMAND, "sessions", "ls", str(store)], capture_output=True, env=environment(), check=True)
    assert [line.split(b"\t")[0] for line in ended.stdout.splitlines()] == [b"evil", b"done-1", b"invoice-7"]
    assert b"\x1b" not in ended.stdout + ended.stderr


def test_a_locale_that_cannot_write_a_text_writes_it_out(store: Path) -> None:
    latin = environment(PYTHONUTF8="0", PYTHONIOENCODING="ascii", LC_ALL="C")
    ended = subprocess.run([*COMMAND, "runs", "show", str(store), "run-7"], capture_output=True, env=latin, check=True)
    assert ended.stdout.isascii()
    assert b"WAITS" in ended.stdout


def test_a_reader_that_goes_away_is_no_error(store: Path) -> None:
    """As `| head -1` does: the command ends quietly, and one that changes something does all of it."""
    with open(os.devnull) as nothing:
        for line in (["sessions", "ls", str(store)], ["runs", "prune", str(store), "--keep", "0", "--yes"], ["--help"]):
            read, write = os.pipe()
            os.close(read)  # gone before the first byte
            child = subprocess.Popen(
                [*COMMAND, *line], stdin=nothing, stdout=write, stderr=subprocess.PIPE, env=environment(), text=True
            )
            os.close(write)
            _, said = child.communicate(timeout=DEADLINE_S)
            assert child.returncode == 0, said
            assert "Traceback" not in said
            assert "Exception ignored" not in said
    left = subprocess.run(
        [*COMMAND, "runs", "ls", str(store), "--json"], capture_output=True, text=True, env=environment(), check=True
    )
    assert [json.loads(line)["run"] for line in left.stdout.splitlines()] == ["run-7f04b"]


WRITER = """
    import asyncio, sys
    from standfast import SQLiteSession
    async def main():
        session = SQLiteSession("busy", sys.argv[1])
        await session.add_items([{"role": "user", "content": "first"}])
        print("writing", flush=True)
        number = 0
        while True:
            number += 1
            await session.append([{"role": "user", "content": f"number {number}"}], writer="w", start=number - 1)
            await asyncio.sleep(0.002)
    asyncio.run(main())
"""


def test_every_reading_command_on_a_large_store_that_another_process_writes_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """3,000 sessions, one of 100,000 items, and a writer that never stops."""
    import asyncio

    from bench.bench_looking import filled as filled_by_sql
    from standfast._kits.cli import entry

    store = tmp_path / "large.db"
    asyncio.run(filled_by_sql(store, 3_000, 100_000))
    writer = program(WRITER, store)
    try:
        wait_for(writer, "writing")
        for line, expected in (
            (["sessions", "ls"], 50),
            (["sessions", "ls", "--all", "--brief"], 3_001),
            (["sessions", "ls", "--all"], 3_001),
            (["sessions", "ls", "--prefix", "s29"], 50),
            (["sessions", "show", "long", "-n", "100"], 101),
            (["sessions", "tail", "long", "--for", "1"], 10),
            (["sessions", "search", "LISBON", "--session", "long"], 1),
            (["sessions", "search", "porto", "-n", "120"], 120),
            (["sessions", "stats"], 1),
            (["runs", "ls"], 0),
        ):
            group, command, *rest = line
            assert entry.main([group, command, str(store), *rest, "--json"]) == 0, line
            records = [json.loads(one) for one in capsys.readouterr().out.splitlines()]
            found = [one for one in records if one["schema"] != "standfast.page/1"]
            assert len(found) == expected, line
        assert found == []
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.communicate()
