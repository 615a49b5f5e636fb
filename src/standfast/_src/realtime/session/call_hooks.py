"""Hooks that observe a voice call: the current agent, and handoffs. Their tasks belong to the session."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from standfast._src.agents.context import AgentHookContext
from standfast._src.agents.hooks import await_both, overridden
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.session.call_scope import CallScope


class CallHookRunner:
    """Runner of a voice call's hooks."""

    def __init__(self, scope: CallScope) -> None:
        self._scope = scope
        self._tasks: set[asyncio.Task[None]] = set()
        self._announced: RealtimeAgent[Any] | None = None
        self._is_over = False

    def owns(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether a task runs a hook."""
        return task in self._tasks

    def agent_started(self, agent: RealtimeAgent[Any]) -> None:
        """Call the start hooks of an agent at its first reply after a change."""
        if agent is self._announced:
            return
        self._announced = agent
        scope = self._scope
        context = AgentHookContext(scope.wrapper.context, scope.wrapper.usage, approvals=scope.wrapper.approvals)
        of_run, of_agent = overridden(scope.hooks, "on_agent_start"), overridden(agent.hooks, "on_start")
        self._call(
            (lambda: of_run(context, agent)) if of_run else None,
            (lambda: of_agent(context, agent)) if of_agent else None,
        )

    def handed_over(self, before: RealtimeAgent[Any], after: RealtimeAgent[Any]) -> None:
        """Call the handoff hooks after a change of agent."""
        scope = self._scope
        of_run, of_agent = overridden(scope.hooks, "on_handoff"), overridden(before.hooks, "on_handoff")
        self._call(
            (lambda: of_run(scope.wrapper, before, after)) if of_run else None,
            (lambda: of_agent(scope.wrapper, after, before)) if of_agent else None,
        )

    def _call(self, first: Callable[[], Awaitable[Any]] | None, second: Callable[[], Awaitable[Any]] | None) -> None:
        if not self._is_over and (first is not None or second is not None):
            self._start(self._run(first, second))

    async def _run(
        self, first: Callable[[], Awaitable[Any]] | None, second: Callable[[], Awaitable[Any]] | None
    ) -> None:
        try:
            await await_both(first, second)
        except Exception as error:  # a hook observes: one that raises must not end the call
            self._scope.error({"message": "A hook failed", "error": error})
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            self._scope.has_crashed(error)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        context = self._scope.context
        task = asyncio.get_running_loop().create_task(work, context=context.copy() if context is not None else None)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self, timeout_s: float) -> list[str]:
        """Cancel running hooks and start no more; return a description of each hook still running after the timeout."""
        self._is_over = True
        current = asyncio.current_task()
        running = [task for task in self._tasks if not task.done() and task is not current]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=timeout_s)
        return ["a hook" for task in running if not task.done()]
