"""An engine of aiosqlite's that was handed in, in a process that is killed while it writes."""

from __future__ import annotations

import asyncio
import os
import signal
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from standfast import SQLAlchemySession
from standfast.conformance import message
from tests.helpers.children import born, ended, killed, pipe

MOMENTS_MAX = 200
"""More than a turn has: the loop below ends with the first turn that outlives its death."""

CALM_TURNS = 2


def _url(path: Path) -> str:
    return f"sqlite+aiosqlite:///{path}"


def _die_at(engine: AsyncEngine, moment: int) -> None:
    """Kill this process at that moment from now on: before a statement or a commit, or when all was committed."""
    left = count(moment, -1)

    def die(*_: Any) -> None:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sa.event.listen(engine.sync_engine, "before_cursor_execute", die)
    sa.event.listen(engine.sync_engine, "commit", die)
    sa.event.listen(engine.sync_engine.pool, "checkin", die)


async def _talk(path: Path, first: int, life: int, said: Connection, moment: int | None) -> None:
    """Append turns from that one on, as a writer and as nobody, and tell of each that was acknowledged."""
    engine = create_async_engine(_url(path))
    session = SQLAlchemySession("talk", engine=engine, create_tables=True)
    for turn in count(first):
        if moment is not None and turn == first + CALM_TURNS:
            _die_at(engine, moment)
        await session.append([message(f"{turn}a"), message(f"{turn}b")], writer="run", start=2 * turn)
        said.send(("run", turn))
        await session.add_items([message(f"life {life}, {turn}, a"), message(f"life {life}, {turn}, b")])
        said.send(("life", turn))
        if moment is not None and turn == first + CALM_TURNS:
            break
    await session.close()
    await engine.dispose()


def talk(path: Path, first: int, life: int, said: Connection, moment: int | None) -> None:
    """The child's work."""
    asyncio.run(_talk(path, first, life, said, moment))


class Lives:
    """Processes that come one after another, each going on where the one before it was killed."""

    def __init__(self, path: Path) -> None:
        self.path, self.turn, self.life = path, 0, 0
        self.told: set[tuple[int, int]] = set()
        """The life and the turn of what was added by nobody in particular, and acknowledged."""

    def begin(self, moment: int | None = None) -> tuple[Any, Connection]:
        """Start the next; the process, and where it tells what was acknowledged."""
        self.life += 1
        listening, said = pipe()
        child = born(talk, self.path, self.turn, self.life, said, moment)
        said.close()
        return child, listening

    def hear(self, listening: Connection, until: int | None = None) -> None:
        """Note what is acknowledged, until the process has ended or has told of so many turns."""
        heard = 0
        try:
            while until is None or heard < until:
                who, turn = listening.recv()
                if who == "run":
                    self.turn = turn + 1
                    heard += 1
                else:
                    self.told.add((self.life, turn))
        except EOFError:
            pass

    async def check(self) -> None:
        """What was acknowledged is there, in order; nothing is there twice, and no batch in part."""
        engine = create_async_engine(_url(self.path))
        session = SQLAlchemySession("talk", engine=engine, create_tables=True)
        found = [item["content"] for item in await session.get_items()]
        await session.close()
        await engine.dispose()
        run = [text for text in found if not text.startswith("life")]
        assert run[: 2 * self.turn] == [f"{turn}{part}" for turn in range(self.turn) for part in "ab"]
        assert run[2 * self.turn :] in ([], [f"{self.turn}a", f"{self.turn}b"])
        lives = [text.removeprefix("life ").split(", ") for text in found if text.startswith("life")]
        assert [part for *_, part in lives] == ["a", "b"] * (len(lives) // 2)
        batches = [(int(life), int(turn)) for life, turn, _ in lives[::2]]
        assert batches == [(int(life), int(turn)) for life, turn, _ in lives[1::2]]
        assert len(set(batches)) == len(batches)
        assert self.told <= set(batches)


async def test_a_process_killed_at_any_statement_loses_and_doubles_nothing(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "talks.db")
    deaths = 0
    for moment in range(MOMENTS_MAX):
        child, listening = lives.begin(moment)
        await asyncio.to_thread(lives.hear, listening)
        if not ended(child):
            break
        deaths += 1
        await lives.check()
    assert 20 < deaths < MOMENTS_MAX  # two writes of some twelve statements each, their commits and what comes behind
    await lives.check()


async def test_a_process_killed_while_it_writes_loses_and_doubles_nothing(tmp_path: Path) -> None:
    lives = Lives(tmp_path / "talks.db")
    for turns in range(1, 9):
        child, listening = lives.begin()
        await asyncio.to_thread(lives.hear, listening, turns)
        killed(child)
        await asyncio.to_thread(lives.hear, listening)  # what it told before it was killed
        await lives.check()
