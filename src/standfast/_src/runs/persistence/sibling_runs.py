"""Resuming of an unfinished run before the run that found it (C15).

It is resumed in a task of its own: the caller of the waiting run may cancel that one, and has not asked for this one.
Then this one is handed over, and any worker resumes it.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from standfast._src.agents.agent import Agent
from standfast._src.agents.approvals import ApprovalBook
from standfast._src.agents.context import RunContextWrapper, wrapper_of
from standfast._src.base.errors import LeaseLostError, RunClaimedError, RunHandedOverError, SessionBusyError
from standfast._src.base.operational_events import emit
from standfast._src.runs.engine.run_store import RunStore
from standfast._src.runs.loop.active_runs import hand_over
from standfast._src.runs.loop.loop import CLOSING_GRACE_S, handed_over_error
from standfast._src.runs.loop.reconciler import ignore_exception
from standfast._src.runs.loop.run_scope import ResumedRun, RunArguments, StartedRun, UnfinishedRun, logger, usage_of
from standfast._src.runs.persistence.unfinished_runs import Found, list_saved_runs


class Sibling:
    """Unfinished run, and the waiting attempt at another run of its conversation."""

    def __init__(self, waiting: StartedRun, found: Found) -> None:
        self._waiting, self._found = waiting, found

    async def resume(self) -> None:
        """Resume the run until it rests, if this worker can, and record the result.

        Raises RunHandedOverError if this worker stops. Errors of the run itself are for its own caller: the run stays
        unchanged then, and the waiting run leaves it open.
        """
        scope, run_id = self._waiting.scope, self._found.run_id
        yielding, store = scope.yielding, scope.store
        yielding.tries_left -= 1
        assert store is not None  # it was found there
        attempt = await self._attempt(store)
        if attempt is None:
            yielding.passed.add(run_id)
            return
        error = await self._carried_out(attempt)
        match error:
            case None:
                yielding.passed.add(run_id)
                done = UnfinishedRun(run_id, self._found.state, "resumed first")
                yielding.resumed.append(done)
                emit("run_unfinished", run=run_id, found=done.found, done=done.done)
            case RunHandedOverError():
                raise handed_over_error(self._waiting.run) from error
            case RunClaimedError() | SessionBusyError() | LeaseLostError():
                logger.debug("run %s is resumed by another worker: %s", run_id, error)
            case Exception() | asyncio.CancelledError():
                yielding.passed.add(run_id)
                logger.info("run %s was to finish first and is left open: %r", run_id, error)
            case _:
                raise error

    async def _attempt(self, store: RunStore) -> StartedRun | None:
        """Return an attempt at the run; None if this worker lacks its agent, or its context cannot be made."""
        spawn = self._waiting.scope.spawn
        assert spawn is not None
        try:
            having = await self._agent_and_context(store)
            return None if having is None else spawn(self._arguments(store, *having))
        except Exception as error:
            logger.warning("run %s was to finish first and could not be resumed: %r", self._found.run_id, error)
            return None

    def _arguments(self, store: RunStore, agent: Agent[Any], context: object) -> RunArguments:
        given, found = self._waiting.scope.arguments, self._found
        wrapper = wrapper_of(context)
        wrapper.usage, wrapper.approvals = usage_of(found.run), ApprovalBook()
        return RunArguments(
            agent=agent,
            given_input="",
            wrapper=wrapper,
            # The waiting run uses the same session object afterwards: it stays open. Its limits are its own (F9).
            config=replace(given.config, run_id=None, close_session=False, limits=None, budgets=None),
            provider=given.provider,
            owner=found.run.spec.owner,
            session=given.session,
            hooks=given.hooks,
            max_turns=found.run.spec.max_turns,
            error_handlers=given.error_handlers,
            tracer=given.tracer,
            # At once: if another worker has come to the conversation, it is that one's turn.
            resumed=ResumedRun(found.kept, found.revision, store, at_once=True),
            is_let_first=True,
            price=given.price,
        )

    async def _agent_and_context(self, store: RunStore) -> tuple[Agent[Any], object] | None:
        scope, run = self._waiting.scope, self._found.run
        if scope.arguments.beside is None:
            is_same = run.spec.agent == scope.graph.key(scope.graph.start)
            return (scope.graph.start, RunContextWrapper(scope.wrapper.context)) if is_same else None
        session_id = run.spec.owner.id if run.spec.owner.kind == "session" else None
        runs = await list_saved_runs(store, session_id, until={run.spec.run_id})
        summary = next((one for one in runs if one.run_id == run.spec.run_id), None)
        return scope.arguments.beside(run.spec.agent, summary) if summary is not None else None

    async def _carried_out(self, attempt: StartedRun) -> BaseException | None:
        """Run the attempt to rest; return its error. Hands its run over if this task is cancelled."""
        waiting = self._waiting.loop
        task = asyncio.ensure_future(attempt.execute())
        waiting.sibling = attempt.loop
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            loop = attempt.loop
            try:
                await hand_over([loop], CLOSING_GRACE_S)
            finally:
                loop.hand_over_now()  # a second cancellation does not wait; of one that has ended nothing is cut
                if loop.task is None and not loop.has_entered:
                    task.cancel()  # it has not begun
                task.add_done_callback(ignore_exception)
            raise
        finally:
            waiting.sibling = None
        return asyncio.CancelledError() if task.cancelled() else task.exception()
