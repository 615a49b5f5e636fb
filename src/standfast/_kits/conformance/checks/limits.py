"""F9 and F10: limits in the record of a run, and budgets in the steps of its saves."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import AnySession, Lab
from standfast._kits.conformance.registry import proves

if TYPE_CHECKING:
    from standfast._src.agents.agent import Agent
    from standfast._src.agents.run_config import RunConfig

NEEDS = "runs", "record", "lease"
COST = {"requests": 1, "input_tokens": 90, "output_tokens": 10, "total_tokens": 100}


def _agent(*texts: str | None) -> Agent[Any]:
    """Build an agent with a reply for each text, and a tool call for each None."""
    from standfast._kits.testing.script import ModelStep, assistant_message, function_call
    from standfast._kits.testing.scripted_model import ScriptedModel
    from standfast._src.agents.agent import Agent
    from standfast._src.items.usage import Usage
    from standfast._src.models.model_settings import ModelSettings
    from standfast._src.tools.function_tool import FunctionTool

    async def invoke(context: object, arguments: str) -> str:
        return "worked"

    parameters: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    calls = [function_call("work", {}, call_id=f"c{number}") for number in range(len(texts))]
    steps = [calls[number] if text is None else assistant_message(text) for number, text in enumerate(texts)]
    model = ScriptedModel([ModelStep([step], usage=Usage.from_json(COST)) for step in steps])
    tools: list[Any] = [FunctionTool("work", "Work.", parameters, invoke)]
    return Agent(name="a", tools=tools, model=model, model_settings=ModelSettings(max_tokens=20))


def _requests(agent: Agent[Any]) -> int:
    return len(agent.model.calls)  # type: ignore[union-attr]


def _config(tokens: int, **settings: Any) -> RunConfig:
    from standfast._src.agents.run_config import RunConfig
    from standfast._src.agents.usage_limits import Budget

    return RunConfig(budgets=[Budget("acme", tokens=tokens)], **settings)


async def _run_to_stop(agent: Agent[Any], session: AnySession, config: RunConfig) -> str:
    """Run, and return the name of the reached limit, or the output."""
    from standfast._src.base.errors import UsageLimitExceeded
    from standfast._src.runs.api.runner import Runner

    try:
        return str((await Runner.run(agent, "go", session=session, run_config=config)).final_output)
    except UsageLimitExceeded as error:
        return error.limit


ACME = "total/tokens/acme"


@proves("F9", *NEEDS)
async def a_saved_run_stops_at_its_limit_and_goes_on_under_a_higher_one(lab: Lab) -> None:
    from standfast._src.agents.run_config import RunConfig
    from standfast._src.agents.usage_limits import UsageLimits
    from standfast._src.runs.api.runner import Runner

    agent, session = _agent(None, "done"), lab.open()
    config = RunConfig(run_id="r", limits=UsageLimits(requests=1))
    lab.same(await _run_to_stop(agent, session, config), "requests", "what stopped a run under a limit of 1 request")
    lab.same(await _run_to_stop(agent, lab.open(), RunConfig(run_id="r")), "requests", "what stopped its next life")
    lab.same(_requests(agent), 1, "the requests under a limit of 1")
    higher = RunConfig(limits=UsageLimits(requests=2))
    result = await Runner.resume(agent, "r", session=lab.open(), run_config=higher)
    lab.same((result.final_output, _requests(agent)), ("done", 2), "the run under a limit of 2 requests")


@proves("F10", *NEEDS)
async def runs_of_several_sessions_share_a_budget_to_the_last_token(lab: Lab) -> None:
    first, second, runs = lab.open(), lab.open("other"), lab.open().run_store()
    lab.same(await _run_to_stop(_agent(None, "done"), first, _config(100_000)), "done", "a run within its budget")
    found = await runs.budget(ACME)
    lab.same((found.used, found.unknown, dict(found.held)), (200, 0, {}), "the budget after two replies of 100 tokens")
    await runs.set_budget(ACME, 210)
    agent = _agent("late")
    lab.same(await _run_to_stop(agent, second, _config(100_000, run_id="r")), ACME, "what stopped a run without room")
    lab.same(_requests(agent), 0, "its requests")
    lab.same((await runs.budget(ACME)).used, 200, "the budget after a refused request")
    await runs.set_budget(ACME, 100_000)
    from standfast._src.runs.api.runner import Runner

    result = await Runner.resume(agent, "r", session=lab.open("other"))
    lab.same((result.final_output, (await runs.budget(ACME)).used), ("late", 300), "the run with more room")
    lab.same([one.budget_id for one in await runs.budgets()], [ACME], "the budgets of the store")


@proves("F10", *NEEDS)
async def concurrent_runs_stay_within_a_budget(lab: Lab) -> None:
    from standfast._src.agents.run_config import RunConfig
    from standfast._src.agents.usage_limits import Budget

    config, agents = RunConfig(budgets=[Budget("acme", requests=3)]), [_agent("x") for _ in range(6)]
    ends = await asyncio.gather(*(_run_to_stop(one, lab.open(f"s{n}"), config) for n, one in enumerate(agents)))
    lab.same(sorted(ends), ["total/requests/acme"] * 3 + ["x"] * 3, "the ends of six runs under a budget of 3 requests")
    lab.same(sum(map(_requests, agents)), 3, "their requests")


@proves("F10", *NEEDS)
async def a_request_without_an_outcome_stays_counted_and_is_marked(lab: Lab) -> None:
    from standfast._src.runs.api.runner import Runner

    agent, begun, runs = _agent("never"), asyncio.Event(), lab.open().run_store()

    async def hang(request: Any) -> Any:
        begun.set()
        await asyncio.Event().wait()

    agent.model.respond = hang  # type: ignore[union-attr]
    run = asyncio.ensure_future(Runner.run(agent, "go", session=lab.open(), run_config=_config(100_000, run_id="r")))
    await asyncio.wait([run, asyncio.ensure_future(begun.wait())], return_when=asyncio.FIRST_COMPLETED)
    held = (await runs.budget(ACME)).used
    lab.expect(held > 20, f"while a request is under way, {held} tokens are reserved for it")
    run.cancel()
    await asyncio.wait([run])
    found = await runs.budget(ACME)
    lab.same((found.used, found.unknown, dict(found.held)), (held, held, {}), "the budget after a cancelled request")
