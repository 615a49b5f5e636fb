"""From effects to performers: one line each, and the two effects that are about the session and the server."""

from __future__ import annotations

from functools import partial
from typing import Any

from standfast.driver.agent_offer import offer_of
from standfast.driver.calls import perform_call, settle_call
from standfast.driver.conclude import perform_conclude
from standfast.driver.guardrails import perform_judge
from standfast.driver.loop import Driver
from standfast.driver.lost_answers import in_flight, settled, unknown
from standfast.driver.model_call import approved, call_model, take_reply
from standfast.driver.run_scope import Live
from standfast.engine.events import Append, Appended, CallModel, Conclude, Effect, Judge, NotTaken, RunCall, Settle
from standfast.engine.request import offered
from standfast.words.history import sanitise_for_store


def performer(live: Live) -> Any:
    """What a driver of this live run calls for each effect."""
    return partial(_perform, live)


async def _perform(live: Live, driver: Driver, effect: Effect) -> None:
    match effect:
        case CallModel():
            await call_model(driver, live, effect)
        case RunCall():
            await perform_call(driver, live, effect)
        case Conclude():
            await perform_conclude(driver, live, effect)
        case Append():
            await append(driver, live, effect)
        case Judge():
            await perform_judge(driver, live, effect)
        case Settle(_, None):
            await settle_model(driver, live, effect)
        case Settle():
            await settle_call(driver, live, effect)


async def append(driver: Driver, live: Live, effect: Append) -> None:
    """Store these items of the run, once. The run that knows them is saved first."""
    assert live.conversation is not None  # only a session-owned run has something to store
    await driver.save()
    run = driver.run
    items = [sanitise_for_store(entry.item) for entry in run.ledger[effect.start : effect.end]]
    await live.conversation.append(
        [item for item in items if item is not None], writer=run.spec.run_id, start=effect.start
    )
    await driver.tell(Appended(effect.end), effect=effect)


async def settle_model(driver: Driver, live: Live, effect: Settle) -> None:
    """A stateful request had left when the run was last heard of: ask for it, and go on from what the server says."""
    run = driver.run
    agent = live.graph.agent(run.progress.agent)
    offer = await offer_of(live, run, agent)
    found = await settled(run, offer, in_flight(run), None)
    if found is not None and found.response is not None:
        owed = tuple(ordinal for ordinal in offered(run) if ordinal not in run.progress.sent)
        await take_reply(driver, live, effect, agent, offer, found.response, owed=owed)
    elif found is not None and not found.taken:
        await driver.tell(NotTaken(mark=run.progress.mark), effect=effect)
    else:
        error = unknown(run, found, None)
        if found is not None or not await approved(offer, live, run, error):
            raise error
        await driver.tell(NotTaken(), effect=effect)
