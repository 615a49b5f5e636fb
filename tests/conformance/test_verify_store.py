"""`verify_store`: the kit on a live store, which is left as it was, also if the verification is killed."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from uuid import uuid4

import agents
import psycopg
import pytest
import redis

from standfast import Store, open_store, plan_verification, verify_store
from standfast._kits.conformance.backends.postgres import PostgresBackend
from standfast._kits.conformance.backends.redis import RedisBackend
from standfast._kits.conformance.backends.sqlite import SQLiteBackend
from standfast._kits.conformance.catalogue import checks_of
from standfast._kits.conformance.live import sqlite as verify_sqlite
from standfast._kits.conformance.live.postgres import PostgresSite
from standfast._kits.conformance.live.redis import RedisSite
from standfast._kits.conformance.live.scratch_space import PREFIX, base_of, new_name
from standfast._kits.conformance.live.sqlite import FileSite, remove_folder
from standfast._kits.conformance.registry import Check
from standfast._kits.operators.store_url import parse_url
from standfast._src.base.errors import (
    InvalidSettingError,
    NotADatabaseError,
    NotFoundError,
    StoreFullError,
    StoreNotFoundError,
    StoreUnavailableError,
    UnknownSchemeError,
)
from standfast.conformance import Backend, Options, Result, Scorecard, message
from tests.helpers import children, servers

QUICK = Options(rounds=1, examples=2, objects=200, soon_s=60)
FEW = ("A7", "B9")


# --- stores that somebody uses ---------------------------------------------------------------------------------------


class Used:
    """A store with conversations in it: its URL, how it is verified, and everything of its users as it is stored."""

    def __init__(self, url: str, dump: Callable[[], Any], *, in_place: bool = False) -> None:
        self.url, self.dump = url, dump
        self.options: dict[str, Any] = {"in_place": True} if in_place else {}

    async def fill(self) -> None:
        async with open_store(self.url, create=self.url.startswith("sqlite")) as store:
            for name in ("invoice-7", "guest"):
                session = store.session(name)
                await session.append([message(1), message(2), message(3)], writer="run", start=0)
                await session.replace([message("summary")], upto=await session.head())
                await (await session.lease(ttl_s=30, wait_s=0)).release()
                await session.close()
        if self.url.startswith("sqlite"):
            await at_rest(Path(self.url.partition(":///")[2]))


async def at_rest(path: Path) -> None:
    """Wait until the threads of this process have closed the file, and its log is gone.

    Whoever closes last takes the log away; of two that close at once, neither may. So somebody closes after them.
    """
    deadline = time.monotonic() + 120
    while path.with_name(f"{path.name}-wal").exists():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
        with closing(sqlite3.connect(path)) as db:
            db.execute("SELECT count(*) FROM sqlite_master").fetchone()


def _files(path: Path) -> dict[str, tuple[bytes, int]]:
    found = sorted(path.parent.iterdir())
    return {file.name: (file.read_bytes(), file.stat().st_mode) for file in found if file.is_file()}


def _rows(path: Path) -> list[str]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return list(db.iterdump())


@pytest.fixture(scope="module")
def redis_server() -> Iterator[servers.RedisServer]:
    server = servers.RedisServer()  # of its own: what is in it is compared as a whole
    yield server
    server.stop()


def _redis_keys(url: str) -> dict[bytes, Any]:
    with redis.Redis.from_url(url) as client:
        return {key: client.dump(key) for key in client.scan_iter() if not key.startswith(PREFIX.encode())}


def _tables(url: str) -> dict[str, list[Any]]:
    with psycopg.connect(url) as connection:
        names = connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables WHERE NOT starts_with(schemaname, 'pg_') "
            "AND schemaname <> 'information_schema' AND NOT starts_with(schemaname, %s)", (PREFIX,)
        ).fetchall()  # fmt: skip
        found = {}
        for (name,) in names:
            schema, _, table = name.partition(".")
            found[name] = sorted(map(repr, connection.execute(f'SELECT ctid, * FROM "{schema}"."{table}"').fetchall()))
        return found


def _database() -> str:
    """The URL of a database of its own."""
    name = f"v{uuid4().hex[:10]}"
    with psycopg.connect(servers.postgres_url(), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{servers.postgres_url().rpartition('/')[0]}/{name}"


KINDS = [
    "copy",
    "in place",
    pytest.param("redis", marks=pytest.mark.redis),
    pytest.param("postgres", marks=pytest.mark.postgres),
]


@pytest.fixture(params=KINDS)
async def used(request: pytest.FixtureRequest, tmp_path: Path) -> Used:
    path = tmp_path / "talks.db"
    match request.param:
        case "copy":
            used = Used(f"sqlite:///{path}", lambda: _files(path))
        case "in place":
            used = Used(f"sqlite:///{path}", lambda: _rows(path), in_place=True)
        case "redis":
            url = request.getfixturevalue("redis_server").url
            used = Used(url, lambda: _redis_keys(url))
        case _:
            url = _database()
            used = Used(url, lambda: _tables(url))
    await used.fill()
    return used


async def sessions_of(store: Store) -> dict[str, list[Any]]:
    listed = (await store.sessions()).sessions
    return {one.session_id: await store.session(one.session_id).get_items() for one in listed}


# --- what is left of it ----------------------------------------------------------------------------------------------


async def test_a_store_that_is_verified_is_as_it_was(used: Used) -> None:
    before = used.dump()
    plan = await plan_verification(used.url, clauses=FEW, **used.options)
    assert used.dump() == before
    assert plan.made == 4
    assert plan.leftovers == ()
    seen: list[tuple[str, int]] = []
    done = await verify_store(
        used.url, clauses=FEW, options=QUICK, **used.options,
        progress=lambda result, number, total: seen.append((result.check, number)),
    )  # fmt: skip
    assert done.broken == ()
    assert [done.card.value(done.plan.backend, one) for one in FEW] == ["kept"] * 2
    assert [number for _, number in seen] == list(range(1, plan.made + plan.left_out + 1))
    assert done.not_removed == ()
    assert used.dump() == before
    assert (await plan_verification(used.url, **used.options)).leftovers == ()
    async with open_store(used.url, read_only=True) as store:
        assert await sessions_of(store) == {"guest": [message("summary")], "invoice-7": [message("summary")]}


DRIVERS = [
    "aiosqlite",
    pytest.param("psycopg", marks=pytest.mark.postgres),
    pytest.param("asyncpg", marks=pytest.mark.postgres),
]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_what_sqlalchemy_keeps_is_verified_through_sqlalchemy(driver: str, tmp_path: Path) -> None:
    if driver == "aiosqlite":
        path = tmp_path / "talks.db"
        used = Used(f"sqlite+aiosqlite:///{path}", lambda: _files(path))
    else:
        plain = _database()
        used = Used(plain.replace("://", f"+{driver}://"), lambda: _tables(plain))
    await used.fill()
    await test_a_store_that_is_verified_is_as_it_was(used)
    assert (await plan_verification(used.url)).backend.startswith("SQLAlchemySession on ")
    with pytest.raises(InvalidSettingError):
        await plan_verification(used.url, in_place=True)


def test_a_folder_goes_while_connections_in_it_are_still_being_closed(tmp_path: Path) -> None:
    """Whoever closes last removes the log of a database, and others make one: between any two steps of the removal."""
    folder, ended = tmp_path / "scratch", threading.Event()

    def busy() -> None:
        while not ended.is_set():
            with contextlib.suppress(FileNotFoundError):
                (folder / "copy.db-wal").write_bytes(b"")
                (folder / "copy.db-wal").unlink()

    for _ in range(100):
        folder.mkdir()
        for number in range(20):
            (folder / f"{number}").write_bytes(b"")
        thread = threading.Thread(target=busy)
        thread.start()
        try:
            remove_folder(str(folder))
        finally:
            ended.set()
            thread.join()
            ended.clear()
        assert not folder.exists()


HELD = """
    import asyncio, sys
    from standfast import verify_store
    from standfast.conformance import Options, message, proves

    @proves("A7")
    async def holds(lab):
        session = lab.open("scratch conversation")
        await session.add_items([message("scratch")])
        print("inside", flush=True)
        await asyncio.sleep(600)

    asyncio.run(verify_store(sys.argv[1], clauses=["A7"], in_place=sys.argv[2] == "True", options=Options(1, 1, 200)))
"""


async def test_what_a_killed_verification_left_is_removed_by_the_next_and_a_living_one_is_let_be(used: Used) -> None:
    before = used.dump()
    in_place = bool(used.options)
    with children.program(HELD, used.url, in_place) as alive, children.program(HELD, used.url, in_place) as killed:
        try:
            children.wait_for(alive, "inside")
            children.wait_for(killed, "inside")
            killed.kill()
            killed.wait()
            plan = await plan_verification(used.url, clauses=FEW, **used.options)
            assert sorted(one.is_dead for one in plan.leftovers) == [False, True]
            dead, living = sorted(plan.leftovers, key=lambda one: not one.is_dead)
            assert _left_of(used, dead.name)
            done = await verify_store(used.url, clauses=("A7",), options=QUICK, **used.options)
            assert (done.broken, done.removed, done.not_removed) == ((), (dead.name,), ())
            assert not _left_of(used, dead.name)
            assert _left_of(used, living.name)
        finally:
            alive.kill()
    await verify_store(used.url, clauses=("A7",), options=QUICK, **used.options)
    assert not _left_of(used, PREFIX)
    assert used.dump() == before


def _left_of(used: Used, name: str) -> list[str]:
    """Everything in the store, or beside it, that has this name in it."""
    url = used.url
    if url.startswith("redis"):
        with redis.Redis.from_url(url) as client:
            return [key.decode() for key in client.scan_iter(match=f"{name}*")]
    if url.startswith("postgresql"):
        with psycopg.connect(url) as connection:
            rows = connection.execute("SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", (name,))
            return [row[0] for row in rows]
    path = Path(url.removeprefix("sqlite:///"))
    found = [one.name for one in path.parent.iterdir() if name in one.name]
    if used.options:  # else nothing but a folder beside it can be there, and a look at the file would leave a log
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
            found += [row[0] for row in db.execute("SELECT name FROM sqlite_master") if name in row[0]]
    return found


async def test_a_verification_that_is_cancelled_leaves_nothing(used: Used) -> None:
    before = used.dump()
    begun = asyncio.Event()
    task = asyncio.create_task(
        verify_store(used.url, clauses=FEW, options=QUICK, progress=lambda *_: begun.set(), **used.options)
    )
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not _left_of(used, PREFIX)
    assert used.dump() == before


async def test_a_copy_is_private_and_a_file_of_the_sdk_is_left_to_the_sdk(tmp_path: Path) -> None:
    path = tmp_path / "sdk.db"
    theirs = agents.SQLiteSession("theirs", path)
    await theirs.add_items([{"role": "user", "content": "hello"}])
    theirs.close()
    before = _files(path)
    modes: list[tuple[int, int]] = []

    def told(result: Result, number: int, total: int) -> None:
        (folder,) = (one for one in tmp_path.iterdir() if one.is_dir())
        modes.append((stat.S_IMODE(folder.stat().st_mode), stat.S_IMODE((folder / "copy.db").stat().st_mode)))

    done = await verify_store(path, clauses=("A7", "A14"), options=QUICK, progress=told)
    assert done.broken == ()
    assert set(modes) == {(0o700, 0o600)}
    assert _files(path) == before
    in_place = await verify_store(path, clauses=("A7",), options=QUICK, in_place=True)
    assert in_place.broken == ()
    with closing(sqlite3.connect(path)) as db:
        names = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
        assert not [name for name in names if "standfast" in name]
    again = agents.SQLiteSession("theirs", path)
    assert await again.get_items() == [{"role": "user", "content": "hello"}]
    again.close()


# --- what is done and what is not ------------------------------------------------------------------------------------


def live_backend(kind: str, path: Path) -> Backend:
    """The description by which a live store is verified; nothing is asked of a server."""
    match kind:
        case "redis":
            return RedisSite(parse_url("redis://127.0.0.1:1/0")).backend
        case "postgres":
            return PostgresSite(parse_url("postgresql://127.0.0.1:1/none"), PostgresBackend()).backend
        case _:
            path.touch()
            in_place = kind == "in place"
            return FileSite(parse_url(path), SQLiteBackend(), in_place=in_place, timeout_s=1).backend


@pytest.mark.parametrize("kind", ["copy", "in place", "redis", "postgres"])
def test_only_checks_are_made_that_cannot_harm_others(kind: str, tmp_path: Path) -> None:
    """No full disk, no damaged file, no store that stands still for everybody; and none that nobody has thought of."""
    from standfast._src.sessions.protocol import ALL_ABILITIES

    backend = live_backend(kind, tmp_path / "x.db")
    everything = ALL_ABILITIES | {"close"}
    made = [check for check in checks_of() if check.missing(backend, everything) is None]
    needs = {need for check in made for need in check.needs}
    assert len(made) > 100
    assert not needs & {"files", "lose_acknowledgement", "peer", "handed_in"}
    if kind != "copy":
        assert not needs & {"stall", "bad_names", "damage_newest", "shift_times"}
    if kind == "in place":
        assert not needs & {"processes", "import", "inject_record"}
    assert Check("A1", "of_tomorrow", lambda lab: None, ("a new hook",)).missing(backend, everything) is not None
    assert backend.permitted is not None


async def test_a_store_that_breaks_its_word_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await Used(f"sqlite:///{tmp_path}/talks.db", lambda: None).fill()
    opened = SQLiteBackend.open

    def forgetful(self: SQLiteBackend, session_id: str, **options: Any) -> Any:
        session = opened(self, session_id, **options)
        pop = session.pop_item

        async def pop_two() -> Any:
            await pop()
            return await pop()

        session.pop_item = pop_two  # type: ignore[method-assign]
        return session

    monkeypatch.setattr(SQLiteBackend, "open", forgetful)
    done = await verify_store(tmp_path / "talks.db", clauses=("A11", "A7"), options=QUICK)
    assert "pop_gives_the_newest_item_until_there_is_none" in [one.check for one in done.broken]
    assert {one.clause_id for one in done.broken} == {"A11"}
    assert "broken" in done.html()
    assert "**broken**" in done.markdown()


@pytest.mark.redis
async def test_a_store_that_goes_away_is_not_called_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    server = servers.RedisServer()
    try:
        await Used(server.url, lambda: None).fill()
        opened = RedisBackend.open
        monkeypatch.setattr(
            RedisBackend, "open", lambda self, name, **given: opened(self, name, timeout_s=1.0, **given)
        )
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            await verify_store(server.url, clauses=("A7", "A11"), options=QUICK, progress=lambda *_: server.kill())
    finally:
        server.stop()


async def test_bad_input_is_told_and_makes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "talks.db"
    with pytest.raises(StoreNotFoundError):
        await verify_store(path)
    with pytest.raises(NotADatabaseError):
        await verify_store(tmp_path)
    (tmp_path / "text").write_text("no database " * 1000)
    with pytest.raises(NotADatabaseError):
        await verify_store(tmp_path / "text")
    (tmp_path / "text").unlink()
    await Used(f"sqlite:///{path}", lambda: None).fill()
    before = _files(path)
    with pytest.raises(NotFoundError, match="A99"):
        await verify_store(path, clauses=("A99",))
    with pytest.raises(UnknownSchemeError, match="mongodb"):
        await verify_store("mongodb://host/db")
    with pytest.raises(InvalidSettingError, match="always verified in place"):
        await verify_store("redis://127.0.0.1:1/0", in_place=True)
    for url in ("redis://127.0.0.1:1/0", "postgresql://127.0.0.1:1/none"):
        with pytest.raises(StoreUnavailableError):
            await plan_verification(url)
    monkeypatch.setattr(verify_sqlite, "ROOM_BYTES", 10**18)
    with pytest.raises(StoreFullError, match="MB left"):
        await verify_store(path)
    assert _files(path) == before
    assert [one.name for one in tmp_path.iterdir() if one.is_dir()] == []


async def test_a_folder_in_which_nothing_can_be_made_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await Used(f"sqlite:///{tmp_path}/talks.db", lambda: None).fill()

    # A name in a folder that is not there: root, as whom tests may run, is refused nothing else.
    monkeypatch.setattr(verify_sqlite, "new_name", lambda: "none/here")
    with pytest.raises(StoreUnavailableError, match="no folder can be made"):
        await verify_store(tmp_path / "talks.db", clauses=("A7",), options=QUICK)


@pytest.mark.postgres
async def test_a_role_that_may_create_nothing_is_told_what_it_needs() -> None:
    role = f"r{uuid4().hex[:10]}"
    url = servers.postgres_url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE ROLE "{role}" LOGIN')
    try:
        with pytest.raises(StoreUnavailableError, match="GRANT CREATE ON DATABASE"):
            await plan_verification(url.replace("standfast@", f"{role}@"))
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f'DROP ROLE "{role}"')


def test_only_a_whole_scratch_name_is_taken_for_one() -> None:
    name = new_name()
    assert base_of(name) == name
    assert base_of(f"{name}_c0123") == name
    for other in ("agent_messages", PREFIX, f"{PREFIX}20260101t000000", f"x{name}", f"{PREFIX}mine"):
        assert base_of(other) is None


# --- the page --------------------------------------------------------------------------------------------------------


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def test_the_page_loads_nothing_and_runs_nothing_whatever_a_store_says() -> None:
    evil = "<script>alert(1)</script><img src=x onerror=alert(2)> \"'&"
    card = Scorecard()
    card.record(evil, Result("A1", evil, "broken", evil))
    card.record(evil, Result("A2", "check", "kept"))
    page = Page(card.html(f"Title {evil}", {evil: evil}))
    assert {tag for tag, _ in page.tags} <= {
        "html", "head", "meta", "title", "style", "body", "main", "h1", "dl", "dt", "dd", "p", "strong", "span",
        "table", "thead", "tbody", "tr", "th", "td", "details", "summary", "ul", "li", "br",
    }  # fmt: skip
    assert not {name for _, attributes in page.tags for name in attributes} & {"src", "href", "onerror", "style"}
    policy = next(attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv"))
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    shown = "".join(page.words)
    assert shown.count(evil) >= 5
    assert "1 of 2 clauses kept" in shown


def test_a_password_is_in_no_report() -> None:
    shown = parse_url("redis://me:s3cret@host/0").password_hidden_in("cannot reach redis://me:s3cret@host/0")
    assert shown == "cannot reach redis://me:***@host/0"
