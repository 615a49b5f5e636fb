"""Runs that are saved in another store than their session: a turn can be stored there and not be saved here yet."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import Agent, InMemoryRunStore, InMemorySession, RunConfig, Runner, function_tool
from standfast.ground.errors import StoreUnavailableError
from standfast.testing import ScriptedModel, final, function_call
from tests.driver.driver_mutants import Mutant

SENT_TWICE = Mutant(
    "a resumer does not ask what the session holds", "engine.advance", "min(event.stored, len(run.ledger))", "0"
)


class Dying(InMemoryRunStore):
    """Takes so many saves, and then none, as if the process had been killed there."""

    saves_left = 10**9

    async def save_run(self, *args: Any, **options: Any) -> Any:
        if self.saves_left <= 0:
            raise StoreUnavailableError("gone", "Start it again.")
        self.saves_left -= 1
        return await super().save_run(*args, **options)


@function_tool
async def look() -> str:
    """Look."""
    return "blue"


async def requests_after_dying_at(save: int) -> list[list[str]] | None:
    """What the models of a resumed run see whose worker died at that save; None if it came to its end before."""
    session, store = InMemorySession("s"), Dying()
    store.saves_left = save
    replies: list[Any] = [
        [function_call("look", {}, call_id="c1")],
        [function_call("look", {}, call_id="c2")],
        final("done"),
    ]
    config = RunConfig(run_id="r", run_store=store)
    try:
        await Runner.run(
            Agent(name="A", model=ScriptedModel(replies), tools=[look]), "hi", session=session, run_config=config
        )
    except StoreUnavailableError:
        pass
    else:
        return None
    store.saves_left = 10**9
    if await store.load_run("r") is None:
        return []
    stored = await session.get_items()
    left: list[Any] = [
        reply for number, reply in enumerate(replies) if number >= sum(i.get("type") == "function_call" for i in stored)
    ]
    model = ScriptedModel([*left, final("done"), final("done")])
    await Runner.resume(
        Agent(name="A", model=model, tools=[look]), "r", session=session, run_store=store, takeover=True
    )
    return [
        [str(item.get("call_id") or item.get("content")) + str(item.get("type")) for item in call.input]
        for call in model.calls
    ]


async def doubled() -> list[list[str]]:
    found: list[list[str]] = []
    for save in range(1, 40):
        requests = await requests_after_dying_at(save)
        if requests is None:
            return found
        found += [request for request in requests if len(set(request)) != len(request)]
    pytest.fail("the run never came to its end")


async def test_what_the_session_holds_already_is_not_sent_a_second_time() -> None:
    assert await doubled() == []


async def test_a_resumer_that_does_not_ask_what_the_session_holds_is_seen() -> None:
    with SENT_TWICE.at_work():
        assert await doubled()
