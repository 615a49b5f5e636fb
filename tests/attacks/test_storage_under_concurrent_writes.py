"""What an attack with fresh eyes on stores found (eighth session): each program as a test of the clause it broke."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import redis
import redis.asyncio

from standfast import (
    AdvancedSQLiteSession,
    EncryptedSession,
    InMemorySession,
    OutcomeUnknownError,
    PostgresSession,
    RedisSession,
    SealKeyError,
    SQLiteSession,
    StoreError,
    StoreTimeoutError,
    copy_sessions,
    export_session,
    import_session,
)
from standfast._kits.conformance.network import Proxy
from standfast._kits.operators.store import Layout, Store
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.backends.postgres import connection as postgres_connection
from standfast._src.sessions.rules import history
from standfast._src.sessions.storage import KeyUpdate, Kind, Listed, Name
from tests.helpers import servers


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


# --- PostgreSQL: a write that waits for a lock ------------------------------------------------------------------------


@pytest.mark.postgres
@pytest.mark.parametrize("what", ["add", "pop", "several"])
async def test_a_write_that_postgres_kept_waiting_is_not_done_after_this_process_has_looked_again(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A13. CREATE INDEX, or anybody's LOCK TABLE, lets readers through and keeps writers waiting.

    A server process that waits for a lock does not notice that its client has hung up, and goes on when it has it.
    """
    monkeypatch.setattr(postgres_connection, "ANSWER_S_MAX", 1.0)
    url, schema = servers.postgres_url(), f"t{uuid.uuid4().hex[:12]}"
    session = PostgresSession("s", url=url, schema=schema, timeout_s=2)
    other = PostgresSession("t", url=url, schema=schema, timeout_s=2)
    # By the same carrier, with more patience.
    looking, calm = PostgresSession("s", url=url, schema=schema), PostgresSession("t", url=url, schema=schema)
    try:
        await looking.add_items([said("one")])
        await calm.add_items([said("one")])
        with psycopg.connect(url) as lock:
            lock.execute(f'LOCK TABLE "{schema}".agent_messages IN SHARE MODE')
            tries = [session.pop_item() if what == "pop" else session.add_items([said("two")])]
            tries += [other.add_items([said("two")])] if what == "several" else []
            for got in await asyncio.gather(*tries, return_exceptions=True):
                assert isinstance(got, OutcomeUnknownError | StoreTimeoutError)
            before = await looking.get_items()
        assert before == [said("one")]
        await calm.add_items([said("three")])  # the lock is free: whoever waited for it would have been served
        assert await looking.get_items() == before
        assert await calm.get_items() == [said("one"), said("three")]
    finally:
        for one in (session, other, looking, calm):
            await one.close()
        servers.drop_schema(url, schema)


# --- listings while others write -------------------------------------------------------------------------------------


class Busy(InMemoryStore):
    """A store in which the oldest session is written to behind each page of a listing, as others would on a server."""

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """The page; then a write to the session that is furthest behind it."""
        found = super().listing(kind, after=after, limit=limit, labels=labels)
        if kind == "session" and len(found) == limit:
            oldest = super().listing(kind, after=None, limit=10**6, labels={})[-1]
            self.commit([KeyUpdate(Name(kind, oldest.id), touch=True)])
        return found


async def test_a_copy_of_a_whole_store_leaves_out_no_session_that_is_written_to_while_it_lists_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B9, and the promise of copy_sessions: a session that moves to the front of a listing is in none of its pages."""
    monkeypatch.setattr(history, "EVERY_AT_ONCE", 8)
    busy = Busy()
    for number in range(30):
        await InMemorySession(f"talk {number}", store=busy).add_items([said(str(number))])

    async def layout() -> Layout:
        return Layout(1, "a test's own")

    source = Store("memory://busy", "memory", lambda id_: InMemorySession(id_, store=busy), layout)
    report = await copy_sessions(source, tmp_path / "there.db")
    await source.close()
    assert report.refused == []
    assert {one.session_id for one in report.copied} == {f"talk {number}" for number in range(30)}


@pytest.mark.redis
@pytest.mark.parametrize("layout", ["sdk", "tagged"])
async def test_a_run_that_pauses_again_while_somebody_lists_those_that_wait_stays_among_them(layout: str) -> None:
    """B9, C15. An index is tidied by whoever lists: what has come back since it was looked at is not taken out."""
    at, prefix = urlsplit(servers.redis_url()), f"t{uuid.uuid4().hex[:12]}"
    near: dict[str, Any] = {"key_prefix": prefix, "layout": layout}

    async def saved(status: str, revision: int) -> None:
        session = RedisSession.from_url("s", url=at.geturl(), **near)
        await session.run_store().save_run(
            "run", expect=revision, head=b"{}", tails={}, status=status, agent="A", session_id="s"
        )
        await session.close()

    told: list[bytes] = []

    def when_tidied(sent: bytes) -> bool:
        if b"ZREM" in sent and not told:
            told.append(sent)
            asyncio.run(saved("paused", 2))
        return False

    await saved("paused", 0)
    await saved("running", 1)
    proxy = Proxy((str(at.hostname), int(at.port or 6379)), is_write=when_tidied)
    lister = RedisSession.from_url("s", url=f"redis://127.0.0.1:{proxy.port}{at.path}", **near)
    try:
        with proxy.faulty("cut"):  # which asks, and is told that nothing is to be cut
            await lister.run_store().list_runs(status="paused")
        assert told
        assert [run.run_id for run in (await lister.run_store().list_runs(status="paused"))[0]] == ["run"]
    finally:
        await lister.close()
        proxy.close()


# --- a cluster that moves a slot -------------------------------------------------------------------------------------


@contextmanager
def moving(prefix: str) -> Iterator[None]:
    """While the slot of the keys with that prefix is on its way from its node to another."""
    at = urlsplit(servers.cluster_url())
    with ExitStack() as stack:
        cluster = stack.enter_context(redis.RedisCluster(host=str(at.hostname), port=int(at.port or 6379)))
        slots = {cluster.keyslot(key) for key in cluster.scan_iter(match=f"*{prefix}*", target_nodes="primaries")}
        (slot,) = slots
        source = cluster.nodes_manager.get_node_from_slot(slot)
        target = next(node for node in cluster.get_primaries() if node.name != source.name)
        here, there = (redis.Redis(host=node.host, port=node.port, protocol=2) for node in (source, target))
        stack.callback(here.close)
        stack.callback(there.close)
        ids = [one.execute_command("CLUSTER", "MYID") for one in (here, there)]
        for one in (here, there):
            stack.callback(one.execute_command, "CLUSTER", "SETSLOT", slot, "STABLE")
        there.execute_command("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[0])
        here.execute_command("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[1])
        yield


@pytest.mark.redis
@pytest.mark.parametrize("by", ["url", "client"])
async def test_a_slot_that_is_being_moved_is_waited_for_and_then_told_by_an_error_of_ours(by: str) -> None:
    """A6, A13. A session has keys that are not there: its node then says TRYAGAIN until the whole slot has moved."""
    at, prefix = urlsplit(servers.cluster_url()), f"t{uuid.uuid4().hex[:12]}"
    client = redis.asyncio.RedisCluster(host=str(at.hostname), port=int(at.port or 6379)) if by == "client" else None

    def opened(timeout_s: float) -> RedisSession:
        if client is not None:
            return RedisSession("s", redis_client=client, key_prefix=prefix, timeout_s=timeout_s)
        return RedisSession.from_url("s", url=at.geturl(), cluster=True, key_prefix=prefix, timeout_s=timeout_s)

    hasty, patient = opened(1.0), opened(60.0)
    await patient.add_items([said("one")])
    with moving(prefix):
        for refused in (hasty.add_items([said("two")]), hasty.pop_item()):
            with pytest.raises(StoreError):  # of ours, whichever: it may still have been on its way
                await refused
        waiting = asyncio.create_task(patient.add_items([said("three")]))
        await asyncio.sleep(1.5)  # longer than redis-py itself goes on
        assert not waiting.done()
    await waiting
    assert await patient.get_items() == [said("one"), said("three")]
    await hasty.close()
    await patient.close()
    if client is not None:
        await client.aclose()


# --- exports ---------------------------------------------------------------------------------------------------------


async def test_two_exports_to_one_file_at_once_leave_one_of_them_whole(tmp_path: Path) -> None:
    """Each is written beside the place, under a name of its own, before it is moved there."""
    session = SQLiteSession("talk", tmp_path / "a.db")
    await session.add_items([said("x" * 1000) for _ in range(3000)])
    path = tmp_path / "talk.jsonl"
    exports = [export_session(tmp_path / "a.db", "talk", path, overwrite=True) for _ in range(6)]
    for done in await asyncio.gather(*exports):
        assert done.items == 3000
    assert (await import_session(tmp_path / "b.db", path)).items == 3000
    assert {one.name for one in tmp_path.iterdir() if "jsonl" in one.name} == {"talk.jsonl"}
    await session.close()


# --- branches --------------------------------------------------------------------------------------------------------


async def test_a_session_that_is_copied_by_its_id_has_its_branches_in_the_target(tmp_path: Path) -> None:
    """Else the target begins on the branch that was current, and shows an empty history."""
    here, there = tmp_path / "a.db", tmp_path / "b.db"
    session = AdvancedSQLiteSession(session_id="talk", db_path=here, create_tables=True)
    await session.add_items([said("one"), said("two")])
    await session.create_branch_from_turn(2, "another way")
    await session.add_items([said("three")])
    other = SQLiteSession("another talk", here)
    await other.add_items([said("not asked for")])
    report = await copy_sessions(here, there, ["talk"])
    assert report.refused == []
    assert [one.session_id for one in report.copied] == ["talk", *report.copied[0].branches]
    copied = AdvancedSQLiteSession(session_id="talk", db_path=there, create_tables=True)
    assert await copied.get_items() == [said("one"), said("three")]
    assert await copied.get_items(branch_id="main") == [said("one"), said("two")]

    first = await export_session(here, "talk", tmp_path / "0.jsonl")
    for number, branch in enumerate(first.branches, 1):
        await export_session(here, branch, tmp_path / f"{number}.jsonl")
    done = await import_session(tmp_path / "c.db", tmp_path / "0.jsonl")
    for number, branch in enumerate(done.branches, 1):  # they have new ids
        await import_session(tmp_path / "c.db", tmp_path / f"{number}.jsonl", session_id=branch)
    imported = AdvancedSQLiteSession(session_id="talk", db_path=tmp_path / "c.db", create_tables=True)
    assert await imported.get_items() == [said("one"), said("three")]
    for one in (session, other, copied, imported):
        one.close()


# --- sealed ----------------------------------------------------------------------------------------------------------


async def test_a_wrong_or_missing_key_clears_nothing_unless_it_is_said_that_the_right_one_is_lost(
    tmp_path: Path,
) -> None:
    """Issue 11: a wrong key is a visible error and changes nothing."""

    def sealed(**given: Any) -> EncryptedSession:
        return EncryptedSession("s", SQLiteSession("s", tmp_path / "talks.db"), **given)

    right = sealed(keys={"may": "the right secret"}, current="may")
    await right.add_items([said("one")])
    for keys in ({"may": "another secret"}, {"june": "the next secret"}):
        wrong = sealed(keys=keys, current=next(iter(keys)))
        with pytest.raises(SealKeyError, match="nothing was changed"):
            await wrong.clear_session()
        assert await right.get_items() == [said("one")]
        wrong.close()
    lost = sealed(keys={"june": "the next secret"}, current="june", unreadable="leave_out")
    await lost.clear_session()
    assert await right.get_items() == []
    await right.clear_session()
    lost.close()
    right.close()
