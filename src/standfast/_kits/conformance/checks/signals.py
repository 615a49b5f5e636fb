"""F7: a signal to a running run is kept, and applied by the run's worker or by the next one."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import AnySession, Lab
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import AlreadyDecidedError, LeaseLostError, RunCancelledError

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store
    from standfast._src.agents.agent import Agent
    from standfast._src.tools.function_tool import FunctionTool

NEEDS = "runs", "record", "lease"
RENEWED_S = 0.9
# Time to live of a lease whose holder hears of a signal within a third of it.


def _tool(name: str, work: Any, *, needs_approval: bool = False) -> FunctionTool:
    from standfast._src.tools.function_tool import FunctionTool

    async def invoke(context: object, arguments: str) -> str:
        await work()
        return f"did {name}"

    parameters: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False, "required": []}
    return FunctionTool(name, name, parameters, invoke, needs_approval=needs_approval)


def _agent(work: Any, pay: Any, *, is_asked: bool = False) -> Agent[Any]:
    """Build an agent that calls `work`, and `pay` with an approval, and then is done.

    `is_asked`: the model has made these calls before.
    """
    from standfast._kits.testing.script import assistant_message, function_call
    from standfast._kits.testing.scripted_model import ScriptedModel
    from standfast._src.agents.agent import Agent

    calls = [function_call("work", {}, call_id="c1"), function_call("pay", {}, call_id="c2")]
    done = [assistant_message("done")]
    tools: list[Any] = [_tool("work", work), _tool("pay", pay, needs_approval=True)]
    return Agent(name="a", tools=tools, model=ScriptedModel([calls, done][is_asked:]))


async def _run(agent: Agent[Any], session: AnySession) -> Any:
    from standfast._src.agents.run_config import RunConfig
    from standfast._src.runs.api.runner import Runner

    return await Runner.run(agent, "go", session=session, run_config=RunConfig(run_id="r", lease_ttl_s=RENEWED_S))


async def _is_waiting(store: Store) -> None:
    """Wait until the call `c2` waits in the saved run."""
    while True:
        with suppress(LookupError):
            if [call.call_id for call in (await store.run("r")).waiting] == ["c2"]:
                return
        await asyncio.sleep(0.01)


def _outputs(items: list[Any]) -> dict[str, str]:
    return {item["call_id"]: str(item["output"]) for item in items if item.get("type") == "function_call_output"}


@proves("F7", *NEEDS)
async def a_decision_while_a_worker_is_at_the_run_is_applied_by_that_worker(lab: Lab) -> None:
    session, paid = lab.open(), list[str]()

    async def work() -> None:
        store = lab.store()
        await _is_waiting(store)
        view = await store.decide("r", "c2", True, by="ada")
        lab.same(view.status, "running", "a run after a decision that its worker has not applied")
        other = store.decide("r", "c2", False, by="bob")
        await lab.refuses(other, "a second decision while the first one is kept", AlreadyDecidedError)

    async def pay() -> None:
        paid.append("paid")

    result = await _run(_agent(work, pay), session)
    lab.same((result.final_output, paid), ("done", ["paid"]), "a run that was decided while its worker was at it")
    lab.same(_outputs(await session.get_items()), {"c1": "did work", "c2": "did pay"}, "the outputs of that run")


@proves("F7", *NEEDS)
async def a_kept_decision_outlives_the_worker_and_the_next_one_applies_it(lab: Lab) -> None:
    from standfast._src.runs.api.runner import Runner

    session, paid = lab.open(), list[str]()

    async def pay() -> None:
        paid.append("paid")

    async def work() -> None:
        store = lab.store()
        await _is_waiting(store)
        await store.decide("r", "c2", True, by="ada")
        await store.unlock(session.session_id)  # whatever this worker does from now on is refused, as after its death

    with suppress(LeaseLostError):
        await _run(_agent(work, pay), session)
    lab.same(paid, [], "a worker that has lost its session")
    agent = _agent(work, pay, is_asked=True)
    result = await Runner.resume(agent, "r", session=session)
    lab.same((result.final_output, paid), ("done", ["paid"]), "the next worker of a run with a kept decision")


@proves("F7", *NEEDS)
async def a_wish_to_cancel_ends_the_run_by_its_worker_and_its_turn_is_whole(lab: Lab) -> None:
    session, begun = lab.open(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    running = asyncio.ensure_future(_run(_agent(work, work), session))
    await begun.wait()
    store = lab.store()
    view = await store.cancel("r", by="ada")
    lab.same((view.status, view.cancelled_by), ("running", "ada"), "a run whose worker has not heard of the wish")
    async with asyncio.timeout(lab.options.soon_s):
        await lab.refuses(running, "a run that was cancelled while its worker was at it", RunCancelledError)
    lab.same((await store.run("r")).status, "cancelled", "that run")
    outputs = _outputs(await session.get_items())
    lab.same(sorted(outputs), ["c1", "c2"], "the calls of that run with an output")
    lab.expect("ada cancelled the run" in outputs["c2"], f"a call that had not begun says {outputs['c2']!r}")
