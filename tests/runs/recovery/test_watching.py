"""Watching a saved run: what is told, what is refused, and what it costs the store."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import eventually
from helpers.watching import check_order, facts

from standfast import (
    Agent,
    CallerError,
    EncryptedSession,
    InMemoryRunStore,
    InMemorySession,
    InvalidSettingError,
    NotFoundError,
    OwnerError,
    RunConfig,
    RunEnded,
    Runner,
    RunStateError,
    SavedRun,
    StoreError,
    UserError,
    function_tool,
)
from standfast._src.base.json_values import encode_value
from standfast._src.realtime.machine.codec import SCHEMA as CALL
from standfast.testing import AnsweringModel, ScriptedModel, assistant_message, final, function_call
from tests.helpers.stores import SERVERS, opened, place
from tests.runs.recovery.watched_runs import Diary, busy_agent

NEVER_S = 1_000.0
# As long as nobody would wait: whatever depended on the clock would be noticed.


async def all_of(run_id: str, **given: Any) -> list[dict[str, Any]]:
    async with aclosing(Runner.watch(run_id, **given)) as updates:
        return [update.to_json() async for update in updates]


def teller(run_id: str = "r", **given: Any) -> tuple[list[dict[str, Any]], asyncio.Task[list[dict[str, Any]]]]:
    """What a watcher has been told so far, and the task that watches."""
    told: list[dict[str, Any]] = []

    async def watch() -> list[dict[str, Any]]:
        async for update in Runner.watch(run_id, **given):
            told.append(update.to_json())
        return told

    return told, asyncio.create_task(watch())


def paying_agent() -> Agent[Any]:
    @function_tool
    async def pay(cents: int) -> str:
        """Pay."""
        return f"paid {cents}"

    model = ScriptedModel([[function_call("pay", {"cents": 5}, call_id="c1")], final("done")])
    return Agent(name="payer", tools=[pay], model=model)


# --- on every store and owner ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["memory", "sqlite", "sqlalchemy", *SERVERS, pytest.param("sealed", marks=pytest.mark.redis)]
)
async def test_who_watches_and_who_comes_later_are_told_the_same(kind: str, tmp_path: Path) -> None:
    session, agent = opened(place(kind, tmp_path)), busy_agent()
    told, watching = teller(session=session, poll_s=0.01)
    result = await Runner.run(agent, "begin", session=session, run_config=RunConfig(run_id="r"))
    await eventually(lambda: any(one.get("status") == "paused" for one in told))
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    await Runner.run(agent, state, session=session)
    await watching
    late = await all_of("r", session=session)
    check_order(told)
    check_order(late)
    assert sorted(facts(told)) == sorted(facts(late))
    assert [one["item"] for one in late if one["type"] == "item_saved"] == await session.get_items()
    assert told[-1] == late[-1]
    assert told[-1]["output"] == "all is done"
    for cut in {0, len(late) // 2, len(late) - 1}:
        assert facts(await all_of("r", session=session, after=late[cut]["cursor"])) == facts(late[cut + 1 :])
    await session.close()


@pytest.mark.parametrize(
    "owner",
    [{}, {"conversation_id": "conv"}, {"previous_response_id": "resp"}, {"auto_previous_response_id": True}],
    ids=["replay", "conversation", "chain", "own chain"],
)
async def test_a_run_that_no_session_owns_is_watched_in_its_run_store(owner: dict[str, Any]) -> None:
    store = InMemoryRunStore()
    told, watching = teller(run_store=store, poll_s=0.01)
    await Runner.run(paying_agent(), "pay", run_config=RunConfig(run_id="r", run_store=store), **owner)
    await watching
    check_order(told)
    assert [one["kind"] for one in told if "kind" in one] == [
        "input",
        "tool_call_item",
        "tool_call_output_item",
        "message_output_item",
    ]
    assert sorted(facts(told)) == sorted(facts(await all_of("r", run_store=store)))


async def test_a_store_of_ones_own_needs_only_its_five_methods() -> None:
    diary = Diary()
    told, watching = teller(run_store=diary, poll_s=0.01)
    await Runner.run(paying_agent(), "pay", run_config=RunConfig(run_id="r", run_store=diary))
    await watching
    check_order(told)
    assert told[-1]["status"] == "done"


async def test_only_reading_is_asked_of_the_store() -> None:
    """A watcher writes nothing and takes no lease: of its store it needs one method."""
    diary = Diary()
    await Runner.run(paying_agent(), "pay", run_config=RunConfig(run_id="r", run_store=diary))

    class OnlyReads:
        async def load_run(self, run_id: str) -> SavedRun | None:
            return await diary.load_run(run_id)

    only: Any = OnlyReads()
    assert (await all_of("r", run_store=only))[-1]["type"] == "run_ended"


# --- in time ---------------------------------------------------------------------------------------------------------


async def test_a_run_of_this_process_is_seen_without_waiting_for_the_next_look(tmp_path: Path) -> None:
    session = opened(place("sqlite", tmp_path))
    told, watching = teller(session=session, poll_s=NEVER_S)
    await asyncio.sleep(0)
    await Runner.run(paying_agent(), "pay", session=session, run_config=RunConfig(run_id="r"))
    await asyncio.wait_for(watching, 60)
    assert told[-1]["type"] == "run_ended"
    await session.close()


async def test_a_call_is_told_while_it_runs_and_before_its_turn_is_whole() -> None:
    goes_on, store = asyncio.Event(), InMemoryRunStore()

    @function_tool
    async def wait() -> str:
        """Wait."""
        await goes_on.wait()
        return "waited"

    @function_tool
    async def hurry() -> str:
        """Hurry."""
        return "hurried"

    replies = [[function_call("wait", {}, call_id="w"), function_call("hurry", {}, call_id="h")], final("done")]
    agent = Agent(name="a", tools=[wait, hurry], model=ScriptedModel(replies))
    told, watching = teller(run_store=store, poll_s=0.01)
    running = asyncio.create_task(Runner.run(agent, "go", run_config=RunConfig(run_id="r", run_store=store)))
    await eventually(lambda: any(one["type"] == "call_ended" for one in told))
    assert [(one["type"], one["call_id"]) for one in told if "call_id" in one] == [
        ("call_began", "w"),
        ("call_began", "h"),
        ("call_ended", "h"),
    ]
    assert [one["kind"] for one in told if "kind" in one] == ["input"]
    goes_on.set()
    await running
    await watching
    check_order(told)


async def test_twenty_watchers_cost_the_store_what_one_does() -> None:
    diary = Diary()
    all_told = [teller(run_store=diary, poll_s=0.02) for _ in range(20)]
    await eventually(lambda: diary.asked >= 3)
    before = diary.asked
    assert before < 10  # each for itself, they would have asked sixty times
    result = await Runner.run(busy_agent(), "begin", run_config=RunConfig(run_id="r", run_store=diary))
    state = result.to_state()
    state.reject(state.get_interruptions()[0])
    await Runner.run(busy_agent(), state, run_config=RunConfig(run_id="r", run_store=diary))
    await asyncio.gather(*(watching for _, watching in all_told))
    for told, _ in all_told:
        check_order(told)
        assert sorted(facts(told)) == sorted(facts(all_told[0][0]))


async def test_one_who_leaves_does_not_stop_the_others() -> None:
    store = InMemoryRunStore()
    told, staying = teller(run_store=store, poll_s=0.01)
    _, leaving = teller(run_store=store, poll_s=0.01)
    await asyncio.sleep(0.02)
    for one in (leaving, teller(run_store=store, poll_s=0.01)[1]):
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
    await Runner.run(paying_agent(), "pay", run_config=RunConfig(run_id="r", run_store=store))
    await staying
    assert told[-1]["type"] == "run_ended"


# --- what cannot be told ---------------------------------------------------------------------------------------------


async def test_a_run_that_does_not_come_is_told() -> None:
    with pytest.raises(NotFoundError, match=r"none came within 0\.05 s"):
        await all_of("r", run_store=InMemoryRunStore(), wait_s=0.05, poll_s=0.01)
    with pytest.raises(NotFoundError, match="there is no saved run 'r'"):
        await all_of("r", run_store=InMemoryRunStore(), wait_s=0, poll_s=NEVER_S)


async def test_a_run_that_was_there_is_not_waited_for() -> None:
    with pytest.raises(NotFoundError):
        await all_of("r", run_store=InMemoryRunStore(), after="3-", wait_s=NEVER_S, poll_s=NEVER_S)


async def test_a_run_that_is_deleted_is_told() -> None:
    store, agent = InMemoryRunStore(), busy_agent()
    await Runner.run(agent, "begin", run_config=RunConfig(run_id="r", run_store=store))
    told, watching = teller(run_store=store, poll_s=0.01)
    await eventually(lambda: any(one.get("status") == "paused" for one in told))
    await store.delete_run("r")
    with pytest.raises(NotFoundError, match="deleted while it was watched"):
        await watching


@pytest.mark.parametrize(
    "after", ["", "x", "1", "1-12", "-", "1.2-", "1.2x-", "1-" + "g" * 12, "１-", "9" * 12 + "-", 7]
)
async def test_a_text_that_is_no_cursor_is_refused(after: Any) -> None:
    with pytest.raises(CallerError, match="no cursor"):
        await all_of("r", run_store=InMemoryRunStore(), after=after)


async def test_a_cursor_of_a_longer_run_is_refused() -> None:
    store = InMemoryRunStore()
    await Runner.run(paying_agent(), "pay", run_config=RunConfig(run_id="r", run_store=store))
    with pytest.raises(CallerError, match="has 4"):
        await all_of("r", run_store=store, after="9-")


@pytest.mark.parametrize("given", [{"poll_s": 0}, {"wait_s": -1}])
async def test_seconds_that_mean_nothing_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettingError):
        await all_of("r", run_store=InMemoryRunStore(), **given)


async def test_a_watcher_without_a_store_is_told_what_to_give() -> None:
    with pytest.raises(UserError, match="no run store"):
        await all_of("r")


async def test_a_run_of_a_session_is_watched_with_that_session() -> None:
    session = InMemorySession("s")
    for agent in (busy_agent(), paying_agent()):
        run_id = agent.name
        await Runner.run(agent, "begin", session=session, run_config=RunConfig(run_id=run_id, unfinished="ignore"))
        with pytest.raises(OwnerError, match="Pass that session"):
            await all_of(run_id, run_store=session.run_store())
    other: Any = InMemorySession("other")
    with pytest.raises(OwnerError, match="belongs to session 's'"):
        await all_of("busy", session=other, run_store=session.run_store())
    with pytest.raises(OwnerError, match="it is another's"):
        await all_of("payer", session=other, run_store=session.run_store())


async def test_a_voice_call_is_refused_by_name() -> None:
    store = InMemoryRunStore()
    head = encode_value({"schema": CALL, "version": 1})
    await store.save_run("r", expect=0, head=head, tails={}, status="running", agent="a")
    with pytest.raises(RunStateError, match="voice call"):
        await all_of("r", run_store=store)


async def test_an_end_says_that_items_are_gone() -> None:
    """Popped, cleared, or in a session that does not know who wrote what: then nothing false is told."""
    session = InMemorySession("s")
    await Runner.run(paying_agent(), "pay", session=session, run_config=RunConfig(run_id="r"))
    whole = await all_of("r", session=session)
    assert whole[-1]["is_complete"]
    await session.pop_item()
    (end,) = await all_of("r", session=session, after=whole[2]["cursor"])
    assert (end["type"], end["is_complete"], end["output"]) == ("run_ended", False, "done")
    assert await all_of("r", session=session, after=end["cursor"]) == []


async def test_what_the_store_says_is_raised_and_the_cursor_goes_on() -> None:
    kept, is_down = Diary(), True

    class Flaky:
        async def load_run(self, run_id: str) -> SavedRun | None:
            if is_down:
                raise StoreError("the store is down", "Start it.")
            return await kept.load_run(run_id)

    store: Any = Flaky()
    await Runner.run(paying_agent(), "pay", run_config=RunConfig(run_id="r", run_store=kept))
    with pytest.raises(StoreError, match="is down"):
        await all_of("r", run_store=store)
    is_down = False
    told = await all_of("r", run_store=store)
    is_down = True
    with pytest.raises(StoreError):
        await all_of("r", run_store=store, after=told[3]["cursor"])
    is_down = False
    assert await all_of("r", run_store=store, after=told[3]["cursor"]) == told[4:]


async def test_a_run_that_failed_ends_the_watch_and_one_that_is_resumed_is_watched_again() -> None:
    store = InMemoryRunStore()

    @function_tool(failure_error_function=None)
    async def fail() -> str:
        """Fail."""
        raise RuntimeError("no")

    agent = Agent(
        name="a", tools=[fail], model=ScriptedModel([[function_call("fail", {}, call_id="f")], final("well")])
    )
    with pytest.raises(Exception, match="no"):
        await Runner.run(agent, "go", run_config=RunConfig(run_id="r", run_store=store))
    told = await all_of("r", run_store=store)
    assert told[-1]["status"] == "failed"
    assert await all_of("r", run_store=store, after=told[-1]["cursor"]) == []
    await Runner.resume(agent, "r", run_store=store)
    more = await all_of("r", run_store=store, after=told[-1]["cursor"])
    check_order([*told[:-1], *more])
    assert more[-1]["status"] == "done"


async def test_updates_are_values() -> None:
    store = InMemoryRunStore()
    await Runner.run(paying_agent(), "pay", run_config=RunConfig(run_id="r", run_store=store))
    first = [update async for update in Runner.watch("r", run_store=store)]
    again = [update async for update in Runner.watch("r", run_store=store)]
    assert first == again
    assert isinstance(first[-1], RunEnded)
    with pytest.raises(AttributeError):
        first[-1].status = "failed"  # type: ignore[misc]


async def test_what_is_sealed_is_watched_with_its_key() -> None:
    inner = InMemorySession("s")
    session = EncryptedSession("s", inner, "a key")
    told, watching = teller(session=session, poll_s=0.01)
    model = AnsweringModel(lambda call: [assistant_message("hello")])
    await Runner.run(Agent(name="a", model=model), "hi", session=session, run_config=RunConfig(run_id="r"))
    await watching
    assert [one["kind"] for one in told if "kind" in one] == ["input", "message_output_item"]
    assert b"hello" not in str(await inner.get_items()).encode()
