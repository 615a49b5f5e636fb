"""`ScriptedRealtimeModel` checks what is sent, delivers what it was told to, and keeps one order."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from standfast._src.realtime.machine.model_events import (
    RealtimeModelAudioEvent,
    RealtimeModelErrorEvent,
    RealtimeModelExceptionEvent,
    RealtimeModelOtherEvent,
    RealtimeModelTurnStartedEvent,
)
from standfast._src.realtime.machine.model_inputs import (
    RealtimeModelSendAudio,
    RealtimeModelSendInterrupt,
    RealtimeModelSendSessionUpdate,
    RealtimeModelSendUserInput,
)
from standfast._src.realtime.machine.transport_interface import RealtimeModelListener, RealtimePlaybackTracker
from standfast.testing.realtime import (
    RealtimeScriptError,
    RealtimeStep,
    ScriptedRealtimeModel,
    UnconsumedRealtimeSteps,
    UnexpectedRealtimeSend,
)

HELLO = RealtimeModelSendUserInput("hello")
AUDIO = RealtimeModelAudioEvent(b"\0\0", "r1", "i1", 0)
STARTED = RealtimeModelTurnStartedEvent(response_id="r1")


class Listener(RealtimeModelListener):
    def __init__(self, act: Callable[[Any], Awaitable[None]] | None = None) -> None:
        self.heard: list[Any] = []
        self._act = act

    async def on_event(self, event: Any) -> None:
        self.heard.append(event)
        if self._act is not None:
            await self._act(event)


async def connected(*steps: RealtimeStep, listener: Listener | None = None, **named: Any) -> ScriptedRealtimeModel:
    model = ScriptedRealtimeModel(steps, **named)
    if listener is not None:
        model.add_listener(listener)
    await model.connect({})
    return model


async def test_a_send_is_answered_with_the_events_of_its_step():
    listener = Listener()
    model = await connected(RealtimeStep(HELLO, [STARTED, AUDIO]), listener=listener)
    await model.send_event(HELLO)
    assert listener.heard == [STARTED, AUDIO]
    assert model.sent_events == (HELLO,)
    model.assert_complete()


@pytest.mark.parametrize("expect", [HELLO, RealtimeModelSendUserInput, lambda event: event.user_input == "hello"])
async def test_a_step_expects_a_value_a_class_or_what_a_function_says(expect: Any):
    model = await connected(RealtimeStep(expect))
    await model.send_event(HELLO)
    assert model.remaining_steps == 0


async def test_a_send_that_is_not_expected_is_an_error_and_keeps_the_step():
    model = await connected(RealtimeStep(RealtimeModelSendInterrupt))
    with pytest.raises(UnexpectedRealtimeSend) as unexpected:
        await model.send_event(HELLO)
    assert unexpected.value.actual == HELLO
    assert unexpected.value.expected is RealtimeModelSendInterrupt
    assert pickle.loads(pickle.dumps(unexpected.value)).actual == HELLO
    assert model.remaining_steps == 1
    await model.send_event(RealtimeModelSendInterrupt())
    with pytest.raises(UnexpectedRealtimeSend, match="no scripted step is left"):
        await model.send_event(HELLO)


async def test_without_strictness_a_send_that_is_not_expected_is_only_recorded():
    model = await connected(RealtimeStep(RealtimeModelSendInterrupt), strict=False)
    await model.send_event(HELLO)
    assert model.sent_events == (HELLO,)
    with pytest.raises(UnconsumedRealtimeSteps) as left:
        model.assert_complete()
    assert left.value.remaining_steps == 1


async def test_a_step_can_fail_the_send():
    model = await connected(RealtimeStep(HELLO, error=OSError("gone")))
    with pytest.raises(OSError, match="gone"):
        await model.send_event(HELLO)
    assert model.sent_events == (HELLO,), "it was sent, and the sender was told that it failed"


def test_a_step_answers_or_fails():
    with pytest.raises(ValueError, match="both"):
        RealtimeStep(HELLO, [AUDIO], error=OSError())
    with pytest.raises(ValueError, match="Give one"):
        ScriptedRealtimeModel(connect_events=[AUDIO], connect_error=OSError())


async def test_connecting_tells_its_events_before_it_returns():
    listener = Listener()
    model = await connected(listener=listener, connect_events=[STARTED])
    assert listener.heard == [STARTED]
    assert model.connected


async def test_connecting_can_fail_and_be_tried_again():
    model = ScriptedRealtimeModel(connect_error=OSError("no"))
    for _ in range(2):
        with pytest.raises(OSError, match="no"):
            await model.connect({})
    assert len(model.connect_calls) == 2
    assert not model.connected


async def test_connecting_twice_is_refused():
    model = await connected()
    with pytest.raises(AssertionError, match="Already connected"):
        await model.connect({})


async def test_secrets_are_not_kept():
    model = ScriptedRealtimeModel()
    tracker = RealtimePlaybackTracker()
    await model.connect(
        {
            "api_key": "sk-secret",
            "headers": {"Authorization": "secret"},
            "url": "wss://user:secret@example.org/v1/realtime?model=secret#secret",
            "playback_tracker": tracker,
        }
    )
    (call,) = model.connect_calls
    assert "secret" not in repr({**call, "playback_tracker": None})
    assert call["url"] == "wss://example.org/v1/realtime"
    assert call["api_key_provided"]
    assert call["headers_provided"]
    assert call["playback_tracker"] is tracker


async def test_a_send_from_inside_a_listener_is_delivered_behind_and_does_not_wait_for_itself():
    async def again(event: Any) -> None:
        if event is not AUDIO and len(listener.heard) == 1:
            await model.send_event(RealtimeModelSendInterrupt())
            assert len(listener.heard) == 1, "queued, not delivered yet"

    listener = Listener(again)
    steps = [RealtimeStep(HELLO, [STARTED, STARTED]), RealtimeStep(RealtimeModelSendInterrupt, [AUDIO])]
    model = await connected(*steps, listener=listener)
    await model.send_event(HELLO)
    assert listener.heard == [STARTED, STARTED, AUDIO], "one order, that of the sends"


async def test_a_cancelled_sender_does_not_take_back_what_was_sent():
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_: Any) -> None:
        reached.set()
        await go_on.wait()

    listener = Listener(wait)
    model = await connected(RealtimeStep(HELLO, [STARTED, AUDIO]), listener=listener)
    sender = asyncio.create_task(model.send_event(HELLO))
    await reached.wait()
    sender.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sender
    await model.close()
    with pytest.raises(AssertionError, match="Already connected"):
        await model.connect({})
    go_on.set()
    await _settled(model)
    assert listener.heard == [STARTED], "the close stopped the broadcast"


async def test_a_listener_that_raises_stops_the_broadcast_and_the_sender_is_told():
    async def fail(_: Any) -> None:
        raise RuntimeError("listener")

    first, second = Listener(fail), Listener()
    model = await connected(RealtimeStep(HELLO, [STARTED, AUDIO]), listener=first)
    model.add_listener(second)
    with pytest.raises(RuntimeError, match="listener"):
        await model.send_event(HELLO)
    assert (len(first.heard), len(second.heard)) == (1, 0)


async def test_what_was_recorded_does_not_change_afterwards():
    tool, settings = object(), {"voice": "ash", "audio": {"output": {"speed": 1}}}
    update: Any = RealtimeModelSendSessionUpdate({**settings, "tools": [tool]})  # type: ignore[typeddict-item]
    model = await connected(strict=False)
    await model.send_event(update)
    update.session_settings["audio"]["output"]["speed"] = 2
    (recorded,) = model.sent_events
    assert recorded.session_settings["audio"]["output"]["speed"] == 1
    assert recorded.session_settings["tools"][0] is tool
    recorded.session_settings["tools"].clear()
    assert model.sent_events[0].session_settings["tools"] == [tool]


async def test_exceptions_keep_their_identity():
    error = ValueError("x")
    listener = Listener()
    model = await connected(listener=listener)
    await model.emit(RealtimeModelExceptionEvent(error), RealtimeModelErrorEvent(error), RealtimeModelOtherEvent({}))
    assert listener.heard[0].exception is error
    assert listener.heard[1].error is error


async def test_closing_is_counted_and_acts_once():
    model = await connected(close_error=OSError("close"))
    with pytest.raises(OSError, match="close"):
        await model.close()
    await model.close()
    assert (model.close_calls, model.connected, model.closed) == (2, False, True)
    for doing in (model.send_event(HELLO), model.emit(AUDIO), model.send_event_if(HELLO, lambda: True)):
        with pytest.raises(RealtimeScriptError, match="disconnected"):
            await doing


async def test_a_conditional_send_asks_at_the_moment_it_leaves():
    model = await connected(RealtimeStep(RealtimeModelSendAudio))
    assert not await model.send_event_if(RealtimeModelSendAudio(b""), lambda: False)
    assert model.remaining_steps == 1
    assert await model.send_event_if(RealtimeModelSendAudio(b""), lambda: True)
    assert model.remaining_steps == 0


async def test_listeners_are_told_once_however_often_they_are_added():
    listener = Listener()
    model = await connected(listener=listener)
    model.add_listener(listener)
    assert model.listeners == (listener,)
    await model.emit(AUDIO)
    model.remove_listener(listener)
    model.remove_listener(listener)
    await model.emit(AUDIO)
    assert listener.heard == [AUDIO]


async def _settled(model: ScriptedRealtimeModel) -> None:
    """Wait until the transport can be connected again, which is when the last broadcast has ended."""
    for _ in range(1000):
        try:
            return await model.connect({})
        except AssertionError:
            await asyncio.sleep(0)
    raise AssertionError("the broadcast does not end")
