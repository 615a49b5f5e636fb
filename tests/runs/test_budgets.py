"""A budget is shared by all processes on a store, exact for what arrived, and passed by no more than a reply (F10)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest

from standfast import (
    AbilityMissingError,
    Agent,
    Budget,
    BudgetExceeded,
    EncryptedSession,
    InMemorySession,
    InMemoryStore,
    InvalidSettingError,
    ModelRetrySettings,
    ModelSettings,
    RedisSession,
    RunConfig,
    Runner,
    SQLiteSession,
    StoreUnavailableError,
    SummarisingSession,
    Usage,
    UserError,
    function_tool,
    open_store,
    retry_policies,
)
from standfast.testing import ModelStep, ScriptedModel, final, function_call
from tests.helpers import servers
from tests.runs.whole_runs import go

COST = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)
DAILY = "day/tokens/acme"


def dear(usage: Usage, model: str) -> Decimal:
    """A dollar for a thousand tokens."""
    return Decimal(usage.input_tokens + usage.output_tokens) / 1000


def agent_of(*steps: Any, max_tokens: int = 50) -> Agent[Any]:
    @function_tool
    def look() -> str:
        """Look."""
        return "seen"

    return Agent(
        name="A", model=ScriptedModel(list(steps)), tools=[look], model_settings=ModelSettings(max_tokens=max_tokens)
    )


def look(call_id: str) -> ModelStep:
    return ModelStep([function_call("look", {}, call_id=call_id)], usage=COST)


def calls(agent: Agent[Any]) -> int:
    return len(agent.model.calls)  # type: ignore[union-attr]


def under(*budgets: Budget, **more: Any) -> RunConfig:
    return RunConfig(budgets=list(budgets), price=dear, **more)


async def test_runs_of_several_conversations_share_a_budget_and_go_on_when_there_is_more(tmp_path: Path):
    """Clause F10: what replies cost is exact; a run without room stops before its request, and is resumed."""
    path, budget = tmp_path / "a.db", Budget("acme", tokens=450)
    first, second = agent_of(look("c1"), final("one", usage=COST)), agent_of(look("c2"), final("two", usage=COST))
    await Runner.run(first, "hi", session=SQLiteSession("s1", path), run_config=under(budget))
    async with open_store(path) as store:
        (view,) = await store.budgets()
        assert (view.budget_id, view.used, view.unknown, dict(view.held)) == ("total/tokens/acme", 220, 0, {})
        session = SQLiteSession("s2", path)
        with pytest.raises(BudgetExceeded) as caught:
            await Runner.run(second, "hi", session=session, run_config=under(budget, run_id="r2"))
        assert caught.value.limit == "total/tokens/acme"
        used = (await store.budget("total/tokens/acme")).used
        assert used == 220 + 110 * calls(second)
        view = await store.set_budget("total/tokens/acme", 5000)
        assert (view.limit, view.left) == (5000, 5000 - used)
        result = await Runner.resume(second, "r2", session=session)
        assert result.final_output == "two"
        assert (await store.budget("total/tokens/acme")).used == 440


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_money_is_settled_to_the_last_digit(tmp_path: Path, streamed: bool):
    path = tmp_path / "a.db"
    session, agent = SQLiteSession("s", path), agent_of(look("c1"), final("done", usage=COST))
    await go(agent, "hi", session=session, streamed=streamed, run_config=under(Budget("acme", usd=5)))
    async with open_store(path) as store:
        view = await store.budget("total/usd/acme")
        assert (view.used, view.unknown, dict(view.held)) == (Decimal("0.22"), 0, {})


async def test_a_conversation_and_a_day_have_budgets_of_their_own(tmp_path: Path):
    path = tmp_path / "a.db"
    config = under(Budget(requests=3), Budget("acme", tokens=10_000, per="day"))
    for session_id in ("s1", "s2"):
        await Runner.run(
            agent_of(final("x", usage=COST)), "hi", session=SQLiteSession(session_id, path), run_config=config
        )
    async with open_store(path) as store:
        found = {one.budget_id: one.used for one in await store.budgets()}
        assert found == {"conversation/requests/s1": 1, "conversation/requests/s2": 1, DAILY: 220}
        runs = (await store.runs()).runs
        assert all(not run.run_id.startswith("standfast-budget") for run in runs), "a budget is no run"


DIES = """
import asyncio, os, sys
from standfast import Agent, Budget, ModelSettings, RunConfig, Runner, SQLiteSession
from standfast.testing import AnsweringModel

config = RunConfig(budgets=[Budget("acme", tokens=100_000)], run_id="r1")
agent = Agent(name="A", model=AnsweringModel(lambda call: os._exit(9)), model_settings=ModelSettings(max_tokens=50))
asyncio.run(Runner.run(agent, "hi", session=SQLiteSession("s", sys.argv[1]), run_config=config))
"""


async def test_the_request_of_a_process_that_dies_counts_as_its_estimate_and_is_marked(tmp_path: Path):
    """Clause F10: held while it is not known whether the run goes on, then unknown; never free."""
    path = tmp_path / "a.db"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DIES, str(path)], check=False)
    async with open_store(path) as store:
        view = await store.budget("total/tokens/acme")
        held = view.held["r1"]
        assert view.used == held > 50
        session = SQLiteSession("s", path)
        await Runner.resume(agent_of(final("done", usage=COST)), "r1", session=session)
        view = await store.budget("total/tokens/acme")
        assert (view.used, view.unknown, dict(view.held)) == (held + 110, held, {})


async def test_a_run_that_is_settled_by_another_leaves_its_request_as_unknown(tmp_path: Path):
    path = tmp_path / "a.db"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DIES, str(path)], check=False)
    async with open_store(path) as store:
        held = (await store.budget("total/tokens/acme")).used
        await Runner.run(agent_of(final("x")), "new", session=SQLiteSession("s", path))
        await store.cancel("r1", by="ann")
        view = await store.budget("total/tokens/acme")
        assert (view.used, view.unknown, dict(view.held)) == (held, held, {})


async def test_nested_runs_and_failed_attempts_draw_on_the_budget_of_the_run_around_them(tmp_path: Path):
    """Clause F10: no part of a run is paid for outside its budgets. A cut attempt may have cost something."""
    path = tmp_path / "a.db"
    retry = ModelRetrySettings(
        max_retries=3, policy=retry_policies.all(lambda context: True), backoff={"initial_delay": 0}
    )
    inner = Agent(
        name="I",
        model=ScriptedModel([TimeoutError("cut"), final("inner", usage=COST)]),
        model_settings=ModelSettings(max_tokens=50, retry=retry),
    )
    steps = [ModelStep([function_call("ask", {"input": "x"}, call_id="c1")], usage=COST), final("done", usage=COST)]
    outer = Agent(name="O", model=ScriptedModel(steps), tools=[inner.as_tool("ask", "Ask.")])
    config = under(Budget("acme", requests=9))
    await Runner.run(outer, "hi", session=SQLiteSession("s", path), run_config=config)
    async with open_store(path) as store:
        view = await store.budget("total/requests/acme")
        assert (view.used, view.unknown) == (4, 1)


async def test_a_budget_that_cannot_be_kept_is_refused_before_anything_is_sent(tmp_path: Path):
    """Clause F10: no price, no store of its own, no amount."""
    agent, config = agent_of(final("x")), RunConfig(budgets=[Budget("acme", usd=5)])
    with pytest.raises(UserError, match="no known price"):
        await Runner.run(agent, "hi", session=SQLiteSession("s", tmp_path / "a.db"), run_config=config)
    for options in ({}, {"session": InMemorySession("s"), "run_config": under(Budget("acme", usd=5), save="never")}):
        with pytest.raises(UserError, match="budgets need a session"):
            await Runner.run(agent, "hi", **{"run_config": config, **options})
    assert calls(agent) == 0
    for wrong in (
        {},
        {"usd": 1, "tokens": 2},
        {"tokens": -1},
        {"usd": 1, "per": "year"},
        {"usd": 1, "per": "day", "key": None},
    ):
        with pytest.raises(InvalidSettingError):
            Budget(**{"key": "acme", **wrong})  # type: ignore[arg-type]
    with pytest.raises(InvalidSettingError):
        await Runner.run(agent, "hi", run_config=RunConfig(run_id="standfast-budget:total/usd/acme"))


async def test_a_limit_in_the_store_takes_the_place_of_the_programs(tmp_path: Path):
    path, agent = tmp_path / "a.db", agent_of(final("x", usage=COST))
    await SQLiteSession("s", path).add_items([{"role": "user", "content": "first"}])
    async with open_store(path) as store:
        await store.set_budget("total/tokens/acme", 1)
        with pytest.raises(BudgetExceeded, match="of 1 "):
            await Runner.run(
                agent, "hi", session=SQLiteSession("s", path), run_config=under(Budget("acme", tokens=10_000))
            )
        assert calls(agent) == 0
        assert (await store.budget("total/tokens/acme")).used == 0
        await store.set_budget("total/tokens/acme", None)
        await Runner.run(agent, "hi", session=SQLiteSession("s", path), run_config=under(Budget("acme", tokens=10_000)))


async def test_runs_side_by_side_never_reserve_more_than_is_left():
    budget, ran = Budget("acme", requests=5), list[Agent[Any]]()

    async def one(number: int) -> bool:
        agent = agent_of(final("x", usage=COST))
        ran.append(agent)
        try:
            await Runner.run(agent, "hi", session=InMemorySession(f"s{number}", store=store), run_config=under(budget))
        except BudgetExceeded:
            return False
        return True

    store = InMemoryStore()
    assert sum(await asyncio.gather(*(one(number) for number in range(12)))) == 5
    assert sum(map(calls, ran)) == 5


async def commits_of(monkeypatch: pytest.MonkeyPatch, config: RunConfig) -> int:
    """How many steps the store does for a run of four turns."""
    count = 0
    real = InMemoryStore.commit

    def counted(self: InMemoryStore, step: Any) -> Any:
        nonlocal count
        count += 1
        return real(self, step)

    agent = agent_of(look("c1"), look("c2"), look("c3"), final("done", usage=COST))
    with monkeypatch.context() as patch:
        patch.setattr(InMemoryStore, "commit", counted)
        await Runner.run(agent, "hi", session=InMemorySession("s", store=InMemoryStore()), run_config=config)
    return count


async def test_what_a_turn_costs_is_settled_and_the_next_one_reserved_in_the_step_that_stores_it(
    monkeypatch: pytest.MonkeyPatch,
):
    """Clause F10: only the first request of a life has a step of its own; a run without budgets has none (F10g)."""
    plain = await commits_of(monkeypatch, RunConfig(run_id="r"))
    shared = await commits_of(monkeypatch, under(Budget("acme", tokens=10_000), run_id="r"))
    assert shared == plain + 1


async def test_a_reservation_made_ahead_is_released_where_no_request_follows(tmp_path: Path):
    path = tmp_path / "a.db"
    agent, session = agent_of(look("c1"), look("c2"), final("done", usage=COST)), SQLiteSession("s", path)
    stream = Runner.run_streamed(
        agent, "hi", session=session, run_config=under(Budget("acme", tokens=10_000), run_id="r")
    )
    async for event in stream.stream_events():
        if getattr(event, "name", "") == "tool_output":
            stream.cancel(mode="after_turn")
    async with open_store(path) as store:
        view = await store.budget("total/tokens/acme")
        assert (view.used, view.unknown, dict(view.held)) == (110 * calls(agent), 0, {})
        assert calls(agent) < 3


async def test_a_cluster_refuses_budgets_before_anything_is_sent():
    agent = agent_of(final("x"))
    session = RedisSession.from_url("s", url=servers.cluster_url(), cluster=True, key_prefix=uuid.uuid4().hex)
    with pytest.raises(UserError, match="different slots"):
        await Runner.run(agent, "hi", session=session, run_config=under(Budget("acme", tokens=10_000)))
    assert calls(agent) == 0
    with pytest.raises(AbilityMissingError):
        await session.run_store().set_budget("total/tokens/acme", 5)


async def test_the_budgets_of_a_store_are_kept_while_its_conversations_expire():
    """Clause F10: a budget that expired would be full again."""
    store = InMemoryStore(ttl_s=0.2)
    session = InMemorySession("s", store=store)
    await Runner.run(
        agent_of(final("x", usage=COST)), "hi", session=session, run_config=under(Budget("acme", tokens=500))
    )
    await asyncio.sleep(0.3)
    assert await session.get_items() == []
    assert (await session.run_store().budget("total/tokens/acme")).used == 110
    await Runner.run(
        agent_of(final("x", usage=COST)), "hi", session=session, run_config=under(Budget("acme", tokens=500))
    )
    assert (await session.run_store().budget("total/tokens/acme")).used == 220


async def test_a_conversation_that_is_sealed_or_compacted_keeps_its_budgets(tmp_path: Path):
    """Clause F10: wrappers pass the totals through, each once; a budget of a sealed store is read without the key."""
    path, budget = tmp_path / "a.db", Budget("acme", tokens=10_000)
    sealed = EncryptedSession("s", SQLiteSession("s", path), encryption_key="a long and secret key")
    await Runner.run(agent_of(look("c1"), final("x", usage=COST)), "hi", session=sealed, run_config=under(budget))
    summary = SummarisingSession(
        SQLiteSession("c", path), ScriptedModel([final("short")] * 3), keep_last=0, should_trigger=lambda facts: True
    )
    await Runner.run(agent_of(look("c1"), final("x", usage=COST)), "hi", session=summary, run_config=under(budget))
    async with open_store(path) as store:
        view = await store.budget("total/tokens/acme")
        assert (view.used, view.unknown, dict(view.held)) == (440, 0, {})


class Clocked(InMemoryStore):
    """A store whose clock and answers a test can change."""

    ahead_s, is_away = 0.0, False

    def look(self, look: Any) -> Any:
        found = super().look(look)
        return msgspec.structs.replace(found, now=found.now + self.ahead_s)

    def commit(self, step: Any) -> Any:
        if self.is_away and any(change.name.id.startswith("standfast-budget") for change in step):
            raise StoreUnavailableError("the disk is gone", "Mount it.")
        return super().commit(step)


async def test_what_was_reserved_on_a_day_is_settled_on_that_day():
    """Clause F10: by the store's clock; a new day is a full budget, and no cost is lost between two days."""
    store = Clocked()
    session, budget = InMemorySession("s", store=store), Budget("acme", tokens=300, per="day")

    @function_tool
    def midnight() -> str:
        """Let a day pass."""
        store.ahead_s += 86_400
        return "passed"

    steps = [ModelStep([function_call("midnight", {}, call_id="c1")], usage=COST), final("done", usage=COST)]
    agent = Agent(name="A", model=ScriptedModel(steps), tools=[midnight], model_settings=ModelSettings(max_tokens=20))
    await Runner.run(agent, "hi", session=session, run_config=under(budget))
    runs, found = session.run_store(), []
    for store.ahead_s in (0.0, 86_400.0, 172_800.0):
        state = await runs.budget(DAILY)
        found.append((state.used, state.unknown, dict(state.held)))
    assert found == [(110, 0, {}), (110, 0, {}), (0, 0, {})]


async def test_a_store_that_does_not_answer_lets_no_request_leave():
    """Clause F10: fail closed."""
    store, agent = Clocked(), agent_of(final("x", usage=COST))
    store.is_away = True
    session = InMemorySession("s", store=store, timeout_s=0.5)
    with pytest.raises(StoreUnavailableError):
        await Runner.run(agent, "hi", session=session, run_config=under(Budget("acme", tokens=10_000)))
    assert calls(agent) == 0


DIES_IN_A_MESSAGE = """
import asyncio, os, sys
from standfast import Agent, Budget, ModelSettings, RunConfig, Runner, SQLiteSession
from standfast.testing import AnsweringModel

agent = Agent(name="A", model=AnsweringModel(lambda call: os._exit(9)), model_settings=ModelSettings(max_tokens=50))
config = RunConfig(budgets=[Budget("acme", tokens=5_000)])
asyncio.run(Runner.send(agent, "hi", session=SQLiteSession("s", sys.argv[1]), message_id="m", run_config=config))
"""


async def test_a_message_that_another_run_hears_holds_no_reservation(tmp_path: Path):
    """Clause F10d: the worker that had begun it is gone, so what its request cost cannot be known."""
    path, budget = tmp_path / "a.db", "total/tokens/acme"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DIES_IN_A_MESSAGE, str(path)], check=False)
    async with open_store(path) as store:
        held = await store.budget(budget)
        assert held.held == {"m": held.used}
        await store.unlock("s")
        result = await Runner.run(agent_of(final("done")), "next", session=SQLiteSession("s", path))
        assert result.heard == ("m",)
        after = await store.budget(budget)
    assert (after.used, after.unknown, after.held) == (held.used, held.used, {})
