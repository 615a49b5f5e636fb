"""A person in the loop."""

from __future__ import annotations

import json
from typing import Any

from agents import Agent, RunContextWrapper, Runner, RunState, SQLiteSession, ToolApprovalItem, function_tool
from agents.run_state import RunState as SameState
from agents.testing import ScriptedModel, assistant_message, function_call


def _tools(done: list[str]) -> list[Any]:
    async def expensive(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        return arguments["amount"] > 10

    @function_tool(needs_approval=True)
    def delete(name: str) -> str:
        """Delete."""
        done.append(f"delete {name}")
        return f"{name} deleted"

    @function_tool(needs_approval=expensive)
    def pay(amount: int) -> str:
        """Pay."""
        done.append(f"pay {amount}")
        return f"{amount} paid"

    @function_tool
    def look(name: str) -> str:
        """Look."""
        done.append(f"look {name}")
        return f"{name} is there"

    return [delete, pay, look]


def _agent(done: list[str], *steps: Any) -> Agent[Any]:
    return Agent(name="Clerk", tools=_tools(done), model=ScriptedModel(steps))


async def example_approving(folder):
    done: list[str] = []
    agent = _agent(
        done,
        [function_call("look", {"name": "a"}, call_id="c1"), function_call("delete", {"name": "a"}, call_id="c2")],
        [assistant_message("Gone.")],
    )
    result = await Runner.run(agent, "Delete a")
    [asked] = result.interruptions
    assert isinstance(asked, ToolApprovalItem)
    before = list(done), (asked.name, asked.tool_name, asked.arguments, asked.agent.name, asked.call_id)
    state = result.to_state()
    state.approve(asked)
    final = await Runner.run(agent, state)
    return before, done, result, final, asked.raw_item.name, SameState is RunState


async def example_rejecting(folder):
    done: list[str] = []
    agent = _agent(done, [function_call("delete", {"name": "a"}, call_id="c1")], [assistant_message("Kept.")])
    result = await Runner.run(agent, "Delete a")
    state = result.to_state()
    for asked in state.get_interruptions():
        state.reject(asked, rejection_message="Please do not.")
    final = await Runner.run(agent, state)
    return done, final, agent.model.last_call.input


async def example_through_text(folder):
    done: list[str] = []
    agent = _agent(done, [function_call("delete", {"name": "a"}, call_id="c1")], [assistant_message("Gone.")])
    result = await Runner.run(agent, "Delete a", context={"user": "Ada"})
    text = result.to_state().to_string()
    (folder / "state.json").write_text(text)
    json.loads(text)
    state = await RunState.from_string(agent, (folder / "state.json").read_text())
    state.approve(state.get_interruptions()[0])
    final = await Runner.run(agent, state)
    return done, final, final.context_wrapper.context, final.new_items[0].raw_item.name


async def example_through_json(folder):
    done: list[str] = []
    agent = _agent(done, [function_call("delete", {"name": "a"}, call_id="c1")], [assistant_message("Kept.")])
    result = await Runner.run(agent, "Delete a")
    state = await RunState.from_json(agent, json.loads(json.dumps(result.to_state().to_json())))
    state.reject(state.get_interruptions()[0])
    final = await Runner.run(agent, state)
    return done, final.final_output, [item.type for item in final.new_items]


async def example_only_sometimes(folder):
    done: list[str] = []
    agent = _agent(
        done,
        [function_call("pay", {"amount": 5}, call_id="c1"), function_call("pay", {"amount": 50}, call_id="c2")],
        [assistant_message("Paid.")],
    )
    result = await Runner.run(agent, "Pay")
    state = result.to_state()
    state.approve(result.interruptions[0])
    final = await Runner.run(agent, state)
    return [asked.arguments for asked in result.interruptions], done, final


async def example_once_and_for_all(folder):
    done: list[str] = []
    agent = _agent(
        done,
        [function_call("delete", {"name": "a"}, call_id="c1")],
        [function_call("delete", {"name": "b"}, call_id="c2")],
        [assistant_message("Gone.")],
    )
    result = await Runner.run(agent, "Delete all")
    state = result.to_state()
    state.approve(result.interruptions[0], always_approve=True)
    final = await Runner.run(agent, state)
    return done, final


async def example_one_of_two(folder):
    done: list[str] = []
    calls = [function_call("delete", {"name": "a"}, call_id="c1"), function_call("delete", {"name": "b"}, call_id="c2")]
    agent = _agent(done, calls, [assistant_message("Done.")])
    result = await Runner.run(agent, "Delete both")
    state = result.to_state()
    state.approve(result.interruptions[0])
    result = await Runner.run(agent, state)
    between = list(done), [asked.call_id for asked in result.interruptions]
    state = result.to_state()
    state.reject(result.interruptions[0])
    final = await Runner.run(agent, state)
    return between, done, final.final_output, [item.type for item in final.new_items]


async def example_while_streaming(folder):
    done: list[str] = []
    agent = _agent(done, [function_call("delete", {"name": "a"}, call_id="c1")], [assistant_message("Gone.")])
    result = Runner.run_streamed(agent, "Delete a")
    names = [e.name async for e in result.stream_events() if e.type == "run_item_stream_event"]
    state = result.to_state()
    state.approve(result.interruptions[0])
    result = Runner.run_streamed(agent, state)
    more = [e.name async for e in result.stream_events() if e.type == "run_item_stream_event"]
    return names, more, done, result.final_output


async def example_with_a_session(folder):
    done: list[str] = []
    session = SQLiteSession("guest", folder / "history.db")
    agent = _agent(done, [function_call("delete", {"name": "a"}, call_id="c1")], [assistant_message("Gone.")])
    result = await Runner.run(agent, "Delete a", session=session)
    paused = await session.get_items()
    state = result.to_state()
    state.approve(result.interruptions[0])
    final = await Runner.run(agent, state, session=session)
    stored = await session.get_items()
    session.close()
    return paused, stored, final.final_output, done


async def example_inside_an_agent_as_a_tool(folder):
    done: list[str] = []
    inner = _agent(done, [function_call("delete", {"name": "a"}, call_id="d1")], [assistant_message("It is gone.")])
    steps = [[function_call("clerk", {"input": "delete a"}, call_id="c1")], [assistant_message("Done.")]]
    outer = Agent(name="Boss", tools=[inner.as_tool("clerk", "Deletes.")], model=ScriptedModel(steps))
    result = await Runner.run(outer, "Delete a")
    [asked] = result.interruptions
    state = await RunState.from_string(outer, result.to_state().to_string())
    state.approve(state.get_interruptions()[0])
    final = await Runner.run(outer, state)
    return (asked.tool_name, asked.agent.name), done, final


async def _judged(text: str) -> list[Any]:
    """What ran, what the policy was asked, and what a person is asked, of a call with these arguments."""
    done: list[str] = []
    judged: list[Any] = []

    async def large(context: RunContextWrapper[Any], arguments: dict[str, Any], call_id: str) -> bool:
        judged.append(arguments)
        return (type(arguments["euros"]) is int and arguments["euros"] > 100) or arguments["force"] is True

    @function_tool(needs_approval=large)
    def pay(euros: int, force: bool = False) -> str:
        """Pay."""
        done.append(f"pay {euros!r} {force!r}")
        return "paid"

    steps = [[function_call("pay", text, call_id="c1")], [assistant_message("Done.")]]
    result = await Runner.run(Agent(name="Clerk", tools=[pay], model=ScriptedModel(steps)), "Pay")
    return [done, judged, [item.arguments for item in result.interruptions]]


async def example_arguments_of_other_types(folder):
    """Which calls a person is asked about, where a policy that is right about the declared types would let them run."""
    euros = ("5", "5000", '"5000"', "5000.0", "5e3", '"5"', "true", '"many"', "null")
    force = ("true", '"yes"', "1", "0", "null")
    texts = [f'{{"euros": {one}, "force": false}}' for one in euros]
    texts += [f'{{"euros": 5, "force": {one}}}' for one in force]
    texts += ['{"euros": 5}', '{"force": false, "euros": 5}', '{"euros": 5, "force": false, "who": "me"}', "[]", ""]
    return {text: await _judged(text) for text in texts}
