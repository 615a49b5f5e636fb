"""Defects that the simulator found in runs, each in its smallest form, so that none comes back unnoticed."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest

import standfast._src.runs.engine.run_store
import standfast._src.runs.loop.loop
from standfast import (
    Agent,
    InMemorySession,
    OutcomeUnknownError,
    PartialBatchError,
    RunClaimedError,
    RunConfig,
    Runner,
    RunState,
    RunStateError,
    SessionConflictError,
    StoreUnavailableError,
    Usage,
    function_tool,
    handoff,
)
from standfast._src.sessions.backends.memory.memory_runs import InMemoryRunStore
from standfast.testing import ModelStep, ScriptedModel, function_call
from tests.helpers.runs_apart import KeepsNoRuns

from .observing import SESSIONS, SeedSession
from .whole_runs import go, kinds, outputs, said, user

KEEP = RunConfig(run_id="r")


def paying(ran: list[Any], **options: Any) -> Any:
    @function_tool(**options)
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return f"paid {amount}"

    return pay


def payment(amount: int = 1, call_id: str = "p1") -> dict[str, Any]:
    return function_call("pay", {"amount": amount}, call_id=call_id)


class Trouble(InMemoryRunStore):
    """A run store that fails at chosen saves: before anything is written, or after."""

    def __init__(self) -> None:
        super().__init__()
        self.fail: dict[int, str] = {}
        self.saves = 0

    async def save_run(self, *args: Any, **named: Any) -> int:
        self.saves += 1
        how = self.fail.get(self.saves)
        if how == "before":
            raise StoreUnavailableError("no store", "Try again.")
        revision = await super().save_run(*args, **named)
        if how == "after":
            raise OutcomeUnknownError("the answer was lost", "Repeat it.")
        return revision


class Stubborn(InMemorySession):
    """A session whose reads wait until they may go on."""

    def __init__(self, session_id: str = "s", **options: Any) -> None:
        super().__init__(session_id, **options)
        self.reading, self.free = asyncio.Event(), asyncio.Event()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        self.reading.set()
        await self.free.wait()
        return await super().get_items(limit)


# --- what a run costs, and what it carries ---------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["resume", "run again"])
async def test_a_run_that_goes_on_in_another_process_counts_what_it_has_cost(way: str) -> None:
    session, usage = InMemorySession("s"), Usage(requests=1, input_tokens=5, total_tokens=5)
    steps = [ModelStep(output=[payment()], usage=usage), RuntimeError("out")]
    agent = Agent(name="A", model=ScriptedModel(steps), tools=[paying([])])
    with pytest.raises(RuntimeError):
        await Runner.run(agent, "go", session=session, run_config=KEEP)
    agent = Agent(name="A", model=ScriptedModel([ModelStep(output=said("ok"), usage=usage)]), tools=[paying([])])
    if way == "resume":
        result = await Runner.resume(agent, "r", session=session)
    else:
        result = await Runner.run(agent, "go", session=session, run_config=KEEP)
    assert result.context_wrapper.usage.total_tokens == 10
    assert len(result.raw_responses) == 2


async def test_an_error_before_a_run_is_opened_carries_no_state_that_could_take_its_place() -> None:
    """A paused run is saved; a second attempt that cannot even read its session must not hand out an empty one."""
    ran: list[Any] = []
    session = InMemorySession("s")
    agent = Agent(name="A", model=ScriptedModel([[payment()], said("done")]), tools=[paying(ran, needs_approval=True)])
    await Runner.run(agent, "go", session=session, run_config=KEEP)

    class Unreadable(InMemorySession):
        async def accepted(self, writer: str) -> int:
            raise OSError("unreadable")

        async def get_items(self, limit: int | None = None) -> list[Any]:
            raise OSError("unreadable")

    with pytest.raises(OSError, match="unreadable") as caught:
        await Runner.run(agent, "go", session=Unreadable("s", store=session.store), run_config=KEEP)
    carried: RunState | None = getattr(caught.value, "run_state", None)
    assert carried is None or carried.get_interruptions()
    state = await Runner.load(agent, "r", session=session)
    assert [item.call_id for item in state.get_interruptions()] == ["p1"]


async def test_a_state_taken_from_a_run_that_was_stopped_while_it_was_looked_up_is_refused() -> None:
    session = Stubborn()
    ran: list[Any] = []
    steps = [[payment()], RuntimeError("out")]
    agent = Agent(name="A", model=ScriptedModel(steps), tools=[paying(ran)])
    session.free.set()
    with pytest.raises(RuntimeError):
        await Runner.run(agent, "go", session=session, run_config=KEEP)
    session.free.clear()
    session.reading.clear()
    agent = Agent(name="A", model=ScriptedModel([said("ok"), said("ok")]), tools=[paying(ran)])

    class Waiting(Stubborn):
        async def accepted(self, writer: str) -> int:
            self.reading.set()
            await self.free.wait()
            return await super().accepted(writer)

    second = Waiting("s", store=session.store)
    result = Runner.run_streamed(agent, "go", session=second, run_config=KEEP)
    await second.reading.wait()
    result.cancel()
    async for _ in result.stream_events():
        pass
    second.free.set()
    with pytest.raises(RunClaimedError):
        await Runner.run(agent, result.to_state(), session=second)
    done = await Runner.resume(agent, "r", session=second)
    assert done.final_output == "ok"
    assert ran == [1]


async def test_an_older_state_of_a_run_that_went_on_is_refused() -> None:
    """Without a run store nobody fences a state, but the session knows how much its run has written."""
    ran: list[Any] = []
    session = InMemorySession("s")
    agent = Agent(
        name="A",
        model=ScriptedModel([[payment()], said("done"), said("again")]),
        tools=[paying(ran, needs_approval=True)],
    )
    config = RunConfig(save="never")
    text = (await Runner.run(agent, "go", session=session, run_config=config)).to_state().to_string()
    for number in range(2):
        state = await RunState.from_string(agent, text)
        state.approve(state.get_interruptions()[0])
        with pytest.raises(RunClaimedError) if number else contextlib.nullcontext():
            await Runner.run(agent, state, session=session, run_config=config)
    assert ran == [1]
    assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output", "assistant"]


# --- saving ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["state", "resume"])
async def test_a_save_whose_answer_was_lost_does_not_split_the_story(way: str) -> None:
    session, store, ran = KeepsNoRuns("s"), Trouble(), []
    config = RunConfig(run_id="r", run_store=store)
    agent = Agent(
        name="A", model=ScriptedModel([[payment()], said("done"), said("done"), said("done")]), tools=[paying(ran)]
    )
    store.fail = {2: "after"}  # that the call begins; the first is that the run was taken
    with pytest.raises(OutcomeUnknownError) as caught:
        await Runner.run(agent, "go", session=session, run_config=config)
    stored = await session.get_items()
    state: RunState = caught.value.run_state  # type: ignore[attr-defined]
    if way == "state":
        result = await Runner.run(agent, state, session=session, run_config=RunConfig(run_store=store))
    else:
        result = await Runner.resume(agent, "r", session=session, run_store=store)
    told = [item.to_input_item() for item in result.new_items]
    assert (await session.get_items())[1:] == told
    assert (await session.get_items())[: len(stored)] == stored
    assert len(outputs(told)) == 1


async def test_a_failed_save_of_the_outer_run_is_not_told_to_a_model() -> None:
    store, ran = Trouble(), []
    inner = Agent(name="Inner", model=ScriptedModel([[payment()], said("inner")]), tools=[paying(ran)])
    outer_model = ScriptedModel([[function_call("ask", {"input": "?"}, call_id="o1")], said("done")])
    outer = Agent(name="Outer", model=outer_model, tools=[inner.as_tool("ask", "Ask.")])
    store.fail = {2: "before"}
    with pytest.raises(StoreUnavailableError):
        await Runner.run(outer, "go", session=KeepsNoRuns("s"), run_config=RunConfig(run_id="r", run_store=store))
    assert len(outer_model.calls) == 1, "the model was told of a store's failure as if it were the tool's"


async def test_a_nested_run_that_had_done_nothing_is_begun_again_after_a_crash() -> None:
    """A nested run writes down what it does before it does it: one that wrote nothing did nothing."""
    session = InMemorySession("s")
    calls = [function_call("ask", {"input": "?"}, call_id="o1")]
    inner = Agent(name="Inner", model=ScriptedModel([ModelStep.hang()]))
    agent = Agent(name="Outer", model=ScriptedModel([calls]), tools=[inner.as_tool("ask", "Ask.")])
    task = asyncio.create_task(Runner.run(agent, "go", session=session, run_config=KEEP))
    await inner.model.wait_for_call()  # type: ignore[union-attr]
    saved = await session.run_store().load_run("r")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    # What a kill at that moment would have left: the call begun, nothing stored.
    crashed = InMemorySession("s")
    assert saved is not None
    tails = {
        name: standfast._src.runs.engine.run_store.LogTail(0, list(records)) for name, records in saved.logs.items()
    }
    await crashed.run_store().save_run("r", expect=0, head=saved.head, tails=tails, status="running", agent="Outer")
    inner = Agent(name="Inner", model=ScriptedModel([said("inner answer")]))
    agent = Agent(name="Outer", model=ScriptedModel([said("done")]), tools=[inner.as_tool("ask", "Ask.")])
    result = await Runner.resume(agent, "r", session=crashed)
    assert outputs([item.to_input_item() for item in result.new_items]) == ["inner answer"]


async def test_of_two_who_load_an_unstored_ending_one_is_told() -> None:
    """The record of an ended run says whose save it was, else the second would look like a repeat of the first."""

    class Refusing(InMemorySession):
        refuse = True

        async def append(self, *args: Any, **named: Any) -> Any:
            if self.refuse:
                raise OSError("refused")
            return await super().append(*args, **named)

    session = Refusing("s")
    agent = Agent(name="A", model=ScriptedModel([said("done")]))
    with pytest.raises(OSError, match="refused"):
        await Runner.run(agent, "go", session=session, run_config=KEEP)
    session.refuse = False
    states = [await Runner.load(agent, "r", session=session) for _ in range(2)]
    first = await Runner.run(agent, states[0], session=session)
    assert first.final_output == "done"
    with pytest.raises((RunClaimedError, RunStateError)):
        await Runner.run(agent, states[1], session=session)
    assert kinds(await session.get_items()) == ["user", "assistant"]


# --- running again under an id ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("save", ["auto", "never"])
async def test_a_run_that_a_tool_ended_is_found_ended(save: Any) -> None:
    session, ran = InMemorySession("s"), []
    config = RunConfig(run_id="r", save=save)
    for model in (ScriptedModel([[payment()]]), ScriptedModel([])):
        agent = Agent(name="A", model=model, tools=[paying(ran)], tool_use_behavior="stop_on_first_tool")
        result = await Runner.run(agent, "go", session=session, run_config=config)
        assert result.final_output == "paid 1"
    assert ran == [1]
    assert len(await session.get_items()) == 3


async def test_a_handoff_that_was_stopped_is_not_followed_when_its_run_is_found_again() -> None:
    """Its call has an output, as every call must; that the output says "not completed" is what counts."""
    session, seen = InMemorySession("s"), []
    config = RunConfig(run_id="r", save="never")

    def agents(steps: Any, *, breaks: bool) -> Agent[Any]:
        def pass_on(context: Any) -> None:
            seen.append("handed over")
            if breaks:
                raise RuntimeError("no way through")

        other = Agent(name="Other", model=ScriptedModel([said("other")]))
        tools = [paying([])]
        return Agent(name="A", model=ScriptedModel(steps), tools=tools, handoffs=[handoff(other, on_handoff=pass_on)])

    calls = [payment(), function_call("transfer_to_other", {}, call_id="h1")]
    with pytest.raises(RuntimeError, match="no way"):
        await Runner.run(agents([calls], breaks=True), "go", session=session, run_config=config)
    assert len(await session.get_items()) == 5
    result = await Runner.run(agents([said("still me")], breaks=False), "go", session=session, run_config=config)
    assert result.final_output == "still me"
    assert result.last_agent.name == "A"


@pytest.mark.parametrize("kind", ["cleared", "plain"])
async def test_an_id_whose_items_cannot_be_told_any_more_is_refused(kind: str) -> None:
    """Its ordinals are used up: what a new run stored under them would be taken for a repeat, and lost."""
    session: Any = InMemorySession("s") if kind == "cleared" else SeedSession("s")
    config = RunConfig(run_id="r", save="never")
    agent = Agent(name="A", model=ScriptedModel([said("one"), said("two")]))
    await Runner.run(agent, "go", session=session, run_config=config)
    if kind == "cleared":
        await session.clear_session()
    before = await session.get_items()
    with pytest.raises(SessionConflictError):
        await Runner.run(agent, "go", session=session, run_config=config)
    assert await session.get_items() == before


# --- stopping --------------------------------------------------------------------------------------------------------


async def test_cancelling_a_streamed_run_that_still_waits_for_its_session_stops_it() -> None:
    session, model = Stubborn(), ScriptedModel([said("never")])
    result = Runner.run_streamed(Agent(name="A", model=model), "go", session=session)
    await session.reading.wait()
    result.cancel()
    async for _ in result.stream_events():
        pass
    session.free.set()
    assert result.run_loop_task is not None
    await asyncio.wait([result.run_loop_task], timeout=30)
    assert result.run_loop_task.done()
    assert not model.calls
    assert await session.get_items() == []


async def test_nobody_waits_for_a_run_that_never_began() -> None:
    result = Runner.run_streamed(Agent(name="A", model=ScriptedModel([said("never")])), "go")
    assert result.run_loop_task is not None
    result.run_loop_task.cancel()

    async def watch() -> None:
        async for _ in result.stream_events():
            pass

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.ensure_future(watch()), 30)
    assert result.is_complete


async def test_a_cancelled_run_whose_store_stalls_ends_as_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standfast._src.runs.loop.loop, "CLOSING_GRACE_S", 0.05)

    class Stalling(InMemorySession):
        async def append(self, *args: Any, **named: Any) -> Any:
            await asyncio.sleep(3600)

    begun = asyncio.Event()

    @function_tool
    async def work() -> str:
        """Work for ever."""
        begun.set()
        await asyncio.sleep(3600)
        return "never"

    agent = Agent(name="A", model=ScriptedModel([[function_call("work", {}, call_id="c1")]]), tools=[work])
    carried: list[RunState] = []

    async def whole() -> None:
        try:
            await Runner.run(agent, "go", session=Stalling("s"))
        except asyncio.CancelledError as error:
            carried.append(error.run_state)  # type: ignore[attr-defined]
            raise

    task = asyncio.create_task(whole())
    await begun.wait()
    task.cancel()
    await asyncio.wait([task], timeout=30)
    assert task.cancelled()
    assert carried[0].status == "cancelled"


# --- plain sessions --------------------------------------------------------------------------------------------------


async def test_a_plain_sessions_torn_batch_is_settled_before_a_resumed_run_reads() -> None:
    """Else the model would see the user's message twice, and a call apart from its output."""

    class Torn(SeedSession):
        tears, pops = True, True

        async def add_items(self, items: list[Any]) -> None:
            if self.tears:
                self.tears = False
                await super().add_items(items[:2])
                raise OSError("torn")
            await super().add_items(items)

        async def pop_item(self) -> Any:
            if self.pops:
                self.pops = False
                raise OSError("not now")
            return await super().pop_item()

    session: Any = Torn("s")
    model = ScriptedModel([[payment()], said("done"), said("done"), said("done")])
    agent = Agent(name="A", model=model, tools=[paying([])])
    with pytest.raises(PartialBatchError) as caught:
        await go(agent, "go", session=session)
    state: RunState = caught.value.run_state  # type: ignore[attr-defined]
    await go(agent, state, session=session)
    assert model.calls[-1].input.count(user("go")) == 1
    assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output", "assistant"]


async def test_a_session_is_read_once_for_a_run(tmp_path: Path) -> None:
    """Also if it is empty, where nothing read and nothing there look alike."""
    for kind in ("plain", "memory"):
        session = SESSIONS[kind](tmp_path)
        reads = 0
        read = session.get_items

        async def counting(*args: Any, read: Any = read, **named: Any) -> Any:
            nonlocal reads
            reads += 1
            return await read(*args, **named)

        session.get_items = counting
        await Runner.run(Agent(name="A", model=ScriptedModel([said("ok")])), "go", session=session)
        assert reads == 1, kind
