"""Who acts (C16, attack 16): an approval is for one call of one agent's tool with these arguments.

Agents and tools are exchanged between the question and the answer, as releases do. What was approved is carried out
by what was shown, or refused before anything runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, Runner, RunState, SQLiteSession, StandfastError, function_tool, handoff
from standfast.testing import ScriptedModel, final, function_call, handoff_call


@pytest.fixture
def session(tmp_path: Path) -> Any:
    made = SQLiteSession("s", tmp_path / "a.db")
    yield made
    made.close()


class Ran(list[str]):
    """What was carried out, and by whom."""

    def tool(self, tag: str, name: str = "delete", *, asks: Any = True, description: str = "Delete.") -> Any:
        @function_tool(name_override=name, needs_approval=asks, description_override=description)
        async def act(n: int) -> str:
            self.append(tag)
            return f"{tag} ok"

        return act


@pytest.fixture
def ran() -> Ran:
    return Ran()


def helper(tool: Any, *replies: Any) -> Agent[Any]:
    return Agent(name="Helper", tools=[tool], model=ScriptedModel(replies))


def top(*handoffs: tuple[str, Agent[Any]], **more: Any) -> Agent[Any]:
    listed = [handoff(agent, tool_name_override=f"to_{name}") for name, agent in handoffs]
    return Agent(
        name="Top", handoffs=listed, model=ScriptedModel([[function_call("to_test", {}, call_id="h")]]), **more
    )


ASK = [function_call("delete", {"n": 1}, call_id="c1")]


async def decided(agent: Agent[Any], saved: str, **decision: Any) -> RunState:
    state = await RunState.from_string(agent, saved)
    for item in state.get_interruptions():
        state.approve(item, **decision)
    return state


@pytest.mark.parametrize("change", ["nothing", "the order of the handoffs", "one of them is gone"])
async def test_an_approval_for_one_of_two_agents_of_a_name_is_never_anothers(
    change: str, ran: Ran, session: Any
) -> None:
    """C16, attack 16: the agent is known by its name and where it stands; if it cannot be told apart, nothing runs."""
    test = helper(ran.tool("test"), ASK, final("done"))
    production = helper(ran.tool("production"), final("done"))
    paused = await Runner.run(top(("test", test), ("production", production)), "clean up", session=session)
    saved = paused.to_state().to_string()
    if change == "nothing":
        again = top(("test", test), ("production", production))
        await Runner.run(again, await decided(again, saved), session=session)
        assert ran == ["test"]
        return
    if change == "the order of the handoffs":
        later = top(("production", production), ("test", test))
    else:
        later = top(("production", production))
    test.model = production.model = ScriptedModel([final("x")])
    try:
        await Runner.run(later, await decided(later, saved), session=session)
    except StandfastError:
        assert ran == []
    assert "production" not in ran, "carried out by the agent that was not asked"


async def test_a_function_exchanged_for_an_agent_of_the_same_name_is_refused(ran: Ran, session: Any) -> None:
    """C16: a tool is its name, namespace and kind."""
    agent: Agent[Any] = Agent(name="A", tools=[ran.tool("function")], model=ScriptedModel([ASK]))
    saved = (await Runner.run(agent, "go", session=session)).to_state().to_string()
    inner = Agent(name="Inner", tools=[ran.tool("inner", "act", asks=False)], model=ScriptedModel([final("x")]))
    exchanged = inner.as_tool("delete", "Delete.", needs_approval=True)
    later: Agent[Any] = Agent(name="A", tools=[exchanged], model=ScriptedModel([final("x")]))
    with pytest.raises(StandfastError):
        await Runner.run(later, await decided(later, saved), session=session)
    assert ran == []
    assert inner.model.calls == ()  # type: ignore[union-attr]


async def test_an_agent_tool_with_another_agent_behind_it_is_refused(ran: Ran, session: Any) -> None:
    """C16: with the agent or server behind it."""

    def inner(name: str) -> Agent[Any]:
        return Agent(name=name, model=ScriptedModel([final(f"{name} acted")]))

    def outer(behind: Agent[Any], *replies: Any) -> Agent[Any]:
        tool = behind.as_tool("help", "Help.", needs_approval=True)
        return Agent(name="A", tools=[tool], model=ScriptedModel(replies))

    ask = [function_call("help", {"input": "do it"}, call_id="c1")]
    saved = (await Runner.run(outer(inner("Test"), ask), "go", session=session)).to_state().to_string()
    behind = inner("Production")
    later = outer(behind, final("x"))
    with pytest.raises(StandfastError):
        await Runner.run(later, await decided(later, saved), session=session)
    assert behind.model.calls == ()  # type: ignore[union-attr]


async def test_a_release_with_other_code_and_another_description_keeps_its_approvals(ran: Ran, session: Any) -> None:
    """C16: not its code or description, else every release would lose the approvals that wait."""
    agent: Agent[Any] = Agent(name="A", tools=[ran.tool("old")], model=ScriptedModel([ASK]))
    saved = (await Runner.run(agent, "go", session=session)).to_state().to_string()
    tool = ran.tool("new", description="Deletes things, now faster.")
    later: Agent[Any] = Agent(name="A", tools=[tool], model=ScriptedModel([final("x")]), instructions="Be kind.")
    await Runner.run(later, await decided(later, saved), session=session)
    assert ran == ["new"]


async def test_an_agent_of_another_name_does_not_carry_out_an_approval(ran: Ran, session: Any) -> None:
    """C16: the tool has the same name, the agent is another."""
    agent: Agent[Any] = Agent(name="Test", tools=[ran.tool("test")], model=ScriptedModel([ASK]))
    saved = (await Runner.run(agent, "go", session=session)).to_state().to_string()
    other: Agent[Any] = Agent(name="Production", tools=[ran.tool("production")], model=ScriptedModel([final("x")]))
    with pytest.raises(StandfastError):
        await Runner.run(other, await decided(other, saved), session=session)
    assert ran == []


async def test_always_is_for_one_agents_tool(ran: Ran, session: Any) -> None:
    """C16: approved for good for one agent, the tool of the same name of another asks again."""
    second: Agent[Any] = Agent(
        name="Second",
        tools=[ran.tool("second")],
        model=ScriptedModel([[function_call("delete", {"n": 2}, call_id="c2")], final("x")]),
    )
    first: Agent[Any] = Agent(
        name="First",
        tools=[ran.tool("first")],
        handoffs=[second],
        model=ScriptedModel([ASK, [handoff_call(second, call_id="h")]]),
    )
    state = (await Runner.run(first, "go", session=session)).to_state()
    state.approve(state.get_interruptions()[0], always_approve=True)
    result = await Runner.run(first, state, session=session)
    assert ran == ["first"]
    assert [item.agent.name for item in result.interruptions] == ["Second"]


@pytest.mark.parametrize("arguments", ["", "{", "[1]", "null", '"n"', "{'n': 1}", '{"n": '])
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_arguments_that_a_policy_function_cannot_read_ask_a_person(
    arguments: str, streamed: bool, ran: Ran, session: Any
) -> None:
    """C16: a function that lets small amounts pass must not let through what it was never shown."""
    seen: list[Any] = []

    async def large(context: Any, parameters: dict[str, Any], call_id: str) -> bool:
        seen.append(parameters)
        return bool(parameters.get("n", 0) > 10)

    call = function_call("delete", {}, call_id="c1") | {"arguments": arguments}
    agent: Agent[Any] = Agent(name="A", tools=[ran.tool("t", asks=large)], model=ScriptedModel([[call], final("x")]))
    if streamed:
        result: Any = Runner.run_streamed(agent, "go", session=session)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, "go", session=session)
    assert len(result.interruptions) == 1
    assert ran == []


@pytest.mark.parametrize("gone", ["the handoff is gone", "its target has another name"])
async def test_a_resume_whose_handoff_is_gone_is_refused_before_any_approved_tool_runs(
    gone: str, ran: Ran, session: Any
) -> None:
    """C16: what could be known before the first effect is told before the first effect."""
    target: Agent[Any] = Agent(name="Target", model=ScriptedModel([final("x")]))
    reply = [function_call("delete", {"n": 1}, call_id="c1"), function_call("to_target", {}, call_id="c2")]

    def agent(handoffs: list[Any], *replies: Any) -> Agent[Any]:
        return Agent(name="A", tools=[ran.tool("t")], handoffs=handoffs, model=ScriptedModel(replies))

    first = agent([handoff(target, tool_name_override="to_target")], reply)
    saved = (await Runner.run(first, "go", session=session)).to_state().to_string()
    other: Agent[Any] = Agent(name="Other", model=ScriptedModel([final("x")]))
    left = [] if gone == "the handoff is gone" else [handoff(other, tool_name_override="to_target")]
    later = agent(left, final("x"))
    with pytest.raises(StandfastError):
        await Runner.run(later, await decided(later, saved), session=session)
    assert ran == []


async def test_a_tool_that_is_gone_is_refused_before_another_approved_tool_runs(ran: Ran, session: Any) -> None:
    """C16: two calls of one reply, both approved; one tool is not there any more."""
    reply = [*ASK, function_call("pay", {"n": 1}, call_id="c2")]
    agent: Agent[Any] = Agent(name="A", tools=[ran.tool("t"), ran.tool("p", "pay")], model=ScriptedModel([reply]))
    saved = (await Runner.run(agent, "go", session=session)).to_state().to_string()
    later: Agent[Any] = Agent(name="A", tools=[ran.tool("t")], model=ScriptedModel([final("x")]))
    with pytest.raises(StandfastError):
        await Runner.run(later, await decided(later, saved), session=session)
    assert ran == []


@pytest.mark.parametrize("same_process", [False, True], ids=["elsewhere", "here"])
@pytest.mark.parametrize("other", ["function", "agent"])
async def test_an_approval_of_every_call_covers_no_other_implementation(ran: Ran, other: str, same_process: bool):
    """C16c, C16d: what stands behind the name is part of the tool that was approved for good."""
    done = Ran()
    shown = Agent(name="Shown", model=ScriptedModel([final("shown")])).as_tool("delete", "Delete.", needs_approval=True)
    hidden = Agent(name="Hidden", tools=[done.tool("hidden", "inner", asks=False)], model=ScriptedModel([final("no")]))
    behind = ran.tool("other") if other == "function" else hidden.as_tool("delete", "Delete.", needs_approval=True)
    wait = ran.tool("waited", "wait")
    arguments = {"n": 1} if other == "function" else {"input": "x"}
    replies = [
        [function_call("delete", {"input": "x"}, call_id="c1")],
        [function_call("wait", {"n": 1}, call_id="c2")],
        [function_call("delete", arguments, call_id="c3")],
        final("done"),
    ]
    model = ScriptedModel(replies)
    first = Agent(name="Top", tools=[shown, wait], model=model)
    state = (await Runner.run(first, "go")).to_state()
    state.approve(state.get_interruptions()[0], always_approve=True)
    state = (await Runner.run(first, state)).to_state()
    second = Agent(name="Top", tools=[behind, wait], model=model)
    if same_process:
        first.tools[:] = second.tools
    else:
        state = await RunState.from_string(second, state.to_string())
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(first if same_process else second, state)
    assert [item.call_id for item in result.interruptions] == ["c3"]
    assert (ran, done) == (["waited"], [])
