"""Every command on every backend, by its URL."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest

from standfast import PostgresSession, RedisSession, SQLAlchemySession, SQLiteSession
from standfast._kits.cli import entry
from tests.cli.small_store import READING, filled, words
from tests.helpers import servers

Opened = tuple[str, Callable[[str], Any]]


def sqlite(tmp_path: Path) -> Iterator[Opened]:
    path = tmp_path / "talks.db"
    yield f"sqlite:///{path}", lambda session_id: SQLiteSession(session_id, path)


def redis(tmp_path: Path) -> Iterator[Opened]:
    url, prefix = servers.redis_url(), f"cli:{uuid4().hex}"
    yield (
        f"{url}?key_prefix={quote(prefix)}",
        lambda session_id: RedisSession.from_url(session_id, url=url, key_prefix=prefix),
    )


def postgres(tmp_path: Path) -> Iterator[Opened]:
    url, schema = servers.postgres_url(), f"cli_{uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
    yield (
        f"{url}{'&' if '?' in url else '?'}schema={schema}",
        lambda session_id: PostgresSession(session_id, url=url, schema=schema),
    )
    servers.drop_schema(url, schema)


def sqlalchemy(tmp_path: Path) -> Iterator[Opened]:
    url = f"sqlite+aiosqlite:///{tmp_path / 'talks.db'}"
    yield url, lambda session_id: SQLAlchemySession.from_url(session_id, url=url, create_tables=True)


BACKENDS = [
    sqlite,
    sqlalchemy,
    pytest.param(redis, marks=pytest.mark.redis),
    pytest.param(postgres, marks=pytest.mark.postgres),
]


@pytest.fixture(params=BACKENDS, ids=lambda make: make.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("BOOK", str(tmp_path / "book"))
    for url, make in request.param(tmp_path):
        filled(make)
        yield url


def test_every_command_works(store: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def told(*line: str, code: int = 0) -> list[dict[str, Any]]:
        ended = entry.main([*line, "--json"])
        said = capsys.readouterr()
        assert ended == code, (line, said.err)
        return [json.loads(one) for one in said.out.splitlines()]

    for name in READING:
        assert told(*words(name, store)) or name == "sessions undo --list", name
        assert entry.main(words(name, store)) == 0, name
        capsys.readouterr()
    assert [one["session"] for one in told("sessions", "ls", store)] == ["evil", "done-1", "invoice-7"]
    assert told("sessions", "show", store, "ev")[1]["item"]["content"] == "a summary"

    told("sessions", "fork", store, "inv", "copy", "--at", "1")
    assert told("sessions", "stats", store, "--session", "copy")[0]["items"] == 1
    assert told("sessions", "undo", store, "evil")[0]["items"] == 3
    told("runs", "approve", store, "run-7", "call-1", "--yes", "--by", "ada")
    told("runs", "reject", store, "run-7", "call-1", "--yes", "--by", "bob", code=5)
    told("runs", "resume", store, "run-7", "--agent", "tests.cli.small_store:ready_clerk")
    assert (tmp_path / "book").read_text() == "120 to ACME\n"
    assert told("runs", "result", store, "run-7")[0]["output"] == "Paid."
    told("runs", "cancel", store, "run-7", "--yes", code=5)
    told("runs", "unlock", store, "run-7", "--yes", code=5)
    assert told("runs", "prune", store, "--keep", "0", "--yes")[0]["runs"] == 2
    assert told("runs", "ls", store) == []
    assert told("sessions", "stats", store)[0]["usage"]["requests"] == 4
    for session in ("evil", "invoice-7", "done-1", "copy"):
        told("sessions", "rm", store, session, "--yes")
    assert told("sessions", "ls", store, "--all") == []
    told("sessions", "show", store, "evil", code=3)
