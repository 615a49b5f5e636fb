"""What once gave other results in programs that only changed their import: streams, cancellation and resuming."""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, Runner, function_tool
from agents.testing import ScriptedModel, assistant_message, function_call


def _call(name: str, arguments: Any, call_id: str = "c1") -> list[Any]:
    return [function_call(name, arguments, call_id=call_id)]


def _say(text: str) -> list[Any]:
    return [assistant_message(text)]


@function_tool
def note(v: str = "x") -> str:
    """Note it."""
    return v


async def example_the_task_of_a_failed_run_raises(folder):
    result = Runner.run_streamed(Agent(name="A", model=ScriptedModel([ValueError("no")])), "Go")
    seen = []
    try:
        await result.run_loop_task
        seen.append("returned")
    except Exception as error:
        seen.append(error)
    try:
        async for _ in result.stream_events():
            pass
    except Exception as error:
        seen.append(error)
    return seen


async def example_a_stop_after_the_turn_before_the_first_event(folder):
    agent = Agent(name="A", tools=[note], model=ScriptedModel([_call("note", {}), _say("done")]))
    result = Runner.run_streamed(agent, "Go")
    result.cancel(mode="after_turn")
    events = [event.type async for event in result.stream_events()]
    return (
        len(agent.model.calls),
        len([one for one in events if one != "agent_updated_stream_event"]),
        result.is_complete,
    )


async def example_a_cancelled_stream_gives_no_more_events(folder):
    agent = Agent(name="A", model=ScriptedModel([_say("done")]))
    result = Runner.run_streamed(agent, "Go")
    seen = 0
    async for _ in result.stream_events():
        seen += 1
        if seen == 1:
            while not result.run_loop_task.done():
                await asyncio.sleep(0.01)
            result.cancel()
    return seen, result.is_complete


async def example_input_that_waits_after_a_stop(folder):
    ask = function_tool(lambda: "x", name_override="ask", needs_approval=True)
    agent = Agent(
        name="A", tools=[ask, note], model=ScriptedModel([_call("ask", {}), _call("note", {}, "c2"), _say("done")])
    )
    state = (await Runner.run(agent, "Go")).to_state()
    state.approve(state.get_interruptions()[0])
    state.add_input("and this")
    before = state.pending_input
    result = Runner.run_streamed(agent, state)
    result.cancel(mode="after_turn")
    async for _ in result.stream_events():
        pass
    after = result.to_state()
    again = await Runner.run(agent, after)
    said = [item.get("content") for item in again.to_input_list() if item.get("role") == "user"]
    return len(before), len(after.pending_input), said, again.final_output


async def _cancelled_resume(streamed: bool) -> Any:
    started, ran = asyncio.Event(), []

    @function_tool(needs_approval=True)
    async def deep() -> str:
        """Ask first."""
        ran.append("deep")
        return "deep"

    class Slow(ScriptedModel):
        async def get_response(self, *args, **more):
            await self._wait()
            return await super().get_response(*args, **more)

        async def stream_response(self, *args, **more):
            await self._wait()
            async for event in super().stream_response(*args, **more):
                yield event

        async def _wait(self):
            if len(self.calls) == 1 and not started.is_set():
                started.set()
                await asyncio.sleep(30)

    inner = Agent(name="Inner", tools=[deep], model=Slow([_call("deep", {}, "d1"), _say("inner done")]))
    steps = [_call("work", {"input": "x"}), _say("outer done")]
    outer = Agent(name="Outer", tools=[inner.as_tool("work", "Work.")], model=ScriptedModel(steps))
    state = (await Runner.run(outer, "Go")).to_state()
    state.approve(state.get_interruptions()[0])
    if streamed:
        first = Runner.run_streamed(outer, state)
        watching = asyncio.ensure_future(_drained(first))
        await started.wait()
        first.cancel()
        await watching
    else:
        task = asyncio.ensure_future(Runner.run(outer, state))
        await started.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    result = await Runner.run(outer, state)
    outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
    return result.final_output, outputs, ran


async def _drained(result: Any) -> None:
    async for _ in result.stream_events():
        pass


async def example_a_cancelled_resume_of_a_nested_agent_goes_on(folder):
    return await _cancelled_resume(False)


async def example_a_cancelled_streamed_resume_of_a_nested_agent_goes_on(folder):
    return await _cancelled_resume(True)
