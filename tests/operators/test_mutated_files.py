"""Seeded mutations of every file that standfast reads: exports, undo files, run states and SQLite files.

Each is read correctly or refused with one error that has a remedy. A refusal stores nothing, and no other session is
touched. The short tier runs the first of 13 seeds, `--all` every one: 2,080 mutations. A failure names the seed and the
number that bring it back; `STANDFAST_MUTATIONS=1000` makes as many of each seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    RunConfig,
    Runner,
    RunState,
    SQLiteSession,
    StandfastError,
    examine_store,
    export_session,
    import_session,
    open_store,
    repair_store,
    undo_repair,
)
from tests.operators.forged import closed
from tests.runs.saved_runs.payment_app import Desk, asks, pay, says

COUNT = int(os.environ.get("STANDFAST_MUTATIONS", "40"))
SEEDS = pytest.mark.parametrize("seed", [26, *(pytest.param(seed, id=f"more-{seed}") for seed in range(27, 39))])

ODD: list[Any] = [
    None, True, -1, 0, 2**63, 10**400, 1e308, -1e300, float("nan"), float("inf"), "", "two", "\ud800", "\0", "x" * 300,
    [], {}, [[]], {"a": {}}, "[" * 2000,
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value but the whole of it."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = [path] if path else []
    for key, one in inner:
        found += places(one, (*path, key))
    return found


def changed(value: Any, chance: random.Random) -> Any:
    """The value with something odd at one place, or without it, or with one more."""
    spots = places(value)
    if not spots:
        return chance.choice(ODD)
    *path, last = chance.choice(spots)
    inner = value
    for key in path:
        inner = inner[key]
    match chance.randrange(4):
        case 0:
            del inner[last]
        case 1 if isinstance(inner, dict):
            inner[chance.choice(["kind", "session", "id", "more"])] = chance.choice(ODD)
        case _:
            inner[last] = chance.choice(ODD)
    return value


def mutated_lines(data: bytes, chance: random.Random) -> list[bytes]:
    """The lines of a file with one to three of them changed, repeated, moved or taken out."""
    lines = data.splitlines(keepends=True)
    for _ in range(chance.randint(1, 3)):
        place = chance.randrange(len(lines))
        match chance.randrange(8):
            case 0:
                lines.insert(chance.randrange(len(lines)), lines[place])
            case 1 if len(lines) > 1:
                del lines[place]
            case 2:
                line = bytearray(lines[place])
                line[chance.randrange(len(line))] = chance.randrange(256)
                lines[place] = bytes(line)
            case _:
                with contextlib.suppress(ValueError, UnicodeDecodeError):
                    lines[place] = json.dumps(changed(json.loads(lines[place]), chance)).encode() + b"\n"
    return lines


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def tried(what: Callable[[], Any], case: str) -> bool:
    """Whether it was done; a refusal is one error with a remedy."""
    try:
        await what()
    except StandfastError as error:
        if not error.remedy:
            raise AssertionError(f"{case}: no remedy") from error
        return False
    except Exception as error:
        raise AssertionError(f"{case}: {type(error).__name__}: {error}") from error
    return True


async def state_of(path: Path, session_id: str) -> Any:
    async with open_store(path, read_only=True) as store:
        session = store.session(session_id)
        try:
            runs = [one for one in (await store.runs()).runs if one.session_id == session_id]
            return await session.get_items(), runs, await session.head()
        finally:
            await session.close()


async def ids_in(path: Path) -> set[str]:
    async with open_store(path, read_only=True) as store:
        return {one.session_id for one in (await store.sessions()).sessions}


async def world(path: Path) -> Desk:
    """A store with session `one`, which has generations, usage, an ended run and one that waits, and session `two`."""
    session, other = SQLiteSession("one", path), SQLiteSession("two", path)
    desk = Desk([says("Hello."), asks(pay(7, "call-1")), says("Paid.")])
    await session.append([message("a"), message("b")], writer="w", start=0)
    await desk.run("Hi", session=session, run_config=RunConfig(run_id="run-0"))
    await session.replace([message("short")], upto=await session.head())
    await desk.run("Pay", session=session, run_config=RunConfig(run_id="run-1"))
    await other.add_items([message("of two")])
    await session.close()
    await other.close()
    return desk


@SEEDS
async def test_exports(tmp_path: Path, seed: int) -> None:
    home, target, copy = tmp_path / "home.db", tmp_path / "target.db", tmp_path / "copy.db"
    await world(home)
    await export_session(home, "one", file := tmp_path / "one.jsonl", move=True)
    two = SQLiteSession("two", target)
    await two.add_items([message("kept")])
    await two.close()  # what is not closed may have its last write in the log beside the file, which is not copied
    before, data, chance = await state_of(target, "two"), file.read_bytes(), random.Random(seed)
    done = 0
    for number in range(COUNT):
        lines = mutated_lines(data, chance)
        given = closed(lines[:-1]) if chance.random() < 0.9 else b"".join(lines)
        case = f"export, seed {seed}, number {number}"
        shutil.copy(target, copy)
        accept = chance.random() < 0.7
        is_done = await tried(lambda g=given, a=accept: import_session(copy, io.BytesIO(g), accept_runs=a), case)
        done += is_done
        come = await ids_in(copy) - {"two"}
        assert len(come) == is_done, case
        assert await state_of(copy, "two") == before, case
        for session_id in come:
            await state_of(copy, session_id)
    assert 0 < done < COUNT


@SEEDS
async def test_undo_files(tmp_path: Path, seed: int) -> None:
    path, copy = tmp_path / "talks.db", tmp_path / "copy.db"
    call = {"type": "function_call", "name": "look", "call_id": "c", "arguments": "{}"}
    async with open_store(path, create=True) as store:
        for name, items in (("one", [message("a"), call, message("b")]), ("two", [message("of two")])):
            session = store.session(name)
            await session.add_items(items)
            await session.close()
        report = await repair_store(store, tmp_path / "undo", clock=lambda: 4e9)
        assert report.of("repaired")
    before, data, chance = await state_of(path, "two"), (tmp_path / "undo").read_bytes(), random.Random(seed)
    for number in range(COUNT):
        (tmp_path / "changed").write_bytes(b"".join(mutated_lines(data, chance)))
        case = f"undo file, seed {seed}, number {number}"
        shutil.copy(path, copy)
        await tried(lambda: undo_repair(tmp_path / "changed", copy), case)
        assert await state_of(copy, "two") == before, case
        assert {"one", "two"} <= await ids_in(copy), case
        await state_of(copy, "one")


@SEEDS
async def test_run_states(seed: int) -> None:
    desk = Desk([asks(pay(7, "call-1")), says("Paid.")])
    result = await desk.run("Please pay.")
    text, chance = result.to_state().to_string(), random.Random(seed)
    for number in range(COUNT):
        payload = json.loads(text)
        for _ in range(chance.randint(1, 3)):
            payload = changed(payload, chance)

        async def used(given: str = json.dumps(payload)) -> None:
            state = await RunState.from_string(desk.agent, given)
            for item in state.get_interruptions():
                state.reject(item)
            await Runner.run(Desk([says("No.")]).agent, state)

        await tried(used, f"run state, seed {seed}, number {number}")
    assert desk.done == []


COLUMNS = {
    "agent_messages_standfast_cells": ("name", "epoch", "value"),
    "agent_messages_standfast_runs": ("created_at", "updated_at", "epoch", "changed", "labels"),
    "agent_messages": ("message_data", "created_at", "standfast_writer", "standfast_ordinal", "standfast_replaces"),
    "agent_sessions": ("created_at", "updated_at", "standfast_epoch", "standfast_edition", "standfast_changed"),
    "agent_messages_standfast_archive": ("message_data", "standfast_writer", "standfast_ordinal"),
    "standfast_schema": ("version",),
}
IN_COLUMNS: list[Any] = [
    None, -1, 0, 2**62, 1e300, "", "two", "[]", "{}", "null", '{"status":5}', b"", b"\xff\x00", b"null", b"[" * 5000,
]  # fmt: skip


def damage(path: Path, chance: random.Random) -> None:
    """Put something odd into a row of a table, or into the bytes of the file."""
    if chance.random() < 0.2:
        data = bytearray(path.read_bytes())
        for _ in range(chance.randint(1, 20)):
            data[chance.randrange(100, len(data))] = chance.randrange(256)
        path.write_bytes(data)
        return
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=DELETE")
        table = chance.choice(list(COLUMNS))
        column = chance.choice(COLUMNS[table])
        where = "1" if table.endswith("_archive") else f"rowid % {chance.randint(1, 3)} = 0"  # that one has no row ids
        with contextlib.suppress(sqlite3.Error):  # a column that refuses it is as it was
            db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (chance.choice(IN_COLUMNS),))


async def read_all(path: Path) -> None:
    """Read whatever a command shows, each part by itself: one that is refused does not hide the next."""

    async def examined() -> None:
        async with open_store(path, read_only=True) as store:
            assert all(one.remedy for one in [one async for one in examine_store(store)])

    async def listed() -> None:
        async with open_store(path, read_only=True) as store:
            await store.sessions()
            await store.runs()

    async def of_session() -> None:
        async with open_store(path, read_only=True) as store:
            session = store.session("one")
            await session.get_items()
            await session.generations()
            await session.usage()
            await session.close()

    async def of_run() -> None:
        async with open_store(path, read_only=True) as store:
            await store.run("run-1")

    for part in (examined, listed, of_session, of_run, lambda: export_session(path, "one", io.BytesIO())):
        with contextlib.suppress(StandfastError):
            await part()


@SEEDS
async def test_sqlite_files(tmp_path: Path, seed: int) -> None:
    path, copy, chance = tmp_path / "talks.db", tmp_path / "copy.db", random.Random(seed)
    await world(path)
    for number in range(COUNT):
        shutil.copy(path, copy)
        damage(copy, chance)
        before = copy.read_bytes()
        assert await tried(lambda: asyncio.wait_for(read_all(copy), 60), f"SQLite file, seed {seed}, number {number}")
        assert copy.read_bytes() == before
