"""What a reader of a round of simplifications found before it was out: each of these failed when it was written."""

from __future__ import annotations

import copy
from typing import Any

from helpers.ledger_oracle import outputs

from standfast import Agent, InMemorySession, RunConfig, Runner, RunState, ToolContext, function_tool
from standfast.testing import ScriptedModel, final, function_call


async def test_a_tool_may_copy_its_context() -> None:
    """The copy held what runs agents inside the call, and with that the run, its tasks and its locks."""
    copies: list[ToolContext[Any]] = []

    @function_tool
    async def remember(ctx: ToolContext[Any]) -> str:
        copies.append(copy.deepcopy(ctx))
        return f"{len({ctx.run_agent, copies[0].run_agent})} runner"

    agent = Agent(name="a", model=ScriptedModel([[function_call("remember", {}, call_id="c1")], final("done")]))
    agent.tools = [remember]
    result = await Runner.run(agent, "hi", context={"user": [1]})
    assert outputs(result.to_input_list()) == {"c1": ["1 runner"]}
    assert copies[0].context == {"user": [1]}


async def test_a_tool_that_calls_an_agent_tool_gets_the_error_of_a_run_that_it_resumed() -> None:
    """The error said that a state is behind, and was taken for one of the nested run, which is new each time."""
    session, config = InMemorySession("s"), RunConfig(run_store=None)

    @function_tool(needs_approval=True)
    async def pay() -> str:
        return "paid"

    payer = Agent(name="payer", tools=[pay])
    payer.model = ScriptedModel([[function_call("pay", {}, call_id="p1")], final("paid")])
    paused = await Runner.run(payer, "pay", session=session, run_config=config)
    state, saved = paused.to_state(), paused.to_state().to_string()
    state.approve(state.get_interruptions()[0])
    await Runner.run(payer, state, session=session, run_config=config)

    @function_tool(failure_error_function=None)
    async def resume() -> str:
        old = await RunState.from_string(payer, saved)
        old.approve(old.get_interruptions()[0])
        return str((await Runner.run(payer, old, session=session, run_config=config)).final_output)

    clerk = Agent(name="clerk", tools=[resume], model=ScriptedModel([[function_call("resume", {}, call_id="r1")]]))
    clerk_tool = clerk.as_tool("clerk", "Asks the clerk.", failure_error_function=None)

    @function_tool
    async def ask_clerk(ctx: ToolContext[Any]) -> str:
        try:
            return str(await clerk_tool.on_invoke_tool(ctx, '{"input": "go on"}'))
        except Exception as error:
            return type(error).__name__

    boss = Agent(name="boss", tools=[ask_clerk])
    boss.model = ScriptedModel([[function_call("ask_clerk", {}, call_id="b1")], final("done")])
    assert outputs((await Runner.run(boss, "hi")).to_input_list()) == {"b1": ["RunClaimedError"]}


async def test_a_nested_run_that_is_refused_another_owner_leaves_what_it_did_and_cost() -> None:
    """C8: the model was not told which tools it had called, and the session forgot what its replies had cost."""
    session = InMemorySession("outer")

    @function_tool(needs_approval=True)
    async def pay() -> str:
        return "paid"

    inner = Agent(name="inner", tools=[pay], model=ScriptedModel([[function_call("pay", {}, call_id="p1")]]))
    outer = Agent(name="outer", tools=[inner.as_tool("inner", "Pays.", session=InMemorySession("one"))])
    outer.model = ScriptedModel([[function_call("inner", {"input": "pay"}, call_id="c1")], final("done")])
    state = (await Runner.run(outer, "hi", session=session)).to_state()
    state.approve(state.get_interruptions()[0])
    outer.tools = [inner.as_tool("inner", "Pays.", session=InMemorySession("another"))]
    result = await Runner.run(outer, state, session=session)
    ((told,),) = outputs(result.to_input_list()).values()
    assert "is owned by session 'one'" in told
    assert "it had called pay" in told
    (cost,) = await session.usage()
    assert cost.total.requests == 3
