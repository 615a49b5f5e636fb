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

from standfast.backends.memory.session import InMemoryStore
from standfast.engine.run_store import LogTail
from standfast.ground.errors import StandfastError
from standfast.ground.jsonvalue import digest, encode
from standfast.sessions import fork_rules, generation_rules, lease_rules, rules, run_rules, writer_rules
from standfast.sessions.lease_rules import Asker, Busy, Fence, Taken
from standfast.sessions.port import Look, Name, Plan, ask, carried_out
from standfast.sessions.protocol import Head, Position
from standfast.sessions.rules import Popped
from standfast.sessions.run_rules import Recording, RunSave
from standfast.sessions.writer_rules import AppendBatch

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
    kept = carried_out(store, generation_rules.generations(HERE))
    return kept[0].id if kept else "none"


def asker(nonce: str) -> Asker:
    return Asker(60.0, nonce, "somebody", "", (nonce,))


# What is read for an argument (a head, a generation) is read when the plan begins, as a caller would have it.
PLANS: dict[str, MakePlan] = {
    "add": lambda _: rules.add(HERE, items("x", "y"), None),
    "append a": lambda _: writer_rules.append(HERE, batch("a", 2, 2)),
    "append a, grown": lambda _: writer_rules.append(HERE, batch("a", 1, 4)),
    "append b": lambda _: writer_rules.append(HERE, batch("b", 0, 1)),
    "pop": lambda _: rules.pop(HERE, unheard, None),
    "rewind a": lambda _: writer_rules.rewind(HERE, "a", 1, None, None),
    "replace": lambda s: generation_rules.replace(HERE, items("summary"), Head(s.mark_now), None, None),
    "restore": lambda s: generation_rules.restore(HERE, s.newest_now, None, None),
    "fork": lambda _: fork_rules.fork(HERE, FORK, Position(1), None, None),
    "clear": lambda _: rules.clear(HERE, lease_rules.is_under_way, None),
    "repair": lambda _: rules.repair(HERE, None),
    "lease 1": lambda _: lease_rules.acquire(HERE, asker("one"), None, lambda _: False),
    "lease 2": lambda _: lease_rules.acquire(HERE, asker("two"), None, lambda _: False),
    "release 1": lambda _: lease_rules.release(HERE, Fence(1, "one")),
    "revoke": lambda _: lease_rules.revoke(HERE, "operator"),
    "record": lambda _: run_rules.record(Recording(HERE, [batch("a", 2, 1)], save(0), None)),
    "record, leased": lambda _: run_rules.record(Recording(HERE, [batch("a", 2, 1)], save(0), Fence(1, "one"), True)),
    "save": lambda _: run_rules.record(Recording(HERE, (), save(0, "paused"), None)),
    "delete run": lambda _: run_rules.delete_run("run", loses_answers=False),
    "read": lambda _: rules.get_items(HERE, None, unheard),
    "written": lambda _: writer_rules.written(HERE, "a", unheard),
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
        carried_out(self, writer_rules.append(HERE, batch("a", 0, 2)))
        for name in BEGINNINGS[how]:
            self.known()
            if name == "damage":
                self.inject_record(HERE.id, b"{broken")
            else:
                carried_out(self, PLANS[name](self))
        self.known()
        return self

    def known(self) -> None:
        self.mark_now = carried_out(self, rules.head(HERE)).value
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
    if isinstance(got, run_rules.Recorded):
        return got.revision
    return None if isinstance(got, Head) else got


def done_alone(store: Store, plan: Plan[Any]) -> Any:
    return outcome(lambda: carried_out(store, plan))


def state(store: Store) -> Any:
    """All that can be read."""
    seen: dict[str, Any] = {}
    for name in (HERE, FORK):
        seen[f"{name.id} items"] = carried_out(store, rules.get_items(name, None, unheard))
        seen[f"{name.id} counts"] = [carried_out(store, writer_rules.accepted(name, writer)) for writer in "ab"]
        kept = carried_out(store, generation_rules.generations(name))
        seen[f"{name.id} kept"] = [
            carried_out(store, generation_rules.read_generation(name, g.id, unheard)) for g in kept
        ]
        seen[f"{name.id} corrupt"] = len(carried_out(store, rules.corrupt_records(name)))
        sight = store.look(Look(name, cells=(rules.LEASE,), prefixes=("r/",)))
        held = lease_rules.lease_state_in(sight)
        seen[f"{name.id} lease"] = (held.number, bool(held.ttl_s))
        seen[f"{name.id} runs"] = sorted(cell for cell in sight.cells if cell.startswith("r/"))
    seen["run"] = carried_out(store, run_rules.load_run("run"))
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
    """And refuses before it: a carrier that groups plans relies on it."""
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
    carried_out(store, writer_rules.append(HERE, batch("a", 0, 70)))
    for _ in range(70):
        carried_out(store, rules.pop(HERE, unheard, None))
    rewinding = writer_rules.rewind(HERE, "a", 40, None, None)
    interleaved(store, rewinding, 2, lambda: done_alone(store, PLANS["clear"](store)))
    carried_out(store, fork_rules.fork(HERE, FORK, None, None, None))
    assert [carried_out(store, writer_rules.accepted(name, "a")) for name in (HERE, FORK)] == [40, 40]
    carried_out(store, writer_rules.rewind(HERE, "a", 36, None, None))
    assert carried_out(store, writer_rules.accepted(HERE, "a")) == 36
