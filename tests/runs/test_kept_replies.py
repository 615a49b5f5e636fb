"""A reply that arrived was paid for: an observer that raises does not throw it away, and resuming goes on from it."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import Agent, InMemorySession, RunHooks, Runner, function_tool
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call
from tests.runs.whole_runs import go

OWNERS: dict[str, dict[str, Any]] = {
    "application": {},
    "session": {"session": True},
    "conversation": {"conversation_id": "c1"},
    "chain": {"previous_response_id": "r0"},
}


class Broken(RunHooks[Any]):
    """Raises once, in the hook of this name."""

    def __init__(self, name: str) -> None:
        async def once(*args: Any, **kwargs: Any) -> None:
            if not self.raised:
                self.raised = True
                raise LookupError(name)

        self.raised = False
        setattr(self, name, once)


def owner_options(owner: str) -> dict[str, Any]:
    options = OWNERS[owner]
    return {"session": InMemorySession("s")} if "session" in options else dict(options)


async def failed(agent: Agent[Any], hook: str, **options: Any) -> Any:
    """The state of a run whose hook raised."""
    with pytest.raises(LookupError) as caught:
        await go(agent, "hi", hooks=Broken(hook), **options)
    return caught.value.run_state  # type: ignore[attr-defined]


def resumable(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name in ("session", "streamed")}


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("owner", OWNERS)
@pytest.mark.parametrize("hook", ["on_agent_end", "on_llm_end"])
async def test_a_reply_survives_a_hook_that_raises_and_is_not_asked_for_again(owner: str, streamed: bool, hook: str):
    """On a server's conversation an empty request used to follow; elsewhere the reply was asked for a second time."""
    model = ScriptedModel([ModelStep([assistant_message("done")], response_id="r1")])
    agent = Agent(name="a", model=model)
    options = owner_options(owner) | {"streamed": streamed}
    state = await failed(agent, hook, **options)
    result = await go(agent, state, **resumable(options))
    assert result.final_output == "done"
    assert len(model.calls) == 1
    if "session" in options:
        assert [item.get("role") for item in await options["session"].get_items()] == ["user", "assistant"]


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("owner", OWNERS)
async def test_calls_of_a_kept_reply_run_when_the_run_is_resumed(owner: str, streamed: bool):
    ran: list[int] = []

    @function_tool
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    call = function_call("pay", {"amount": 1}, call_id="p1")
    model = ScriptedModel(
        [ModelStep([call], response_id="r1"), ModelStep([assistant_message("done")], response_id="r2")]
    )
    agent = Agent(name="a", model=model, tools=[pay])
    options = owner_options(owner) | {"streamed": streamed}
    state = await failed(agent, "on_llm_end", **options)
    assert ran == [], "the hook raised before the call began"
    result = await go(agent, state, **resumable(options))
    assert (result.final_output, ran, len(model.calls)) == ("done", [1], 2)
    sent = model.calls[1].input
    assert [item["type"] for item in sent if "type" in item][-1] == "function_call_output"


async def test_a_kept_reply_goes_through_json():
    model = ScriptedModel([ModelStep([assistant_message("done")], response_id="r1")])
    agent = Agent(name="a", model=model)
    state = await failed(agent, "on_agent_end", conversation_id="c1", streamed=False)
    again = await type(state).from_json(agent, state.to_json())
    assert (await Runner.run(agent, again)).final_output == "done"
    assert len(model.calls) == 1


async def test_tools_that_ran_are_stored_even_if_the_end_hook_raises():
    """C8 comes first: what a tool did must be in the session, whether or not anybody resumes the run."""

    @function_tool
    def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    session = InMemorySession("s")
    model = ScriptedModel([ModelStep([function_call("pay", {"amount": 1}, call_id="p1")])])
    agent = Agent(name="a", model=model, tools=[pay], tool_use_behavior="stop_on_first_tool")
    await failed(agent, "on_agent_end", session=session, streamed=False)
    kinds = [item.get("type") for item in await session.get_items()]
    assert kinds[-2:] == ["function_call", "function_call_output"]
