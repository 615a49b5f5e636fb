"""Callers that wait for a change of agent (E6)."""

from __future__ import annotations

import asyncio

from standfast._src.base.errors import RealtimeStateError, StandfastError
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.machine.events import Shown
from standfast._src.realtime.session.call_scope import CallScope


class AgentSwitch:
    """The waiting callers of `update_agent`."""

    def __init__(self, scope: CallScope) -> None:
        self._scope = scope
        self._waiting: dict[int, asyncio.Future[None]] = {}
        """By the number of the change."""

    def ask_for(self, agent: RealtimeAgent[object]) -> asyncio.Future[None]:
        """Request a change of agent; return a future for its completion."""
        hands, key = self._scope.hands, self._scope.key_of(agent)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[hands.talk.counter + 1] = future
        hands.happen(lambda exchange, now: exchange.change(key, now))
        return future

    def tell_outcome(self, one: Shown) -> None:
        """Resolve the futures of finished changes, with an error if refused."""
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
        """Fail all pending futures: the session was closed."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RealtimeStateError("the session was closed", "The agent was not changed."))
        self._waiting.clear()
