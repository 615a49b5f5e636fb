"""Mistakes of a store on SQLite."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import agents

from standfast._kits.conformance.backends.sqlite import BAD_TABLES, TABLES
from standfast._src.base.errors import SessionBusyError
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast._src.sessions.protocol import Head, Position
from standfast.conformance.sqlite_file import SQLiteFile
from tests.conformance.kit_backends import StandfastSQLite
from tests.conformance.mistakes.mistake import BROKEN, Items, Mistake


class _Torn(agents.SQLiteSession):
    async def add_items(self, items: list[Any], *unused: Any) -> None:
        for item in items:
            await super().add_items([item])


class TornInTheFile(SQLiteFile):
    name = "commits item by item"
    deadlines = False

    def open(self, session_id: str, **options: Any) -> Any:
        return _Torn(session_id, self.path, **options)


class _Relaxed(agents.SQLiteSession):
    def _get_connection(self) -> sqlite3.Connection:
        connection = super()._get_connection()
        if not connection.in_transaction:
            connection.execute("PRAGMA synchronous=OFF")
        return connection


class DoesNotSync(SQLiteFile):
    name = "does not wait for the disk"
    deadlines = False

    def open(self, session_id: str, **options: Any) -> Any:
        return _Relaxed(session_id, self.path, **options)


class IgnoresNames(StandfastSQLite):
    name = "ignores configured names"

    def open(self, session_id: str, **options: Any) -> Any:
        return SQLiteSession(session_id, self.path, **{k: v for k, v in options.items() if k not in TABLES})


class TakesAnyName(IgnoresNames):
    name = "takes any table name"
    bad_names = BAD_TABLES[:1]


class _OwnCounter(SQLiteSession):
    counts: dict[str, int] = {}  # noqa: RUF012 — shared on purpose: the head this process believes in

    async def head(self) -> Head:
        return Head(str(self.counts.get(self.session_id, 0)) if self.session_id in self.counts else "")

    async def append(self, items: Items, **options: Any) -> Head:
        expect = options.pop("expect", None)
        if expect is not None and expect != await self.head():
            return await super().append(items, expect=expect, **options)
        await super().append(items, **options)
        self.counts[self.session_id] = self.counts.get(self.session_id, 0) + 1
        return await self.head()


class HeadFromACounter(StandfastSQLite):
    name = "keeps a counter that the peer does not maintain"

    def open(self, session_id: str, **options: Any) -> Any:
        return _OwnCounter(session_id, self.path, **options)


class _ReplacesInSteps(SQLiteSession):
    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        head = await super().replace([], upto=upto, lease=lease)
        del head
        for item in items:
            await self.add_items([item])
        return await self.head()


class ReplacesInSteps(StandfastSQLite):
    name = "replaces in several transactions"

    def open(self, session_id: str, **options: Any) -> Any:
        return _ReplacesInSteps(session_id, self.path, **options)


class _LockFile:
    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 1

    async def release(self) -> None:
        self.path.unlink(missing_ok=True)

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *unused: object) -> None:
        await self.release()


class _LeaseByFile(SQLiteSession):
    async def lease(self, *, ttl_s: float, wait_s: float) -> Any:
        path = Path(f"{self.db_path}.lease")
        deadline = time.monotonic() + min(wait_s, 3)
        while True:
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
                return _LockFile(path)
            except FileExistsError:
                if time.monotonic() >= deadline:
                    raise SessionBusyError("the session is locked", "Remove the file.") from None
                await asyncio.sleep(0.05)


class LeaseForEver(StandfastSQLite):
    name = "holds the lease of a dead process"

    def open(self, session_id: str, **options: Any) -> Any:
        return _LeaseByFile(session_id, self.path, **options)


class _ByTime(agents.SQLiteSession):
    async def get_items(self, limit: int | None = None, *unused: Any) -> list[Any]:
        with closing(sqlite3.connect(self.db_path)) as connection:
            rows = connection.execute(
                "SELECT message_data FROM agent_messages WHERE session_id = ? ORDER BY created_at, id",
                (self.session_id,),
            ).fetchall()
        items = [json.loads(row[0]) for row in rows]
        return items if limit is None else items[-limit:]


class OrderedByStoredTime(SQLiteFile):
    name = "orders rows by their time"
    deadlines = False

    def open(self, session_id: str, **options: Any) -> Any:
        return _ByTime(session_id, self.path, **options)


class _CountsBeside(SQLiteSession):
    """Keeps writers' counts in a file beside the database."""

    @property
    def _counts(self) -> Path:
        return Path(f"{self.db_path}.counts")

    async def accepted(self, writer: str) -> int:
        found: dict[str, int] = json.loads(self._counts.read_text()) if self._counts.exists() else {}
        return found.get(writer, 0)

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        known = max(0, await self.accepted(writer) - start)
        if fresh := items[known:]:
            await self.add_items(list(fresh))
            await asyncio.sleep(0.002)
            new = Path(f"{self._counts}.{os.getpid()}")
            new.write_text(json.dumps({writer: start + len(items)}))
            new.replace(self._counts)
        return await self.head()


class CountsBeside(StandfastSQLite):
    name = "stores items and counts in two steps"

    def open(self, session_id: str, **options: Any) -> Any:
        return _CountsBeside(session_id, self.path, **options)


class _LeaseUnlocked(_LeaseByFile):
    async def lease(self, *, ttl_s: float, wait_s: float) -> Any:
        path = Path(f"{self.db_path}.lease")
        while path.exists():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        path.touch()
        return _LockFile(path)


class LeaseRace(StandfastSQLite):
    name = "lets two processes take the lease"

    def open(self, session_id: str, **options: Any) -> Any:
        return _LeaseUnlocked(session_id, self.path, **options)


class _Remembers(SQLiteSession):
    """Reads the file once and then only what this process wrote."""

    seen: ClassVar[dict[tuple[str, str], list[Any]]] = {}

    async def get_items(self, limit: int | None = None) -> list[Any]:
        mine = self.seen.setdefault((str(self.db_path), self.session_id), await super().get_items())
        return list(mine) if limit is None else mine[len(mine) - limit :]

    async def add_items(self, items: list[Any]) -> None:
        mine = await self.get_items()
        await super().add_items(items)
        self.seen[str(self.db_path), self.session_id] = [*mine, *items]

    async def append(self, items: Items, **options: Any) -> Head:
        mine = await self.get_items()
        known = max(0, await self.accepted(options["writer"]) - options["start"])
        head = await super().append(items, **options)
        self.seen[str(self.db_path), self.session_id] = [*mine, *items[known:]]
        return head


class Remembers(StandfastSQLite):
    name = "remembers what it read"

    def open(self, session_id: str, **options: Any) -> Any:
        return _Remembers(session_id, self.path, **options)


class _RewindsTheirs(SQLiteSession):
    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        mine = len(await self.written(writer))
        history = await self.get_items()
        while len(history) > mine:
            await self.pop_item()
            history.pop()
        return await super().rewind(writer=writer, to=to, expect=expect)


class RewindsTheirs(StandfastSQLite):
    name = "rewinds what the SDK wrote"

    def open(self, session_id: str, **options: Any) -> Any:
        return _RewindsTheirs(session_id, self.path, **options)


class _KeepsOldRows(SQLiteSession):
    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        head = await super().replace(items, upto=upto, lease=lease)
        kept = (await self.generations())[0]
        with closing(sqlite3.connect(self.db_path)) as connection, connection:
            connection.execute("INSERT OR IGNORE INTO agent_sessions (session_id) VALUES (?)", (self.session_id,))
            connection.executemany(
                "INSERT INTO agent_messages (session_id, message_data) VALUES (?, ?)",
                [(self.session_id, json.dumps(item)) for item in await self.read_generation(kept.id)],
            )
        return head


class KeepsOldRows(StandfastSQLite):
    name = "keeps generations where the SDK reads"

    def open(self, session_id: str, **options: Any) -> Any:
        return _KeepsOldRows(session_id, self.path, **options)


class _ForksItsOwn(SQLiteSession):
    async def fork(self, new_id: str, *, at: Position | None = None) -> Any:
        fork = SQLiteSession(new_id, self.db_path)
        await fork.add_items(await self.written("run"))
        return fork


class ForksItsOwn(StandfastSQLite):
    name = "forks only what it wrote itself"

    def open(self, session_id: str, **options: Any) -> Any:
        return _ForksItsOwn(session_id, self.path, **options)


class _RecordsInSteps(SQLiteSession):
    def record(self, *, run: Any = None, **options: Any) -> Any:
        return self._recorded_in_steps(run, options)

    async def _recorded_in_steps(self, run: Any, options: dict[str, Any]) -> Any:
        done = await super().record(**options)
        return done if run is None else await super().record(run=run)


class RecordsInSteps(StandfastSQLite):
    name = "stores a turn, and then the run that made it"

    def open(self, session_id: str, **options: Any) -> Any:
        return _RecordsInSteps(session_id, self.path, **options)


BROKEN += [
    Mistake(TornInTheFile(), "A5", "no_reader_in_another_process_sees_part_of_a_batch"),
    Mistake(DoesNotSync(), "A23", "an_acknowledged_write_has_reached_the_disk"),
    Mistake(IgnoresNames(), "A15", "configured_names_apply_to_every_operation"),
    Mistake(TakesAnyName(), "A15", "names_that_are_no_identifiers_are_refused"),
    Mistake(HeadFromACounter(), "B10", "what_they_write_and_pop_moves_the_head"),
    Mistake(ReplacesInSteps(), "B3", "a_process_killed_inside_a_replace_leaves_old_or_new"),
    Mistake(LeaseForEver(), "B7", "the_lease_of_a_process_that_was_killed_expires"),
    Mistake(OrderedByStoredTime(), "A4", "stored_times_from_the_future_change_no_order"),
    Mistake(CountsBeside(), "B1", "an_append_repeated_after_a_kill_stores_each_item_once"),
    Mistake(CountsBeside(), "B1", "repeats_from_several_processes_store_each_item_once"),
    Mistake(RecordsInSteps(), "C12", "a_turn_and_the_run_that_made_it_are_stored_together_or_not_at_all"),
    Mistake(LeaseRace(), "B7", "processes_take_turns"),
    Mistake(Remembers(), "B10", "each_reads_what_the_other_wrote"),
    Mistake(Remembers(), "B10", "both_write_at_once_and_nothing_is_lost"),
    Mistake(RewindsTheirs(), "B10", "what_they_wrote_is_never_rewound"),
    Mistake(KeepsOldRows(), "B10", "they_read_the_replaced_history_and_no_generations"),
    Mistake(ForksItsOwn(), "B10", "forks_and_pages_include_what_they_wrote"),
]
