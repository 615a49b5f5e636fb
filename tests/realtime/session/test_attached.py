"""Calls that somebody else set up (phone, WebRTC): the session attaches by id, listens in and steers (E8, E13)."""

from __future__ import annotations

from typing import Any

import pytest
from realtime.session.helpers import SETTINGS, Reader, at, runner, talk_of, talking, until

from standfast import InMemorySession, function_tool
from standfast._kits.testing.loopback.answers import text_of
from standfast._kits.testing.realtime.calls import LoopbackCall
from standfast.realtime import OpenAIRealtimeSIPModel, RealtimeAgent, RealtimeRunner
from standfast.testing import LoopbackRealtimeServer
from standfast.testing.loopback import Asked, call
from standfast.testing.realtime.audio import silence


def attached(server: LoopbackRealtimeServer, line: LoopbackCall) -> Any:
    return {"url": f"{server.url}?call_id={line.id}", "api_key": "x", "call_id": line.id}


async def test_attaching_changes_nothing_that_was_not_asked_for_and_nothing_is_given_again():
    """E13: the call keeps its voice, model and detection; after a lost connection nothing is sent that is there."""
    ran: list[str] = []

    @function_tool
    async def lookup() -> str:
        ran.append("lookup")
        return "it is open"

    agent = RealtimeAgent(name="desk", instructions="Be brief.", tools=[lookup])
    config: Any = {"reconnect": {"enabled": True, "first_delay_s": 0.01}}
    async with LoopbackRealtimeServer([call("lookup", {}), "We are open.", "Until ten."]) as server:
        line = server.call()
        session = await RealtimeRunner(agent, model=OpenAIRealtimeSIPModel(), config=config).run(
            model_config=attached(server, line)
        )
        async with talking(session) as reader:
            sent = server.received("session.update")[0]["session"]
            assert set(sent) == {"type", "instructions", "tools"}
            line.speak(server.speak("are you open") + silence(900))
            await reader.until("agent_end", 2)
            created = len(server.received("conversation.item.create"))
            server.cut_all()
            await reader.until("reconnected")
            line.speak(server.speak("until when") + silence(900))
            await reader.until("agent_end", 3)
            given = [one for one in server.received("conversation.item.create") if one["item"]["id"] != "p2"]
            assert len(given) == created == 1  # the tool's output, once
            assert [text for role, text in server.said() if role == "system"] == []  # what only looked is gone again
            assert not server.refused
    assert ran == ["lookup"]


@pytest.mark.parametrize("missed", ["a whole turn", "a call", "nothing", "the end of a reply"])
async def test_what_happened_while_nobody_was_attached_is_looked_for_and_reported(missed: str):
    """E13, E14: the newest item that was missed is fetched, a gap is said; nothing is asked for that was answered."""
    ran: list[str] = []

    @function_tool
    async def lookup() -> str:
        ran.append("lookup")
        return "it is open"

    def answers(asked: Asked) -> Any:
        words = [text_of(item) for item in asked.context if item.get("role") == "user"]
        given = any(item.get("type") == "function_call_output" for item in asked.context)
        return call("lookup", {}) if "look it up" in words and not given else f"Re {words[-1]}."

    store = InMemorySession("phone")
    agent = RealtimeAgent(name="desk", tools=[lookup])
    config: Any = {
        "reconnect": {"enabled": True, "first_delay_s": 0.05, "max_delay_s": 0.05, "max_attempts": 400},
        "model_settings": {"input_audio_transcription": {"model": "gpt-4o-mini-transcribe"}},
    }
    async with LoopbackRealtimeServer(answers) as server:
        line = server.call()
        session = await RealtimeRunner(agent, model=OpenAIRealtimeSIPModel(), config=config).run(
            model_config=attached(server, line), session=store
        )
        async with session:
            reader = Reader(session)
            gate = server.hold("response.output_audio_transcript.done") if missed == "the end of a reply" else None
            line.speak(server.speak("hello") + silence(900))
            if gate is not None:
                await gate.reached()
            else:
                await reader.until("agent_end")
                await session.settled()
            server.reject(503, times=1_000)
            server.cut_all()
            await reader.until("connection_lost")
            if gate is not None:
                gate.release()
            elif missed != "nothing":
                line.speak(server.speak("look it up" if missed == "a call" else "are you there") + silence(900))
            count = {"a whole turn": 4, "a call": 4, "nothing": 2, "the end of a reply": 2}[missed]
            await until(lambda: len(line.conversation.items) == count and not line.conversation.jobs)
            server.reject(503, times=0)
            event = await reader.until("reconnected")
            assert (event.gap is not None) == (missed in ("a whole turn", "a call"))
            assert event.cut == []
            if missed == "a call":
                await reader.until("agent_end", 2)
            await session.settled()
            assert len(server.received("response.create")) == (1 if missed == "a call" else 0)
            assert not server.refused
        await reader.task
    stored = [item.get("content", item.get("output", item.get("name"))) for item in await store.get_items()]
    assert (
        stored
        == {
            "a whole turn": ["hello", "Re hello.", "Re are you there."],
            "a call": ["hello", "Re hello.", "lookup", "it is open", "Re look it up."],
            "nothing": ["hello", "Re hello."],
            "the end of a reply": ["hello", "Re hello."],
        }[missed]
    )
    assert ran == (["lookup"] if missed == "a call" else [])


async def test_what_the_caller_heard_is_known_from_the_server():
    """E8, E14: the server says that it stopped playing; then the reply is settled and stored."""
    store = InMemorySession("phone")
    agent = RealtimeAgent(name="desk", instructions="Be brief.")
    async with LoopbackRealtimeServer(["We are open until ten tonight."]) as server:
        line = server.call()
        config: Any = {"model_settings": {"input_audio_transcription": {"model": "gpt-4o-mini-transcribe"}}}
        session = await RealtimeRunner(agent, model=OpenAIRealtimeSIPModel(), config=config).run(
            model_config=attached(server, line), session=store
        )
        async with session:
            reader = Reader(session)
            line.speak(server.speak("are you open") + silence(900))
            await reader.until("agent_end")
            await until(lambda: talk_of(session).stored == 2)
        await reader.task
    assert [item["content"] for item in await store.get_items()] == ["are you open", "We are open until ten tonight."]


async def test_a_key_of_the_telephone_is_an_event():
    agent = RealtimeAgent(name="desk")
    async with LoopbackRealtimeServer([]) as server:
        line = server.call()
        session = await RealtimeRunner(agent, model=OpenAIRealtimeSIPModel()).run(model_config=attached(server, line))
        keys: list[str] = []
        async with session:
            line.press("5")
            async for event in session:
                if event.type == "raw_model_event" and event.data.type == "other":
                    keys.append(event.data.data["event"])
                    break
    assert keys == ["5"]


async def test_push_to_talk_without_voice_detection():
    """E9: nobody asks for a reply but the application; what was committed is transcribed and answered once."""
    settings: Any = {**SETTINGS, "turn_detection": None}
    async with LoopbackRealtimeServer(["I heard you."]) as server:
        session = await RealtimeRunner(RealtimeAgent(name="a"), config={"model_settings": settings}).run(
            model_config=at(server)
        )
        async with talking(session) as reader:
            await session.send_audio(server.speak("one two three"))
            await session.commit_audio()
            await server.until("conversation.item.added", direction="sent")
            assert not server.received("response.create")
            await session.create_response()
            await reader.until("agent_end")
            assert [text for _, text in server.said()] == ["one two three", "I heard you."]


async def test_a_server_that_says_nothing_about_a_reply_is_asked_again():
    """E9: a watchdog for what was lost in silence."""
    from standfast._kits.testing.realtime.faults import Lose

    async with LoopbackRealtimeServer(["Here I am."]) as server:
        server.fault(Lose(), on="response.create", direction="received")
        session = await runner(RealtimeAgent(name="a"), reply_timeout_s=0.2).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("hello?")
            await reader.until("agent_end")
            assert len(server.received("response.create")) == 2


async def test_a_connection_is_made_anew_between_two_turns_before_the_time_limit():
    """E13: the provider's limit never ends a call."""
    config: Any = {"reconnect": {"enabled": True, "first_delay_s": 0.01, "recycle_before_s": 3_599.0}}
    async with LoopbackRealtimeServer(["One.", "Two."]) as server:
        session = await runner(RealtimeAgent(name="a"), **config).run(model_config=at(server))
        async with talking(session) as reader:
            await session.send_message("first")
            await reader.until("agent_end")
            await reader.until("reconnected")
            await session.send_message("second")
            await reader.until("agent_end", 2)
            said = [text for _, text in server.said()]
            assert said[-2:] == ["second", "Two."]
            assert "first" in said
