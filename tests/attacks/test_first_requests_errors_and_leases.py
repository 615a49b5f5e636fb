"""What two readers of one day's changes found before it was out: each of these failed when they wrote it down."""

from __future__ import annotations

import asyncio
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
import redis
from openai import AsyncOpenAI
from sqlalchemy import event
from sqlalchemy.ext.asyncio import create_async_engine

from standfast import (
    Agent,
    InMemoryRunStore,
    InMemorySession,
    OpenAIResponsesModel,
    RedisSession,
    RunConfig,
    Runner,
    SessionSettings,
    SQLAlchemySession,
    SQLiteSession,
    StandfastError,
    StoreUnavailableError,
    function_tool,
)
from standfast.testing import ScriptedModel, final, function_call
from standfast.testing.loopback import Drop, Incomplete, LoopbackServer, call
from tests.helpers import servers
from tests.runs.whole_runs import go

# --- a server's conversation -----------------------------------------------------------------------------------------


async def test_a_lost_first_request_and_the_same_words_again_do_not_end_a_conversation(
    server: LoopbackServer, client: AsyncOpenAI
) -> None:
    """The reply to the second was taken for one to the first, and its call said not to have run, which it had."""
    paid: list[int] = []

    @function_tool
    def pay() -> str:
        """Pay."""
        paid.append(1)
        return "paid"

    def rule(asked: Any) -> Any:
        if asked.outputs:
            return "done"
        return call("pay", {}, call_id="c1") if "pay" in asked.last_text else "yes"

    server.rule = rule
    server.fault(Drop(committed=False), times=1)
    conversation = server.new_conversation()
    agent = Agent(name="a", model=OpenAIResponsesModel("m", client), tools=[pay])
    config = RunConfig(run_store=InMemoryRunStore(), lease_wait_s=1, lease_ttl_s=1)
    with pytest.raises(Exception, match=r"(?i)connection"):
        await Runner.run(agent, "pay", conversation_id=conversation, run_config=config)
    for text, said in (("pay", "done"), ("next", "yes"), ("more", "yes")):
        result = await Runner.run(agent, text, conversation_id=conversation, run_config=config)
        assert result.final_output == said
    assert paid == [1]
    outputs = [item for item in server.history(conversation) if item.get("type") == "function_call_output"]
    assert [item["output"] for item in outputs] == ["paid"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_first_reply_that_was_cut_short_does_not_end_a_conversation(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
) -> None:
    server.fault(Incomplete())
    conversation = server.new_conversation()
    agent = Agent(name="a", model=OpenAIResponsesModel("m", client))
    config = RunConfig(run_store=InMemoryRunStore(), lease_wait_s=1, lease_ttl_s=1)

    async def say(words: str) -> None:
        await go(agent, words, streamed=streamed, conversation_id=conversation, run_config=config)

    with pytest.raises(Exception, match=r"(?i)incomplete|whole"):
        await say("hello")
    for _ in range(2):
        await say("next")


@pytest.mark.parametrize("in_a_task", [False, True])
async def test_an_agent_tool_does_not_wait_for_the_one_that_it_is_inside_of(
    in_a_task: bool, server: LoopbackServer, client: AsyncOpenAI
) -> None:
    """By a run of its own that a tool starts: nothing ties the two together but where the code runs."""
    conversation = server.new_conversation()
    told: list[Any] = []
    model = OpenAIResponsesModel("m", client)
    leaf = Agent(name="leaf", model=model)

    @function_tool
    async def outside() -> str:
        """Start another run."""
        helper = leaf.as_tool("helper", "h", conversation_id=conversation)
        asks = ScriptedModel([[function_call("helper", {"input": "hello"}, call_id="z")], final("ok")])
        run = Runner.run(Agent(name="o", model=asks, tools=[helper]), "x", run_config=RunConfig(lease_wait_s=3_000))
        result = await (asyncio.create_task(run) if in_a_task else run)
        told.extend(item["output"] for item in result.to_input_list() if "output" in item)
        return "seen"

    server.rule = lambda asked: "done" if asked.outputs else call("outside", {})
    clerk = Agent(name="clerk", model=model, tools=[outside]).as_tool("helper", "h", conversation_id=conversation)
    asks = ScriptedModel([[function_call("helper", {"input": "go"}, call_id="o1")], final("ok")])
    async with asyncio.timeout(200):
        await Runner.run(Agent(name="outer", model=asks, tools=[clerk]), "go", session=InMemorySession("s"))
    assert len(told) == 1
    assert "inside of" in told[0]


# --- what users bring ------------------------------------------------------------------------------------------------


class OwnError(StandfastError):
    """An error of the user's that does not call ours when it is made."""

    def __init__(self, code: str) -> None:
        self.code = code


async def test_an_error_of_the_users_own_comes_out_as_it_is() -> None:
    @function_tool(failure_error_function=None)
    def fail() -> str:
        """Fail."""
        raise OwnError("own")

    model = ScriptedModel([[function_call("fail", {}, call_id="c1")], final("no")])
    with pytest.raises(OwnError) as caught:
        await Runner.run(Agent(name="a", model=model, tools=[fail]), "go")
    assert caught.value.code == "own"


class Pages:
    """A session over a service that gives at most four items at once."""

    def __init__(self, items: list[Any]) -> None:
        self.session_id, self.session_settings, self.items = "m", None, items

    async def get_items(self, limit: int | None = None) -> list[Any]:
        if limit is not None and limit > 4:
            raise ValueError("limit must be at most 4")
        return list(self.items if limit is None else self.items[-limit:])

    async def add_items(self, items: list[Any]) -> None:
        self.items += items

    async def pop_item(self) -> Any:
        return self.items.pop()

    async def clear_session(self) -> None:
        self.items.clear()


@pytest.mark.parametrize("more", [0, 1])
async def test_a_session_of_the_users_own_may_refuse_more_than_the_limit_that_was_set(more: int) -> None:
    said: list[Any] = [{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}] * 3
    session: Any = Pages([*said, *said[:more]])
    config = RunConfig(session_settings=SessionSettings(limit=4))
    result = await Runner.run(
        Agent(name="a", model=ScriptedModel([final("ok")])), "x", session=session, run_config=config
    )
    assert result.final_output == "ok"


# --- stores ----------------------------------------------------------------------------------------------------------


@pytest.mark.redis
async def test_a_lease_alone_does_not_keep_for_ever_what_an_expired_session_has_left() -> None:
    url, prefix = servers.redis_url(), uuid.uuid4().hex
    expiring = RedisSession.from_url("s", url=url, ttl=1, key_prefix=prefix)
    async with await expiring.lease(ttl_s=30, wait_s=0) as lease:
        await expiring.append([{"a": 1}], writer="w", start=0, lease=lease)
    while await expiring.get_items():
        await asyncio.sleep(0.1)
    lasting = RedisSession.from_url("s", url=url, key_prefix=prefix)
    async with await lasting.lease(ttl_s=1, wait_s=0):
        pass
    with redis.Redis.from_url(url) as direct:
        left: Any = direct.keys(f"{prefix}*:s:*")
        assert all(direct.pttl(key) != -1 for key in left), left  # type: ignore[operator]
    await expiring.close()
    await lasting.close()


async def test_an_error_of_an_engines_listener_is_told_to_the_one_it_is_about(tmp_path: Path) -> None:
    """Two writes go out together; that of the other session was committed, and is acknowledged."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path / 's.db'}")
    one, other = [SQLAlchemySession(name, engine=engine, create_tables=True) for name in ("one", "other")]
    await one.add_items([{"n": 0}])
    await other.add_items([{"n": 0}])

    @event.listens_for(engine.sync_engine, "before_cursor_execute")
    def refuse(_c: Any, _u: Any, _s: Any, parameters: Any, _x: Any, _m: Any) -> None:
        if "'other'" in repr(parameters):
            raise RuntimeError("a listener of the application failed")

    mine, theirs = await asyncio.gather(one.add_items([{"n": 1}]), other.add_items([{"n": 1}]), return_exceptions=True)
    assert mine is None
    assert isinstance(theirs, RuntimeError)
    event.remove(engine.sync_engine, "before_cursor_execute", refuse)
    assert await one.get_items() == [{"n": 0}, {"n": 1}]
    assert await other.get_items() == [{"n": 0}]
    await one.close()
    await other.close()
    await engine.dispose()


@pytest.mark.parametrize("name", ["file/s.db", "x" * 300])
async def test_a_path_that_cannot_be_opened_says_what_to_do(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    url = f"sqlite+aiosqlite:///{tmp_path / name}"
    session = SQLAlchemySession.from_url("s", url=url, create_tables=True, timeout_s=10)
    with pytest.raises(StoreUnavailableError):
        await session.add_items([{"a": 1}])
    await session.close()


async def test_a_lease_of_a_thousand_years_does_not_keep_others_from_being_renewed(tmp_path: Path) -> None:
    """Waiting for it is longer than a thread can wait; the thread died of it, and with it every other lease."""
    eternal, short = [SQLiteSession(name, tmp_path / "s.db") for name in ("a", "b")]
    held = await eternal.lease(ttl_s=threading.TIMEOUT_MAX * 10, wait_s=0)
    await asyncio.sleep(0.3)  # it waits for the one
    lease = await short.lease(ttl_s=600, wait_s=0)
    await asyncio.sleep(0.3)
    assert any(thread.name == "standfast-leases" for thread in threading.enumerate())
    await lease.release()
    await held.release()
    eternal.close()
    short.close()
