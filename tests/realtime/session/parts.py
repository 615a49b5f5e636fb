"""A whole voice call on the loopback server, through the public path, and what must hold however it went."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from standfast import InMemorySession, function_tool
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.machine.transport_interface import RealtimeModel, RealtimePlaybackTracker
from standfast._src.realtime.machine.voice_call import SPEECH
from standfast._src.realtime.runner import RealtimeRunner
from standfast._src.realtime.session.voice_session import RealtimeSession
from standfast.testing.loopback import Asked, call
from standfast.testing.realtime import LoopbackRealtimeServer
from standfast.testing.realtime.audio import silence

DETECTION = {"type": "server_vad", "silence_duration_ms": 200, "prefix_padding_ms": 100}
CONFIG: Any = {
    "reconnect": {"enabled": True, "first_delay_s": 0.01, "max_delay_s": 0.05},
    "lease_ttl_s": 2.0,
    "tracing_disabled": True,
}
ALLOWED = {
    "conversation_already_has_active_response",
    "response_cancel_not_active",
    "item_create_duplicate_item_id",
}
"""What a client may be refused when it could not know better."""

WAIT_S = 30.0


class House:
    """The agents of a call, and what their tools really did."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()

    def agent(self) -> RealtimeAgent[Any]:
        @function_tool(needs_approval=True)
        def book(seats: int) -> str:
            """Book a table."""
            self.done[f"book {seats}"] += 1
            return f"table for {seats}"

        @function_tool
        def menu() -> str:
            """What there is to eat."""
            self.done["menu"] += 1
            return "soup"

        manager = RealtimeAgent(name="Manager", instructions="You are the manager.", tools=[menu])
        return RealtimeAgent(name="Desk", instructions="You are the desk.", tools=[book, menu], handoffs=[manager])


def answer(asked: Asked) -> Any:
    """A model that looks only at the conversation: it goes on from what was done since somebody spoke last."""
    users = [place for place, item in enumerate(asked.context) if item.get("role") == "user"]
    since = asked.context[users[-1] if users else 0 :]
    outputs = [str(item["output"]) for item in since if item.get("type") == "function_call_output"]
    if outputs:
        return "Done with " + " and ".join(outputs)
    words = asked.last_text
    calls = {item["name"] for item in asked.context if item.get("type") == "function_call"}
    if "book" in words and "book" not in calls:
        return call("book", {"seats": 2})
    if "both" in words and "menu" not in calls:
        return [call("menu"), call("book", {"seats": 5})]
    if "manager" in words and "transfer_to_manager" in asked.tool_names:
        return call("transfer_to_manager")
    if "story" in words:
        return "Once upon a time there was a very long story that went on and on"
    return f"You said {words}"


class Caller:
    """Somebody who talks with an agent, and waits for answers. What they read is played at once."""

    def __init__(
        self, server: LoopbackRealtimeServer, session: RealtimeSession, tracker: RealtimePlaybackTracker
    ) -> None:
        self.server, self.session, self.tracker = server, session, tracker
        self.plays = True
        self.events: list[Any] = []
        self.typed: list[str] = []
        self.spoken: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for event in self.session:
            if event.type == "audio" and self.plays:
                self.tracker.on_play_bytes(event.item_id, event.content_index, event.audio.data)
            if event.type != "raw_model_event":
                self.events.append(event)

    async def leave(self) -> None:
        await self.session.close()
        await self._reading

    # --- what they do ------------------------------------------------------------------------------------------------

    async def type(self, text: str) -> None:
        self.typed.append(text)
        await self.session.send_message(text)

    async def say(self, words: str) -> None:
        self.spoken.append(words)
        await self.session.send_audio(silence(200) + self.server.speak(words) + silence(300))

    async def approve(self) -> None:
        """Say yes to what waits, once it does."""
        await self.until(lambda: bool(self.session.pending_approvals))
        await self.session.approve_tool_call(self.session.pending_approvals[0].call_id)

    # --- how they wait -----------------------------------------------------------------------------------------------

    async def until(self, holds: Callable[[], bool]) -> None:
        """Look again and again; how often does not matter, only that it happens."""
        async with asyncio.timeout(WAIT_S):
            while not holds():
                assert not self._reading.done() or self.session.state != "closed", "the session is closed"
                await asyncio.sleep(0.005)

    async def answered(self, words: str) -> None:
        """Wait until the agent has said something with these words, to the end."""
        await self.until(lambda: any(role == "assistant" and words in said for role, said in self.heard()))
        await self.rest()

    async def rest(self) -> None:
        """Wait until the service has nothing to do and the session has heard all of it."""
        await self.until(lambda: self.session.state == "open" and not self.busy())

    def busy(self) -> bool:
        return bool(self.server.conversations) and self.server.inside(
            lambda: bool(self.server.conversations[-1].jobs or self.server.conversations[-1].active)
        )

    def heard(self) -> list[tuple[str, str]]:
        return messages(self.session.history)

    def count(self, kind: str) -> int:
        return sum(event.type == kind for event in self.events)


@asynccontextmanager
async def calling(
    server: LoopbackRealtimeServer,
    house: House,
    memory: Any = None,
    *,
    run_id: str | None = "call",
    config: Any = None,
    plays: bool = True,
    model: RealtimeModel | None = None,
    **settings: Any,
) -> AsyncIterator[Caller]:
    runner = RealtimeRunner(house.agent(), model=model, config={**CONFIG, **(config or {})})
    tracker = RealtimePlaybackTracker()
    options: Any = {
        "url": server.url,
        "api_key": "key",
        "playback_tracker": tracker,
        "initial_model_settings": {"turn_detection": DETECTION, **settings},
    }
    session = await runner.run(model_config=options, session=memory, run_id=run_id)
    await session.enter()
    caller = Caller(server, session, tracker)
    caller.plays = plays
    try:
        yield caller
    finally:
        await caller.leave()


# --- what must hold --------------------------------------------------------------------------------------------------


def messages(items: Any) -> list[tuple[str, str]]:
    """Role and words of every message of a history, of a session or a store."""
    found = []
    for item in items:
        plain = item if isinstance(item, dict) else item.model_dump()
        if plain.get("type", "message") != "message":
            continue
        content = plain["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        words = " ".join(str(part.get("text") or part.get("transcript") or "") for part in parts).strip()
        found.append((plain["role"], words))
    return found


async def checked(caller: Caller, memory: InMemorySession, house: House, wanted: dict[str, int]) -> None:
    """Check what must hold, once everything that is under way has come to rest: the store follows the call."""
    problem: AssertionError | None = None
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                await caller.rest()
                try:
                    return await check(caller, memory, house, wanted)
                except AssertionError as error:
                    problem = error
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise problem or AssertionError("the call does not come to rest") from None


async def check(caller: Caller, memory: InMemorySession, house: House, wanted: dict[str, int]) -> None:
    """No tool twice, no typed or understood word lost, the server's conversation and the store say the same."""
    assert dict(house.done) == wanted
    items = await memory.get_items()
    told = [words for role, words in messages(items) if role == "user"]
    for text in caller.typed:
        assert told.count(text) == 1, f"typed {text!r} is there {told.count(text)} times: {told}"
    for words in caller.spoken:
        assert told.count(words) <= 1
        assert words in told or SPEECH in told, f"said {words!r} is not there: {told}"
    calls = [item for item in items if item.get("type") == "function_call"]
    outputs = [item for item in items if item.get("type") == "function_call_output"]
    assert [item["call_id"] for item in calls] == [item["call_id"] for item in outputs]
    assert set(caller.server.refused) <= ALLOWED, caller.server.refused
    there = [(role, said) for role, said in caller.server.said() if role != "system"]
    known = {words for _, words in messages(items)}
    there = [(role, words if words in known or role != "user" else SPEECH) for role, words in there]
    assert there == messages(items), f"\nserver {there}\nstore  {messages(items)}"
