"""A call remembers (E14): what was heard is stored as it happens, and goes on elsewhere, as text or as voice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from realtime.session.helpers import PATIENCE_S, at, runner, talk_of, talking, texts, until, utterance

from standfast import Agent, InMemorySession, Runner, SessionSettings, SQLiteSession, function_tool
from standfast._src.base.errors import (
    ApprovalError,
    ConnectionLostError,
    ConnectionRefusedByServerError,
    ItemNotStorableError,
    NotFoundError,
    RunClaimedError,
)
from standfast._src.base.operational_events import EVENTS
from standfast.realtime import RealtimeAgent
from standfast.testing import LoopbackRealtimeServer, ScriptedModel, assistant_message
from standfast.testing.loopback import call


def agent(*tools: Any, **more: Any) -> RealtimeAgent[Any]:
    return RealtimeAgent(name="voice", instructions="Talk.", tools=list(tools), **more)


async def test_a_call_is_stored_while_it_goes_on_and_a_text_run_continues_it(tmp_path: Path):
    """E14, from voice to text, and C15: the text run reads what was said in the call."""
    session = SQLiteSession("alice", tmp_path / "db.sqlite")
    async with LoopbackRealtimeServer(["Hello Alice.", "Your table is booked."]) as server:
        call_session = await runner(agent()).run(model_config=at(server), session=session)
        async with talking(call_session, has_store=True) as reader:
            await call_session.send_message("hi, I am Alice")
            await until(lambda: talk_of(call_session).stored == 2)  # heard to its end
            await call_session.send_audio(utterance(server, "book a table"))
            await reader.until("agent_end", 2)
            await until(lambda: talk_of(call_session).stored == 4)
            stored = texts(await session.get_items())
            assert stored == ["hi, I am Alice", "Hello Alice.", "book a table", "Your table is booked."]
    model = ScriptedModel([[assistant_message("You said you are Alice.")]])
    result = await Runner.run(Agent(name="text", model=model), "who am I?", session=session)
    assert result.final_output == "You said you are Alice."
    seen = [item.get("content") for item in model.calls[0].input]
    assert seen[:4] == stored
    await session.close()


async def test_a_call_starts_from_a_text_history_and_ids_that_are_too_long(tmp_path: Path):
    """E14, from text to voice: the server has what was said before, calls and their outputs as well."""
    session = SQLiteSession("bob", tmp_path / "db.sqlite")
    long_id = "call_" + "x" * 400
    await session.add_items(
        [
            {"role": "user", "content": "my number is 7"},
            {"type": "reasoning", "id": "rs_1", "summary": []},
            {"type": "function_call", "call_id": long_id, "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": long_id, "output": "seven"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I know."}]},
        ]
    )
    async with LoopbackRealtimeServer(["It is seven."]) as server:
        call_session = await runner(agent()).run(model_config=at(server), session=session)
        async with talking(call_session, has_store=True) as reader:
            await call_session.send_message("what is my number?")
            await reader.until("agent_end")
            await until(lambda: talk_of(call_session).stored == 2)
        assert [text for _, text in server.said()] == [
            "my number is 7",
            "I know.",
            "what is my number?",
            "It is seven.",
        ]
        assert not server.refused
    assert texts(await session.get_items())[-2:] == ["what is my number?", "It is seven."]
    await session.close()


async def test_what_was_cut_is_stored_as_it_was_heard_and_kept_as_it_was_generated(tmp_path: Path):
    """E8 and E14: the stored text ends at a word that was heard; the record keeps what was generated."""
    session = SQLiteSession("carol", tmp_path / "db.sqlite")
    words = " ".join(f"word{number}" for number in range(40))
    async with LoopbackRealtimeServer([words, "Yes?"]) as server:
        call_session = await runner(agent()).run(model_config=at(server), session=session)
        async with talking(call_session, has_store=True) as reader:
            await call_session.send_message("talk")
            await reader.until("audio")
            await reader.until("agent_end")
            await asyncio.sleep(0.6)  # heard, as far as a clock can tell
            await call_session.interrupt()
            await reader.until("audio_interrupted")
            await server.until("conversation.item.truncate")
            await call_session.send_message("stop")
            await reader.until("agent_end", 2)
            await until(lambda: len(talk_of(call_session).ledger) == 4)
            extra = talk_of(call_session).ledger[1].extra
            ids = [item.item_id for item in call_session.history]
            assert call_session.generated(ids[1]) == words
            assert call_session.generated(ids[0]) is None  # that was the caller
        stored = texts(await session.get_items())
        assert words.startswith(stored[1])
        assert 0 < len(stored[1]) < len(words)
        assert extra is not None
        assert extra["generated"] == words
        assert 0 < extra["heard_ms"] < extra["total_ms"]
        assert server.said()[1] == ("assistant", stored[1])
        assert not server.refused
        # Another worker shows the same items, and knows what nobody heard.
        again = await runner(agent()).resume(call_session.run_id, session=session, model_config=at(server))
        async with talking(again, has_store=True):
            await until(lambda: len(again.history) == 4)
            assert [item.item_id for item in again.history] == ids
            assert again.generated(ids[1]) == words
    await session.close()


async def test_another_worker_takes_a_call_over_and_the_first_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """E13 and E14: the second worker gives the server the conversation; the first can store nothing any more."""
    path = tmp_path / "db.sqlite"
    first_store, second_store = SQLiteSession("dave", path), SQLiteSession("dave", path)
    runs: list[int] = []

    @function_tool(needs_approval=True)
    async def book(seats: int) -> str:
        runs.append(seats)
        return f"booked {seats}"

    async with LoopbackRealtimeServer([call("book", {"seats": 2}), "It is booked."]) as server:
        short = {"lease_ttl_s": 0.3}
        first = await runner(agent(book), **short).run(model_config=at(server), session=first_store, run_id="c1")
        await first.enter()
        await first.send_message("book two seats")
        await until(lambda: bool(first.pending_approvals))
        # Private: without its lease and unaware of it, as one that stood still. One that renews it would be told by the
        # lease, and what is tried here is that the record refuses too.
        await first._scope.memory.hold.release()  # type: ignore[union-attr]  # it has a session, so it has a memory
        second = await runner(agent(book), **short).resume("c1", session=second_store, model_config=at(server))
        async with talking(second, has_store=True) as reader:
            asked = await reader.until("tool_approval_required")
            assert [one.call_id for one in second.pending_approvals] == [asked.call_id]
            await second.approve_tool_call(asked.call_id)
            await reader.until("tool_end")
            await reader.until("agent_end")
            await until(lambda: not talk_of(second).open)
        with pytest.raises(RunClaimedError):
            await first.send_message("are you there?")
        await first.close()
    lost = [one.getMessage() for one in caplog.records if one.msg == EVENTS["lease_lost"][1]]
    assert lost == ["run c1 has lost its conversation (RunClaimedError): it stops and writes nothing more"]
    assert runs == [2]
    items = await first_store.get_items()
    assert texts(items) == ["book two seats", "It is booked."]
    assert [item["type"] for item in items if "type" in item] == ["function_call", "function_call_output"]
    await first_store.close()
    await second_store.close()


async def test_a_call_that_was_decided_after_hanging_up_runs_and_is_stored(tmp_path: Path):
    """E2: `resume` settles what a call left, without a connection."""
    session = SQLiteSession("erin", tmp_path / "db.sqlite")
    runs: list[str] = []

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        runs.append(f"paid {amount}")
        return f"paid {amount}"

    async with LoopbackRealtimeServer([call("pay", {"amount": 5}), "never said"]) as server:
        first = await runner(agent(pay)).run(model_config=at(server), session=session, run_id="c2")
        async with talking(first, has_store=True) as reader:
            await first.send_message("pay five")
            await reader.until("tool_approval_required")
    assert runs == []
    later = await runner(agent(pay)).resume("c2", session=session)
    await later.enter(connect=False)
    (asked,) = later.pending_approvals
    await later.approve_tool_call(asked.call_id)
    await later.settled()
    await later.close()
    assert runs == ["paid 5"]
    items = await session.get_items()
    assert [item.get("type", item.get("role")) for item in items] == ["user", "function_call", "function_call_output"]
    assert items[2]["output"] == "paid 5"
    async with LoopbackRealtimeServer(["Welcome back."]) as server:
        again = await runner(agent(pay)).resume("c2", session=session, model_config=at(server))
        async with talking(again, has_store=True) as reader:  # a call that was hung up can be gone on with
            await again.send_message("hello again")
            await reader.until("agent_end")
            assert [text for _, text in server.said()] == ["pay five", "hello again", "Welcome back."]
    await session.close()


async def test_an_approval_in_a_call_that_was_taken_over_is_not_for_another_implementation(tmp_path: Path):
    """C16c, C16h: what the person was shown was another tool of that name, so the person is asked again."""
    session = SQLiteSession("gwen", tmp_path / "db.sqlite")
    ran: list[str] = []

    @function_tool(needs_approval=True)
    async def pay(input: str) -> str:
        ran.append("function")
        return "paid"

    payer = Agent(name="Payer", model=ScriptedModel([[assistant_message("paid by another")]]))
    other = payer.as_tool("pay", "Pay.", needs_approval=True)
    async with LoopbackRealtimeServer([call("pay", {"input": "five"}), "never said"]) as server:
        first = await runner(agent(pay)).run(model_config=at(server), session=session, run_id="c9")
        async with talking(first, has_store=True) as reader:
            await first.send_message("pay five")
            await reader.until("tool_approval_required")
    later = await runner(agent(other)).resume("c9", session=session)
    await later.enter(connect=False)
    (asked,) = later.pending_approvals
    await later.approve_tool_call(asked.call_id)
    await later.settled()
    assert [one.call_id for one in later.pending_approvals] == [asked.call_id]
    assert payer.model.calls == ()  # type: ignore[union-attr]
    await later.approve_tool_call(asked.call_id)  # asked about what is there now
    await later.settled()
    await later.close()
    assert (ran, len(payer.model.calls)) == ([], 1)  # type: ignore[union-attr]
    await session.close()


async def test_an_unknown_call_and_an_unknown_approval_are_typed_errors():
    session = InMemorySession("frank")
    async with LoopbackRealtimeServer([]) as server:
        with pytest.raises(NotFoundError):
            await (await runner(agent()).resume("nobody", session=session, model_config=at(server))).enter()
        live = await runner(agent()).run(model_config=at(server), session=session)
        async with live:
            with pytest.raises(ApprovalError):
                await live.approve_tool_call("nothing")
            assert live.state == "open"


class Stalling(InMemorySession):
    """A session whose store answers no write while its gate is closed."""

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.gate = asyncio.Event()
        self.gate.set()

    async def record(self, **given: Any) -> Any:  # type: ignore[override]
        await self.gate.wait()
        return await super().record(**given)


async def test_ten_seconds_of_audio_go_on_while_a_store_stands_still():
    """E4 and E14: the reader of the connection never waits for a store; what begins a tool does."""
    store, ran = Stalling("stalled"), []
    words = " ".join(f"word{number}" for number in range(100))

    @function_tool
    async def pay() -> str:
        ran.append(1)
        return "paid"

    async with LoopbackRealtimeServer([[words, call("pay", {})], "Paid."]) as server:
        session = await runner(agent(pay)).run(model_config=at(server), session=store)
        async with talking(session, has_store=True) as reader:
            store.gate.clear()
            sending = asyncio.ensure_future(session.send_message("pay"))
            await reader.until("audio_end")
            await reader.until("agent_end")
            heard_ms = sum(len(event.audio.data) for event in reader.of("audio")) / 48
            was_acknowledged, had_run = sending.done(), list(ran)
            store.gate.set()
            assert heard_ms > 10_000
            assert (was_acknowledged, had_run) == (False, [])  # neither is saved yet
            await sending
            await reader.until("tool_end")
            await reader.until("agent_end", 2)
    assert ran == [1]


async def test_the_sdk_reads_the_session_of_a_call_and_a_text_run_of_ours_goes_on_after_it(tmp_path: Path):
    """E14: stored items are ordinary ones: the OpenAI Agents SDK opens the file and sees the conversation."""
    import agents

    path = tmp_path / "db.sqlite"
    store = SQLiteSession("shared", path)
    async with LoopbackRealtimeServer([call("look", {}), "It is blue."]) as server:

        @function_tool
        async def look() -> str:
            return "blue"

        session = await runner(agent(look)).run(model_config=at(server), session=store)
        async with talking(session, has_store=True) as reader:
            await session.send_message("what colour?")
            await reader.until("agent_end", 2)
            await session.settled()
    peer = agents.SQLiteSession("shared", path)
    items: Any = await peer.get_items()
    assert [item.get("role", item.get("type")) for item in items] == [
        "user",
        "function_call",
        "function_call_output",
        "assistant",
    ]
    assert items == await store.get_items()
    await peer.add_items([{"role": "user", "content": "from the SDK"}])
    peer.close()
    model = ScriptedModel([[assistant_message("Blue, you were told.")]])
    await Runner.run(Agent(name="text", model=model), "which was it?", session=store)
    seen = [item.get("content", item.get("output", item.get("name"))) for item in model.calls[0].input]
    assert seen == ["what colour?", "look", "blue", "It is blue.", "from the SDK", "which was it?"]
    await store.close()


async def test_a_takeover_that_could_not_connect_leaves_the_call_as_it_was(tmp_path: Path):
    """E1, E14: entering fails, nothing is hung up, and the reply that was owed is still owed to the next worker."""
    store = SQLiteSession("gwen", tmp_path / "db.sqlite")
    async with LoopbackRealtimeServer(lambda asked: "Good evening.") as server:
        gate = server.hold("response.output_audio.delta")
        first = await runner(agent(), reconnect={"enabled": False}).run(
            model_config=at(server), session=store, run_id="c5"
        )
        await first.enter()
        await first.send_message("hello")
        await gate.reached()
        await first.close(hang_up=False)
        gate.release()
        server.reject(503)
        failed = await runner(agent()).resume("c5", session=store, model_config=at(server))
        with pytest.raises(ConnectionRefusedByServerError):
            await failed.enter()
        second = await runner(agent()).resume("c5", session=store, model_config=at(server))
        async with talking(second, has_store=True) as reader:
            await reader.until("audio_end")
            await second.settled()
    assert texts(await store.get_items()) == ["hello", "Good evening."]
    await store.close()


@pytest.mark.parametrize("attempts", [0, 1])
async def test_a_call_that_lost_its_connection_for_good_was_not_hung_up(tmp_path: Path, attempts: int):
    """E13: the error says that it can be taken over, and whoever does owes the caller the reply."""
    store = SQLiteSession("hope", tmp_path / "db.sqlite")
    quick = {"reconnect": {"enabled": True, "max_attempts": attempts, "first_delay_s": 0.0}}
    async with LoopbackRealtimeServer(lambda asked: "Good evening.") as server:
        gate = server.hold("response.output_audio.delta")
        first = await runner(agent(), **quick).run(model_config=at(server), session=store, run_id="c6")
        async with first:
            await first.send_message("hello")
            await gate.reached()
            if attempts:
                server.reject(503)
            server.cut_all()
            gate.release()
            with pytest.raises(ConnectionLostError, match="attempts"):
                async with asyncio.timeout(PATIENCE_S):
                    [event async for event in first]
        second = await runner(agent()).resume("c6", session=store, model_config=at(server))
        async with talking(second, has_store=True) as reader:
            await reader.until("audio_end")
            await second.settled()
    assert texts(await store.get_items()) == ["hello", "Good evening."]
    await store.close()


async def test_who_lets_go_of_a_call_lets_go_also_if_the_block_is_left_meanwhile(tmp_path: Path):
    """E3: the first `close` says whether the call is hung up; leaving the block only waits for it."""
    store = SQLiteSession("iris", tmp_path / "db.sqlite")
    async with LoopbackRealtimeServer(["Yes."]) as server:
        session = await runner(agent()).run(model_config=at(server), session=store, run_id="c7")
        async with session:
            letting_go = asyncio.ensure_future(session.close(hang_up=False))
            await asyncio.sleep(0)
        await letting_go
    saved = await store.run_store().load_run("c7")
    assert saved is not None
    assert b'"ended":false' in saved.head.replace(b" ", b"")
    await store.close()


async def test_an_output_above_the_bound_of_the_session_is_replaced_and_stored(tmp_path: Path):
    """A6: the tool ran, so the call says so; an output that no append takes would end it."""
    session = SQLiteSession("erin", tmp_path / "db.sqlite", session_settings=SessionSettings(max_item_bytes=2_000))

    @function_tool
    async def read() -> str:
        return "x" * 2_000

    async with LoopbackRealtimeServer([call("read", {}), "Too long."]) as server:
        live = await runner(agent(read)).run(model_config=at(server), session=session)
        async with talking(live, has_store=True) as reader:
            await live.send_message("read it")
            await reader.until("tool_end")
            await until(lambda: talk_of(live).stored == 4)
    output = (await session.get_items())[2]["output"]
    assert "was not kept: at most 2,000 are" in output
    await session.close()


async def test_nothing_above_the_bound_of_the_session_is_stored_by_a_call(tmp_path: Path):
    """A6: a typed message was stored at any length, and an output that was above the bound as an item."""
    session = SQLiteSession("erin", tmp_path / "db.sqlite", session_settings=SessionSettings(max_item_bytes=2_000))

    @function_tool
    async def read() -> str:
        return "x" * 1_960

    async with LoopbackRealtimeServer([call("read", {}), "Too long."]) as server:
        live = await runner(agent(read)).run(model_config=at(server), session=session)
        async with talking(live, has_store=True) as reader:
            with pytest.raises(ItemNotStorableError, match="2,000"):
                await live.send_message("x" * 2_000)
            image = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 2_000}
            with pytest.raises(ItemNotStorableError):
                await live.send_message({"type": "message", "role": "user", "content": [image]})
            await live.send_message("read it")
            await reader.until("tool_end")
            await until(lambda: talk_of(live).stored == 4)
    items = await session.get_items()
    assert texts(items)[0] == "read it"
    assert "was not kept: at most 2,000 are" in items[2]["output"]
    await session.close()
