"""Calls against the loopback server, and waiting for what happens in them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from typing import Any

from standfast._src.realtime.machine.voice_call import VoiceCall
from standfast.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession
from standfast.testing import LoopbackRealtimeServer, no_leaks
from standfast.testing.realtime.audio import silence

DETECTION = {"type": "server_vad", "interrupt_response": True, "create_response": True, "silence_duration_ms": 200}
SETTINGS: Any = {"turn_detection": DETECTION}
PATIENCE_S = float(os.environ.get("PATIENCE_S", "20"))


def runner(agent: RealtimeAgent[Any], **config: Any) -> RealtimeRunner:
    """A runner with a voice detection that needs little silence."""
    return RealtimeRunner(agent, config={"model_settings": SETTINGS, **config})  # type: ignore[typeddict-item]


def at(server: LoopbackRealtimeServer, **more: Any) -> Any:
    """How to reach the server."""
    return {"url": server.url, "api_key": "secret", **more}


class Reader:
    """Reads a session to its end, and can be asked to wait for something."""

    def __init__(self, session: RealtimeSession) -> None:
        self.events: list[Any] = []
        self.error: BaseException | None = None
        self._news = asyncio.Event()
        self.task = asyncio.ensure_future(self._read(session))

    async def _read(self, session: RealtimeSession) -> None:
        try:
            async for event in session:
                if event.type != "raw_model_event":
                    self.events.append(event)
                    self._news.set()
        except Exception as error:
            self.error = error
        finally:
            self._news.set()

    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def of(self, kind: str) -> list[Any]:
        return [event for event in self.events if event.type == kind]

    async def until(self, kind: str, count: int = 1, where: Callable[[Any], bool] = lambda event: True) -> Any:
        """The event of this kind, once there are so many."""
        async with asyncio.timeout(PATIENCE_S):
            while len(found := [one for one in self.of(kind) if where(one)]) < count:
                self._news.clear()
                assert not self.task.done(), f"no {kind}: {self.types()} {self.error!r}"
                await self._news.wait()
        return found[count - 1]


def talk_of(session: RealtimeSession) -> VoiceCall:
    """The call as data, as it is now: the one place where these tests look into a session."""
    return session._scope.hands.talk  # private: a call shows what was said, and not what of it is stored or still open


async def until(what: Callable[[], bool]) -> None:
    """Wait until this holds."""
    async with asyncio.timeout(PATIENCE_S):
        while not what():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def talking(session: RealtimeSession, *, has_store: bool = False) -> AsyncIterator[Reader]:
    """The session, entered and read, and closed at the end; nothing of it may be left behind (E2).

    A store that a test has opened keeps threads of its own for as long as it is open.
    """
    async with nullcontext() if has_store else no_leaks():
        async with session:
            reader = Reader(session)
            yield reader
        await asyncio.wait_for(reader.task, PATIENCE_S)


def utterance(server: LoopbackRealtimeServer, words: str) -> bytes:
    """Somebody says this, and is silent then."""
    return server.speak(words) + silence(300)


def texts(items: list[dict[str, Any]]) -> list[str]:
    """What the messages of a stored history say."""
    return [item["content"] for item in items if "role" in item]
