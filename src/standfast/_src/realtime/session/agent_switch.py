"""Whoever asked for another agent and waits until it has taken over, or will not (E6)."""

from __future__ import annotations

import asyncio

from standfast._src.base.errors import RealtimeStateError, StandfastError
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.machine.events import Shown
from standfast._src.realtime.session.call_scope import CallScope


class AgentSwitch:
    """The callers of `update_agent` that wait."""

    def __init__(self, scope: CallScope) -> None:
        self._scope = scope
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """By the number of the change."""

    def ask_for(self, agent: RealtimeAgent[object]) -> asyncio.Future[None]:
        """Ask for this agent; done when it has taken over."""
        hands, key = self._scope.hands, self._scope.key_of(agent)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[hands.talk.counter + 1] = future
        hands.happen(lambda exchange, now: exchange.change(key, now))
        return future

    def tell_outcome(self, one: Shown) -> None:
        """Tell whoever waited for a change that it was made, or why not."""
        still_open = {change.number for change in self._scope.hands.talk.changes}
        for number in [number for number in self._waiting if number not in still_open]:
            future = self._waiting.pop(number)
            if future.done():
                continue
            if one.name == "handoff":
                future.set_result(None)
            else:
                error = one.more if isinstance(one.more, BaseException) else None
                future.set_exception(
                    error or StandfastError(f"the agent stays as it was: {one.more}", "Correct its settings.")
                )

    def let_go(self) -> None:
        """Tell all who still wait that the session is over, so that no agent will take over."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RealtimeStateError("the session was closed", "The agent was not changed."))
        self._waiting.clear()
