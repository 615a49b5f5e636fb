"""From effects to performers: one line each, and the two effects that are about the session and the server."""

from __future__ import annotations

from standfast.driver.calls import perform_call, settle_call
from standfast.driver.conclude import perform_conclude
from standfast.driver.guardrails import perform_judge
from standfast.driver.loop import Loop
from standfast.driver.lost_answers import ask_server, in_flight, unknown_outcome
from standfast.driver.model_call import call_model, take_reply
from standfast.driver.run_scope import RunScope
from standfast.driver.sending import Sending
from standfast.engine.events import Append, Appended, CallModel, Conclude, Effect, Judge, NotTaken, RunCall, Settle
from standfast.engine.request import offered


async def perform(scope: RunScope, loop: Loop, effect: Effect) -> None:
    """Carry out one effect of a run and record what came of it."""
    match effect:
        case CallModel():
            await call_model(loop, scope, effect)
        case RunCall():
            await perform_call(loop, scope, effect)
        case Conclude():
            await perform_conclude(loop, scope, effect)
        case Append():
            await append(loop, effect)
        case Judge():
            await perform_judge(loop, scope, effect)
        case Settle(_, None):
            await settle_model(loop, scope, effect)
        case Settle():
            await settle_call(loop, scope, effect)


async def append(loop: Loop, effect: Append) -> None:
    """Store these items of the run, once."""
    await loop.append(effect)
    await loop.record(Appended(effect.end), completes=effect)


async def settle_model(loop: Loop, scope: RunScope, effect: Settle) -> None:
    """Ask the server for a request that had left when the run was last heard of, and go on from what it says."""
    run = loop.run
    agent = scope.graph.agent(run.progress.agent)
    resolved = await scope.agents.for_request(agent, has_used_tools=any(run.used_by(run.progress.agent)))
    found = await ask_server(run, resolved, in_flight(run), None)
    if found is not None and found.response is not None:
        sent = run.progress.outgoing.sent if run.progress.outgoing is not None else ()
        owed = tuple(ordinal for ordinal in offered(run) if ordinal not in sent)
        await take_reply(loop, scope, effect, agent, resolved, found.response, owed=owed)
    elif found is not None and not found.taken:
        await loop.record(NotTaken(after_item_id=run.progress.after_item_id), completes=effect)
    else:
        error = unknown_outcome(run, found, None)
        if found is not None or not await Sending(loop, scope, resolved, None, []).may_send_again(error):
            raise error
        await loop.record(NotTaken(), completes=effect)
