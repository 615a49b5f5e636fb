"""Play a script through the pure engine in any order, and kill the world between any two steps.

Any due effect may start, any started effect may move on, one may fail and be started again, and a crash loses all that
is in flight and everything since the last save. `Play` is a driver without I/O: it keeps the promises a driver makes
(tell `Begun` before something leaves, save before an append, reconcile after every event, claim before going on) and
asserts after every step what must hold at every step. What must hold at the end is in the tests.

A driver's promises that this file relies on, and that the real driver must keep too:

- A resumer reads the session, counts what it holds of this run, and says both with `Claimed(claim, stored=count)`.
- A nested run is claimed the same way when its call is started again.
- A finished run whose session does not hold all of it is claimed too: its last append is still due, and is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from runs.engine.schedule_performers import CHILD, CUT, Performers, Steps, TurnsUsedUp, begun
from runs.engine.schedule_world import (
    Path,
    Script,
    World,
    after_turn,
    assert_provider_valid,
    counted,
    summarised_turn,
    user,
)

from standfast._src.base.json_values import Item
from standfast._src.items.history import output_key
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.codec import decode_run, decode_saved, encode_head, encode_run, encode_tails
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.events import (
    Append,
    Begun,
    CallModel,
    ChildMoved,
    Claimed,
    Decided,
    Effect,
    Event,
    InputStaged,
    Judged,
    Returned,
    RunCall,
    Stopped,
)
from standfast._src.runs.engine.request import ordinals_to_send, view_items
from standfast._src.runs.engine.run import Call, Decision, Run, StopMode
from standfast._src.runs.engine.run_store import SavedRun

Action = tuple[str, int]
"""What, and which of those possible: start, go, fail, a mode of stopping, "other" (a stranger writes), crash, strike
(crash if something is under way that may not be repeated, or that the world has already done), or hunt (crash as soon
as that is so)."""
Saves = Literal["every", "lazy"]

STOPS = ("after_turn", "immediate", "failed", "observed", "abandoned")
STEPS_MAX = 2_000
# A script of a few turns needs some hundred steps; more means that the run goes round in circles.


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
    cut: bool = False
    """Whether the world has reacted."""


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
        self.run = begun("run", script)
        self.saved.save(self.run)
        self.performers = Performers(self.world, self.at, self._claim, self.advanced)
        self._claim(())

    # --- the schedule -----------------------------------------------------------------------------------------------

    def play(self, actions: Sequence[Action]) -> Play:
        """Follow the actions as far as they are possible, then go on calmly to the end."""
        waiting = list(reversed(actions))
        for _ in range(STEPS_MAX):
            if self._at_rest():
                if self.ended:
                    return self
                if not waiting or waiting[-1][0] not in (*STOPS, "crash", "other"):
                    self._wake()  # what can happen to a run at work can happen to one that rests, too
            action = waiting.pop() if waiting else ("calm", 0)
            if action[0] == "hunt" and not self._perilous(action[1]):
                waiting.append(action)
                action = ("calm", 0)
            self._act(*action)
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
            flight = self.flights.get((path, effect.key))
            if isinstance(effect, RunCall) and flight is not None and flight.on_child:
                yield from self.wants((*path, effect.call_id))

    def _act(self, kind: str, number: int) -> None:
        startable = [(path, effect) for path, effect in self.wants() if (path, effect.key) not in self.flights]
        movable = [flight for flight in self.flights.values() if self._movable(flight)]
        if kind in ("crash", "hunt") or (kind == "strike" and self._perilous(number)):
            return self._crash()
        if kind in STOPS and not self.run.finished:
            return self._stop(kind)
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
        return not self.flights and not any(True for _ in self.wants())

    def _movable(self, flight: Flight) -> bool:
        if not flight.on_child:
            return True
        assert isinstance(flight.effect, RunCall)
        child = self.at((*flight.path, flight.effect.call_id))
        return child.finished and not self.engine.due(child)

    def _perilous(self, number: int) -> bool:
        """Whether something has begun that may not be repeated; with an odd number, whether it has really happened."""
        flights = [flight for flight in self.flights.values() if flight.cut or number % 2 == 0]
        return any(isinstance(flight.effect, Append) or not self._repeatable(flight) for flight in flights)

    def _repeatable(self, flight: Flight) -> bool:
        run = self.at(flight.path)
        if isinstance(flight.effect, RunCall):
            call = run.call(flight.effect.call_id)
            return call is not None and call.state != "begun"
        return not (isinstance(flight.effect, CallModel) and run.progress.outgoing)

    def _start(self, path: Path, effect: Effect) -> None:
        self._check_start(path, effect)
        self.flights[path, effect.key] = Flight(path, effect, self.performers.perform(path, effect))

    def _move(self, flight: Flight) -> None:
        try:
            step = next(flight.steps, None)
        except TurnsUsedUp:
            self.raised = True
            self.feed((), Stopped("failed"))  # what is settled is still stored before the error is raised
            return
        if step is None:
            del self.flights[flight.path, flight.effect.key]
        elif isinstance(step, str):
            flight.on_child, flight.cut = step == CHILD, step == CUT
        else:
            self.feed(flight.path, step)

    # --- what happens to the run ------------------------------------------------------------------------------------

    def feed(self, path: Path, event: Event) -> None:
        """The run after an event somewhere in it; then what is no longer due is cancelled."""
        run = self.advanced(self.at(path), event)
        for depth in range(len(path), 0, -1):
            run = self.advanced(self.at(path[: depth - 1]), ChildMoved(path[depth - 1], run))
        self.run = run
        if self.saves == "every" or _must_save(event) or run.paused or run.finished:
            self.saved.save(run)
        wanted = {(where, effect.key) for where, effect in self.wants()}
        self.flights = {key: flight for key, flight in self.flights.items() if key in wanted}

    def advanced(self, before: Run, event: Event) -> Run:
        after = self.engine.advance(before, event)
        self._check_step(before, after, event)
        return after

    def _crash(self) -> None:
        self.flights, self.raised = {}, False
        self.run = self.saved.load()
        self._resume()

    def _resume(self) -> None:
        self.claims += 1
        claim = self._claim(())
        if not self.run.is_closed:
            self.feed((), claim)

    def _claim(self, path: Path) -> Claimed:
        """Read the session of a run, and claim it knowing what the session holds."""
        run, stored = self.at(path), 0
        if run.spec.owner.kind == "session":
            self.reads[path] = list(self.world.session(path).rows)
            stored = self.world.session(path).written(run.spec.run_id)
        return Claimed(f"claim {self.claims}", stored=stored)

    def _stop(self, how: str) -> None:
        # "observed": what failed was a hook that only looked at the reply, which is kept.
        mode: StopMode = "failed" if how == "observed" else how  # type: ignore[assignment]  # one of the four modes
        upto = self.run.progress.turns + any(isinstance(flight.effect, CallModel) for flight in self.flights.values())
        self.stopped |= mode != "after_turn"
        self.feed((), Stopped(mode, upto, keeps_turn=how == "observed"))

    def _wake(self) -> None:
        """What the outside does with a run that rests: people decide, or somebody resumes it."""
        if self.run.progress.stop is None:
            assert self.run.paused, "the run wants nothing and is neither finished, stopped nor paused"
            if self.script.owner == "session":
                stored = self.world.session(()).written("run")
                assert stored == len(self.run.ledger), "the run pauses and its input is not stored (C3)"
            if (
                self.script.staged
                and not self.world.staged
                and any(call.reason == "approval" for call in self.run.waiting)
            ):
                self.world.staged = True
                self.feed((), InputStaged(tuple(user(text) for text in self.script.staged)))
            late = self.claims % 2 == 1  # people decide before somebody resumes, or after
            if late:
                self._resume()
            always: dict[tuple[Path, str], Decision] = {}
            for path, call in list(self._waiting(self.run, ())):
                decision = self._decision(path, call)
                known = always.get((path, call.name)) if call.reason == "approval" else None
                if known is not None and not late:
                    continue  # decided with another call of its tool; the claim finds out
                if known is not None:
                    decision = Decision(known.approved, call.id, message=known.message)
                elif decision.sticky:
                    always[path, call.name] = decision
                self.feed((), Decided(decision, path))
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

    # --- what must hold at every step ---------------------------------------------------------------------------------

    def _check_start(self, path: Path, effect: Effect) -> None:
        run, script = self.at(path), self.world.script_at(path)
        if isinstance(effect, RunCall):
            self._check_call(path, run, effect.call_id)
        elif isinstance(effect, Append):
            assert script.owner == "session"
            if effect.start == 0 and effect.end <= run.spec.input_count:
                assert run.tripped or run.paused or run.finished, "the input is stored before its first turn (C3)"
            if self.saves == "lazy":
                self.saved.save(self.run)
            known = len(_walk(self.saved.load(), path).ledger)
            assert known >= effect.end, "an append of what no saved run knows"
        elif isinstance(effect, CallModel):
            assert not run.tripped, "a model call follows a trip (C6)"
            assert run.progress.verdict != "blocking", "a model call before the guardrails that come first (D10)"
            assert not run.progress.staged, "a model call before input that waits for it"
            assert script.max_turns is None or effect.turn <= script.max_turns, "more turns than allowed"
            self._check_request(path, run)

    def _check_call(self, path: Path, run: Run, call_id: str) -> None:
        script, turn = self.world.script_at(path), run.turn
        assert turn is not None
        assert run.progress.verdict == "passed", "a call begins before the input verdict (C6)"
        assert script.trips == "no", "a call begins though a guardrail trips (C6)"
        if script.owner == "session":
            stored = self.world.session(path).written(run.spec.run_id)
            assert stored >= run.marks.ready, "a call begins while an earlier turn is unstored"
        others = [call for call in turn.calls if call.id != call_id]
        if any(call.id == call_id and call.kind == "handoff" for call in turn.calls):
            assert all(call.state == "returned" for call in others), "a handoff while another call is open"

    def _check_request(self, path: Path, run: Run) -> None:
        ledger = [entry.item for entry in run.ledger]
        if run.spec.owner.is_server:
            has = self.world.server(path).context(run.marks.response_id)
            offers = [run.ledger[ordinal].item for ordinal in ordinals_to_send(run)]
            assert counted(has) + counted(offers) == counted(ledger), "the server would not have each item once (D2)"
            return
        view, rows = run.view, self.reads.get(path, [])
        request = view_items(run, [item for _, item in rows])
        if view.base is None:
            known = sum(writer == run.spec.run_id for writer, _ in rows)
            assert request == [*(item for _, item in rows), *ledger[known:]], "an item is sent twice or not at all"
        elif len(run.views) == 1:
            assert request == ledger
        else:
            assert_provider_valid(request)
            behind = after_turn(ledger, summarised_turn(view.base))
            assert request == [*view.base, *ledger[behind:]], "the view begins elsewhere than behind its handoff"

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
        if isinstance(event, Stopped) and event.mode != "after_turn":
            assert all(isinstance(effect, Append) for effect in wanted), "a stopped run wants more than its append"
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
            assert not before.is_closed, "a run of which nothing is left to do was claimed"
            assert before.finished == after.finished
            for call in after.turn.calls if after.turn else ():
                assert call.state != "begun", "a begun call is not in doubt after a claim"
            return
        if before.turn is not None and len(after.ledger) > len(before.ledger) and not isinstance(event, Judged):
            settled = [entry.item for entry in after.ledger.since(len(before.ledger))]
            for call in before.turn.calls:
                if call.is_granted and isinstance(event, Stopped) and event.mode == "abandoned":
                    answer = next(item for item in settled if output_key(item) == output_key(call.outputs[0].item))
                    assert answer["approve"] is False, "a run was given up, and its provider may still act"
                    continue
                assert call.state != "returned" or call.outputs[0].item in settled, "an output that was there is gone"
        states = {call.id: call.state for call in before.turn.calls} if before.turn else {}
        for call in after.turn.calls if after.turn else ():
            # A reply that is kept waits as it is: a handoff of it that had begun is in doubt once somebody claims it.
            waits = isinstance(event, Stopped) and event.keeps_turn and call.kind == "handoff"
            if call.state == "begun" and not waits:
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
