"""Files and people (attack 03): whose the files beside a database are, and that a second user of a group can work.

Who is not root sees the modes; where root is, two real users of one group write one database.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import Child, Line

from standfast import Agent, RunConfig, Runner, SQLiteSession
from standfast.testing import ScriptedModel, final

GROUP, FIRST, SECOND = 4242, 4001, 4002
IS_ROOT = os.geteuid() == 0


def item(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def usual_umask() -> Any:
    before = os.umask(0o022)
    yield
    os.umask(before)


def made_elsewhere(path: Path, mode: int) -> None:
    """A database that was there before us."""
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE other (x)")
    db.commit()
    db.close()
    path.chmod(mode)


def modes_beside(path: Path) -> dict[str, int]:
    return {file.name: mode_of(file) for file in path.parent.iterdir() if file.name.startswith(path.name)}


@pytest.mark.usefixtures("usual_umask")
async def test_a_new_database_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    """What people said to an agent is private unless somebody says otherwise."""
    path = tmp_path / "a.db"
    session = SQLiteSession("s", path)
    await session.add_items([item("hi")])
    assert set(modes_beside(path).values()) == {0o600}
    session.close()


@pytest.mark.usefixtures("usual_umask")
async def test_file_mode_says_otherwise(tmp_path: Path) -> None:
    """For the database and for everything beside it, whatever the umask."""
    path = tmp_path / "a.db"
    session = SQLiteSession("s", path, file_mode=0o660)  # type: ignore[call-arg]  # not there yet
    await session.add_items([item("hi")])
    assert set(modes_beside(path).values()) == {0o660}
    session.close()


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o660, 0o664, 0o666], ids=oct)
async def test_files_beside_a_database_get_its_mode_whatever_the_umask(mode: int, tmp_path: Path) -> None:
    """As SQLite does for its own: a lock that the second user cannot open shuts them out."""
    path = tmp_path / "a.db"
    made_elsewhere(path, mode)
    session = SQLiteSession("s", path)
    await session.add_items([item("hi")])
    agent: Agent[Any] = Agent(name="A", model=ScriptedModel([final("ok")]))
    await Runner.run(agent, "hi", session=session, run_config=RunConfig(run_id="r"))
    assert set(modes_beside(path).values()) == {mode}
    session.close()


async def as_user(line: Line, *, path: str, uid: int, only_reads: bool = False) -> int:
    """Become this user of the group, then write (or only read); how many items there are then."""
    warm = SQLiteSession("warm", ":memory:")  # what has to be imported is imported before the rights are gone
    await Runner.run(Agent(name="A", model=ScriptedModel([final("ok")])), "hi", session=warm)
    warm.close()
    if os.geteuid() == 0 and uid:
        os.setgroups([GROUP])
        os.setgid(GROUP)
        os.setuid(uid)
    os.umask(0o022)
    session = SQLiteSession("s", path)
    if not only_reads:
        await session.add_items([item(f"from {uid}")])
        agent: Agent[Any] = Agent(name="A", model=ScriptedModel([final("ok")]))
        await Runner.run(agent, "hi", session=session)
    count = len(await session.get_items())
    await line.stand("open")
    session.close()
    return count


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that a group shares. Not below pytest's own, into which only its user may look."""
    with tempfile.TemporaryDirectory(prefix="standfast-shared-") as made:
        folder = Path(made)
        if IS_ROOT:
            os.chown(folder, 0, GROUP)
        folder.chmod(0o2775)
        yield folder


def made_for(path: Path, mode: int, uid: int = 0) -> Path:
    """A database of this user and the group."""
    made_elsewhere(path, mode)
    if IS_ROOT:
        os.chown(path, uid, GROUP)
    return path


USERS = [(FIRST, SECOND)] if IS_ROOT else [(0, 0)]


@pytest.mark.parametrize("users", USERS, ids=["two users" if IS_ROOT else "one user"])
@pytest.mark.parametrize("together", [False, True], ids=["one after the other", "at the same time"])
def test_a_database_shared_by_a_group_works_for_its_second_user(
    together: bool, users: tuple[int, int], shared: Path
) -> None:
    """Attack 03: the umask is 022 for both, as usual; plain sqlite3 works there, so do we."""
    path = made_for(shared / "a.db", 0o664)
    with Child(as_user, path=str(path), uid=users[0]) as first:
        said = first.hear()
        assert said == ("here", "open"), said
        if not together:
            first.say("go on")
            assert first.result() == ("ok", 3)
        with Child(as_user, path=str(path), uid=users[1]) as second:
            said = second.hear()
            assert said == ("here", "open"), said
            second.say("go on")
            assert second.result() == ("ok", 6)
    if IS_ROOT:
        files = [file for file in path.parent.iterdir() if file.name.startswith("a.db")]
        assert {file.stat().st_gid for file in files} == {GROUP}


@pytest.mark.parametrize("only_reads", [True, False], ids=["reading", "writing"])
def test_looking_at_a_store_does_not_take_it_from_its_owner(only_reads: bool, shared: Path) -> None:
    """An administrator opens a user's database; the files that this leaves are the user's, who goes on writing.

    Without root the administrator is the user, and what is left is that reading leaves nothing in the way.
    """
    owner = FIRST if IS_ROOT else 0
    path = made_for(shared / "a.db", 0o600, owner)
    with Child(as_user, path=str(path), uid=0, only_reads=only_reads) as administrator:
        said = administrator.hear()
        assert said == ("here", "open"), said
        if IS_ROOT:
            files = [file for file in path.parent.iterdir() if file.name.startswith("a.db")]
            assert {file.stat().st_uid for file in files} == {FIRST}
        with Child(as_user, path=str(path), uid=owner) as user:
            said = user.hear()
            assert said == ("here", "open"), said
            user.say("go on")
            assert user.result() == ("ok", 3 if only_reads else 6)
        administrator.say("go on")
        assert administrator.result()[0] == "ok"


def test_reading_leaves_a_database_that_is_not_ours_as_it_is(tmp_path: Path) -> None:
    """A new session on a missing file that is only read must not make one that its owner could not have made so."""
    path = tmp_path / "a.db"
    made_elsewhere(path, 0o640)
    before = path.stat()
    session = SQLiteSession("s", path)
    assert asyncio.run(session.get_items()) == []
    session.close()
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid, after.st_ino) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
        before.st_ino,
    )
