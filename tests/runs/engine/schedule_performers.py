"""What a driver's performers do, without I/O: each tells events in order, and can be cut off at every step.

A performer is a generator. What it yields is an event to tell, or `CUT`: the world has reacted and nobody has heard of
it yet. Whoever drops the generator there has crashed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

from runs.engine.schedule_world import Answered, Path, Script, World, answer, said, summary, user

from standfast._src.runs.engine.events import (
    Append,
    Appended,
    ApprovalNeeded,
    Begun,
    CallModel,
    ChildMoved,
    Claimed,
    Conclude,
    Concluded,
    Effect,
    Event,
    Judge,
    Judged,
    NotTaken,
    Replied,
    Returned,
    RunCall,
    Settle,
)
from standfast._src.runs.engine.request import ordinals_to_send
from standfast._src.runs.engine.run import Call, Conclusion, Decision, Entry, Outgoing, Owner, Run, begin

CUT = "cut"
"""A point at which the world has reacted and nobody has heard of it yet."""
CHILD = "child"
"""A call that goes on when its nested run has ended."""
Steps = Generator[Event | str, None, None]


class TurnsUsedUp(Exception):
    """The run has used up its turns and nobody handles it: it raises, unchanged."""


def begun(run_id: str, script: Script) -> Run:
    """A script's run before its first effect."""
    return begin(
        run_id=run_id,
        agent="agent",
        input_items=[user(text) for text in script.input],
        owner=Owner(script.owner, None if script.owner == "replay" else "somewhere"),
        max_turns=script.max_turns,
        verdict=script.verdict,
    )


class Performers:
    """Performs effects in a world. `claim` reads a run's session and says what it holds; `moved` advances a run."""

    def __init__(
        self,
        world: World,
        at: Callable[[Path], Run],
        claim: Callable[[Path], Claimed],
        moved: Callable[[Run, Event], Run],
    ) -> None:
        self.world, self.at, self.claim, self.moved = world, at, claim, moved

    def perform(self, path: Path, effect: Effect) -> Steps:
        """The steps of one effect."""
        match effect:
            case Judge(stage, _, blocking):
                yield CUT
                yield self._verdict(path, stage, blocking)
            case CallModel(turn):
                yield from self._ask(path, turn)
            case RunCall(_, call_id):
                yield from self._call(path, call_id)
            case Conclude(turn, exhausted):
                yield CUT
                yield self._conclusion(path, turn, exhausted)
            case Append(start, end):
                run = self.at(path)
                items = [entry.item for entry in run.ledger[start:end]]
                self.world.session(path).append(items, run.spec.run_id, start)
                yield CUT
                yield Appended(end)
            case Settle(turn, None):
                yield CUT
                yield self._settled_request(path, turn)
            case Settle(_, str(call_id)):
                yield CUT
                yield self._settled_call(path, call_id)

    def _verdict(self, path: Path, stage: str, blocking: bool) -> Judged:
        script = self.world.script_at(path)
        if stage == "input":
            kind = "blocking" if blocking else "parallel"
            return Judged("input", ({"guardrail": kind},), script.trips == kind, blocking and script.guards == "both")
        if stage == "staged":
            return Judged("staged", (), script.staged_trips)
        return Judged("output", (), script.output_trips)

    def _ask(self, path: Path, turn: int) -> Steps:
        run, world = self.at(path), self.world
        if not run.spec.owner.is_server:
            yield CUT
            answered = world.reply(path, turn, run.progress.agent)
            yield CUT
            yield Replied(turn, answered.entries, answered.calls, answered.response)
            return
        ordinals = ordinals_to_send(run)
        plan = world.script_at(path).turn(turn)
        owed = tuple(ordinals[place] for place in sorted(set(plan.left_out)) if place < len(ordinals) - 1)
        sent = tuple(ordinal for ordinal in ordinals if ordinal not in owed)
        yield Begun(None, Outgoing(f"{turn}/model", sent))
        answered = world.reply(path, turn, run.progress.agent)
        items = [run.ledger[ordinal].item for ordinal in sent]
        world.server(path).take(turn, run.marks.response_id, items, answered)
        yield CUT
        yield Replied(turn, answered.entries, answered.calls, answered.response, owed)

    def _settled_request(self, path: Path, turn: int) -> Event:
        run = self.at(path)
        answered: Answered | None = self.world.server(path).taken.get(turn)
        if answered is None:
            return NotTaken()
        assert run.progress.outgoing is not None
        owed = tuple(ordinal for ordinal in ordinals_to_send(run) if ordinal not in run.progress.outgoing.sent)
        return Replied(turn, answered.entries, answered.calls, answered.response, owed)

    def _call(self, path: Path, call_id: str) -> Steps:
        run, world = self.at(path), self.world
        call = run.call(call_id)
        assert call is not None
        plan = world.call_of(world.script_at(path), call_id)
        if call.kind in ("ignored", "unknown"):
            yield Returned(call_id, (answer(call, f"{call.kind} call"),))
            return
        let_run = call.child is not None  # it was let run before, and its own run waited or was cut off
        decision = call.decision or (None if let_run else _standing(run, call))
        if plan.approval != "no" and decision is None and not let_run:
            yield ApprovalNeeded(call_id)
            return
        if decision is not None and not decision.approved:
            yield Returned(call_id, (answer(call, f"rejected: {decision.message}", approve=False),))
            return
        if call.kind == "agent":
            yield from self._nest(path, call)
        elif call.kind == "hosted":
            yield Returned(call_id, (answer(call, ""),))
        else:
            yield Begun(call_id)
            world.ran[world.name(path, call_id)] += 1
            world.ran_ids.add((path, call_id))
            yield CUT
            yield self._returned(path, call)

    def _returned(self, path: Path, call: Call) -> Returned:
        entries = (answer(call, "ok"),)
        if call.kind != "handoff":
            return Returned(call.id, entries, ({"tool guardrail": call.name},), (call.name,))
        based = self.world.call_of(self.world.script_at(path), call.id).based
        base = (summary(call.id),) if based else None
        return Returned(call.id, entries, target=f"agent after {call.id.split('~')[0]}", base=base)

    def _nest(self, path: Path, call: Call) -> Steps:
        inner = (*path, call.id)
        if call.child is None:
            yield ChildMoved(call.id, begun(f"{self.at(path).spec.run_id}/{call.id}", self.world.script_at(inner)))
            self.claim(inner)
        elif not call.child.is_closed:
            yield ChildMoved(call.id, self.moved(call.child, self.claim(inner)))
        yield CHILD
        child = self.at(inner)
        text = f"said {child.progress.output}" if child.progress.ended else "the nested run was stopped by a guardrail"
        yield Returned(call.id, (answer(call, text),), responses=tuple(child.responses))

    def _settled_call(self, path: Path, call_id: str) -> Event:
        world, call = self.world, self.at(path).call(call_id)
        assert call is not None
        plan = world.call_of(world.script_at(path), call_id)
        if call.kind == "handoff" or plan.doubt == "rerun":
            return NotTaken(call_id)
        if plan.doubt == "report":
            world.unknown.add(world.name(path, call_id))
            return Returned(call_id, (answer(call, "nobody knows whether it was done"),), (), (call.name,))
        return ApprovalNeeded(call_id, "unknown")

    def _conclusion(self, path: Path, turn: int, exhausted: bool) -> Concluded:
        script, run = self.world.script_at(path), self.at(path)
        if exhausted:
            if not script.handler:
                raise TurnsUsedUp
            entry = Entry("message_output_item", run.progress.agent, said("gave up"))
            return Concluded(turn, Conclusion(True, "gave up", (entry,)), judged=not script.output_guards)
        assert run.turn is not None
        plan = script.turn(turn)
        if not plan.final:
            return Concluded(turn, Conclusion(False))
        conclusion = Conclusion(True, f"turn {turn}", calls=tuple(call.id for call in run.turn.calls))
        return Concluded(turn, conclusion, judged=not script.output_guards)


def _standing(run: Run, call: Call) -> Decision | None:
    """A decision made before it was asked for: about this call, else about every call of its scope."""
    decisions = list(run.decided)
    own = [decision for decision in decisions if decision.call_id == call.id]
    sticky = [decision for decision in decisions if decision.sticky and decision.scope == call.name]
    found: list[Any] = own or sticky
    return found[-1] if found else None
