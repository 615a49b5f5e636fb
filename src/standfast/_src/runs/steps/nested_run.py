"""Agents as tools: a run inside a call. The nested run's state is part of its parent's, and survives with it.

The nested run shares the parent's application context and usage and has approvals of its own. If it has to wait for a
person, its call waits, and is later entered again with the run's present state.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from uuid import uuid4
from weakref import WeakValueDictionary

from standfast._src.agents.as_tool import AgentTool, AgentToolRun, relay_events
from standfast._src.agents.context import ChildClosed, ChildPaused
from standfast._src.base.errors import OwnerError, RunClaimedError, UsageLimitExceeded, UserError
from standfast._src.items.texts_for_models import known_texts
from standfast._src.runs.engine.run import Call, Owner, Run, evolve
from standfast._src.runs.loop.conversation_owner import owner_of_tool, owner_on_resume
from standfast._src.runs.loop.event_queue import EventQueue
from standfast._src.runs.loop.loop import Children
from standfast._src.runs.loop.result import RunResult, RunResultBase
from standfast._src.runs.loop.run_scope import (
    AgentToolInvocation,
    ResumedRun,
    RunArguments,
    RunAround,
    RunScope,
    StartedRun,
)
from standfast._src.runs.loop.streamed_result import RunResultStreaming
from standfast._src.runs.persistence.deadlock_detection import enclosing_runs, waiting_for
from standfast._src.sessions.foreign.turn_lock import ProcessLease, TurnLock
from standfast._src.tools.tool_call import OwnerFailed

NOBODY_TO_WAIT_WITH = "This call did not run: it needs an approval, and this run was started where nobody can give one."


@dataclass(slots=True, eq=False)
class ChildRunner:
    """Runner of agents inside a call of run `parent`."""

    children: Children
    """Knows the loops of nested runs while they go on, for an owner that must close them when it is cut short."""
    scope: RunScope
    call: Call
    parent: str
    record: Callable[[Run], Awaitable[None]] | None = None
    """Notes in the call where the nested run stands. None for the call of an ordinary tool, which calls an agent tool
    itself. That run is nested, too (same context, usage and session's lease), but its call does not wait for it: it
    cannot be entered again half way, so nothing of it is saved and it must not have to wait for a person."""
    is_saved: bool = False
    """Whether a run around it saves what `record` notes."""

    async def __call__(self, request: AgentToolRun) -> RunResultBase:
        """Run the agent of this tool to its end. Raises ChildPaused if the run waits for a person."""
        child = self._spawn(request)
        try:
            if self.call.child is not None:  # refused, what it did before stands and is told
                owner_on_resume(self.call.child, owner_of_tool(request.tool))
            with self.children.track(child.loop):
                async with _turn_of(child):
                    try:
                        result = await result_of(child, request)
                    except UsageLimitExceeded as error:
                        if self.record is None:
                            raise
                        raise OwnerFailed(error) from error  # no failure of the tool: the run around it stops, too
                    if child.run.paused and self.record is None:
                        await self._give_up(child)
                        refuse_to_wait(child.run, request.tool)
        except RunClaimedError as error:
            # By hand it is a new run, of which no state can be behind: what says so is one that a tool in it resumed.
            if self.record is None or not error.state_is_behind:
                raise
            raise ChildClosed from None
        finally:
            if self.record is None or not child.run.paused:  # also of one that failed: its replies were paid for
                paid = [evolve(one, hidden=True) for one in child.run.responses]
                self.scope.child_responses.setdefault(self.call.id, []).extend(paid)
                _note_calls(request, child.run)
        if child.run.paused:
            self.scope.children[self.call.id] = child.scope
            await self._tell_owner(child.run)
            raise ChildPaused(child.run)
        return result

    def __deepcopy__(self, memo: object) -> ChildRunner:
        """Return itself: a tool may copy its context, and a copy would include the run and its tasks."""
        return self

    async def _tell_owner(self, child: Run) -> None:
        assert self.record is not None  # else it neither waits nor is saved
        try:
            await self.record(child)
        except Exception as error:
            raise OwnerFailed(error) from error  # not a failure of the tool: `run_tool_call` unwraps it

    async def _report_change(self, child: Run) -> None:
        # An ended child too, while its last turn is not stored: what its session gets, its parent knows first.
        if self.is_saved and (not child.finished or child.marks.stored < child.storable):
            await self._tell_owner(child)

    def _spawn(self, request: AgentToolRun) -> StartedRun:
        """The nested run, not begun yet."""
        tool, scope, call = request.tool, self.scope, self.call
        # The limits of the run around it are kept by that run's meter; its own config may have further ones.
        config = replace(tool.run_config or replace(scope.config, limits=None, budgets=None), run_id=None)
        owner, around = owner_of_tool(tool) if call.child is None else call.child.spec.owner, self._build_around()
        if owner.kind == "conversation" and owner in around.owners:
            raise _inside_itself(owner, call.name)
        # By hand, a name of its own each time: where the call is repeated after a crash, this is another run, and under
        # the name of the first its session would take what it stores for a repeat.
        own = "" if self.record is not None else f"/{uuid4().hex[:12]}"
        assert scope.spawn is not None  # only a scope that is read with has none, and that one runs nothing
        return scope.spawn(
            RunArguments(
                agent=tool.agent,
                given_input=request.input,
                wrapper=request.context.for_child(request.tool_input, run_config=config),
                config=config,
                provider=scope.arguments.provider,
                owner=owner,
                session=tool.session,
                hooks=tool.hooks,
                max_turns=tool.max_turns,
                events=EventQueue() if tool.on_stream is not None else None,
                # It may be told to keep quiet, or to keep out what was said.
                tracer=scope.tracer.under(config) if scope.tracer is not None else None,
                resumed=ResumedRun(call.child) if call.child is not None else None,
                run_id=f"{self.parent}/{call.id}{own}",
                inside=scope.arguments.inside or self.parent,
                outer=scope.session,
                invocation=AgentToolInvocation(call.name, call.id, call.arguments),
                moved=self._report_change,
                is_saved_outside=self.is_saved,
                around=around,
                meter=scope.meter,
                price=scope.arguments.price,
            )
        )

    def _build_around(self) -> RunAround:
        arguments, known = self.scope.arguments, self.scope.arguments.around
        owners = (*(known.owners if known is not None else ()), arguments.owner)
        if known is not None and known.store is not None:
            return replace(known, owners=owners)
        return RunAround(owners, self.scope.store, keeps_outermost=self.is_saved and arguments.inside is None)

    async def _give_up(self, child: StartedRun) -> None:
        """Reject the waiting calls of a run that cannot wait, and store its turn: the effects of its calls stay known
        (C8).
        """
        resumed = ResumedRun(child.run)
        assert self.scope.spawn is not None  # it has spawned this one
        closing = self.scope.spawn(replace(child.scope.arguments, events=None, resumed=resumed))
        await closing.abandon(resumed, NOBODY_TO_WAIT_WITH)


_turns: WeakValueDictionary[str, TurnLock] = WeakValueDictionary()
"""By the server's conversation: whose turn it is there, of the agent tools of this process."""


def _inside_itself(owner: Owner, tool_name: str) -> OwnerError:
    return OwnerError(
        f"agent tool {tool_name!r} is on conversation {owner.id!r}, and so is a run that it is inside of: the call that"
        " it answers has no output yet, and the server takes nothing before that",
        "Give the agent tool a conversation of its own, a session, or neither.",
    )


@asynccontextmanager
async def _turn_of(child: StartedRun) -> AsyncIterator[None]:
    """Serialise nested runs of this process on a server's conversation, until each ends or waits.

    A model may call an agent tool twice in one turn. Side by side, the second would send its message between a call of
    the first and its output, which the server refuses.
    """
    owner, config = child.scope.arguments.owner, child.scope.config
    if owner.conversation_id is None or config.concurrency == "allow":
        yield
        return
    key = ("conversation", owner.conversation_id)
    # Also from a task of its own, which the call around it may or may not wait for: nothing can be sent meanwhile.
    if any(one.is_held and one.key == key for one in enclosing_runs()):
        invocation = child.scope.arguments.invocation
        raise _inside_itself(owner, invocation.tool_name if invocation is not None else "")
    what, lock = f"conversation {owner.id!r}", _turns.setdefault(owner.conversation_id, TurnLock())
    turn = ProcessLease(lock, what, config.lease_wait_s if config.concurrency == "wait" else 0.0, key)
    with waiting_for(key, child.scope.started_in, what=what):
        await turn
    child.scope.turn = turn
    try:
        yield
    finally:
        turn.release_now()


def _note_calls(request: AgentToolRun, child: Run) -> None:
    """Note the tools called inside a nested run on the call's context: if the call fails, their effects remain."""
    used = [name for _, name in child.progress.used] + [call.name for call in child.calls if call.has_begun]
    cut_texts = known_texts("not_completed", "outcome_unknown")  # begun, and cut with the run
    cut = {entry.item["call_id"] for entry in child.ledger if str(entry.item.get("output")) in cut_texts}
    used += [entry.item["name"] for entry in child.ledger if entry.item.get("call_id") in cut and "name" in entry.item]
    request.context.called_inside = tuple(dict.fromkeys((*request.context.called_inside, *used)))


def refuse_to_wait(run: Run, tool: AgentTool) -> None:
    """Raise if this run waits for a person: a run started by hand has no outer run to wait with it."""
    if run.paused:
        raise UserError(
            f"agent {tool.agent.name!r}, whose tool was called by hand, waits for a person; what its calls did before"
            " stands",
            "Give the tool to an agent, so that the run around it can wait; or take the approvals off its tools.",
        )


async def result_of(child: StartedRun, request: AgentToolRun) -> RunResultBase:
    """Run the nested run to rest, passing its events to the tool's `on_stream`, if any."""
    events = child.scope.events
    if events is None:
        await child.execute()
        return RunResult._wrap(child)
    result = RunResultStreaming._wrap_stream(child, events)
    task = result._start(child.execute)
    assert request.tool.on_stream is not None
    try:
        await relay_events(
            result.stream_events(),
            request.tool.on_stream,
            agent=request.tool.agent,
            tool_call=request.context.tool_call,
            max_pending=request.tool.on_stream_max_pending_events,
        )
    finally:
        if not task.done():
            result.cancel()
            await asyncio.wait([task])
    return result
