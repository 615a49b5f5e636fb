"""Generated histories: Hypothesis drives the backend and a model side by side, and they may never differ.

The model of part A is a plain list. The model of part B is the kit's own `ReferenceSession`: whatever appends,
replaces, undos, rewinds, pops and forks do, in any order and with any mistakes, has to be the same in both, errors
included.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from standfast._kits.conformance.check_context import AnySession, Lab, close, short
from standfast._kits.conformance.reference_session import ReferenceSession
from standfast._src.base.errors import StandfastError
from standfast._src.sessions.protocol import CanFork, Head, Position

T = TypeVar("T")

_texts = st.sampled_from(["yes", "no", "hello", "", "🧪", "a\x00b", "\ud800", "x" * 50])
_items = st.lists(st.fixed_dictionaries({"role": st.just("user"), "content": _texts}), max_size=8)

_seldom = st.sampled_from([False, False, False, True])  # what empties a history leaves little to compare


def _run(machine: type[Any], lab: Lab) -> None:
    """Run a machine on the lab's store, each example with session ids of its own."""
    bound = type(machine.__name__, (machine,), {"lab": lab, "numbers": count()})
    chosen = settings(
        max_examples=lab.options.examples,
        stateful_step_count=40,
        deadline=None,
        database=None,
        derandomize=lab.options.repeatable,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.generate, Phase.shrink) if lab.options.shrink else (Phase.generate,),
        print_blob=False,
    )
    run_state_machine_as_test(bound, settings=chosen)


class SessionAgainstList(RuleBasedStateMachine):
    """Adds, reads, pops and clears on two sessions of one store, compared with two lists."""

    lab: Lab
    numbers: Iterator[int]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        number = next(self.numbers)
        self.sessions = [
            self.lab.backend.open(f"conversation {number}"),
            self.lab.backend.open(f"conversation {number}'"),
        ]
        self.lists: list[list[Any]] = [[], []]

    @rule(which=st.integers(0, 1), items=_items)
    def add(self, which: int, items: list[Any]) -> None:
        try:
            self.runner.run(self.sessions[which].add_items(items))
        except Exception:
            if not any("\x00" in item["content"] or "\ud800" in item["content"] for item in items):
                raise  # only what A17 lets a store refuse may be refused
            return
        self.lists[which] += items

    @rule(which=st.integers(0, 1))
    def pop(self, which: int) -> None:
        seen = self.runner.run(self.sessions[which].pop_item())
        self.lab.same(seen, self.lists[which].pop() if self.lists[which] else None, "generated operations, by pop_item")

    @rule(which=st.integers(0, 1), really=_seldom)
    def clear(self, which: int, really: bool) -> None:
        if not really:
            return
        self.runner.run(self.sessions[which].clear_session())
        self.lists[which].clear()

    @rule(which=st.integers(0, 1), limit=st.integers(0, 12))
    def read(self, which: int, limit: int) -> None:
        seen = self.runner.run(self.sessions[which].get_items(limit=limit))
        wanted = self.lists[which][-limit:] if limit else []
        self.lab.same(seen, wanted, f"generated operations, by get_items(limit={limit})")

    @precondition(lambda self: self.lab.backend.shared)
    @rule(which=st.integers(0, 1))
    def open_again(self, which: int) -> None:
        session = self.sessions[which]
        self.sessions[which] = self.lab.backend.open(session.session_id)
        self.runner.run(self.sessions[which].get_items(limit=1))  # before the last object that kept it open goes
        self.runner.run(close(session))

    @invariant()
    def both_are_the_lists(self) -> None:
        for session, wanted in zip(self.sessions, self.lists, strict=True):
            self.lab.same(self.runner.run(session.get_items()), wanted, "generated operations")

    def teardown(self) -> None:
        for session in self.sessions:
            self.runner.run(close(session))
        self.runner.close()


def against_list(lab: Lab) -> None:
    """Adds, reads, pops and clears on two sessions of one store, compared with two lists."""
    _run(SessionAgainstList, lab)


_writers = st.sampled_from(["a", "b"])


class SessionAgainstReference(RuleBasedStateMachine):
    """Every change of part B on the backend and on the reference, right and wrong ones."""

    lab: Lab
    numbers: Iterator[int]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.number = next(self.numbers)
        self.forks = 0
        self.pair = (self.lab.backend.open(f"conversation {self.number}"), ReferenceSession("reference"))
        self.opened = [self.pair[0]]
        self.heads: list[tuple[Head, Head]] = [(Head(), Head())]

    def both(self, what: str, doing: Callable[[Any, int], Awaitable[Any]]) -> tuple[Any, Any]:
        """Do the same on both sides; return the results, or None if both refused with the same kind of error."""
        outcomes = [self.runner.run(_outcome(doing(session, side))) for side, session in enumerate(self.pair)]
        seen, wanted = outcomes
        if isinstance(seen, StandfastError) or isinstance(wanted, StandfastError):
            self.lab.expect(
                type(seen) is type(wanted), f"{what} gave {short(seen)} where the reference gave {short(wanted)}"
            )
            return None, None
        return seen, wanted

    def add_heads(self, heads: tuple[Any, Any]) -> None:
        if heads[0] is not None:
            self.heads.append(heads)

    def head(self, data: st.DataObject, *, may_be_none: bool = True) -> tuple[Any, Any]:
        # Mostly none or the newest: changes that are refused teach little after the first few.
        known = [*self.heads[-4:], self.heads[-1]] + [(None, None)] * 5 * may_be_none
        return data.draw(st.sampled_from(known))

    @rule(writer=_writers, back=st.integers(-1, 6), size=st.integers(0, 4), odd=st.integers(0, 9), data=st.data())
    def append(self, writer: str, back: int, size: int, odd: int, data: st.DataObject) -> None:
        count = self.runner.run(self.pair[1].accepted(writer))
        start = max(0, count - back)
        items = [
            {"role": "user", "content": f"{writer} {n}" + (" odd" if odd == 0 and n == start else "")}
            for n in range(start, start + size)
        ]
        expect = self.head(data)
        self.add_heads(
            self.both(
                f"append({writer!r}, {start}, {size} items)",
                lambda session, side: session.append(items, writer=writer, start=start, expect=expect[side]),
            )
        )

    @rule(writer=_writers, size=st.integers(1, 5))
    def append_next(self, writer: str, size: int) -> None:
        """Append like a run without faults."""
        start = self.runner.run(self.pair[1].accepted(writer))
        items = [{"role": "user", "content": f"{writer} {n}"} for n in range(start, start + size)]
        self.add_heads(self.both("append", lambda session, side: session.append(items, writer=writer, start=start)))

    @rule(items=_items)
    def add(self, items: list[Any]) -> None:
        self.both("add_items", lambda session, side: session.add_items(items))

    @rule()
    def pop(self) -> None:
        seen, wanted = self.both("pop_item", lambda session, side: session.pop_item())
        self.lab.same(seen, wanted, "generated changes, by pop_item")

    @rule(writer=_writers, back=st.integers(-1, 6), data=st.data())
    def rewind(self, writer: str, back: int, data: st.DataObject) -> None:
        to = max(0, self.runner.run(self.pair[1].accepted(writer)) - back)
        expect = self.head(data)
        self.add_heads(
            self.both(
                f"rewind({writer!r}, {to})",
                lambda session, side: session.rewind(writer=writer, to=to, expect=expect[side]),
            )
        )

    @rule(back=st.integers(1, 6))
    def rewind_the_tail(self, back: int) -> None:
        """Rewind by the last writer: a random writer is seldom allowed to."""
        rows = self.pair[1].store.conversation(self.pair[1].session_id).rows
        if rows and rows[-1].writer is not None:
            writer, to = rows[-1].writer, max(0, rows[-1].ordinal + 1 - back)
            self.add_heads(self.both("rewind", lambda session, side: session.rewind(writer=writer, to=to)))

    @rule(size=st.integers(0, 3), data=st.data())
    def replace(self, size: int, data: st.DataObject) -> None:
        upto = self.head(data, may_be_none=False)
        if upto[1] == Head() and self.runner.run(self.pair[1].head()) != Head():
            return  # putting items before the whole history: not needed, and the contract is silent
        items = [{"role": "user", "content": f"summary {n}"} for n in range(size)]
        self.add_heads(self.both("replace", lambda session, side: session.replace(items, upto=upto[side])))

    @rule(which=st.integers(0, 2))
    def restore(self, which: int) -> None:
        kept = [self.runner.run(session.generations()) for session in self.pair]
        self.lab.same(
            [g.item_count for g in kept[0]], [g.item_count for g in kept[1]], "generated changes, by generations"
        )
        if which < len(kept[1]):
            self.add_heads(self.both("restore", lambda session, side: session.restore(kept[side][which].id)))

    @rule(index=st.integers(0, 8), which=st.integers(-1, 1))
    def fork(self, index: int, which: int) -> None:
        kept = [self.runner.run(session.generations()) for session in self.pair]
        if which >= len(kept[1]):
            return
        self.forks += 1
        name = f"fork {self.number}.{self.forks}"

        def fork_side(session: CanFork, side: int) -> Awaitable[Any]:
            at = Position(index, None if which < 0 else kept[side][which].id)
            return session.fork(name, at=at)

        seen, wanted = self.both(f"fork at {index} of generation {which}", fork_side)
        if seen is not None:
            self.opened.append(seen)
            self.pair, self.heads = (seen, wanted), [(Head(), Head())]  # go on with the fork

    @rule(really=_seldom)
    def clear(self, really: bool) -> None:
        if really:
            self.both("clear_session", lambda session, side: session.clear_session())

    @rule()
    def note_head(self) -> None:
        self.add_heads(self.both("head", lambda session, side: session.head()))

    @invariant()
    def both_are_equal(self) -> None:
        async def look(session: AnySession) -> dict[str, Any]:
            return {
                "items": await session.get_items(),
                "counts": [await session.accepted(writer) for writer in "ab"],
                "written": [await session.written(writer) for writer in "ab"],
                "generations": [await session.read_generation(g.id) for g in await session.generations()],
            }

        seen, wanted = (self.runner.run(look(session)) for session in self.pair)
        for what, value in wanted.items():
            self.lab.same(seen[what], value, f"generated changes, by {what}")

    def teardown(self) -> None:
        for session in self.opened:
            self.runner.run(close(session))
        self.runner.close()


def against_reference(lab: Lab) -> None:
    """Every change of part B on the backend and on the reference, right and wrong ones."""
    _run(SessionAgainstReference, lab)


async def _outcome(doing: Awaitable[T]) -> T | StandfastError:
    try:
        return await doing
    except StandfastError as error:
        return error
