"""Proven weaknesses of the SDK's voice sessions (spec, part 5) that have no test elsewhere: each as what holds here."""

from __future__ import annotations

import asyncio
from typing import Any

from realtime.session.helpers import at, runner, talking, until

from standfast import (
    GuardrailFunctionOutput,
    InMemorySession,
    OutputGuardrail,
    ToolGuardrailFunctionOutput,
    function_tool,
    tool_output_guardrail,
)
from standfast._src.realtime.machine.playback import Playback
from standfast.realtime import (
    RealtimeAgent,
    RealtimeModelAudioEvent,
    RealtimeModelItemUpdatedEvent,
    RealtimeModelTranscriptDeltaEvent,
    RealtimeModelTurnEndedEvent,
    RealtimeModelTurnStartedEvent,
    RealtimeRunner,
)
from standfast.realtime.items import InputText, UserMessageItem
from standfast.testing import LoopbackRealtimeServer, ScriptedRealtimeModel
from standfast.testing.loopback import call


def agent(*tools: Any, **more: Any) -> RealtimeAgent[Any]:
    return RealtimeAgent(name="voice", tools=list(tools), **more)


async def test_guardrails_have_one_look_in_flight_for_a_reply():
    """E7, W63: many thresholds are crossed while a guardrail is slow; it is asked again when it has answered."""
    gate, at_once, most, looks = asyncio.Event(), 0, 0, 0

    async def slow(*_: Any) -> GuardrailFunctionOutput:
        nonlocal at_once, most, looks
        at_once, looks = at_once + 1, looks + 1
        most = max(most, at_once)
        await gate.wait()
        at_once -= 1
        return GuardrailFunctionOutput(None, False)

    model = ScriptedRealtimeModel()
    config: Any = {"guardrails_settings": {"debounce_text_length": 10}, "output_guardrails": [OutputGuardrail(slow)]}
    session = await RealtimeRunner(agent(), model=model, config=config).run()
    async with session:
        await session.on_event(RealtimeModelTurnStartedEvent(response_id="r1"))
        for number in range(20):
            await session.on_event(RealtimeModelTranscriptDeltaEvent("i1", f"words {number:04} ", "r1"))
            await asyncio.sleep(0)
        await until(lambda: looks == 1)
        gate.set()
        await session.on_event(RealtimeModelTurnEndedEvent(response_id="r1"))
        await until(lambda: looks >= 2 and at_once == 0)
    assert most == 1


async def test_what_a_tool_output_guardrail_withholds_does_not_reach_the_model():
    """E11, W16."""

    @tool_output_guardrail
    async def no_numbers(data: Any) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.reject_content("withheld")

    @function_tool(tool_output_guardrails=[no_numbers])
    async def lookup() -> str:
        return "SSN 123"

    async with LoopbackRealtimeServer([call("lookup", {}), "I may not say."]) as server:
        session = await runner(agent(lookup)).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("look")
            await reader.until("agent_end", 2)
        given = [item["output"] for item in server.items() if item["type"] == "function_call_output"]
    assert given == ["withheld"]


def test_two_items_in_a_row_are_cut_where_playback_is():
    """E8, W28: each item has its own place on the timeline, also when both came at once."""
    playback = Playback()
    playback.take("first", 1_000, 0.0)
    playback.take("second", 1_000, 0.0)
    assert (playback.heard_ms("first", 0.3), playback.heard_ms("second", 0.3)) == (300, 0)
    assert (playback.heard_ms("first", 1.2), playback.heard_ms("second", 1.2)) == (1_000, 200)


async def test_an_item_stands_behind_the_one_it_names_and_a_snapshot_belongs_to_its_reader():
    """E12, W49 and W53: the history is in the server's order, and nobody who edits an event edits the session."""
    session = await RealtimeRunner(agent(), model=ScriptedRealtimeModel()).run()
    async with session:
        for item_id, previous in (("a", None), ("b", "a"), ("between", "a")):
            item = UserMessageItem(item_id=item_id, previous_item_id=previous, content=[InputText(text=item_id)])
            await session.on_event(RealtimeModelItemUpdatedEvent(item))
        assert [item.item_id for item in session.history] == ["a", "between", "b"]
        session.history.clear()
        await session.on_event(RealtimeModelItemUpdatedEvent(session.history[0]))
        async for event in session:
            if event.type == "history_updated" and event.history:
                event.history.clear()
                break
        assert [item.item_id for item in session.history] == ["a", "between", "b"]


async def test_a_reply_that_failed_is_told_and_asked_for_once_more():
    """E9, W48."""
    async with LoopbackRealtimeServer(["Here I am.", "Here I am."]) as server:
        gate = server.hold("response.output_audio.delta")
        session = await runner(agent()).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("hello?")
            await gate.reached()
            server.fail_response("failed")
            gate.release()
            told = await reader.until("error")
            assert told.error["message"] == "A reply failed"
            await reader.until("agent_end", 2)
            assert len(server.received("response.create")) == 2


async def test_a_tool_that_does_not_exist_is_answered_and_the_model_goes_on():
    """E9, W14b: silence is no answer."""
    async with LoopbackRealtimeServer([call("imaginary", {}), "I cannot do that."]) as server:
        session = await runner(agent()).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("do it")
            told = await reader.until("error")
            assert "imaginary" in told.error["message"]
            await reader.until("audio_end")
        assert server.said()[-1] == ("assistant", "I cannot do that.")


async def test_two_sessions_of_one_runner_have_a_connection_each():
    """E2, W39: closing one that was never entered closes nobody else's."""
    async with LoopbackRealtimeServer(lambda asked: f"Re {asked.last_text}.") as server:
        made = runner(agent())
        first, second, third = [await made.run(model_config=at(server)) for _ in range(3)]
        async with talking(first) as one:
            async with second:
                await third.close()
                await first.send_message("first")
                await second.send_message("second")
                await one.until("audio_end")
            await first.send_message("again")
            await one.until("audio_end", 2)
        assert len(server.conversations) == 2


async def test_an_address_that_names_its_model_is_not_contradicted():
    """The SDK's default model would be refused: a session's model cannot be changed."""
    async with LoopbackRealtimeServer(["Hello."]) as server:
        address = f"{server.url.partition('?')[0]}?model=gpt-of-the-house"
        session = await runner(agent()).run(model_config=at(server, url=address))
        async with talking(session) as reader:
            await session.send_message("hello")
            await reader.until("audio_end")
        assert all("model" not in frame["session"] for frame in server.received("session.update"))


async def test_audio_and_its_commit_leave_together_whoever_else_speaks():
    """E9, W67: two tasks that send at once do not come between an utterance and its end."""
    settings: Any = {"model_settings": {"turn_detection": None}}
    async with LoopbackRealtimeServer([]) as server:
        session = await RealtimeRunner(agent(), config=settings).run(model_config=at(server))
        async with talking(session):
            pieces = [bytes([number, 0]) * 240 for number in range(8)]
            await asyncio.gather(*(session.send_audio(piece, commit=True) for piece in pieces))
            await server.until("input_audio_buffer.commit", count=8)
        kinds = [one["type"] for one in server.received() if one["type"].startswith("input_audio_buffer.")]
    assert kinds == ["input_audio_buffer.append", "input_audio_buffer.commit"] * 8


async def test_raw_events_can_be_switched_off_and_audio_is_queued_once():
    """E12, W46."""
    session = await RealtimeRunner(agent(), model=ScriptedRealtimeModel(), config={"raw_events": False}).run()
    async with session:
        await session.on_event(RealtimeModelAudioEvent(bytes(480), "r1", "i1", 0))
        kinds = []
        async for event in session:
            kinds.append(event.type)
            if event.type == "audio":
                break
    assert "raw_model_event" not in kinds


async def test_what_a_server_says_of_a_reply_that_was_cut_brings_no_words_back():
    """E8, W7: the end of the item was on its way when it was interrupted."""
    words = " ".join(f"word{number}" for number in range(40))
    async with LoopbackRealtimeServer([words, "Yes?"]) as server:
        gate = server.hold("response.done")
        session = await runner(agent()).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("talk")
            await reader.until("audio_end")
            await gate.reached()
            await session.interrupt()
            await reader.until("audio_interrupted")
            (item,) = [item for item in session.history if getattr(item, "role", "") == "assistant"]
            heard = item.content[0].transcript
            assert heard != words
            late = item.model_copy(
                update={"status": "completed", "content": [item.content[0].model_copy(update={"transcript": words})]}
            )
            await session.on_event(RealtimeModelItemUpdatedEvent(late))
            await session.on_event(RealtimeModelTranscriptDeltaEvent(item.item_id, "more", "r"))
            (item,) = [item for item in session.history if getattr(item, "role", "") == "assistant"]
            assert (item.content[0].transcript, item.status) == (heard, "incomplete")
            gate.release()


async def test_retrieving_is_not_how_a_user_turn_is_read():
    """W33: no item is fetched with its audio after each turn, and no audio is kept in the history."""
    store = InMemorySession("s")
    async with LoopbackRealtimeServer(["Yes."]) as server:
        session = await runner(agent()).run(model_config=at(server), session=store)
        async with talking(session, has_store=True) as reader:
            await session.send_message("hello")
            await reader.until("audio_end")
            await session.settled()
            assert not server.received("conversation.item.retrieve")
            assert all(getattr(part, "audio", None) is None for item in session.history for part in item.content)
