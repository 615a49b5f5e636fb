"""Every public await of a run and of a session, cancelled once, twice, without end and by anyio.

Whatever a tool did is then in the history that the next model sees, or said to be unknown; the next run gets the
session at once (the lease of the cancelled one would live for minutes); no task is left.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import itertools
import os
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop
from helpers.cancelling import WAYS, Way, cancelled_at, no_task_is_left, suspensions
from helpers.ledger_oracle import asked_next, done, lines, write, wrongs

from standfast import Agent, RunConfig, Runner, SQLiteSession, ToolContext, function_tool
from standfast._src.sessions.rules.saved_runs import NestedItems
from standfast.testing import ScriptedModel, final, function_call
from tests.helpers.stores import opened, place

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}
HOLDS = RunConfig(lease_ttl_s=300.0)
"""A lease that is kept is kept for longer than any test waits."""


class Desk:
    """One store with many conversations, and an agent whose tools write down what they do."""

    def __init__(self, folder: Path, backend: str) -> None:
        self.folder, self.where = folder, place(backend, folder)
        self._number = itertools.count()
        self.book, self.session = folder / "book", self._made()

    def _made(self) -> Any:
        name = f"s{next(self._number)}"
        self.book = self.folder / f"{name}.book"
        return opened(self.where, name)

    async def begin(self) -> None:
        """Another conversation with its own book."""
        await self.session.close()
        self.session = self._made()

    def agent(self, *, asks: bool = False) -> Agent[Any]:
        book = self.book

        @function_tool
        async def pay(ctx: ToolContext[Any]) -> str:
            """Pay."""
            await asyncio.sleep(0)
            write(book, ctx.tool_call_id)
            await asyncio.sleep(0)
            return done(ctx.tool_call_id)

        @function_tool(needs_approval=asks)
        def note(ctx: ToolContext[Any]) -> str:
            """Note, in a thread."""
            write(book, ctx.tool_call_id)
            return done(ctx.tool_call_id)

        replies = [
            [function_call("pay", {}, call_id="c1"), function_call("note", {}, call_id="c2")],
            [function_call("pay", {}, call_id="c3")],
            final("done"),
        ]
        return Agent(name="A", model=ScriptedModel(replies), tools=[pay, note])

    async def check(self, what: str) -> None:
        await no_task_is_left()
        found = wrongs(lines(self.book), await asked_next(self.session))
        assert not found, f"{what}: {found}"


Work = Callable[[Desk], Coroutine[Any, Any, Any]]


async def run(desk: Desk) -> None:
    await Runner.run(desk.agent(), "go", session=desk.session, run_config=HOLDS)


async def run_streamed(desk: Desk) -> None:
    result = Runner.run_streamed(desk.agent(), "go", session=desk.session, run_config=HOLDS)
    async for _ in result.stream_events():
        pass


async def approved(desk: Desk, *, streamed: bool) -> None:
    """A paused run, decided and gone on with; what came before is not what is cancelled here, but may be."""
    agent = desk.agent(asks=True)
    paused = await Runner.run(agent, "go", session=desk.session, run_config=HOLDS)
    state = paused.to_state()
    for item in state.get_interruptions():
        state.approve(item)
    if not streamed:
        await Runner.run(agent, state, session=desk.session, run_config=HOLDS)
        return
    result = Runner.run_streamed(agent, state, session=desk.session, run_config=HOLDS)
    async for _ in result.stream_events():
        pass


async def resumed(desk: Desk) -> None:
    await approved(desk, streamed=False)


async def resumed_streamed(desk: Desk) -> None:
    await approved(desk, streamed=True)


async def given_up(desk: Desk) -> None:
    """A paused run whose first call has run, cancelled by `Runner.cancel_run`."""
    agent = desk.agent(asks=True)
    config = RunConfig(run_id="job" + desk.session.session_id, lease_ttl_s=300.0)
    await Runner.run(agent, "go", session=desk.session, run_config=config)
    assert config.run_id is not None
    await Runner.cancel_run(agent, config.run_id, session=desk.session)


RUNS: dict[str, Work] = {
    "run": run,
    "run_streamed": run_streamed,
    "a resumed run": resumed,
    "a resumed stream": resumed_streamed,
    "cancel_run": given_up,
}


WORLDS = [
    ("asyncio", "sqlite"),
    ("asyncio", "memory"),
    ("uvloop", "sqlite"),
    pytest.param("asyncio", "redis", marks=pytest.mark.redis),
    pytest.param("asyncio", "postgres", marks=pytest.mark.postgres),
]


def _stride(loop: str, backend: str, way: Way) -> int:
    """Every await where it costs little; some of them, shifted, in the combinations that repeat it."""
    if ROUNDS > 1 or backend == "memory" or ((loop, backend) == ("asyncio", "sqlite") and way in ("twice", "anyio")):
        return 1
    return 4 if backend == "sqlite" else 7


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", RUNS)
@pytest.mark.parametrize(("loop", "backend"), WORLDS)
def test_whatever_a_tool_did_is_stored_or_said_to_be_unknown_and_the_lease_is_free(
    loop: str, backend: str, what: str, way: Way, tmp_path: Path
) -> None:
    """C8, C11, C14 and C15 at every place where a run waits."""

    async def scenario() -> None:
        desk = Desk(tmp_path, backend)
        count = await suspensions(lambda: RUNS[what](desk))
        step = _stride(loop, backend, way)
        for _ in range(ROUNDS):
            for at in range(len(way) % step, count, step):
                await desk.begin()
                await cancelled_at(lambda: RUNS[what](desk), at, way)
                await desk.check(f"{what} on {backend}, cancelled {way} at await {at} of {count}")
        await desk.session.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())


def item(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def _rewind(session: Any) -> None:
    await session.append([item("x")], writer="w", start=0)
    await session.rewind(writer="w", to=0)


class Held(list[Any]):
    """Leases that a caller got: it can give those back itself, and only those."""

    async def take(self, session: Any) -> None:
        self.append(await session.lease(ttl_s=300.0, wait_s=0))
        await self[-1].release()

    async def give_back(self) -> None:
        while self:
            await self.pop().release()


held = Held()


async def _replace(session: Any) -> None:
    await session.replace([item("short")], upto=await session.head())


async def _restore(session: Any) -> None:
    await _replace(session)
    await session.restore((await session.generations())[-1].id)


async def _record(session: Any) -> None:
    nested = [NestedItems("w/1", 0, [item("inner")])]
    await session.record(items=[item("c")], writer="w", start=0, nested=nested)


async def _read_generation(session: Any) -> None:
    await _replace(session)
    await session.read_generation((await session.generations())[-1].id)


async def _watch(session: Any) -> None:
    first = (await session.records(limit=2)).records[0]
    async for _ in session.watch(after=first.cursor, poll_s=0.01):
        return


async def _asked(name: str, given: dict[str, Any], session: Any) -> None:
    await getattr(session, name)(**given)


OPERATIONS: dict[str, tuple[Callable[[Any], Coroutine[Any, Any, Any]], tuple[list[str], ...]]] = {
    "get_items": (lambda s: s.get_items(), (["a", "b"],)),
    "add_items": (lambda s: s.add_items([item("c"), item("d")]), (["a", "b"], ["a", "b", "c", "d"])),
    "pop_item": (lambda s: s.pop_item(), (["a", "b"], ["a"])),
    "clear_session": (lambda s: s.clear_session(), (["a", "b"], [])),
    "append": (lambda s: s.append([item("c")], writer="w", start=0), (["a", "b"], ["a", "b", "c"])),
    "rewind": (_rewind, (["a", "b"], ["a", "b", "x"])),
    "replace": (_replace, (["a", "b"], ["short"])),
    "restore": (_restore, (["a", "b"], ["short"])),
    "record": (_record, (["a", "b"], ["a", "b", "inner", "c"])),
    "fork": (lambda s: s.fork(f"{s.session_id} forked"), (["a", "b"],)),
    "repair": (lambda s: s.repair(), (["a", "b"],)),
    "read_generation": (_read_generation, (["a", "b"], ["short"])),
    "lease": (held.take, (["a", "b"],)),
    "revoke_lease": (lambda s: s.revoke_lease(), (["a", "b"],)),
    "watch": (_watch, (["a", "b"],)),
    **{
        name: (partial(_asked, name, given), (["a", "b"],))
        for name, given in {
            "head": {}, "page": {"limit": 1}, "records": {"limit": 1}, "info": {}, "holder": {}, "origin": {},
            "usage": {}, "generations": {}, "corrupt_records": {}, "search": {"text": "a"}, "accepted": {"writer": "w"},
            "written": {"writer": "w"}, "list_sessions": {"limit": 1}, "count_sessions": {},
            "send": {"message": "c", "agent": "A"}, "receipt": {"message_id": "m"}, "waiting_messages": {},
        }.items()
    },
}  # fmt: skip


def test_every_public_await_of_a_session_is_among_those_that_are_cancelled() -> None:
    """A method that is added later is added there."""
    for_tools = {"changed", "looked"}  # they carry out what another method says
    found = {
        name
        for name, method in inspect.getmembers(SQLiteSession)
        if not name.startswith("_") and (inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method))
    }
    assert found - for_tools <= set(OPERATIONS) | {"close"}  # closing is of no use to whoever comes next


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("loop", LOOPS)
def test_a_cancelled_operation_leaves_the_session_as_before_or_after_and_usable(
    loop: str, name: str, way: Way, tmp_path: Path
) -> None:
    """A13: no lock, transaction or lease is stranded, and a popped item is back at its place before the next write."""
    work, allowed = OPERATIONS[name]

    async def prepared(at: object) -> SQLiteSession:
        session = SQLiteSession(f"s{at}", tmp_path / "a.db")
        await session.add_items([item("a"), item("b")])
        return session

    async def scenario() -> None:
        session = await prepared("count")
        count = await suspensions(lambda: work(session))
        session.close()
        for at in range(count):
            session = await prepared(at)
            was_cancelled = await cancelled_at(functools.partial(work, session), at, way)
            await no_task_is_left()
            await held.give_back()
            await session.add_items([item("next")])
            lease = await session.lease(ttl_s=1.0, wait_s=10.0)
            await lease.release()
            texts = [stored["content"] for stored in await session.get_items()]
            may_be = list(allowed)
            if name == "pop_item" and was_cancelled:
                may_be = [["a", "b"]]
            assert texts in [[*before, "next"] for before in may_be], f"{name} cancelled {way} at await {at}"
            session.close()

    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(scenario())
