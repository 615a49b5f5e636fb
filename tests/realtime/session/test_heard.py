"""What was heard is what history says: for a reply that was cut while it was written, and for one that was complete."""

from __future__ import annotations

import asyncio

import pytest

from standfast import InMemorySession
from standfast._kits.testing.leaks import no_leaks
from standfast.testing.realtime import LoopbackRealtimeServer
from tests.realtime.session.parts import House, answer, calling, messages


@pytest.mark.parametrize("how", ["interrupt", "speech"])
async def test_a_complete_reply_that_is_cut_while_it_plays_is_cut_in_history_store_and_server(how: str):
    memory = InMemorySession("m")
    async with no_leaks(), LoopbackRealtimeServer(answer) as server:
        async with calling(server, House(), memory, plays=False) as caller:
            await caller.type("a story")
            await caller.until(lambda: any("on and on" in words for _, words in caller.heard()))
            await caller.rest()
            (item,) = [item for item in caller.session.history if getattr(item, "role", "") == "assistant"]
            caller.tracker.on_play_ms(item.item_id, 0, 400)
            if how == "speech":
                await caller.say("stop it")
            else:
                await caller.session.interrupt()
            await caller.until(lambda: caller.count("audio_interrupted") == 1)
            await server.until("conversation.item.truncate")
            (heard,) = [words for role, words in caller.heard() if words.startswith("Once")]
            assert heard == "Once upon a time"
            assert ("assistant", heard) in server.said()
            async with asyncio.timeout(30):
                while ("assistant", heard) not in messages(await memory.get_items()):
                    await asyncio.sleep(0.005)
