"""Listing sessions by the store's own order of changes, other programs' included, a page at a page's cost (B9)."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from agents.memory.sqlite_session import SQLiteSession as PeerSession

from standfast._src.base.errors import NotFoundError
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from tests.sessions.backends.sqlite.inside import connections

__all__ = ["connections"]


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


async def listed(session: SQLiteSession, limit: int = 100) -> list[str]:
    """Every session, page by page."""
    found: list[str] = []
    after: str | None = None
    while True:
        page = await session.list_sessions(after=after, limit=limit)
        found += [info.session_id for info in page.sessions]
        after = page.after
        if after is None:
            return found


async def test_the_order_is_that_of_the_changes_whatever_the_clock_did(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = {name: SQLiteSession(name, path) for name in "abc"}
    real = time.time
    for name, ahead in (("a", 7200), ("b", 0), ("c", -7200)):
        monkeypatch.setattr(time, "time", lambda ahead=ahead: real() + ahead)
        await sessions[name].add_items([message(name)])
    assert await listed(sessions["a"]) == ["c", "b", "a"]
    await sessions["b"].pop_item()
    assert await listed(sessions["a"]) == ["b", "c", "a"]
    async with await sessions["a"].lease(ttl_s=5, wait_s=1):
        pass
    await sessions["c"].add_items([])
    assert await listed(sessions["a"], limit=1) == ["b", "c", "a"]
    for session in sessions.values():
        session.close()


async def test_sessions_that_take_turns_stand_in_the_order_of_their_last_changes(path: Path) -> None:
    """Those that stand first in the order in which they are written again keep their numbers (B9), not their times."""
    sessions = {name: SQLiteSession(name, path) for name in "abcd"}
    expected: list[str] = []
    accepted = dict.fromkeys(sessions, 0)
    before = await sessions["a"].list_sessions(limit=20)
    for turn in ("abcd", "abcd", "abcd", "bacd", "bacd", "cd", "dc", "d", "d", "abdc", "abdc", "cab", "ab", "ab"):
        await asyncio.gather(
            *(sessions[name].append([message(turn)], writer="w", start=accepted[name]) for name in turn)
        )
        for name in turn:
            accepted[name] += 1
            expected = [name, *(one for one in expected if one != name)]
        page = await sessions["a"].list_sessions(limit=20)
        assert [info.session_id for info in page.sessions] == expected
        updated = {info.session_id: info.updated_at for info in before.sessions}
        for info in page.sessions:
            has_moved = info.session_id not in updated or info.updated_at > updated[info.session_id]
            assert has_moved == (info.session_id in turn)
        before = page
    for session in sessions.values():
        session.close()
    again = SQLiteSession("a", path)  # with nothing in mind
    assert await listed(again) == expected
    again.close()


async def test_what_another_program_writes_comes_first_until_we_write_again(path: Path) -> None:
    ours = [SQLiteSession(f"ours {number}", path) for number in range(3)]
    peers = [PeerSession(f"peer {number}", path) for number in range(3)]
    for session in ours:
        await session.add_items([message("1")])
    for peer in peers:
        await peer.add_items([message("1")])
    peers.append(PeerSession("ours 0", path))
    await peers[-1].add_items([message("2")])
    expected = ["ours 0", "peer 2", "peer 1", "peer 0", "ours 2", "ours 1"]
    for limit in (1, 2, 100):
        assert await listed(ours[0], limit) == expected
    page = await ours[0].list_sessions(limit=2)
    await ours[1].add_items([message("2")])  # ours is the newest now, and theirs keep their order
    assert await listed(ours[0]) == ["ours 1", "ours 0", "peer 2", "peer 1", "peer 0", "ours 2"]
    rest = await ours[0].list_sessions(after=page.after, limit=100)
    assert [info.session_id for info in rest.sessions] == ["peer 1", "peer 0", "ours 2"], "a page goes on where it was"
    await peers[0].clear_session()
    assert await listed(ours[0]) == ["ours 1", "ours 0", "peer 2", "peer 1", "ours 2"]
    assert await ours[0].count_sessions() == 5
    for one in (*ours, *peers):
        one.close()


async def test_a_file_of_another_program_is_listed_by_its_newest_records(path: Path) -> None:
    peers = {name: PeerSession(name, path) for name in "abc"}
    for name in "abca":
        await peers[name].add_items([message(name)])
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("INSERT INTO agent_sessions (session_id) VALUES ('empty')")
    session = SQLiteSession("-", path)
    assert await listed(session) == ["a", "c", "b", "empty"]
    for name in "zy":
        with closing(sqlite3.connect(path)) as db, db:
            db.execute("INSERT INTO agent_sessions (session_id) VALUES (?)", (f"empty {name}",))
    for limit in (1, 2, 100):
        assert await listed(session, limit) == ["a", "c", "b", "empty", "empty y", "empty z"]
    session.close()
    for peer in peers.values():
        peer.close()


async def test_a_page_costs_what_a_page_costs(path: Path, connections: list[sqlite3.Connection]) -> None:
    """Counted in steps of SQLite's machine, with 100 sessions and with 5,000."""
    session = SQLiteSession("first", path)
    await session.add_items([message("1")])
    await session.list_sessions(limit=20)

    async def steps() -> int:
        counted = [0]

        def count() -> None:
            counted[0] += 1

        known = list(connections)
        for db in known:
            db.set_progress_handler(count, 10)
        page = await session.list_sessions(limit=20)
        while page.after is not None and len(page.sessions) == 20 and counted[0] < 10_000:
            page = await session.list_sessions(after=page.after, limit=20)
            break
        for db in known:
            db.set_progress_handler(None, 10)
        # A reader that opened its file only now was not counted: then all of it is counted again.
        return counted[0] if known == connections else await steps()

    found = []
    for start, end in ((0, 100), (100, 5_000)):
        with closing(sqlite3.connect(path)) as db, db:
            db.executemany(
                "INSERT INTO agent_sessions (session_id) VALUES (?)", [(f"s{n}",) for n in range(start, end)]
            )
            rows = [(f"s{n}", "{}") for n in range(start, end)]
            db.executemany("INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)", rows)
        await session.add_items([message("2")])  # takes note of what was written meanwhile, at its cost
        found.append(await steps())
    assert found[1] <= 2 * found[0], found
    session.close()


@pytest.mark.parametrize("cursor", ["x", "1.5", "", "99999999999999999999", "[1, 2]"])
async def test_what_is_no_cursor_is_refused(path: Path, cursor: str) -> None:
    session = SQLiteSession("s", path)
    with pytest.raises(NotFoundError):
        await session.list_sessions(after=cursor, limit=5)
    session.close()
