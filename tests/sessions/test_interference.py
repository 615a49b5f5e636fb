"""Any plan, with anybody writing between any two of its questions, comes to what it comes to in one transaction.

Two plans are carried out, one whole at some point inside the other. What is stored afterwards, and what both gave,
must be what one after the other would have given, in one order or the other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from standfast._src.base.errors import StandfastError
from standfast._src.base.json_values import digest, encode
from standfast._src.runs.engine.run_store import LogTail
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.protocol import Head, Position
from standfast._src.sessions.rules import append, forks, generations, history, leases, saved_runs
from standfast._src.sessions.rules.append import AppendBatch
from standfast._src.sessions.rules.history import Popped
from standfast._src.sessions.rules.leases import Asker, Busy, Fence, Taken
from standfast._src.sessions.rules.saved_runs import Recording, RunSave
from standfast._src.sessions.storage import Name, Plan, ReadRequest, ask, run_program

HERE, FORK = Name("session", "here"), Name("session", "fork")

MakePlan = Callable[[InMemoryStore], Plan[Any]]


def unheard(row: Any, fault: str) -> None:
    """Corrupt records are no matter here."""


def items(*texts: str) -> list[bytes]:
    return [encode({"content": text}) for text in texts]


def batch(writer: str, start: int, size: int, **more: Any) -> AppendBatch:
    encoded = items(*(f"{writer} {number}" for number in range(start, start + size)))
    return AppendBatch(writer, start, encoded, [digest(data) for data in encoded], **more)


def save(expect: int, status: str = "running") -> RunSave:
    return RunSave("run", expect, b"head %d" % expect, {"log": LogTail(0, [b"%d" % expect])}, status, "a", HERE.id)


def newest(store: InMemoryStore) -> str:
    kept = run_program(store, generations.generations(HERE))
    return kept[0].id if kept else "none"


def asker(nonce: str) -> Asker:
    return Asker(60.0, nonce, "somebody", "", (nonce,))


# What is read for an argument (a head, a generation) is read when the plan begins, as a caller would have it.
PLANS: dict[str, MakePlan] = {
    "add": lambda _: history.add(HERE, items("x", "y"), None),
    "append a": lambda _: append.append(HERE, batch("a", 2, 2)),
    "append a, grown": lambda _: append.append(HERE, batch("a", 1, 4)),
    "append b": lambda _: append.append(HERE, batch("b", 0, 1)),
    "pop": lambda _: history.pop(HERE, unheard, None),
    "rewind a": lambda _: append.rewind(HERE, "a", 1, None, None),
    "replace": lambda s: generations.replace(HERE, items("summary"), Head(s.mark_now), None, None),
    "restore": lambda s: generations.restore(HERE, s.newest_now, None, None),
    "fork": lambda _: forks.fork(HERE, FORK, Position(1), None, None),
    "clear": lambda _: history.clear(HERE, leases.is_under_way, append.count_alone, None),
    "repair": lambda _: history.repair(HERE, None),
    "lease 1": lambda _: leases.acquire(HERE, asker("one"), None, lambda _: False),
    "lease 2": lambda _: leases.acquire(HERE, asker("two"), None, lambda _: False),
    "release 1": lambda _: leases.release(HERE, Fence(1, "one")),
    "revoke": lambda _: leases.revoke(HERE, "operator"),
    "record": lambda _: saved_runs.record(Recording(HERE, [batch("a", 2, 1)], save(0), None)),
    "record, leased": lambda _: saved_runs.record(Recording(HERE, [batch("a", 2, 1)], save(0), Fence(1, "one"), True)),
    "save": lambda _: saved_runs.record(Recording(HERE, (), save(0, "paused"), None)),
    "delete run": lambda _: saved_runs.delete_run("run", loses_answers=False),
    "read": lambda _: history.get_items(HERE, None, unheard),
    "written": lambda _: append.written(HERE, "a", unheard),
}  # fmt: skip

BEGINNINGS: dict[str, list[str]] = {
    "two of a": [],
    "replaced": ["replace"],
    "replaced and gone on": ["replace", "append b", "replace"],
    "held": ["lease 1"],
    "held, with a run": ["lease 1", "save"],
    "damaged": ["damage"],
    "cleared": ["clear"],
}


class Store(InMemoryStore):
    """Memory that can be copied, and knows what a caller has read."""

    mark_now = ""
    newest_now = "none"

    def copied(self) -> Store:
        made = Store()
        # All that it has, whatever that is called; but each has a lock of its own, which cannot be copied.
        vars(made).update(copy.deepcopy(vars(self), {id(self.lock): made.lock}))
        return made

    def begun(self, how: str) -> Store:
        run_program(self, append.append(HERE, batch("a", 0, 2)))
        for name in BEGINNINGS[how]:
            self.known()
            if name == "damage":
                self.inject_record(HERE.id, b"{broken")
            else:
                run_program(self, PLANS[name](self))
        self.known()
        return self

    def known(self) -> None:
        self.mark_now = run_program(self, history.head(HERE)).value
        self.newest_now = newest(self)


def outcome(doing: Callable[[], Any]) -> Any:
    """What a plan gave, without what is only a name (a head, a ref, a time)."""
    try:
        got = doing()
    except StandfastError as error:
        return type(error)
    if isinstance(got, Popped):
        return got.row.data
    if isinstance(got, Busy):
        return "busy"
    if isinstance(got, Taken):
        return ("taken", got.number)
    if isinstance(got, saved_runs.Recorded):
        return got.revision
    return None if isinstance(got, Head) else got


def done_alone(store: Store, plan: Plan[Any]) -> Any:
    return outcome(lambda: run_program(store, plan))


def state(store: Store) -> Any:
    """All that can be read."""
    seen: dict[str, Any] = {}
    for name in (HERE, FORK):
        seen[f"{name.id} items"] = run_program(store, history.get_items(name, None, unheard))
        seen[f"{name.id} counts"] = [run_program(store, append.accepted(name, writer)) for writer in "ab"]
        kept = run_program(store, generations.generations(name))
        seen[f"{name.id} kept"] = [run_program(store, generations.read_generation(name, g.id, unheard)) for g in kept]
        seen[f"{name.id} corrupt"] = len(run_program(store, history.corrupt_records(name)))
        sight = store.look(ReadRequest(name, cells=(history.LEASE,), prefixes=("r/",)))
        held = leases.lease_state_in(sight)
        seen[f"{name.id} lease"] = (held.number, bool(held.ttl_s))
        seen[f"{name.id} runs"] = sorted(cell for cell in sight.cells if cell.startswith("r/"))
    seen["run"] = run_program(store, saved_runs.load_run("run"))
    return seen


def interleaved(store: Store, first: Plan[Any], at: int, between: Callable[[], None]) -> Any:
    """Carry out a plan one question at a time, with something else done before question number `at`."""
    asked = 0
    try:
        question = next(first)
        while True:
            if asked == at:
                between()
            answer = ask(store, question)
            asked += 1
            assert asked < 50, "it never comes to an end"
            question = first.send(answer)
    except StopIteration as end:
        return end.value


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    how=st.sampled_from(sorted(BEGINNINGS)),
    one=st.sampled_from(sorted(PLANS)),
    other=st.sampled_from(sorted(PLANS)),
    at=st.integers(0, 4),
)
def test_a_plan_that_others_write_into_comes_to_what_one_after_the_other_comes_to(
    how: str, one: str, other: str, at: int
) -> None:
    start = Store().begun(how)
    allowed = []
    for is_first in (True, False):
        store = start.copied()
        names = (one, other) if is_first else (other, one)
        gave = [done_alone(store, PLANS[name](start)) for name in names]
        allowed.append((*(gave if is_first else gave[::-1]), state(store)))
    store = start.copied()
    gave_other: list[Any] = []

    def between() -> None:
        gave_other.append(done_alone(store, PLANS[other](start)))

    gave_one = outcome(lambda: interleaved(store, PLANS[one](start), at, between))
    if not gave_other:
        between()
    seen = (gave_one, gave_other[0], state(store))
    assert seen in allowed


@pytest.mark.parametrize("name", sorted(PLANS))
def test_a_plan_ends_in_one_step_when_nobody_else_writes(name: str) -> None:
    """And refuses before it: an executor that groups plans relies on it."""
    for how in BEGINNINGS:
        store = Store().begun(how)
        plan = PLANS[name](store)
        steps = 0
        try:
            question = next(plan)
            while True:
                steps += isinstance(question, list)
                question = plan.send(ask(store, question))
        except StopIteration:
            assert steps <= 1
        except StandfastError:
            assert steps == 0


def test_a_clear_in_the_middle_of_a_rewind_leaves_the_count_to_forks_and_to_later_rewinds() -> None:
    """It takes the older digests away, and the rewind does not notice: nothing of the history was left to clear."""
    store = Store()
    run_program(store, append.append(HERE, batch("a", 0, 70)))
    for _ in range(70):
        run_program(store, history.pop(HERE, unheard, None))
    rewinding = append.rewind(HERE, "a", 40, None, None)
    interleaved(store, rewinding, 2, lambda: done_alone(store, PLANS["clear"](store)))
    run_program(store, forks.fork(HERE, FORK, None, None, None))
    assert [run_program(store, append.accepted(name, "a")) for name in (HERE, FORK)] == [40, 40]
    run_program(store, append.rewind(HERE, "a", 36, None, None))
    assert run_program(store, append.accepted(HERE, "a")) == 36
