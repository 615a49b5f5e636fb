"""Transports with the SDK's interface alone: the session sends exactly the SDK's events, and owns everything else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from realtime.session.helpers import PATIENCE_S, Reader, talk_of, until

from standfast import GuardrailFunctionOutput, InMemorySession, function_tool, output_guardrail
from standfast._src.base.errors import RealtimeStateError
from standfast.realtime import (
    RealtimeAgent,
    RealtimeModel,
    RealtimeModelAudioEvent,
    RealtimeModelAudioInterruptedEvent,
    RealtimeModelEndOfStreamEvent,
    RealtimeModelErrorEvent,
    RealtimeModelExceptionEvent,
    RealtimeModelInputAudioTranscriptionCompletedEvent,
    RealtimeModelItemUpdatedEvent,
    RealtimeModelSendAudio,
    RealtimeModelSendInterrupt,
    RealtimeModelSendSessionUpdate,
    RealtimeModelSendToolOutput,
    RealtimeModelSendUserInput,
    RealtimeModelToolCallEvent,
    RealtimeModelTranscriptDeltaEvent,
    RealtimeModelTurnEndedEvent,
    RealtimeModelTurnStartedEvent,
    RealtimeRunner,
    RealtimeSession,
    UserMessageItem,
    realtime_handoff,
)
from standfast.realtime.items import InputAudio
from standfast.realtime.testing import RealtimeStep, ScriptedRealtimeModel
from standfast.testing import no_leaks


@function_tool
async def add(a: int, b: int) -> int:
    return a + b


def agent(**more: Any) -> RealtimeAgent[Any]:
    return RealtimeAgent(**{"name": "voice", "tools": [add], **more})


CALL = RealtimeModelToolCallEvent("add", "c1", '{"a": 1, "b": 2}')


async def test_a_message_and_a_tool_call_are_sent_as_the_sdk_sends_them():
    """E2: after the block the transport is closed and has no listener."""
    model = ScriptedRealtimeModel(
        [
            RealtimeStep(RealtimeModelSendUserInput("what is 1 + 2?"), emit=[CALL]),
            RealtimeStep(RealtimeModelSendToolOutput(CALL, "3", start_response=True)),
        ]
    )
    async with no_leaks():
        async with await RealtimeRunner(agent(), model=model).run() as session:
            reader = Reader(session)
            await session.send_message("what is 1 + 2?")
            end = await reader.until("tool_end")
            assert end.output == 3
            await until(lambda: model.remaining_steps == 0)
        await reader.task
    assert model.closed
    assert not model.listeners


async def test_it_can_be_fed_and_read_before_it_is_entered_and_closed_all_the_same():
    """E4: what that starts is owned and closed in the same way."""
    model = ScriptedRealtimeModel(strict=False)
    started = asyncio.Event()

    @function_tool
    async def endless() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    async with no_leaks():
        session = RealtimeSession(model, agent(tools=[endless]), None)
        reader = Reader(session)
        await session.on_event(RealtimeModelTranscriptDeltaEvent("i1", "Hello", "r1"))
        await session.on_event(RealtimeModelToolCallEvent("endless", "c1", "{}"))
        await asyncio.wait_for(started.wait(), 5)
        assert session.state == "new"
        await session.close()
        await reader.task
    assert "tool_start" in reader.types()
    assert session.state == "closed"
    assert [part.transcript for part in session.history[0].content] == ["Hello"]  # type: ignore[union-attr]


async def test_every_reader_sees_every_event_and_ends_with_the_session():
    model = ScriptedRealtimeModel(strict=False)
    async with no_leaks():
        session = await RealtimeRunner(agent(), model=model).run()
        await session.enter()
        first, second = Reader(session), Reader(session)
        await asyncio.sleep(0)
        for number in range(20):
            await model.emit(RealtimeModelErrorEvent(number))
        await first.until("error", 20)
        await second.until("error", 20)
        await session.close()
        await first.task
        await second.task
    assert [one.error for one in first.of("error")] == [one.error for one in second.of("error")] == list(range(20))


async def test_a_failure_comes_after_what_was_queued_and_closes_the_session():
    """E3: ten pieces of audio were queued, and are delivered before the error."""
    model = ScriptedRealtimeModel(strict=False)
    session = await RealtimeRunner(agent(), model=model).run()
    await session.enter()
    for _ in range(10):
        await model.emit(RealtimeModelAudioEvent(b"\0" * 480, "r1", "i1", 0))
    await model.emit(RealtimeModelExceptionEvent(ValueError("gone")))
    reader = Reader(session)
    await reader.task
    assert len(reader.of("audio")) == 10
    assert isinstance(reader.error, ValueError)
    assert session.state == "closed"
    with pytest.raises(RealtimeStateError):
        await session.send_message("hello?")
    with pytest.raises(RealtimeStateError):
        await session.enter()


async def test_the_end_of_the_stream_ends_readers_and_leaves_the_session_open():
    model = ScriptedRealtimeModel(strict=False)
    async with await RealtimeRunner(agent(), model=model).run() as session:
        await model.emit(RealtimeModelEndOfStreamEvent())
        reader = Reader(session)
        await reader.task
        assert session.state == "open"


async def test_a_handoff_and_an_update_send_the_settings_first():
    other = agent(name="other", instructions="I am other.")
    handing = RealtimeModelToolCallEvent("transfer_to_other", "c9", "{}")
    model = ScriptedRealtimeModel(strict=False)
    front = agent(handoffs=[realtime_handoff(other)])
    async with await RealtimeRunner(front, model=model).run() as session:
        reader = Reader(session)
        await model.emit(handing)
        handed = await reader.until("handoff")
        assert handed.to_agent is other
        await until(lambda: len(model.sent_events) == 2)
        update, output = model.sent_events
        assert isinstance(update, RealtimeModelSendSessionUpdate)
        assert update.session_settings["instructions"] == "I am other."
        assert isinstance(output, RealtimeModelSendToolOutput)
        assert output.output == '{"assistant": "other"}'
        await session.update_agent(front)
        assert session.current_agent is front


async def test_audio_interrupts_and_commits_go_through():
    model = ScriptedRealtimeModel(strict=False)
    async with await RealtimeRunner(agent(), model=model).run() as session:
        reader = Reader(session)
        await session.send_audio(b"\1\2", commit=True)
        await session.interrupt()
        assert model.sent_events == (RealtimeModelSendAudio(b"\1\2", commit=True), RealtimeModelSendInterrupt())
        await model.emit(RealtimeModelAudioInterruptedEvent("i1", 0))
        await reader.until("audio_interrupted")


async def test_an_output_that_could_not_be_sent_is_sent_again_without_running_the_tool():
    """E10, the seventh failure path of the seed document. E4: the failure of the send reaches the event stream."""
    ran = []

    @function_tool
    async def book() -> str:
        ran.append(1)
        return "booked"

    booking = RealtimeModelToolCallEvent("book", "c1", "{}")
    output = RealtimeModelSendToolOutput(booking, "booked", start_response=True)
    model = ScriptedRealtimeModel([RealtimeStep(output, error=OSError("no route")), RealtimeStep(output)])
    async with await RealtimeRunner(agent(tools=[book]), model=model).run() as session:
        reader = Reader(session)
        await model.emit(booking)
        await until(lambda: model.remaining_steps == 0)
        assert reader.of("error")
    assert ran == [1]


@output_guardrail(name="no_secret")
def no_secret(context: Any, agent: Any, output: str) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, "secret" in output)


STARTS = [[RealtimeModelTurnStartedEvent(response_id="r1")], [RealtimeModelTurnStartedEvent()], []]


@pytest.mark.parametrize("end", ["r1", None], ids=["end with id", "end without"])
@pytest.mark.parametrize("start", STARTS, ids=["start with id", "start without", "no start"])
async def test_a_trip_cancels_once_and_sends_one_note_through_a_conditional_send(start: list[Any], end: str | None):
    """E7 on a plain transport, the eighth failure path, whatever the transport tells of the response's id."""
    model = ScriptedRealtimeModel(strict=False)
    runner = RealtimeRunner(
        agent(output_guardrails=[no_secret]), model=model, config={"guardrails_settings": {"debounce_text_length": 5}}
    )
    async with await runner.run() as session:
        reader = Reader(session)
        for event in start:
            await model.emit(event)
        for text in ("the secret", " is a", " secret"):
            await model.emit(RealtimeModelTranscriptDeltaEvent("i1", text, "r1"))
        await reader.until("guardrail_tripped")
        await until(lambda: len(model.sent_events) == 2)
        await model.emit(RealtimeModelTurnEndedEvent(response_id=end))
        # The next reply is another one: nothing of the refused one is held against it.
        await model.emit(RealtimeModelTurnStartedEvent())
        await model.emit(RealtimeModelAudioEvent(b"\0\0", "r2", "i2", 0))
        await model.emit(RealtimeModelTurnEndedEvent(response_id="r2"))
        await reader.until("audio")
        await asyncio.wait_for(session.settled(), PATIENCE_S)
        assert model.sent_events == (
            RealtimeModelSendInterrupt(force_response_cancel=True, response_id="r1"),
            RealtimeModelSendUserInput("guardrail triggered: no_secret"),
        )
        assert len(reader.of("guardrail_tripped")) == 1


async def test_a_trip_that_comes_late_does_not_cancel_the_reply_after_it():
    """E7: a newer reply began, also without an id; the refused one is only no longer played."""
    looked, go_on = asyncio.Event(), asyncio.Event()

    @output_guardrail(name="slow")
    async def slow(context: Any, agent: Any, output: str) -> GuardrailFunctionOutput:
        looked.set()
        await go_on.wait()
        return GuardrailFunctionOutput(None, tripwire_triggered=True)

    model = ScriptedRealtimeModel(strict=False)
    config: Any = {"guardrails_settings": {"debounce_text_length": 5}}
    async with await RealtimeRunner(agent(output_guardrails=[slow]), model=model, config=config).run() as session:
        reader = Reader(session)
        await model.emit(RealtimeModelTurnStartedEvent())
        await model.emit(RealtimeModelTranscriptDeltaEvent("i1", "some words", "r1"))
        await looked.wait()
        await model.emit(RealtimeModelTurnEndedEvent())
        await model.emit(RealtimeModelTurnStartedEvent())
        go_on.set()
        await reader.until("guardrail_tripped")
        await until(lambda: bool(model.sent_events))
        assert model.sent_events == (
            RealtimeModelSendInterrupt(force_response_cancel=False, response_id="r1", playback_only=True),
        )


async def test_a_transport_without_conditional_sends_says_so_and_the_call_goes_on():
    """E7, W21: the reply is stopped all the same; that the model was not told why is an event with a remedy."""

    class Simple(RealtimeModel):
        """Four methods, and nothing else."""

        def __init__(self) -> None:
            self.sent: list[Any] = []

        async def connect(self, options: Any) -> None: ...

        def add_listener(self, listener: Any) -> None: ...

        def remove_listener(self, listener: Any) -> None: ...

        async def send_event(self, event: Any) -> None:
            self.sent.append(event)

        async def close(self) -> None: ...

    model = Simple()
    async with await RealtimeRunner(agent(output_guardrails=[no_secret]), model=model).run() as session:
        reader = Reader(session)
        await session.on_event(RealtimeModelTurnStartedEvent(response_id="r1"))
        await session.on_event(RealtimeModelTranscriptDeltaEvent("i1", "the secret", "r1"))
        await session.on_event(RealtimeModelTurnEndedEvent(response_id="r1"))
        told = await reader.until("error")
        assert "Override send_event_if" in told.error.remedy
        await session.send_message("go on")
        assert model.sent[-1] == RealtimeModelSendUserInput("go on")
        assert len(reader.of("guardrail_tripped")) == len(reader.of("error")) == 1


async def test_what_was_said_is_stored_from_a_plain_transport_too():
    """E14, as far as such a transport tells."""
    store = InMemorySession("p")
    model = ScriptedRealtimeModel(strict=False)
    async with await RealtimeRunner(agent(), model=model).run(session=store) as session:
        await session.send_message("hi")
        await model.emit(RealtimeModelTurnStartedEvent(response_id="r1"))
        await model.emit(RealtimeModelTranscriptDeltaEvent("i1", "Hello there.", "r1"))
        await model.emit(RealtimeModelTurnEndedEvent(response_id="r1"))
        said = UserMessageItem(item_id="u1", content=[InputAudio()])
        await model.emit(RealtimeModelItemUpdatedEvent(said))
        await model.emit(RealtimeModelInputAudioTranscriptionCompletedEvent("u1", "how are you"))
        await until(lambda: talk_of(session).stored == 3)
    assert [item["content"] for item in await store.get_items()] == ["hi", "Hello there.", "how are you"]
