"""A store by its URL: which backend, which options, and clear words about what is wrong with it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from standfast import InMemorySession, InMemoryStore, SQLiteSession, Store, open_store, register_store
from standfast._kits.operators.store import store_of
from standfast._kits.operators.store_url import parse_url, without_password
from standfast._kits.operators.url_schemes import Opening
from standfast._src.base.errors import (
    CallerError,
    InvalidNameError,
    InvalidSettingError,
    SettingTypeError,
    StoreNotFoundError,
    StoreReadOnlyError,
    StoreUnavailableError,
    UnknownSchemeError,
)
from tests.helpers import servers


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def filled(path: Path, **names: str) -> None:
    session = SQLiteSession("talk", path, **names)  # type: ignore[arg-type]  # names of tables
    await session.add_items([message("hello")])
    await session.close()


@pytest.mark.parametrize(
    "spelling", ["sqlite:///{name}", "sqlite:///./{name}", "sqlite:////{path}", "{path}", "{name}"]
)
async def test_a_file_is_found_however_it_is_spelled(
    spelling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "my talks.db"
    await filled(path)
    monkeypatch.chdir(tmp_path)
    name, whole = ("my%20talks.db", str(path)[1:].replace(" ", "%20")) if "://" in spelling else (path.name, str(path))
    for url in (spelling.format(name=name, path=whole), path):
        async with open_store(url, read_only=True) as store:
            assert [one.session_id for one in (await store.sessions()).sessions] == ["talk"]


async def test_names_of_tables_stand_in_the_url(tmp_path: Path) -> None:
    path = tmp_path / "talks.db"
    await filled(path, sessions_table="conversations", messages_table="turns")
    url = f"sqlite:///{path}?sessions_table=conversations&messages_table=turns"
    async with open_store(url) as store:
        assert await store.session("talk").get_items() == [message("hello")]
    with pytest.raises(InvalidNameError):
        open_store(f"sqlite:///{path}?sessions_table=no;DROP")
    with pytest.raises(InvalidSettingError, match="no option of a sqlite"):
        open_store(f"sqlite:///{path}?key_prefix=x")


def test_what_is_no_store_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnknownSchemeError, match="mongodb://"):
        open_store("mongodb://host/db")
    with pytest.raises(StoreNotFoundError, match="no file"):
        open_store("sqlite:///nowhere/none.db")
    with pytest.raises(FileNotFoundError):
        open_store(tmp_path / "none.db")
    with pytest.raises(InvalidSettingError, match="names no file"):
        open_store("sqlite://")
    with pytest.raises(InvalidSettingError, match="empty"):
        open_store("")
    with pytest.raises(SettingTypeError):
        open_store(7)  # type: ignore[arg-type]
    with pytest.raises(InvalidSettingError, match="not both"):
        open_store(tmp_path / "none.db", read_only=True, create=True)
    assert os.listdir(tmp_path) == []


async def test_a_file_is_made_only_if_that_is_asked_for(tmp_path: Path) -> None:
    async with open_store(tmp_path / "new.db", create=True) as store:
        assert (await store.layout()).version == 2
        await store.session("talk").add_items([message("first")])
        assert (await store.counts(items=True)).items == 1


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "postgresql://user:secret@127.0.0.1:1/none"])
async def test_a_store_that_is_down_says_so_without_its_password(url: str) -> None:
    store = open_store(url, read_only=True, timeout_s=1)
    assert "secret" not in store.url
    with pytest.raises(StoreUnavailableError) as raised:
        async with store:
            pass
    assert "secret" not in str(raised.value)
    assert raised.value.remedy


def test_a_url_is_shown_without_its_password() -> None:
    assert without_password("redis://:pw@host:1/0") == "redis://:***@host:1/0"
    assert without_password("postgresql://ada:p@ss@host/db?x=1") == "postgresql://ada:***@host/db?x=1"
    assert without_password("postgresql://ada@host/db") == "postgresql://ada@host/db"
    assert without_password("postgresql://host/db?password=pw&x=1") == "postgresql://host/db?password=***&x=1"
    assert without_password("talks.db") == "talks.db"


@pytest.mark.parametrize(
    "text",
    [
        "host=db.example password=hunter2",
        "dbname=talks user=ada password='hunter2 with words' sslmode=require",
        r"password=hunter2\ more host = localhost connect_timeout=3",
        "password=hunter2",
    ],
)
def test_keywords_of_postgresqls_library_are_refused_without_their_password(text: str) -> None:
    """They were taken for the path of a file, and the error printed it."""
    with pytest.raises(InvalidSettingError, match="postgresql://") as caught:
        open_store(text)
    assert "hunter2" not in str(caught.value)
    assert parse_url("a=b.db").path == "a=b.db"


def test_a_url_is_shown_with_the_options_it_is_found_by() -> None:
    """What a tool keeps of it must lead to the same store."""
    for url in (
        "redis://host/0?key_prefix=a%26b",
        "postgresql://host/db?x=1&schema=s",
        "sqlite:///a.db?messages_table=m",
    ):
        assert parse_url(url).shown == url
    assert parse_url("redis://:pw@host/0?layout=tagged").shown == "redis://:***@host/0?layout=tagged"


def test_options_of_ours_are_taken_out_of_a_url_and_others_left() -> None:
    found = parse_url("postgresql+asyncpg://host/db?sslmode=require&schema=talks")
    assert (found.scheme, found.driver, found.options) == ("postgresql", "asyncpg", {"schema": "talks"})
    assert found.text == "postgresql+asyncpg://host/db?sslmode=require"


async def test_a_url_with_a_driver_opens_what_sqlalchemy_keeps_and_looking_leaves_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "my talks.db"
    url = f"sqlite+aiosqlite:///{str(path).replace(' ', '%20')}"
    with pytest.raises(StoreNotFoundError):
        open_store(url)
    async with open_store(url, create=True) as store:
        await store.session("talk").add_items([message("hello")])
    with contextlib.closing(sqlite3.connect(path)) as db:  # a file that nobody has open
        db.execute("VACUUM INTO ?", (str(tmp_path / "at rest.db"),))
    path, url = tmp_path / "at rest.db", url.replace("my%20talks", "at%20rest")
    before = (path.read_bytes(), [name for name in os.listdir(tmp_path) if name.startswith("at")])
    async with open_store(f"{url}?sessions_table=agent_sessions", read_only=True) as store:
        assert [one.first_words for one in (await store.sessions()).sessions] == ["hello"]
        assert (store.backend, (await store.layout()).version) == ("sqlalchemy", 1000)
        with pytest.raises(StoreReadOnlyError):
            await store.session("talk").add_items([message("more")])
    assert (path.read_bytes(), [name for name in os.listdir(tmp_path) if name.startswith("at")]) == before
    with pytest.raises(StoreUnavailableError, match="Open these tables with SQLAlchemySession"):
        async with open_store(path):
            pass
    with pytest.raises(CallerError, match=r"cannot use this URL|not been tried"):
        async with open_store("mysql+asyncmy://host/talks"):
            pass


@pytest.mark.postgres
@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_sqlalchemy_on_postgresql_is_opened_by_its_url(driver: str) -> None:
    names = f"sessions_table=s_{driver}_opened&messages_table=m_{driver}_opened"
    url = servers.postgres_url().replace("postgresql://", f"postgresql+{driver}://")
    async with open_store(f"{url}?{names}" if "?" not in url else f"{url}&{names}") as store:
        await store.session("talk").add_items([message("hello")])
        assert [one.session_id for one in (await store.sessions()).sessions] == ["talk"]
        assert store.backend == "sqlalchemy"


async def test_another_backend_registers_its_scheme() -> None:
    shared = InMemoryStore()

    def opened(opening: Opening) -> Store:
        assert opening.url.scheme == "mem"
        return store_of(lambda name: InMemorySession(name, store=shared), "mem", read_only=opening.read_only)

    register_store("mem", opened)
    await InMemorySession("talk", store=shared).add_items([message("hello")])
    async with open_store("mem://here", read_only=True) as store:
        assert (await store.sessions()).sessions[0].first_words == "hello"
    with pytest.raises(InvalidSettingError):
        register_store("", opened)


async def test_looking_loads_no_library_of_a_server_or_a_provider(tmp_path: Path) -> None:
    """A command on a file must be quick: what it does not use it does not import."""
    await filled(tmp_path / "talks.db")
    code = """
import asyncio, sys
from standfast import open_store
async def main():
    async with open_store(sys.argv[1], read_only=True) as store:
        await store.sessions()
        await store.runs()
asyncio.run(main())
heavy = "openai pydantic redis psycopg opentelemetry mcp websockets cryptography genai_prices hypothesis"
print([name for name in heavy.split() if name in sys.modules])
"""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path / "talks.db"), stdout=asyncio.subprocess.PIPE
    )
    said, _ = await child.communicate()
    assert said.decode().strip() == "[]"


async def test_waiting_sessions_are_found_among_many_ended_runs(tmp_path: Path) -> None:
    """By an index over the runs that wait: what has ended costs nothing."""
    path = tmp_path / "talks.db"
    await filled(path)
    async with open_store(path) as store:
        runs = store.session("talk").run_store()
        for number in range(50):
            status = "paused" if number == 7 else "done"
            await runs.save_run(
                f"run-{number}", expect=0, head=b"{}", tails={}, status=status, agent="a", session_id="talk"
            )
        assert [one.run_id for one in (await store.runs(status="paused")).runs] == ["run-7"]
    db = sqlite3.connect(path)
    plan = db.execute(
        "EXPLAIN QUERY PLAN SELECT run_id FROM agent_messages_standfast_runs WHERE changed < 99 AND "
        "json_extract(labels, '$.status') IN ('paused', 'ready') AND json_extract(labels, '$.status') = 'paused' "
        "ORDER BY changed DESC LIMIT 5"
    ).fetchall()
    db.close()
    assert "runs_waiting" in str(plan)
