"""Call of the runner, from the arguments to rest: acquire the resources, drive the run, release the resources.

Every acquired resource (the lease on a session, its history) is released at the end of every run (C14).
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import Any
from weakref import WeakMethod

from standfast._src.agents.error_handlers import RunErrorDetails
from standfast._src.agents.usage_limits import PriceFunction
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import RunClaimedError, StandfastError, UserError
from standfast._src.base.json_values import copy_json
from standfast._src.items.stream_events import AgentUpdatedStreamEvent
from standfast._src.runs.engine.advance import refuse_finished
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.events import Append, CallModel, Conclude, Effect, Judge, RunCall, Settle
from standfast._src.runs.engine.limits import Tally
from standfast._src.runs.engine.run import Run
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.runs.loop import active_runs
from standfast._src.runs.loop.initial_run import create_run, under_limits, with_filtered_input
from standfast._src.runs.loop.loop import Loop, handed_over_error
from standfast._src.runs.loop.result import RunResultBase
from standfast._src.runs.loop.run_scope import ResumedRun, RunArguments, RunScope, logger, usage_of
from standfast._src.runs.loop.start import Opened, open_abandoned, open_finished, open_new, open_resumed
from standfast._src.runs.loop.usage_meter import UsageMeter, check_budgets
from standfast._src.runs.persistence.compact_after_run import compact_after, may_compact
from standfast._src.runs.persistence.pending_items import ended_nested, note_if_unsent, warn_if_unsent
from standfast._src.runs.persistence.session_lock import SessionLock
from standfast._src.runs.persistence.sibling_runs import Sibling
from standfast._src.runs.persistence.unfinished_runs import SiblingFirst, give_up_run
from standfast._src.runs.steps.model_request import call_model, settle_model
from standfast._src.runs.steps.run_guardrails import perform_judge
from standfast._src.runs.steps.tool_calls import perform_call, settle_call
from standfast._src.runs.steps.turn_outcome import perform_conclude


async def perform(scope: RunScope, loop: Loop, effect: Effect) -> None:
    """Perform one effect of a run and record its outcome."""
    match effect:
        case CallModel():
            await call_model(loop, scope, effect)
        case RunCall():
            await perform_call(loop, scope, effect)
        case Conclude():
            await perform_conclude(loop, scope, effect)
        case Append():
            await loop.append(effect)
        case Judge():
            await perform_judge(loop, scope, effect)
        case Settle(_, None):
            await settle_model(loop, scope, effect)
        case Settle():
            await settle_call(loop, scope, effect)


class RunAttempt:
    """Resources of one call of the runner, with the order of their acquisition and release."""

    def __init__(self, arguments: RunArguments) -> None:
        config, session = arguments.config, arguments.session
        if isinstance(arguments.given_input, list):
            # A copy: the caller may change theirs while the run goes on.
            arguments.given_input = [copy_json(item) for item in arguments.given_input]
        hold = None
        if session is not None:
            hold = SessionLock(
                session,
                concurrency=config.concurrency,
                lease_ttl_s=config.lease_ttl_s,
                lease_wait_s=config.lease_wait_s,
                settings=config.session_settings,
                wrapper=arguments.wrapper,
                outer=arguments.outer,
            )
        self.arguments = arguments
        self.scope = RunScope(arguments, session=hold, spawn=RunAttempt)
        if arguments.resumed is not None:
            given = arguments.resumed
            arguments.resumed = replace(given, run=under_limits(given.run, config))
        resumed = arguments.resumed
        run = resumed.run if resumed is not None else create_run(self.scope)
        if hold is not None:
            hold.holder = f"run {run.spec.run_id}"
        self.loop = Loop(
            run, partial(perform, self.scope), moved=arguments.moved, session=hold, keeps_lease=may_compact(session)
        )
        self.is_open = False
        """Whether `run` is the run that is going on, and no longer only what the caller gave."""

    @property
    def run(self) -> Run:
        """The run as it is now."""
        return self.loop.state

    @property
    def revision(self) -> int:
        """The revision that the run was last saved as, or was given with."""
        saver, resumed = self.loop.saver, self.arguments.resumed
        return saver.revision if saver is not None else resumed.revision if resumed is not None else 0

    # --- the order of things -----------------------------------------------------------------------------------------

    async def execute(self) -> None:
        """Run to rest. Raise the run's error, with the known details."""
        task = self.loop.task = asyncio.current_task()
        if self.arguments.moved is not None:  # nested: its parent is told for it
            await self._run_traced()
            return
        worker = active_runs.begin(self.loop)
        try:
            await self._run_traced()
        except asyncio.CancelledError:
            if not self.loop.is_sent_away:
                raise
            if task is not None:
                task.uncancel()
            raise handed_over_error(self.run) from None
        finally:
            worker.note_end(self.loop)

    async def _run_traced(self) -> None:
        scope, start = self.scope, self.scope.graph.start
        try:
            await self._filter_input()
            given = {"run_id": self.run.spec.run_id, "owner": self.arguments.owner, "given": scope.given_input}
            with scope.span("run", start.name, agent=start, **given) as span:
                first: BaseException | None = None
                try:
                    await self._run_until_idle()
                except BaseException as error:
                    first = error
                    raise
                finally:
                    if span is not None:
                        span.note(run=self.run, usage=usage_of(self.run), final=scope.final_output, error=scope.tripped)
                    await self._give_back(first or scope.tripped)
            if scope.tripped is not None:
                raise scope.tripped
        except StandfastError as error:
            error.run_data = self.details()
            note_if_unsent(error, self.run)
            raise
        except StopAsyncIteration as error:
            # Raised on, it would end the loop of a watcher as if the run had come to its end (C11).
            raise UserError(
                "code of the application raised StopAsyncIteration in this run",
                "Catch it where `anext` is called, or give `anext` a default.",
            ) from error

    async def _filter_input(self) -> None:
        try:
            self.loop.state = await with_filtered_input(self.scope, self.run)
        except BaseException as error:
            await self._give_back(error)
            raise

    async def _run_until_idle(self) -> None:
        scope = self.scope
        try:
            await self._open()
        except BaseException as error:
            await self._give_back_claim(error)
            raise
        await self.loop.drive()
        if self.run.paused:
            scope.show_outputs(self.run.turn, all_so_far=True)
        if not (self.run.is_left_owing and self.loop.saver is not None):  # else the next run there brings it along
            warn_if_unsent(self.run)
        if (self.run.tripped or self.run.withheld) and scope.tripped is None:
            refuse_finished(self.run)  # the tripwire was in another attempt; now what it left is stored
        if scope.session is not None:
            await compact_after(self.loop, scope)

    async def _give_back_claim(self, error: BaseException) -> None:
        """Release the claim on a run before it has begun anything, for another worker."""
        give_back = self.scope.give_back_claim
        submitted = give_back() if give_back is not None and not isinstance(error, RunClaimedError) else None
        if submitted is None:
            return
        if isinstance(error, GeneratorExit):
            submitted.close()  # its loop is closed, and nothing can be awaited any more; it is done all the same
            return
        try:
            await submitted  # a second cancellation does not wait
        except StandfastError as second:
            error.add_note(f"While the run was given back, this happened too: {second!r}")

    async def _open_after_siblings(self) -> Opened:
        """Open the run, after resuming every run of its conversation that must finish first (C15)."""
        scope, resumed = self.scope, self.arguments.resumed
        while True:
            try:
                return await (open_new(scope, self.run) if resumed is None else open_resumed(scope, resumed))
            except SiblingFirst as first:
                found = first.found
            # A worker holds one conversation at a time: two that resume runs of one never wait for each other.
            if scope.session is not None:
                await scope.session.release()
            if scope.run_lease is not None:
                await scope.run_lease.release()
                scope.run_lease = None
            await Sibling(self, found).resume()

    async def _open(self) -> None:
        scope = self.scope
        opened = await self._open_after_siblings()
        self._start_with(opened)
        run = opened.run
        shown = {one.run_id for one in scope.seen.unfinished}
        scope.seen.unfinished[:0] = [one for one in scope.yielding.resumed if one.run_id not in shown]
        if scope.session is not None:
            scope.not_stored = tuple(scope.session.not_stored())
            for run_id, count in scope.not_stored:
                logger.warning(
                    "run %s, cancelled earlier in this process, could not store its last %d items in session %r",
                    run_id,
                    count,
                    scope.session.session_id,
                )
        if scope.session is not None and run.view.base is None:  # else nothing shows it, or it was read for a callback
            scope.history = await scope.session.read()
            scope.history_tail = run.marks.stored
        if scope.events is not None:
            scope.shown_agent = run.progress.agent
            scope.show(AgentUpdatedStreamEvent(scope.graph.agent(run.progress.agent)))

    def _start_with(self, opened: Opened) -> None:
        # Before anything else can fail: what an error carries must be this run.
        self.loop.state, self.loop.saver, self.is_open = opened.run, opened.saver, True
        self.loop.run_lease = self.scope.run_lease
        self.loop.mail = self.scope.mail
        self.loop.is_kept = opened.saver is not None or self.arguments.is_saved_outside
        if opened.run.spec.context is not None:  # most runs have none, and no limits
            self._start_meter(opened)
        is_leased = self.scope.session is not None or self.scope.run_lease is not None
        if is_leased and self.arguments.moved is None:  # the outermost run tells a nested one
            self._listen_for_signals()
        if self.loop.is_to_stop:
            self.loop.stop_after_turn()  # asked for before there was this run to stop

    def _start_meter(self, opened: Opened) -> None:
        """Meter a run with limits or budgets (F9, F10)."""
        spec = opened.run.spec
        if spec.budgets and not opened.run.finished:
            check_budgets(opened.saver, is_nested=self.arguments.moved is not None)
        # Limits that were taken off may come back, and then count what was used without them.
        if spec.limits is not None or spec.budgets or spec.tally != Tally():
            meter = self.scope.meter = UsageMeter(self.loop, self._price(), self.arguments.meter)
            meter.adopt()
            self.loop.meter = meter if spec.budgets else None

    def _listen_for_signals(self) -> None:
        found = WeakMethod(self.loop.look_for_signals)  # a lease is held by its loop: no cycle

        def look() -> None:
            if (look_for_signals := found()) is not None:
                look_for_signals()

        if self.scope.session is not None:
            self.scope.session.tell_when_asked(look)
        tell: Any = getattr(self.scope.run_lease, "tell_when_asked", None)
        if tell is not None:
            tell(look)

    def _price(self) -> PriceFunction:
        return self.arguments.config.price or self.arguments.price or (lambda usage, model: None)

    async def look_at(self, saved: SavedRun) -> None:
        """Read a finished saved run, to show its result."""
        self._start_with(await open_finished(self.scope, saved))

    async def abandon(self, resumed: ResumedRun, message: str) -> None:
        """Give up a saved run: what is open is closed with `message`, written down, and stored whole."""
        try:
            self.loop.keeps_lease = True
            self._start_with(await open_abandoned(self.scope, resumed, message))
            hold, given = self.scope.session, resumed.run
            if hold is not None:
                end = partial(give_up_run, message)
                self.loop.nested = await ended_nested(hold.accepted, given.calls, given.spec.owner, end)
            if not due(self.run):
                await (
                    self.loop.save()
                )  # at rest already: the caller that gives it up must get the error if it is not saved
            await self.loop.drive()
        finally:
            await self._give_back()

    async def _give_back(self, first: BaseException | None = None) -> None:
        """Release the acquired resources. An error in doing so never replaces `first`, the run's own error."""
        hold, closing, run_lease = self.scope.session, self.loop.closing_task, self.scope.run_lease
        try:
            # Each of these submits what it does before it waits: a cancellation that comes now changes nothing.
            if run_lease is not None:
                await run_lease.release()
            if closing is not None:
                # It gives the session back when all is stored; no caller waits for a run that was stopped.
                closing.add_done_callback(lambda _: self._close_session())
            elif hold is not None:
                await hold.release()
                await maybe_await(self._close_session())
        except Exception as second:
            if first is None:
                raise
            first.add_note(f"While the session was given back, this happened too: {second!r}")
        finally:
            if hold is not None and closing is None:
                hold.release_now()

    def _close_session(self) -> Any:
        close: Any = getattr(self.arguments.session, "close", None) if self.arguments.config.close_session else None
        return close() if close is not None else None

    def details(self) -> RunErrorDetails:
        """Return the run's details so far, to attach to an error."""
        result, scope = RunResultBase._wrap(self), self.scope
        return RunErrorDetails(
            input=scope.given_input,
            new_items=result.new_items,
            raw_responses=scope.responses,
            last_agent=scope.graph.agent(self.run.progress.agent),
            context_wrapper=scope.wrapper,
            input_guardrail_results=scope.results.of_input,
            output_guardrail_results=scope.results.of_output,
            tool_input_guardrail_results=scope.results.of_tool_input,
            tool_output_guardrail_results=scope.results.of_tool_output,
            owed_items=result.owed_items,
        )
