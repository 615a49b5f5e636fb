"""Other people's programs hold a conversation with the loopback server: it is not only our client that it suits."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimePlaybackTracker, RealtimeRunner, RealtimeSession

from standfast._kits.testing.leaks import no_leaks
from standfast.testing.loopback import Asked, call
from standfast.testing.realtime.audio import silence
from tests.testing.realtime.talking import loopback

MODEL = "gpt-realtime-2.1"


async def test_the_openai_client_talks_types_and_calls_a_tool():
    async with no_leaks(), loopback([call("book", {"seats": 2}), "It is booked", "Goodbye"]) as server:
        async with server.client() as client, client.realtime.connect(model=MODEL) as connection:
            detection: Any = {"type": "server_vad", "silence_duration_ms": 300}
            audio: Any = {"input": {"transcription": {"model": "whisper-1"}, "turn_detection": detection}}
            await connection.session.update(session={"type": "realtime", "audio": audio})
            said = silence(300) + server.speak("a table for two please") + silence(400)
            await connection.input_audio_buffer.append(audio=base64.b64encode(said).decode())
            heard: list[str] = []
            spoken: list[str] = []
            replies = 0
            async for event in connection:
                if event.type == "conversation.item.input_audio_transcription.completed":
                    heard.append(event.transcript)
                elif event.type == "response.output_audio_transcript.done":
                    spoken.append(event.transcript)
                elif event.type == "response.function_call_arguments.done":
                    assert event.arguments == '{"seats":2}'
                    output: Any = {"type": "function_call_output", "call_id": event.call_id, "output": "table 5"}
                    await connection.conversation.item.create(item=output)
                elif event.type == "response.done":
                    replies += 1
                    if replies == 1:
                        await connection.response.create()
                    elif replies == 2:
                        part: Any = {"type": "input_text", "text": "Thank you"}
                        await connection.conversation.item.create(
                            item={"type": "message", "role": "user", "content": [part]}
                        )
                        await connection.response.create()
                    else:
                        break
        assert heard == ["a table for two please"]
        assert spoken == ["It is booked", "Goodbye"]
        assert server.said() == [
            ("user", "a table for two please"),
            ("assistant", "It is booked"),
            ("user", "Thank you"),
            ("assistant", "Goodbye"),
        ]
        assert not server.refused


# --- openai-agents ---------------------------------------------------------------------------------------------------


class Listening:
    """Reads a session's events, and waits for one without missing any. What it reads, it plays at once."""

    def __init__(self, session: RealtimeSession, tracker: RealtimePlaybackTracker) -> None:
        self.seen: list[Any] = []
        self._tracker = tracker
        self._events: AsyncIterator[Any] = aiter(session)

    async def until(self, kind: str, *, count: int = 1) -> Any:
        while sum(event.type == kind for event in self.seen) < count:
            await self._read()
        return [event for event in self.seen if event.type == kind][count - 1]

    async def until_transcribed(self, words: str) -> None:
        while not any(_is_transcript(event, words) for event in self.seen):
            await self._read()

    async def _read(self) -> None:
        event = await asyncio.wait_for(anext(self._events), 30)
        if event.type == "audio":
            self._tracker.on_play_bytes(event.item_id, event.content_index, event.audio.data)
        self.seen.append(event)


def _is_transcript(event: Any, words: str) -> bool:
    data = getattr(event, "data", None)
    return getattr(data, "type", "") == "input_audio_transcription_completed" and data.transcript == words


def _config(url: str, tracker: RealtimePlaybackTracker) -> Any:
    detection = {"type": "server_vad", "silence_duration_ms": 300, "interrupt_response": True}
    return {
        "url": f"{url}?model={MODEL}",
        "api_key": "key",
        "playback_tracker": tracker,
        "initial_model_settings": {"model_name": MODEL, "turn_detection": detection},
    }


async def test_openai_agents_talks_types_and_calls_a_tool():
    booked: list[int] = []

    @function_tool
    def book(seats: int) -> str:
        """Book a table."""
        booked.append(seats)
        return "table 5"

    def rule(asked: Asked) -> Any:
        if asked.outputs:
            return f"You have {', '.join(asked.outputs.values())}"
        return call("book", {"seats": 2}) if "book" in asked.last_text else f"You said {asked.last_text}"

    agent = RealtimeAgent(name="Host", instructions="Be kind.", tools=[book])
    tracker = RealtimePlaybackTracker()
    async with loopback(rule) as server:
        async with await RealtimeRunner(agent).run(model_config=_config(server.url, tracker)) as session:
            listening = Listening(session, tracker)
            await session.send_message("good evening")
            await listening.until("agent_end")
            speech = silence(300) + server.speak("please book a table") + silence(400)
            for start in range(0, len(speech), 4_800):
                await session.send_audio(speech[start : start + 4_800])
            await listening.until_transcribed("please book a table")
            tool_end = await listening.until("tool_end")
            assert tool_end.output == "table 5"
            await listening.until("agent_end", count=3)
            audio = b"".join(event.audio.data for event in listening.seen if event.type == "audio")
            assert audio
        assert booked == [2]
        assert server.said() == [
            ("user", "good evening"),
            ("assistant", "You said good evening"),
            ("user", "please book a table"),
            ("assistant", "You have table 5"),
        ]
        assert not server.refused


async def test_openai_agents_is_interrupted_by_speech_and_truncates():
    agent = RealtimeAgent(name="Host", instructions="Talk a lot.")
    tracker = RealtimePlaybackTracker()
    async with loopback(["One two three four five six seven eight", "Sorry"]) as server:
        async with await RealtimeRunner(agent).run(model_config=_config(server.url, tracker)) as session:
            listening = Listening(session, tracker)
            gate = server.hold("response.output_audio.delta", skip=3)
            await session.send_message("tell me something")
            await gate.reached()
            await listening.until("audio", count=3)
            speech = silence(300) + server.speak("stop it") + silence(400)
            await session.send_audio(speech)
            await listening.until("audio_interrupted")
            truncated = await server.until("conversation.item.truncate")
            heard_ms = sum(len(event.audio.data) for event in listening.seen if event.type == "audio") // 48
            assert truncated["audio_end_ms"] == heard_ms
            await listening.until("agent_end", count=2)
        done = [event["response"] for event in server.sent("response.done")]
        assert [one["status"] for one in done] == ["cancelled", "completed"]
        assert server.said()[-2:] == [("user", "stop it"), ("assistant", "Sorry")]
        assert "eight" not in server.said()[1][1]
        assert not server.refused
