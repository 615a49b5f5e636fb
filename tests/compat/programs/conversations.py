"""Conversations that a server keeps, played by a script."""

from __future__ import annotations

from typing import Any

from agents import Agent, Runner, SQLiteSession, UserError, function_tool
from agents.run import CallModelData, ModelInputData, RunConfig
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call


@function_tool
def clock() -> str:
    """The time."""
    return "noon"


def _agent() -> Agent[Any]:
    steps = [
        ModelStep(output=[function_call("clock", {}, call_id="c1")], response_id="r1"),
        ModelStep(output=[assistant_message("Noon.", item_id="m1")], response_id="r2"),
        ModelStep(output=[assistant_message("Still noon.", item_id="m2")], response_id="r3"),
    ]
    return Agent(name="A", tools=[clock], model=ScriptedModel(steps))


def _calls(agent: Agent[Any]) -> Any:
    return [(call.input, call.previous_response_id, call.conversation_id) for call in agent.model.calls]


async def example_a_chain_of_responses(folder):
    agent = _agent()
    first = await Runner.run(agent, "Time?", previous_response_id="r0")
    second = await Runner.run(agent, "And now?", previous_response_id=first.last_response_id)
    return first, first.last_response_id, second.last_response_id, _calls(agent)


async def example_a_chain_by_itself(folder):
    agent = _agent()
    result = await Runner.run(agent, "Time?", auto_previous_response_id=True)
    return result, _calls(agent)


async def example_a_conversation(folder):
    agent = _agent()
    first = await Runner.run(agent, "Time?", conversation_id="conv1")
    second = await Runner.run(agent, "And now?", conversation_id="conv1")
    return first, second, _calls(agent)


async def example_while_streaming(folder):
    agent = _agent()
    result = Runner.run_streamed(agent, "Time?", conversation_id="conv1")
    async for _ in result.stream_events():
        pass
    return result.final_output, _calls(agent)


async def example_a_session_beside_a_conversation(folder):
    session = SQLiteSession("guest")
    errors = []
    for more in ({"conversation_id": "conv1"}, {"previous_response_id": "r0"}, {"auto_previous_response_id": True}):
        try:
            await Runner.run(_agent(), "Time?", session=session, **more)
        except UserError as error:
            errors.append(error)
    session.close()
    return errors


async def example_replaying_by_hand(folder):
    agent = _agent()
    first = await Runner.run(agent, "Time?")
    await Runner.run(agent, [*first.to_input_list(), {"role": "user", "content": "And now?"}])
    return _calls(agent)


async def example_a_filter_of_what_is_sent(folder):
    def short(data: CallModelData[Any]) -> ModelInputData:
        assert data.agent.name == "A"
        return ModelInputData(input=data.model_data.input[-1:], instructions="Be short.")

    agent = _agent()
    result = await Runner.run(agent, "Time?", run_config=RunConfig(call_model_input_filter=short))
    return result, [(call.input, call.system_instructions) for call in agent.model.calls]
