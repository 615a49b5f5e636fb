"""A limit of a run holds for all that is done in its name, and the run goes on under a higher one (F9)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    InMemorySession,
    InvalidSettingError,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    Runner,
    SettingTypeError,
    SQLiteSession,
    Usage,
    UsageLimitExceeded,
    UsageLimits,
    UserError,
    function_tool,
    retry_policies,
)
from standfast.realtime import RealtimeAgent, RealtimeRunner
from standfast.testing import ModelStep, ScriptedModel, final, function_call
from tests.runs.whole_runs import go

COST = Usage(requests=1, input_tokens=100, output_tokens=10, total_tokens=110)


class Named(ScriptedModel):
    """A scripted model with a name, by which it has a price."""

    model = "gpt-4o"


def look(*call_ids: str) -> ModelStep:
    return ModelStep([function_call("look", {}, call_id=call_id) for call_id in call_ids], usage=COST)


def looker(model: ScriptedModel, ran: list[str] | None = None) -> Agent[Any]:
    @function_tool
    def look() -> str:
        """Look."""
        if ran is not None:
            ran.append("look")
        return "seen"

    return Agent(name="Looker", model=model, tools=[look])


def under(**limits: Any) -> RunConfig:
    return RunConfig(limits=UsageLimits(**limits))


async def stopped(agent: Agent[Any], given: Any, **options: Any) -> UsageLimitExceeded:
    with pytest.raises(UsageLimitExceeded) as caught:
        await go(agent, given, **options)
    return caught.value


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("limits", "name"),
    [
        ({"requests": 2}, "requests"),
        ({"input_tokens": 150}, "input_tokens"),
        ({"output_tokens": 20}, "output_tokens"),
        ({"tool_calls": 1}, "tool_calls"),
        ({"usd": "0.0005"}, "usd"),
    ],
)
async def test_a_run_stops_between_turns_and_goes_on_under_a_higher_limit(limits: Any, name: str, streamed: bool):
    """Clause F9: what was done stays, and nothing is paid for twice."""
    model, ran = Named([look("c1"), look("c2"), final("done", usage=COST)]), list[str]()
    agent, session = looker(model, ran), InMemorySession("s")
    error = await stopped(agent, "hi", session=session, streamed=streamed, run_config=under(**limits))
    assert error.limit == name
    assert "higher limit" in error.remedy
    assert len(model.calls) == 2
    again = await stopped(agent, error.run_state, session=session, streamed=streamed)
    assert again.limit == name, "the limit is the run's, wherever it goes on"
    assert len(model.calls) == 2
    higher = under(requests=3, input_tokens=10_000, output_tokens=10_000, tool_calls=2, usd=1)
    result = await go(agent, again.run_state, session=session, streamed=streamed, run_config=higher)
    assert (result.final_output, len(model.calls), len(ran)) == ("done", 3, 2)
    kinds = [item.get("type", item.get("role")) for item in await session.get_items()]
    assert kinds.count("function_call") == kinds.count("function_call_output") == 2


async def test_a_run_within_its_limits_is_as_one_without():
    model = ScriptedModel([look("c1"), final("done", usage=COST)])
    limits = {"requests": 2, "tool_calls": 1, "input_tokens": 101, "output_tokens": 11}
    assert (await go(looker(model), "hi", run_config=under(**limits))).final_output == "done"


async def test_of_a_turn_whose_calls_do_not_all_fit_none_begins():
    """Clause F9: the run stops between turns, not in the middle of one."""
    model, ran = ScriptedModel([look("c1", "c2", "c3"), final("done")]), list[str]()
    agent = looker(model, ran)
    error = await stopped(agent, "hi", run_config=under(tool_calls=2))
    assert ran == []
    result = await go(agent, error.run_state, run_config=under(tool_calls=3))
    assert (result.final_output, len(ran), len(model.calls)) == ("done", 3, 2)


async def test_every_attempt_counts_as_a_request():
    """Clause F9: a limit is not passed by failing."""
    settings = ModelSettings(
        retry=ModelRetrySettings(
            max_retries=5, policy=retry_policies.all(lambda context: True), backoff={"initial_delay": 0}
        )
    )
    model = ScriptedModel([ConnectionError("cut")] * 5)
    agent = Agent(name="Tryer", model=model, model_settings=settings)
    await stopped(agent, "hi", run_config=under(requests=3))
    assert len(model.calls) == 3


def nested(inner_steps: list[Any], outer_steps: list[Any]) -> tuple[Agent[Any], ScriptedModel, ScriptedModel]:
    inner_model, outer_model = ScriptedModel(inner_steps), ScriptedModel(outer_steps)
    inner = looker(inner_model)
    outer = Agent(name="Outer", model=outer_model, tools=[inner.as_tool("ask", "Ask.")])
    return outer, inner_model, outer_model


def ask(*call_ids: str) -> ModelStep:
    return ModelStep([function_call("ask", {"input": "x"}, call_id=call_id) for call_id in call_ids], usage=COST)


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_runs_inside_the_run_share_its_limit_and_go_on_where_they_stopped(tmp_path: Path, streamed: bool):
    """Clause F9: nesting is no way around a limit; saved, the nested run is not begun anew."""
    outer, inner_model, outer_model = nested(
        [look("i1"), look("i2"), final("inner", usage=COST)], [ask("o1"), final("done", usage=COST)]
    )
    session = SQLiteSession("s", tmp_path / "a.db")
    config = RunConfig(limits=UsageLimits(requests=3), run_id="r1")
    await stopped(outer, "hi", session=session, run_config=config, streamed=streamed)
    assert (len(inner_model.calls), len(outer_model.calls)) == (2, 1)
    runs, _ = await Runner.list_runs(session=session)
    assert [run.status for run in runs] == ["failed"]
    result = await Runner.resume(outer, "r1", session=session, run_config=under(requests=5))
    assert (result.final_output, len(inner_model.calls), len(outer_model.calls)) == ("done", 3, 2)
    await session.close()


async def test_calls_side_by_side_end_before_a_run_stops_at_its_limit():
    """Clause F9: of two calls of a turn, one meets the limit inside; the other is not cut."""
    ended, inner_model = asyncio.Event(), ScriptedModel([final("inner")])

    @function_tool
    async def slow() -> str:
        """Take a while."""
        await inner_model.wait_for_call(0)
        for _ in range(50):
            await asyncio.sleep(0)
        ended.set()
        return "ok"

    calls = [function_call("slow", {}, call_id="c1"), function_call("ask", {"input": "x"}, call_id="c2")]
    outer_model = ScriptedModel([ModelStep(calls), final("done")])
    inner = Agent(name="Inner", model=inner_model)
    agent = Agent(name="Outer", model=outer_model, tools=[slow, inner.as_tool("ask", "Ask.")])
    session = InMemorySession("s")
    error = await stopped(agent, "hi", session=session, run_config=under(requests=1))
    assert ended.is_set()
    result = await go(agent, error.run_state, session=session, run_config=under(requests=3))
    assert (result.final_output, len(inner_model.calls), len(outer_model.calls)) == ("done", 1, 2)


async def test_two_nested_runs_never_share_one_free_request():
    outer, inner_model, _ = nested([final("a"), final("b")], [ask("o1", "o2")])
    await stopped(outer, "hi", run_config=under(requests=2))
    assert len(inner_model.calls) == 1


async def test_an_agent_tool_may_have_a_limit_of_its_own():
    inner_model, outer_model = ScriptedModel([look("i1"), final("inner")]), ScriptedModel([ask("o1"), final("done")])
    tool = looker(inner_model).as_tool("ask", "Ask.", run_config=under(requests=1))
    agent = Agent(name="Outer", model=outer_model, tools=[tool])
    error = await stopped(agent, "hi", run_config=under(requests=9))
    assert "1 of 1 requests" in error.what


DIES = """
import asyncio, os, sys
from standfast import Agent, RunConfig, Runner, SQLiteSession, UsageLimits
from standfast.testing import AnsweringModel

def die(call):
    os._exit(9)

config = RunConfig(limits=UsageLimits(requests=2), run_id="r1")
session = SQLiteSession("s", sys.argv[1])
asyncio.run(Runner.run(Agent(name="Looker", model=AnsweringModel(die)), "hi", session=session, run_config=config))
"""


async def test_a_saved_run_counts_what_its_earlier_lives_have_used(tmp_path: Path):
    """Clause F9: a process that dies in a request leaves the request counted; the next life has what is left."""
    path = tmp_path / "a.db"
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", DIES, str(path)], check=False)
    session, model = SQLiteSession("s", path), ScriptedModel([look("c1"), final("done")])
    config = RunConfig(limits=UsageLimits(requests=2), run_id="r1")
    await stopped(looker(model), "hi", session=session, run_config=config)
    assert len(model.calls) == 1
    await session.close()


async def test_a_limit_given_later_counts_what_was_used_before():
    model = ScriptedModel([look("c1"), LookupError("broken"), final("done")])
    agent = looker(model)
    with pytest.raises(LookupError) as caught:
        await Runner.run(agent, "hi")
    state = caught.value.run_state  # type: ignore[attr-defined]
    assert (await stopped(agent, state, run_config=under(requests=1))).limit == "requests"
    assert (await stopped(agent, state, run_config=under(input_tokens=100))).limit == "input_tokens"


async def test_a_limit_in_money_given_later_counts_what_was_paid_under_other_limits():
    """Clause F9a: earlier lives count, also those under a limit that needed no price."""
    model = Named([look(f"c{number}") for number in range(9)])
    price = lambda usage, model: 0.25 * usage.requests  # noqa: E731
    agent = looker(model)
    error = await stopped(agent, "hi", run_config=under(requests=3))
    config = RunConfig(limits=UsageLimits(usd=1), price=price)
    error = await stopped(agent, error.run_state, run_config=config)
    assert (error.limit, len(model.calls)) == ("usd", 4)
    error = await stopped(agent, error.run_state, run_config=under(requests=6))
    error = await stopped(agent, error.run_state, run_config=RunConfig(limits=UsageLimits(usd=2), price=price))
    assert (error.limit, len(model.calls)) == ("usd", 8)


async def test_a_life_without_limits_counts_where_they_come_back():
    """Clause F9a: taking limits off for a while makes nothing free."""
    model = ScriptedModel([look("c0"), look("c1"), look("c2"), LookupError("broken"), *map(look, ("c3", "c4", "c5"))])
    agent = looker(model)
    error = await stopped(agent, "hi", run_config=under(requests=1))
    with pytest.raises(LookupError) as caught:
        await Runner.run(agent, error.run_state, run_config=RunConfig(limits=UsageLimits()))
    state = caught.value.run_state  # type: ignore[attr-defined]
    error = await stopped(agent, state, run_config=under(requests=5))
    assert (error.limit, len(model.calls)) == ("requests", 5)


async def test_a_model_without_a_price_is_not_asked_under_a_limit_in_money():
    """Clause F9: what cannot be counted is refused before it is paid for."""
    model = ScriptedModel([final("done", usage=COST)])
    with pytest.raises(UserError, match="no known price") as caught:
        await Runner.run(looker(model), "hi", run_config=under(usd=1))
    assert model.calls == ()
    config = RunConfig(price=lambda usage, model: Decimal("0.25") * usage.requests, limits=UsageLimits(usd=1))
    assert (await Runner.run(looker(model), caught.value.run_state, run_config=config)).final_output == "done"  # type: ignore[attr-defined]


async def test_money_is_counted_exactly():
    """A thousand replies of a ten-thousandth of a cent: a sum of floats would miss the limit."""
    steps = [look(f"c{number}") for number in range(30)]
    config = RunConfig(price=lambda usage, model: 0.1 if usage.input_tokens > 1 else 0, limits=UsageLimits(usd="0.3"))
    model = ScriptedModel(steps)
    await stopped(looker(model), "hi", run_config=config, max_turns=None)
    assert len(model.calls) == 3


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"requests": -1}, InvalidSettingError),
        ({"requests": 1.5}, SettingTypeError),
        ({"tool_calls": True}, SettingTypeError),
        ({"usd": -1}, InvalidSettingError),
        ({"usd": "much"}, InvalidSettingError),
        ({"usd": float("nan")}, InvalidSettingError),
        ({"usd": True}, SettingTypeError),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(wrong: Any, error: type[Exception]):
    with pytest.raises(error, match="UsageLimits"):
        UsageLimits(**wrong)


async def test_max_turns_and_a_limit_hold_side_by_side():
    """`max_turns` is asked first: its handler can give an output, and a limit cannot be talked away."""
    model = ScriptedModel([look("c1"), look("c2")])
    handlers = {"max_turns": lambda given: "enough"}
    result = await Runner.run(looker(model), "hi", max_turns=1, run_config=under(requests=1), error_handlers=handlers)
    assert result.final_output == "enough"
    error = await stopped(looker(model), "hi", max_turns=1, run_config=under(requests=0), error_handlers=handlers)
    assert error.limit == "requests"


@pytest.mark.parametrize("name", ["limits", "price"])
def test_a_voice_call_refuses_limits_and_says_what_to_do(name: str):
    config: Any = {name: UsageLimits(requests=1)}
    with pytest.raises(SettingTypeError, match="no turns to stop between"):
        RealtimeRunner(RealtimeAgent(name="Voice"), config=config)
