"""F7: what is said to a run from outside of its worker is kept in one cell of the run, and applied once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    AlreadyDecidedError,
    Budget,
    InMemoryRunStore,
    RunCancelledError,
    RunConfig,
    Runner,
    SQLiteSession,
    copy_sessions,
    function_tool,
    open_store,
)
from standfast._src.base.errors import LeaseLostError, RunClaimedError
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.codec import decode_saved
from standfast._src.runs.engine.events import Signalled
from standfast._src.runs.engine.run import evolve
from standfast._src.runs.engine.signals import Signal, pending_signals
from standfast._src.runs.loop.saving_loop import SavingLoop
from tests.helpers.processes import eventually
from tests.runs.saved_runs.payment_app import Desk, asks, outputs, pay, says

REQUESTS = "total/requests/acme"
CONFIG = RunConfig(run_id="r", lease_ttl_s=60.0)  # renewed too late to be of help: the steps meet the signals


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "talks.db"


class Clerk(Desk):
    """A desk with a tool `work` that does what the test wants, beside two payments that wait for a person."""

    def __init__(self, path: Path, work: Any, steps: Any = None) -> None:
        self.path = path

        @function_tool(name_override="work", failure_error_function=None)
        async def _work() -> str:
            await work(self)
            return "worked"

        calls = [
            pay(1, "c1"),
            pay(2, "c2"),
            {"type": "function_call", "name": "work", "arguments": "{}", "call_id": "w"},
        ]
        super().__init__([asks(*calls), says("Done.")] if steps is None else steps, tools=[_work])

    async def waits(self, *ids: str) -> None:
        async with open_store(self.path) as store:
            await eventually(lambda: _waits(store, ids))

    async def decide(self, call_id: str, approve: bool = True, by: str = "ada") -> Any:
        async with open_store(self.path) as store:
            return await store.decide("r", call_id, approve, by=by)


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[SQLiteSession]:
    session = SQLiteSession("s", path)
    try:
        yield session
    finally:
        await session.close()


async def _waits(store: Any, ids: tuple[str, ...]) -> bool:
    with suppress(LookupError):
        return [call.call_id for call in (await store.run("r")).waiting] == list(ids)
    return False


async def _kept(path: Path) -> int:
    saved = await SQLiteSession("s", path).run_store().load_run("r")
    assert saved is not None
    return len(pending_signals(saved.signals, 0))


async def test_a_run_goes_on_with_decisions_that_came_before_it_could_pause(path: Path) -> None:
    async def work(clerk: Clerk) -> None:
        await clerk.waits("c1", "c2")
        assert (await clerk.decide("c1")).status == "running"
        await clerk.decide("c2", approve=False)
        assert await _kept(path) == 2
        with pytest.raises(AlreadyDecidedError, match="ada rejected"):
            await clerk.decide("c2", by="bob")

    clerk = Clerk(path, work)
    async with opened(path) as session:
        result = await clerk.run("Pay.", session=session, run_config=CONFIG)
        assert (result.final_output, clerk.done) == ("Done.", [("pay", 1)])
        told = outputs(await session.get_items())
    assert (told["c1"], told["w"]) == ("paid 1", "worked")
    async with open_store(path) as store:
        view = await store.run("r")
    assert [(one.call_id, one.decision.by) for one in view.calls if one.decision] == [("c1", "ada"), ("c2", "ada")]


async def test_one_of_two_kept_decisions_leaves_the_run_waiting_for_the_other(path: Path) -> None:
    async def work(clerk: Clerk) -> None:
        await clerk.waits("c1", "c2")
        await clerk.decide("c1")

    clerk = Clerk(path, work)
    async with opened(path) as session:
        result = await clerk.run("Pay.", session=session, run_config=CONFIG)
    assert [item.call_id for item in result.interruptions] == ["c2"]
    assert clerk.done == [("pay", 1)]
    assert await _kept(path) == 0
    assert (await clerk.decide("c2")).status == "ready"


async def test_a_pause_that_met_a_decision_and_whose_worker_crashed_is_ready(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F7b: nothing but the status in the listing tells the next worker."""

    async def work(clerk: Clerk) -> None:
        await clerk.waits("c1", "c2")
        await clerk.decide("c1")
        await clerk.decide("c2")
        monkeypatch.setattr(SavingLoop, "take_signals", ignore)  # as if the worker crashed behind its next save

    async def ignore(loop: object) -> None:
        pass

    clerk = Clerk(path, work)
    async with opened(path) as session:
        assert (await clerk.run("Pay.", session=session, run_config=CONFIG)).interruptions
        assert await _kept(path) == 2
        monkeypatch.undo()
        next_one = Clerk(path, work, [says("Done.")])
        async with open_store(path) as store:
            assert [run.run_id for run in (await store.runs(status="ready")).runs] == ["r"]
            assert (await store.run("r")).status == "ready"
            report = await Runner.recover(next_one.agent, sessions=store.session)
        assert dict(report.counts) == {"continued": 1}
        assert sorted(next_one.done) == [("pay", 1), ("pay", 2)]


async def test_a_run_without_a_session_hears_of_it_too() -> None:
    store = InMemoryRunStore()

    async def work(clerk: Clerk) -> None:
        from standfast._kits.operators import approvals

        async def waits() -> bool:
            saved = await store.load_run("r")
            return saved is not None and len(decode_saved(saved).waiting) == 2

        await eventually(waits)
        runs: Any = store
        await approvals.decide(runs, "r", "c1", approve=True, by="ada")
        await approvals.decide(runs, "r", "c2", approve=True, by="ada")

    clerk = Clerk(Path(), work)
    result = await clerk.run("Pay.", run_config=RunConfig(run_id="r", run_store=store))
    assert result.final_output == "Done."
    assert sorted(clerk.done) == [("pay", 1), ("pay", 2)]


async def test_a_decision_kept_for_a_crashed_worker_moves_with_its_session(path: Path, tmp_path: Path) -> None:
    async def work(clerk: Clerk) -> None:
        await clerk.waits("c1", "c2")
        await clerk.decide("c1")
        await clerk.decide("c2")
        async with open_store(path) as store:
            await store.unlock("s")

    clerk, target = Clerk(path, work), tmp_path / "other.db"
    async with opened(path) as session:
        await session.add_items([{"role": "user", "content": "Before."}])
        with suppress(LeaseLostError, RunClaimedError):
            await clerk.run("Pay.", session=session, run_config=CONFIG)
    assert clerk.done == []
    await copy_sessions(path, target, move=True)
    next_one = Clerk(target, work, [says("Done.")])
    async with opened(target) as session:
        result = await Runner.resume(next_one.agent, "r", session=session)
    assert result.final_output == "Done."
    assert sorted(next_one.done) == [("pay", 1), ("pay", 2)]


async def test_a_wish_to_cancel_a_run_whose_session_another_run_has_is_kept(path: Path) -> None:
    async def nothing(clerk: Clerk) -> None:
        pass

    clerk = Clerk(path, nothing)
    session, other = SQLiteSession("s", path), SQLiteSession("s", path)
    assert (await clerk.run("Pay.", session=session, run_config=CONFIG)).interruptions
    lease = await other.lease(ttl_s=30, wait_s=0, holder="another run")
    async with open_store(path) as store:
        view = await store.cancel("r", by="ada")
        assert (view.status, view.cancelled_by) == ("ready", "ada")
        assert (await store.cancel("r", by="bob")).cancelled_by == "ada"  # once is enough
        await lease.release()
        report = await Runner.recover(Clerk(path, nothing, []).agent, sessions=store.session)
        assert dict(report.counts) == {"continued": 1}
        assert (await store.run("r")).status == "cancelled"
    told = outputs(await session.get_items())
    assert "ada cancelled the run" in told["c1"]
    await session.close()
    await other.close()


async def test_a_cancelled_run_ends_though_its_worker_is_only_at_its_next_step(path: Path) -> None:
    """The lease is not renewed in time: the step that stores the tool's output meets the wish."""

    async def work(clerk: Clerk) -> None:
        async with open_store(path) as store:
            await clerk.waits("c1", "c2")
            await store.cancel("r", by="ada", reason="too late")

    clerk = Clerk(path, work)
    async with opened(path) as session:
        with pytest.raises(RunCancelledError) as caught:
            await clerk.run("Pay.", session=session, run_config=CONFIG)
        told = outputs(await session.get_items())
    assert caught.value.by == "ada"
    assert told["w"] == "worked"
    assert told["c1"] == "This call was not approved: ada cancelled the run (too late)."
    async with open_store(path) as store:
        assert (await store.run("r")).status == "cancelled"
        with pytest.raises(Exception, match="has ended"):
            await store.cancel("r", by="ada")


async def test_a_signal_counts_once_and_one_that_comes_too_late_changes_nothing(path: Path) -> None:
    async def work(clerk: Clerk) -> None:
        await clerk.waits("c1", "c2")
        await clerk.decide("c1", approve=False)
        saved = await SQLiteSession("s", path).run_store().load_run("r")
        assert saved is not None
        (kept,) = pending_signals(saved.signals, 0)
        run = decode_saved(saved)
        assert run.spec.signals_taken == 1
        assert advance(run, Signalled(kept)) is run
        assert kept.decision is not None
        late = advance(run, Signalled(Signal(7, "late", (), evolve(kept.decision, call_id="another"))))
        assert late.calls == run.calls
        assert not late.decided

    clerk = Clerk(path, work)
    async with opened(path) as session:
        await clerk.run("Pay.", session=session, run_config=CONFIG)


async def test_a_run_with_a_budget_hears_a_decision_and_pays_for_each_request_once(path: Path) -> None:
    """F7, F10: the step that meets the signal has the run's totals too; nothing stays reserved where it waits."""

    async def work(clerk: Clerk) -> None:
        await clerk.waits("c1", "c2")
        await clerk.decide("c1")

    clerk = Clerk(path, work)
    config = RunConfig(run_id="r", lease_ttl_s=60.0, budgets=[Budget("acme", requests=9)])
    async with opened(path) as session, open_store(path, create=True) as store:
        result = await clerk.run("Pay.", session=session, run_config=config)
        assert [item.call_id for item in result.interruptions] == ["c2"]
        view = await store.budget(REQUESTS)
        assert (view.used, view.unknown, dict(view.held)) == (1, 0, {})
        await clerk.decide("c2")
        assert (await Runner.resume(clerk.agent, "r", session=session)).final_output == "Done."
        view = await store.budget(REQUESTS)
        assert (view.used, view.unknown, dict(view.held)) == (2, 0, {})
        assert sorted(clerk.done) == [("pay", 1), ("pay", 2)]


async def test_a_run_with_a_budget_that_is_cancelled_by_its_worker_reserves_nothing_any_more(path: Path) -> None:
    """The step that stores the turn reserves the next request, and meets the wish: that request never leaves."""

    async def work(clerk: Clerk) -> None:
        async with open_store(path) as store:
            await store.cancel("r", by="ada")

    call = {"type": "function_call", "name": "work", "arguments": "{}", "call_id": "w"}
    clerk = Clerk(path, work, [asks(call), says("Done.")])
    config = RunConfig(run_id="r", lease_ttl_s=60.0, budgets=[Budget("acme", requests=9)])
    async with opened(path) as session, open_store(path, create=True) as store:
        with pytest.raises(RunCancelledError):
            await clerk.run("Pay.", session=session, run_config=config)
        assert outputs(await session.get_items()) == {"w": "worked"}
        view = await store.budget(REQUESTS)
        assert (view.used, view.unknown, dict(view.held)) == (1, 0, {})


@pytest.fixture
def count(request: pytest.FixtureRequest) -> int:
    found: int = request.config.getoption("--message-lives")
    return found


def test_each_decision_counts_once_whoever_is_killed(count: int, tmp_path: Path) -> None:
    """A worker and two who decide, in processes of their own; the worker is killed and started again."""
    for life in range(max(1, count // 4)):
        folder = tmp_path / str(life)
        folder.mkdir()
        actors = [_actor(folder, "worker"), _actor(folder, "ada"), _actor(folder, "bob")]
        try:
            for kill in range(6):
                said = actors[0].stdout
                assert said is not None
                said.readline()  # it is at work, or has ended
                with suppress(subprocess.TimeoutExpired):
                    actors[0].wait(0.05 + 0.1 * kill)
                if actors[0].poll() is None:
                    os.kill(actors[0].pid, signal.SIGKILL)
                    actors[0].communicate()
                    actors[0] = _actor(folder, "worker")
            assert actors[0].wait(60) == 0
        finally:
            for one in actors:
                with one:
                    one.kill()
        notes = {
            name: (folder / name).read_text().split() for name in ("paid", "ada", "bob") if (folder / name).exists()
        }
        decided = notes.get("ada", []) + notes.get("bob", [])
        assert sorted(decided) == ["c0", "c1", "c2", "c3"]  # each decision was acknowledged to one of the two
        paid = notes.get("paid", [])
        assert len(paid) == len(set(paid))
        assert set(paid) <= {"0", "1", "2", "3"}


def _actor(folder: Path, name: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runs.signals.actors", name, str(folder)], stdout=subprocess.PIPE
    )
