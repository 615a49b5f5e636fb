"""A session that was copied or exported and imported is the same session: every read of it gives the same."""

from __future__ import annotations

import asyncio
import json
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from standfast import (
    InMemorySession,
    InMemoryStore,
    Store,
    copy_sessions,
    export_session,
    import_session,
    open_store,
    store_of,
)
from standfast._src.base.errors import SessionConflictError
from standfast._src.runs.engine.run_store import LogTail
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.protocol import Position
from tests.helpers import servers
from tests.helpers.reading_everything import everything_of, times_of

pytestmark = [pytest.mark.redis, pytest.mark.postgres]

Draw = Callable[[st.SearchStrategy[Any]], Any]
TEXTS = ("n", "é", "\U0001f600", 'he said "n"\n', "\\u0041", "%s %d")
WHO = st.sampled_from([None, "ada", "grâce@home"])


class History:
    """Random changes of one session, as applications make them."""

    def __init__(self, session: StoredSession, draw: Draw) -> None:
        self.session, self.draw, self.serial, self.runs = session, draw, 0, 0
        self.heads: list[Any] = []

    async def made(self, steps: int) -> StoredSession:
        actions = [self.append, self.append, self.add, self.replace, self.replace, self.undo, self.pop, self.rewind]
        actions += [self.clear, self.fork, self.run, self.run, self.corrupt]
        await self.append()
        for _ in range(steps):
            self.heads.append(await self.session.head())
            await self.draw(st.sampled_from(actions))()
        await self.add()  # a session that was cleared last is none
        return self.session

    def items(self, at_most: int = 3) -> list[dict[str, Any]]:
        made = []
        for _ in range(self.draw(st.integers(1, at_most))):
            self.serial += 1
            made.append({"role": "user", "content": self.draw(st.sampled_from(TEXTS)), "n": self.serial})
        return made

    async def append(self) -> None:
        writer = self.draw(st.sampled_from(["a", "b"]))
        items = self.items(40 if self.draw(st.integers(0, 5)) == 0 else 3)
        await self.session.append(items, writer=writer, start=await self.session.accepted(writer))

    async def add(self) -> None:
        await self.session.add_items(self.items())

    async def replace(self) -> None:
        try:
            await self.session.replace(self.items(), upto=self.draw(st.sampled_from([*self.heads[-3:]])))
        except SessionConflictError:
            await self.session.replace(self.items(), upto=await self.session.head())

    async def undo(self) -> None:
        generations = await self.session.generations()
        if generations:
            await self.session.restore(self.draw(st.sampled_from(generations)).id, by=self.draw(WHO))

    async def pop(self) -> None:
        await self.session.pop_item()

    async def rewind(self) -> None:
        total = await self.session.accepted("a")
        try:
            await self.session.rewind(writer="a", to=self.draw(st.integers(max(0, total - 2), total)))
        except SessionConflictError:
            pass

    async def clear(self) -> None:
        if self.draw(st.booleans()):
            await self.session.clear_session()
            self.heads.append(await self.session.head())

    async def fork(self) -> None:
        """Go on in a fork, of the history or of a kept generation."""
        generations = await self.session.generations()
        at = None
        if generations and self.draw(st.booleans()):
            at = Position(0 if self.draw(st.booleans()) else 1, self.draw(st.sampled_from(generations)).id)
        if at is not None and at.index > len(await self.session.read_generation(at.generation or "")):
            return
        self.session = await self.session.fork(f"talk-{uuid.uuid4().hex}", at=at, by=self.draw(WHO))
        self.heads = [await self.session.head()]

    async def run(self) -> None:
        """A run that stores a turn, is saved on the way, costs something and ends."""
        self.runs += 1
        run_id, store = f"run-{self.runs}-{uuid.uuid4().hex}", self.session.run_store()
        tails = {"ledger": LogTail(0, [b'{"n":%d}' % n for n in range(3)])}
        parts = {"schema": "standfast.run", "version": 1}
        head = json.dumps({**parts, "ended": run_id, "agent": "clerk", "status": "done"}).encode()
        revision = await store.save_run(
            run_id, expect=0, head=b'{"n": 1}', tails=tails, status="running", agent="clerk",
            session_id=self.session.session_id,
        )  # fmt: skip
        cost = {"turn": 1, "usage": {"requests": 1, "input_tokens": self.serial}, "model": "m"}
        await self.session.record(items=self.items(), writer=run_id, start=0, costs=(0, [cost]))
        ends = {} if self.draw(st.booleans()) else {"ledger": LogTail(0, [])}
        await store.save_run(
            run_id, expect=revision, head=head, tails=ends, status="done", agent="clerk",
            session_id=self.session.session_id,
        )  # fmt: skip

    async def corrupt(self) -> None:
        if isinstance(self.session, InMemorySession):
            self.session.store.inject_record(
                self.session.session_id, self.draw(st.sampled_from([b"{not json", b"[1]"]))
            )


@asynccontextmanager
async def a_store(kind: str, folder: Path, number: int = 0) -> AsyncIterator[Store]:
    """A store, on a server the same in all examples: making tables takes longer than all the rest."""
    name = f"{HERE}{number}"
    match kind:
        case "memory":  # of nobody else's
            memory = InMemoryStore()
            store = store_of(lambda session_id: InMemorySession(session_id, store=memory), "memory")
        case "sqlite":
            store = open_store(folder / f"{name}.db", create=True)
        case "redis":
            store = open_store(f"{servers.redis_url()}?key_prefix={name}")
        case _:
            store = open_store(f"{servers.postgres_url()}?schema={name}")
    async with store:
        yield store


HERE = f"m{uuid.uuid4().hex}"
KINDS = ("memory", "sqlite", "redis", "postgres")


@settings(max_examples=12)
@given(order=st.permutations(KINDS), data=st.data())
def test_a_copy_of_a_copy_of_a_copy_is_the_same_session(order: list[str], data: st.DataObject) -> None:
    """Through all stores in a random order and a file: then every one of them was source and target."""

    async def scenario(folder: Path) -> None:
        async with (
            a_store(order[0], folder) as first,
            a_store(order[1], folder) as second,
            a_store(order[2], folder) as third,
            a_store(order[3], folder) as fourth,
            a_store(order[0], folder, 1) as fifth,
        ):
            session = await History(first.session(f"talk-{uuid.uuid4().hex}"), data.draw).made(8)
            session_id = session.session_id
            expected, times = await everything_of(session), await times_of(session)
            for source, target in ((first, second), (second, third), (third, fourth)):
                report = await copy_sessions(source, target, [session_id])
                assert not report.refused, report.refused
                assert [one.outcome for one in report.copied] == ["copied"]
                assert report.copied[0].is_verified
                await compare(target, session_id, expected, times)
            file = folder / "session.jsonl"
            await export_session(fourth, session_id, file, overwrite=True)
            assert (await import_session(fifth, file)).is_verified
            await compare(fifth, session_id, expected, times)
            await goes_on_alike(session, fifth.session(session_id), data.draw)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(scenario(Path(folder)))


async def compare(store: Store, session_id: str, expected: dict[str, Any], times: tuple[float, Any]) -> None:
    session = store.session(session_id)
    found = await everything_of(session)
    for name, value in expected.items():
        assert found[name] == value, f"{name} differs in {store.backend}"
    created, written = await times_of(session)
    assert created == pytest.approx(times[0], abs=1e-3)
    # What replaced a front is newer than what follows it. A store whose rows stand in the order of their times keeps
    # those behind it at its time, a microsecond apart.
    assert len(written) == len(times[1])
    newest = 0.0
    for found_at, at in zip(written, times[1], strict=True):
        newest = max(newest, at or 0.0)
        assert at is None or found_at in (pytest.approx(at, abs=0.01), pytest.approx(newest, abs=0.01))
    await session.close()


async def goes_on_alike(one: StoredSession, other: StoredSession, draw: Draw) -> None:
    """What is done next gives the same in both: nothing that matters later was lost."""
    generations = [await session.generations() for session in (one, other)]
    if generations[0]:
        place = draw(st.integers(0, len(generations[0]) - 1))
        for session, found in zip((one, other), generations, strict=True):
            await session.restore(found[place].id)
    for session in (one, other):
        await session.append([{"next": 1}], writer="a", start=await session.accepted("a"))
        total = await session.accepted("a")
        with pytest.raises(SessionConflictError):
            await session.append([{"another": 1}], writer="a", start=total - 1)
        await session.append([{"next": 1}, {"more": 2}], writer="a", start=total - 1)
    assert await everything_of(one) | {"generations": 0} == await everything_of(other) | {"generations": 0}
    await other.close()
