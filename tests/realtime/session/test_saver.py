"""The saver of a record, between somebody who gave up and somebody who comes next."""

from __future__ import annotations

import asyncio

from standfast import InMemorySession
from standfast._src.realtime.machine.codec import VoiceCallRecord
from standfast._src.realtime.machine.voice_call import VoiceCall
from standfast._src.runs.persistence.run_saver import RunSaver


async def test_who_saves_right_after_the_only_one_who_waited_gave_up_is_saved():
    """E2: closing stops the save under way and saves once more, before the stopped one has noticed."""
    store = InMemorySession("s").run_store()
    saver: RunSaver[VoiceCall] = RunSaver(store, VoiceCallRecord, needed=True)
    first = asyncio.ensure_future(saver.save(VoiceCall("call", "first")))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.ensure_future(saver.save(VoiceCall("call", "second")))  # in the same round of the loop
    saved = await store.load_run("call")
    assert saved is not None
    assert b"second" in saved.head
