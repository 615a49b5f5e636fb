"""A saved run is seen, decided and given up without its agents; of two who decide at once the second is told."""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, RunConfig, Runner, SQLiteSession, Store, function_tool, open_store, store_of
from standfast._src.base.errors import (
    AlreadyDecidedError,
    ApprovalError,
    InvalidSettingError,
    NotFoundError,
    RunCancelledError,
    RunClaimedError,
    RunStateError,
    StoreTimeoutError,
)
from standfast.testing import ScriptedModel, UnexpectedModelCall, function_call
from tests.helpers.children import import_path
from tests.helpers.processes import eventually
from tests.runs.saved_runs.payment_app import Desk, asks, look, pay, says


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "talks.db"


@pytest.fixture
async def store(path: Path) -> AsyncIterator[Store]:
    """A store in which run "run-7" on session "invoice-7" waits for a decision about one of its two calls."""
    await paused(path)
    async with open_store(path) as found:
        yield found


def desk(*more: Any) -> Desk:
    return Desk([asks(look("the book", "call-0"), pay(120, "call-1")), says("Paid."), *more])


async def paused(path: Path, run_id: str = "run-7", steps: Desk | None = None) -> Desk:
    clerk = steps or desk()
    session = SQLiteSession("invoice-7", path)
    result = await clerk.run("Please pay the invoice.", session=session, run_config=RunConfig(run_id=run_id))
    assert result.interruptions
    await session.close()
    return clerk


async def resumed(path: Path, run_id: str = "run-7", steps: Desk | None = None) -> tuple[Any, Desk]:
    clerk = steps or Desk([says("Paid.")])
    session = SQLiteSession("invoice-7", path)
    try:
        return await Runner.resume(clerk.agent, run_id, session=session), clerk
    finally:
        await session.close()


async def test_a_paused_run_is_shown_as_data(store: Store) -> None:
    view = await store.run("run-7")
    assert (view.status, view.agent, view.session_id, view.turns) == ("paused", "clerk", "invoice-7", 1)
    assert view.doing == "waits for a decision about pay"
    assert [(call.tool, call.state, call.turn) for call in view.calls] == [("look", "done", 1), ("pay", "waiting", 1)]
    assert view.calls[0].output == "saw the book"
    assert (view.waiting[0].call_id, view.waiting[0].arguments) == ("call-1", '{"amount":120}')
    assert view.input[0]["content"] == "Please pay the invoice."
    assert [item["type"] for item in view.open_items] == ["function_call", "function_call"]
    assert view.usage.requests == 1
    listing = await store.sessions(waiting=True)
    assert [one.session_id for one in listing.sessions] == ["invoice-7"]
    (waits,) = listing.sessions[0].waiting
    assert (waits.run_id, waits.call.tool) == ("run-7", "pay")
    assert listing.sessions[0].first_words == "Please pay the invoice."
    assert (await store.sessions(waiting=True, prefix="other")).sessions == []


async def test_an_approved_run_is_ready_and_resume_takes_it(store: Store, path: Path) -> None:
    view = await store.decide("run-7", "call-1", True, by="ada@example.com")
    assert view.status == "ready"
    assert view.doing == "is decided, and waits for a worker"
    decision = view.calls[1].decision
    assert decision is not None
    assert (decision.approved, decision.by) == (True, "ada@example.com")
    assert decision.at is not None
    assert [run.run_id for run in (await store.runs(status="ready")).runs] == ["run-7"]
    assert (await store.runs(status="paused")).runs == []
    result, clerk = await resumed(path)
    assert result.final_output == "Paid."
    assert clerk.done == [("pay", 120)]
    after = await store.run("run-7")
    assert (after.status, after.output) == ("done", "Paid.")


async def test_a_rejected_call_does_not_run_and_the_model_reads_why(store: Store, path: Path) -> None:
    await store.decide("run-7", "call-1", False, by="ada", reason="Not before Friday.")
    result, clerk = await resumed(path)
    assert clerk.done == []
    outputs = [item["output"] for item in clerk.sent[0] if item.get("type") == "function_call_output"]
    assert outputs == ["saw the book", "Not before Friday."]
    assert result.final_output == "Paid."


async def test_the_second_who_decides_is_told_who_was_first(store: Store, path: Path) -> None:
    async with open_store(path) as other:
        outcomes = await asyncio.gather(
            store.decide("run-7", "call-1", True, by="ada"),
            other.decide("run-7", "call-1", False, by="bob"),
            return_exceptions=True,
        )
    errors = [one for one in outcomes if isinstance(one, BaseException)]
    assert len(errors) == 1
    assert isinstance(errors[0], AlreadyDecidedError)
    decision = (await store.run("run-7")).calls[1].decision
    assert decision is not None
    assert (errors[0].by, errors[0].approved) == (decision.by, decision.approved)
    assert errors[0].at == decision.at
    with pytest.raises(AlreadyDecidedError, match=f"{decision.by} .* call 'call-1'"):
        await store.decide("run-7", "call-1", True, by="carol")


DECIDE = """
    import asyncio, sys
    from standfast import open_store
    from standfast._src.base.errors import AlreadyDecidedError
    async def main():
        sys.stdin.readline()
        async with open_store(sys.argv[1]) as store:
            try:
                await store.decide("run-7", "call-1", sys.argv[2] == "yes", by=sys.argv[2])
                print("decided")
            except AlreadyDecidedError as error:
                print("told of", error.by)
    asyncio.run(main())
"""


async def test_two_processes_decide_at_once_and_there_is_one_decision(store: Store, path: Path) -> None:
    people = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", textwrap.dedent(DECIDE), str(path), what,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env={"PYTHONPATH": import_path()},
        )
        for what in ("yes", "no")
    ]  # fmt: skip
    said = [text.decode().strip() for text, _ in await asyncio.gather(*(one.communicate(b"go\n") for one in people))]
    assert sorted(word.split()[0] for word in said) == ["decided", "told"]
    winner = ("yes", "no")[said.index("decided")]
    assert f"told of {winner}" in said
    decision = (await store.run("run-7")).calls[1].decision
    assert decision is not None
    assert decision.approved == (winner == "yes")


async def test_of_many_workers_who_resume_a_ready_run_one_gets_it(store: Store, path: Path) -> None:
    await store.decide("run-7", "call-1", True, by="ada")
    clerks = [Desk([says("Paid.")]) for _ in range(4)]
    outcomes = await asyncio.gather(*(resumed(path, steps=clerk) for clerk in clerks), return_exceptions=True)
    assert sum(not isinstance(one, BaseException) for one in outcomes) == 1
    assert [clerk.done for clerk in clerks].count([("pay", 120)]) == 1
    assert sum(len(clerk.done) for clerk in clerks) == 1


async def test_a_decision_is_about_the_call_that_was_shown(store: Store) -> None:
    with pytest.raises(ApprovalError, match="not the one that was shown"):
        await store.decide("run-7", "call-1", True, by="ada", arguments='{"amount":12}')
    with pytest.raises(ApprovalError, match="not waiting"):
        await store.decide("run-7", "call-0", True, by="ada")
    with pytest.raises(NotFoundError):
        await store.decide("run-8", "call-1", True, by="ada")
    with pytest.raises(InvalidSettingError, match="who decides"):
        await store.decide("run-7", "call-1", True, by=" ")
    assert (await store.run("run-7")).status == "paused"
    await store.decide("run-7", "call-1", True, by="ada", arguments='{"amount":120}')


async def test_a_tool_that_is_another_when_the_run_is_resumed_refuses_the_approval(store: Store, path: Path) -> None:
    """An approval made without the agents is bound as one made with them (C16)."""
    await store.decide("run-7", "call-1", True, by="ada")
    helper = Desk([says("Paid.")])
    other = Desk([says("Paid.")])
    tool: Any = helper.agent.as_tool("pay", "Pay through another agent.")
    other.agent.tools = [tool, other.look]
    with pytest.raises(ApprovalError):
        await resumed(path, steps=other)
    assert (await store.run("run-7")).status == "ready"


async def test_one_of_two_decided_leaves_the_run_waiting(path: Path) -> None:
    await paused(path, steps=Desk([asks(pay(1, "call-a"), pay(2, "call-b")), says("Both.")]))
    async with open_store(path) as store:
        assert (await store.decide("run-7", "call-a", True, by="ada")).status == "paused"
        view = await store.run("run-7")
        assert [(call.call_id, call.state) for call in view.calls] == [("call-a", "decided"), ("call-b", "waiting")]
        assert (await store.decide("run-7", "call-b", False, by="bob")).status == "ready"
    _, clerk = await resumed(path, steps=Desk([says("Both.")]))
    assert clerk.done == [("pay", 1)]


async def test_a_new_run_on_the_session_of_a_ready_run_steps_over_nothing(store: Store, path: Path) -> None:
    """C15: what is decided and not yet taken is shown to the model, and stays."""
    await store.decide("run-7", "call-1", True, by="ada")
    other = Desk([says("Hello.")])
    session = SQLiteSession("invoice-7", path)
    result = await other.run("Anything new?", session=session)
    await session.close()
    assert [(one.run_id, one.done) for one in result.unfinished] == [("run-7", "shown in requests")]
    assert (await store.run("run-7")).status == "ready"
    _, clerk = await resumed(path)
    assert clerk.done == [("pay", 120)]


async def test_a_run_that_a_worker_is_at_cannot_be_decided(path: Path) -> None:
    clerk = Desk([asks(pay(1, "call-a")), says("Done.")], needs_approval=False)
    begun, go = asyncio.Event(), asyncio.Event()

    async def wait(*_: Any, **__: Any) -> str:
        begun.set()
        await go.wait()
        return "paid"

    clerk.pay.on_invoke_tool = wait
    session = SQLiteSession("invoice-7", path)
    running = asyncio.ensure_future(clerk.run("Pay.", session=session, run_config=RunConfig(run_id="run-9")))
    await begun.wait()
    async with open_store(path) as store:
        assert (await store.run("run-9")).doing == "runs pay"
        held = await store.session("invoice-7").holder()
        assert held is not None
        with pytest.raises(RunClaimedError, match="does not wait"):
            await store.decide("run-9", "call-a", True, by="ada")
        go.set()
        assert (await running).final_output == "Done."
        with pytest.raises(RunStateError):
            await store.decide("run-9", "call-a", True, by="ada")
    await session.close()


async def test_a_cancelled_run_is_ended_by_the_worker_that_is_at_it_and_the_next_run_begins(path: Path) -> None:
    """F7: the wish never takes the run from its worker, and whoever waits for the conversation comes behind it."""
    clerk = Desk([asks(pay(1, "call-a")), says("Done.")], needs_approval=False)
    begun = asyncio.Event()

    async def wait(*_: Any, **__: Any) -> str:
        begun.set()
        await asyncio.Event().wait()
        return "paid"

    clerk.pay.on_invoke_tool = wait
    session, soon = SQLiteSession("invoice-7", path), RunConfig(run_id="run-9", lease_ttl_s=0.5)
    running = asyncio.ensure_future(clerk.run("Pay.", session=session, run_config=soon))
    await begun.wait()
    other, config = SQLiteSession("invoice-7", path), RunConfig(run_id="run-10")
    behind = asyncio.ensure_future(Desk([says("Next.")]).run("Next?", session=other, run_config=config))
    async with open_store(path) as store:
        await eventually(lambda: is_waited_for(store))
        view = await store.cancel("run-9", by="ada", reason="late")
        assert (view.status, view.cancelled_by) == ("running", "ada")
        assert view.doing == "is to end: ada cancelled it"
        with pytest.raises(RunCancelledError, match="ada cancelled run 'run-9'") as caught:
            await running
        assert caught.value.by == "ada"
        assert (await behind).final_output == "Next."
        assert (await store.run("run-9")).status == "cancelled"
        items = await store.session("invoice-7").get_items()
    outputs = [item["output"] for item in items if item.get("call_id") == "call-a" and "output" in item]
    assert len(outputs) == 1
    assert "was cut off" in outputs[0] or "not known" in outputs[0] or "not completed" in outputs[0]
    assert items[-1]["content"][0]["text"] == "Next."
    await session.close()
    await other.close()


async def is_waited_for(store: Store) -> bool:
    held = await store.session("invoice-7").holder()
    return held is not None and held.waiting > 0


async def test_a_cancelled_run_leaves_a_whole_turn(store: Store, path: Path) -> None:
    view = await store.cancel("run-7", by="ada", reason="a duplicate")
    assert view.status == "cancelled"
    items = await store.session("invoice-7").get_items()
    assert [item.get("type", "message") for item in items] == [
        "message", "function_call", "function_call", "function_call_output", "function_call_output",
    ]  # fmt: skip
    assert items[-1]["output"] == "This call was not approved: ada cancelled the run (a duplicate)."
    assert await store.session("invoice-7").holder() is None
    with pytest.raises(RunStateError):
        await resumed(path)
    with pytest.raises(RunStateError):
        await store.cancel("run-7", by="ada")
    assert await store.delete_run("run-7")


async def test_a_lease_that_an_operator_took_away_lets_the_next_one_in(path: Path) -> None:
    session = SQLiteSession("invoice-7", path)
    lease = await session.lease(ttl_s=600, wait_s=0)
    async with open_store(path) as store:
        held = await store.session("invoice-7").holder()
        assert held is not None
        assert await store.unlock("invoice-7") > lease.number
        assert await store.session("invoice-7").holder() is None
        again = await store.session("invoice-7").lease(ttl_s=5, wait_s=0)
        await again.release()
    await session.close()


async def test_a_run_that_failed_is_not_forgotten_before_what_it_did_is_told(path: Path) -> None:
    """What is not to be forgotten was decided in two places, and a store forgot what a runner refuses to (C15)."""
    session = SQLiteSession("invoice-9", path)
    clerk = Desk([asks(look("the book", "call-0"))])
    with pytest.raises(UnexpectedModelCall):  # after the tool has run
        await clerk.run("Look.", session=session, run_config=RunConfig(run_id="run-9"))
    await session.close()
    async with open_store(path) as store:
        assert (await store.run("run-9")).status == "failed"
        with pytest.raises(RunStateError, match=r"has not ended \(failed\).*Store.cancel"):
            await store.delete_run("run-9")
        await store.cancel("run-9", by="ada")
        assert await store.delete_run("run-9")


class AwayOnce(SQLiteSession):
    """A session of somebody's own whose store does not answer when it is first asked for a saved run."""

    was_away = False

    def run_store(self) -> Any:
        runs, load = super().run_store(), super().run_store().load_run

        async def load_run(run_id: str) -> Any:
            if not AwayOnce.was_away:
                AwayOnce.was_away = True
                raise StoreTimeoutError("the store did not answer", "Ask again.")
            return await load(run_id)

        runs.load_run = load_run
        return runs


async def test_a_run_that_could_not_be_read_just_now_is_not_deleted_unseen(path: Path) -> None:
    await paused(path)
    store = store_of(lambda session_id: AwayOnce(session_id, path), "somebody's own")
    with pytest.raises(StoreTimeoutError):
        await store.delete_run("run-7")
    with pytest.raises(RunStateError, match="has not ended"):
        await store.delete_run("run-7")
    await store.close()


async def test_a_run_that_has_not_ended_cannot_be_deleted(store: Store) -> None:
    with pytest.raises(RunStateError, match="has not ended"):
        await store.delete_run("run-7")
    assert await store.delete_run("no such run") is False


async def test_sessions_that_wait_come_in_pages_and_each_once(path: Path) -> None:
    """Also one with two runs that wait, which stands where its newest does."""
    for name, run_id in (("a", "run-1"), ("b", "run-2"), ("c", "run-3"), ("a", "run-4")):
        session = SQLiteSession(name, path)
        await Desk([asks(pay(1, f"call-{run_id}"))]).run("Pay.", session=session, run_config=RunConfig(run_id=run_id))
        await session.close()
    async with open_store(path, read_only=True) as store:
        for limit in (1, 2, 10):
            seen: list[str] = []
            after = None
            while True:
                page = await store.sessions(waiting=True, limit=limit, after=after)
                assert len(page.sessions) <= limit
                seen += [one.session_id for one in page.sessions]
                after = page.after
                if after is None:
                    break
            assert seen == ["a", "c", "b"]
        listed = (await store.sessions(waiting=True, limit=1)).sessions[0]
        assert sorted(one.run_id for one in listed.waiting) == ["run-1", "run-4"]


async def test_a_decision_names_the_values_that_were_shown(path: Path) -> None:
    """C16: the tool gets 5000 where the model wrote "5000"; whoever decides must have seen both."""
    wrote = function_call("pay", '{"amount": "5000"}', call_id="call-1")
    await paused(path, steps=Desk([asks(wrote), says("Paid.")]))
    async with open_store(path) as store:
        call = (await store.run("run-7")).waiting[0]
        assert (call.arguments, call.prepared_arguments) == ('{"amount": "5000"}', '{"amount": 5000}')
        for values in (None, '{"amount": 1}'):
            with pytest.raises(ApprovalError, match="not the one that was shown"):
                await store.decide(
                    "run-7", "call-1", True, by="ada", arguments=call.arguments, prepared_arguments=values
                )
        shown = {"arguments": call.arguments, "prepared_arguments": call.prepared_arguments}
        await store.decide("run-7", "call-1", True, by="ada", **shown)
    result, clerk = await resumed(path)
    assert result.final_output == "Paid."
    assert clerk.done == [("pay", 5000)]


async def test_a_call_that_a_crash_left_open_can_be_decided_about_again(path: Path, tmp_path: Path) -> None:
    """Its first approval was an answer to another question: whether it may run, not whether it may run again."""
    after_the_crash = tmp_path / "after.db"

    def pay_and_die(amount: int) -> str:
        """Pay, while the machine is lost: the file as it is in the middle of the call is all that is left."""
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(after_the_crash)) as copy:
            source.backup(copy)
        return "paid"

    def teller(*steps: Any) -> Agent[Any]:
        tool = function_tool(pay_and_die, name_override="pay", needs_approval=True, on_unknown="ask")
        return Agent(name="teller", model=ScriptedModel(steps), tools=[tool])

    session = SQLiteSession("invoice-7", path)
    first = teller([function_call("pay", {"amount": 1}, call_id="call-1")])
    await Runner.run(first, "Pay.", session=session, run_config=RunConfig(run_id="run-7"))
    async with open_store(path) as store:
        await store.decide("run-7", "call-1", True, by="ada")
    await Runner.resume(teller(says("Paid.")), "run-7", session=session)
    await session.close()

    session = SQLiteSession("invoice-7", after_the_crash)
    result = await Runner.resume(teller(), "run-7", session=session, takeover=True)
    assert [item.reason for item in result.interruptions] == ["unknown"]
    async with open_store(after_the_crash) as store:
        after = await store.decide("run-7", "call-1", False, by="bob", reason="It was paid.")
    assert after.status == "ready"
    last = teller(says("Good."))
    assert (await Runner.resume(last, "run-7", session=session)).final_output == "Good."
    await session.close()
