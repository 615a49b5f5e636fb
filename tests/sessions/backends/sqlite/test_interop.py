"""One file, two programs: the OpenAI Agents SDK and standfast, one after the other and at the same time (B10)."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents.memory.sqlite_session import SQLiteSession as PeerSession

from standfast._src.base.errors import CorruptRecordError, SessionConflictError
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast._src.sessions.protocol import Head, Position


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def texts(items: list[dict[str, Any]]) -> list[str]:
    return [item["content"] for item in items]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shared.db"


async def test_a_database_of_the_sdk_opens_as_it_is_and_stays_readable_by_it(path: Path) -> None:
    peer = PeerSession("s", path)
    odd = [message("café \U0001f600"), {"type": "reasoning", "n": 2**70, "nested": [{"a": None, "b": 1.0}]}]
    await peer.add_items(odd)
    ours = SQLiteSession("s", path)
    assert await ours.get_items() == odd
    await ours.add_items([message("from us"), {"half": "\ud800", "nul": "a\x00b"}])
    await ours.append([message("by a writer")], writer="run", start=0)
    assert await peer.get_items() == await ours.get_items()
    assert await peer.pop_item() == message("by a writer")
    assert await ours.pop_item() == {"half": "\ud800", "nul": "a\x00b"}
    peer.close()
    ours.close()


async def test_the_sdks_tables_are_as_it_makes_them_and_ours_are_additions_only(path: Path, tmp_path: Path) -> None:
    """Nothing but nullable columns and further tables; no triggers."""
    PeerSession("s", tmp_path / "peer.db").close()
    ours = SQLiteSession("s", path)
    await ours.add_items([message("x")])
    ours.close()

    def layout(file: Path) -> tuple[dict[str, list[tuple[Any, ...]]], set[tuple[str, str]]]:
        with closing(sqlite3.connect(file)) as db:
            tables = {
                name: db.execute(f"PRAGMA table_info({name})").fetchall()
                for name in ("agent_sessions", "agent_messages")
            }
            things = set(db.execute("SELECT type, name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"))
        return tables, things

    peer_tables, peer_things = layout(tmp_path / "peer.db")
    our_tables, our_things = layout(path)
    for name, columns in peer_tables.items():
        assert our_tables[name][: len(columns)] == columns
        for _, _, _, not_null, default, in_key in our_tables[name][len(columns) :]:
            assert (not_null, default, in_key) == (0, None, 0)
    assert peer_things <= our_things
    assert {kind for kind, _ in our_things} == {"table", "index"}
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA index_info(idx_agent_messages_session_id)").fetchall() == [
            (0, 1, "session_id"),
            (1, 0, "id"),
        ]


async def test_what_the_sdk_does_moves_the_head_and_is_never_rewound(path: Path) -> None:
    ours, peer = SQLiteSession("s", path), PeerSession("s", path)
    before = await ours.append([message("1")], writer="run", start=0)
    await peer.add_items([message("theirs")])
    assert await ours.head() != before
    with pytest.raises(SessionConflictError) as conflict:
        await ours.append([message("2")], writer="run", start=1, expect=before)
    assert (conflict.value.expected, conflict.value.actual) == (before, await ours.head())
    with pytest.raises(SessionConflictError):
        await ours.rewind(writer="run", to=0)
    assert await peer.pop_item() == message("theirs")
    assert await ours.head() == before, "the same history has the same head, whoever came and went"
    await ours.rewind(writer="run", to=0)
    assert await peer.get_items() == []
    peer.close()
    ours.close()


async def test_the_sdks_pop_and_clear_leave_a_writers_count(path: Path) -> None:
    """A late repeat brings nothing back, although only the SDK removed the items (B1)."""
    ours, peer = SQLiteSession("s", path), PeerSession("s", path)
    batch = [message("1"), message("2")]
    await ours.append(batch, writer="run", start=0)
    await peer.pop_item()
    await ours.append(batch, writer="run", start=0)
    assert texts(await ours.get_items()) == ["1"]
    await peer.clear_session()
    await ours.append(batch, writer="run", start=0)
    assert await ours.get_items() == []
    assert await ours.accepted("run") == 2
    assert await ours.info() is None
    peer.close()
    ours.close()


async def test_generations_end_with_the_sdks_clear(path: Path) -> None:
    ours, peer = SQLiteSession("s", path), PeerSession("s", path)
    await ours.add_items([message("1"), message("2")])
    await ours.replace([message("sum")], upto=await ours.head())
    (old,) = await ours.generations()
    await peer.clear_session()
    assert await ours.generations() == []
    await peer.add_items([message("new")])
    with pytest.raises(LookupError):
        await ours.restore(old.id)
    await ours.replace([message("new sum")], upto=await ours.head())
    assert [kept.id for kept in await ours.generations()] != [old.id]
    assert texts(await ours.get_items()) == ["new sum"]
    with closing(sqlite3.connect(path)) as db:
        kept = db.execute("SELECT count(*) FROM agent_messages_standfast_archive").fetchone()
    assert kept == (1,), "what the dead generation held is gone for good"
    peer.close()
    ours.close()


async def test_replace_and_undo_hold_while_the_sdk_appends_and_pops(path: Path) -> None:
    ours, peer = SQLiteSession("s", path), PeerSession("s", path)
    await peer.add_items([message("1"), message("2"), message("3")])
    upto = await ours.head()
    await peer.add_items([message("4")])
    await ours.replace([message("sum")], upto=upto)
    assert texts(await peer.get_items()) == ["sum", "4"]
    await peer.add_items([message("5")])
    await peer.pop_item()
    (kept,) = await ours.generations()
    await ours.restore(kept.id)
    assert texts(await peer.get_items()) == ["1", "2", "3", "4"]
    with pytest.raises(SessionConflictError):
        await ours.replace([message("late")], upto=upto)
    upto = await ours.head()
    await peer.pop_item()
    with pytest.raises(SessionConflictError):
        await ours.replace([message("late")], upto=upto)
    assert texts(await peer.get_items()) == ["1", "2", "3"]
    peer.close()
    ours.close()


async def test_a_history_that_was_pruned_from_the_front_has_moved(path: Path) -> None:
    """Retention jobs delete old rows; a compaction that began before must not replace what is left (B3)."""
    ours = SQLiteSession("s", path)
    await ours.add_items([message(str(n)) for n in range(4)])
    upto = await ours.head()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DELETE FROM agent_messages WHERE id IN (SELECT id FROM agent_messages ORDER BY id LIMIT 2)")
    assert await ours.head() != upto
    with pytest.raises(SessionConflictError):
        await ours.replace([message("sum of four")], upto=upto)
    ours.close()


async def test_a_record_the_sdk_cannot_read_is_left_alone_by_everything_but_repair(path: Path) -> None:
    ours = SQLiteSession("s", path)
    await ours.append([message("1"), message("2")], writer="run", start=0)
    with closing(sqlite3.connect(path)) as db, db:
        for data in (b"\xff\xfe", b"[1]", b"null", b"{broken"):
            db.execute("INSERT INTO agent_messages (session_id, message_data) VALUES ('s', CAST(? AS TEXT))", (data,))
    assert texts(await ours.get_items()) == ["1", "2"]
    assert texts(await ours.get_items(limit=1)) == ["2"]
    assert texts((await ours.page(limit=1)).items) == ["2"]
    with pytest.raises(CorruptRecordError):
        await ours.rewind(writer="run", to=1)
    await ours.replace([message("sum")], upto=await ours.head())
    assert texts(await ours.get_items()) == ["sum"]
    fork = await ours.fork("copy", at=Position(2, generation=(await ours.generations())[0].id))
    assert texts(await fork.get_items()) == ["1", "2"]
    assert await ours.pop_item() == message("sum")
    found = await ours.corrupt_records()
    assert [record.data for record in found] == [b"\xff\xfe", b"[1]", b"null", b"{broken"]
    assert await ours.repair() == found
    assert await ours.corrupt_records() == []
    assert await ours.head() == Head()
    ours.close()
    fork.close()


# --- at the same time, from another process ------------------------------------------------------------------------


def _peer_works(path: str, count: int, ready: Any, done: Any) -> None:
    """What an SDK program does beside us: append, pop its own, clear a session of its own."""

    async def work() -> None:
        shared, own = PeerSession("shared", path), PeerSession("own", path)
        ready.set()
        for number in range(count):
            await shared.add_items([message(f"peer {number} a"), message(f"peer {number} b")])
            await own.add_items([message("mine")])
            if number % 5 == 4:
                assert await own.pop_item() == message("mine")
            if number % 10 == 9:
                await own.clear_session()
        shared.close()
        own.close()

    asyncio.run(work())
    done.set()


@pytest.mark.parametrize("damaged", ['{"content', "[7]", "7"])
async def test_a_writers_record_that_was_damaged_hides_none_of_its_others(path: Path, damaged: str) -> None:
    """A14: a writer's items are read together, and one that is none must not keep the others from being read."""
    session = SQLiteSession("s", path)
    await session.append([message(text) for text in "abc"], writer="w", start=0)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("UPDATE agent_messages SET message_data = ? WHERE message_data LIKE '%\"b\"%'", (damaged,))
    assert texts(await session.written("w")) == ["a", "c"]
    assert [record.data for record in await session.corrupt_records()] == [damaged.encode()]
    session.close()


async def test_both_programs_write_one_session_at_the_same_time_and_nothing_is_lost(path: Path) -> None:
    """Batches of both stay whole and in order; a replace in between keeps what the SDK appends meanwhile."""
    first = SQLiteSession("shared", path)
    await first.add_items([message("ours -1")])
    spawn = multiprocessing.get_context("spawn")
    ready, done = spawn.Event(), spawn.Event()
    process = spawn.Process(target=_peer_works, args=(str(path), 60, ready, done))
    process.start()
    try:
        await asyncio.to_thread(ready.wait, 60)
        ours, appended, replaced = SQLiteSession("shared", path), 0, 0
        while not done.is_set() or appended < 30:
            await ours.append([message(f"ours {appended}")], writer="run", start=appended)
            appended += 1
            if appended % 7 == 0:
                upto = await ours.head()
                before = await ours.get_items()
                if await ours.head() == upto:  # or the SDK appended between the two reads
                    await ours.replace(before, upto=upto)  # it only appends: what is up to the head cannot move
                    replaced += 1
        await asyncio.to_thread(process.join, 60)
        assert process.exitcode == 0
        found = texts(await ours.get_items())
        theirs = [text for text in found if text.startswith("peer")]
        assert theirs == [f"peer {number} {part}" for number in range(60) for part in "ab"]
        for number in range(60):
            place = found.index(f"peer {number} a")
            assert found[place + 1] == f"peer {number} b", "a batch was split"
        assert [text for text in found if text.startswith("ours")] == [f"ours {n}" for n in range(-1, appended)]
        assert replaced
        with closing(sqlite3.connect(path)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            rows = db.execute("SELECT message_data FROM agent_messages WHERE session_id = 'shared' ORDER BY id")
            assert [json.loads(data)["content"] for (data,) in rows] == found
        ours.close()
    finally:
        first.close()
        if process.is_alive():
            process.terminate()
            process.join()
