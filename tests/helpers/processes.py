"""Child processes for tests: forked cheaply, told what to do, heard, signalled, and always reaped.

A child dies with its parent (it asks the kernel to be killed when the fork server ends), dies of old age (`LIFE_S`),
and is killed at the end of its `with` block whatever happened. Nothing here sleeps for a fixed time: a test waits for
what a child says, or for its end, and gives up after `PATIENCE_S`.
"""

from __future__ import annotations

import asyncio
import ctypes
import inspect
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from helpers.children import nursery
from helpers.counts import tried

from standfast import SQLiteSession
from standfast._src.base.errors import StoreError

PATIENCE_S = 60.0
LIFE_S = 150
PR_SET_PDEATHSIG = 1

Program = Callable[..., Any]
"""A function of an importable module, async or not: `program(line, **told)`. What it returns is its result."""


class Child:
    """A process that runs `program(line, **told)`; `line` is a `Line` to its parent."""

    def __init__(self, program: Program, /, **told: Any) -> None:
        context = nursery()
        self._line, there = context.Pipe()
        self._process = context.Process(target=_live, args=(program, told, there), daemon=True)
        self._process.start()
        there.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        tried["processes"] += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()
        self._line.close()

    def hear(self, patience_s: float = PATIENCE_S) -> Any:
        """The next thing it says; `None` if it ended without saying more."""
        assert self._line.poll(patience_s), f"the child said nothing for {patience_s:.0f} s"
        try:
            return self._line.recv()
        except (EOFError, ConnectionResetError):
            return None

    def has_said(self) -> bool:
        """Whether there is something to hear now: a word, or its end."""
        return self._line.poll()

    def hear_until(self, word: str) -> Any:
        """Listen until it says `word` (alone, or first in a tuple)."""
        while True:
            said = self.hear()
            assert said is not None, f"the child ended before it said {word!r}"
            if said == word or (isinstance(said, tuple) and said[0] == word):
                return said
            assert not isinstance(said, tuple) or said[0] != "ended", f"it ended with {said} before it said {word!r}"

    def say(self, word: Any) -> None:
        self._line.send(word)

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)
        if number is not signal.SIGCONT:
            tried[f"times {number.name}"] += 1

    def result(self) -> tuple[str, str]:
        """How its program ended: ("ok", what it returned) or (the error's name, its text)."""
        while True:
            said = self.hear()
            if said is None:
                tried["processes that died by themselves"] += 1
                return ("died", str(self.exit_code()))
            if isinstance(said, tuple) and said[0] == "ended":
                return (said[1], said[2])

    def exit_code(self) -> int | None:
        """Its exit code, once it has ended; None if it hangs."""
        self._process.join(PATIENCE_S)
        return self._process.exitcode

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends in this time."""
        self._process.join(seconds)
        return self._process.exitcode is not None

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        tried["times SIGKILL"] += 1
        self._process.kill()
        self._process.join(PATIENCE_S)


class Line:
    """A child's end: it says where it stands, and waits until it is told to go on."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def say(self, word: Any) -> None:
        self._connection.send(word)

    async def told(self) -> Any:
        """Wait for the parent's next word without a thread, so that a cancellation ends it at once."""
        while not self._connection.poll():
            await asyncio.sleep(0.005)
        return self._connection.recv()

    def told_now(self) -> Any:
        """Wait for the parent's next word and block everything."""
        return self._connection.recv()

    async def stand(self, place: Any) -> None:
        """Say "here" and this place, and wait for a word."""
        self.say(("here", place))
        await self.told()


def _live(program: Program, told: dict[str, Any], connection: Connection) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs inherit it as ignored
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.alarm(LIFE_S)
    try:
        given = program(Line(connection), **told)
        value = asyncio.run(given) if inspect.iscoroutine(given) else given
        ended = ("ended", "ok", value)
    except Exception as error:
        ended = ("ended", type(error).__name__, str(error))
    connection.send(ended)


def stop_outside_writes(pid: int, path: str | Path) -> None:
    """SIGSTOP a process, but not while it writes to this database: stopped there it would keep the file's lock.

    Nobody can write then, whatever they are told to do; that is SQLite's, and not what the callers are about.
    """
    for _ in range(50):
        os.kill(pid, signal.SIGSTOP)
        if asyncio.run(_takes_a_write(path)):
            tried["times SIGSTOP"] += 1
            return
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
    raise AssertionError(f"process {pid} is always at a write")


async def _takes_a_write(path: str | Path) -> bool:
    probe = SQLiteSession("probe", path, timeout_s=2.0)
    try:
        await (await probe.lease(ttl_s=1.0, wait_s=0.0, renewed=False)).release()
    except StoreError:
        return False
    finally:
        probe.close()
    return True


def exit_between_callbacks(number: signal.Signals) -> None:
    """Let a signal raise SystemExit out of the running loop, between two of its callbacks.

    A handler of `signal.signal` that raises does so anywhere, also where asyncio has taken a callback off its queue and
    not called it yet. That callback is lost, and `asyncio.run` waits for its task without end: tests/attacks/README.md
    has the numbers.
    """
    asyncio.get_running_loop().add_signal_handler(number, sys.exit, 0)


def wait_until(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """What `condition` gives as soon as it is true."""
    end = time.monotonic() + patience_s
    while not (found := condition()):
        assert time.monotonic() < end, f"{condition} was not true within {patience_s:.0f} s"
        time.sleep(0.005)
    return found


async def eventually(condition: Callable[[], Any], patience_s: float = PATIENCE_S) -> Any:
    """The same inside a loop; the condition may be async."""
    end = time.monotonic() + patience_s
    while True:
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert time.monotonic() < end, f"{condition} was not true within {patience_s:.0f} s"
        await asyncio.sleep(0.005)


def played(play: Callable[[Path, int], list[str]], folder: Path, group: int, count: int) -> dict[int, list[str]]:
    """What is wrong in each of so many stories, by its seed: every fourth one, from `group` on."""
    seeds = range(group, 4 * count + group, 4)
    return {seed: found for seed in seeds if (found := play(folder / f"{seed}.db", seed))}
