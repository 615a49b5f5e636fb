"""One `run_id`, started again and again, where no session owns the conversation (C12, C16).

The run's own lease decides, on every store that keeps runs: one works, and a second is told, or gets the result.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import lines
from helpers.processes import Child, eventually
from helpers.starters import JOB, paying_agent, start

from standfast import Agent, InMemoryRunStore, LeaseLostError, RunClaimedError, RunConfig, Runner, function_tool
from standfast.testing import ModelStep, ScriptedModel, final, function_call
from tests.helpers.stores import BACKENDS, SERVERS, SHARED, opened, place

TTL_S = 1.5


@pytest.mark.clause("C16", backend="runs")
@pytest.mark.parametrize("kind", [*BACKENDS, "sqlalchemy"])
async def test_however_often_a_job_is_started_it_is_done_once_and_gives_its_result_again(
    kind: str, tmp_path: Path
) -> None:
    session = opened(place(kind, tmp_path))
    store = session.run_store()

    async def job() -> str:
        model = ScriptedModel([[function_call("pay", {"cents": 5}, call_id="c1")], final("done")])
        agent = paying_agent(str(tmp_path / "book"), model, None, stands=False)
        result = await Runner.run(agent, "pay 5", run_config=RunConfig(run_id=JOB, run_store=store))
        return str(result.final_output)

    told = await asyncio.gather(*(job() for _ in range(4)), return_exceptions=True)
    assert "done" in told
    assert all(one == "done" or isinstance(one, RunClaimedError) for one in told)
    assert await job() == "done"
    assert (await Runner.result(Agent(name="A"), JOB, run_store=store)).final_output == "done"
    assert lines(tmp_path / "book") == ["c1"]
    await session.close()


@pytest.mark.clause("C12", "C16", backend="runs")
@pytest.mark.parametrize("kind", [*SHARED, "sqlalchemy"])
def test_a_retry_right_after_a_crash_goes_on(kind: str, tmp_path: Path) -> None:
    """The dead worker's lease lives on for a while; who starts the job again waits for its end and is not refused."""
    where, path = place(kind, tmp_path), tmp_path / "job"
    told: dict[str, Any] = {"path": str(path), "owner": "nobody", "where": where, "ttl_s": TTL_S}
    with Child(start, stands=True, **told) as first:
        first.hear_until("ready")
        first.say("go")
        first.hear_until("here")
        first.kill()
    with Child(start, **told) as second:
        second.hear_until("ready")
        second.say("go")
        assert second.result() == ("ok", "done")
    assert lines(f"{path}.book") == ["c1"], "what had begun is not done again"


@pytest.mark.clause("C16", backend="runs")
@pytest.mark.parametrize("kind", SERVERS)
def test_a_second_start_is_told_as_soon_as_the_first_gives_a_sign_of_life(kind: str, tmp_path: Path) -> None:
    where, path = place(kind, tmp_path), tmp_path / "job"
    told: dict[str, Any] = {"path": str(path), "owner": "nobody", "where": where, "ttl_s": 9.0}
    with Child(start, stands=True, **told) as first, Child(start, **told) as second:
        for child in (first, second):
            child.hear_until("ready")
        first.say("go")
        first.hear_until("here")
        second.say("go")
        assert second.result()[0] == "RunClaimedError"
        first.say("go on")
        assert first.result() == ("ok", "done")
    assert lines(f"{path}.book") == ["c1"]


class SlowStore(InMemoryRunStore):
    """A store whose save of a call that begins takes so long that the worker has lost its lease since."""

    lease: Any = None
    is_slow = False

    def __init__(self) -> None:
        super().__init__()
        self.saved, self.may_answer = asyncio.Event(), asyncio.Event()

    async def lease_run(self, run_id: str, **how: Any) -> Any:
        taken = await super().lease_run(run_id, **how)
        self.lease = self.lease or taken
        return taken

    async def save_run(self, run_id: str, **save: Any) -> int:
        revision = await super().save_run(run_id, **save)
        if self.is_slow:
            self.is_slow = False
            self.saved.set()
            await self.may_answer.wait()
        return revision


@pytest.mark.clause("C13", backend="runs")
async def test_a_worker_whose_lease_on_the_run_was_taken_begins_nothing_more() -> None:
    """Saved as begun, then stopped, then taken over: whoever has the run now has said that the outcome is unknown."""
    store, done = SlowStore(), []

    @function_tool
    async def pay() -> str:
        """Pay."""
        done.append("pay")
        return "paid"

    def agent() -> Any:
        def asks(call: Any) -> Any:
            store.is_slow = not store.saved.is_set()
            return ModelStep(output=[function_call("pay", {}, call_id="c1")])

        steps = [final("done")] if store.saved.is_set() else [ModelStep.respond(asks), final("done")]
        return Agent(name="A", model=ScriptedModel(steps), tools=[pay])

    config = RunConfig(run_id=JOB, run_store=store, lease_ttl_s=0.3)
    first = asyncio.ensure_future(Runner.run(agent(), "go", run_config=config))
    await store.saved.wait()
    result = await Runner.resume(agent(), JOB, run_store=store, takeover=True)
    assert result.final_output == "done"
    await eventually(lambda: not store.lease.is_held)
    store.may_answer.set()
    with pytest.raises((LeaseLostError, RunClaimedError)):
        await first
    assert done == []
