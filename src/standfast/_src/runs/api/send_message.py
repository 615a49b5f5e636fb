"""Send a message to a conversation from a process that has the agent (`Runner.send`).

A conversation without a run: the sender begins the message, and then every message that came meanwhile and that no run
has heard. So a message that came too late for the last request of a run is begun by the sender that ran it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.base.errors import (
    InputGuardrailTripwireTriggered,
    RunClaimedError,
    RunStateError,
    SessionBusyError,
)
from standfast._src.base.json_values import Item
from standfast._src.base.logs import logger
from standfast._src.runs.api.agent_runner import execute_attempt
from standfast._src.runs.api.arguments import StartOptions, check_agent, start
from standfast._src.runs.api.resume import AS_SAVED, to_resume
from standfast._src.sessions.protocol import require
from standfast._src.sessions.rules.messages import Receipt, WhenBusy

BUSY = (RunClaimedError, SessionBusyError)


async def send_message(
    agent: Agent[Any],
    message: str | list[Item],
    options: StartOptions,
    *,
    message_id: str | None,
    when_busy: WhenBusy,
    by: str | None,
) -> Receipt:
    """Send a message; begin it here unless another run has the conversation. See `Runner.send`."""
    check_agent(agent)
    able: Any = require(options.session, "send")
    sent: Receipt = await able.send(
        message,
        agent=agent.name,
        message_id=message_id,
        when_busy=when_busy,
        by=by,
        max_turns=options.max_turns,
    )
    if sent.state != "waiting":
        return sent
    options = options._replace(max_turns=AS_SAVED)
    await _begin(agent, sent.message_id, options, able)
    # Also if the conversation was busy: a sender that had it for a moment, and found nothing to do, answers for all.
    await _begin_what_waits(agent, options, able)
    after: Receipt = await able.receipt(sent.message_id)
    return after._replace(is_new=sent.is_new)


async def _begin(agent: Agent[Any], message_id: str, options: StartOptions, able: Any) -> bool:
    """Begin a waiting message as a run; return False if another run has it or the conversation."""
    try:
        state, options, resumed = await to_resume(agent, message_id, None, options)
        await execute_attempt(start(agent, state, options, resumed=replace(resumed, at_once=True)), state)
    except BUSY:
        return False
    except InputGuardrailTripwireTriggered:
        pass  # the receipt names the guardrail
    except RunStateError:
        after: Receipt | None = await able.receipt(message_id)
        if after is None or after.state == "waiting":
            raise
    return True


async def _begin_what_waits(agent: Agent[Any], options: StartOptions, able: Any) -> None:
    """Begin the waiting messages of this agent, in the order of sending, until another run has the conversation."""
    tried = set[str]()
    while True:
        waiting = [one for one in await able.waiting_messages() if one.message_id not in tried]
        if not waiting or waiting[0].agent != agent.name:
            return
        tried.add(waiting[0].message_id)
        try:
            if not await _begin(agent, waiting[0].message_id, options, able):
                return
        except Exception as error:  # its own sender, or a worker, begins it again
            logger.warning("message %s was not answered: %s", waiting[0].message_id, error)
