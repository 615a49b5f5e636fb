"""Play a script through the pure engine in any order, and kill the world between any two steps.

Any due effect may start, any started effect may move on, one may fail and be started again, and a crash loses all that
is in flight and everything since the last save. `Play` is a driver without I/O: it keeps the promises a driver makes
(tell `Begun` before something leaves, save before an append, reconcile after every event, claim before going on) and
asserts after every step what must hold at every step. What must hold at the end is in the tests.

A driver's promises that this file relies on, and that the real driver must keep too:

- A resumer reads the session, counts what it holds of this run, and says both with `Claimed(claim, stored=count)`.
- A nested run is claimed the same way when its call is started again.
- A finished run is not claimed; its last append is still due and is done.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..engine.advance import advance
from ..engine.codec import decode_run, decode_saved, encode_head, encode_run, encode_tails
from ..engine.due import due
from ..engine.events import (
    Append,
    Appended,
    ApprovalNeeded,
    Begun,
    CallModel,
    ChildMoved,
    Claimed,
    Conclude,
    Concluded,
    Decided,
    Effect,
    Event,
    InputStaged,
    Judge,
    Judged,
    NotTaken,
    Replied,
    Returned,
    RunCall,
    Settle,
    Stopped,
)
from ..engine.request import offered, view_items
from ..engine.state import Call, Conclusion, Decision, Entry, Owner, Run, StopMode, begin
from ..engine.store import SavedRun
from ..jsonvalue import Item
from .schedule_world import Answered, Path, Script, World, answer, assert_provider_valid, counted, said, user

Action = tuple[str, int]
"""start, go, fail: which of those possible. crash. after_turn, immediate, failed, abandoned: a stop. other: a stranger writes."""
Saves = Literal["every", "lazy"]

CUT = "cut"
"""A point at which the world has reacted and nobody has heard of it yet."""
CHILD = "child"
"""A call that goes on when its nested run has ended."""
Steps = Generator[Event | str, None, None]

STEPS_MAX = 2_000
# A script of a few turns needs some hundred steps; more means that the run goes round in circles.


class TurnsUsedUp(Exception):
    """The run has used up its turns and nobody handles it: it raises, unchanged."""


@dataclass(frozen=True)
class Engine:
    """The two functions under test."""

    advance: Callable[[Run, Event], Run] = advance
    due: Callable[[Run], tuple[Effect, ...]] = due


@dataclass
class Flight:
    """An effect under way."""

    path: Path
    effect: Effect
    steps: Steps
    on_child: bool = False


@dataclass
class Saved:
    """A run store: a head and logs that only grow, exactly as a real one is given them."""

    head: bytes = b""
    logs: dict[str, list[bytes]] = field(default_factory=dict)

    def save(self, run: Run) -> None:
        """Write what is new."""
        self.head = encode_head(run)
        for name, tail in encode_tails(run, {name: len(log) for name, log in self.logs.items()}).items():
            self.logs[name] = [*self.logs.get(name, [])[: tail.start], *tail.records]
        assert self.load() == run, "a saved run is not the run"

    def load(self) -> Run:
        """The run as last saved."""
        return decode_saved(SavedRun("run", 1, self.head, self.logs))


class Play:
    """One telling of a script."""

    def __init__(self, script: Script, *, saves: Saves = "every", engine: Engine | None = None) -> None:
        self.script, self.saves, self.engine = script, saves, engine or Engine()
        self.world = World(script)
        self.saved = Saved()
        self.flights: dict[tuple[Path, str], Flight] = {}
        self.reads: dict[Path, list[tuple[str | None, Item]]] = {}
        self.claims = 0
        self.raised = False
        self.stopped = False
        """Whether the run was stopped at once, so that its history may differ from the calm one."""
        self.run = self._begun("run", script)
        self.saved.save(self.run)
        self._read(())

    # --- the schedule -----------------------------------------------------------------------------------------------

    def play(self, actions: Sequence[Action]) -> Play:
        """Follow the actions as far as they are possible, then go on calmly to the end."""
        waiting = list(reversed(actions))
        for _ in range(STEPS_MAX):
            if self._at_rest():
                if self.ended:
                    return self
                self._wake()
            self._act(*(waiting.pop() if waiting else ("calm", 0)))
        raise AssertionError("the run does not come to an end")

    @property
    def ended(self) -> bool:
        """Whether nothing more will ever happen."""
        return self.run.finished or self.raised

    def at(self, path: Path) -> Run:
        """The run at this path."""
        return _walk(self.run, path)

    def wants(self, path: Path = ()) -> Iterator[tuple[Path, Effect]]:
        """What is due, in nested runs that are under way too."""
        run = self.at(path)
        for effect in self.engine.due(run):
            yield path, effect
            if isinstance(effect, RunCall) and (path, effect.key) in self.flights:
                call = run.call(effect.call_id)
                if call is not None and call.child is not None:
                    yield from self.wants((*path, call.id))

    def _act(self, kind: str, number: int) -> None:
        startable = [(path, effect) for path, effect in self.wants() if (path, effect.key) not in self.flights]
        movable = [flight for flight in self.flights.values() if self._movable(flight)]
        if kind == "crash":
            return self._crash()
        if kind in ("after_turn", "immediate", "failed", "abandoned") and not self.run.finished:
            return self._stop(kind)  # type: ignore[arg-type]  # one of the four modes
        if kind == "other" and self.script.owner == "session":
            self.world.session(()).rows.append((None, user("from another")))
            return None
        if kind == "fail" and (harmless := [flight for flight in movable if self._repeatable(flight)]):
            flight = harmless[number % len(harmless)]  # a failed effect is not an event: it is started again
            del self.flights[flight.path, flight.effect.key]
            return None
        if startable and (kind == "start" or not movable):
            return self._start(*startable[number % len(startable)])
        if movable:
            self._move(movable[number % len(movable)])
        return None

    def _at_rest(self) -> bool:
        return self.raised or (not self.flights and not any(True for _ in self.wants()))

    def _movable(self, flight: Flight) -> bool:
        if not flight.on_child:
            return True
        assert isinstance(flight.effect, RunCall)
        child = self.at((*flight.path, flight.effect.call_id))
        return child.finished and not self.engine.due(child)

    def _repeatable(self, flight: Flight) -> bool:
        run = self.at(flight.path)
        if isinstance(flight.effect, RunCall):
            call = run.call(flight.effect.call_id)
            return call is not None and call.state != "begun"
        return not (isinstance(flight.effect, CallModel) and run.progress.begun)

    def _start(self, path: Path, effect: Effect) -> None:
        self._check_start(path, effect)
        self.flights[path, effect.key] = Flight(path, effect, self._perform(path, effect))

    def _move(self, flight: Flight) -> None:
        flight.on_child = False
        try:
            step = next(flight.steps, None)
        except TurnsUsedUp:
            self.raised, self.flights = True, {}
            return
        if step is None:
            del self.flights[flight.path, flight.effect.key]
        elif isinstance(step, str):
            flight.on_child = step == CHILD
        else:
            self.feed(flight.path, step)

    # --- what happens to the run ------------------------------------------------------------------------------------

    def feed(self, path: Path, event: Event) -> None:
        """The run after an event somewhere in it; then what is no longer due is cancelled."""
        run = self._advanced(self.at(path), event)
        for depth in range(len(path), 0, -1):
            run = self._advanced(self.at(path[: depth - 1]), ChildMoved(path[depth - 1], run))
        self.run = run
        if self.saves == "every" or _must_save(event) or run.paused or run.finished:
            self.saved.save(run)
        wanted = {(where, effect.key) for where, effect in self.wants()}
        self.flights = {key: flight for key, flight in self.flights.items() if key in wanted}

    def _advanced(self, before: Run, event: Event) -> Run:
        after = self.engine.advance(before, event)
        self._check_step(before, after, event)
        return after

    def _crash(self) -> None:
        self.flights = {}
        self.run = self.saved.load()
        self._resume()

    def _resume(self) -> None:
        self.claims += 1
        self._read(())
        if not self.run.finished:
            self.feed((), self._claim(()))

    def _claim(self, path: Path) -> Claimed:
        run = self.at(path)
        stored = self.world.session(path).written(run.spec.run_id) if run.spec.owner.kind == "session" else 0
        return Claimed(f"claim {self.claims}", stored=stored)

    def _read(self, path: Path) -> None:
        if self.at(path).spec.owner.kind == "session":
            self.reads[path] = list(self.world.session(path).rows)

    def _stop(self, mode: StopMode) -> None:
        upto = self.run.progress.turns + any(isinstance(flight.effect, CallModel) for flight in self.flights.values())
        self.stopped |= mode != "after_turn"
        self.feed((), Stopped(mode, upto))

    def _wake(self) -> None:
        """What the outside does with a run that rests: people decide, or somebody resumes it."""
        if self.run.progress.stop is None:
            assert self.run.paused, "the run wants nothing and is neither finished, stopped nor paused"
            if self.script.staged and not self.world.staged and any(call.reason == "approval" for call in self.run.waiting):
                self.world.staged = True
                self.feed((), InputStaged(tuple(user(text) for text in self.script.staged)))
            late = self.claims % 2 == 1  # people decide before somebody resumes, or after
            if late:
                self._resume()
            for path, call in list(self._waiting(self.run, ())):
                if (found := self.at(path).call(call.id)) is not None and found.state == "waiting":
                    self.feed((), Decided(self._decision(path, call), path))
            if late:
                return
        self._resume()

    def _waiting(self, run: Run, path: Path) -> Iterator[tuple[Path, Call]]:
        for call in reversed(run.waiting):
            if call.child is not None:
                yield from self._waiting(call.child, (*path, call.id))
            else:
                yield path, call

    def _decision(self, path: Path, call: Call) -> Decision:
        plan = self.world.call_of(self.world.script_at(path), call.id)
        if call.reason == "unknown":
            name = self.world.name(path, call.id)
            approved = plan.doubt == "ask"
            (self.world.allowed_again if approved else self.world.unknown).add(name)
            return Decision(approved, call.id, message="nobody knows whether it was done")
        sticky = plan.approval in ("sticky", "sticky_reject")
        approved = plan.approval in ("approve", "sticky")
        return Decision(approved, call.id, plan.name if sticky else None, sticky, None if approved else "no")

    # --- performers: each tells events, and can be cut at every step --------------------------------------------------

    def _perform(self, path: Path, effect: Effect) -> Steps:
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
        ordinals = offered(run)
        plan = world.script_at(path).turn(turn)
        owed = tuple(ordinals[place] for place in sorted(set(plan.left_out)) if place < len(ordinals) - 1)
        sent = tuple(ordinal for ordinal in ordinals if ordinal not in owed)
        yield Begun(None, f"{turn}/model", sent)
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
        owed = tuple(ordinal for ordinal in offered(run) if ordinal not in run.progress.sent)
        return Replied(turn, answered.entries, answered.calls, answered.response, owed)

    def _call(self, path: Path, call_id: str) -> Steps:
        run, world = self.at(path), self.world
        call = run.call(call_id)
        assert call is not None
        plan = world.call_of(world.script_at(path), call_id)
        if call.kind in ("ignored", "unknown"):
            yield Returned(call_id, (answer(call, f"{call.kind} call"),))
            return
        decision = call.decision or _standing(run, call)
        if plan.approval != "no" and decision is None:
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
            yield CUT
            yield self._returned(path, call)

    def _returned(self, path: Path, call: Call) -> Returned:
        entries = (answer(call, "ok"),)
        if call.kind != "handoff":
            return Returned(call.id, entries, ({"tool guardrail": call.name},), (call.name,))
        based = self.world.call_of(self.world.script_at(path), call.id).based
        base = (user("what happened so far"),) if based else None
        return Returned(call.id, entries, target=f"agent after {call.id.split('~')[0]}", base=base)

    def _nest(self, path: Path, call: Call) -> Steps:
        inner = (*path, call.id)
        if call.child is None:
            child = self._begun(f"{self.at(path).spec.run_id}/{call.id}", self.world.script_at(inner))
            yield ChildMoved(call.id, child)
            self._read(inner)
        else:
            self._read(inner)
            if not call.child.finished:
                self.feed(inner, self._claim(inner))
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
            return Concluded(turn, Conclusion(True, "gave up", (entry,)))
        assert run.turn is not None
        plan = script.turn(turn)
        if not plan.final:
            return Concluded(turn, Conclusion(False))
        return Concluded(turn, Conclusion(True, f"turn {turn}", calls=tuple(call.id for call in run.turn.calls)))

    @staticmethod
    def _begun(run_id: str, script: Script) -> Run:
        return begin(
            run_id=run_id,
            agent="agent",
            input_items=[user(text) for text in script.input],
            owner=Owner(script.owner, None if script.owner == "replay" else "somewhere"),
            max_turns=script.max_turns,
            verdict=script.verdict,
        )

    # --- what must hold at every step ---------------------------------------------------------------------------------

    def _check_start(self, path: Path, effect: Effect) -> None:
        run, script = self.at(path), self.world.script_at(path)
        if isinstance(effect, RunCall):
            assert run.progress.verdict == "passed", "a call begins before the input verdict (C6)"
            assert script.trips == "no", "a call begins though a guardrail trips (C6)"
            if script.owner == "session":
                stored = self.world.session(path).written(run.spec.run_id)
                assert stored >= run.marks.ready, "a call begins while an earlier turn is unstored"
        elif isinstance(effect, Append):
            assert script.owner == "session"
            if self.saves == "lazy":
                self.saved.save(self.run)
            known = len(_walk(self.saved.load(), path).ledger)
            assert known >= effect.end, "an append of what no saved run knows"
        elif isinstance(effect, CallModel):
            assert not run.tripped, "a model call follows a trip (C6)"
            self._check_request(path, run)

    def _check_request(self, path: Path, run: Run) -> None:
        ledger = [entry.item for entry in run.ledger]
        if run.spec.owner.is_server:
            has = self.world.server(path).context(run.marks.response_id)
            offers = [run.ledger[ordinal].item for ordinal in offered(run)]
            assert counted(has) + counted(offers) == counted(ledger), "the server would not have each item once (D2)"
            return
        view, rows = run.view, self.reads.get(path, [])
        request = view_items(run, [item for _, item in rows])
        assert_provider_valid(request[len(view.base or ()) :])
        if view.base is None:
            known = sum(writer == run.spec.run_id for writer, _ in rows)
            assert request == [*(item for _, item in rows), *ledger[known:]], "an item is sent twice or not at all"
        elif len(run.views) == 1:
            assert request == ledger

    def _check_step(self, before: Run, after: Run, event: Event) -> None:
        marks, earlier = after.marks, before.marks
        assert marks.stored >= earlier.stored, "the stored mark moved back"
        assert marks.ready >= earlier.ready, "the ready mark moved back"
        assert marks.acknowledged >= earlier.acknowledged, "the acknowledged mark moved back"
        for name in ("ledger", "responses", "views"):
            old, new = list(getattr(before, name)), list(getattr(after, name))
            assert new[: len(old)] == old, f"the {name} log is not append-only"
        wanted = self.engine.due(after)
        keys = [effect.key for effect in wanted]
        assert len(set(keys)) == len(keys), "two effects under one key"
        if after.finished:
            assert after.turn is None
            assert all(isinstance(effect, Append) for effect in wanted), "a finished run wants more than its append"
        elif not wanted:
            assert after.paused or after.progress.stop is not None, "the run wants nothing and does not say why"
        if after.paused and after.progress.stop is None:
            assert all(isinstance(effect, Append) for effect in wanted), "a paused run wants more than its append"
        self._check_begun(before, after, event, keys)
        again = decode_run(encode_run(after))
        assert again == after, "a saved run is not the run"
        assert self.engine.due(again) == wanted, "a saved run wants something else"

    @staticmethod
    def _check_begun(before: Run, after: Run, event: Event, keys: list[str]) -> None:
        if isinstance(event, Claimed):
            assert not after.finished
            for call in after.turn.calls if after.turn else ():
                assert call.state != "begun", "a begun call is not in doubt after a claim"
            return
        states = {call.id: call.state for call in before.turn.calls} if before.turn else {}
        for call in after.turn.calls if after.turn else ():
            if call.state == "begun" and not isinstance(event, Stopped):
                assert any(key.endswith(f"/call/{call.id}") for key in keys), "a begun call is no longer due"
            if states.get(call.id) == "returned":
                assert call.state == "returned", "a call that returned is open again"


def _walk(run: Run, path: Path) -> Run:
    for call_id in path:
        call = run.call(call_id)
        assert call is not None
        assert call.child is not None
        run = call.child
    return run


def _must_save(event: Event) -> bool:
    return isinstance(event, Begun | Returned | Decided | Claimed | InputStaged | Stopped)


def _standing(run: Run, call: Call) -> Decision | None:
    """A decision made before it was asked for: about this call, else about every call of its scope."""
    decisions = run.progress.decisions
    own = [decision for decision in decisions if decision.call_id == call.id]
    sticky = [decision for decision in decisions if decision.sticky and decision.scope == call.name]
    found: list[Any] = own or sticky
    return found[-1] if found else None
