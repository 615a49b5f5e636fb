"""A store with a voice call in it, of which one reply was interrupted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from standfast import SQLiteSession
from standfast.testing.realtime import LoopbackRealtimeServer
from tests.realtime.session.parts import WAIT_S, House, answer, calling, messages

HEARD = "Once upon a time"
UNHEARD = "there was a very long story that went on and on"


async def fill_with_a_call(path: Path, session_id: str = "table-12") -> str:
    """Make a call: a story is interrupted after 400 ms, the next answer is heard to its end. Return the call's id."""
    session = SQLiteSession(session_id, path)
    async with LoopbackRealtimeServer(answer) as server:
        async with calling(server, House(), session, plays=False) as caller:
            await caller.type("a story")
            await caller.until(lambda: any(UNHEARD in words for _, words in caller.heard()))
            await caller.rest()
            (item,) = [item for item in caller.session.history if getattr(item, "role", "") == "assistant"]
            caller.tracker.on_play_ms(item.item_id, 0, 400)
            await caller.session.interrupt()
            await caller.until(lambda: caller.count("audio_interrupted") == 1)
            caller.plays = True
            await caller.type("the menu")
            await caller.answered("You said the menu")
            async with asyncio.timeout(WAIT_S):
                while ("assistant", "You said the menu") not in messages(await session.get_items()):
                    await asyncio.sleep(0.005)
    await session.close()
    return "call"
