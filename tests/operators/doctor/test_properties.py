"""The doctor on random damage of random histories, with crashes between its steps (A14, C8)."""

from __future__ import annotations

import asyncio
import json
import tempfile
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from standfast import Agent, OpenAIResponsesModel, RunConfig, Runner, SQLiteSession, open_store
from standfast._kits.operators.doctor.repair import repair_store
from standfast._kits.operators.store import Store, store_of
from standfast._src.sessions.backends.postgres.postgres_session import PostgresSession
from standfast._src.sessions.backends.redis.redis_session import RedisSession
from standfast.testing.loopback import LoopbackServer
from tests.helpers import servers
from tests.operators.doctor.world import (
    DAMAGES,
    Fate,
    Story,
    check_story,
    damaged,
    healthy,
    in_memory,
    later,
    mortal,
    put,
)

damages = st.lists(
    st.tuples(st.sampled_from(DAMAGES), st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=5
).map(tuple)
stories = st.builds(
    Story,
    turns=st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=4).map(tuple),
    damages=st.lists(damages, min_size=1, max_size=3).map(tuple),
    crash_at=st.integers(0, 18),
    kept_bytes=st.integers(0, 2000),
    undo_crash_at=st.integers(0, 8),
    written_since=st.integers(0, 2),
    compacts=st.booleans(),
)


def told(story: Story, made: Callable[[Fate], Store]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_story(story, made, Path(folder)))


@given(stories)
@settings(max_examples=100)
def test_whatever_breaks_a_history_the_doctor_repairs_it_and_gives_it_back(story: Story) -> None:
    told(story, in_memory())


@given(stories)
@settings(max_examples=20)
def test_the_same_in_a_file(story: Story) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "talks.db"
        told(story, lambda fate: store_of(lambda name: mortal(SQLiteSession, fate)(name, path), "sqlite"))


@pytest.mark.redis
@given(stories)
@settings(max_examples=12)
def test_the_same_on_redis(story: Story) -> None:
    url, prefix = servers.redis_url(), f"doctor-{uuid.uuid4().hex}"

    def made(fate: Fate) -> Store:
        kind: Any = mortal(RedisSession, fate)
        return store_of(lambda name: kind.from_url(name, url=url, key_prefix=prefix), "redis")

    told(story, made)


@pytest.mark.postgres
@given(stories)
@settings(max_examples=5)
def test_the_same_on_postgresql(story: Story) -> None:
    url, table = servers.postgres_url(), f"m{uuid.uuid4().hex[:8]}"
    story = Story(**{**vars(story), "damages": tuple(tuple(_text_only(one)) for one in story.damages)})

    def made(fate: Fate) -> Store:
        kind: Any = mortal(PostgresSession, fate)
        sessions = f"s{table}"
        return store_of(lambda name: kind(name, url=url, sessions_table=sessions, messages_table=table), "postgresql")

    told(story, made)


def _text_only(damages: tuple[tuple[str, int, int], ...]) -> list[tuple[str, int, int]]:
    """Without a zero byte, which no text column of PostgreSQL's can hold."""
    return [(kind, 0 if kind == "junk" and one % 5 == 1 else one, other) for kind, one, other in damages]


async def test_a_provider_that_refused_a_broken_history_takes_the_repaired_one(tmp_path: Path) -> None:
    """As a program without our rules sends it: the whole history, over HTTP."""
    path = tmp_path / "talks.db"
    rows = damaged(healthy([(2, True), (1, True)]), [("remove", 3, 0), ("copy many", 6, 9), ("cut end", 0, 14)])
    async with open_store(path, create=True) as store:
        await put(store, "guest", rows)
        with LoopbackServer() as server:
            async with server.client() as client:
                with pytest.raises(Exception, match=r"No tool|Duplicate|reasoning"):
                    await client.responses.create(model="m", input=[json.loads(row) for row in rows])
                await repair_store(store, tmp_path / "undo.jsonl", clock=later)
                session = store.session("guest")
                repaired: Any = await session.get_items()
                assert 0 < len(repaired) < len(rows)
                await client.responses.create(model="m", input=[*repaired, {"role": "user", "content": "And now?"}])
                agent = Agent(name="Clerk", model=OpenAIResponsesModel("m", client))
                result = await Runner.run(agent, "And?", session=session, run_config=RunConfig(run_id="next"))
                assert result.left_out == []
                await session.close()
