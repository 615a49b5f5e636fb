"""C15 on a server's conversation: an unfinished run is found by the conversation's label, a failed one too."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import done, lines, short, write
from openai import AsyncOpenAI

from standfast import (
    Agent,
    InMemoryRunStore,
    ModelBehaviorError,
    OpenAIResponsesModel,
    RunConfig,
    RunHandedOverError,
    RunHooks,
    Runner,
    RunState,
    SQLiteSession,
    StandfastError,
    StoreUnavailableError,
    ToolContext,
    UnfinishedRunError,
    function_tool,
)
from standfast._src.sessions.backends.sqlite.schema import Tables
from standfast._src.sessions.backends.sqlite.statements import statements
from standfast.testing.loopback import Asked, Drop, Gate, LoopbackServer, Status, call


def rule(asked: Asked) -> Any:
    if asked.last_text.startswith("pay") and not asked.outputs:
        return call("pay", {}, call_id="c1")
    return f"re {asked.last_text}"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(rule) as started:
        yield started


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "memory":
        yield InMemoryRunStore()
        return
    session = SQLiteSession("unused", tmp_path / "a.db")
    yield session.run_store()
    session.close()


def payer(client: AsyncOpenAI, book: Path, **tool: Any) -> Agent[Any]:
    @function_tool(**tool)
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    return Agent(name="A", model=OpenAIResponsesModel("m", client), tools=[pay])


class Talk:
    """Runs on one conversation, saved in one store."""

    def __init__(self, server: LoopbackServer, client: AsyncOpenAI, store: Any, book: Path, **tool: Any) -> None:
        self.server, self.store, self.book = server, store, book
        self.agent = payer(client, book, **tool)
        self.conversation = server.new_conversation()

    async def say(self, words: Any, *, hooks: Any = None, **config: Any) -> Any:
        settings = RunConfig(run_store=self.store, **config)
        return await Runner.run(self.agent, words, conversation_id=self.conversation, run_config=settings, hooks=hooks)

    async def fail(self) -> None:
        """A run that pays; then its provider is down."""
        self.server.fault(Status(429), skip=1)
        with pytest.raises(Exception, match="asked to fail"):
            await self.say("pay 5", run_id="job")

    def history(self) -> list[str]:
        return short(self.server.history(self.conversation))


async def test_what_a_failed_run_owes_goes_first_in_the_next_request(
    server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    """C15, D2: what was paid reaches the server, once, before the new message."""
    talk = Talk(server, client, store, tmp_path / "book")
    await talk.fail()
    result = await talk.say("hello")
    assert [(one.run_id, one.found, one.done) for one in result.unfinished] == [("job", "gone", "settled")]
    assert short(server.model_calls[-1].input) == ["O(c1: done)", "U(hello)"]
    assert talk.history() == ["U(pay 5)", "C(c1)", "O(c1: done)", "U(hello)", "A(re hello)"]
    assert (await talk.say("again")).unfinished == ()
    assert lines(talk.book) == ["c1"]


class Fails(RunHooks[Any]):
    async def on_llm_start(self, *said: Any) -> None:
        raise ValueError("a hook fails")


@pytest.mark.parametrize("begins", ["as a message", "as a state"])
async def test_a_run_that_took_over_what_another_owes_and_sent_nothing_hands_it_on(
    begins: str, server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    """C15: also one that was never saved before; what it took over is its own from the moment that the other ends."""
    talk = Talk(server, client, store, tmp_path / "book")
    await talk.fail()
    given: Any = "hello"
    if begins == "as a state":
        given = RunState(None, given, talk.agent, conversation_id=talk.conversation)
    with pytest.raises(ValueError, match="a hook fails"):
        await talk.say(given, hooks=Fails())
    await talk.say("again")
    assert talk.history() == ["U(pay 5)", "C(c1)", "O(c1: done)", "U(again)", "A(re again)"]


@pytest.mark.parametrize("left", ["handed over", "failed"])
async def test_a_resumed_run_settles_no_other(
    left: str, server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    """C15: it lets one go first that lost its worker; one that failed refuses it, as its call is open at the server."""
    talk = Talk(server, client, store, tmp_path / "book")
    with pytest.raises(ValueError, match="a hook fails"):
        await talk.say("hello", run_id="early", hooks=Fails())
    if left == "failed":
        await talk.fail()
        with pytest.raises(UnfinishedRunError, match=r"run 'job' .* has not ended"):
            await Runner.resume(talk.agent, "early", run_store=store)
        await Runner.resume(talk.agent, "job", run_store=store)
    else:

        class Leaves(RunHooks[Any]):
            async def on_tool_end(self, *said: Any) -> None:
                self.leaving = asyncio.create_task(Runner.hand_over())
                await asyncio.sleep(0)

        with pytest.raises(RunHandedOverError):
            await talk.say("pay 5", run_id="job", hooks=Leaves())
    result = await Runner.resume(talk.agent, "early", run_store=store)
    assert [(one.run_id, one.done) for one in result.unfinished] == (
        [] if left == "failed" else [("job", "resumed first")]
    )
    assert talk.history() == ["U(pay 5)", "C(c1)", "O(c1: done)", "A(re pay 5)", "U(hello)", "A(re hello)"]
    assert lines(talk.book) == ["c1"]


async def test_what_the_caller_brings_of_a_failed_run_is_not_sent_twice(
    server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    """D2, D11: a program that hands over what an error said is owed goes on working."""
    talk = Talk(server, client, store, tmp_path / "book")
    await talk.fail()
    brought = {"type": "function_call_output", "call_id": "c1", "output": done("c1")}
    await talk.say([brought, {"role": "user", "content": "hello"}])
    assert talk.history() == ["U(pay 5)", "C(c1)", "O(c1: done)", "U(hello)", "A(re hello)"]


class FailsAtTheReply(RunHooks[Any]):
    """A hook that raises when a reply is there, before anything of it has run."""

    async def on_llm_end(self, *given: Any) -> None:
        raise ValueError("a hook of the application failed")


@pytest.mark.parametrize("how", ["the tool is gone", "a hook raises"])
async def test_a_reply_of_which_nothing_ran_does_not_end_the_conversation(
    how: str, server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    """C15: the server has stored the turn and waits for its outputs: the next message brings them."""
    talk = Talk(server, client, store, tmp_path / "book")
    tools = talk.agent.tools
    if how == "the tool is gone":
        talk.agent.tools = []
    hooks = FailsAtTheReply() if how == "a hook raises" else None
    with pytest.raises((ModelBehaviorError, ValueError)):
        await talk.say("pay 5", run_id="job", hooks=hooks)
    talk.agent.tools = tools
    result = await talk.say("hello")
    assert [(one.run_id, one.found, one.done) for one in result.unfinished] == [("job", "gone", "settled")]
    assert talk.history()[:2] == ["U(pay 5)", "C(c1)"]
    assert "did not run" in server.model_calls[-1].input[0]["output"]
    assert talk.history()[3:] == ["U(hello)", "A(re hello)"]
    assert not talk.book.exists()


async def test_a_first_request_that_was_cut_is_asked_about_before_the_next_message(
    server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """C15, D5: somebody stops a reply that the server has by then: it waits for the output of what it asked for."""
    talk = Talk(server, client, store, tmp_path / "book")
    gate = Gate(before_commit=False)
    server.fault(gate)
    settings = RunConfig(run_store=store, run_id="job")
    result = Runner.run_streamed(talk.agent, "pay 5", conversation_id=talk.conversation, run_config=settings)
    await gate.reached()
    result.cancel()
    async for _ in result.stream_events():
        pass
    gate.release()
    assert result.owed_items == []  # whether the server has the message was not known
    assert any("job" in line and "not known" in line for line in caplog.messages)
    after = await talk.say("hello")
    assert [(one.run_id, one.found, one.done) for one in after.unfinished] == [("job", "gone", "settled")]
    assert "did not run" in server.model_calls[-1].input[0]["output"]
    assert [word[:3] for word in talk.history()] == ["U(p", "C(c", "O(c", "U(h", "A(r"]
    assert not talk.book.exists()


async def test_a_first_request_that_the_server_never_got_is_nothing_to_tell(
    server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    """C3: whoever says the same again after a failure has said it once."""
    talk = Talk(server, client, store, tmp_path / "book")
    server.fault(Drop(committed=False))
    with pytest.raises(Exception, match=r"."):
        await talk.say("hello", run_id="job")
    assert (await talk.say("hello")).unfinished == ()
    assert talk.history() == ["U(hello)", "A(re hello)"]


# --- a first request that was lost is over once the server has taken a later one -------------------------------------


async def lose(talk: Talk, words: str = "hello", run_id: str = "job") -> None:
    """A first request that never reaches the server."""
    talk.server.fault(Drop(committed=False))
    with pytest.raises(Exception, match=r"."):
        await talk.say(words, run_id=run_id)


@pytest.mark.parametrize("words", ["other", "hello", "pay 5"])
async def test_nobody_asks_about_a_lost_first_request_once_a_later_one_was_taken(
    words: str, server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    """Each later run asked the server once more, for ever, and read all that had been said since. Also of equal words:
    the server takes nothing while a call is open, so there is nothing to make good whatever it has of them."""
    talk = Talk(server, client, store, tmp_path / "book")
    await lose(talk, "pay 5" if words == "pay 5" else "hello")
    await lose(talk, "hello", "another")
    assert len(await store.open_on_conversation(talk.conversation)) == 2
    await talk.say(words)
    assert await store.open_on_conversation(talk.conversation) == []
    before = len(server.requests)
    assert (await talk.say("and now?")).unfinished == ()
    assert len(server.requests) == before + 2  # where the conversation ends, and the request itself
    assert talk.history().count(f"U({words})") == 1


async def test_what_was_lost_can_be_run_again_after_that(
    server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    """C3: whoever delivers a message again under its id, because it failed, has it answered, however late."""
    talk = Talk(server, client, store, tmp_path / "book")
    await lose(talk, "pay 5")
    await talk.say("hello")
    assert (await talk.say("pay 5", run_id="job")).final_output == "re pay 5"
    assert talk.history() == ["U(hello)", "A(re hello)", "U(pay 5)", "C(c1)", "O(c1: done)", "A(re pay 5)"]
    assert lines(talk.book) == ["c1"]


async def test_a_lost_first_request_is_not_over_before_the_server_has_taken_another(
    server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    """It was only slow, and arrives between a later run's look and that run's own request, which is then refused."""
    talk = Talk(server, client, store, tmp_path / "book")
    gate = Gate(before_commit=True)
    server.fault(gate)
    cut = asyncio.create_task(talk.say("pay 5", run_id="job"))
    await gate.reached()
    cut.cancel()
    await asyncio.wait([cut])

    async def arrive(data: Any) -> Any:
        gate.release()
        while len(talk.history()) < 2:
            await asyncio.sleep(0.01)
        return data.model_data

    with pytest.raises(Exception, match="No tool output found"):
        await talk.say("hello", call_model_input_filter=arrive)
    result = await talk.say("hello")
    assert ("job", "gone", "settled") in [(one.run_id, one.found, one.done) for one in result.unfinished]
    assert "did not run" in server.model_calls[-1].input[0]["output"]
    assert [word[:3] for word in talk.history()] == ["U(p", "C(c", "O(c", "U(h", "A(r"]
    assert await store.open_on_conversation(talk.conversation) == []


class AwayForOne(InMemoryRunStore):
    """A store that is away when the run of this id is saved."""

    run_id = ""

    async def save_run(self, run_id: str, *given: Any, **more: Any) -> Any:
        if run_id == self.run_id:
            raise StoreUnavailableError("the store is away", "Try again.")
        return await super().save_run(run_id, *given, **more)


async def test_equal_words_of_another_open_run_are_not_a_lost_requests(
    server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
) -> None:
    """Its call was answered twice: as what it did, and as one that did not run, by whoever had said the same before."""
    store = AwayForOne()
    talk = Talk(server, client, store, tmp_path / "book")
    await lose(talk, "pay 5")
    store.run_id = "job"  # else it is over with the next request that is taken
    server.fault(Status(429), skip=1)
    with pytest.raises(Exception, match="asked to fail"):
        await talk.say("pay 5", run_id="open")
    store.run_id = ""
    result = await talk.say("hello")
    assert [one.run_id for one in result.unfinished] == ["open"]
    assert talk.history() == ["U(pay 5)", "C(c1)", "O(c1: done)", "U(hello)", "A(re hello)"]


async def test_with_refuse_a_failed_run_on_a_conversation_is_named(
    server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    talk = Talk(server, client, store, tmp_path / "book")
    await talk.fail()
    before = talk.history()
    with pytest.raises(UnfinishedRunError, match="job"):
        await talk.say("hello", unfinished="refuse")
    assert talk.history() == before


async def test_only_runs_of_the_conversation_are_read(
    server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
) -> None:
    """C15 costs what the conversation has open, not what the store has."""

    class Counting(InMemoryRunStore):
        loaded: tuple[str, ...] = ()

        async def load_run(self, run_id: str) -> Any:
            self.loaded += (run_id,)
            return await super().load_run(run_id)

    store = Counting()
    for number in range(20):
        other = Talk(server, client, store, tmp_path / "book", needs_approval=True)
        assert (await other.say("pay 5", run_id=f"other {number}")).interruptions
    talk = Talk(server, client, store, tmp_path / "book")
    await talk.fail()
    store.loaded = ()
    await talk.say("hello", run_id="mine")
    assert set(store.loaded) <= {"job", "mine"}


async def test_an_ended_run_is_not_found_on_its_conversation(
    server: LoopbackServer, client: AsyncOpenAI, store: Any, tmp_path: Path
) -> None:
    talk = Talk(server, client, store, tmp_path / "book")
    await talk.say("pay 5")
    await talk.say("hello")
    assert await store.open_on_conversation(talk.conversation) == []


def test_sqlite_finds_the_open_runs_of_a_conversation_by_an_index(tmp_path: Path) -> None:
    session = SQLiteSession("unused", tmp_path / "a.db")
    asyncio.run(session.add_items([{"role": "user", "content": "hello"}]))
    session.close()
    asked = statements(Tables.of("agent_sessions", "agent_messages")).build_listing(
        "run", {"conversation": "c"}, numbered=True
    )
    with closing(sqlite3.connect(tmp_path / "a.db")) as db:
        plan = " ".join(str(row) for row in db.execute(f"EXPLAIN QUERY PLAN {asked}", (9, "c", 10)))
    assert "runs_by_conversation" in plan


async def test_a_file_whose_runs_have_no_label_is_read_as_before(
    server: LoopbackServer, client: AsyncOpenAI, tmp_path: Path
) -> None:
    """D9: what an earlier release saved is found, at the cost that it had then."""
    path = tmp_path / "a.db"
    session = SQLiteSession("unused", path)
    talk = Talk(server, client, session.run_store(), tmp_path / "book", needs_approval=True)
    await talk.say("pay 5", run_id="job")
    await session.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP INDEX agent_messages_standfast_runs_by_conversation")
        db.execute("UPDATE agent_messages_standfast_runs SET labels = json_remove(labels, '$.conversation')")
    session = SQLiteSession("unused", path)
    talk.store = session.run_store()
    for _ in range(2):
        with pytest.raises(StandfastError, match="job"):
            await talk.say("hello")
    await session.close()
