"""A run that is over is freed when its result is dropped: nothing of it waits for the garbage collector.

A cycle between the objects of a run costs every run of a process: what it held (histories, contexts) stays until the
collector finds it, and finding it took a fifth of the time of a short run.
"""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from standfast import Agent, InMemorySession, Runner, function_tool
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call


class Application:
    """What a program gives to its runs."""


@function_tool
def look(page: int) -> str:
    """Look."""
    return "seen"


def looking() -> Agent[Any]:
    steps = [ModelStep([function_call("look", {"page": 1}, call_id="l1")]), ModelStep([assistant_message("done")])]
    return Agent(name="a", model=ScriptedModel(steps), tools=[look])


@pytest.fixture(autouse=True)
def _without_the_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def test_a_run_is_freed_with_its_result():
    context = Application()
    freed = weakref.ref(context)
    result = await Runner.run(looking(), "hi", context=context)
    assert result.final_output == "done"
    del context
    assert freed() is not None, "the result still has it"
    del result
    assert freed() is None


async def test_a_run_on_a_session_is_freed_while_its_session_lives():
    context, session = Application(), InMemorySession("s")
    freed = weakref.ref(context)
    await Runner.run(looking(), "hi", context=context, session=session)
    del context
    assert freed() is None
    assert len(await session.get_items()) == 4


async def test_a_watched_run_is_freed_with_its_result():
    context = Application()
    freed = weakref.ref(context)
    result = Runner.run_streamed(looking(), "hi", context=context)
    async for _ in result.stream_events():
        pass
    await result.run_loop_task
    del context, result, _
    await asyncio.sleep(0)  # the event loop still has to tell of the task's end
    assert freed() is None
