"""F5b: a run that hears no message makes no commit and no round trip because of messages."""

from __future__ import annotations

import uuid
from collections import Counter
from typing import Any

import pytest
import redis

from standfast import Agent, InMemorySession, RedisSession, Runner, function_tool
from standfast._src.sessions.backends.memory import memory_storage
from standfast.testing import ScriptedModel, assistant_message, function_call
from tests.helpers import servers


@function_tool
async def work() -> str:
    """Work."""
    return "worked"


def agent() -> Agent[Any]:
    steps = [[function_call("work", {}, call_id="c1")], [assistant_message("done")]]
    return Agent("A", model=ScriptedModel(steps), tools=[work])


async def test_a_run_of_two_turns_in_memory_looks_and_commits_as_often_as_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """F5b, F9f: four commits (lease, two turns, the lease given back with the last) and the looks before them."""
    count: Counter[str] = Counter()
    stores = [one for one in vars(memory_storage).values() if isinstance(one, type) and hasattr(one, "commit")]

    def counted(real: Any, method: str) -> Any:
        def call(*arguments: Any) -> Any:
            count[method] += 1
            return real(*arguments)

        return call

    for store in stores:
        if store.__module__ == memory_storage.__name__:
            for method in ("look", "commit"):
                monkeypatch.setattr(store, method, counted(getattr(store, method), method))
    await Runner.run(agent(), "go", session=InMemorySession("talk"))
    assert count == {"look": 8, "commit": 4}


async def test_a_run_of_two_turns_on_a_server_makes_five_round_trips() -> None:
    """F5b: what a look at the inbox would say is guessed, and proved by the steps that are made anyway."""
    url = servers.redis_url()
    session = RedisSession.from_url("talk", url=url, key_prefix=uuid.uuid4().hex)
    await Runner.run(agent(), "first", session=session)
    with redis.Redis.from_url(url) as direct:

        def calls() -> int:
            found: Any = direct.info("commandstats")
            return sum(found.get(name, {"calls": 0})["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval"))

        before = calls()
        for number in range(5):
            await Runner.run(agent(), f"go {number}", session=session)
        assert calls() - before == 25
    await session.close()
