"""A database file under two names, and one that was exchanged while it was open: whose log is it?

SQLite keeps what was written last in a log beside the name by which the file was opened, and folds whatever log it
finds there into the file. It does not notice that the log is another file's.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import Child, Line

from standfast import SQLiteSession, StoreUnavailableError


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def texts(session: SQLiteSession) -> list[Any]:
    return [item["content"] for item in await session.get_items()]


async def add_under(line: Line, path: str) -> list[Any]:
    session = SQLiteSession("s", path)
    await session.add_items([said("by the other name")])
    return await texts(session)


async def test_a_file_of_two_names_is_refused_before_a_second_log_is_made(tmp_path: Path) -> None:
    """A1, A23: the second name's log overwrote what had been acknowledged under the first."""
    path, second = tmp_path / "talks.db", tmp_path / "same.db"
    session = SQLiteSession("s", path, linger_s=0)
    await session.add_items([said("one")])
    os.link(path, second)
    with Child(add_under, path=str(second)) as child:
        name, what = child.result()
    assert name == "StoreUnavailableError"
    assert "hard links" in what
    await session.add_items([said("two")])  # whoever has it open goes on
    assert await texts(session) == ["one", "two"]
    session.close()
    assert not second.with_name("same.db-wal").exists()

    again = SQLiteSession("s", path)
    with pytest.raises(StoreUnavailableError, match="hard links"):
        await again.get_items()
    second.unlink()
    assert await texts(again) == ["one", "two"]
    again.close()


async def test_a_symbolic_link_is_the_same_file(tmp_path: Path) -> None:
    """A18: what the remedy says works."""
    path, link = tmp_path / "talks.db", tmp_path / "same.db"
    session = SQLiteSession("s", path)
    await session.add_items([said("one")])
    link.symlink_to(path)
    with Child(add_under, path=str(link)) as child:
        assert child.result() == ("ok", ["one", "by the other name"])
    assert await texts(session) == ["one", "by the other name"]
    session.close()


async def exchanged(tmp_path: Path) -> tuple[Path, SQLiteSession]:
    """A session that has its file open while another takes its place."""
    path, other = tmp_path / "talks.db", tmp_path / "backup.db"
    backup = SQLiteSession("kept", other)
    await backup.add_items([said(f"kept {number}") for number in range(30)])
    backup.close()
    session = SQLiteSession("s", path)
    await session.add_items([said("newest")])
    os.rename(path, tmp_path / "old.db")
    os.rename(other, path)
    return path, session


async def test_a_file_that_took_the_place_of_an_open_one_is_not_overwritten_by_the_others_log(tmp_path: Path) -> None:
    """A1: the first new session object folded the old log into the new file, and nothing of that was left."""
    path, session = await exchanged(tmp_path)
    for _ in range(2):
        new = SQLiteSession("kept", path)
        with pytest.raises(StoreUnavailableError, match="the log of the file that it was") as refused:
            await new.get_items()
        assert f"{path}-wal" in refused.value.remedy
        new.close()
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        await session.add_items([said("lost")])
    session.close()
    for end in ("-wal", "-shm"):
        os.rename(f"{path}{end}", tmp_path / f"old.db{end}")

    new, old = SQLiteSession("kept", path), SQLiteSession("s", tmp_path / "old.db")
    assert await texts(new) == [f"kept {number}" for number in range(30)]
    assert await texts(old) == ["newest"]
    new.close()
    old.close()


async def test_a_file_that_was_put_back_has_its_own_log(tmp_path: Path) -> None:
    """A23: what was acknowledged is in that log."""
    path, session = await exchanged(tmp_path)
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        await session.add_items([said("lost")])
    os.rename(path, tmp_path / "backup.db")
    os.rename(tmp_path / "old.db", path)
    again = SQLiteSession("s", path)
    assert await texts(again) == ["newest"]
    await again.add_items([said("on")])
    again.close()
    session.close()
